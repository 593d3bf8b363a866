"""The base classes of paths: polylines from explicands to their baselines, built vertex by vertex for many pairs at a time."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._utils.checks import check_count
from ig2._utils.settings import Settings
from ig2.errors import InputError
from ig2.evaluation import Distance, Evaluation
from ig2.model import Bounds
from ig2.task import Task

Memory = dict[str, Tensor]


@dataclass(frozen=True)
class Pairs:
    """n explicands, each with its reference."""

    explicand: Tensor  # (n, ...)
    reference: Tensor  # (n, ...)
    rows: Tensor  # the index of each pair's explicand in the call, (n,)
    target: Tensor  # the class explained, (n,)
    bounds: Bounds | None = None
    numbers: Tensor | None = None  # the number of each pair in the call, (n,): b · R + r for reference r of sample b
    task: Task | None = None  # the call, for paths that need more from the network than an `Evaluation` holds

    def __len__(self) -> int:
        return self.explicand.shape[0]

    def __getitem__(self, indices: Tensor) -> Pairs:
        numbers = None if self.numbers is None else self.numbers[indices]
        samples = (self.explicand[indices], self.reference[indices])
        return Pairs(*samples, self.rows[indices], self.target[indices], self.bounds, numbers, self.task)


@dataclass(frozen=True)
class Path(Settings):
    """Base class of paths, polylines of `segments` segments from the explicand to its baseline.

    Subclass `KnownPath` or `GrownPath`, as a frozen dataclass of the path's settings.
    """

    from_explicand: ClassVar[bool] = True
    """Whether the path is built from the explicand; if False, from the baseline."""
    uses_reference: ClassVar[bool] = True
    """Whether the path needs a reference; without one, the path determines its baseline."""
    ends_in_counterfactual: ClassVar[bool] = False
    """Whether the baseline is a counterfactual computed from the explicand, which is then kept as `Attribution.gradcf`."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that the methods of a subclass can be called as those they replace.

        Raises:
            InputError: if one takes other arguments.
        """
        super().__init_subclass__(**options)
        for name, method in vars(cls).items():
            replaced = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
            if name.startswith("_") or not (inspect.isfunction(method) and inspect.isfunction(replaced)):
                continue
            expected, taken = inspect.signature(replaced), inspect.signature(method)
            try:
                taken.bind(*expected.parameters)
            except TypeError as error:
                raise InputError(
                    f"{cls.__name__}.{name} takes ({', '.join(taken.parameters)}), expected "
                    f"({', '.join(expected.parameters)}): paths are called so, see {replaced.__qualname__}"
                ) from error

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.segments, "steps")

    @property
    def segments(self) -> int:
        """The number of segments; by default the setting `steps`."""
        steps: int = self.steps  # type: ignore[attr-defined]  # a field of most subclasses
        return steps

    def count_segments(self, task: Task) -> int:
        """Return the maximum number of segments of a call's paths, known before the network runs; by default `segments`."""
        return self.segments

    def lines(self, task: Task) -> int:
        """Return the number of paths from each explicand if no reference is used. The attribution is the mean over them."""
        return 1

    def stand_ins(self, task: Task) -> Tensor:
        """Return the explicands in place of the references that are not used, (B, lines, ...)."""
        return task.x[:, None].expand(-1, self.lines(task), *task.x.shape[1:])

    def prepare(self, task: Task, references: Tensor) -> Path:
        """Return the path to follow in a call, after running the network where the path depends on it; by default `self`.

        Args:
            task: the call.
            references: the references of each sample, (B, R, ...).
        """
        return self


class KnownPath(Path, ABC):
    """Base class of paths whose vertices are known before the network runs, so that several are evaluated together."""

    @abstractmethod
    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        """Return the vertices with these numbers, (len(numbers), n, ...); 0 is the explicand, `segments` the baseline."""


@dataclass(frozen=True, eq=False)
class PreparedPath(KnownPath):
    """A path of one call, as `Path.prepare` returns it: its number of segments, and the function that is its `vertices`."""

    steps: int
    draw: Callable[[Pairs, range], Tensor]

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        return self.draw(pairs, numbers)


class GrownPath(Path, ABC):
    """Base class of paths on which each step depends on the network's evaluation at the previous vertex."""

    wants_gradient: ClassVar[bool] = False
    """Whether a step needs the gradient of the output, `at.gradient`."""

    @property
    def measures(self) -> Distance | None:
        """The distance between representations whose value and gradient each step needs, if any."""
        return None

    def aim(self, pairs: Pairs) -> Tensor | None:
        """Return what a distance of outputs compares them with, (n, m).

        None, the default, stands for the representation of the references.
        """
        return None

    def start(self, pairs: Pairs) -> Tensor:
        """Return the first vertex of every pair, (n, ...); by default the explicand."""
        return pairs.explicand

    @abstractmethod
    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        """Return the vertex after `point`, (n, ...).

        Args:
            pairs: n explicands and their references.
            step: the number of the step, from 0.
            point: the vertex reached, (n, ...).
            at: the network's evaluation there: with `measures`, `at.distance` (n,) and its gradient `at.ascent` (n, ...); with
                `wants_gradient`, the gradient of the output `at.gradient` (n, ...).
            memory: state of the path, empty at step 0; each tensor in it has one row for each pair. If the path keeps
                `memory["moves"]`, the number of steps that moved each pair so far, it is reported as the steps taken.
        """

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        """Return which pairs continue after `step` steps, booleans (n,); or None, which avoids a device sync, for all."""
        return None


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Reshape values (n,) so that they multiply samples (n, ...)."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def distances(points: Tensor, others: Tensor) -> Tensor:
    """Return the Euclidean distance from each of n points to each of m others, (n, m).

    Computed by differences and not by a matrix product, whose rounding depends on the batch size and dominates the distances
    of near neighbours.
    """
    return torch.cdist(points.flatten(1), others.flatten(1), compute_mode="donot_use_mm_for_euclid_dist")


def clamp_(points: Tensor, bounds: Bounds | None) -> Tensor:
    """Move points into the bounds, in place."""
    if bounds is None:
        return points
    low, high = (torch.as_tensor(bound, dtype=points.dtype, device=points.device) for bound in bounds)
    return points.clamp_(low, high)
