"""Correlations of summed attributions with the change in the output when features are removed: IDSDS and sensitivity-n."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ig2._utils.checks import is_number, require
from ig2._utils.settings import setting
from ig2.groups import Grid, Windows
from ig2.methods.masking import run_masked
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.correlation import correlate, midranks, rounding_error
from ig2.metrics.curves import TWO_OR_MORE, Background, OutputOption, as_background, select_output
from ig2.metrics.features import FeatureOption, Features
from ig2.model import Model
from ig2.references.base import draw_references

CONSTANT = "the output changes alike whatever is removed"


@dataclass(frozen=True, eq=False)
class Removal(Metric):
    """Base class of metrics that remove sets of features and compare the change in the output with their attributions.

    If all sets have the same sum, or change the output alike, there is no correlation, and the score is not defined.

    Args:
        background: the values that replace removed features, as for `PerturbationCurve`; with several, the change is the mean.
        output: the output whose change is measured: "model", the explained output, or another, as for `PerturbationCurve`.
    """

    background: Background | Any = "mean"
    output: OutputOption = "model"
    better = "higher"

    def adapt_model(self, model: Model) -> Model:
        return select_output(model, self.output)

    def remove(self, case: Case, labels: Tensor, sets: Tensor, features: object = "auto") -> tuple[Tensor, Tensor, Tensor]:
        """Remove sets of features, one at a time.

        Args:
            case: the attributions to score.
            labels: the feature, of M, that each number of a sample belongs to; broadcasts to a sample.
            sets: S sets, booleans (1, S, M) for all explicands, or (B, S, M) for each.
            features: the `features` setting of the metric, which defines the M features.

        Returns:
            The sums of attributions over the sets and the changes in the output without them, both (B, S), and the rounding
            error of the changes, (B,); in float64 on the CPU.
        """
        task, output = case.task, case.finite_output()[:, None]
        labels = labels.expand(task.x.shape[1:]).reshape(1, -1)
        backgrounds = draw_references(as_background(self.background, features, task), task, "the background")
        rows, count = torch.arange(len(task), device=task.x.device), sets.shape[1]
        task.progress.expect(len(task) * backgrounds.shape[1] * count)

        def stays(samples: Tensor, numbers: Tensor) -> Tensor:
            removed = sets[samples if len(sets) > 1 else torch.zeros_like(samples), numbers]
            return ~removed.gather(1, labels.expand(len(numbers), -1)).view(len(numbers), *task.x.shape[1:])

        outputs = run_masked(task, rows, backgrounds, stays, count).mean(dim=1)
        values = case.values.new_zeros(len(task), sets.shape[2])
        values.scatter_add_(1, labels.expand(len(task), -1), case.values.flatten(1))
        sums = torch.einsum("bsm,bm->bs", sets.double().expand(len(task), -1, -1), values.double())
        rounding = rounding_error(torch.cat([output, outputs], dim=1), task.x.dtype)
        changes = output - outputs
        return sums.cpu(), changes.masked_fill(changes.abs() <= rounding[:, None], 0.0), rounding


@dataclass(frozen=True, eq=False)
class IDSDS(Removal):
    """The single-deletion score: the rank correlation of patches' attributions with the effect of deleting each [Hesse 2024].

    Spearman's correlation, over the patches of a grid, of the sum of attributions in a patch with f(x) − f(x without it). Signs
    are kept; equal sums share their mean rank. Only one patch is missing at a time, so images stay near the data. The protocol
    is in-domain if the network was trained with missing patches, which is up to the user.

    >>> x = torch.arange(16.0).view(1, 1, 4, 4)
    >>> IDSDS("black", grid=(2, 2))(lambda x: x.flatten(1).sum(dim=1), x, x).values.float()
    tensor([1.])

    Args:
        background: the values that replace a patch, as for `PerturbationCurve`. "mean" is nearest to the published zeros in a
            space where the mean of the data is zero.
        output: as for `Removal`. The published output is the logit.
        grid: the numbers of rows and columns.
    """

    grid: tuple[int, int] = (4, 4)
    name = "IDSDS"

    def __post_init__(self) -> None:
        require(isinstance(self.grid, tuple) and len(self.grid) == 2, "grid", self.grid, "(rows, columns)")
        require(Grid(*self.grid).rows * self.grid[1] > 1, "grid", self.grid, "of two patches or more")

    def run(self, case: Case) -> Scores:
        labels = Grid(*self.grid).labels(case.values)[0]
        patches = torch.eye(math.prod(self.grid), dtype=torch.bool, device=case.values.device)[None]
        sums, changes, rounding = self.remove(case, labels, patches)
        # constants by the numbers, the correlation by their ranks
        linear = correlate(sums.to(case.values.dtype), changes, rounding, None, CONSTANT)
        ranked = correlate(midranks(sums).double(), midranks(changes).double(), torch.zeros_like(rounding), 0.0, CONSTANT)
        return replace(linear, values=torch.where(linear.values.isnan(), torch.nan, ranked.values))


@dataclass(frozen=True, eq=False)
class SensitivityN(Removal):
    """Sensitivity-n: the correlation of summed attributions with the effect of removing n random features [Ancona 2018].

    Pearson's correlation, over random sets of n features, of Σ φ over the set with f(x) − f(x without it), averaged over
    several n. It is 1 for all n if f is linear in the features and φ its terms. Every explicand gets the same sets.

    >>> x = torch.tensor([[3.0, 1.0, 2.0, -1.0]])
    >>> SensitivityN("black", shares=(0.25, 0.5))(lambda x: x.sum(dim=1), x, x).values.float()
    tensor([1.])

    Args:
        background: the values that replace removed features, as for `PerturbationCurve`. The published value is zero.
        output: as for `Removal`.
        shares: n, as shares of the features; at least one feature and at most all but one.
        draws: the number of sets for each n.
        features: the unit of removal: "pixel", "word", "element" or "auto", `ig2.Grid(rows, columns)` for patches, or
            `ig2.Windows(length)` for windows of time. The effect of a single pixel is often less than the noise of the rest of
            its set: patches are more informative.
    """

    background: Background | Any = "black"
    shares: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8)
    draws: int = setting(100, TWO_OR_MORE)
    features: FeatureOption | Grid | Windows = "auto"
    name = "sensitivity-n"

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = isinstance(self.shares, tuple) and all(is_number(share) and 0 < share < 1 for share in self.shares)
        require(valid and len(self.shares) > 0, "shares", self.shares, "numbers between 0 and 1, such as (0.1, 0.5)")

    def run(self, case: Case) -> Scores:
        labels = self._label(case.values)
        count, moves = int(labels.max()) + 1, case.task.session.inputs.moves
        movable = torch.ones(1, count, dtype=torch.bool, device=labels.device)
        if moves is not None:
            index = labels.expand(moves.shape[1:]).reshape(1, -1).expand(len(moves), -1)
            movable = torch.zeros(len(moves), count, device=labels.device).scatter_add_(1, index, moves.flatten(1).float()) > 0
        sizes = movable.sum(dim=1, keepdim=True)
        order = torch.rand(self.draws, count, generator=case.task.generator(), dtype=torch.float64, device="cpu").to(
            labels.device
        )
        ranks = order.masked_fill(~movable[:, None], torch.inf).argsort(dim=2).argsort(dim=2)  # (1 or B, draws, M)
        taken = [(share * sizes).round().minimum(sizes - 1).clamp(min=1)[:, None] for share in self.shares]
        sets = torch.cat([ranks < n for n in taken], dim=1)
        sums, changes, rounding = self.remove(case, labels, sets, self.features)
        curves = torch.stack(
            [
                correlate(total.to(case.values.dtype), change, rounding, None, CONSTANT).values
                for total, change in zip(*(rows.chunk(len(self.shares), dim=1) for rows in (sums, changes)), strict=True)
            ],
            dim=1,
        )
        at = torch.tensor(self.shares, dtype=torch.float64, device="cpu")
        reasons = {"sets of one size have all the same sum, or change the output alike": curves.isnan().all(dim=1)}
        return Scores.where_defined(curves.nanmean(dim=1), reasons, curves=curves, at=at)

    def _label(self, values: Tensor) -> Tensor:
        """Return the feature that each number of a sample belongs to; broadcasts to a sample."""
        if isinstance(self.features, (Grid, Windows)):
            return self.features.labels(values)[0]
        features = Features.of(self.features, values.shape[1:])
        return torch.arange(len(features), device=values.device).view(features.shape)
