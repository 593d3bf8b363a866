"""Figures of attributions of tables: bars with the names and values of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ig2._utils.checks import check_count
from ig2.attribution import Attribution, name_positions
from ig2.errors import InputError, describe
from ig2.names import Names
from ig2.plots.canvas import AGAINST, FOR, QUIET, STRENGTH, Canvas, add_note
from ig2.plots.labels import clean_text, format_number, text_options, wrap_text
from ig2.plots.values import (
    Array,
    InputKey,
    Signs,
    Titles,
    check_scores,
    choose_kind,
    clean_labels,
    is_tiny,
    select_tensor,
    take_first,
)

REST = "#b3b3b3"  # the colour of the bar of all other features
MOST_REST = 4.0  # times the longest bar: where that one is cut


def bars(
    result: Attribution,
    names: Sequence[str] | None = None,
    *,
    top: int = 15,
    count: int = 8,
    cells: Sequence[Sequence[str]] | None = None,
    scores: Sequence[Any] | None = None,
    spread: bool = False,
    input_key: InputKey = None,
    titles: Titles = None,
    kind: Signs | None = None,
) -> Figure:
    """Draw a panel for each explicand with its strongest features as bars, red for the explained class and blue against it.

    The last bar, in grey, is the sum of all other features, so that the numbers add up to the total. If the attribution has
    named columns, each has a bar, with its value in the user's units and that of the counterfactual.

    Args:
        result: an attribution. Samples of any shape are flattened to a row of features.
        names: the names of the features; by default the attribution's columns, or else their positions.
        top: the number of features with a bar.
        count: the maximum number of explicands to show.
        cells: the features' values, as text, for each explicand; by default those of the explicand.
        scores: one number per feature for each explicand, shown instead of the attribution's values, for example if
            several columns of x encode one feature.
        spread: whether to mark the standard deviation over references, if it is at least a hundredth of the value: a smaller
            one would be hidden by the end of its bar. Not with scores.
        input_key: the input to show, by position or name, if the network takes several.
        titles: a line above each explicand; by default its class and output.
        kind: "signed", or "magnitude" for the absolute values in one colour. By default "signed", but "magnitude" if the
            trust of a shown explicand is low: the figure then notes it, as `heat_map` does.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if names, cells or scores do not fit the attribution, or it has no spread to mark.
    """
    check_count(top, "top")
    shown, lines, note = take_first(result, count, titles)
    deviations, arrow = None, ""
    known = result.names
    if names is None and scores is None and known is not None and known.view == "bars" and known.units:
        names = known.units[0]
        scores = None if has_single_features(known) else result.sum_units()
        if cells is None and known.cells is not None:
            cells = describe_cells(known)
            arrow = "" if known.becomes is None else "→ the counterfactual's value, the mean over references"
    if scores is None:
        values = select_tensor(shown.values, input_key)
        numbers, shape = list(values.flatten(1).numpy()), tuple(values.shape[1:])
        if spread:
            if shown.spread is None:
                raise InputError("this attribution has no spread: it takes two references or more")
            spreads = select_tensor(shown.spread, input_key).flatten(1).numpy()
            deviations = np.where(is_tiny(spreads, np.stack(numbers)), np.nan, spreads)  # NaN has no whisker
    else:
        numbers = check_scores(scores, len(result))[: len(shown)]
        shape = numbers[0].shape
    features = len(numbers[0])
    if any(len(row) != features for row in numbers):
        raise InputError(
            f"scores are of {sorted({len(row) for row in numbers})} features: expected the same number in each row"
        )
    kind, why = choose_kind(shown, kind)
    if kind == "magnitude":
        numbers = [np.abs(row) for row in numbers]
    labels = name_positions(shape) if names is None else clean_labels(names, features, "names", 40)
    if cells is not None:
        if len(cells) != len(result) or any(len(row) != features for row in cells):
            raise InputError(f"cells must be {len(result)} rows of {features} texts, got {describe(cells)}")
        texts = [[clean_text(cell, 30) for cell in row] for row in cells]
    elif scores is None:
        samples = select_tensor(shown.explicand, input_key).flatten(1).tolist()
        texts = [[format_number(value) for value in row] for row in samples]
    else:
        texts = []

    bars_each = min(top, features) + (features > top)
    figure = Canvas(5.6, len(shown) * (0.75 + 0.24 * bars_each), layout="constrained")
    panels = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    for row, axes in enumerate(panels):
        order, rest = split_strongest(numbers[row], top)
        heights = numbers[row][order]
        ticks = [f"{labels[i]} = {texts[row][i]}" if texts else labels[i] for i in order]
        whiskers = {
            "xerr": None if deviations is None else deviations[row][order],
            "error_kw": {"ecolor": QUIET, "elinewidth": 0.8},
        }
        others = f"{features - top} other features" if features > top else ""
        colours = [bar_colour(value, kind) for value in heights]
        ticks += draw_bars(axes, heights, rest, others, color=colours, **whiskers)
        frame_rows(axes, ticks, lines[row])
        axes.margins(x=0.18)  # for the numbers
    panels[-1].set_xlabel("attribution" if kind == "signed" else "|attribution|", fontsize="small")
    add_note(figure, why, "whiskers: standard deviation over references" if deviations is not None else "", arrow, note)
    return figure


def draw_bars(axes: Axes, values: Array, rest: float, others: str, **options: Any) -> list[str]:
    """Draw a bar with its number for each value, and one for all others; return its label, if there are any."""
    quiet: dict[str, Any] = {"padding": 3, "fontsize": "x-small", "color": QUIET}
    drawn = axes.barh(np.arange(len(values)), values, height=0.7, **options)
    axes.bar_label(drawn, [format_number(value) for value in values], **quiet)
    axes.axvline(0, color=QUIET, linewidth=0.8)
    if not others:
        return []
    length, number = cut_rest(rest, float(np.abs(values).max()))
    axes.bar_label(axes.barh([len(values)], [length], height=0.7, color=REST), [number], **quiet)
    return [others]


def frame_rows(axes: Axes, names: Sequence[str], title: str, label: str = "") -> None:
    """Name the rows of a panel, from the top, and leave only its lower edge."""
    axes.set_yticks(np.arange(len(names)), names, fontsize="small", **text_options())
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize="x-small")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel(label, fontsize="small")
    axes.set_title(wrap_text(title, 5), fontsize="medium", loc="left", **text_options())


def bar_colour(value: float, kind: Signs) -> str:
    """Return red for the class, blue against it, or the colour of magnitudes."""
    return STRENGTH if kind == "magnitude" else FOR if value >= 0 else AGAINST


def has_single_features(names: Names) -> bool:
    """Return whether each column is one feature, in the features' order."""
    return names.units is not None and all(
        groups == tuple(range(len(units))) for groups, units in zip(names.groups or (), names.units, strict=True)
    )


def describe_cells(names: Names) -> list[list[str]]:
    """Return the contents of each row's columns, and those of its counterfactual where they differ."""
    rows = zip(names.cells or (), names.becomes or names.cells or (), strict=True)
    return [
        [cell if cell == other else f"{cell} → {other}" for cell, other in zip(cells, others, strict=True)]
        for cells, others in rows
    ]


def cut_rest(rest: float, longest: float) -> tuple[float, str]:
    """Return the length of the bar of all other features, and its label: the sum of thousands would dwarf the other bars."""
    most = MOST_REST * longest
    return float(np.clip(rest, -most, most)), format_number(rest) + (" (bar cut)" if abs(rest) > most else "")


def split_strongest(values: Array, top: int) -> tuple[NDArray[np.intp], float]:
    """Return the indices of the strongest features, strongest first, and the sum of all others."""
    order = np.argsort(-np.abs(values), kind="stable")[:top]
    return order, float(values.sum() - values[order].sum())
