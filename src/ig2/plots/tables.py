"""Attributions of tables: bars with the names and values of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import AGAINST, FOR, QUIET, Canvas, fitted, left_out, note, number, outside, printable
from ig2.plots.readings import Array, Which, check_attribution, check_count, chosen, given_scores, titles_of

MOST_SHOWN = 8
MOST_BARS = 15


def bars(
    result: Attribution,
    names: Sequence[str] | None = None,
    *,
    top: int = MOST_BARS,
    count: int = MOST_SHOWN,
    cells: Sequence[Sequence[str]] | None = None,
    scores: Sequence[Any] | None = None,
    spread: bool = False,
    which: Which = None,
    titles: Sequence[str] | None = None,
) -> Figure:
    """A panel for each explicand with its strongest features as bars, red for the explained class and blue against it.

    The last line is the sum of all features that have no bar, so that the numbers add up to the whole.

    Args:
        result: what a method returned. Samples of any shape are taken as a row of features.
        names: of the features; by default their positions.
        top: how many features get a bar.
        count: how many explicands to show at most.
        cells: what stands in the features, as text, for each explicand; by default its values.
        scores: for each explicand one number a feature, to show instead of the attribution's values, as where
            several columns of x stand for one feature.
        spread: mark the standard deviation over references. Not with scores.
        which: the input to show, by position or name, where the network takes several.
        titles: a line above each explicand; by default its class and output.
    """
    check_count(top, "top")
    shown = min(check_count(count), len(check_attribution(result)))
    if scores is None:
        values = chosen(result.values, which)[:shown]
        numbers = list(values.flatten(1).numpy())
        labels = feature_names(names, values.shape[1:])
    else:
        numbers = given_scores(result, scores, shown)
        labels = feature_names(names, numbers[0].shape)
    if any(len(labels) != len(row) for row in numbers):
        raise InputError(f"names are {describe(names)}: expected one for each of {len(numbers[0])} features")
    cells_shown = _cells(result, cells, which, shown, len(labels), own=scores is None)
    whiskers = _whiskers(result, which, shown) if spread and scores is None else None
    lines = titles_of(result, titles, shown)

    bars_each = min(top, len(labels)) + (len(labels) > top)
    figure = Canvas(5.6, shown * (0.75 + 0.24 * bars_each), layout="constrained")
    grid = figure.subplots(shown, 1, squeeze=False)[:, 0]
    for row, axes in enumerate(grid):
        order = np.argsort(-np.abs(numbers[row]), kind="stable")[:top]
        heights = numbers[row][order]
        texts = [f"{labels[i]} = {cells_shown[row][i]}" if cells_shown else labels[i] for i in order]
        places = np.arange(len(order))
        drawn = axes.barh(
            places,
            heights,
            height=0.7,
            color=[FOR if value >= 0 else AGAINST for value in heights],
            xerr=None if whiskers is None else whiskers[row][order],
            error_kw={"ecolor": QUIET, "elinewidth": 0.8},
        )
        axes.bar_label(drawn, [number(value) for value in heights], padding=3, fontsize="x-small", color=QUIET)
        if len(labels) > top:
            # as text alone: of thousands of features the sum would dwarf the bars
            places = np.append(places, len(order))
            texts.append(f"{len(labels) - top} other features")
            rest = number(numbers[row].sum() - heights.sum())
            axes.annotate(
                rest, (0, len(order)), (3, 0), textcoords="offset points", va="center", fontsize="x-small", color=QUIET
            )
        axes.set_yticks(places, texts, fontsize="small", **outside())
        axes.set_ylim(len(places) - 0.4, -0.6)
        axes.axvline(0, color=QUIET, linewidth=0.8)
        axes.margins(x=0.18)  # room for the numbers
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize="x-small")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(fitted(lines[row], 5), fontsize="medium", loc="left", **outside())
    grid[-1].set_xlabel("attribution", fontsize="small")
    note(figure, "whiskers: standard deviation over references" if whiskers is not None else "", left_out(shown, len(result)))
    return figure


def feature_names(names: Sequence[str] | None, shape: Sequence[int]) -> list[str]:
    """As given, or the positions in a sample."""
    if names is not None:
        if isinstance(names, str):
            raise InputError(f"names must be one for each feature, got the text {describe(names)}")
        return [printable(name, 40) for name in names]
    if len(shape) == 1:
        return [f"feature {i}" for i in range(shape[0])]
    return ["(" + ", ".join(map(str, place)) + ")" for place in np.ndindex(*shape)]


def _cells(
    result: Attribution, cells: Sequence[Sequence[str]] | None, which: Which, shown: int, features: int, own: bool
) -> list[list[str]]:
    if cells is None:
        samples = chosen(result.explicand, which)[:shown] if own else None
        return [] if samples is None else [[number(value) for value in row] for row in samples.flatten(1).tolist()]
    if len(cells) != len(result) or any(len(row) != features for row in cells):
        raise InputError(f"cells must be {len(result)} rows of {features} texts, got {describe(cells)}")
    return [[printable(cell, 30) for cell in row] for row in cells[:shown]]


def _whiskers(result: Attribution, which: Which, shown: int) -> Array:
    if result.spread is None:
        raise InputError("this attribution has no spread: it takes two references or more")
    spread: Tensor = chosen(result.spread, which)
    found: Array = spread[:shown].flatten(1).numpy()
    return found
