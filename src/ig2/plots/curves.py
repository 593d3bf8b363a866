"""Figures of curves along the paths: the output, and GradPath's distance to the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ig2._utils.checks import check_choice
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import LINE_COLOURS, Canvas, add_note
from ig2.plots.labels import clean_text, text_options
from ig2.plots.values import Array, check_attribution, check_index, is_tiny, method_name

Results = Attribution | Mapping[str, Attribution]
Field = Literal["output_curve", "distance_curve"]
Axis = Literal["linear", "log"]


def output_curve(results: Results, *, explicand: int | None = None) -> Figure:
    """Draw f along the path, from the explicand to its baseline: where it is flat, the output is saturated.

    The share of the path is counted in steps. The line is the mean over references and explicands, the band one standard
    deviation to either side, if that is at least a hundredth of the mean. A path with only two points, such as a straight
    line under a Gauss rule, is drawn as its two ends without a line.

    Args:
        results: one attribution computed with `curves=True`, or several by name.
        explicand: the index of the only explicand to show; by default all.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if an attribution has no output curve, or one that is not finite.
    """
    figure, axes, _ = _draw_curves(results, "output_curve", explicand)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\ninput", "0.25", "0.5", "0.75", "1\nbaseline"])
    axes.set_xlabel("share of the path")
    axes.set_ylabel("output f")
    return figure


def distance_curve(results: Results, *, explicand: int | None = None, scale: Axis = "linear") -> Figure:
    """Draw the distance between the representations of the point on GradPath and of the reference, step by step.

    The line is the mean over references and explicands, the band one standard deviation to either side, if that is at
    least a hundredth of the mean.

    Args:
        results: one attribution on GradPath computed with `curves=True`, or several by name.
        explicand: the index of the only explicand to show; by default all.
        scale: the scale of the distance axis. "log" shows whether small distances still decrease.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if an attribution has no distance curve, as on paths other than GradPath, or one that is not finite.
    """
    check_choice(scale, Axis, "scale")
    figure, axes, curves = _draw_curves(results, "distance_curve", explicand)
    if scale == "log" and (curves > 0).any():
        axes.set_yscale("log")
    elif (curves >= 0).all():
        axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.set_xlabel("step")
    axes.set_ylabel("distance to the reference")
    return figure


def _draw_curves(results: Results, field: Field, explicand: int | None) -> tuple[Figure, Axes, Array]:
    """Return the figure, its axes, and all values on it."""
    figure = Canvas(4.6, 3.2, layout="constrained")
    axes = figure.subplots()
    named = _read_curves(results, field, explicand)
    around = ""
    for (name, curves), colour in zip(named.items(), LINE_COLOURS * len(named), strict=False):
        steps = curves.shape[1] - 1
        x = np.linspace(0, 1 if field == "output_curve" else steps, steps + 1)
        mean, deviation = curves.mean(axis=0), curves.std(axis=0)
        if steps == 1:
            axes.plot(x, mean, "o", color=colour, label=f"{clean_text(name, 40)} (ends only)", clip_on=False)
            continue
        axes.plot(x, mean, color=colour, label=clean_text(name, 40), linewidth=1.6)
        if not is_tiny(deviation, mean).all():
            around = ", ± one standard deviation"
            # no further than the curves reach: a distance below zero would break a log scale
            low, high = np.maximum(mean - deviation, curves.min(axis=0)), np.minimum(mean + deviation, curves.max(axis=0))
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.spines[["top", "right"]].set_visible(False)
    for text in axes.legend(frameon=False, fontsize="small").get_texts():
        text.update(text_options())
    counts = sorted({len(curves) for curves in named.values()})
    if counts != [1]:
        add_note(figure, f"mean of {' or '.join(map(str, counts))} paths{around}")
    return figure, axes, np.concatenate([curves.ravel() for curves in named.values()])


def _read_curves(results: Results, field: Field, explicand: int | None) -> dict[str, Array]:
    """Return the curves of all paths by name, (number of paths, k + 1)."""
    named = {method_name(results): results} if isinstance(results, Attribution) else results
    if not isinstance(named, Mapping) or not named:
        raise InputError(f"results must be an Attribution or a dict of names and Attributions, got {describe(results)}")
    curves = {}
    for name, result in named.items():
        curve: Tensor | None = getattr(check_attribution(result, f"results[{name!r}]"), field)
        if curve is None:
            only = ", which only methods on GradPath such as ig2.IG2 have" if field == "distance_curve" else ""
            raise InputError(f"{name!r} has no {field}{only}: call the method with curves=True")
        if not torch.isfinite(curve).all():
            raise InputError(f"the {field} of {name!r} holds NaN or infinite values, which cannot be drawn")
        if explicand is not None:
            check_index(explicand, len(result), "explicand")
            curve = curve[explicand : explicand + 1]
        curves[name] = curve.detach().to("cpu", torch.float64).flatten(0, 1).numpy()
    return curves
