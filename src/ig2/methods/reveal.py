"""Reveal-IG: from a wide distribution around the explicand to the explicand."""

from __future__ import annotations

from ig2 import rules
from ig2.methods.path import PathMethod
from ig2.paths import Revealed
from ig2.rules import Rule


class RevealIG(PathMethod):
    """Reveal-IG: how the mean output changes as a distribution narrows to the explicand [Murphy 2026]; without references.

    φ = ∫ ∂E[f(γ(t))]/∂(mean, width) d(mean, width) on `ig2.paths.Revealed`; the values sum to f(x) minus the mean output over
    the widest distribution.

    Args:
        steps: the number of segments of each path.
        samples: the number of paths.
        sigma: the standard deviation of the noise at the wide end, in the data space.
        blur: the standard deviation of the blur at the wide end, in pixels.
        rule: the rule that turns gradients on the paths into attributions.
    """

    def __init__(
        self, steps: int = 20, samples: int = 10, sigma: float = 0.3, blur: float = 0.0, rule: Rule = rules.trapezoid
    ) -> None:
        super().__init__(Revealed(steps, samples, sigma, blur), None, rule)
