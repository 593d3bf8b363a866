"""Attributions of images: heat maps, methods side by side, counterfactuals, references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import QUIET, Canvas, fitted, left_out, note, number, outside, printable
from ig2.plots.look import Look, show
from ig2.plots.readings import (
    Which,
    check_attribution,
    check_count,
    check_index,
    check_no_embeddings,
    chosen,
    maps,
    method_name,
    pictures,
    rows,
    titles_of,
)

MOST_SHOWN = 8
MOST_NAMED = 20


def heat_map(
    result: Attribution,
    *,
    count: int = MOST_SHOWN,
    which: Which = None,
    titles: Sequence[str] | None = None,
    explicand: bool = True,
    **look: Any,
) -> Figure:
    """A row for each explicand: the image, and the map of its attribution.

    Args:
        result: what a method returned for images (B, C, H, W), (B, H, W) or (B, H, W, C). Channels are summed.
        count: how many explicands to show at most.
        which: the input to show, by position or name, where the network takes several.
        titles: a line above each explicand; by default its class and output.
        explicand: show the image beside its map. With an overlay it can be left out.
        look: how maps are drawn, for example `kind="magnitude"`, `scale="shared"` or `overlay=0.8`: see `Look`.
    """
    style = Look(**look)
    shown = min(check_count(count), len(check_attribution(result)))
    check_no_embeddings(result.values, which)
    values = style.of(maps(chosen(result.values, which)[:shown]))
    samples = chosen(result.explicand, which)[:shown]
    images = pictures(samples, style.bounds)
    lines = titles_of(result, titles, shown)
    scales = style.scales(values)
    panel = style.panel(*values.shape[1:])
    columns = 2 if explicand else 1
    figure = _figure(style, columns, shown, panel)
    axes = figure.subplots(shown, columns, squeeze=False)
    drawn = []
    for row in range(shown):
        if explicand:
            show(axes[row, 0], images[row])
        drawn.append(style.draw(axes[row, -1], values[row], scales[row], images[row]))
        axes[row, 0].set_title(fitted(lines[row], style.size), fontsize="small", **outside())
        if explicand and row == 0:
            axes[row, 1].set_title(method_name(result), fontsize="small", **outside())
    style.colour_bars(figure, drawn, list(axes[:, -1]), scales, **style.bar_place(panel, shown))
    note(figure, style.remark(scales), left_out(shown, len(result)))
    return figure


def _figure(style: Look, columns: int, rows: int, panel: float) -> Canvas:
    """Room for titles above the panels, and for colour bars beside or below them."""
    bar = 0.5 if "location" in style.bar_place(panel, rows) else 0.0
    return Canvas(columns * style.size + 1.0, rows * (panel + 0.35 + bar) + 0.1, layout="compressed")


def grid(
    results: Mapping[str, Attribution],
    *,
    count: int = MOST_SHOWN,
    which: Which = None,
    titles: Sequence[str] | None = None,
    **look: Any,
) -> Figure:
    """Methods × samples, as papers compare them: a row for each explicand, first the image and then a column a method.

    With `scale="each"` the number below a map is where its colours end; with `scale="shared"` every method has one scale for
    all its maps, given below its column.

    Args:
        results: names and attributions of the same explicands, in the order of the columns.
        count: how many explicands to show at most.
        which: the input to show, by position or name, where the network takes several.
        titles: a line below each explicand; by default its class and output.
        look: how maps are drawn: see `Look`.
    """
    style = Look(**look)
    first = _check_same(results, which)
    shown = min(check_count(count), len(first))
    samples = chosen(first.explicand, which)[:shown]
    images = pictures(samples, style.bounds)
    one_class = all(torch.equal(result.target.cpu(), first.target.cpu()) for result in results.values())
    if titles is None and not one_class:
        lines = [""] * shown
    else:
        lines = titles_of(first, titles, shown)
    panel = style.panel(*maps(samples).shape[1:])
    columns = 1 + len(results)
    figure = Canvas(columns * (style.size + 0.05), shown * (panel + 0.25) + 0.5, layout="compressed")
    axes = figure.subplots(shown, columns, squeeze=False)
    for panel_axes in axes.flat:
        panel_axes.set_anchor("N")  # rows stay level, whatever stands below them
    axes[0, 0].set_title("explicand", fontsize="medium")
    for row in range(shown):
        show(axes[row, 0], images[row])
        axes[row, 0].set_xlabel(fitted(lines[row], style.size), fontsize="small", **outside())
    all_scales = []
    for column, (name, result) in enumerate(results.items(), start=1):
        values = style.of(maps(chosen(result.values, which)[:shown]))
        scales = style.scales(values)
        all_scales += scales
        drawn = []
        axes[0, column].set_title(fitted(name, style.size), fontsize="medium", **outside())
        for row in range(shown):
            drawn.append(style.draw(axes[row, column], values[row], scales[row], images[row]))
            below = [] if one_class else [f"class {int(result.target[row])}"]
            if style.scale == "each":
                below.append(style.end_of(scales[row]))
            axes[row, column].set_xlabel(", ".join(below), fontsize="x-small", color=QUIET)
        if style.scale == "shared":
            what = "attribution" if style.size >= 1.5 else None  # no room for it
            column_axes = list(axes[:, column])
            style.colour_bars(figure, drawn, column_axes, scales, what, location="bottom", aspect=16, shrink=0.9, pad=0.02)
    note(figure, style.remark(all_scales), left_out(shown, len(first)))
    return figure


def _check_same(results: Mapping[str, Attribution], which: Which) -> Attribution:
    """The first of several attributions, all of which explain the same samples."""
    if not isinstance(results, Mapping) or not results:
        raise InputError(f"results must be a dict of names and Attributions with at least one, got {describe(results)}")
    named = list(results.items())
    for name, result in named:
        check_attribution(result, f"results[{name!r}]")
    first_name, first = named[0]
    samples = chosen(first.explicand, which)
    for name, result in named[1:]:
        if not torch.equal(chosen(result.explicand, which), samples):
            raise InputError(f"{name!r} and {first_name!r} explain different samples: a grid compares methods on the same ones")
    return first


def counterfactual(
    result: Attribution,
    *,
    reference: int | None = 0,
    count: int = MOST_SHOWN,
    which: Which = None,
    titles: Sequence[str] | None = None,
    **look: Any,
) -> Figure:
    """A row for each explicand: the image, its GradCF, and GradCFE, what GradCF takes away.

    The two images are shown with the same range of values.

    Args:
        result: what `IG2` or `GradCFE` returned for images.
        reference: whose GradCF to show, a number from 0. None shows the means over references.
        count: how many explicands to show at most.
        which: the input to show, by position or name, where the network takes several.
        titles: a line above each explicand; by default its class and output.
        look: how maps are drawn: see `Look`.
    """
    style = Look(**look)
    shown = min(check_count(count), len(check_attribution(result)))
    if result.gradcf is None:
        raise InputError("this attribution has no GradCF: only methods on GradPath make one, such as ig2.IG2 or ig2.GradCFE")
    found = chosen(result.gradcf, which)[:shown]
    outputs = None
    if reference is None:
        ends = found.mean(dim=1)
        name, whose = "mean GradCF", f" over {found.shape[1]} references"
    else:
        check_index(reference, found.shape[1], "reference")
        ends = found[:, reference]
        if result.baseline_outputs is not None:
            outputs = result.baseline_outputs[:, reference]
        name, whose = "GradCF", "" if found.shape[1] == 1 else f" of reference {reference}"
    samples = chosen(result.explicand, which)[:shown]
    before, after = pictures(samples, style.bounds), pictures(ends, style.bounds, like=samples)
    values = style.of(maps(samples - ends))
    scales = style.scales(values)
    lines = titles_of(result, titles, shown)
    panel = style.panel(*values.shape[1:])
    figure = _figure(style, 3, shown, panel)
    axes = figure.subplots(shown, 3, squeeze=False)
    drawn = []
    for row in range(shown):
        show(axes[row, 0], before[row])
        show(axes[row, 1], after[row])
        drawn.append(style.draw(axes[row, 2], values[row], scales[row], before[row]))
        axes[row, 0].set_title(fitted(lines[row], style.size), fontsize="small", **outside())
        axes[row, 1].set_title(name + ("" if outputs is None else f", output {number(float(outputs[row]))}"), fontsize="small")
        axes[row, 2].set_title("GradCFE", fontsize="small")
    style.colour_bars(figure, drawn, list(axes[:, 2]), scales, "difference", **style.bar_place(panel, shown))
    note(figure, f"GradCFE = explicand − {name}{whose}", style.remark(scales), left_out(shown, len(result)))
    return figure


def per_reference(
    result: Attribution,
    references: Any = None,
    *,
    explicand: int = 0,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    count: int = MOST_SHOWN,
    which: Which = None,
    **look: Any,
) -> Figure:
    """What each reference contributes: its picture and, below, its own attribution; first the explicand and the mean.

    All maps share one scale unless asked otherwise, since their mean is the attribution. Where `names` are given, or the
    samples are no images, the figure is a table instead: a row for each reference, a column for each of the features with
    the largest values.

    Args:
        result: what a path method returned with `per_reference=True`.
        references: the samples that were contrasted with, (R, ...) or (B, R, ...). Without them GradCF is shown where the
            method made one.
        explicand: which explicand to show, a number from 0.
        names: of the features: words or columns.
        labels: of the references, R of them; by default their numbers.
        count: how many references to show at most.
        which: the input to show, by position or name, where the network takes several.
        look: how maps are drawn: see `Look`.
    """
    style = Look(**{"scale": "shared", **look})
    if check_attribution(result).per_reference is None:
        raise InputError("this attribution does not keep each reference's own: call the method with per_reference=True")
    check_index(explicand, len(result), "explicand")
    result = result[explicand]
    assert result.per_reference is not None
    own = chosen(result.per_reference, which)[0]
    total = len(own)
    shown = min(check_count(count), total)
    if labels is not None and (isinstance(labels, str) or len(labels) != total):
        raise InputError(f"labels are {describe(labels)}: expected one for each of {total} references")
    lines = [f"reference {i}" if labels is None else printable(labels[i], 40) for i in range(shown)]
    reached = None if result.baseline_outputs is None else result.baseline_outputs[0].tolist()
    mean = chosen(result.values, which)
    rest = "" if shown == total else f"the first {shown} of {total} references"
    if names is not None or own.ndim < 3:
        if reached is not None:
            lines = [f"{line}, baseline output {number(reached[i])}" for i, line in enumerate(lines)]
        return _reference_table(mean, own[:shown], lines, names, style, rest)

    lines = [fitted(line, style.size) for line in lines]
    if reached is not None:
        lines = [f"{line}\nbaseline output {number(reached[i])}" for i, line in enumerate(lines)]
    samples = chosen(result.explicand, which)
    ends = _reference_pictures(result, references, explicand, which, own.shape)
    values = style.of(maps(torch.cat([mean, own[:shown]])))
    scales = style.scales(values)
    panel = style.panel(*values.shape[1:])
    figure = Canvas((shown + 1) * (style.size + 0.05) + 0.8, 2 * panel + 1.0, layout="compressed")
    axes = figure.subplots(2, shown + 1, squeeze=False)
    tops = samples if ends is None else torch.cat([samples, ends[:shown]])
    for column, picture in enumerate(pictures(tops, style.bounds, like=samples)):
        show(axes[0, column], picture)
    for column in range(len(tops), shown + 1):
        axes[0, column].set_axis_off()
    under = pictures(samples, style.bounds)[0]
    drawn = []
    for column in range(shown + 1):
        drawn.append(style.draw(axes[1, column], values[column], scales[column], under))
        axes[0, column].set_title(lines[column - 1] if column else "explicand", fontsize="small", **outside())
        if style.scale == "each":
            axes[1, column].set_xlabel(style.end_of(scales[column]), fontsize="x-small", color=QUIET)
    axes[1, 0].set_title("mean", fontsize="small")
    if style.scale == "shared":
        style.colour_bars(figure, drawn, list(axes[1]), scales, location="bottom", aspect=40, shrink=0.4, pad=0.03)
    above = "above the GradCF of each reference" if references is None and ends is not None else ""
    note(figure, above, style.remark(scales), rest)
    return figure


def _reference_pictures(result: Attribution, references: Any, explicand: int, which: Which, shape: torch.Size) -> Tensor | None:
    if references is None:
        return None if result.gradcf is None else chosen(result.gradcf, which)[0]
    if isinstance(references, Tensor):
        which = None  # that input's own
    elif not isinstance(references, (tuple, list, dict)):
        raise InputError(f"references must be the samples the method was given, got {describe(references)}")
    found = chosen(tuple(references) if isinstance(references, list) else references, which)
    if found.ndim == len(shape) + 1 and explicand < len(found):
        found = found[explicand]
    if found.shape != shape:
        raise InputError(f"references are {describe(references)}: expected the samples the method was given, {tuple(shape)}")
    return found


def _reference_table(
    mean: Tensor, own: Tensor, lines: list[str], names: Sequence[str] | None, style: Look, rest: str
) -> Figure:
    table = rows(torch.cat([mean, own]))
    features = table.shape[1]
    if names is not None and (isinstance(names, str) or len(names) > features):
        raise InputError(f"names are {describe(names)}: expected one for each of {features} features")
    words = [printable(name, 24) for name in names] if names is not None else [str(i) for i in range(features)]
    table = table[:, : len(words)]
    strongest = np.sort(np.argsort(-np.abs(table).max(axis=0), kind="stable")[:MOST_NAMED])
    # few enough cells to show all of them, and nothing to blur across
    style = replace(style, scale="shared", percentile=100, smooth=0, overlay=None)
    values = style.of(table[:, strongest])
    scales = style.scales(values)
    longest = max(len(line) for line in lines)
    figure = Canvas(1.2 + 0.08 * longest + 0.45 * len(strongest), 1.2 + 0.32 * len(table), layout="constrained")
    axes = figure.subplots()
    image = style.draw(axes, values, scales[0])
    image.axes.set_aspect("auto")
    axes.set_xticks(
        range(len(strongest)), [words[i] for i in strongest], rotation=40, ha="right", fontsize="small", **outside()
    )
    axes.set_yticks(range(len(table)), ["mean", *lines], fontsize="small", **outside())
    axes.axhline(0.5, color="black", linewidth=0.8)
    axes.tick_params(length=0)
    style.colour_bars(figure, [image], [axes], scales, aspect=12)
    few = "" if len(strongest) == len(words) else f"the {len(strongest)} strongest of {len(words)} features"
    note(figure, few, rest)
    return figure
