"""Geodesic IG: the path from sample to sample along which the gradient is smallest."""

from __future__ import annotations

from torch import Tensor

from ig2 import rules
from ig2.methods.path import PathMethod
from ig2.paths import Geodesic
from ig2.references.constant import Zeros
from ig2.rules import Rule


class GeodesicIG(PathMethod):
    """Geodesic IG: the path from sample to sample along which the output's gradient is smallest [Salek 2025].

    φ is the integral of the gradient along `ig2.paths.Geodesic`, complete up to its accuracy.

    Args:
        pool: samples (N, ...) that paths pass through.
        neighbours: the number of nearest samples each sample is connected to.
        rule: the rule that turns gradients on each segment into attributions.
    """

    default_references = Zeros()

    def __init__(self, pool: Tensor, neighbours: int = 5, rule: Rule = rules.gauss(5)) -> None:
        super().__init__(Geodesic(pool, neighbours), None, rule)
