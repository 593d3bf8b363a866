"""How far two representations (n, features) are apart, (n,)."""

from __future__ import annotations

from torch import Tensor, nn


def euclidean(point: Tensor, reference: Tensor) -> Tensor:
    """Squared: it has the direction of the norm and, unlike it, a gradient at zero."""
    return (point - reference).square().sum(dim=1)


def cosine(point: Tensor, reference: Tensor) -> Tensor:
    """One minus the cosine of the angle between them."""
    return 1 - nn.functional.cosine_similarity(point, reference, dim=1)


def manhattan(point: Tensor, reference: Tensor) -> Tensor:
    """The sum of absolute differences, ℓ1."""
    return (point - reference).abs().sum(dim=1)
