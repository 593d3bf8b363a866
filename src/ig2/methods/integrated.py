"""Integrated Gradients: the straight line to a baseline, or to samples of the data."""

from __future__ import annotations

from typing import ClassVar

from ig2 import rules
from ig2._utils.checks import check_count
from ig2.methods.path import PathMethod
from ig2.paths import Path, Straight
from ig2.references.base import References
from ig2.references.constant import Zeros
from ig2.rules import Rule


def draw_line(steps: int, rule: Rule | None) -> tuple[Path, Rule]:
    """Return the line and the rule that take `steps` gradients: Gauss–Legendre on all of it, or a rule on each segment."""
    check_count(steps, "steps")
    return (Straight(1), rules.gauss(steps)) if rule is None else (Straight(steps), rule)


class IntegratedGradients(PathMethod):
    """Integrated Gradients: the straight line to a baseline, by default zeros [Sundararajan 2017].

    φᵢ = (xᵢ − x′ᵢ)·∫₀¹ ∂f/∂xᵢ(x′ + t·(x − x′)) dt.

    Args:
        steps: the number of gradients.
        rule: by default Gauss–Legendre over the whole line, the most accurate use of `steps` gradients if the output is
            smooth; any other rule is applied to each of `steps` segments.
    """

    default_references: ClassVar[References | None] = Zeros()

    def __init__(self, steps: int = 50, rule: Rule | None = None) -> None:
        path, rule = draw_line(steps, rule)
        super().__init__(path, None, rule)


class ExpectedIG(IntegratedGradients):
    """Expected Integrated Gradients: the mean of Integrated Gradients over samples of the data [Erion 2021]."""

    default_references = None
