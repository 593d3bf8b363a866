"""Running averages of attributions over noisy explicands or networks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ig2.methods.base import Result
from ig2.task import Task

Statistic = Literal["mean", "squares", "variance"]


class Average:
    """Accumulates the mean of n attributions of each explicand, the mean of their squares, or their variance.

    Attributions are added one by one in a fixed order, so that the result does not depend on batching.

    Args:
        task: the task whose explicands are attributed.
        count: the number n of attributions that will be added for each explicand.
        statistic: "mean", "squares" (the mean of squares), or "variance", (1/n) Σ (φₖ − mean φ)².
    """

    def __init__(self, task: Task, count: int, statistic: Statistic = "mean") -> None:
        self.task, self.count, self.statistic = task, count, statistic
        self.values = torch.zeros_like(task.x)
        self.means = torch.zeros_like(task.x) if statistic == "variance" else None
        self.added = [0] * len(task)
        self.baseline_outputs: Tensor | None = None

    def add(self, result: Result, rows: Tensor) -> None:
        """Add the attributions of a result, which belong to the explicands `rows` (n,)."""
        outputs = result.baseline_outputs
        if outputs is not None and result.weights is not None:  # each may have weights of its own
            outputs = (result.weights * outputs).sum(dim=1, keepdim=True)
        if outputs is not None and self.baseline_outputs is None:
            self.baseline_outputs = outputs.new_zeros(len(self.task), outputs.shape[1])
        for i, row in enumerate(rows.tolist()):
            self._add_values(row, result.values[i])
            if outputs is not None and self.baseline_outputs is not None:
                self.baseline_outputs[row] += outputs[i] / self.count

    def _add_values(self, row: int, values: Tensor) -> None:
        self.added[row] += 1
        if self.means is None:
            self.values[row] += (values.square() if self.statistic == "squares" else values) / self.count
            return
        # by differences from the running mean: for values of 1e4 with a deviation of 1, float32 squares keep no digit
        before = values - self.means[row]
        self.means[row] += before / self.added[row]
        self.values[row] += before * (values - self.means[row]) / self.count

    def result(self) -> Result:
        """Return the accumulated statistic. Squares and variances have no baseline, as their sums have no meaning."""
        return Result(self.values, self.baseline_outputs if self.statistic == "mean" else None)
