"""The methods and rules by their names on the command line. PyTorch is imported when one is made, not to list their names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ig2
from ig2._utils.suggestions import ChoiceError, suggest

if TYPE_CHECKING:
    from ig2.adapters.base import Batch, Kind, Subject
    from ig2.rules import Rule

REGIONS = 50  # that KernelSHAP divides an image into
COALITIONS = 1000  # of them; each is one run of the network
MASKS = 1000  # of RISE, the same
PHOTO = 96  # pixels of the shorter side that a network sees, from which on a picture is a photo: wafer maps have 56
WINDOWS = 8  # of Occlusion on a side of an image, without overlap

RULES = (
    "left", "right", "midpoint", "trapezoid", "gauss", "secant", "direct", "shared", "aligned", "tempered", "blended", "scaled",
)  # fmt: skip


@dataclass(frozen=True)
class NamedMethod:
    """A method as the command line names it."""

    name: str
    """What is typed."""
    title: str
    """What is shown."""
    about: str
    """What the help says of it."""
    make: Callable[..., ig2.Method]
    """Makes it from the model, the batch, the number of steps, and a rule by keyword if one was chosen."""
    contrasts: bool = False
    """Whether it takes references rather than a baseline of its own."""
    has_baseline: bool = False
    """Whether its baseline is zero, unless the kind of data has a better one."""
    takes_rule: bool = False
    images_only: bool = False
    needs_gradient: bool = True


def _on_path(name: str, title: str, about: str, method: str, fallback: str | None = None, **more: bool) -> NamedMethod:
    settings = {} if fallback is None else {"fallback": fallback}

    def make(subject: Subject, batch: Batch, steps: int, **rule: Rule) -> ig2.Method:
        path_method: ig2.Method = getattr(ig2, method)(steps, **settings, **rule)
        return path_method

    return NamedMethod(name, title, about, make, takes_rule=True, **more)


def _make_kernelshap(subject: Subject, batch: Any, steps: int) -> ig2.Method:
    """What a person sees as one thing is present or absent as one: a region, a word, a column."""
    if subject.kind == "image":
        return ig2.KernelSHAP(ig2.Superpixels(REGIONS), samples=COALITIONS)
    return ig2.KernelSHAP(subject.number_units(batch))


def _make_turns(subject: Subject, batch: Any, steps: int) -> ig2.Method:
    """Images have a grid of their own; words and columns go one by one."""
    return ig2.Turns() if subject.kind == "image" else ig2.Turns(groups=subject.number_units(batch))


def _make_occlusion(subject: Subject, batch: Any, steps: int) -> ig2.Method:
    """A window of an eighth of an image on each side slides by half of it; words and columns go one by one."""
    if subject.kind == "image":
        window = max(1, min(batch.attributed.shape[-2:]) // WINDOWS)
        return ig2.Occlusion(window, max(1, window // 2))
    return ig2.Occlusion(groups=subject.number_units(batch))


def _make_xrai(subject: Subject, batch: Batch, steps: int) -> ig2.Method:
    black_and_white = ig2.references.Union(ig2.references.Zeros(), ig2.references.White())
    return ig2.XRAI(ig2.PathMethod(ig2.paths.Straight(1), black_and_white, ig2.rules.gauss(steps)))


METHODS: dict[str, NamedMethod] = {
    method.name: method
    for method in (
        _on_path("ig2", "IG²", "gradients along the path to a counterfactual", "IG2", contrasts=True),
        _on_path(
            "ig",
            "IG",
            "Integrated Gradients from black, no words or the mean row",
            "IntegratedGradients",
            has_baseline=True,
        ),
        _on_path("guided-ig", "Guided IG", "the same, along a path that avoids large gradients", "GuidedIG", has_baseline=True),
        _on_path("expected-ig", "Expected IG", "Integrated Gradients from the references", "ExpectedIG", contrasts=True),
        _on_path(
            "ig2-straight",
            "IG² finished straight",
            "IG², finished along a straight line where it gets stuck",
            "IG2",
            fallback="straight",
            contrasts=True,
        ),
        _on_path("blur-ig", "Blur IG", "Integrated Gradients from the blurred image; images only", "BlurIG", images_only=True),
        NamedMethod(
            "idgi",
            "IDGI",
            "the output's change, shared out by squared gradients",
            lambda s, b, steps: ig2.IDGI(steps),
            has_baseline=True,
        ),
        NamedMethod("idg", "IDG", "IG weighted by the output's slope", lambda s, b, steps: ig2.IDG(steps), has_baseline=True),
        _on_path("left-ig", "Left-IG", "IG up to the point where the output saturates", "LeftIG", has_baseline=True),
        _on_path("samp", "SAMP", "gradients along a greedy descent of the output", "SAMP", has_baseline=True),
        _on_path("mfaba", "MFABA", "gradients along a descent to another class; images only", "MFABA", images_only=True),
        NamedMethod(
            "agi", "AGI", "gradients along ascents to other classes; images only", lambda *_: ig2.AGI(), images_only=True
        ),
        _on_path("big", "BIG", "IG from the decision boundary; images only", "BIG", images_only=True),
        NamedMethod(
            "la",
            "LA",
            "gradients at steps towards other classes; images only",
            lambda *_: ig2.LA(),
            images_only=True,
        ),
        NamedMethod(
            "attexplore",
            "AttEXplore",
            "smoothed gradients along a descent; images only",
            lambda *_: ig2.AttEXplore(),
            images_only=True,
        ),
        NamedMethod(
            "reveal-ig",
            "Reveal-IG",
            "IG as noise around the image vanishes; images only",
            lambda s, b, steps: ig2.RevealIG(max(1, steps // 10)),
            images_only=True,  # of each of its ten paths
        ),
        NamedMethod(
            "gradcfe",
            "GradCFE",
            "the input less IG²'s counterfactual",
            lambda s, b, steps: ig2.GradCFE(steps),
            contrasts=True,
        ),
        NamedMethod("gradient", "Gradient", "the plain gradient", lambda *_: ig2.Gradient()),
        NamedMethod("input-x-gradient", "Input × gradient", "the gradient times the input", lambda *_: ig2.InputXGradient()),
        NamedMethod("smoothgrad", "SmoothGrad", "the gradient, averaged over noise", lambda *_: ig2.SmoothGrad(ig2.Gradient())),
        NamedMethod(
            "smoothgrad2",
            "SmoothGrad²",
            "its square, averaged over noise; unsigned",
            lambda *_: ig2.SmoothGrad(ig2.Gradient(), samples=50, squared=True),
        ),
        NamedMethod("vargrad", "VarGrad", "its variance over noise; unsigned", lambda *_: ig2.VarGrad(ig2.Gradient())),
        NamedMethod(
            "noisegrad", "NoiseGrad", "the gradient, averaged over noisy weights", lambda *_: ig2.NoiseGrad(ig2.Gradient())
        ),
        NamedMethod(
            "fusiongrad",
            "FusionGrad",
            "the gradient, averaged over noisy inputs and weights",
            lambda *_: ig2.FusionGrad(ig2.Gradient()),
        ),
        NamedMethod(
            "strata",
            "Strata",
            "agreement between depths of the network; images only",
            lambda *_: ig2.Strata(),
            contrasts=True,
            images_only=True,
        ),
        NamedMethod(
            "deepshap", "DeepSHAP", "DeepLIFT's rescale rule from the references", lambda *_: ig2.DeepSHAP(), contrasts=True
        ),
        NamedMethod("turns", "Turns", "secants, one block of features at a time", _make_turns, has_baseline=True),
        NamedMethod(
            "kernelshap",
            "KernelSHAP",
            "Shapley values of regions, words or columns",
            _make_kernelshap,
            has_baseline=True,
            needs_gradient=False,
        ),
        NamedMethod(
            "occlusion",
            "Occlusion",
            "the output without a window, a word or a column",
            _make_occlusion,
            has_baseline=True,
            needs_gradient=False,
        ),
        NamedMethod(
            "rise",
            "RISE",
            "the output under random masks; images only",
            lambda *_: ig2.RISE(MASKS, centred=True),
            images_only=True,
            needs_gradient=False,
        ),
        NamedMethod(
            "gradcam", "Grad-CAM", "the map of the last convolution; images only", lambda *_: ig2.GradCAM(), images_only=True
        ),
        NamedMethod(
            "layercam", "LayerCAM", "the same, position by position; images only", lambda *_: ig2.LayerCAM(), images_only=True
        ),
        NamedMethod(
            "hirescam",
            "HiResCAM",
            "the same, position by position and signed; images only",
            lambda *_: ig2.HiResCAM(),
            images_only=True,
        ),
        NamedMethod("xrai", "XRAI", "regions ranked by Integrated Gradients; images only", _make_xrai, images_only=True),
        NamedMethod("random", "Random", "noise, for comparison", lambda *_: ig2.Random(), needs_gradient=False),
    )
}


def find_methods(names: Iterable[str], kind: Kind) -> list[NamedMethod]:
    """Return the methods of these names, each once.

    Raises:
        ChoiceError: for an unknown name, or a method that is not for this kind of data.
    """
    for name in names:
        if name not in METHODS:
            raise ChoiceError(f"there is no method {name!r}{suggest(name, METHODS)}")
        if METHODS[name].images_only and kind != "image":
            raise ChoiceError(f"the method {name} is for images, and this is a {kind}: omit it")
    return [METHODS[name] for name in dict.fromkeys(names)]


def choose_default(subject: Subject) -> tuple[str, ...]:
    """Return the names of the methods shown where none was named, the first of them first.

    On photos that is Strata, which leads the leaderboard there, and IG² beside it, which has paths and counterfactuals. On
    smaller pictures, such as digits and wafer maps, and on everything else, it is IG² alone.
    """
    import torch

    from ig2.adapters.vision import VisionSubject

    if not isinstance(subject, VisionSubject) or min(subject.size) < PHOTO:
        return ("ig2",)
    grey = torch.full((1, subject.channels, *subject.size), subject.value_range / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the methods will give them again
        return ("strata", "ig2") if ig2.Strata().fits(subject.model, grey) else ("ig2",)


def fit_methods(methods: Iterable[NamedMethod], subject: Subject) -> list[NamedMethod]:
    """Return the methods for a model: one without gradients is contrasted with rows, since zeros are no row of its table.

    Raises:
        ChoiceError: if the model has no gradients, and a method needs them.
    """
    if subject.has_gradients:
        return list(methods)
    for method in methods:
        if method.needs_gradient:
            free = ", ".join(name for name, known in METHODS.items() if not known.needs_gradient and not known.images_only)
            raise ChoiceError(
                f"{method.name} needs gradients, and {subject.name} has none: choose a --method without gradients ({free})"
            )
    return [replace(method, contrasts=method.has_baseline) for method in methods]


def find_rule(name: str | None, methods: Iterable[NamedMethod]) -> Rule | None:
    """Return the rule of this name; None for None.

    Raises:
        ChoiceError: for an unknown name, or if none of the methods takes a rule.
    """
    if name is None:
        return None
    name = "direct" if name == "idgi" else name  # as its paper calls it
    if name not in RULES:
        raise ChoiceError(f"there is no rule {name!r}{suggest(name, RULES)}")
    if not any(method.takes_rule for method in methods):
        takers = ", ".join(method.name for method in METHODS.values() if method.takes_rule)
        raise ChoiceError(
            f"--rule {name} does not apply to this method: omit it, or choose a --method that takes a rule ({takers})"
        )
    # typed without parentheses, which a shell would take for its own
    if name == "gauss":
        return ig2.rules.gauss(4)
    return ig2.rules.scaled(ig2.rules.left) if name == "scaled" else getattr(ig2.rules, name)
