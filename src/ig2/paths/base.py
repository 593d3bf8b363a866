"""The contract of a path: a polyline from an explicand to its baseline, drawn vertex by vertex, many pairs at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ig2._engine.session import Distance, Evaluation
from ig2._engine.task import Task
from ig2._utils.checks import check_count
from ig2.model import Bounds

Memory = dict[str, Tensor]


@dataclass(frozen=True)
class Pairs:
    """n explicands, each with its reference."""

    explicand: Tensor  # (n, ...)
    reference: Tensor  # (n, ...)
    rows: Tensor  # the index of each pair's explicand in the call, (n,)
    target: Tensor  # the class explained, (n,)
    bounds: Bounds | None = None
    numbers: Tensor | None = None  # which pair of the call each is, (n,): reference r of sample b has number b · R + r
    task: Task | None = None  # the call, for paths that ask the network for more than an `Evaluation` holds

    def __len__(self) -> int:
        return self.explicand.shape[0]

    def __getitem__(self, indices: Tensor) -> Pairs:
        numbers = None if self.numbers is None else self.numbers[indices]
        samples = (self.explicand[indices], self.reference[indices])
        return Pairs(*samples, self.rows[indices], self.target[indices], self.bounds, numbers, self.task)


@dataclass(frozen=True)
class Path:
    """A polyline of `segments` segments from the explicand to its baseline.

    Subclass `KnownPath` or `GrownPath`, as a frozen dataclass of the path's settings.
    """

    from_explicand: ClassVar[bool] = True
    """Whether drawing begins at the explicand, or else at the baseline."""
    uses_reference: ClassVar[bool] = True
    """Whether a reference is needed; a path without one makes its own baseline."""
    ends_in_counterfactual: ClassVar[bool] = False
    """Whether the baseline is a counterfactual made from the explicand. It is then kept, as `Attribution.gradcf`."""

    def __post_init__(self) -> None:
        check_count(self.segments, "steps")

    @property
    def segments(self) -> int:
        """The number of segments; by default the setting `steps`."""
        steps: int = self.steps  # type: ignore[attr-defined]  # a field of most subclasses
        return steps

    def count_segments(self, task: Task) -> int:
        """How many segments a call's paths have at most, before the network is asked; by default `segments`."""
        return self.segments

    def lines(self, task: Task) -> int:
        """How many paths lead from each explicand of a path that uses no reference. The attribution is the mean over them."""
        return 1

    def prepare(self, task: Task, references: Tensor) -> Path:
        """Return the path that is drawn, once the network was asked what it depends on; by default this one.

        Args:
            task: the call.
            references: of each sample, (B, R, ...).
        """
        return self


class KnownPath(Path, ABC):
    """A path whose vertices are known before the network runs. Several are then evaluated together."""

    @abstractmethod
    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        """Return the vertices with these numbers, (len(numbers), n, ...); 0 is the explicand, `segments` the baseline."""


class GrownPath(Path, ABC):
    """A path on which each step depends on what the network returned at the vertex before."""

    wants_gradient: ClassVar[bool] = False
    """Whether a step needs the gradient of the output, `at.gradient`."""

    @property
    def measures(self) -> Distance | None:
        """The distance between representations whose value and gradient each step needs, if any."""
        return None

    @abstractmethod
    def start(self, pairs: Pairs) -> Tensor:
        """Return the first vertex of every pair, (n, ...)."""

    @abstractmethod
    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        """Return the vertex after `point`, (n, ...).

        Args:
            pairs: n explicands and their references.
            step: the number of the step, from 0.
            point: the vertex reached, (n, ...).
            at: what was evaluated there: with `measures`, `at.distance` (n,) and its gradient `at.ascent` (n, ...); with
                `wants_gradient`, the gradient of the output `at.gradient` (n, ...).
            memory: the path's own, empty at step 0. A tensor in it has one row for each pair. Where the path keeps
                `memory["moves"]`, the number of steps that moved each pair so far, it is reported as the steps taken.
        """

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        """Return which pairs go on after `step` steps, booleans (n,); None, which costs no look at numbers, for all."""
        return None


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Reshape values (n,) so that they multiply samples (n, ...)."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def distances(points: Tensor, others: Tensor) -> Tensor:
    """The Euclidean distance from each of n points to each of m others, (n, m).

    By differences and not by a matrix product, whose rounding depends on the size of the batch, and on near neighbours is all
    there is.
    """
    return torch.cdist(points.flatten(1), others.flatten(1), compute_mode="donot_use_mm_for_euclid_dist")


def clamp_(points: Tensor, bounds: Bounds | None) -> Tensor:
    """Move points into the bounds, in place."""
    if bounds is None:
        return points
    low, high = (torch.as_tensor(bound, dtype=points.dtype, device=points.device) for bound in bounds)
    return points.clamp_(low, high)
