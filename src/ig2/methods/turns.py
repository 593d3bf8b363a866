"""Turns: features go to the reference a block at a time, first in random orders and then by what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2._engine.integrate import Keep, integrate
from ig2._engine.task import Task
from ig2._utils.checks import check_count
from ig2.attribution import Cost
from ig2.errors import InputError
from ig2.groups import Grid, Groups, check_groups, count_groups, number_groups
from ig2.methods.base import Method, Result
from ig2.methods.path import PathMethod
from ig2.model import Model
from ig2.paths.inturn import GivenTurns
from ig2.paths.straight import Straight
from ig2.references.base import References, draw_weighted
from ig2.references.constant import Zeros

CELLS = 28  # on a side of a picture: one pixel of a digit, eight of a photo of 224


@dataclass(frozen=True, eq=False)
class Turns(Method):
    """Secants on paths that take the features to the reference a block at a time, the mean over orders of the features.

    An order divides the M groups of features into K blocks, group i of rank r being in block ⌊K·r / M⌋. Block after block
    goes from x to the reference, which makes a path of K segments, on each of which `ig2.rules.secant` shares the change in
    the output among the features that moved. So values sum to f(x) − f(reference) on every path, and so does their mean. With
    one block the order does not matter: that is `ig2.DeepSHAP`. With a block for each group, the mean over all orders would be
    the Shapley value of the groups; here half of the orders are chosen, so values are not that, however many are taken.

    Orders come in pairs, one the reverse of the other. The first half are random. Each later pair goes by the mean so far: one
    order takes the groups that speak most against the output first, the other those that speak most for it. These are the
    orders in which an explanation is used, to find what is enough for the output, and what it cannot do without.

    Args:
        turns: the number of blocks, K; with fewer groups than that, one for each.
        orders: how many paths there are; even. Each pair of them takes the next of the references, and there are as many
            pairs as references at least. Where some references have a pair more than others, it counts less: all have the
            same weight in the mean, or their own.
        groups: features that move together: `ig2.Grid(rows, columns)`, `ig2.Superpixels(count)`, `ig2.Windows(length)`,
            integers that number the groups from 0 on, −1 for features of none, such as padding, which have no turn of their
            own; or None: the places of a picture on a grid of at most 28 × 28, with all their channels; of anything else each
            feature is its own.

    Raises:
        InputError: if turns or orders is no positive integer, orders is odd, or groups are something else.

    >>> net = lambda x: x[:, 0] * x[:, 1] + x[:, 2]
    >>> Turns(turns=3, orders=2)(net, torch.tensor([[2.0, 3.0, 1.0]])).values
    tensor([[3., 3., 1.]])
    """

    turns: int = 20
    orders: int = 20
    groups: Groups | Tensor | None = field(default=None)
    default_references: ClassVar[References | None] = Zeros()

    def __post_init__(self) -> None:
        check_count(self.turns, "turns")
        check_count(self.orders, "orders")
        if self.orders % 2:
            raise InputError(f"orders come in pairs, one the reverse of the other: got {self.orders}, give {self.orders + 1}")
        check_groups(self.groups)

    @property
    def complete(self) -> bool:
        """Whether the rule is."""
        return rules.secant.complete

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        samples, weights = draw_weighted(self.require_references(references), task)
        numbered = number_groups(self._choose_groups(task.x), task)
        labels = count_groups(numbered)
        total = int(labels.max()) + 1
        # of each explicand's groups; negative numbers are of no group, such as padding, and were counted last
        counts = labels.where(numbered.flatten(1) >= 0, 0).amax(dim=1) + 1
        turns = min(self.turns, int(counts.max()))
        pairs = max(self.orders // 2, samples.shape[1])
        drawn = pairs if turns == 1 else -(-pairs // 2)  # all blocks of one turn are alike
        taken = torch.arange(pairs, device=samples.device) % samples.shape[1]
        shares = self._divide_weights(task, taken, weights)

        def follow(ranks: Tensor, first: int) -> Result:
            """Integrate along both directions of orders (B, n, M), of the pairs from this one on."""
            last = counts[:, None, None] - 1
            ranks = ranks.minimum(last)  # what is in no group goes with the last one, in the reverse order with the first
            both = torch.stack([ranks, last - ranks], dim=2).flatten(1, 2)
            path = GivenTurns(labels, (both * turns).div(last + 1, rounding_mode="floor"), turns)
            which = taken[first : first + ranks.shape[1]].repeat_interleave(2)
            pair_shares = None if shares is None else _normalise(shares[:, 2 * first : 2 * (first + ranks.shape[1])])
            # one reference is not copied for every order
            ends = samples.expand(-1, len(which), *samples.shape[2:]) if samples.shape[1] == 1 else samples[:, which]
            return integrate(task, path, rules.secant, ends, Keep(), pair_shares)

        result = follow(self._draw_ranks(task, counts, drawn, total), 0)
        values, outputs = result.values, [_outputs_of(result)]
        for pair in range(drawn, pairs):
            sums = torch.zeros(len(task), total, dtype=values.dtype, device=values.device)
            sums.scatter_add_(1, labels, values.flatten(1))
            result = follow(_rank(sums, counts)[:, None], pair)
            values = torch.lerp(values, result.values, self._find_share(shares, pair, values))
            outputs.append(_outputs_of(result))
        return Result(values, torch.cat(outputs, dim=1), weights=_normalise(shares))

    def estimate(self, model: Model | nn.Module | Callable[..., Any], x: Any, references: Any = None, **options: Any) -> Cost:
        """What a call would take with up to orders / 2 references, from one path. As for `ig2.PathMethod.estimate`."""
        cost = PathMethod(Straight(self.turns), Zeros(), rules.secant).estimate(model, x, **options)
        return replace(cost, seconds=self.orders * cost.seconds)

    def _choose_groups(self, x: Tensor) -> Groups | Tensor | None:
        if self.groups is not None or x.ndim != 4:
            return self.groups
        return Grid(min(CELLS, x.shape[2]), min(CELLS, x.shape[3]))

    def _draw_ranks(self, task: Task, counts: Tensor, pairs: int, total: int) -> Tensor:
        """Random orders, as the rank of each group, (B, pairs, total); the same for every explicand with as many groups."""
        # by rows, so that the first groups have the same keys however many others there are
        keys = torch.rand(total, pairs, generator=task.generator(), dtype=torch.float64, device="cpu").T  # MPS has no float64
        return torch.stack([_rank(keys, count.expand(pairs)) for count in counts.cpu()]).to(counts.device)

    @staticmethod
    def _divide_weights(task: Task, taken: Tensor, weights: Tensor | None) -> Tensor | None:
        """What each order counts, (B, 2·pairs), so that each reference has its weight however many pairs take it."""
        times = taken.bincount()
        if weights is None:
            if bool((times == times[0]).all()):
                return None
            weights = task.x.new_ones(len(task), len(times))
        return (weights / times.to(weights))[:, taken.to(weights.device)].repeat_interleave(2, dim=1)

    @staticmethod
    def _find_share(shares: Tensor | None, pair: int, like: Tensor) -> Tensor:
        """The share of a pair in the mean of all pairs up to it, (B or 1, 1, ...)."""
        if shares is None:
            share = like.new_full((1,), 1 / (pair + 1))
        else:
            so_far = shares[:, : 2 * (pair + 1)].sum(dim=1)
            share = torch.where(so_far > 0, shares[:, 2 * pair : 2 * (pair + 1)].sum(dim=1) / so_far, 0.0).to(like)
        return share.view(-1, *[1] * (like.ndim - 1))


def _rank(keys: Tensor, counts: Tensor) -> Tensor:
    """The place of each group by its key (n, groups) among the first `counts` of its row, from the smallest on; others last."""
    there = torch.arange(keys.shape[1], device=keys.device) < counts[:, None]
    return keys.where(there, torch.inf).argsort(dim=1, stable=True).argsort(dim=1, stable=True)


def _outputs_of(result: Result) -> Tensor:
    assert result.baseline_outputs is not None
    return result.baseline_outputs


def _normalise(weights: Tensor | None) -> Tensor | None:
    """Weights (B, n) whose sum is one; all alike where none counts."""
    if weights is None:
        return None
    total = weights.sum(dim=1, keepdim=True)
    return torch.where(total > 0, weights / total, 1 / weights.shape[1])
