"""References that replace one position of the explicand at a time: the references of SIG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ig2.errors import InputError, describe
from ig2.references.base import References, WeightedSamples, as_references, draw_weighted
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class OneAtATime(References):
    """The explicand with one position at a time replaced by the reference's, for each reference and position [Enguehard 2023].

    T positions and R references yield R · T references, each of which differs from the explicand in one word or time step.

    Args:
        references: samples (R, ...) or (B, R, ...), a number, or another strategy.
        axis: the axis of a sample along which positions lie: 0 for words (T, features), 1 for a series (channels, T).

    Raises:
        InputError: if a sample has no such axis.
    """

    references: Any
    axis: int = 0
    inside = False  # its references are checked by themselves

    def __post_init__(self) -> None:
        as_references(self.references)

    def draw(self, task: Task) -> Tensor | WeightedSamples:
        shape = task.x.shape[1:]
        if not 0 <= self.axis < len(shape):
            raise InputError(f"axis {describe(self.axis)} is none of a sample {tuple(shape)}: expected 0 to {len(shape) - 1}")
        samples, weights = draw_weighted(as_references(self.references), task)
        positions = shape[self.axis]
        chosen = torch.eye(positions, dtype=torch.bool, device=task.x.device)
        chosen = chosen.reshape(positions, *[positions if axis == self.axis else 1 for axis in range(len(shape))])
        swapped = torch.where(chosen, samples.to(task.x)[:, :, None], task.x[:, None, None]).flatten(1, 2)
        return swapped if weights is None else WeightedSamples(swapped, weights.repeat_interleave(positions, dim=1))
