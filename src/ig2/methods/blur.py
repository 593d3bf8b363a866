"""Blur IG: the path from an image to its blur."""

from __future__ import annotations

from typing import Any

from ig2 import rules
from ig2.methods.path import PathMethod
from ig2.paths import Blur
from ig2.rules import Rule


class BlurIG(PathMethod):
    """Blur IG: a path from the image to its blur, without references [Xu 2020].

    The arguments are those of `ig2.paths.Blur`, and the rule.
    """

    needs_places = True

    def __init__(self, steps: int = 100, sigma: float = 50.0, padding: Any = "reflect", rule: Rule = rules.trapezoid) -> None:
        super().__init__(Blur(steps, sigma, padding), None, rule)
