"""GradCF, the end of GradPath or of a path to a goal, as the baseline of any other path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ig2._engine.integrate import integrate
from ig2.errors import InputError, describe
from ig2.paths import GradPath, Path
from ig2.references.base import References, WeightedSamples, as_references, draw_weighted
from ig2.result import Keep
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class GradCF(References):
    """The counterfactuals that GradPath computes from the explicand, one for each of `references` [Zhuo 2024].

    With `path=ig2.paths.ToGoal()` they are made without data: other classes win there.

    Args:
        references: samples (R, ...) or (B, R, ...), a number, or another strategy; None if the path
            uses none.
        path: the path from the explicand towards the references; any that ends in a counterfactual.

    Raises:
        InputError: if the path does not end in a counterfactual, or if it uses references and none
            are given, or the opposite.
    """

    references: Any = None
    path: Path = GradPath()

    def __post_init__(self) -> None:
        if not (isinstance(self.path, Path) and self.path.ends_in_counterfactual):
            raise InputError(f"path must end in a counterfactual, as GradPath() does, got {describe(self.path)}")
        if self.path.uses_reference == (self.references is None):
            wants = "needs references" if self.path.uses_reference else "uses no references"
            name, got = type(self.path).__name__, describe(self.references)
            raise InputError(f"{name} {wants}, got references={got}")

    def draw(self, task: Task) -> Tensor | WeightedSamples:
        weights = None
        if self.references is None:
            samples = self.path.stand_ins(task)
        else:
            samples, weights = draw_weighted(as_references(self.references), task)
        baselines = integrate(task, self.path, None, samples, Keep(baselines=True)).gradcf
        assert baselines is not None
        return baselines if weights is None else WeightedSamples(baselines, weights)
