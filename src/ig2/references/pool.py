"""References drawn from a pool of samples, and the union of several strategies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ig2._engine.explicands import check_numeric
from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError, describe
from ig2.references.base import References, as_references, draw_references, flatten_inputs
from ig2.task import Task


class OpenPool:
    """A pool during one draw, which fetches each requested sample once and no others."""

    def __init__(self, samples: Any, task: Task, labels: Tensor | None = None) -> None:
        self.task, self.inputs = task, task.session.inputs
        self.explicands = self.inputs.split(self.inputs.data)
        several = len(self.inputs.attributed) > 1
        self.samples = flatten_inputs(samples, self.inputs) if several or isinstance(samples, Mapping) else samples
        self._fetched: dict[int, Tensor] = {}
        if not (hasattr(self.samples, "__len__") and hasattr(self.samples, "__getitem__")):
            raise InputError(f"a pool must be samples (N, ...) or a sequence of them with a length, got {describe(samples)}")
        if len(self) == 0:
            raise InputError(f"the pool is empty: {describe(samples)}")
        if labels is not None and len(labels) != len(self):
            raise InputError(f"the pool has {len(self)} samples and {len(labels)} labels: give one for each")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Tensor:
        """Return one sample, in the working precision on the network's device."""
        if index not in self._fetched:
            item = self.samples[index]
            if isinstance(item, (tuple, list)) and item:
                item = item[0]  # a dataset's (sample, label)
            sample = check_numeric(item, f"sample {index} of the pool", self.inputs.needs_gradient)
            if sample.shape != self.task.x.shape[1:]:
                raise InputError(f"sample {index} of the pool is {describe(sample)}, x has {tuple(self.task.x.shape[1:])}")
            self._fetched[index] = sample.detach().to(self.task.x)
        return self._fetched[index]

    def order(self) -> Tensor:
        """Return the indices of all samples in random order, the same for each explicand in any batch."""
        return torch.randperm(len(self), generator=self.task.generator(), device="cpu")

    def first(self, indices: Iterable[int], count: int, row: int, kind: str = "") -> list[int]:
        """Return the indices of the first `count` samples other than explicand `row`; `kind` describes them in errors."""
        chosen = list(islice((index for index in indices if not self.is_explicand(index, row)), count))
        if len(chosen) < count:
            raise InputError(
                f"explicand {row} needs {count} references{kind}; the pool has {len(chosen)} that are not the explicand "
                "itself: give more samples, or ask for fewer references"
            )
        return chosen

    def is_explicand(self, index: int, row: int) -> bool:
        """Return whether a sample is explicand `row` itself."""
        # in the explicand's own precision: a bfloat16 copy of a float32 sample is that sample
        pieces = zip(self.inputs.split(self[index][None]), self.explicands, strict=True)
        return all(torch.equal(piece[0], explicand[row]) for piece, explicand in pieces)

    def stack(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the samples chosen for each explicand, (B, R, ...), or (R, ...) if all have the same."""
        if all(indices == rows[0] for indices in rows):
            return torch.stack([self[index] for index in rows[0]])
        return torch.stack([torch.stack([self[index] for index in indices]) for indices in rows])


@dataclass(frozen=True, eq=False)
class RandomSamples(References):
    """`count` samples drawn from a pool without replacement, excluding the explicand, as in expected gradients [Erion 2021].

    Args:
        pool: samples (N, ...), or any sequence of them, such as a dataset, whose items may also be (sample, label). Only the
            samples drawn are read. If x consists of several tensors, so does the pool.
        count: the number of references for each explicand.
    """

    pool: Any = field(repr=False)
    count: int = setting(10, COUNT)

    def draw(self, task: Task) -> Tensor:
        pool = OpenPool(self.pool, task)
        order = pool.order().tolist()
        return pool.stack([pool.first(order, self.count, row) for row in task.rows.tolist()])


@dataclass(eq=False, init=False)
class Union(References):
    """The combined references of several strategies, for example black and white: `Union(Zeros(), White())`."""

    strategies: tuple[References, ...]
    inside = False  # each strategy is checked by itself

    def __init__(self, *strategies: Any) -> None:
        if not strategies:
            raise InputError("a union needs at least one strategy, for example Union(Zeros(), White())")
        self.strategies = tuple(as_references(strategy) for strategy in strategies)

    def draw(self, task: Task) -> Tensor:
        return torch.cat([draw_references(strategy, task).to(task.x) for strategy in self.strategies], dim=1)
