"""Guided IG: a path near the straight line that moves the features with the smallest gradients first."""

from __future__ import annotations

from ig2 import rules
from ig2.methods.path import PathMethod
from ig2.paths import Guided
from ig2.references.constant import Zeros
from ig2.rules import Rule


class GuidedIG(PathMethod):
    """Guided IG: a path near the straight line that moves the features with the smallest gradients first [Kapishnikov 2021].

    The arguments are those of `ig2.paths.Guided`; the default rule is the published sum.
    """

    default_references = Zeros()

    def __init__(self, steps: int = 200, fraction: float = 0.25, max_dist: float = 0.02, rule: Rule = rules.right) -> None:
        super().__init__(Guided(steps, fraction, max_dist), None, rule)
