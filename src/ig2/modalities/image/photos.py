"""Image classifiers, by name or from any network: photos in, heat maps out.

Points, steps and attributions are in the space of images, by default [0, 1] for each channel. The normalisation that a network
needs is part of the model, so that black means black.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2._utils.checks import is_number
from ig2.errors import InputError, describe
from ig2.groups import Superpixels
from ig2.methods import Strata
from ig2.modalities.base import Batch, Outputs, Subject
from ig2.modalities.image import imagenet
from ig2.modalities.image.modality import IMAGES
from ig2.modalities.image.reading import Framing, parse_size, read_image
from ig2.modalities.modality import Modality
from ig2.modalities.models import default_photos, find_photos
from ig2.modalities.samples import Sample
from ig2.model import OutputName, wrap
from ig2.views import Picture

PHOTO = 96  # pixels of the shorter side from which on a picture is a photo: wafer maps have 56
BLURRED_FROM = 112  # pixels a side: maps of that size are blurred by one pixel, of twice that by two, and so on
REGIONS = 50  # that KernelSHAP divides an image into
COALITIONS = 1000  # of them, and masks of RISE; each is one run of the network
WINDOWS = 8  # of Occlusion on a side of an image, without overlap


class Normalise(nn.Module):
    """Normalise each channel, (x − mean) / std."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32)[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


@dataclass(frozen=True, eq=False, repr=False)
class ImageSubject(Subject):
    """An image classifier, with the size, channels and value range of its images."""

    size: tuple[int, int]  # height and width
    frame: Callable[[Any], Any]  # from a Pillow image of any size to one of `size`
    channels: int = 3  # or 1, for grey pictures
    value_range: float = 1.0  # white, in the data space; black is 0
    modality: ClassVar[Modality] = IMAGES

    def read_sample(self, sample: Sample) -> Tensor:
        """Return an image as the network takes it, (channels, H, W), from 0 to `value_range`.

        Args:
            sample: a path, the bytes of a file, a Pillow image or an array of uint8.
        """
        picture = np.array(self.frame(read_image(sample.source, grey=self.channels == 1)), dtype=np.uint8)
        picture = picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1)
        if picture.shape != (self.channels, *self.size):
            raise InputError(f"{sample.name} became {picture.shape} instead of {(self.channels, *self.size)}")
        return torch.from_numpy(np.ascontiguousarray(picture)).float() * (self.value_range / 255)

    def picture(self, sample: Tensor) -> NDArray[np.uint8]:
        """Convert one sample (channels, H, W) of the data space to an image, (H, W, 3)."""
        if sample.shape != (self.channels, *self.size):
            raise InputError(f"a picture is made of one sample {(self.channels, *self.size)}, got {describe(sample)}")
        pixels = (sample.detach().cpu().double() * (255 / self.value_range)).round().clamp(0, 255).to(torch.uint8)
        return pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()

    def view(self, batch: Batch, row: int) -> Picture:
        return self.view_sample(batch.attributed[row])

    def view_sample(self, sample: Tensor) -> Picture:
        return Picture(self.picture(sample))

    def fold(self, batch: Batch, values: Tensor) -> list[NDArray[np.float64]]:
        """Return a map (H, W) for each sample: the sum over its channels."""
        return list(values.sum(dim=1).numpy())

    @property
    def default_methods(self) -> tuple[str, ...]:
        """On photos Strata, which leads the leaderboard there, and IG² beside it, which has paths and
        counterfactuals; on smaller pictures, such as digits and wafer maps, IG² alone."""
        if min(self.size) < PHOTO:
            return super().default_methods
        grey = torch.full((1, self.channels, *self.size), self.value_range / 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the methods will give them again
            return ("strata", "ig2") if Strata().fits(self.model, grey) else ("ig2",)

    @property
    def scale(self) -> float:
        return float(max(self.size) // BLURRED_FROM)

    def describe_parts(self, batch: Batch) -> dict[str, Any]:
        side = max(1, min(self.size) // WINDOWS)
        return {"groups": Superpixels(REGIONS), "coalitions": COALITIONS, "window": side}

    def describe_view(self) -> dict[str, Any]:
        framing = asdict(self.frame) if isinstance(self.frame, Framing) else None  # how to show an image as the network saw it
        return {**super().describe_view(), "framing": framing, "value_range": self.value_range}

    def pool_near(self, ranked: Sequence[Sequence[int]], count: int) -> Batch | None:
        names = [[self.label(number) for number in row] for row in ranked]
        photos = find_photos(names, count) if self.samples is default_photos else None
        return None if photos is None else self.read(photos)


# -- networks ----------------------------------------------------------------------------------------------------------


def subject(
    net: nn.Module,
    size: int | tuple[int, int] = (224, 224),
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    classes: Sequence[str] | str | None = None,
    value_range: float = 1.0,
    *,
    cover: int | tuple[int, int] | None = None,
    interpolation: str = "bilinear",
    frame: Callable[[Any], Any] | None = None,
    channels: int = 3,
    name: str | None = None,
    representation: str | nn.Module | None = None,
    output: OutputName | Callable[[Any], Tensor] = "logit",
    outputs: Outputs = "classes",
    photos: Callable[[], Sequence[Sample]] | None = None,
) -> ImageSubject:
    """Create a subject from any network that takes images (B, channels, H, W).

    Args:
        net: the network, in eval mode.
        size: height and width of its input, or the side of a square.
        mean: the mean for normalisation, in the units of `value_range`; one number, or one for each channel.
        std: the standard deviation for normalisation, likewise.
        classes: names of its outputs, or `"imagenet"` for the thousand classes of ILSVRC 2012.
        value_range: the value of white in the data space, 1 or 255.
        cover: height and width that a photo is scaled to cover before it is centre-cropped; by default `size`.
        interpolation: the interpolation for scaling photos.
        frame: a function from a Pillow image to one of `size`, which replaces `cover` and `interpolation`.
        channels: 3, or 1 for grey images.
        name: the name to show; by default the network's class.
        representation: see `ig2.wrap`.
        output: see `ig2.wrap`.
        outputs: the kind of outputs: mutually exclusive `"classes"`, independent `"labels"`, or plain `"numbers"`.
        photos: a function that returns photos to choose references from; by default the demo's photos.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2))
    >>> mine = subject(net, size=(8, 8), mean=0.5, std=0.25, classes=["cat", "dog"])
    >>> mine.read(np.zeros((20, 30, 3), dtype=np.uint8)).x.shape
    torch.Size([1, 3, 8, 8])
    """
    if not isinstance(net, nn.Module):
        raise InputError(f"net must be a torch module, got {describe(net)}")
    if channels not in (1, 3):
        raise InputError(f"channels must be 3, or 1 for grey images, got {describe(channels)}")
    if not is_number(value_range) or not value_range > 0:
        raise InputError(f"value_range must be positive, 1 or 255, got {describe(value_range)}")
    for role, function in (("frame", frame), ("photos", photos)):
        if function is not None and not callable(function):
            raise InputError(f"{role} must be a function, got {describe(function)}")
    if classes is not None and not isinstance(classes, Iterable):
        raise InputError(f"classes must be names, one for each output, or 'imagenet', got {describe(classes)}")
    size = parse_size(size, "size")
    means, stds = _spread_over_channels(mean, channels, "mean"), _spread_over_channels(std, channels, "std")
    if not all(value > 0 for value in stds):
        raise InputError(f"std must be positive, got {describe(std)}")
    plain = all(value == 0 for value in means) and all(value == 1 for value in stds)
    normalise = None if plain else Normalise(means, stds).eval()
    device = next((tensor.device for tensor in [*net.parameters(), *net.buffers()]), None)
    if normalise is not None and device is not None:
        normalise.to(device)
    names = imagenet_classes() if classes == "imagenet" else None if classes is None else tuple(map(str, classes))
    return ImageSubject(
        name or type(net).__name__,
        wrap(net, representation, output, bounds=(0.0, float(value_range)), preprocess=normalise),
        names,
        size,
        frame or Framing(size, cover, interpolation),
        channels,
        float(value_range),
        outputs=outputs,
        samples=photos or default_photos,
    )


def _spread_over_channels(value: float | Sequence[float], channels: int, name: str) -> list[float]:
    try:
        values = [float(value)] * channels if isinstance(value, (int, float)) else [float(item) for item in value]
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or one a channel, got {describe(value)}") from error
    if len(values) != channels:
        raise InputError(f"{name} must have one number for each of {channels} channels, got {describe(value)}")
    return values


def imagenet_classes() -> tuple[str, ...]:
    """Return a short name for each of the thousand classes, in the usual order."""
    return imagenet.names()


# -- pictures to contrast with -----------------------------------------------------------------------------------------


def read_folder(folder: str | PathLike[str], limit: int | None = None, seed: int = 0) -> list[Sample]:
    """List the images of a folder; the name of a sub-folder is the class of its images.

    Args:
        folder: the folder.
        limit: the maximum number of images, chosen round-robin over sub-folders; by default all.
        seed: the seed of the choice if there are more.
    """
    return IMAGES.list_samples(folder, limit, seed)
