"""The path of Blur IG: the explicand with increasing blur."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.blur import Padding, blur
from ig2._utils.settings import POSITIVE, one_of, setting
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs


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
        padding: how the image is padded: with its mirror image ("reflect") or with zeros ("zero").

    Raises:
        InputError: if sigma is not positive or padding is unknown, or on a call with x other than images.
    """

    steps: int = 100
    sigma: float = setting(50.0, POSITIVE)
    padding: Padding = setting("reflect", one_of(Padding))
    uses_reference = False

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        check_images(pairs.explicand, "the blur path")
        return torch.stack([blur(pairs.explicand, self.sigma * t / self.steps, self.padding) for t in numbers])
