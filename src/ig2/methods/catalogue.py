"""The methods by name: one entry for each, for the command, the leaderboard and the docs.

To add a method, write its class and a test, add an entry here, and run `make catalogue`.
PyTorch is imported when a method is made, not to list the names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import ig2

if TYPE_CHECKING:
    from ig2.methods.base import Method

Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a method chosen by name is made for: the kind of data, and how much it may cost."""

    images: bool = True
    """Whether inputs are images."""
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
    coalitions: int | None = None
    """The number of coalitions of KernelSHAP and of masks of RISE; None for their defaults."""
    groups: Any = field(default=None, repr=False)
    """The groups of features that are one to KernelSHAP, Occlusion, and, off images, Turns."""
    window: int | None = None
    """The side of Occlusion's window, which slides by half of it; None to replace groups instead."""


@dataclass(frozen=True)
class Entry:
    """A method, or a variant of one that has a name of its own."""

    path: str
    """The class, as "module.Class" of `ig2.methods`."""
    name: str
    """What is typed."""
    title: str
    """What is shown."""
    about: str
    """What help and docs say of it."""
    settings: Callable[[Facts], Settings] | None = None
    """Returns the arguments it is made with; None if only a person can choose them."""
    ranked: bool = False
    """Whether it is a row of the leaderboard."""
    in_pixels: bool = False
    """Whether its steps or noise suit pixels alone, though the class takes any data."""

    @property
    def module(self) -> str:
        return self.path.partition(".")[0]

    @property
    def class_name(self) -> str:
        return self.path.partition(".")[2]

    @cached_property
    def type(self) -> type[Method]:
        """The class, imported."""
        found: type[Method] = getattr(import_module(f"ig2.methods.{self.module}"), self.class_name)
        return found

    @property
    def for_images(self) -> bool:
        """Whether it is for images alone."""
        return self.in_pixels or self.example.needs_places

    @property
    def takes_rule(self) -> bool:
        """Whether it can be made with a rule of `ig2.rules`."""
        return "rule" in inspect.signature(self.type.__init__).parameters

    @cached_property
    def example(self) -> Method:
        """The method as made by default, which declares what it needs."""
        return self.make(Facts())

    def make(self, facts: Facts, **changes: Any) -> Method:
        """Make the method for these facts, with changed arguments."""
        assert self.settings is not None, f"{self.class_name} is made from its own arguments"
        return self.type(**{**self.settings(facts), **changes})


def _nothing(facts: Facts) -> Settings:
    return {}


def _steps(facts: Facts) -> Settings:
    return {"steps": facts.straight}


def _walk(facts: Facts) -> Settings:
    return {"steps": facts.steps, "step_size": facts.step_size}


def _gradient(facts: Facts) -> Settings:
    return {"method": ig2.Gradient()}


def _noised_gradient(facts: Facts) -> Settings:
    return {"method": ig2.Gradient(), "samples": facts.straight}


def _turns(facts: Facts) -> Settings:
    count = 2 * min(10, facts.straight)
    return {"turns": count, "orders": count, "groups": None if facts.images else facts.groups}


def _occlusion(facts: Facts) -> Settings:
    if facts.window is None:
        return {"groups": facts.groups}
    return {"window": facts.window, "stride": max(1, facts.window // 2)}


def _xrai(facts: Facts) -> Settings:
    black_and_white = ig2.references.Union(ig2.references.Zeros(), ig2.references.White())
    rule = ig2.rules.gauss(facts.straight)
    return {"method": ig2.PathMethod(ig2.paths.Straight(1), black_and_white, rule)}


ENTRIES = (
    Entry("ig2.IG2", "ig2", "IG²", "gradients along the path to a counterfactual", _walk),
    Entry("integrated.IntegratedGradients", "ig", "IG",
          "Integrated Gradients from black, no words or the mean row", _steps, ranked=True),
    Entry("guided.GuidedIG", "guided-ig", "Guided IG",
          "the same, along a path that avoids large gradients",
          lambda f: {"steps": f.guided}, ranked=True),
    Entry("integrated.ExpectedIG", "expected-ig", "Expected IG",
          "Integrated Gradients from the references", _steps, ranked=True),
    Entry("ig2.IG2", "ig2-straight", "IG² finished straight",
          "IG², finished along a straight line where it gets stuck",
          lambda f: {**_walk(f), "fallback": "straight"}),
    Entry("ig2.FreeIG2", "ig2-free", "IG² without references",
          "gradients along paths to where other classes win", _nothing, ranked=True),
    Entry("blur.BlurIG", "blur-ig", "Blur IG",
          "Integrated Gradients from the blurred image; images only", _steps),
    Entry("decision.IDGI", "idgi", "IDGI",
          "the output's change, shared out by squared gradients", _steps),
    Entry("decision.IDG", "idg", "IDG", "IG weighted by the output's slope", _steps),
    Entry("decision.LeftIG", "left-ig", "Left-IG",
          "IG up to the point where the output saturates", _steps),
    Entry("decision.PathWeightedIG", "path-weighted-ig", "Path-weighted IG",
          "IG with each gradient weighted by its position on the line"),
    Entry("samp.SAMP", "samp", "SAMP",
          "gradients along a greedy descent of the output", _steps, ranked=True),
    Entry("geodesic.GeodesicIG", "geodesic-ig", "Geodesic IG",
          "IG from sample to sample, where gradients are small"),
    Entry("lpi.LPI", "lpi", "LPI", "IG from samples with similar outputs, weighted by density"),
    Entry("wg.WG", "wg", "Weighted IG", "references weighted by how well each one's map deletes"),
    Entry("words.SIG", "sig", "SIG", "IG of one word at a time"),
    Entry("words.UDIG", "udig", "UDIG", "IG from word to word, near evenly spaced points"),
    Entry("words.DIG", "dig", "DIG", "IG from word to neighbouring word"),
    Entry("adversarial.MFABA", "mfaba", "MFABA",
          "gradients along a descent to another class; images only",
          _steps, ranked=True, in_pixels=True),
    Entry("adversarial.AGI", "agi", "AGI", "gradients along ascents to other classes; images only",
          lambda f: {"steps": min(15, f.straight), "classes": min(15, f.straight)},
          ranked=True, in_pixels=True),
    Entry("adversarial.BIG", "big", "BIG", "IG from the decision boundary; images only",
          _steps, ranked=True, in_pixels=True),
    Entry("adversarial.LA", "la", "LA", "gradients at steps towards other classes; images only",
          _nothing, in_pixels=True),
    Entry("adversarial.AttEXplore", "attexplore", "AttEXplore",
          "smoothed gradients along a descent; images only",
          lambda f: {"steps": min(10, f.straight), "copies": min(20, f.straight)}, ranked=True),
    Entry("reveal.RevealIG", "reveal-ig", "Reveal-IG",
          "IG as noise around the image vanishes; images only",
          lambda f: {"steps": min(20, f.straight), "samples": min(10, f.references)},
          ranked=True, in_pixels=True),
    Entry("ig2.GradCFE", "gradcfe", "GradCFE", "the input less IG²'s counterfactual", _walk),
    Entry("gradient.Gradient", "gradient", "Gradient", "the plain gradient", _nothing, ranked=True),
    Entry("gradient.InputXGradient", "input-x-gradient", "Input × gradient",
          "the gradient times the input", _nothing, ranked=True),
    Entry("smoothgrad.SmoothGrad", "smoothgrad", "SmoothGrad",
          "the gradient, averaged over noise", _noised_gradient, ranked=True),
    Entry("smoothgrad.SmoothGrad", "smoothgrad2", "SmoothGrad²",
          "its square, averaged over noise; unsigned",
          lambda f: {**_noised_gradient(f), "squared": True}, ranked=True),
    Entry("smoothgrad.VarGrad", "vargrad", "VarGrad",
          "its variance over noise; unsigned", _noised_gradient, ranked=True),
    Entry("noisegrad.NoiseGrad", "noisegrad", "NoiseGrad",
          "the gradient, averaged over noisy weights", _gradient),
    Entry("noisegrad.NoiseGrad", "fusiongrad", "FusionGrad",
          "the gradient, averaged over noisy inputs and weights",
          lambda f: {"method": ig2.SmoothGrad(ig2.Gradient(), 10)}),
    Entry("strata.Strata", "strata", "Strata",
          "agreement between depths of the network; images only", _nothing, ranked=True),
    Entry("deepshap.DeepSHAP", "deepshap", "DeepSHAP",
          "DeepLIFT's rescale rule from the references", _nothing, ranked=True),
    Entry("turns.Turns", "turns", "Turns",
          "secants, one block of features at a time", _turns, ranked=True),
    Entry("kernelshap.KernelSHAP", "kernelshap", "KernelSHAP",
          "Shapley values of regions, words or columns",
          lambda f: {"groups": f.groups, "samples": f.coalitions}, ranked=True),
    Entry("occlusion.Occlusion", "occlusion", "Occlusion",
          "the output without a window, a word or a column", _occlusion, ranked=True),
    Entry("rise.RISE", "rise", "RISE", "the output under random masks; images only",
          lambda f: {"masks": f.coalitions or ig2.RISE.masks, "centred": True}, ranked=True),
    Entry("cam.GradCAM", "gradcam", "Grad-CAM",
          "the map of the last convolution; images only", _nothing, ranked=True),
    Entry("cam.LayerCAM", "layercam", "LayerCAM",
          "the same, position by position; images only", _nothing, ranked=True),
    Entry("cam.HiResCAM", "hirescam", "HiResCAM",
          "the same, position by position and signed; images only", _nothing, ranked=True),
    Entry("xrai.XRAI", "xrai", "XRAI",
          "regions ranked by Integrated Gradients; images only", _xrai, ranked=True),
    Entry("scale.Smoothed", "smoothed", "Smoothed", "any method, its map blurred; images only"),
    Entry("scale.Pooled", "pooled", "Pooled", "any method, averaged over regions"),
    Entry("random.Random", "random", "Random", "noise, for comparison", _nothing, ranked=True),
)  # fmt: skip

METHODS = {entry.name: entry for entry in ENTRIES if entry.settings is not None}
"""Those that can be made by their name."""

CLASSES: dict[str, list[str]] = {}
"""The classes of the entries, by module."""
for _entry in ENTRIES:
    if _entry.class_name not in (_names := CLASSES.setdefault(_entry.module, [])):
        _names.append(_entry.class_name)

RULES = (
    "left", "right", "midpoint", "trapezoid", "gauss", "secant", "direct", "shared", "aligned",
    "tempered", "blended", "scaled",
)  # fmt: skip
"""The rules of `ig2.rules` that can be made by their name."""
