"""GradCF, the end of GradPath, as the baseline of any other path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ig2._engine.integrate import Keep, integrate
from ig2._engine.task import Task
from ig2.errors import InputError, describe
from ig2.paths import GradPath, Path
from ig2.references.base import References, WeightedSamples, as_references, draw_weighted


@dataclass(frozen=True, eq=False)
class GradCF(References):
    """The counterfactuals that GradPath computes from the explicand, one for each of `references` [Zhuo 2024].

    Args:
        references: samples (R, ...) or (B, R, ...), a number, or another strategy.
        path: the path from the explicand towards the references; any that ends in a counterfactual.

    Raises:
        InputError: if the path does not end in a counterfactual.
    """

    references: Any
    path: Path = GradPath()

    def __post_init__(self) -> None:
        if not (isinstance(self.path, Path) and self.path.ends_in_counterfactual):
            raise InputError(f"path must end in a counterfactual, as GradPath() does, got {describe(self.path)}")

    def draw(self, task: Task) -> Tensor | WeightedSamples:
        samples, weights = draw_weighted(as_references(self.references), task)
        baselines = integrate(task, self.path, None, samples, Keep(baselines=True)).gradcf
        assert baselines is not None
        return baselines if weights is None else WeightedSamples(baselines, weights)
