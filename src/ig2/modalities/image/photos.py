"""Image classifiers, by name or from any network: photos in, heat maps out.

Points, steps and attributions are in the space of images, [0, 1] for each channel. The normalisation that a network
needs is part of the model, so that black means black.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2.errors import InputError, describe
from ig2.groups import Superpixels
from ig2.methods import Strata
from ig2.modalities.base import Batch, Outputs, Subject, make_model
from ig2.modalities.image import imagenet
from ig2.modalities.image.modality import IMAGES
from ig2.modalities.image.reading import Framing, parse_size, read_image
from ig2.modalities.modality import Modality
from ig2.modalities.models import default_photos, find_photos
from ig2.modalities.samples import Sample
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
    modality: ClassVar[Modality] = IMAGES

    def read_sample(self, sample: Sample) -> Tensor:
        """Return an image as the network takes it, (channels, H, W), from 0, black, to 1, white.

        Args:
            sample: a path, the bytes of a file, a Pillow image or an array of uint8.
        """
        picture = np.array(self.frame(read_image(sample.source, grey=self.channels == 1)), dtype=np.uint8)
        picture = picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1)
        if picture.shape != (self.channels, *self.size):
            raise InputError(f"{sample.name} became {picture.shape} instead of {(self.channels, *self.size)}")
        return torch.from_numpy(np.ascontiguousarray(picture)).float() / 255

    def picture(self, sample: Tensor) -> NDArray[np.uint8]:
        """Convert one sample (channels, H, W) of the data space to an image, (H, W, 3)."""
        if sample.shape != (self.channels, *self.size):
            raise InputError(f"a picture is made of one sample {(self.channels, *self.size)}, got {describe(sample)}")
        pixels = (sample.detach().cpu().double() * 255).round().clamp(0, 255).to(torch.uint8)
        return pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()

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
        grey = torch.full((1, self.channels, *self.size), 0.5)
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
        return {**super().describe_view(), "framing": framing}

    def pool_near(self, ranked: Sequence[Sequence[int]], count: int) -> Batch | None:
        names = [[self.label(number) for number in row] for row in ranked]
        photos = find_photos(names, count) if self.samples is default_photos else None
        return None if photos is None else self.read(photos)


# -- networks ----------------------------------------------------------------------------------------------------------


def subject(
    net: Any,
    size: int | tuple[int, int] = (224, 224),
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    classes: Sequence[str] | str | None = None,
    *,
    frame: Callable[[Any], Any] | None = None,
    channels: int = 3,
    name: str | None = None,
    outputs: Outputs = "classes",
    photos: Callable[[], Sequence[Sample]] | None = None,
) -> ImageSubject:
    """Create a subject from any network that takes images (B, channels, H, W).

    Args:
        net: the network, in eval mode; or what `ig2.wrap` made of it, with another representation or output.
        size: height and width of its input, or the side of a square.
        mean: the mean for normalisation, where white is 1; one number, or one for each channel.
        std: the standard deviation for normalisation, likewise.
        classes: names of its outputs, or `"imagenet"` for the thousand classes of ILSVRC 2012.
        frame: a `Framing`, or another function from a Pillow image to one of `size`; by default `Framing(size)`.
        channels: 3, or 1 for grey images.
        name: the name to show; by default the network's class.
        outputs: the kind of outputs: mutually exclusive `"classes"`, independent `"labels"`, or plain `"numbers"`.
        photos: a function that returns photos to choose references from; by default the demo's photos.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2))
    >>> mine = subject(net, size=(8, 8), mean=0.5, std=0.25, classes=["cat", "dog"])
    >>> mine.read(np.zeros((20, 30, 3), dtype=np.uint8)).x.shape
    torch.Size([1, 3, 8, 8])
    """
    if channels not in (1, 3):
        raise InputError(f"channels must be 3, or 1 for grey images, got {describe(channels)}")
    for role, function in (("frame", frame), ("photos", photos)):
        if function is not None and not callable(function):
            raise InputError(f"{role} must be a function, got {describe(function)}")
    size = parse_size(size, "size")
    means, stds = _spread_over_channels(mean, channels, "mean"), _spread_over_channels(std, channels, "std")
    if not all(value > 0 for value in stds):
        raise InputError(f"std must be positive, got {describe(std)}")
    plain = all(value == 0 for value in means) and all(value == 1 for value in stds)
    model = make_model(net, None if plain else Normalise(means, stds).eval(), bounds=(0.0, 1.0))
    return ImageSubject(
        name or type(model.net).__name__,
        model,
        imagenet.names() if isinstance(classes, str) and classes == "imagenet" else classes,
        size,
        frame or Framing(size),
        channels,
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
