"""GradPath: descent from the explicand of the distance to the reference in the network's representation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ig2._utils.checks import is_number
from ig2._utils.settings import COUNT, INSIDE, PART, POSITIVE, Accepted, Settings, instance_of, setting
from ig2.evaluation import Distance, Evaluation
from ig2.model import Bounds
from ig2.paths.base import GrownPath, Memory, Pairs, clamp_, per_sample
from ig2.paths.distances import euclidean


class Norm(Settings, ABC):
    """Base class of the norms in which GradPath's steps are measured. For example, steepest descent in ‖·‖∞:

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
        """Return a unit step of ascent along a gradient (n, ...), as a direction (n, ...) and its scale (n,).

        The scale is zero for pairs without a direction, which then do not move. Two factors save a pass over the
        samples; on a memory-bound GPU each pass costs about 1 % of a step.
        """

    @abstractmethod
    def length(self, displacement: Tensor) -> Tensor:
        """Return the length of displacements (n, ...) in this norm, (n,)."""

    def direction(self, gradient: Tensor) -> Tensor:
        """Return a unit step of ascent along a gradient (n, ...); a zero gradient remains zero."""
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
    """Steps of ℓ1 length one, sign(g) ⊙ 1_S / |S|, divided equally among the features with the largest gradients [Zhuo 2024].

    S = {i : |gᵢ| ≥ the percentile of |g|}, excluding features with a zero gradient, which would only shorten the step.

    Args:
        percentile: the percentile of |g|, from 0 (all features move) to just under 100.
    """

    percentile: float = setting(95.0, Accepted(lambda value: is_number(value) and 0 <= value < 100, "in [0, 100)"))

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


NORM = instance_of(Norm, "a Norm of ig2.paths such as L2(), SparseL1(percentile) or Sign()")


class Schedule(Settings, ABC):
    """Base class of schedules, which set the length of GradPath's steps along the path."""

    needs_prediction: ClassVar[bool] = False
    """Whether `memory["predicted"]` must hold the decrease in distance that the gradient predicted for the last step, (n,)."""

    @abstractmethod
    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        """Return the step length of each pair, (n,).

        Args:
            first: the length of each pair's first step, (n,).
            step: the number of the step, from 0.
            steps: the total number of steps.
            at: `at.distance` (n,) at the point reached, and its gradient `at.ascent` (n, ...).
            memory: as for `GrownPath.advance`. GradPath itself uses the keys "first", "moves" and "predicted".
        """


@dataclass(frozen=True)
class Steady(Schedule):
    """Steps of constant length, ηₜ = η, as published [Zhuo 2024]."""

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        return first


@dataclass(frozen=True)
class Decaying(Schedule):
    """Steps that shorten along half a cosine [Loshchilov 2017]: ηₜ = η·(last + (1 − last)·(1 + cos(πt/(k − 1)))/2).

    Args:
        last: the length of the last step, as a share of the first.
    """

    last: float = setting(0.05, PART)

    def length(self, first: Tensor, step: int, steps: int, at: Evaluation, memory: Memory) -> Tensor:
        done = step / max(1, steps - 1)
        return first * (self.last + (1 - self.last) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True)
class LineSearch(Schedule):
    """Steps whose length adapts to the accuracy of the gradient, as in a trust region [Nocedal 2006].

    After a step over which the distance decreased by less than a quarter of the gradient's prediction, the next one is half as
    long; after one with more than three quarters, `growth` times as long. No additional pass is needed.

    Args:
        growth: the factor, at least 1, by which a successful step is lengthened.
    """

    growth: float = setting(1.5, Accepted(lambda value: is_number(value) and value >= 1, "at least 1"))
    needs_prediction = True

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


class Stop(Settings, ABC):
    """Base class of criteria that end a pair's GradPath early; the other pairs continue in smaller batches."""

    @abstractmethod
    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        """Return which pairs continue, as `GrownPath.keep_going` does."""


@dataclass(frozen=True)
class Converged(Stop):
    """Ends a path when `window` steps reduced the distance by less than `tolerance` of the distance at the explicand.

    No pair therefore takes more than window / tolerance steps.

    Args:
        tolerance: the required decrease, as a share of the first distance.
        window: the number of steps between checks.
    """

    tolerance: float = setting(0.01, INSIDE)
    window: int = setting(5, COUNT)

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

    p₀ = x, pₜ₊₁ = pₜ − ηₜ·g/‖g‖ with g = ∂D(f̃(p), f̃(xʳ))/∂p at pₜ. The last point is GradCF, a counterfactual computed from
    the explicand. A pair whose gradient is zero has converged and does not move. With bounds each step is clamped, and the
    clamped step is integrated; features whose two bounds are equal are excluded from g.

    Args:
        steps: the number k of steps.
        step_size: step length η in the data space. By default ‖x − xʳ‖/k in the norm of the steps, so that the path is as
            long as the straight line to the reference.
        distance: D, the distance between representations: `euclidean`, `cosine`, `manhattan`, or a function of two
            representations (n, features) that returns (n,).
        norm: the norm of a step: `L2()`, `SparseL1(percentile)`, or another `Norm`.
        schedule: how the step length changes along the path: `Steady()` as published, `Decaying(last)`, `LineSearch()`, or
            another `Schedule`.
        stop: when to end a pair's path early: `Converged(tolerance, window)` or another `Stop`. By default never.

    Raises:
        InputError: if an argument has the wrong type, or step_size is not positive.
    """

    steps: int = 100
    step_size: float | None = setting(None, POSITIVE)
    distance: Distance = setting(euclidean, Accepted(callable, "a function of two representations"))
    norm: Norm = setting(L2(), NORM)
    schedule: Schedule = setting(
        Steady(), instance_of(Schedule, "a Schedule of ig2.paths such as Steady(), Decaying() or LineSearch()")
    )
    stop: Stop | None = setting(None, instance_of(Stop, "a Stop of ig2.paths such as Converged(tolerance, window)"))
    ends_in_counterfactual = True

    @property
    def measures(self) -> Distance:
        return self.distance

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        assert at.ascent is not None
        if step == 0:
            memory["first"] = self._first_length(pairs)
        length = self.schedule.length(memory["first"], step, self.steps, at, memory)
        ascent = where_free(at.ascent, pairs.bounds)
        direction, scale = self.norm.step(ascent)
        if self.schedule.needs_prediction:
            memory["predicted"] = length * scale * (direction * ascent).flatten(1).sum(dim=1)
        return take_step(pairs, point, direction, length * scale, memory)

    def _first_length(self, pairs: Pairs) -> Tensor:
        """Return the length of the first step of each pair, (n,)."""
        if self.step_size is not None:
            return pairs.explicand.new_full((len(pairs),), self.step_size)
        return self.norm.length(pairs.explicand - pairs.reference) / self.steps

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        return None if self.stop is None else self.stop.keep_going(step, at, memory)


def take_step(
    pairs: Pairs, point: Tensor, direction: Tensor, scale: Tensor, memory: Memory
) -> Tensor:  # fmt: skip
    """Return the points `scale` (n,) times `direction` down from `point`, inside the bounds.

    The number of steps that moved each pair is kept in `memory["moves"]`.
    """
    # a gradient of 1e-36, as saturated units leave, is too small for a step of 1000: times zero it
    # would be NaN
    scale = torch.where(scale == torch.inf, 0.0, scale)
    moves = scale > 0
    memory["moves"] = memory["moves"] + moves if "moves" in memory else moves.long()
    return clamp_(torch.addcmul(point, per_sample(scale, point), direction, value=-1), pairs.bounds)


def where_free(ascent: Tensor, bounds: Bounds | None) -> Tensor:
    """Return the gradient without features that cannot move: of a step of one length, most would be
    spent on them."""
    if bounds is None or not all(isinstance(bound, Tensor) for bound in bounds):
        return ascent
    low, high = (torch.as_tensor(bound, device=ascent.device) for bound in bounds)
    return ascent.masked_fill(low >= high, 0.0)
