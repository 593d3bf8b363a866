"""Distances between representations (n, features) of points and of references, each (n,)."""

from __future__ import annotations

from torch import Tensor, nn


def euclidean(point: Tensor, reference: Tensor) -> Tensor:
    """‖a − b‖₂², squared: it has the direction of the norm and, unlike it, a gradient at zero."""
    return (point - reference).square().sum(dim=1)


def cosine(point: Tensor, reference: Tensor) -> Tensor:
    """1 − a·b / (‖a‖₂ ‖b‖₂), one minus the cosine of the angle between them."""
    return 1 - nn.functional.cosine_similarity(point, reference, dim=1)


def manhattan(point: Tensor, reference: Tensor) -> Tensor:
    """‖a − b‖₁, the sum of absolute differences."""
    return (point - reference).abs().sum(dim=1)
