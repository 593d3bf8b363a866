"""The methods and rules by the names they have on the command line, and the names people read."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

import ig2
from ig2.adapters.base import Batch, Kind, Subject
from ig2.adapters.tabular import TableSubject
from ig2.adapters.text import TextBatch
from ig2.errors import InputError
from ig2.rules import Rule

# from the model and the samples, the number of steps, and a rule if one was asked for
Make = Callable[[Subject, Batch, int, Rule | None], ig2.Method]
REGIONS = 50  # that KernelSHAP divides an image into
COALITIONS = 1000  # of them; each is one run of the network


class Misuse(InputError):
    """What was typed makes no sense, whatever the files hold."""

    exit_code = 2


@dataclass(frozen=True)
class Recipe:
    name: str  # as it is typed
    title: str  # as it is read
    about: str
    make: Make
    contrasts: bool = False  # with references, not a baseline of its own
    baseline: bool = False  # zero, unless the kind of data knows a better nothing
    ruled: bool = False  # takes a rule
    images_only: bool = False


def _ruled(method: Callable[..., ig2.Method]) -> Make:
    """A path method: without a rule it keeps its own."""
    return lambda subject, batch, steps, rule: method(steps) if rule is None else method(steps, rule=rule)


def _plain(make: Callable[[], ig2.Method]) -> Make:
    return lambda subject, batch, steps, rule: make()


def _kernel(subject: Subject, batch: Batch, steps: int, rule: Rule | None) -> ig2.Method:
    """What a person sees as one thing is present or absent as one: a region, a word, a column."""
    if subject.kind == "image":
        return ig2.KernelSHAP(ig2.Superpixels(REGIONS), samples=COALITIONS)
    if isinstance(batch, TextBatch):
        return ig2.KernelSHAP(batch.word[:, :, None])
    assert isinstance(subject, TableSubject)
    widths = torch.tensor(subject.widths)
    return ig2.KernelSHAP(torch.arange(len(widths)).repeat_interleave(widths))


def _xrai(subject: Subject, batch: Batch, steps: int, rule: Rule | None) -> ig2.Method:
    black_and_white = ig2.references.Union(ig2.references.Zeros(), ig2.references.White())
    return ig2.XRAI(ig2.PathMethod(ig2.paths.Straight(1), black_and_white, ig2.rules.gauss(steps)))


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("ig2", "IG²", "gradients on the way to a counterfactual", _ruled(ig2.IG2), contrasts=True, ruled=True),
        Recipe(
            "ig",
            "IG",
            "Integrated Gradients from black, no words, the mean row",
            _ruled(ig2.IntegratedGradients),
            baseline=True,
            ruled=True,
        ),
        Recipe(
            "guided-ig",
            "Guided IG",
            "the same on a path that avoids large gradients",
            _ruled(ig2.GuidedIG),
            baseline=True,
            ruled=True,
        ),
        Recipe(
            "expected-ig",
            "Expected IG",
            "Integrated Gradients from the references",
            _ruled(ig2.ExpectedIG),
            contrasts=True,
            ruled=True,
        ),
        Recipe("blur-ig", "Blur IG", "from the blurred image; images only", _ruled(ig2.BlurIG), ruled=True, images_only=True),
        Recipe(
            "gradcfe",
            "GradCFE",
            "what IG²'s counterfactual takes away",
            lambda subject, batch, steps, rule: ig2.GradCFE(steps),
            contrasts=True,
        ),
        Recipe("gradient", "Gradient", "the plain gradient", _plain(ig2.Gradient)),
        Recipe("input-x-gradient", "Input × gradient", "the gradient times the input", _plain(ig2.InputXGradient)),
        Recipe("smoothgrad", "SmoothGrad", "the gradient, mean over noise", _plain(lambda: ig2.SmoothGrad(ig2.Gradient()))),
        Recipe("deepshap", "DeepSHAP", "DeepLIFT's rescale rule from the references", _plain(ig2.DeepSHAP), contrasts=True),
        Recipe("kernelshap", "KernelSHAP", "Shapley values of regions, words or columns", _kernel, baseline=True),
        Recipe("xrai", "XRAI", "regions ranked by Integrated Gradients; images only", _xrai, images_only=True),
        Recipe("random", "Random", "noise, to compare with", _plain(ig2.Random)),
    )
}

# without parentheses, which a shell would take for its own
RULES: dict[str, Rule] = {
    "left": ig2.rules.left,
    "right": ig2.rules.right,
    "midpoint": ig2.rules.midpoint,
    "trapezoid": ig2.rules.trapezoid,
    "gauss": ig2.rules.gauss(4),
    "direct": ig2.rules.direct,
    "shared": ig2.rules.shared,
    "aligned": ig2.rules.aligned,
    "tempered": ig2.rules.tempered,
    "blended": ig2.rules.blended,
    "scaled": ig2.rules.scaled(ig2.rules.left),
}


def recipes(names: Iterable[str], kind: Kind) -> list[Recipe]:
    """The methods of these names, each once, all of them for this kind of data."""
    found = []
    for name in dict.fromkeys(names):
        if name not in RECIPES:
            raise Misuse(f"there is no method {name!r}{_hint(name, RECIPES)}")
        if RECIPES[name].images_only and kind != "image":
            raise Misuse(f"{name} is for images, and this is a {kind}: leave it out")
        found.append(RECIPES[name])
    return found


def chosen_rule(name: str | None, methods: Iterable[Recipe]) -> Rule | None:
    """The rule of this name, if one of the methods takes it."""
    if name is None:
        return None
    if name not in RULES:
        raise Misuse(f"there is no rule {name!r}{_hint(name, RULES)}")
    if not any(method.ruled for method in methods):
        takers = ", ".join(method.name for method in RECIPES.values() if method.ruled)
        raise Misuse(f"--rule {name} is for {takers}: leave it out")
    return RULES[name]


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {close[0]}?" if close else f": choose from {', '.join(known)}"
