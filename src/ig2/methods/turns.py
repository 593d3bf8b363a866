"""Turns: paths that move features to the reference in blocks, in random orders and then by the attribution so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2._engine.integrate import integrate
from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError
from ig2.groups import GROUPS, Grid, Groups, count_groups, number_groups
from ig2.methods.base import Method, Result
from ig2.methods.path import PathMethod
from ig2.model import Model
from ig2.paths.inturn import GivenTurns
from ig2.paths.straight import Straight
from ig2.references.base import References, draw_weighted
from ig2.references.constant import Zeros
from ig2.result import Cost, Keep
from ig2.task import Task

CELLS = 28  # along each side of an image: one pixel of a digit, eight of a photo of 224


@dataclass(frozen=True, eq=False)
class Turns(Method):
    """Turns: secants on paths that move the features to the reference one block at a time, averaged over orders.

    An order divides the M groups of features into K blocks, with the group of rank r in block ⌊K·r / M⌋. The blocks move from
    x to the reference one after the other, which makes a path of K segments; on each of them `ig2.rules.secant` distributes
    the change in the output among the features that moved. So the values sum to f(x) − f(reference) on every path, and so does
    their mean. With one block the order does not matter, and the method is `ig2.DeepSHAP`. With a block for each group, the
    mean over all orders would be the Shapley value of the groups; as half of the orders are not random, the values do not
    converge to it.

    Orders come in pairs, one the reverse of the other. The first half are random. Each later pair follows the mean so far: one
    order starts with the groups that contribute most against the output, the other with those that contribute most to it.
    These are the orders in which explanations are evaluated, to find which features suffice for the output and which are
    necessary.

    Args:
        turns: the number K of blocks; one for each group if there are fewer groups.
        orders: the number of paths, which must be even. Pairs are assigned to the references in turn, and there are at least as
            many pairs as references. Pairs are weighted so that all references count equally, or by their weights, even if
            some have one pair more.
        groups: the features that move together: `ig2.Grid(rows, columns)`, `ig2.Superpixels(count)`, `ig2.Windows(length)`, or
            an integer tensor that numbers the groups from 0, with −1 for features in no group, such as padding, which have no
            separate turn. By default the cells of a grid of at most 28 × 28 across all channels for images, and single
            features otherwise.

    Raises:
        InputError: if turns or orders is not a positive integer, orders is odd, or groups has another type.

    >>> net = lambda x: x[:, 0] * x[:, 1] + x[:, 2]
    >>> Turns(turns=3, orders=2)(net, torch.tensor([[2.0, 3.0, 1.0]])).values
    tensor([[3., 3., 1.]])
    """

    turns: int = setting(20, COUNT)
    orders: int = setting(20, COUNT)
    groups: Groups | Tensor | None = setting(None, GROUPS)
    default_references = Zeros()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.orders % 2:
            raise InputError(f"orders come in pairs, one the reverse of the other: got {self.orders}, give {self.orders + 1}")

    @property
    def complete(self) -> bool:
        """Whether the secant rule is complete."""
        return rules.secant.complete

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        samples, weights = draw_weighted(self.require_references(references), task)
        numbered = number_groups(self._choose_groups(task.x), task)
        labels = count_groups(numbered)
        total = int(labels.max()) + 1
        # the number of groups of each explicand; negative labels, such as padding, are in no group and were counted last
        counts = labels.where(numbered.flatten(1) >= 0, 0).amax(dim=1) + 1
        turns = min(self.turns, int(counts.max()))
        pairs = max(self.orders // 2, samples.shape[1])
        drawn = pairs if turns == 1 else -(-pairs // 2)  # with one turn all orders are the same
        taken = torch.arange(pairs, device=samples.device) % samples.shape[1]
        shares = self._divide_weights(task, taken, weights)

        def follow(ranks: Tensor, first: int) -> Result:
            """Integrate along both directions of the orders (B, n, M) of n pairs, starting with pair `first`."""
            last = counts[:, None, None] - 1
            ranks = ranks.minimum(last)  # features in no group move with the last group, in the reverse order with the first
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
        """Estimate the cost of a call with up to orders / 2 references, from one path; see `ig2.PathMethod.estimate`."""
        cost = PathMethod(Straight(self.turns), Zeros(), rules.secant).estimate(model, x, **options)
        return replace(cost, seconds=self.orders * cost.seconds)

    def _choose_groups(self, x: Tensor) -> Groups | Tensor | None:
        if self.groups is not None or x.ndim != 4:
            return self.groups
        return Grid(min(CELLS, x.shape[2]), min(CELLS, x.shape[3]))

    def _draw_ranks(self, task: Task, counts: Tensor, pairs: int, total: int) -> Tensor:
        """Draw random orders as the rank of each group, (B, pairs, total), equal for explicands with equally many groups."""
        # by rows, so that the keys of the first groups do not depend on the number of groups
        keys = torch.rand(total, pairs, generator=task.generator(), dtype=torch.float64, device="cpu").T  # MPS has no float64
        return torch.stack([_rank(keys, count.expand(pairs)) for count in counts.cpu()]).to(counts.device)

    @staticmethod
    def _divide_weights(task: Task, taken: Tensor, weights: Tensor | None) -> Tensor | None:
        """Return the weight of each order, (B, 2·pairs), by which each reference has its weight for any number of pairs."""
        times = taken.bincount()
        if weights is None:
            if bool((times == times[0]).all()):
                return None
            weights = task.x.new_ones(len(task), len(times))
        return (weights / times.to(weights))[:, taken.to(weights.device)].repeat_interleave(2, dim=1)

    @staticmethod
    def _find_share(shares: Tensor | None, pair: int, like: Tensor) -> Tensor:
        """Return the share of a pair in the mean of all pairs up to it, (B or 1, 1, ...)."""
        if shares is None:
            share = like.new_full((1,), 1 / (pair + 1))
        else:
            so_far = shares[:, : 2 * (pair + 1)].sum(dim=1)
            share = torch.where(so_far > 0, shares[:, 2 * pair : 2 * (pair + 1)].sum(dim=1) / so_far, 0.0).to(like)
        return share.view(-1, *[1] * (like.ndim - 1))


def _rank(keys: Tensor, counts: Tensor) -> Tensor:
    """Return the ascending rank of each group by its key (n, groups) among the first `counts` of its row; others are last."""
    there = torch.arange(keys.shape[1], device=keys.device) < counts[:, None]
    return keys.where(there, torch.inf).argsort(dim=1, stable=True).argsort(dim=1, stable=True)


def _outputs_of(result: Result) -> Tensor:
    assert result.baseline_outputs is not None
    return result.baseline_outputs


def _normalise(weights: Tensor | None) -> Tensor | None:
    """Normalise weights (B, n) to a sum of one; equal weights where all are zero."""
    if weights is None:
        return None
    total = weights.sum(dim=1, keepdim=True)
    return torch.where(total > 0, weights / total, 1 / weights.shape[1])
