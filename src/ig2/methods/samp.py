"""SAMP: the path along which the output falls fastest."""

from __future__ import annotations

from ig2 import rules
from ig2.methods.path import PathMethod
from ig2.paths import Greedy
from ig2.references.constant import Zeros
from ig2.rules import Rule


class SAMP(PathMethod):
    """SAMP: gradients on the path along which the output falls fastest [Zhang 2024].

    φ = Σₜ ∇f(pₜ) ⊙ (pₜ − pₜ₊₁) on `ig2.paths.Greedy`, which documents how it differs from the paper.

    Args:
        steps: the number of steps of the path.
        momentum: the momentum of the gradients that select the next features.
        rule: the rule that turns gradients on the path into attributions.
    """

    default_references = Zeros()

    def __init__(self, steps: int = 100, momentum: float = 0.5, rule: Rule = rules.left) -> None:
        super().__init__(Greedy(steps, momentum), None, rule)
