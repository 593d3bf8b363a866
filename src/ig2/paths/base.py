"""What a path is: a polyline between an explicand and its baseline, one for each pair, drawn step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ig2._engine.session import Distance, Evaluation
from ig2._utils.checks import is_count
from ig2.errors import InputError, describe
from ig2.model import Bounds

Memory = dict[str, Tensor]


@dataclass(frozen=True)
class Pairs:
    """n explicands, each with the reference it is contrasted with."""

    explicand: Tensor  # (n, ...)
    reference: Tensor  # (n, ...)
    rows: Tensor  # which explicand of the call each is, (n,)
    target: Tensor  # the class explained, (n,)
    bounds: Bounds | None = None

    def __len__(self) -> int:
        return self.explicand.shape[0]

    def __getitem__(self, which: Tensor) -> Pairs:
        return Pairs(self.explicand[which], self.reference[which], self.rows[which], self.target[which], self.bounds)


@dataclass(frozen=True)
class Path(ABC):
    """A polyline of `steps` segments.

    `from_explicand` tells at which end drawing begins; `uses_reference`, whether a reference is needed at all.
    """

    from_explicand: ClassVar[bool] = True
    uses_reference: ClassVar[bool] = True

    @property
    @abstractmethod
    def segments(self) -> int:
        """How many segments the polyline has."""


class KnownPath(Path):
    """A path whose vertices can be written down at once; several are then evaluated together."""

    @abstractmethod
    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        """The vertices with these numbers, (len(numbers), n, ...); 0 is the explicand, `segments` the baseline."""


class GrownPath(Path):
    """A path on which each step depends on what the network says at the point reached."""

    wants_gradient: ClassVar[bool] = False

    @property
    def measures(self) -> Distance | None:
        """The distance whose gradient each step needs, if any."""
        return None

    @abstractmethod
    def start(self, pairs: Pairs) -> Tensor:
        """The first vertex, (n, ...)."""

    @abstractmethod
    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        """The vertex after `point`, from what was evaluated there; `step` counts from 0.

        `memory` is the path's own, empty at the first step: a tensor in it has one row for each pair. What a path keeps there
        as `moves`, how many of the steps so far moved each pair, is how many it is said to have taken.
        """

    def going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        """Which pairs go on after `step` steps, booleans (n,); None, without a look at the numbers, for all of them."""
        return None


def check_steps(steps: object) -> None:
    if not is_count(steps):
        raise InputError(f"steps must be a positive integer, got {describe(steps)}")


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """(n,) shaped to multiply samples (n, ...)."""
    return values.reshape(-1, *[1] * (like.ndim - 1))
