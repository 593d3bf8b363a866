"""GradPath: from the explicand down the gradient of the distance to the reference, in the network's representation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ig2._engine.session import Distance, Evaluation
from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, describe
from ig2.model import Bounds
from ig2.paths.base import GrownPath, Memory, Pairs, clamp_, per_sample
from ig2.paths.distances import euclidean


class Norm(ABC):
    """The norm in which GradPath's steps have their length. A norm of your own, steepest descent in ‖·‖∞:

    >>> class LInf(Norm):
    ...     def step(self, gradient):
    ...         return gradient.sign(), gradient.flatten(1).any(dim=1).to(gradient.dtype)
    ...
    ...     def length(self, displacement):
    ...         return displacement.flatten(1).abs().amax(dim=1)
    >>> LInf().direction(torch.tensor([[3.0, -0.5, 0.0]]))
    tensor([[ 1., -1.,  0.]])
    """

    @abstractmethod
    def step(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return a step of length one up a gradient (n, ...), as a direction (n, ...) and its scale (n,).

        The scale is zero for pairs without a direction, which then stay where they are. Two factors save a pass over the
        samples; on a memory-bound GPU each pass costs about 1 % of a step.
        """

    @abstractmethod
    def length(self, displacement: Tensor) -> Tensor:
        """Return the length of displacements (n, ...) in this norm, (n,)."""

    def direction(self, gradient: Tensor) -> Tensor:
        """Return a step of length one up a gradient (n, ...); a zero gradient stays zero."""
        direction, scale = self.step(gradient)
        return direction * per_sample(scale, direction)


@dataclass(frozen=True)
class L2(Norm):
    """Steps of Euclidean length one along the gradient, g/‖g‖₂, as published [Zhuo 2024]."""

    def step(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        # in float64: squares of 1e-25 are zero in float32, and near convergence gradients get there
        length: Tensor = torch.linalg.vector_norm(gradient, dim=tuple(range(1, gradient.ndim)), dtype=torch.float64)
        # what is too small to divide by is zero
        scale = torch.where(length > 1 / torch.finfo(gradient.dtype).max, 1 / length, 0.0)
        return gradient, scale.to(gradient.dtype)

    def length(self, displacement: Tensor) -> Tensor:
        return torch.linalg.vector_norm(displacement.flatten(1), dim=1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SparseL1(Norm):
    """Steps of ℓ1 length one, sign(g) ⊙ 1_S / |S|, shared equally by the features with the largest gradients [Zhuo 2024].

    S = {i : |gᵢ| ≥ the percentile of |g|}, without the features that have no gradient, which would only shorten the step.

    Args:
        percentile: of |g|, from 0 (all features move) to just under 100.
    """

    percentile: float = 95.0

    def __post_init__(self) -> None:
        if not (is_number(self.percentile) and 0 <= self.percentile < 100):
            raise InputError(f"percentile must be in [0, 100), got {describe(self.percentile)}")

    def step(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        flat = gradient.flatten(1)
        size = flat.abs()
        # what lies at or above an interpolated percentile is what lies at or above the next entry in order
        rank = math.ceil((flat.shape[1] - 1) * self.percentile / 100 - 1e-9)
        least = size.kthvalue(rank + 1, dim=1, keepdim=True).values
        # a matrix product's last bits differ by column, and would part features that are symmetric
        chosen = (size >= least * (1 - 8 * torch.finfo(size.dtype).eps)) & (size > 0)
        count = chosen.sum(dim=1, keepdim=True)
        return (flat.sign() * chosen / count.clamp(min=1)).view_as(gradient), (count[:, 0] > 0).to(gradient.dtype)

    def length(self, displacement: Tensor) -> Tensor:
        return torch.linalg.vector_norm(displacement.flatten(1), ord=1, dim=1)  # type: ignore[no-any-return]


class Schedule(ABC):
    """How the length of GradPath's steps changes along the path."""

    needs_prediction: ClassVar[bool] = False
    """Whether `memory["predicted"]` is to hold how far the gradient predicted the distance to fall over the last step, (n,)."""

    @abstractmethod
    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        """Return the length of a step of each pair, (n,).

        Args:
            first: the length of the pair's first step, (n,).
            step: the number of the step, from 0.
            steps: the number of all steps.
            at: `at.distance` (n,) at the point reached, and its gradient `at.ascent` (n, ...).
            memory: as for `GrownPath.advance`. GradPath's own keys are "first", "moves" and "predicted".
        """


@dataclass(frozen=True)
class Steady(Schedule):
    """Every step as long as the first, ηₜ = η, as published [Zhuo 2024]."""

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        return first


@dataclass(frozen=True)
class Decaying(Schedule):
    """Steps that get shorter along half a cosine [Loshchilov 2017]: ηₜ = η·(last + (1 − last)·(1 + cos(πt/(k − 1)))/2).

    Args:
        last: the length of the last step, as a share of the first.
    """

    last: float = 0.05

    def __post_init__(self) -> None:
        if not (is_number(self.last) and 0 < self.last <= 1):
            raise InputError(f"last must be in (0, 1], got {describe(self.last)}")

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        done = step / max(1, steps - 1)
        return first * (self.last + (1 - self.last) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True)
class LineSearch(Schedule):
    """Each pair's step is as long as its gradients can be trusted, as in a trust region [Nocedal 2006].

    After a step over which the distance fell by less than a quarter of what the gradient predicted, the next one is half as
    long; after one with more than three quarters, `growth` times as long. This costs no further pass.

    Args:
        growth: by how much a step that went well is lengthened.
    """

    growth: float = 1.5
    needs_prediction: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (is_number(self.growth) and self.growth >= 1):
            raise InputError(f"growth must be at least 1, got {describe(self.growth)}")

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        assert at.distance is not None
        length = first
        if step:
            predicted = memory["predicted"]
            share = (memory["distance"] - at.distance) / predicted.where(predicted > 0, 1.0)
            factor = torch.where(share < 0.25, 0.5, torch.where(share > 0.75, self.growth, 1.0))
            length = memory["length"] * factor.to(first)
        memory["distance"], memory["length"] = at.distance, length
        return length


class Stop(ABC):
    """When a pair's GradPath ends before all its steps are taken; the other pairs go on in smaller batches."""

    @abstractmethod
    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        """Return which pairs go on, as `GrownPath.keep_going` does."""


@dataclass(frozen=True)
class Converged(Stop):
    """A pair stops when `window` steps brought it nearer by less than `tolerance` of its distance at the explicand.

    So no pair takes more than window / tolerance steps.

    Args:
        tolerance: as a share of the first distance.
        window: pairs are checked every so many steps.
    """

    tolerance: float = 0.01
    window: int = 5

    def __post_init__(self) -> None:
        if not (is_number(self.tolerance) and 0 < self.tolerance < 1):
            raise InputError(f"tolerance must be between 0 and 1, got {describe(self.tolerance)}")
        check_count(self.window, "window")

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        assert at.distance is not None
        if step == 0:
            memory["start"] = memory["before"] = memory["nearest"] = at.distance
        # the nearest so far, since steps of one length end up oscillating
        memory["nearest"] = torch.minimum(memory["nearest"], at.distance)
        if step == 0 or step % self.window:
            return None
        nearer = memory["before"] - memory["nearest"]
        memory["before"] = memory["nearest"]
        return nearer > self.tolerance * memory["start"]


@dataclass(frozen=True)
class GradPath(GrownPath):
    """Normalised gradient descent on the distance between the point's representation f̃ and the reference's [Zhuo 2024].

    p₀ = x, pₜ₊₁ = pₜ − ηₜ·g/‖g‖ with g = ∂D(f̃(p), f̃(xʳ))/∂p at pₜ. The last point is GradCF, a counterfactual made from the
    explicand. A pair whose gradient is zero has converged and stays where it is. With bounds each step
    is clamped, and the clamped step is what is integrated; features whose two bounds are equal have no part in g.

    Args:
        steps: the number of steps k.
        step_size: their length η in the data space. By default a k-th of ‖x − xʳ‖ in the norm of the steps: together they
            are as long as the straight line to the reference.
        distance: D, between representations: `euclidean`, `cosine`, `manhattan`, or a function of your own.
        norm: in which steps have their length: `L2()`, `SparseL1(percentile)`, or another `Norm`.
        schedule: how the length changes along the path: `Steady()` as published, `Decaying(last)`, `LineSearch()`, or
            another `Schedule`.
        stop: when a pair's path ends early: `Converged(tolerance, window)` or another `Stop`. By default never.
    """

    steps: int = 100
    step_size: float | None = None
    distance: Distance = euclidean
    norm: Norm = L2()
    schedule: Schedule = Steady()
    stop: Stop | None = None
    ends_in_counterfactual = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_size is not None and not (is_number(self.step_size) and self.step_size > 0):
            raise InputError(f"step_size must be a positive number or None, got {describe(self.step_size)}")
        if not callable(self.distance):
            raise InputError(f"distance must be a function of two representations, got {describe(self.distance)}")
        for name, kind, examples in (
            ("norm", Norm, "L2() or SparseL1(percentile)"),
            ("schedule", Schedule, "Steady(), Decaying() or LineSearch()"),
            ("stop", Stop | None, "Converged(tolerance, window) or None"),
        ):
            part = getattr(self, name)
            if not isinstance(part, kind):
                raise InputError(f"{name} must be a {name.capitalize()} of ig2.paths such as {examples}, got {describe(part)}")

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
        ascent = _where_free(at.ascent, pairs.bounds)
        direction, scale = self.norm.step(ascent)
        scale = length * scale
        # a gradient of 1e-36, as saturated units leave, is too small for a step of 1000: times zero it would be NaN
        scale = torch.where(scale == torch.inf, 0.0, scale)
        moves = scale > 0
        memory["moves"] = moves.long() if step == 0 else memory["moves"] + moves
        if self.schedule.needs_prediction:
            memory["predicted"] = scale * (direction * ascent).flatten(1).sum(dim=1)
        return clamp_(torch.addcmul(point, per_sample(scale, point), direction, value=-1), pairs.bounds)

    def _first_length(self, pairs: Pairs) -> Tensor:
        """The length of the first step of each pair, (n,)."""
        if self.step_size is not None:
            return pairs.explicand.new_full((len(pairs),), self.step_size)
        return self.norm.length(pairs.explicand - pairs.reference) / self.steps

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        return None if self.stop is None else self.stop.keep_going(step, at, memory)


def _where_free(ascent: Tensor, bounds: Bounds | None) -> Tensor:
    """The gradient without features that cannot move: of a step of one length, most would be spent on them."""
    if bounds is None or not all(isinstance(bound, Tensor) for bound in bounds):
        return ascent
    low, high = (torch.as_tensor(bound, device=ascent.device) for bound in bounds)
    return ascent.masked_fill(low >= high, 0.0)
