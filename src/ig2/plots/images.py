"""Figures of attributions of images: heat maps, methods side by side, counterfactuals, references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ig2._utils.checks import check_count
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import QUIET, Canvas, add_note, draw_image
from ig2.plots.colours import MapStyle
from ig2.plots.labels import clean_text, format_number, text_options, wrap_text
from ig2.plots.values import (
    Array,
    InputKey,
    Titles,
    check_attribution,
    check_index,
    check_no_embeddings,
    clean_labels,
    lacks_signs,
    method_name,
    select_tensor,
    take_first,
    to_images,
    to_maps,
    to_rows,
)

MOST_NAMED = 20


def _choose_style(results: Mapping[str, Attribution], style: dict[str, Any]) -> tuple[MapStyle, str]:
    """Return one style for all maps, by default without signs if those of any map are unreliable, and the reason."""
    signless = [clean_text(name, 40) for name, result in results.items() if lacks_signs(result)]
    if "kind" in style or not signless:
        return MapStyle(**style), ""
    return MapStyle(**style, kind="magnitude"), f"strength without signs, since trust is low ({', '.join(signless)})"


def heat_map(
    result: Attribution,
    *,
    count: int = 8,
    input_key: InputKey = None,
    titles: Titles = None,
    explicand: bool = True,
    **style: Any,
) -> Figure:
    """Draw a row for each explicand: the image, and the map of its attribution.

    Args:
        result: the attribution of images (B, C, H, W), (B, H, W) or (B, H, W, C). Channels are summed.
        count: the maximum number of explicands to show.
        input_key: the input to show, by position or name, if the network takes several.
        titles: a line above each explicand; by default its class and output.
        explicand: whether to show the image beside its map. With an overlay it can be omitted.
        style: options of the maps, for example `kind="magnitude"`, `scale="shared"` or `overlay=0.8`: see `MapStyle`.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if the samples are not images, or hold NaN.
    """
    shown, lines, note = take_first(result, count, titles)
    map_style, why = _choose_style({method_name(result): shown}, style)
    check_no_embeddings(shown.values, input_key)
    maps = to_maps(select_tensor(shown.values, input_key))
    images = to_images(select_tensor(shown.explicand, input_key), map_style.bounds)
    heads = [[line, method_name(result) if explicand and row == 0 else ""] for row, line in enumerate(lines)]
    return _draw_rows([images] if explicand else [], maps, images, heads, map_style, "attribution", (why, note))


def counterfactual(
    result: Attribution,
    *,
    reference: int | None = 0,
    count: int = 8,
    input_key: InputKey = None,
    titles: Titles = None,
    **style: Any,
) -> Figure:
    """Draw a row for each explicand: the image, its GradCF, and GradCFE = explicand − GradCF.

    The two images are shown with the same range of values.

    Args:
        result: the attribution of images by `IG2` or `GradCFE`.
        reference: the index of the reference whose GradCF is shown. None shows the mean over references.
        count: the maximum number of explicands to show.
        input_key: the input to show, by position or name, if the network takes several.
        titles: a line above each explicand; by default its class and output.
        style: options of the maps: see `MapStyle`.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if the attribution has no GradCF, or the samples are not images.
    """
    map_style = MapStyle(**style)
    shown, lines, note = take_first(result, count, titles)
    if shown.gradcf is None:
        raise InputError("this attribution has no GradCF: only methods on GradPath make one, such as ig2.IG2 or ig2.GradCFE")
    ends = select_tensor(shown.gradcf, input_key)
    total = ends.shape[1]
    if reference is None:
        name, whose, outputs, ends = "mean GradCF", f" over {total} references", None, ends.mean(dim=1)
    else:
        check_index(reference, total, "reference")
        name, whose = "GradCF", "" if total == 1 else f" of reference {reference}"
        outputs = None if shown.baseline_outputs is None else shown.baseline_outputs[:, reference].tolist()
        ends = ends[:, reference]
    samples = select_tensor(shown.explicand, input_key)
    before, after = to_images(samples, map_style.bounds), to_images(ends, map_style.bounds, like=samples)
    heads = [
        [line, name + ("" if outputs is None else f", output {format_number(outputs[row])}"), "GradCFE"]
        for row, line in enumerate(lines)
    ]
    notes = (f"GradCFE = input − {name}{whose}", note)
    return _draw_rows([before, after], to_maps(samples - ends), before, heads, map_style, "difference", notes)


def _draw_rows(
    images: Sequence[Array],
    maps: Array,
    underlay: Array,
    heads: list[list[str]],
    map_style: MapStyle,
    quantity: str,
    notes: tuple[str, str],
) -> Figure:
    """Draw a row for each map, after the columns of images; heads[row][0] may be long, and notes surround that on colours."""
    maps = map_style.transform(maps)
    scales = map_style.fit_scales(maps)
    rows, columns = len(maps), len(images) + 1
    panel = map_style.panel_height(*maps.shape[1:])
    bars = map_style.place_colour_bars(panel, rows)
    height = rows * (panel + 0.35 + (0.5 if "location" in bars else 0.0)) + 0.1  # titles above, colour bars beside or below
    figure = Canvas(columns * map_style.size + 1.0, height, layout="compressed")
    axes = figure.subplots(rows, columns, squeeze=False)
    drawn = []
    for row in range(rows):
        for column, pictures in enumerate(images):
            draw_image(axes[row, column], pictures[row])
        drawn.append(map_style.draw(axes[row, -1], maps[row], scales[row], underlay[row]))
        for column, head in enumerate(heads[row][:columns]):
            text = head if column else wrap_text(head, map_style.size)
            axes[row, column].set_title(text, fontsize="small", **text_options())
    map_style.add_colour_bars(figure, drawn, scales, quantity, **bars)
    add_note(figure, notes[0], map_style.format_note(scales), notes[1])
    return figure


def grid(
    results: Mapping[str, Attribution], *, count: int = 8, input_key: InputKey = None, titles: Titles = None, **style: Any
) -> Figure:
    """Draw methods × explicands: a row for each explicand, first the image, then a column for each method.

    All maps are of one kind, and their scales follow one rule, noted in the figure: with `scale="each"` the colours of every
    map end at the percentile of its absolute values; with `scale="shared"` every method has one scale for all its maps,
    shown below its column. Compare where maps are strong, not how strong: methods differ in their units.

    Args:
        results: names and attributions of the same explicands, in the order of the columns.
        count: the maximum number of explicands to show.
        input_key: the input to show, by position or name, if the network takes several.
        titles: a line below each explicand; by default its class and output.
        style: options of the maps: see `MapStyle`.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if the attributions explain different samples, or the samples are not images.
    """
    first = _check_same_explicands(results, input_key)
    shown, lines, note = take_first(first, count, titles)
    map_style, why = _choose_style({name: result[: len(shown)] for name, result in results.items()}, style)
    rows, columns = len(shown), 1 + len(results)
    samples = select_tensor(shown.explicand, input_key)
    images = to_images(samples, map_style.bounds)
    same_classes = all(result.explained == first.explained for result in results.values())
    if titles is None and not same_classes:
        lines = [""] * rows
    panel = map_style.panel_height(*to_maps(samples).shape[1:])
    figure = Canvas(columns * (map_style.size + 0.05), rows * (panel + 0.25) + 0.5, layout="compressed")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel_axes in axes.flat:
        panel_axes.set_anchor("N")  # rows stay level, whatever stands below them
    axes[0, 0].set_title("input", fontsize="medium")
    for row in range(rows):
        draw_image(axes[row, 0], images[row])
        axes[row, 0].set_xlabel(wrap_text(lines[row], map_style.size), fontsize="small", **text_options())
    all_scales = []
    for column, (name, result) in enumerate(results.items(), start=1):
        maps = map_style.transform(to_maps(select_tensor(result.values, input_key)[:rows]))
        scales = map_style.fit_scales(maps)
        all_scales += scales
        drawn = []
        axes[0, column].set_title(wrap_text(name, map_style.size), fontsize="medium", **text_options())
        for row in range(rows):
            drawn.append(map_style.draw(axes[row, column], maps[row], scales[row], images[row]))
            below = "" if same_classes else result.explained[row]
            axes[row, column].set_xlabel(below, fontsize="x-small", color=QUIET)
        if map_style.scale == "shared":
            quantity = "attribution" if map_style.size >= 1.5 else None  # a narrower panel has no room for it
            map_style.add_colour_bars(figure, drawn, scales, quantity, location="bottom", aspect=16, shrink=0.9, pad=0.02)
    whose = "each map's own" if map_style.scale == "each" else "each method's"
    add_note(figure, why, map_style.format_note(all_scales, whose), note)
    return figure


def _check_same_explicands(results: Mapping[str, Attribution], input_key: InputKey) -> Attribution:
    """Return the first of several attributions, after a check that all explain the same samples."""
    if not isinstance(results, Mapping) or not results:
        raise InputError(f"results must be a dict of names and Attributions with at least one, got {describe(results)}")
    samples = {
        name: select_tensor(check_attribution(result, f"results[{name!r}]").explicand, input_key)
        for name, result in results.items()
    }
    first = next(iter(results))
    for name, tensor in samples.items():
        if not torch.equal(tensor, samples[first]):
            raise InputError(f"{name!r} and {first!r} explain different samples: a grid compares methods on the same ones")
    return results[first]


def per_reference(
    result: Attribution,
    references: Any = None,
    *,
    explicand: int = 0,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    count: int = 8,
    input_key: InputKey = None,
    **style: Any,
) -> Figure:
    """Draw the contribution of each reference: its image and, below, its attribution; first the explicand and the mean.

    All maps share one scale by default, since their mean is the attribution. With `names`, or if the samples are not images,
    the figure is a table instead: a row for each reference, a column for each of the features with the largest values.

    Args:
        result: the attribution by a path method with `per_reference=True`.
        references: the references of the attribution, (R, ...) or (B, R, ...); by default GradCF is shown, if available.
        explicand: the index of the explicand to show.
        names: the names of the features: words or columns.
        labels: the labels of the R references; by default their numbers.
        count: the maximum number of references to show.
        input_key: the input to show, by position or name, if the network takes several.
        style: options of the maps: see `MapStyle`.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if the attribution has no values per reference, or names, labels or references do not fit it.
    """
    if check_attribution(result).per_reference is None:
        raise InputError("this attribution does not keep each reference's own: call the method with per_reference=True")
    check_index(explicand, len(result), "explicand")
    result = result[explicand]
    assert result.per_reference is not None
    map_style, why = _choose_style({method_name(result): result}, {"scale": "shared", **style})
    contributions = select_tensor(result.per_reference, input_key)[0]
    total = len(contributions)
    shown = min(check_count(count), total)
    note = "" if shown == total else f"the first {shown} of {total} references"
    lines = [f"reference {i}" for i in range(total)] if labels is None else clean_labels(labels, total, "labels", 40)
    outputs = [""] * total
    if result.baseline_outputs is not None:
        outputs = [f"baseline output {format_number(output)}" for output in result.baseline_outputs[0].tolist()]
    mean = select_tensor(result.values, input_key)
    values = torch.cat([mean, contributions[:shown]])
    if names is not None or contributions.ndim < 3:
        rows = [", ".join(filter(None, pair)) for pair in zip(lines, outputs, strict=True)]
        return _draw_reference_table(to_rows(values), ["mean", *rows[:shown]], names, map_style, (why, note))

    heads = [
        "\n".join(filter(None, [wrap_text(line, map_style.size), output])) for line, output in zip(lines, outputs, strict=True)
    ]
    samples = select_tensor(result.explicand, input_key)
    ends = _select_references(result, references, explicand, input_key, contributions.shape)
    maps = map_style.transform(to_maps(values))
    scales = map_style.fit_scales(maps)
    panel = map_style.panel_height(*maps.shape[1:])
    figure = Canvas((shown + 1) * (map_style.size + 0.05) + 0.8, 2 * panel + 1.0, layout="compressed")
    axes = figure.subplots(2, shown + 1, squeeze=False)
    images = to_images(samples if ends is None else torch.cat([samples, ends[:shown]]), map_style.bounds, like=samples)
    drawn = []
    for column, head in enumerate(["input", *heads[:shown]]):
        above, below = axes[:, column]
        if column < len(images):
            draw_image(above, images[column])
        else:
            above.set_axis_off()
        above.set_title(head, fontsize="small", **text_options())
        drawn.append(map_style.draw(below, maps[column], scales[column], images[0]))
    axes[1, 0].set_title("mean", fontsize="small")
    if map_style.scale == "shared":
        map_style.add_colour_bars(figure, drawn, scales, location="bottom", aspect=40, shrink=0.4, pad=0.03)
    source = "above the GradCF of each reference" if references is None and ends is not None else ""
    whose = "each map's own" if map_style.scale == "each" else ""
    add_note(figure, why, source, map_style.format_note(scales, whose), note)
    return figure


def _select_references(
    result: Attribution, references: Any, explicand: int, input_key: InputKey, shape: torch.Size
) -> Tensor | None:
    """Return the references of one explicand: those passed, or else its GradCF."""
    if references is None:
        return None if result.gradcf is None else select_tensor(result.gradcf, input_key)[0]
    if not isinstance(references, (Tensor, tuple, list, dict)):
        raise InputError(f"references must be the samples the method was given, got {describe(references)}")
    structured = tuple(references) if isinstance(references, list) else references
    samples = select_tensor(structured, None if isinstance(references, Tensor) else input_key)
    if samples.ndim == len(shape) + 1 and explicand < len(samples):
        samples = samples[explicand]
    if samples.shape != shape:
        raise InputError(f"references are {describe(references)}: expected the samples the method was given, {tuple(shape)}")
    return samples


def _draw_reference_table(
    values: Array, lines: list[str], names: Sequence[str] | None, map_style: MapStyle, notes: tuple[str, str]
) -> Figure:
    features = values.shape[1]
    if names is not None and (isinstance(names, str) or len(names) > features):
        raise InputError(f"names are {describe(names)}: expected one for each of {features} features")
    columns = [str(i) for i in range(features)] if names is None else [clean_text(name, 24) for name in names]
    values = values[:, : len(columns)]
    strongest = np.sort(np.argsort(-np.abs(values).max(axis=0), kind="stable")[:MOST_NAMED])
    # few enough cells to show all of them, and nothing to blur across
    map_style = replace(map_style, scale="shared", percentile=100, smooth=0, overlay=None)
    cells = map_style.transform(values[:, strongest])
    scales = map_style.fit_scales(cells)
    longest = max(len(line) for line in lines[1:])
    figure = Canvas(1.2 + 0.08 * longest + 0.45 * len(strongest), 1.2 + 0.32 * len(values), layout="constrained")
    axes = figure.subplots()
    drawn = map_style.draw(axes, cells, scales[0])
    axes.set_aspect("auto")
    options = text_options() | {"fontsize": "small"}
    axes.set_xticks(range(len(strongest)), [columns[i] for i in strongest], rotation=40, ha="right", **options)
    axes.set_yticks(range(len(values)), lines, **options)
    axes.axhline(0.5, color="black", linewidth=0.8)
    axes.tick_params(length=0)
    map_style.add_colour_bars(figure, [drawn], scales, aspect=12)
    few = "" if len(strongest) == len(columns) else f"the {len(strongest)} strongest of {len(columns)} features"
    add_note(figure, few, *notes)
    return figure
