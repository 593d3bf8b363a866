"""Gaussian blur of images, and the path of Blur IG: the explicand, more and more blurred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ig2._utils.checks import is_number
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs

Padding = Literal["reflect", "zero"]


def blur_matrix(size: int, sigma: float, padding: Padding, dtype: torch.dtype) -> Tensor:
    """Return the (size, size) matrix that blurs a line of pixels with a Gaussian, cut at four sigma.

    A matrix, since sigma 50 on 224 pixels reaches past both edges, where padded convolutions give up. With `reflect` each
    row sums to one: the line is mirrored at its edges, as often as needed. With `zero`, pixels outside count as zero.
    """
    if sigma <= 0:
        return torch.eye(size, dtype=dtype, device="cpu")
    radius = int(4 * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64, device="cpu")
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2)
    weights = (weights / weights.sum()).repeat(size)
    line = torch.arange(size, device="cpu")
    rows, columns = line.repeat_interleave(len(offsets)), (line[:, None] + offsets.long()).flatten()
    if padding == "zero":
        weights = weights * ((columns >= 0) & (columns < size))
    columns = columns.remainder(2 * size)
    columns = torch.where(columns >= size, 2 * size - 1 - columns, columns)
    matrix = torch.zeros(size, size, dtype=torch.float64, device="cpu")
    return matrix.index_put_((rows, columns), weights, accumulate=True).to(dtype)


def blur(images: Tensor, sigma: float, padding: Padding = "reflect") -> Tensor:
    """Blur the last two axes of images, in their own precision even under autocast."""
    height, width = (blur_matrix(size, sigma, padding, images.dtype).to(images.device) for size in images.shape[-2:])
    with torch.autocast(images.device.type, enabled=False):
        return height @ images @ width.T


def check_images(samples: Tensor, purpose: str) -> None:
    """Raise an `InputError` unless samples are (n, C, H, W), the layout in which the last two axes are space."""
    if samples.ndim == 4:
        return
    # the channels of a series are no neighbours: blurred or cut into regions along them, it gave numbers without a meaning
    hint = ": samples of two axes may be a series (T, C) as well; for grey images pass x[:, None] to lambda x: net(x[:, 0])"
    raise InputError(f"{purpose} needs images (B, C, H, W), got {describe(samples)}{hint if samples.ndim == 3 else ''}")


@dataclass(frozen=True)
class Blur(KnownPath):
    """The explicand blurred with a Gaussian whose σ grows from 0 to `sigma` in equal steps [Xu 2020]; needs no reference.

    γ(t) = G(t·σ) ∗ x, where G(s) is a Gaussian kernel of standard deviation s pixels.

    Args:
        steps: the number of segments.
        sigma: the standard deviation at the end of the path, in pixels.
        padding: what lies beyond the image's edges: its mirror image ("reflect") or zeros ("zero").
    """

    steps: int = 100
    sigma: float = 50.0
    padding: Padding = "reflect"
    uses_reference = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.sigma) and self.sigma > 0):
            raise InputError(f"sigma must be positive, got {describe(self.sigma)}")
        if self.padding not in ("reflect", "zero"):
            raise InputError(f"padding must be 'reflect' or 'zero', got {describe(self.padding)}")

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        check_images(pairs.explicand, "the blur path")
        return torch.stack([blur(pairs.explicand, self.sigma * t / self.steps, self.padding) for t in numbers])
