"""The methods of the leaderboard: one list for all data sets, each with the settings for a fair comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ig2 import rules
from ig2.comparison import WithoutReferences
from ig2.groups import Groups
from ig2.methods import (
    AGI,
    BIG,
    IDG,
    IG2,
    LPI,
    MFABA,
    RISE,
    SAMP,
    XRAI,
    AttEXplore,
    DeepSHAP,
    ExpectedIG,
    GradCAM,
    Gradient,
    GuidedIG,
    HiResCAM,
    InputXGradient,
    IntegratedGradients,
    KernelSHAP,
    LayerCAM,
    Occlusion,
    PathMethod,
    Random,
    RevealIG,
    SmoothGrad,
    Strata,
    Turns,
    VarGrad,
)
from ig2.paths import Descent, GradPath, Sign, Straight
from ig2.references import GradCF, Union, White, Zeros
from ig2_bench.suite import MethodLike

IMAGES, CLASSES, SEGMENTS = "images", "classes", "scikit-image"
NEEDS = {
    IMAGES: "pictures",
    CLASSES: "classes that exclude each other",
    SEGMENTS: "the package scikit-image",
}
"""The requirements that methods may have of a data set. Methods are skipped on data sets that do not meet them."""
POOL = 100  # references that LPI chooses from at most: it runs the network on all of them in each call


@dataclass(frozen=True)
class Conditions:
    """The properties of a data set that methods are built from. Methods that use a number in the same way share it."""

    images: bool = True
    """Whether inputs are images."""
    classes: bool = True
    """Whether outputs are classes, one of which is predicted."""
    one_reference: bool = False
    """Whether the ground truth is relative to the given reference, so that methods with their own baseline also use it."""
    steps: int = 50
    """The number of steps of GradPath."""
    step_size: float | None = None
    """The step length of GradPath; None for the default of `ig2.paths.GradPath`."""
    references: int = 10
    """The number of references for each explicand."""
    straight: int = 50
    """The number of gradients on a straight line, of noisy copies, and of steps of an attack."""
    guided: int = 200
    """The number of steps of Guided IG."""
    coalitions: int = 2048
    """The number of coalitions of KernelSHAP, and of masks of RISE."""
    groups: Groups | Tensor | None = field(default=None, repr=False)
    """The groups of features that KernelSHAP and Occlusion treat as one."""

    @property
    def available(self) -> set[str]:
        """The keys of `NEEDS` that are met."""
        flags = {IMAGES: self.images, CLASSES: self.classes, SEGMENTS: find_spec("skimage") is not None}
        return {need for need, there in flags.items() if there}

    def alone(self, method: MethodLike) -> MethodLike:
        """Return a method that was published with its own baseline, without the references."""
        return method if self.one_reference else WithoutReferences(method)

    def ig2(self, **changes: Any) -> IG2:
        """Return IG² with the steps of these conditions, or with changed arguments."""
        return IG2(**{"steps": self.steps, "step_size": self.step_size, **changes})

    def secants(self, segments: int) -> AtGradCF:
        """Return secants on this many equal segments from one end of GradPath to the other."""
        return AtGradCF(PathMethod(Straight(segments), None, rules.secant), GradPath(self.steps, self.step_size))

    def turns(self) -> Turns:
        """Return blocks of features in turn; for images, the cells of the default grid of `Turns`."""
        few = min(10, self.straight)
        return Turns(2 * few, 2 * few, None if self.images else self.groups)

    def noised_ig2(self) -> SmoothGrad:
        """Return IG² averaged over four noisy copies, on a path of the same length in half as many steps."""
        size = None if self.step_size is None else 2 * self.step_size
        return SmoothGrad(self.ig2(steps=max(1, self.steps // 2), step_size=size), samples=min(4, self.straight), sigma=0.1)

    def attacks(self) -> tuple[Descent, Descent]:
        """Return the attacks with which BIG searches for the decision boundary."""
        return Descent(2 * self.straight, 0.01, Sign()), Descent(2 * self.straight, 0.1)


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


@dataclass(frozen=True)
class Contender:
    """A method of the leaderboard."""

    build: Callable[[Conditions], MethodLike]
    """A function that builds the method for a data set."""
    needs: tuple[str, ...] = ()
    """The keys of `NEEDS` that it requires of a data set."""


ROSTER: dict[str, Contender] = {
    "Random": Contender(lambda c: Random()),
    "Gradient": Contender(lambda c: Gradient()),
    "Input × gradient": Contender(lambda c: InputXGradient()),
    "SmoothGrad": Contender(lambda c: SmoothGrad(Gradient(), c.straight)),
    "SmoothGrad²": Contender(lambda c: SmoothGrad(Gradient(), c.straight, squared=True)),
    "VarGrad": Contender(lambda c: VarGrad(Gradient(), c.straight)),
    "IG": Contender(lambda c: c.alone(IntegratedGradients(c.straight))),
    "Guided IG": Contender(lambda c: c.alone(GuidedIG(c.guided))),
    "Expected IG": Contender(lambda c: ExpectedIG(c.straight)),
    "IDGI": Contender(lambda c: ExpectedIG(c.straight, rules.direct)),
    "IDG": Contender(lambda c: IDG(c.straight)),
    "LPI": Contender(lambda c: FromPool(c.straight, c.references)),
    "SAMP": Contender(lambda c: c.alone(SAMP(c.straight))),
    "Reveal-IG": Contender(lambda c: RevealIG(min(20, c.straight), min(10, c.references))),
    "MFABA": Contender(lambda c: MFABA(c.straight), (CLASSES,)),
    "AGI": Contender(lambda c: AGI(min(15, c.straight), classes=min(15, c.straight)), (CLASSES,)),
    "BIG": Contender(lambda c: WithoutReferences(BIG(c.straight, c.attacks())), (CLASSES,)),
    "AttEXplore": Contender(lambda c: AttEXplore(min(10, c.straight), copies=min(20, c.straight)), (IMAGES,)),
    "KernelSHAP": Contender(lambda c: c.alone(KernelSHAP(c.groups, c.coalitions))),
    "RISE": Contender(lambda c: c.alone(RISE(c.coalitions, centred=True)), (IMAGES,)),
    "Occlusion": Contender(lambda c: c.alone(Occlusion(groups=c.groups))),
    "Grad-CAM": Contender(lambda c: GradCAM(), (IMAGES,)),
    "LayerCAM": Contender(lambda c: LayerCAM(), (IMAGES,)),
    "HiResCAM": Contender(lambda c: HiResCAM(), (IMAGES,)),
    "XRAI": Contender(
        lambda c: WithoutReferences(XRAI(PathMethod(Straight(1), Union(Zeros(), White()), rules.gauss(c.straight)))),
        (IMAGES, SEGMENTS),
    ),
    # the secant rule on a straight line, of one segment first
    "DeepSHAP": Contender(lambda c: DeepSHAP()),
    "Strata": Contender(lambda c: Strata(), (IMAGES,)),
    "Secants, 2": Contender(lambda c: ExpectedIG(2, rules.secant)),
    "Secants, 5": Contender(lambda c: ExpectedIG(5, rules.secant)),
    "Secants, 10": Contender(lambda c: ExpectedIG(10, rules.secant)),
    "Secants from zero, 10": Contender(lambda c: c.alone(IntegratedGradients(min(10, c.straight), rules.secant))),
    "Turns": Contender(lambda c: c.alone(c.turns())),
    "Turns to references": Contender(lambda c: c.turns()),
    "Secants to GradCF, 1": Contender(lambda c: c.secants(1)),
    "Secants to GradCF, 2": Contender(lambda c: c.secants(2)),
    "Secants to GradCF, 5": Contender(lambda c: c.secants(5)),
    "Secants to GradCF, 10": Contender(lambda c: c.secants(10)),
    "IG² (left, as published)": Contender(lambda c: c.ig2(rule=rules.left)),
    "IG² (blended)": Contender(lambda c: c.ig2(rule=rules.blended)),
    "IG² in SmoothGrad": Contender(lambda c: c.noised_ig2()),
}
"""Every method of the leaderboard, by label; one line adds a method. Methods with references get those of other classes."""


def build_roster(conditions: Conditions) -> dict[str, MethodLike]:
    """Return the methods of the leaderboard for a data set, by label, without those whose needs it does not meet.

    >>> list(build_roster(Conditions(images=False, classes=False)))[:3]
    ['Random', 'Gradient', 'Input × gradient']
    >>> "Grad-CAM" in build_roster(Conditions(images=False))
    False
    """
    available = conditions.available
    return {label: contender.build(conditions) for label, contender in ROSTER.items() if available.issuperset(contender.needs)}
