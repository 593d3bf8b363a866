"""Straight-line methods that weight gradients unequally: IDGI, IDG, LeftIG and Path-Weighted IG."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ig2 import rules
from ig2._engine.integrate import integrate
from ig2._engine.moments import average_references
from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, describe
from ig2.methods.base import Result
from ig2.methods.integrated import draw_line
from ig2.methods.path import PathMethod
from ig2.paths import Adaptive, Straight
from ig2.paths.base import per_sample
from ig2.paths.straight import outputs_on_lines
from ig2.references.base import References
from ig2.references.constant import Zeros
from ig2.result import Keep
from ig2.rules import Rule
from ig2.task import Task


class IDGI(PathMethod):
    """IDGI on the straight line: φ = Σₜ Δfₜ · g² / Σg² with g = ∇f(pₜ); complete, each term with the sign of Δfₜ [Yang 2023].

    This is the rule `ig2.rules.direct` on `ig2.paths.Straight`; pass that rule to use IDGI on other paths. The published code
    evaluates the gradient at the end of the segment nearer the baseline, ours at the end nearer the explicand.

    Args:
        steps: the number of segments of the line.
    """

    default_references = Zeros()

    def __init__(self, steps: int = 50) -> None:
        super().__init__(Straight(steps), None, rules.direct)


class IDG(PathMethod):
    """Integrated Decision Gradients: each gradient weighted by the slope of the output along the straight line [Walker 2024].

    φ = (x − x′) ⊙ ∫₀¹ ∇f(γ(α)) · df(γ(α))/dα dα, with vertices where the output changes: `ig2.rules.decision` on
    `ig2.paths.Adaptive`, which documents how the published code differs. The values do not sum to a change in the output, so
    there is no residual.

    Args:
        steps: the number of gradients, and the number of outputs used to place them.
    """

    default_references = Zeros()

    def __init__(self, steps: int = 50) -> None:
        super().__init__(Adaptive(steps), None, rules.decision)

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        return replace(super().run(task, references, keep), output=None, baseline_outputs=None)


@dataclass(frozen=True, eq=False, init=False)
class LeftIG(PathMethod):
    """Integrated Gradients on the part of the line before the output saturates [Miglani 2020].

    φ = ∫₀^α* ∇f(γ(α)) dα ⊙ (x − x′), where α* is the first of `steps` + 1 equally spaced points from the baseline at which
    the output has covered `share` of its rise from f(x′) to its maximum on the line; the whole line if it never rises. The
    values sum to f(γ(α*)) − f(x′), so the residual is f(γ(α*)) − f(x): the change after the cut, negated. The published code
    takes the mean of the gradients before the cut, which is ours divided by α*, and measures the share from zero instead of
    f(x′).

    Args:
        steps: the number of intervals searched for the cut, and the number of segments of the part integrated.
        share: the share of the rise, in (0, 1].
        rule: by default Gauss–Legendre over the part integrated, with `steps` gradients.

    Raises:
        InputError: if share is not in (0, 1].
    """

    default_references = Zeros()
    steps: int = 50
    share: float = 0.9

    def __init__(self, steps: int = 50, share: float = 0.9, rule: Rule | None = None) -> None:
        if not (is_number(share) and 0 < share <= 1):
            raise InputError(f"share must be in (0, 1], got {describe(share)}")
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "steps", steps)
        path, rule = draw_line(steps, rule)
        super().__init__(path, None, rule)

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        samples, weights = self._samples(task, references)
        curves = outputs_on_lines(task, samples, self.steps)
        rise = curves - curves[:, :, :1]
        is_past = (rise >= self.share * rise.amax(dim=2, keepdim=True)) & (rise > 0)
        cut = torch.where(is_past.any(dim=2), is_past.int().argmax(dim=2) / self.steps, 1.0).to(task.x)
        results = []
        for reference, place in zip(samples.unbind(dim=1), cut.unbind(dim=1), strict=True):
            start = torch.lerp(reference.to(task.x), task.x, per_sample(place, task.x))
            results.append(integrate(replace(task, x=start, graph=None), self.path, self.rule, reference[:, None], keep))
        values, spread = average_references(torch.stack([result.values for result in results], dim=1), weights)
        return Result(values, spread=spread, **Result.join_references(results) | {"weights": weights})


class PathWeightedIG(PathMethod):
    """Integrated Gradients with each gradient weighted by its position on the line [Kamalov 2025].

    φ = (x − x′) ⊙ ∫₀¹ u(α) ∇f(x′ + α·(x − x′)) dα. Complete only if u = 1; `residual` is the difference.

    Args:
        weight: u, a function of α, which runs from 0 at the baseline to 1 at the explicand.
        steps: the number of gradients.

    Raises:
        InputError: if weight is not callable.

    >>> PathWeightedIG(lambda place: 2 * place)(lambda x: x.sum(dim=1), torch.tensor([[3.0, 1.0]])).values.round(decimals=4)
    tensor([[3., 1.]])
    """

    default_references = Zeros()

    def __init__(self, weight: Callable[[float], float], steps: int = 50) -> None:
        check_count(steps, "steps")
        if not callable(weight):
            raise InputError(f"weight must be a function of the place on the line, 0 to 1, got {describe(weight)}")
        name = getattr(weight, "__name__", type(weight).__name__)
        super().__init__(Straight(1), None, rules.PathWeighted(f"weighted by {name}", weight, steps))
