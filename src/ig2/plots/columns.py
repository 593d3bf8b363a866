"""Figures of attributions of a whole table: which columns matter, in which direction, and how that depends on their values."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ig2._utils.checks import check_count
from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe, format_count
from ig2.names import ColumnValues
from ig2.plots.canvas import AGAINST, FOR, LINE_COLOURS, QUIET, STRENGTH, Canvas, add_note
from ig2.plots.labels import clean_text, format_number, text_options, wrap_text
from ig2.plots.tables import REST, draw_bars, frame_rows, split_strongest
from ig2.plots.values import Array, check_index

# low to high; none of its colours is the red or blue that speaks for or against
SCALE = "viridis"
CATEGORY = "0.55"  # the grey of a point whose column has no low and high
MOST_POINTS = 3000  # that a row of a swarm shows
BINS = 120  # along the width of a swarm, within which points are stacked
ROW = 0.32  # inches


class Tabular(Protocol):
    """An attribution of rows, or a store of such attributions."""

    def tabulate(self) -> ColumnValues:
        """Return the attribution of each row and column, with the contents of the cells."""


def beeswarm(result: Tabular, *, top: int = 15, target: str | int | None = None) -> Figure:
    """Draw a line of points for each column, a point for each row: its attribution, coloured by the column's value.

    Columns are ordered by the mean of |φ|. A point's colour is the rank of the cell within its column, dark for the lowest and
    bright for the highest; categories have no order, and are grey. Points that would overlap are stacked.

    Args:
        result: an `Attribution` of a table or of rows of features, or a `Store` of them.
        top: the number of columns to show.
        target: show only rows that explain this class, by name or number. By default all rows; the figure notes it if they
            explain several classes, since evidence for one class is evidence against another.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if there are no columns, or no rows explain the target.

    >>> import ig2, torch
    >>> attribution = ig2.InputXGradient()(torch.nn.Linear(3, 2), torch.rand(20, 3), target=0)
    >>> [label.get_text() for label in beeswarm(attribution, top=2).axes[0].get_yticklabels()][0].startswith("feature")
    True
    """
    check_count(top, "top")
    columns, note = collect_columns(result, target)
    order = _rank_columns(columns)[:top]
    figure = Canvas(6.4, 1.0 + ROW * len(order), layout="constrained")
    axes = figure.subplots()
    rows = np.arange(len(columns.values))
    thinned = ""
    if len(rows) > MOST_POINTS:
        rows = rows[:: -(-len(rows) // MOST_POINTS)]
        thinned = f"{len(rows)} of {len(columns.values)} rows, evenly spaced"
    width = float(np.ptp(columns.values[:, order])) or 1.0
    has_categories, data = False, columns.data
    for place, column in enumerate(order):
        values, ranks = columns.values[rows, column], _rank_cells(data[rows, column])
        has_categories |= ranks is None
        colours: dict[str, Any] = {"color": CATEGORY} if ranks is None else {"c": ranks, "cmap": SCALE, "vmin": 0, "vmax": 1}
        axes.scatter(values, place + _stack(values, width), s=9, linewidths=0, rasterized=True, **colours)
    axes.axvline(0, color=QUIET, linewidth=0.8)
    frame_rows(axes, _clean_names(columns, order), _describe_explained(columns), "attribution")
    _add_colour_bar(figure, axes, "value of the column")
    few = "" if len(order) == len(columns.names) else f"the {len(order)} strongest of {len(columns.names)} columns"
    add_note(figure, "grey: categories" if has_categories else "", few, thinned, note)
    return figure


def importance(result: Tabular, *, top: int = 15, target: str | int | None = None) -> Figure:
    """Draw a bar for each column: the mean of |φ| over all rows, and a mark at the mean of φ.

    A mark near the end of its bar means that the column had the same sign in every row, one near zero that it spoke for the
    class as much as against it.

    Args:
        result: an `Attribution` of a table or of rows of features, or a `Store` of them.
        top: the number of columns with a bar; the last bar is the sum of the others.
        target: show only rows that explain this class, by name or number.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if there are no columns, or no rows explain the target.
    """
    check_count(top, "top")
    columns, note = collect_columns(result, target)
    strengths, means = np.abs(columns.values).mean(axis=0), columns.values.mean(axis=0)
    order = _rank_columns(columns)
    shown, rest = order[:top], order[top:]
    figure = Canvas(5.6, 0.9 + 0.26 * (len(shown) + bool(len(rest))), layout="constrained")
    axes = figure.subplots()
    others = f"{format_count(len(rest), 'other column')}, together" if len(rest) else ""
    last = draw_bars(axes, strengths[shown], float(strengths[rest].sum()), others, color=STRENGTH, alpha=0.45)
    for place, column in enumerate(shown):
        axes.plot(
            [means[column]] * 2, [place - 0.35, place + 0.35], color=FOR if means[column] >= 0 else AGAINST, linewidth=2.5
        )
    axes.margins(x=0.12)
    label = f"mean of |attribution| over {format_count(len(columns.values), 'row')}"
    frame_rows(axes, [*_clean_names(columns, shown), *last], _describe_explained(columns), label)
    add_note(figure, "marks: the mean with its sign, red for the class and blue against it", note)
    return figure


def waterfall(result: Tabular, row: int = 0, *, top: int = 12) -> Figure:
    """Draw how one row's columns lead from the output at the baseline to the row's output, the strongest column last.

    Args:
        result: an `Attribution` of a table or of rows of features, or a `Store` of them.
        row: the index of the row.
        top: the number of columns with a step; the others share one step, in grey. The residual of the attribution is a
            step too, if it is at least a hundredth of the change in the output.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if there is no such row, or the method has no baseline.
    """
    check_count(top, "top")
    columns, _ = collect_columns(result, None)
    check_index(row, len(columns.values), "row")
    if columns.baselines is None or columns.outputs is None:
        raise InputError("a waterfall begins at the output of a baseline, and this method has none: use ig2.plots.bars")
    values, start, end = columns.values[row], float(columns.baselines[row]), float(columns.outputs[row])
    order, rest = split_strongest(values, top)
    steps = [(f"{clean_text(columns.names[i], 40)} = {clean_text(columns.cells[row][i], 30)}", values[i], "") for i in order]
    if len(values) > top:
        steps.append((format_count(len(values) - top, "other column"), rest, REST))
    missing = end - start - float(values.sum())
    if abs(missing) > 0.01 * max(abs(end - start), 1e-12):
        steps.append(("not accounted for", missing, "0.8"))
    figure = Canvas(6.0, 1.2 + 0.3 * len(steps), layout="constrained")
    axes = figure.subplots()
    position = start
    for place, (_, value, colour) in reversed(list(enumerate(steps))):
        axes.barh([place], [value], left=position, height=0.7, color=colour or (FOR if value >= 0 else AGAINST))
        # always to the right of the bar: on the left is the column's name
        right = (max(position, position + value), place)
        number = f"{'+' if value >= 0 else ''}{format_number(value)}"
        axes.annotate(
            number, right, (3, 0), textcoords="offset points", va="center", fontsize="x-small", color=QUIET,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # over the dotted lines
        )  # fmt: skip
        position += value
        if place:
            axes.plot([position] * 2, [place - 1.35, place + 0.35], color=QUIET, linewidth=0.6)
    for at, name, side in ((start, "baseline", len(steps) - 0.3), (end, "output", -0.7)):
        axes.axvline(at, color=QUIET, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"{name} {format_number(at)}", (at, side), (3, 0), textcoords="offset points", fontsize="x-small", color=QUIET,
            va="top" if side > 0 else "bottom",
        )  # fmt: skip
    frame_rows(axes, [name for name, _, _ in steps], f"{columns.samples[row]}: {columns.explained[row]}", "output")
    axes.set_ylim(len(steps) + 0.1, -1.2)  # room for the names of both ends
    axes.use_sticky_edges = False  # or the margin would begin at the baseline
    axes.margins(x=0.12)
    return figure


def dependence(
    result: Tabular, column: str | int, *, colour: str | int | None = None, target: str | int | None = None
) -> Figure:
    """Draw a point for each row: the value of a column against the column's attribution.

    If points of one value are spread out, other columns interact with it: colour shows one of them.

    Args:
        result: an `Attribution` of a table or of rows of features, or a `Store` of them.
        column: the column, by name or number. The values of a category are placed side by side.
        colour: another column, whose cells colour the points: numbers by their rank, a category by its values, up to seven.
        target: show only rows that explain this class, by name or number.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if there is no such column, or it has more categories than colours.
    """
    columns, note = collect_columns(result, target)
    index = _find_column(columns, column, "column")
    values, data = columns.values[:, index], columns.data
    cells = data[:, index]
    name = clean_text(columns.names[index], 40)
    figure = Canvas(5.2, 3.4, layout="constrained")
    axes = figure.subplots()
    options: dict[str, Any] = {"color": STRENGTH}
    categories: list[str] = []
    if colour is not None:
        other = _find_column(columns, colour, "colour")
        ranks = _rank_cells(data[:, other])
        if ranks is not None:
            options = {"c": ranks, "cmap": SCALE, "vmin": 0, "vmax": 1}
        else:
            categories = sorted({str(cell) for cell in data[:, other]})
            if len(categories) > len(LINE_COLOURS):
                raise InputError(
                    f"colour={describe(colour)} is a category of {len(categories)} values, and there are {len(LINE_COLOURS)} "
                    "colours: colour by a column of numbers, or of fewer values"
                )
            options = {"c": [LINE_COLOURS[categories.index(str(cell))] for cell in data[:, other]]}
    numbers = _as_numbers(cells)
    if numbers is None:
        texts = sorted({str(cell) for cell in cells})
        places = np.array([texts.index(str(cell)) for cell in cells], dtype=np.float64)
        for number in range(len(texts)):
            here = places == number
            places[here] += _stack(values[here], float(np.ptp(values)) or 1.0)
        axes.set_xticks(range(len(texts)), [clean_text(text, 16) for text in texts], fontsize="small", **text_options())
    else:
        places = numbers
    axes.scatter(places, values, s=14, linewidths=0, alpha=0.85, rasterized=True, **options)
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set_xlabel(name, fontsize="small", **text_options())
    axes.set_ylabel(f"attribution of {name}", fontsize="small", **text_options())
    axes.tick_params(labelsize="x-small")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(wrap_text(_describe_explained(columns), 5), fontsize="medium", loc="left", **text_options())
    if categories:
        for text, shade in zip(categories, LINE_COLOURS, strict=False):
            axes.scatter([], [], s=14, linewidths=0, color=shade, label=clean_text(text, 16))
        figure.legend(
            title=clean_text(columns.names[other], 24), loc="outside right center", frameon=False, fontsize="x-small",
            title_fontsize="x-small",
        )  # fmt: skip
    elif colour is not None:
        _add_colour_bar(figure, axes, clean_text(columns.names[other], 40))
    add_note(figure, note)
    return figure


def collect_columns(result: object, target: str | int | None) -> tuple[ColumnValues, str]:
    """Return the columns of the rows that explain a target, by default of all rows, and a note if they explain several.

    Raises:
        InputError: if the result is not an attribution or store of a table, or no rows explain the target.
    """
    if not hasattr(result, "tabulate"):
        raise InputError(f"result must be an Attribution, as methods return it, or a Store (ig2.open); got {describe(result)}")
    columns: ColumnValues = result.tabulate()
    if not np.isfinite(columns.values).all():
        raise InputError("NaN or infinite values cannot be drawn")
    if target is not None:
        named = [str(target) in (name, str(number)) for name, number in zip(columns.explained, columns.targets, strict=True)]
        if not any(named):
            known = list(dict.fromkeys(columns.explained))
            raise InputError(f"no row explains {describe(target)}{suggest(str(target), known, choice='rows explain')}")
        columns = columns[np.flatnonzero(named)]
    if not len(columns.values):
        raise InputError("there are no rows to draw")
    kinds = len(set(columns.explained))
    return columns, "" if kinds == 1 else f"rows explain {kinds} classes: choose one with target="


def _add_colour_bar(figure: Figure, axes: Axes, label: str) -> None:
    """Add a colour bar for the points, whose colours are the ranks of cells."""
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), SCALE), ax=axes, shrink=0.8, aspect=30)
    bar.set_ticks([0, 1], labels=["low", "high"])
    bar.ax.tick_params(labelsize="x-small", length=0)
    bar.set_label(label, fontsize="x-small", labelpad=-12, **text_options())
    bar.outline.set_visible(False)


def _describe_explained(columns: ColumnValues) -> str:
    names = list(dict.fromkeys(columns.explained))
    what = names[0] if len(names) == 1 else f"{len(names)} classes"
    return f"{what}: {format_count(len(columns.values), 'row')}"


def _clean_names(columns: ColumnValues, order: NDArray[np.intp]) -> list[str]:
    return [clean_text(columns.names[i], 40) for i in order]


def _rank_columns(columns: ColumnValues) -> NDArray[np.intp]:
    """Return the indices of the columns by the mean of |φ|, the strongest first."""
    return np.argsort(-np.abs(columns.values).mean(axis=0), kind="stable")


def _rank_cells(cells: NDArray[Any]) -> Array | None:
    """Return the rank of each cell within its column, 0 to 1, the same for ties; None if some are not numbers.

    True ranks above False, also if the table holds them as text.
    """
    if {str(cell) for cell in cells} <= {"False", "True"}:
        cells = np.array([str(cell) == "True" for cell in cells])
    numbers = _as_numbers(cells)
    if numbers is None:
        return None
    distinct, ranks = np.unique(numbers, return_inverse=True)
    shares: Array = ranks / max(1, len(distinct) - 1)
    return shares


def _as_numbers(cells: NDArray[Any]) -> Array | None:
    """Return the cells of a column of numbers; None for any other column."""
    try:
        return cells.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _stack(values: Array, width: float) -> Array:
    """Return the sideways offset of each point, within ±0.4, that places points of similar values side by side."""
    bins = np.floor((values - values.min(initial=0.0)) / width * BINS).astype(np.int64)
    aside = np.zeros(len(values))
    for number in np.unique(bins):
        members = np.flatnonzero(bins == number)
        # 0, +1, −1, +2, −2 … in the order of the rows
        turns = np.arange(len(members))
        aside[members] = np.where(turns % 2 == 1, (turns + 1) // 2, -(turns // 2))
    furthest = np.abs(aside).max(initial=0.0)
    return aside * min(0.06, 0.4 / furthest) if furthest else aside


def _find_column(columns: ColumnValues, wanted: str | int, option: str) -> int:
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        check_index(wanted, len(columns.names), option)
        return wanted
    if wanted not in columns.names:
        raise InputError(f"there is no column {describe(wanted)}{suggest(str(wanted), columns.names, choice='it has')}")
    return columns.names.index(wanted)
