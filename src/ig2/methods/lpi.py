"""Local Path Integration: references with similar outputs, weighted by their density."""

from __future__ import annotations

from typing import Any

from ig2.methods.integrated import ExpectedIG, draw_line
from ig2.methods.path import PathMethod
from ig2.references.weighted import LocalClusters
from ig2.rules import Rule


class LPI(ExpectedIG):
    """Local Path Integration: Expected IG from samples with similar outputs, weighted by their density [Yang 2023b].

    φ = Σᵣ wᵣ (x − xᵣ) ⊙ ∫₀¹ ∇f(xᵣ + t·(x − xᵣ)) dt with references and weights from `ig2.references.LocalClusters`; complete
    up to the accuracy of the integral. The published code averages the already weighted terms over the references, which is
    ours divided by their number.

    Args:
        pool: samples (N, ...) to choose references from.
        clusters: the number of clusters of outputs.
        count: the number of references.
        steps: the number of gradients for each reference.
        rule: as for `ig2.IntegratedGradients`.
    """

    def __init__(self, pool: Any, clusters: int = 9, count: int = 10, steps: int = 50, rule: Rule | None = None) -> None:
        path, rule = draw_line(steps, rule)
        PathMethod.__init__(self, path, LocalClusters(pool, clusters, count), rule)
