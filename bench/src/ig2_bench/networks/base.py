"""What the networks share: how the samples of a data set become inputs, and how a network is built and trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Tensor, nn

from ig2.errors import InputError, describe
from ig2_bench.datasets.base import LabelledSamples

FilePath = str | PathLike[str]
# From a batch as the network takes it, and random numbers on the CPU, to one that means the same
Augmentation = Callable[[Tensor, torch.Generator], Tensor]


class SampleNetwork(nn.Module, ABC):
    """A network that knows what to make of a data set's samples.

    It is called in the space in which samples are explained: pictures from 0 to 1, texts as embeddings.
    """

    @abstractmethod
    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        """What the network is called with for these samples of a data set."""

    def batch(self, x: Tensor) -> Tensor:
        """What the network is trained on, from rows of what `training.train_network` holds in memory."""
        return self.inputs(x)


class ImageNetwork(SampleNetwork):
    """Takes pictures (B, C, H, W) from 0 to 1. Bytes become that; floats are taken to be in that space already."""

    channels: int
    size: tuple[int, int] | None = None
    """Height and width; None where any will do."""

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        x = self._check(x, self.channels)
        return x if x.is_floating_point() else x.float() / 255

    def _check(self, x: Tensor | tuple[str, ...], channels: int) -> Tensor:
        fits = isinstance(x, Tensor) and x.ndim == 4 and x.shape[1] == channels and self.size in (None, tuple(x.shape[2:]))
        if not isinstance(x, Tensor) or not fits or not (x.dtype == torch.uint8 or x.is_floating_point()):
            height, width = self.size or ("H", "W")
            expected = f"expected pictures (N, {channels}, {height}, {width}) as bytes or floats"
            raise InputError(f"{type(self).__name__} cannot take {describe(x)}: {expected}")
        return x


class LayeredCNN(ImageNetwork):
    """Layers conv1, conv2, … one after the other, then fc1 and fc2."""

    def forward(self, x: Tensor) -> Tensor:
        """Scores from pictures (B, C, H, W)."""
        for layer in self.children():
            x = layer(x)
        return x


def image_size(samples: LabelledSamples) -> tuple[int, int]:
    """Height and width of the pictures.

    Raises:
        InputError: where the samples are no pictures.
    """
    if not isinstance(samples.x, Tensor) or samples.x.ndim != 4:
        raise InputError(f"expected pictures (N, C, H, W), got {describe(samples.x)}")
    return samples.x.shape[2], samples.x.shape[3]


def mirror(x: Tensor, generator: torch.Generator) -> Tensor:
    """Flip about half of the pictures left to right."""
    flips = (torch.rand(len(x), generator=generator, device="cpu") < 0.5).to(x.device)
    return torch.where(flips[:, None, None, None], x.flip(3), x)


def shift(x: Tensor, generator: torch.Generator, most: int = 2) -> Tensor:
    """Move all pictures of a batch by the same few pixels, repeating their borders."""
    down, right = torch.randint(2 * most + 1, (2,), generator=generator, device="cpu").tolist()
    wider = nn.functional.pad(x, (most,) * 4, mode="replicate")
    return wider[:, :, down : down + x.shape[2], right : right + x.shape[3]]


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained: AdamW, its rate rising over the first steps and falling to zero along a cosine.

    The loss is cross-entropy where samples have one class, binary cross-entropy where they have several labels.

    Args:
        epochs: how often each sample is seen.
        batch: how many samples a step is made from, at most: they are divided evenly.
        rate: the highest learning rate.
        decay: of weights; biases, normalisations and embeddings have none.
        least: how many steps are made at least; a small data set is seen more often.
        balance: how often a class is drawn: 0 as often as it comes, 1 as often as the others, 0.5 half way between.
        augmentation: what is done to each batch.
    """

    epochs: int
    batch: int
    rate: float
    decay: float
    least: int = 0
    balance: float = 0.0
    augmentation: Augmentation | None = None

    def count_steps(self, samples: int) -> tuple[int, int]:
        """How many epochs, and how many steps in each.

        >>> TrainingSettings(epochs=2, batch=10, rate=0.1, decay=0, least=9).count_steps(20)
        (5, 2)
        """
        steps = -(-samples // self.batch)
        return max(self.epochs, -(-self.least // steps)), steps

    def describe(self, samples: int) -> str:
        """The settings in a sentence."""
        epochs, steps = self.count_steps(samples)
        parts = [f"AdamW (rate {self.rate:g}, decay {self.decay:g}, cosine), {epochs} epochs of {steps} steps"]
        if self.balance:
            parts.append("classes drawn equally often" if self.balance == 1 else f"classes drawn by count^{1 - self.balance:g}")
        if self.augmentation is not None:
            parts.append(f"augmented by {self.augmentation.__name__.replace('_', ' ')}")
        return ", ".join(parts)


@dataclass(frozen=True)
class NetworkSpec:
    """A network of the paper: how it is built for a data set, and how it is trained."""

    name: str
    build: Callable[[LabelledSamples, FilePath | None], SampleNetwork]
    """The network before training, from the samples it is for and a file to start from."""
    settings: TrainingSettings
    quick: TrainingSettings
    """A few steps, to see that it runs."""
    several_labels: bool = False
    """Whether a sample has 0 or 1 for each label, (N, L), instead of one class."""
    takes_start: bool = False
    """Whether its training can start from a file."""
