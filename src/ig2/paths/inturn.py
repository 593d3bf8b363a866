"""A path that moves to the reference one part at a time: a window of a signal, a column of a table, a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ig2._utils.settings import one_of, setting
from ig2.groups import GROUPS, Groups, count_groups, number_groups
from ig2.paths.base import KnownPath, Pairs, Path
from ig2.task import Task

Order = Literal["forward", "backward", "random"]


@dataclass(frozen=True, eq=False)
class InTurn(Path):
    """A path on which groups of features move to the reference one after the other, each on a straight line.

    γ(t) = x + w(t)·(x′ − x), wᵢ(t) = clamp(M·t − rank(i), 0, 1), with M groups and rank(i) the turn of feature i's group. With
    the rules `blended`, `shared`, `aligned` and `tempered` the values of a group sum to the drop in the output in its turn,
    f(before) − f(after). (`direct` divides it among all features, including those that do not move.) With `steps=1` every
    vertex replaces whole groups, as categories require: half a category has no meaning. The mean over random orders is the
    sampled Shapley value [Castro 2009]; each reference has its own order.

    Args:
        groups: `ig2.Windows(length)`, `ig2.Grid(rows, columns)`, `ig2.Superpixels(count)`, or an integer tensor of group
            numbers, as returned by `subject.number_units(batch)`, with −1 last. By default each feature is a group.
        steps: the number of segments of each group's line.
        order: the order of the groups: "forward" by their numbers (for windows, in time), "backward", or "random".

    Raises:
        InputError: if groups has another type, or order is unknown.

    >>> import ig2
    >>> path = InTurn(ig2.Windows(2), steps=1)
    >>> net = lambda x: x[:, :2].prod(dim=1) + x[:, 2:].sum(dim=1)
    >>> method = ig2.PathMethod(path, references=0.0, rule=ig2.rules.shared)
    >>> method(net, torch.tensor([[2.0, 3.0, 1.0, 1.0]])).values.view(2, 2).sum(dim=1)
    tensor([6., 2.])
    """

    groups: Groups | Tensor | None = setting(None, GROUPS)
    steps: int = 1
    order: Order = setting("forward", one_of(Order))

    def count_segments(self, task: Task) -> int:
        return self.steps * (int(self._number(task).max()) + 1)

    def _number(self, task: Task) -> Tensor:
        """Return the group of each feature, (B, features)."""
        return count_groups(number_groups(self.groups, task))

    def prepare(self, task: Task, references: Tensor) -> KnownPath:
        labels = self._number(task)
        each, total = references.shape[1], int(labels.max()) + 1
        # a turn for each group; in that of one that an explicand does not have, nothing moves
        turns = torch.arange(total, device="cpu").expand(each, -1)
        if self.order == "backward":
            turns = turns.flip(1)
        elif self.order == "random":
            # by rows, so that the first groups have the same keys however many others there are; MPS has no float64
            keys = torch.rand(total, each, generator=task.generator(), dtype=torch.float64, device="cpu").T
            turns = keys.argsort(dim=1).argsort(dim=1)
        return GivenTurns(labels, turns.to(labels.device).expand(len(labels), -1, -1), total, self.steps)


@dataclass(frozen=True, eq=False)
class GivenTurns(KnownPath):
    """Paths on which the turn of every group is given, counted from 0.

    Args:
        labels: the group of each feature, (B, features).
        turns: the turn of each group, (B, R, groups); groups of one turn move together.
        count: how many turns there are.
        steps: the number of segments of each turn's line.
    """

    labels: Tensor
    turns: Tensor
    count: int
    steps: int = 1

    @property
    def segments(self) -> int:
        return self.steps * self.count

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        assert pairs.numbers is not None
        each = self.turns.shape[1]
        sample = pairs.numbers // each
        turn = self.turns[sample, pairs.numbers % each].gather(1, self.labels[sample]).view_as(pairs.explicand)
        turn = turn.to(pairs.explicand)
        # lerp is exact at both ends, so that a group that has not had its turn is the explicand's to the last bit
        shares = [(number / self.steps - turn).clamp(0, 1) for number in numbers]
        return torch.stack([torch.lerp(pairs.explicand, pairs.reference, share) for share in shares])
