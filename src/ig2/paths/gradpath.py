"""GradPath: from the explicand down the gradient of the distance to the reference, in the network's representation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ig2.errors import InputError, describe, is_number
from ig2.gradients import Distance, Evaluation
from ig2.paths.base import GrownPath, Pairs, check_steps, per_sample
from ig2.paths.distances import euclidean


@dataclass(frozen=True)
class L2:
    """Steps of Euclidean length one along the gradient."""

    def direction(self, gradient: Tensor) -> Tensor:
        """Each sample's gradient scaled to length one; a zero gradient stays zero."""
        flat = gradient.flatten(1)
        # by its largest entry first: squares of 1e-25 are zero in float32, and near convergence gradients get there
        largest = flat.abs().amax(dim=1, keepdim=True)
        flat = flat / largest.where(largest > 0, 1.0)
        length: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
        return (flat / length.where(length > 0, 1.0)).view_as(gradient)


@dataclass(frozen=True)
class SparseL1:
    """Steps of ℓ1 length one, shared equally by the features whose gradient is in the top percentiles.

    The set is {i : |gᵢ| ≥ the percentile of |g|}, less those with no gradient at all, which would only shorten the step.
    """

    percentile: float = 95.0

    def __post_init__(self) -> None:
        if not (is_number(self.percentile) and 0 <= self.percentile < 100):
            raise InputError(f"percentile must be in [0, 100), got {describe(self.percentile)}")

    def direction(self, gradient: Tensor) -> Tensor:
        """Equal steps by the sign of the gradient, on the chosen features alone; a zero gradient stays zero."""
        flat = gradient.flatten(1)
        size = flat.abs()
        # what lies at or above an interpolated percentile is what lies at or above the next entry in order
        rank = math.ceil((flat.shape[1] - 1) * self.percentile / 100 - 1e-9)
        least = size.kthvalue(rank + 1, dim=1, keepdim=True).values
        # a matrix product's last bits differ by column, and would part features that are symmetric
        chosen = (size >= least * (1 - 8 * torch.finfo(size.dtype).eps)) & (size > 0)
        count = chosen.sum(dim=1, keepdim=True).clamp(min=1)
        return (flat.sign() * chosen / count).view_as(gradient)


@dataclass(frozen=True)
class GradPath(GrownPath):
    """p₀ = x, pₜ₊₁ = pₜ − η·g/‖g‖ with g the gradient at pₜ of the distance between its representation and the reference's.

    The last point is GradCF, a counterfactual made from the explicand. A pair whose gradient is zero has converged and
    stays where it is; inside bounds, what counts is the step made and not the one asked for.

    Args:
        steps: how many steps k.
        step_size: their length η in the data space. By default a k-th of the distance ‖x − xʳ‖₂ (or, for `SparseL1`,
            ‖x − xʳ‖₁) of the pair: together the steps are as long as the straight line to the reference.
        distance: how far two representations are apart: `euclidean`, `cosine`, `manhattan`, or a function of your own.
        norm: `L2()`, or `SparseL1(percentile)`.
    """

    steps: int = 100
    step_size: float | None = None
    distance: Distance = euclidean
    norm: L2 | SparseL1 = L2()

    def __post_init__(self) -> None:
        check_steps(self.steps)
        if self.step_size is not None and not (is_number(self.step_size) and self.step_size > 0):
            raise InputError(f"step_size must be a positive number or None, got {describe(self.step_size)}")
        if not callable(self.distance):
            raise InputError(f"distance must be a function of two representations, got {describe(self.distance)}")
        if not isinstance(self.norm, (L2, SparseL1)):
            raise InputError(f"norm must be ig2.paths.L2() or SparseL1(percentile), got {describe(self.norm)}")

    @property
    def segments(self) -> int:
        return self.steps

    @property
    def measures(self) -> Distance:
        return self.distance

    def start(self, pairs: Pairs) -> Tensor:
        return pairs.explicand

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation) -> Tensor:
        assert at.ascent is not None
        length: float | Tensor
        if self.step_size is None:
            order = 1 if isinstance(self.norm, SparseL1) else 2
            apart = torch.linalg.vector_norm((pairs.explicand - pairs.reference).flatten(1), ord=order, dim=1)
            length = per_sample(apart / self.steps, point)
        else:
            length = self.step_size
        reached = point - length * self.norm.direction(at.ascent)
        if pairs.bounds is not None:
            low, high = (torch.as_tensor(bound, dtype=point.dtype, device=point.device) for bound in pairs.bounds)
            reached = torch.minimum(torch.maximum(reached, low), high)
        return reached
