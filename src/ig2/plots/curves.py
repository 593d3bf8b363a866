"""What happens along the paths: the output, and GradPath's distance to the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import Canvas, note, outside, printable
from ig2.plots.readings import Array, check_attribution, check_index, method_name

# Okabe and Ito's colours, which stay apart for people who do not see all of them.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def output_curve(results: Attribution | Mapping[str, Attribution], *, explicand: int | None = None) -> Figure:
    """f along the path, from the explicand to its baseline: where it stays flat, the output is saturated.

    The share of the path is counted in its steps. The line is the mean over references and explicands, the band one
    standard deviation to either side. A path with only two points, such as a straight line under a Gauss rule, is drawn as
    its two ends and no line.

    Args:
        results: one attribution made with `curves=True`, or names and attributions.
        explicand: only this one, a number from 0; by default all.
    """
    figure, axes = _start()
    paths = set()
    for number, (name, curves) in enumerate(_curves(results, "output_curve", explicand).items()):
        share = np.linspace(0, 1, curves.shape[1])
        _line(axes, share, curves, name, number)
        paths.add(len(curves))
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nexplicand", "0.25", "0.5", "0.75", "1\nbaseline"])
    axes.set_xlabel("share of the path")
    axes.set_ylabel("output f")
    _finish(figure, axes, paths)
    return figure


def distance_curve(
    results: Attribution | Mapping[str, Attribution],
    *,
    explicand: int | None = None,
    scale: Literal["linear", "log"] = "linear",
) -> Figure:
    """The distance between the representations of the point on GradPath and of the reference, step by step.

    The line is the mean over references and explicands, the band one standard deviation to either side.

    Args:
        results: one attribution on GradPath made with `curves=True`, or names and attributions.
        explicand: only this one, a number from 0; by default all.
        scale: of the distance. "log" shows whether it still falls where it is small.
    """
    if scale not in ("linear", "log"):
        raise InputError(f"scale must be 'linear' or 'log', got {describe(scale)}")
    figure, axes = _start()
    paths = set()
    found = _curves(results, "distance_curve", explicand)
    for number, (name, curves) in enumerate(found.items()):
        _line(axes, np.arange(curves.shape[1], dtype=np.float64), curves, name, number)
        paths.add(len(curves))
    if scale == "log" and any((curves > 0).any() for curves in found.values()):
        axes.set_yscale("log")
    elif all((curves >= 0).all() for curves in found.values()):
        axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.set_xlabel("step")
    axes.set_ylabel("distance to the reference")
    _finish(figure, axes, paths)
    return figure


def _curves(
    results: Attribution | Mapping[str, Attribution], field: Literal["output_curve", "distance_curve"], explicand: int | None
) -> dict[str, Array]:
    """For each name the curves of all its paths, (number of paths, k + 1)."""
    named = {method_name(results): results} if isinstance(results, Attribution) else results
    if not isinstance(named, Mapping) or not named:
        raise InputError(f"results must be an Attribution or a dict of names and Attributions, got {describe(results)}")
    found = {}
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
        found[name] = curve.detach().to("cpu", torch.float64).flatten(0, 1).numpy()
    return found


def _start() -> tuple[Figure, Axes]:
    figure = Canvas(4.6, 3.2, layout="constrained")
    return figure, figure.subplots()


def _line(axes: Axes, at: Array, curves: Array, name: str, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    name = printable(name, 40)
    mean, spread = curves.mean(axis=0), curves.std(axis=0)
    if len(at) == 2:
        axes.plot(at, mean, "o", color=colour, label=f"{name} (ends only)", clip_on=False)
        return
    axes.plot(at, mean, color=colour, label=name, linewidth=1.6)
    if len(curves) > 1:
        # no further than the curves reach: a distance below zero would break a log scale
        low, high = np.maximum(mean - spread, curves.min(axis=0)), np.minimum(mean + spread, curves.max(axis=0))
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)


def _finish(figure: Figure, axes: Axes, paths: set[int]) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    for text in axes.legend(frameon=False, fontsize="small").get_texts():
        text.update(outside())
    if paths != {1}:
        several = " or ".join(str(count) for count in sorted(paths))
        note(figure, f"mean of {several} paths, ± one standard deviation")
