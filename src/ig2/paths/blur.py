"""Blur IG's path: the explicand, ever more blurred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ig2._utils.checks import is_number
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs, check_steps

Padding = Literal["reflect", "zero"]


def blur_matrix(size: int, sigma: float, padding: Padding, dtype: torch.dtype) -> Tensor:
    """The (size, size) matrix that blurs a line of pixels with a Gaussian, cut at four sigma.

    A matrix, since sigma 50 on 224 pixels reaches past both edges, where padded convolutions give up. With `reflect` each
    row sums to one: the line is mirrored at its edges, as often as needed. With `zero` what lies outside counts as zero.
    """
    if sigma <= 0:
        return torch.eye(size, dtype=dtype, device="cpu")
    radius = int(4 * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64, device="cpu")
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    line = torch.arange(size, device="cpu")
    rows = line.repeat_interleave(len(offsets))
    columns = (line[:, None] + offsets.long()).flatten()
    values = weights.repeat(size)
    if padding == "zero":
        inside = (columns >= 0) & (columns < size)
        rows, columns, values = rows[inside], columns[inside], values[inside]
    else:
        columns = columns.remainder(2 * size)
        columns = torch.where(columns >= size, 2 * size - 1 - columns, columns)
    matrix = torch.zeros(size, size, dtype=torch.float64, device="cpu")
    return matrix.index_put_((rows, columns), values, accumulate=True).to(dtype)


def blur(images: Tensor, sigma: float, padding: Padding = "reflect") -> Tensor:
    """Blur the last two axes of images, in their own precision whatever autocast says."""
    height = blur_matrix(images.shape[-2], sigma, padding, images.dtype).to(images.device)
    width = blur_matrix(images.shape[-1], sigma, padding, images.dtype).to(images.device)
    with torch.autocast(images.device.type, enabled=False):
        return height @ images @ width.T


def check_images(samples: Tensor, purpose: str) -> None:
    """Samples (n, C, H, W), the layout in which the last two axes are space."""
    if samples.ndim == 4:
        return
    # the channels of a series are no neighbours: blurred or cut into regions along them, it gave numbers without a meaning
    hint = ": samples of two axes may be a series (T, C) as well; for grey images give x[:, None] to lambda x: net(x[:, 0])"
    raise InputError(f"{purpose} needs images (B, C, H, W), got {describe(samples)}{hint if samples.ndim == 3 else ''}")


@dataclass(frozen=True)
class Blur(KnownPath):
    """The explicand blurred with a Gaussian whose sigma grows from 0 to `sigma` in equal steps; no reference is needed."""

    steps: int = 100
    sigma: float = 50.0
    padding: Padding = "reflect"
    uses_reference = False

    def __post_init__(self) -> None:
        check_steps(self.steps)
        if not (is_number(self.sigma) and self.sigma > 0):
            raise InputError(f"sigma must be positive, got {describe(self.sigma)}")
        if self.padding not in ("reflect", "zero"):
            raise InputError(f"padding must be 'reflect' or 'zero', got {describe(self.padding)}")

    @property
    def segments(self) -> int:
        return self.steps

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        check_images(pairs.explicand, "the blur path")
        return torch.stack([blur(pairs.explicand, self.sigma * t / self.steps, self.padding) for t in numbers])
