"""What a path asks of the network at its points, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Distance = Callable[[Tensor, Tensor], Tensor]


class OfOutputs(ABC):
    """Base class of distances of the outputs of all classes (n, classes), not the representation."""

    @abstractmethod
    def __call__(self, outputs: Tensor, other: Tensor) -> Tensor:
        """Return the distances, (n,)."""


@dataclass(frozen=True)
class Evaluation:
    """What was asked of the network at n points."""

    output: Tensor  # f, (n,)
    gradient: Tensor | None = None  # of f by the points, (n, ...)
    distance: Tensor | None = None  # between the representations of points and references, (n,)
    ascent: Tensor | None = None  # gradient of the distance by the points, (n, ...)

    def map(self, change: Callable[[Tensor], Tensor]) -> Evaluation:
        """Return the same, with each tensor changed."""
        return Evaluation(
            change(self.output), *(t if t is None else change(t) for t in (self.gradient, self.distance, self.ascent))
        )

    def select(self, which: Tensor) -> Evaluation:
        """Return the same for some of n points, where each tensor is (T, n, ...)."""
        return self.map(lambda values: values[:, which])
