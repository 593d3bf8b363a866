"""Faithfulness and monotonicity: attributions beside what happens when features of a table are unknown."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, NUMBER, required, setting
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.conditional import CONDITIONAL, Conditional, average_outputs, check_tabular
from ig2.metrics.correlation import correlate, order_features, rounding_error
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class ConditionalMetric(Metric):
    """Base class of metrics of tabular samples that average outputs over the distribution of unknown features.

    Args:
        conditional: the distribution of the unknown features given the known ones.
        draws: the number of samples in each mean.
    """

    conditional: Conditional = required(CONDITIONAL)
    draws: int = setting(100, COUNT)
    better = "higher"

    def average(self, task: Task, known: Tensor) -> Tensor:
        """Return E f(X | the known features of x) for m sets of them.

        Args:
            task: the call, with the explicands.
            known: the sets of known features, booleans (m, d) for all explicands, or (B, m, d).

        Returns:
            The means, (B, m) in float64 on the CPU.
        """
        check_tabular(task.x, self.name)
        return average_outputs(task.outputs, task.x, known, self.conditional, self.draws, task.seed, task.progress)


@dataclass(frozen=True, eq=False)
class Faithfulness(ConditionalMetric):
    """Correlation of attributions with the effect of removing each feature [Alvarez-Melis 2018], [Liu 2021].

    Pearson's correlation, over the features, of |φⱼ| with |f(x) − E f(X | all features of x but j)|. If either is the same for
    all features up to rounding, there is no correlation, and the score is not defined.

    >>> from ig2.metrics import ConstantFill
    >>> x = torch.tensor([[3.0, 1.0, 2.0]])
    >>> Faithfulness(ConstantFill(0.0), draws=1)(lambda x: x.sum(dim=1), x, x).values.float()
    tensor([1.])

    Args:
        conditional: the distribution of a feature given the others.
        draws: the number of samples in each mean.
        if_constant: the score if there is no correlation; by default not defined. XAI-BENCH counts 0.
    """

    if_constant: float | None = setting(None, NUMBER)
    name = "faithfulness"

    def run(self, case: Case) -> Scores:
        x, output = case.task.x, case.finite_output()[:, None]
        without = self.average(case.task, ~torch.eye(x[0].numel(), dtype=torch.bool, device=x.device))
        rounding = rounding_error(torch.cat([output, without], dim=1), x.dtype)
        reason = "no feature's loss changes more than others"
        return correlate(case.values.abs(), (output - without).abs(), rounding, self.if_constant, reason)


@dataclass(frozen=True, eq=False)
class Monotonicity(ConditionalMetric):
    """Whether the output changes more and more as features become known by increasing |φ| [Luss 2021], [Liu 2021].

    With f₀ = E f(X) and fₖ = E f(X | the k features with the smallest |φ|), the share of the d − 1 steps from one increment
    |fₖ₊₁ − fₖ| to the next that do not shrink; a decrease within rounding error does not count. Ties are in a random order
    determined by the seed. With a single feature there is no step, and the score is not defined. The arguments are those of
    `ConditionalMetric`.
    """

    name = "monotonicity"

    def run(self, case: Case) -> Scores:
        count, d = len(case.values), case.values[0].numel()
        if d == 1:
            return Scores(torch.full((count,), torch.nan, device="cpu"), undefined={"a single feature has no order": count})
        order = order_features(case.values.abs().flatten(1), torch.Generator().manual_seed(case.seed))
        known = order.argsort(dim=1)[:, None] < torch.arange(d + 1, device=order.device)[:, None]
        curves, rounding = self.arrange(self.average(case.task, known), order.cpu(), case)
        increments = curves.diff(dim=1).abs()
        shares = (increments.diff(dim=1) >= -rounding[:, None]).double().mean(dim=1)
        return Scores(shares, curves=curves, at=torch.arange(d + 1, device="cpu"))

    def arrange(self, outputs: Tensor, order: Tensor, case: Case) -> tuple[Tensor, Tensor]:
        """Return the curves (B, d + 1) from the outputs f₀ … f_d, and the rounding error of their differences, (B,)."""
        return outputs, rounding_error(outputs, case.task.x.dtype)
