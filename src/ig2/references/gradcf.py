"""GradCF as a baseline for any other path: where GradPath ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ig2._engine.integrate import Keep, integrate
from ig2._engine.task import Task
from ig2.paths.gradpath import GradPath
from ig2.references.base import References, as_references, drawn


@dataclass(frozen=True, eq=False)
class GradCF(References):
    """The counterfactuals that GradPath makes of the explicand on its way to `references`, one for each.

    Args:
        references: samples (R, ...) or (B, R, ...), a number, or another strategy.
        path: how to walk there.
    """

    references: Any
    path: GradPath = GradPath()

    def draw(self, task: Task) -> Tensor:
        samples = drawn(as_references(self.references), task)
        baselines = integrate(task, self.path, None, samples, Keep(baselines=True)).gradcf
        assert baselines is not None
        return baselines
