"""IG², with references and without, and GradCFE, the difference from the counterfactual."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ig2 import rules
from ig2._engine.moments import average_references
from ig2.errors import InputError, describe
from ig2.evaluation import Distance
from ig2.methods.base import Result
from ig2.methods.path import PathMethod
from ig2.paths import L2, Finished, GradPath, Norm, Steady, Stop, ToGoal, euclidean
from ig2.paths.goals import Goal
from ig2.paths.gradpath import Schedule
from ig2.references.base import References
from ig2.result import Keep
from ig2.rules import Rule
from ig2.task import Task


class IG2(PathMethod):
    """IG²: gradients integrated along GradPath from the explicand to its counterfactual, averaged over references [Zhuo 2024].

    φᵢ = E[∫ ∂f/∂xᵢ dγᵢ], where γ descends the distance D to the reference's representation. The default rule agrees with the
    published one as far as the gradients predict the output along the path, and its sum always matches the change in the
    output. The sum of the published rule, `ig2.rules.left`, need not; `residual` is the difference. `ig2.rules.gauss(n)` is
    the true integral.

    Args:
        steps: the number of steps of GradPath.
        step_size: step length in the data space; see `ig2.paths.GradPath` for the default.
        rule: the rule that turns gradients on the path into attributions.
        distance: the distance between representations.
        norm: the norm of a step.
        schedule: how the step length changes along the path.
        stop: when to end a path before all its steps are taken; by default never.
        fallback: "straight" continues to the reference on a straight line if GradPath ends with more than a quarter of D
            left (`ig2.paths.Finished`): on a plateau, behind max pooling, or where units are inactive at x.
    """

    def __init__(
        self, steps: int = 100, step_size: float | None = None, rule: Rule = rules.blended, distance: Distance = euclidean,
        norm: Norm = L2(), schedule: Schedule = Steady(), stop: Stop | None = None, fallback: Literal["straight"] | None = None,
    ) -> None:  # fmt: skip
        if fallback not in (None, "straight"):
            raise InputError(f"fallback must be 'straight' or None, got {describe(fallback)}")
        path = GradPath(steps, step_size, distance, norm, schedule, stop)
        super().__init__(path if fallback is None else Finished(path), None, rule)


class FreeIG2(PathMethod):
    """IG² without references: each path descends the outputs themselves until another class wins.

    φᵢ = E[∫ ∂f/∂xᵢ dγᵢ], where γ is `ig2.paths.ToGoal`. By default the paths lead to the classes of
    the call's `against`, or to the ten most likely ones; for labels and single outputs, to the
    opposite answer. `gradcf` holds their ends, and `arrival` how far each came.

    Args:
        goal: `ig2.paths.Rivals()`, `ig2.paths.Change(by)` for numbers, or another `Goal`.
        steps: the maximum number of steps of each path.
        step_size: step length in the data space; see `ig2.paths.ToGoal` for the default.
        share: the share of the way that a step is to cover, without `step_size`.
        rule: the rule that turns gradients on the paths into attributions.
        norm: the norm of a step.
    """

    def __init__(
        self, goal: Goal | None = None, steps: int = 40, step_size: float | None = None,
        share: float = 0.2, rule: Rule = rules.blended, norm: Norm = L2(),
    ) -> None:  # fmt: skip
        super().__init__(ToGoal(goal, steps, step_size, share, norm), None, rule)


class GradCFE(PathMethod):
    """GradCFE, x − GradCF: how the explicand differs from its counterfactual, which the network represents like a reference
    [Zhuo 2024].

    The explanation is a difference in the data and not in the output, so it has no residual. The arguments are those of `IG2`.
    """

    def __init__(
        self, steps: int = 100, step_size: float | None = None, distance: Distance = euclidean, norm: Norm = L2(),
        schedule: Schedule = Steady(), stop: Stop | None = None,
    ) -> None:  # fmt: skip
        super().__init__(GradPath(steps, step_size, distance, norm, schedule, stop), None, None)

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        if keep.per_reference:
            raise InputError("GradCFE keeps each reference's GradCF already: x − gradcf is its own attribution")
        result = super().run(task, references, keep)
        assert result.gradcfe is not None and result.gradcf is not None
        spread = average_references(result.gradcf, result.weights)[1]
        return replace(result, values=result.gradcfe, spread=spread, output=None, baseline_outputs=None)
