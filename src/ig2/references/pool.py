"""References drawn from a pool of samples, and the references of several strategies side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._engine.inputs import check_numeric
from ig2._engine.task import Task
from ig2.errors import InputError, describe
from ig2.references.base import References, _flattened, as_references, drawn
from ig2.references.constant import check_count


class OpenPool:
    """A pool for the length of one draw: only the samples asked for are fetched, and each of them once."""

    def __init__(self, samples: Any, task: Task) -> None:
        self.task = task
        self.inputs = task.session.inputs
        self.explicands = self.inputs.split(self.inputs.data)
        several = len(self.inputs.attributed) > 1
        self.samples = _flattened(samples, self.inputs) if several or isinstance(samples, Mapping) else samples
        self._fetched: dict[int, Tensor] = {}
        if not (hasattr(self.samples, "__len__") and hasattr(self.samples, "__getitem__")):
            raise InputError(f"a pool must be samples (N, ...) or a sequence of them with a length, got {describe(samples)}")
        if len(self) == 0:
            raise InputError(f"the pool is empty: {describe(samples)}")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Tensor:
        """One sample, in the working precision on the network's device."""
        if number not in self._fetched:
            item = self.samples[number]
            if isinstance(item, (tuple, list)) and item:
                item = item[0]  # a dataset's (sample, label)
            sample = check_numeric(item, f"sample {number} of the pool", self.inputs.needs_gradient)
            if sample.shape != self.task.x.shape[1:]:
                raise InputError(f"sample {number} of the pool is {describe(sample)}, x has {tuple(self.task.x.shape[1:])}")
            self._fetched[number] = sample.detach().to(self.task.x)
        return self._fetched[number]

    def order(self) -> Tensor:
        """Numbers of samples in random order: the same for each explicand, whatever its neighbours in the batch are."""
        return torch.randperm(len(self), generator=self.task.generator(), device="cpu")

    def first(self, numbers: Iterable[int], count: int, row: int) -> list[int]:
        """The first `count` samples, or as many as there are, that are not explicand `row` itself."""
        found: list[int] = []
        for number in numbers:
            if len(found) == count:
                break
            # in the explicand's own precision: a bfloat16 copy of a float32 sample is that sample
            pieces = zip(self.inputs.split(self[number][None]), self.explicands, strict=True)
            if not all(torch.equal(piece[0], explicand[row]) for piece, explicand in pieces):
                found.append(number)
        return found

    def stack(self, chosen: Sequence[Sequence[int]]) -> Tensor:
        """The samples chosen for each explicand, (B, R, ...), or (R, ...) where all have the same."""
        if all(numbers == chosen[0] for numbers in chosen):
            return torch.stack([self[number] for number in chosen[0]])
        return torch.stack([torch.stack([self[number] for number in numbers]) for numbers in chosen])


@dataclass(frozen=True, eq=False)
class Samples(References):
    """`count` samples of a pool, drawn without replacement, never the explicand itself.

    Args:
        pool: samples (N, ...); or any sequence of them with a length, such as a dataset, whose items may also be
            (sample, label). Only the samples drawn are read. Where x is several tensors, so is the pool.
        count: how many for each explicand.
    """

    pool: Any = field(repr=False)
    count: int = 10

    def __post_init__(self) -> None:
        check_count(self.count)

    def draw(self, task: Task) -> Tensor:
        pool = OpenPool(self.pool, task)
        order = pool.order().tolist()
        chosen = []
        for row in task.rows.tolist():
            chosen.append(pool.first(order, self.count, row))
            if len(chosen[-1]) < self.count:
                raise InputError(
                    f"the pool has {len(chosen[-1])} samples that are not explicand {row} itself, count is {self.count}: "
                    "lower it, or give more samples"
                )
        return pool.stack(chosen)


@dataclass(frozen=True, eq=False, init=False)
class Union(References):
    """The references of several strategies side by side, for example black and white: `Union(Zeros(), White())`."""

    strategies: tuple[References, ...]
    inside: ClassVar[bool] = False  # each strategy is looked at by itself

    def __init__(self, *strategies: Any) -> None:
        if not strategies:
            raise InputError("a union needs at least one strategy, for example Union(Zeros(), White())")
        object.__setattr__(self, "strategies", tuple(as_references(strategy) for strategy in strategies))

    def draw(self, task: Task) -> Tensor:
        return torch.cat([drawn(strategy, task).to(task.x) for strategy in self.strategies], dim=1)
