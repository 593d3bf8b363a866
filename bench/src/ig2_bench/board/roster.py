"""The methods of the leaderboard: those of the catalogue, and variants, with the settings for a fair comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ig2 import rules
from ig2.comparison import WithoutReferences
from ig2.methods import IDG, LPI, ExpectedIG, IntegratedGradients, Method, PathMethod, SmoothGrad
from ig2.methods.catalogue import ENTRIES, METHODS, Entry, Facts
from ig2.paths import GradPath, Straight
from ig2.references import GradCF
from ig2_bench.suite import MethodLike

POOL = 100  # references that LPI chooses from at most: it runs the network on all of them in each call


@dataclass(frozen=True, kw_only=True)
class Conditions(Facts):
    """What methods are built from for a data set, with more cost than the command allows."""

    coalitions: int | None = 2048
    classes: bool = True
    """Whether outputs are classes, one of which is predicted."""
    one_reference: bool = False
    """Whether the ground truth is relative to the given reference, so that methods with a baseline also use it."""

    def find_lacks(self, method: MethodLike) -> list[str]:
        """Return what the method needs and the data set lacks."""
        while not isinstance(method, Method) and hasattr(method, "method"):
            method = method.method
        if not isinstance(method, Method):
            return []
        pictures = method.needs_places and not self.images
        classes = method.needs_classes and not self.classes
        return ["pictures"] * pictures + ["classes that exclude each other"] * classes

    def build(self, entry: Entry) -> MethodLike:
        """Return the method of an entry, without the references if it was published with a baseline or finds its own."""
        method = entry.make(self)
        if not method.takes_references or method.needs_references:
            return method
        given = self.one_reference and method.default_references is not None
        return method if given else WithoutReferences(method)

    def ig2(self, **changes: Any) -> Method:
        """Return IG² with the steps of these conditions, or with changed arguments."""
        return METHODS["ig2"].make(self, **changes)

    def secants(self, segments: int) -> AtGradCF:
        """Return secants on this many equal segments from one end of GradPath to the other."""
        return AtGradCF(PathMethod(Straight(segments), None, rules.secant), GradPath(self.steps, self.step_size))

    def secants_from_zero(self) -> MethodLike:
        """Return secants on the line to zero, or to the reference that the truth is relative to."""
        method = IntegratedGradients(min(10, self.straight), rules.secant)
        return method if self.one_reference else WithoutReferences(method)

    def noised_ig2(self) -> SmoothGrad:
        """Return IG² averaged over four noisy copies, on a path of the same length in half as many steps."""
        size = None if self.step_size is None else 2 * self.step_size
        return SmoothGrad(self.ig2(steps=max(1, self.steps // 2), step_size=size), samples=min(4, self.straight), sigma=0.1)


@dataclass(frozen=True)
class AtGradCF:
    """A method whose baselines are the ends of GradPath from the explicand."""

    method: MethodLike
    path: GradPath

    def __call__(self, model: Any, x: Any, target: Any, references: Any, **options: Any) -> Any:
        return self.method(model, x, target, GradCF(references, self.path), **options)


@dataclass(frozen=True)
class FromPool:
    """LPI, which chooses from the references of all explicands in a call, up to 100."""

    steps: int
    count: int

    def __call__(self, model: Any, x: Any, target: Any, references: Tensor, **options: Any) -> Any:
        rows = references if references.ndim == _sample_of(x).ndim else references.flatten(0, 1)
        pool = torch.unique(rows, dim=0)[:POOL]
        clusters = max(1, min(9, len(pool) // (5 * self.count)))
        return LPI(pool, clusters, min(self.count, len(pool)), self.steps)(model, x, target, **options)


def _sample_of(x: Any) -> Tensor:
    sample: Tensor = x[0] if isinstance(x, tuple) else x
    return sample


VARIANTS: dict[str, Callable[[Conditions], MethodLike]] = {
    "LPI": lambda c: FromPool(c.straight, c.references),
    # from the references, rather than from the baseline that they were published with
    "Expected IDGI": lambda c: ExpectedIG(c.straight, rules.direct),
    "Expected IDG": lambda c: IDG(c.straight),
    "Turns to references": lambda c: METHODS["turns"].make(c),
    # the secant rule on a straight line; of one segment it is DeepSHAP
    "Secants, 2": lambda c: ExpectedIG(2, rules.secant),
    "Secants, 5": lambda c: ExpectedIG(5, rules.secant),
    "Secants, 10": lambda c: ExpectedIG(10, rules.secant),
    "Secants from zero, 10": lambda c: c.secants_from_zero(),
    "Secants to GradCF, 1": lambda c: c.secants(1),
    "Secants to GradCF, 2": lambda c: c.secants(2),
    "Secants to GradCF, 5": lambda c: c.secants(5),
    "Secants to GradCF, 10": lambda c: c.secants(10),
    "IG² (left, as published)": lambda c: c.ig2(rule=rules.left),
    "IG² (blended)": lambda c: c.ig2(rule=rules.blended),
    "IG² in SmoothGrad": lambda c: c.noised_ig2(),
}
"""Combinations of parts that are compared with the methods of the catalogue."""

ROSTER: dict[str, Callable[[Conditions], MethodLike]] = {
    **{entry.title: partial(Conditions.build, entry=entry) for entry in ENTRIES if entry.ranked},
    **VARIANTS,
}
"""Every method of the leaderboard, by label. Methods with references get those of other classes."""


def build_roster(conditions: Conditions) -> dict[str, MethodLike]:
    """Return the methods of the leaderboard for a data set, by label, without those whose needs it does not meet.

    >>> "Grad-CAM" in build_roster(Conditions(images=False))
    False
    """
    methods = {label: build(conditions) for label, build in ROSTER.items()}
    return {label: method for label, method in methods.items() if not conditions.find_lacks(method)}
