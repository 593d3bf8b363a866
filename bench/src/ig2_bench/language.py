"""Tables of the studies of language models: means with 95 % intervals, compared with a rival's case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ig2_bench.board.intervals import bootstrap
from ig2_bench.markdown import format_rows

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A figure of each case: its key in the stored cases, the head of its column, and which way is better."""

    key: str
    title: str
    is_gain: bool


def render(rows: Sequence[Row], columns: Sequence[Column], digits: int, rival: str = "DeepSHAP") -> str:
    """The table in Markdown. A + or − says that a mean is better or worse than that of the rival on the same references.

    The cases are the same for all methods, so the sign goes by the 95 % interval of the mean difference; the intervals of two
    means can overlap where that of their difference excludes zero.
    """
    rivals = {row["references"]: row for row in rows if row["method"] == rival}
    lines = []
    for row in rows:
        cells = [_render_cell(row, rivals.get(row["references"]), column, digits) for column in columns]
        residual = "" if row["residual"] is None else f"{row['residual']:.1g}"
        lines.append([row["method"], row["references"], *cells, residual])
    return format_rows(["method", "references", *(column.title for column in columns), "residual"], lines)


def _render_cell(row: Row, rival: Row | None, column: Column, digits: int) -> str:
    values = [case[column.key] for case in row["cases"] if column.key in case]
    if not values:
        return ""
    mean, low, high = (f"{value:.{digits}f}" for value in bootstrap(values))
    cell = f"{mean} [{low}, {high}]"
    if rival is None:
        return cell
    gains = [one - case[column.key] for one, case in zip(values, rival["cases"], strict=True)]
    _, low_gain, high_gain = bootstrap(gains if column.is_gain else [-gain for gain in gains])
    return f"{cell} +" if low_gain > 0 else f"{cell} −" if high_gain < 0 else cell
