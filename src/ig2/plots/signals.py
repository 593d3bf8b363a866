"""Figures of attributions of signals: the curve of each channel over time, on bands coloured by its attribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ig2._utils.checks import check_count, is_number
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.groups import find_time
from ig2.plots.canvas import Canvas, add_note
from ig2.plots.colours import ColourScale, MapStyle, Sharing
from ig2.plots.labels import text_options, wrap_text
from ig2.plots.values import Array, InputKey, Signs, Titles, choose_kind, clean_labels, select_tensor, take_first

WIDTH, ROW = 7.0, 1.0  # inches of a figure, and of a channel's panel
MOST_CHANNELS = 6
MOST_BANDS = 240  # along time: more would be thinner than a line
MOST_POINTS = 2000  # of a curve; beyond that its lowest and highest values are drawn
PALEST = 0.85  # how opaque a band is: the curve and the grid stay readable


def signal(
    result: Attribution,
    *,
    time_axis: int | None = None,
    rate: float | None = None,
    channels: Sequence[str] | None = None,
    window: int | None = None,
    count: int = 4,
    input_key: InputKey = None,
    titles: Titles = None,
    kind: Signs | None = None,
    scale: Sharing = "each",
) -> Figure:
    """Draw the signal of each explicand over time, a panel for each channel, on bands coloured by the attribution.

    A band is a window of time: its colour is the sum of the values in it. Red speaks for the explained class, blue against it;
    the panels of an explicand share their colours.

    Args:
        result: the attribution of signals (B, C, T), (B, T, C) or (B, T).
        time_axis: the time axis of x; by default the attribution's, or else the longer axis, or the last.
        rate: the sampling rate in steps per second; by default the attribution's, or else time is in steps.
        channels: the names of the channels; by default the attribution's, or else their numbers.
        window: the time steps in a band; by default the attribution's windows, or else as many bands as can be distinguished.
        count: the maximum number of explicands to show.
        input_key: the input to show, by position or name, if the network takes several.
        titles: a line above each explicand; by default its name, class and output.
        kind: "signed", or "magnitude" for the absolute sums in one colour. By default "signed", but "magnitude" if the trust
            of a shown explicand is low: the figure then notes it.
        scale: "each" uses one scale per explicand, "shared" one for all.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if the samples are not signals, or an argument does not fit them.

    >>> import ig2, torch
    >>> attribution = ig2.InputXGradient()(lambda x: x.square().sum(dim=(1, 2)), torch.rand(1, 2, 50))
    >>> len([axes for axes in signal(attribution, rate=10).axes if axes.lines])
    2
    """
    shown, lines, note = take_first(result, count, titles)
    known = shown.names
    kind, why = choose_kind(shown, kind)
    # strength on white, where the black curve can be seen
    map_style = MapStyle(kind=kind, scale=scale, percentile=100.0, cmap=None if kind == "signed" else "Reds")
    tensors = [select_tensor(part, input_key) for part in (shown.values, shown.explicand)]
    axis = _find_axis(shown, tensors[0], time_axis)
    values, samples = (_to_series(tensor, axis) for tensor in tensors)
    total, steps = values.shape[1:]
    names = channels if channels is not None else known.channels if known is not None and known.channels else None
    numbered = [f"channel {i}" if total > 1 else "" for i in range(total)]
    labels = numbered if names is None else clean_labels(names, total, "channels", 24)
    rate = rate if rate is not None or known is None else known.rate
    if rate is not None and not (is_number(rate) and rate > 0):
        raise InputError(f"rate must be a positive number of steps in a second, got {describe(rate)}")
    length = _find_window(shown, steps, window)
    starts = np.arange(0, steps, length)
    bands = map_style.transform(np.add.reduceat(values, starts, axis=2))
    scales = map_style.fit_scales(bands)
    strongest = np.sort(np.argsort(-np.abs(values).sum(axis=(0, 2)), kind="stable")[:MOST_CHANNELS])

    figure = Canvas(WIDTH, 0.5 + len(shown) * (0.45 + max(ROW * len(strongest), 1.4)), layout="constrained")
    parts: Any = figure.subfigures(len(shown), 1, squeeze=False)[:, 0]
    times = np.arange(steps) / (rate or 1)
    ends = np.append(starts, steps) / (rate or 1)
    for row, part in enumerate(parts):
        panels = part.subplots(len(strongest), 1, sharex=True, squeeze=False)[:, 0]
        drawn = []
        for axes, channel in zip(panels, strongest, strict=True):
            drawn.append(_draw_bands(axes, bands[row, channel], ends, scales[row], map_style, samples[row, channel]))
            _draw_curve(axes, times, samples[row, channel])
            axes.set_ylabel(labels[channel], fontsize="x-small", **text_options())
            axes.tick_params(labelsize="x-small", length=2)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_title(wrap_text(lines[row], WIDTH - 1), fontsize="medium", loc="left", **text_options())
        panels[-1].set_xlabel("time in seconds" if rate else "step of time", fontsize="x-small")
        one_bar = replace(map_style, scale="shared")  # for all channels of an explicand
        one_bar.add_colour_bars(part, drawn, [scales[row]] * len(drawn), aspect=20, shrink=0.9, pad=0.01)
    per = f"{length / rate:.3g} s" if rate else f"{length} step{'s' * (length != 1)}"
    few = "" if len(strongest) == total else f"the {len(strongest)} strongest of {total} channels"
    add_note(figure, f"a band is the sum over {per}" if length > 1 else "", few, why, map_style.format_note(scales), note)
    return figure


def _find_axis(result: Attribution, values: Tensor, time_axis: int | None) -> int:
    if time_axis is not None:
        return time_axis
    if result.names is not None and result.names.time_axis is not None:
        return result.names.time_axis
    return 1 if values.ndim == 3 and values.shape[1] > values.shape[2] else -1


def _to_series(tensor: Tensor, time_axis: int) -> Array:
    """Return signals as (N, channels, T)."""
    if tensor.ndim not in (2, 3):
        raise InputError(f"samples {tuple(tensor.shape[1:])} are no signals: expected (C, T), (T, C) or (T,)")
    series = tensor.movedim(find_time(tensor, time_axis), -1)
    array: Array = (series[:, None] if tensor.ndim == 2 else series).contiguous().numpy()
    return array


def _find_window(result: Attribution, steps: int, window: int | None) -> int:
    """Return the number of time steps in a band."""
    if window is not None:
        return min(check_count(window, "window"), steps)
    names = result.names
    if names is not None and names.groups is not None and names.time_axis is not None:
        length = names.groups[0].count(0)
        return length if steps <= length * MOST_BANDS else -(-steps // MOST_BANDS)
    return -(-steps // MOST_BANDS)


def _draw_bands(axes: Axes, sums: Array, ends: Array, scale: ColourScale, style: MapStyle, samples: Array) -> Any:
    """Draw the bands behind a curve, at the height of the panel."""
    low, high = float(samples.min()), float(samples.max())
    margin = 0.08 * (high - low) or 1.0
    drawn = axes.pcolormesh(
        ends,
        [low - margin, high + margin],
        sums[None],
        cmap=style.cmap_name,
        vmin=-scale.end if style.kind == "signed" else 0.0,
        vmax=scale.end,
        alpha=PALEST,
        linewidth=0,
        rasterized=True,
    )
    axes.set(xlim=(ends[0], ends[-1]), ylim=(low - margin, high + margin))
    return drawn


def _draw_curve(axes: Axes, times: Array, samples: Array) -> None:
    if len(samples) <= MOST_POINTS:
        axes.plot(times, samples, color="black", linewidth=0.9)
        return
    edges = -(-np.arange(MOST_POINTS // 2) * len(samples) // (MOST_POINTS // 2))
    lowest, highest = np.minimum.reduceat(samples, edges), np.maximum.reduceat(samples, edges)
    axes.fill_between(times[edges], lowest, highest, color="black", linewidth=0.3)
