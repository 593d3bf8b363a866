"""Monotonicity as the published code of XAI-BENCH computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ig2.metrics.base import Case
from ig2.metrics.faithfulness import Monotonicity


@dataclass(frozen=True, eq=False)
class PublishedMonotonicity(Monotonicity):
    """Monotonicity as computed by the published code of XAI-BENCH [Liu 2021], for comparison with its figures.

    It differs from `Monotonicity` in three ways. The output after feature j became known is stored at position j + 1 of the
    curve, not at that of its rank, so that the increments are between features that are neighbours in the table. The curve
    starts at the mean output over the explicands, so that a score depends on its batch. And decreases within rounding error
    count. The arguments are those of `ConditionalMetric`.
    """

    name: ClassVar[str] = "monotonicity (as published)"

    def arrange(self, outputs: Tensor, order: Tensor, case: Case) -> tuple[Tensor, Tensor]:
        start = case.finite_output().mean().expand(len(outputs), 1)
        stored = torch.empty_like(outputs[:, 1:]).scatter_(1, order, outputs[:, 1:])
        return torch.cat([start, stored], dim=1), torch.zeros(len(outputs), device="cpu")
