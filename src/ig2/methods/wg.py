"""Weighted IG: references weighted by how well each one's attribution deletes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ig2._engine.moments import average_references
from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError, describe
from ig2.methods.base import Result
from ig2.methods.path import PathMethod
from ig2.methods.wrapper import Wrapper, of_wrapped
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class WG(Wrapper):
    """Weighted IG: the mean over references, each weighted by the deletion score of its attribution [Tran 2025].

    φ = Σᵣ wᵣ φᵣ with wᵣ ∝ max(0, f(x) − dᵣ), where dᵣ is the mean output as the features with the largest φᵣ are replaced, in
    `shares` equal parts, by those of reference r; the weights are equal if no deletion lowers the output. It is complete if
    the wrapped method is: the residual is relative to the weighted mean of the baselines' outputs. The weights are
    returned as `Attribution.weights`. Their formula is ours; the paper's measure of a baseline may differ in details.

    Args:
        method: a path method with references, for example `ExpectedIG()`.
        shares: the number of equal parts in which features are deleted.

    Raises:
        InputError: if method is not a path method with references.
    """

    shares: int = setting(10, COUNT)
    complete = of_wrapped("complete")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.method, PathMethod) and self.method.takes_references):
            raise InputError(f"WG weighs the references of a path method such as ig2.ExpectedIG(), got {describe(self.method)}")

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        assert isinstance(self.method, PathMethod)
        samples, sample_weights = self.method._samples(task, references)
        result = self.method.run_checked(task, references, replace(keep, per_reference=True))
        each = result.per_reference
        assert each is not None
        weights = self._weigh(task, samples, each) * (1.0 if sample_weights is None else sample_weights)
        weights = torch.where(weights.sum(dim=1, keepdim=True) > 0, weights, 1.0)
        weights = weights / weights.sum(dim=1, keepdim=True)
        values, spread = average_references(each, weights)
        moved = None if result.gradcf is None else average_references(task.x[:, None] - result.gradcf, weights)[0]
        kept = each if keep.per_reference else None
        return replace(result, values=values, spread=spread, weights=weights, gradcfe=moved, per_reference=kept)

    def _weigh(self, task: Task, samples: Tensor, each: Tensor) -> Tensor:
        """Return how far deletion by each reference's attribution lowers the output, (B, R); zero if it raises it."""
        every, features = torch.arange(len(task), device=task.x.device), task.x[0].numel()
        whole = task.outputs(task.x, every)
        fitness = []
        for sample, values in zip(samples.unbind(dim=1), each.unbind(dim=1), strict=True):
            flat, reference = task.x.flatten(1), sample.to(task.x).flatten(1)
            rank = values.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            outputs = torch.zeros_like(whole)
            for part in range(1, self.shares + 1):
                points = torch.where(rank < features * part / self.shares, reference, flat).view_as(task.x)
                outputs += task.outputs(points, every) / self.shares
            fitness.append((whole - outputs).clamp(min=0))
        return torch.stack(fitness, dim=1)
