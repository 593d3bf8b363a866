"""GradPath: from the explicand down the gradient of the distance to the reference, in the network's representation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._engine.session import Distance, Evaluation
from ig2._utils.checks import is_count, is_number
from ig2.errors import InputError, describe
from ig2.paths.base import GrownPath, Memory, Pairs, check_steps, per_sample
from ig2.paths.distances import euclidean


@dataclass(frozen=True)
class L2:
    """Steps of Euclidean length one along the gradient."""

    def direction(self, gradient: Tensor) -> Tensor:
        """Each sample's gradient scaled to length one; a zero gradient stays zero."""
        return gradient * per_sample(self.scale(gradient), gradient)

    def scale(self, gradient: Tensor) -> Tensor:
        """What brings each sample's gradient to length one, (n,); zero for a zero gradient."""
        # in float64: squares of 1e-25 are zero in float32, and near convergence gradients get there
        length: Tensor = torch.linalg.vector_norm(gradient, dim=tuple(range(1, gradient.ndim)), dtype=torch.float64)
        # what is too small to be divided by is zero
        return torch.where(length > 1 / torch.finfo(gradient.dtype).max, 1 / length, 0.0).to(gradient.dtype)


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
class Steady:
    """Every step as long as the first, as published."""

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        """The length of a step for each pair, (n,), from that of its first."""
        return first


@dataclass(frozen=True)
class Decaying:
    """Steps that get shorter along a half cosine, from the first to `last` times its length.

    Args:
        last: the length of the last step, as a share of the first.
    """

    last: float = 0.05

    def __post_init__(self) -> None:
        if not (is_number(self.last) and 0 < self.last <= 1):
            raise InputError(f"last must be in (0, 1], got {describe(self.last)}")

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        """The length of a step for each pair, (n,), from that of its first."""
        done = step / max(1, steps - 1)
        return first * (self.last + (1 - self.last) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True)
class LineSearch:
    """Each pair's step is as long as its gradients can be trusted.

    After a step that brought the distance down by less than a quarter of what the gradient promised, the next one is half as
    long; after one that brought more than three quarters, `growth` times as long. This costs no further pass.

    Args:
        growth: by how much a step that went well is lengthened.
    """

    growth: float = 1.5

    def __post_init__(self) -> None:
        if not (is_number(self.growth) and self.growth >= 1):
            raise InputError(f"growth must be at least 1, got {describe(self.growth)}")

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        """The length of a step for each pair, (n,), from that of its first."""
        assert at.distance is not None
        length = first
        if step:
            kept = (memory["distance"] - at.distance) / memory["promise"].where(memory["promise"] > 0, 1.0)
            factor = torch.where(kept < 0.25, 0.5, torch.where(kept > 0.75, self.growth, 1.0))
            length = memory["length"] * factor.to(first)
        memory["distance"], memory["length"] = at.distance, length
        return length


Schedule = Steady | Decaying | LineSearch


@dataclass(frozen=True)
class Converged:
    """A pair stops when `window` steps brought it nearer by less than `tolerance` of its distance at the explicand.

    So no pair takes more than window / tolerance steps.

    Args:
        tolerance: as a share of the first distance.
        window: pairs are looked at every so many steps.
    """

    tolerance: float = 0.01
    window: int = 5

    def __post_init__(self) -> None:
        if not (is_number(self.tolerance) and 0 < self.tolerance < 1):
            raise InputError(f"tolerance must be between 0 and 1, got {describe(self.tolerance)}")
        if not is_count(self.window):
            raise InputError(f"window must be a positive integer, got {describe(self.window)}")


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
        schedule: how the length of a step changes on the way: `Steady()` as published, `Decaying(last)`, `LineSearch()`.
        stop: `Converged(tolerance, window)` ends a pair's path when it gets no nearer; the others go on in smaller batches.
            By default every pair takes all its steps.
    """

    steps: int = 100
    step_size: float | None = None
    distance: Distance = euclidean
    norm: L2 | SparseL1 = L2()
    schedule: Schedule = Steady()
    stop: Converged | None = None

    def __post_init__(self) -> None:
        check_steps(self.steps)
        if self.step_size is not None and not (is_number(self.step_size) and self.step_size > 0):
            raise InputError(f"step_size must be a positive number or None, got {describe(self.step_size)}")
        if not callable(self.distance):
            raise InputError(f"distance must be a function of two representations, got {describe(self.distance)}")
        if not isinstance(self.norm, (L2, SparseL1)):
            raise InputError(f"norm must be ig2.paths.L2() or SparseL1(percentile), got {describe(self.norm)}")
        if not isinstance(self.schedule, (Steady, Decaying, LineSearch)):
            raise InputError(
                f"schedule must be Steady(), Decaying() or LineSearch() of ig2.paths, got {describe(self.schedule)}"
            )
        if not isinstance(self.stop, (Converged, type(None))):
            raise InputError(f"stop must be ig2.paths.Converged(tolerance, window) or None, got {describe(self.stop)}")

    @property
    def segments(self) -> int:
        return self.steps

    @property
    def measures(self) -> Distance:
        return self.distance

    def start(self, pairs: Pairs) -> Tensor:
        return pairs.explicand

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        assert at.ascent is not None
        if step == 0:
            memory["first"] = self._first_length(pairs)
        length = self.schedule.length(memory["first"], step, self.steps, at, memory)
        # few passes over the samples: on a GPU, where memory is what limits them, each costs a hundredth of a step
        if isinstance(self.norm, L2):
            along, share = at.ascent, length * self.norm.scale(at.ascent)
            # a gradient of 1e-36, as saturated units leave, is too small for a step of 1000: times zero it would be NaN
            share = torch.where(share == torch.inf, 0.0, share)
            moves = share > 0
        else:
            along, share = self.norm.direction(at.ascent), length
            moves = (along != 0).flatten(1).any(dim=1)
        # a zero gradient has no direction, and a pair that has one stays where it is
        memory["moves"] = moves.long() if step == 0 else memory["moves"] + moves
        if isinstance(self.schedule, LineSearch):
            memory["promise"] = share * (along * at.ascent).flatten(1).sum(dim=1)
        reached = torch.addcmul(point, per_sample(share, point), along, value=-1)
        if pairs.bounds is not None:
            low, high = (torch.as_tensor(bound, dtype=point.dtype, device=point.device) for bound in pairs.bounds)
            reached = reached.clamp_(low, high)
        return reached

    def _first_length(self, pairs: Pairs) -> Tensor:
        """The length of the first step of each pair, (n,)."""
        apart = (pairs.explicand - pairs.reference).flatten(1)
        if self.step_size is not None:
            return torch.full_like(apart[:, 0], self.step_size)
        order = 1 if isinstance(self.norm, SparseL1) else 2
        length: Tensor = torch.linalg.vector_norm(apart, ord=order, dim=1)
        return length / self.steps

    def going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        if self.stop is None:
            return None
        assert at.distance is not None
        if step == 0:
            memory["start"] = memory["before"] = memory["nearest"] = at.distance
        # the nearest so far, since steps of one length end by going to and fro
        memory["nearest"] = torch.minimum(memory["nearest"], at.distance)
        if step == 0 or step % self.stop.window:
            return None
        nearer = memory["before"] - memory["nearest"]
        memory["before"] = memory["nearest"]
        return nearer > self.stop.tolerance * memory["start"]
