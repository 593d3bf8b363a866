"""Image classifiers by name: those of the demo, of torchvision and of timm, with their preprocessing and classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, cast

from torch import nn

from ig2._utils.suggestions import suggest
from ig2._utils.training import local_seed
from ig2._utils.unpickling import weights_only
from ig2.errors import IG2Error, InputError, describe, import_extra, reason
from ig2.modalities.image.modality import IMAGES
from ig2.modalities.image.photos import ImageSubject, subject
from ig2.modalities.image.reading import Framing, crop_strip
from ig2.modalities.modality import Modality
from ig2.modalities.models import MODELS


def load(model: str | nn.Module = "efficientnet-lite0", *, pretrained: bool = True) -> ImageSubject:
    """Load an image classifier by name, with its preprocessing and class names.

    Args:
        model: `"efficientnet-lite0"`, an ImageNet classifier whose weights come in a package; `"digits"`, trained on
            handwritten digits, white on black, on first use; `"torchvision:NAME"` or `"timm:NAME"`; a bare name, which is
            looked up in both, torchvision first; or a network, with the defaults of `subject`.
        pretrained: whether torchvision and timm load trained weights, from their usual cache or the network. Otherwise
            weights are random with a fixed seed, for trying things out.
    """
    if isinstance(model, nn.Module):
        return subject(model)
    if not isinstance(model, str) or not model.strip():
        raise InputError(f"model must be a name or a torch module, got {describe(model)}")
    if model in MODELS:
        return cast(ImageSubject, Modality.load(IMAGES, model))
    source, _, name = model.partition(":")
    if name and source in SOURCES:
        return SOURCES[source](name, pretrained)
    known: list[str] = list(MODELS)
    for source, build in SOURCES.items():
        if find_spec(source) is None:
            continue
        names = LISTS[source]()
        if model.partition(".")[0] in names:  # timm's names may end in a tag, as in resnet50.a1_in1k
            return build(model, pretrained)
        known += names
    missing = [source for source in SOURCES if find_spec(source) is None]
    more = f" (and more with pip install {' '.join(missing)})" if missing else ""
    raise InputError(f"no image classifier is called {model!r}{suggest(model, known, 3)}{more}")


def _list_torchvision() -> list[str]:
    models = import_extra("torchvision.models", "vision", "torchvision's models")
    return list(models.list_models(module=models))  # of the package itself: the classifiers, not detection and the like


def _load_torchvision(name: str, pretrained: bool) -> ImageSubject:
    models = import_extra("torchvision.models", "vision", f"the model torchvision:{name}")
    _check_name(name, _list_torchvision(), "torchvision")
    weights = models.get_model_weights(name).DEFAULT
    preset = weights.transforms()
    with _fetch_weights(f"torchvision:{name}", pretrained), local_seed(0):
        net = models.get_model(name, weights=weights if pretrained else None)
    side, cover = int(preset.crop_size[0]), int(preset.resize_size[0])
    categories = tuple(weights.meta.get("categories") or ()) or None
    return subject(
        net.eval(),
        (side, side),
        preset.mean,
        preset.std,
        # our own names of the thousand: torchvision's have the duplicates "crane" and "maillot"
        "imagenet" if categories is not None and len(categories) == 1000 else categories,
        frame=Framing(side, cover, preset.interpolation.value),
        name=f"torchvision {name}",
    )


def _list_timm() -> list[str]:
    return list(import_extra("timm", "vision", "timm's models").list_models())


def _load_timm(name: str, pretrained: bool) -> ImageSubject:
    timm = import_extra("timm", "vision", f"the model timm:{name}")
    data = import_extra("timm.data", "vision", f"the model timm:{name}")
    if not name.startswith(("hf-hub:", "hf_hub:", "local-dir:")):
        _check_name(name.partition(".")[0], _list_timm(), "timm")
    with _fetch_weights(f"timm:{name}", pretrained), local_seed(0):
        net = timm.create_model(name, pretrained=pretrained)
    if not getattr(net, "num_classes", 0):
        raise InputError(f"timm:{name} has no classifier on top: nothing to explain")
    config = data.resolve_model_data_config(net)
    channels, height, width = config["input_size"]
    # everything up to where the picture becomes a tensor; normalisation comes after and is the model's part
    steps = []
    for step in data.create_transform(**config, is_training=False).transforms:
        if type(step).__name__.endswith("ToTensor"):
            break
        steps.append(step)
    crops = config.get("crop_mode", "center") == "center"

    def frame(image: Any) -> Any:
        image = crop_strip(image) if crops else image
        for step in steps:
            image = step(image)
        return image

    return subject(
        net.eval(),
        (height, width),
        config["mean"],
        config["std"],
        _name_timm_classes(net, data),
        frame=frame,
        channels=channels,
        name=f"timm {name}",
    )


def _name_timm_classes(net: Any, data: Any) -> Sequence[str] | str | None:
    label_names = (getattr(net, "pretrained_cfg", None) or {}).get("label_names")
    if label_names and len(label_names) == net.num_classes:
        return tuple(map(str, label_names))
    if net.num_classes == 1000:
        return "imagenet"
    subset = data.infer_imagenet_subset(net)
    if subset is None:
        return None
    return tuple(text.partition(",")[0] for text in data.ImageNetInfo(subset).label_descriptions())


SOURCES: dict[str, Callable[[str, bool], ImageSubject]] = {"torchvision": _load_torchvision, "timm": _load_timm}
LISTS: dict[str, Callable[[], list[str]]] = {"torchvision": _list_torchvision, "timm": _list_timm}


def _check_name(name: str, names: Sequence[str], source: str) -> None:
    if name in names:
        return
    raise InputError(f"{source} has no classifier called {name!r}{suggest(name, names, 3)}")


@contextmanager
def _fetch_weights(name: str, pretrained: bool) -> Iterator[None]:
    """Fetch weights without running code hidden in them, and report why it failed."""
    try:
        with weights_only():
            yield
    except IG2Error:
        raise
    except Exception as error:  # no network, no rights, a broken download: each library has its own exceptions
        if not pretrained:
            raise InputError(f"{name} cannot be built: {reason(error)}") from error
        raise InputError(
            f"the weights of {name} are not available ({reason(error)}): connect to the network once, and they are kept"
        ) from error
