"""Tables of scores: a row for each method and metric, how two methods compare, and how the table is shown."""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from ig2.errors import InputError, describe, format_count

if TYPE_CHECKING:  # PyTorch is imported where it is used: the command line names suites without it
    from ig2.metrics.base import Better

Shows = Literal["sd", "se"]
NONE = "–"
PAPER = "paper"  # the heading of its figures
ARROWS: dict[Better, str] = {"higher": "↑", "lower": "↓"}
SHOWN: dict[Shows, str] = {"sd": "deviation", "se": "error"}


@dataclass(frozen=True)
class Column:
    """A column of the table: how one metric is shown."""

    better: Better
    """The better direction."""
    digits: int = 3
    """Digits shown after the point."""
    about: str = ""
    """What it measures and with which settings: a sentence below the table."""
    ranked: bool = True
    """Whether the best value is marked; False for a purely descriptive metric."""


@dataclass(frozen=True)
class Row:
    """The scores of one method on one metric."""

    method: str
    metric: str
    mean: float
    """The mean over the values that are defined; NaN if none is."""
    sd: float
    """Standard deviation of those values (of a sample: n − 1); NaN with fewer than two."""
    n: int
    """The number of defined values."""
    undefined: int
    """The number of undefined values, which are not part of the mean."""
    better: Better
    """The better direction."""
    paper: float | None
    """The paper's figure, if it has one."""
    values: tuple[float, ...] = field(default=(), repr=False, compare=False)
    """One value for each sample, or for each part; NaN if undefined. In the file to six digits."""

    @property
    def se(self) -> float:
        """Standard error of the mean; NaN with fewer than two values."""
        return self.sd / math.sqrt(self.n) if self.n > 1 else math.nan


@dataclass(frozen=True)
class Gap:
    """The improvement of one method over another on the same samples."""

    mean: float
    """The mean difference, positive if the first is better; NaN if no sample has scores of both."""
    se: float
    """Standard error of that mean; NaN with fewer than two samples."""
    n: int
    """The number of samples with scores of both."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the gap, from the normal distribution."""
        return self.mean - 1.96 * self.se, self.mean + 1.96 * self.se

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Summarise values in four numbers, by the names of `Row`."""
    defined = [value for value in values if math.isfinite(value)]
    n = len(defined)
    return {
        "mean": fmean(defined) if n else math.nan,
        "sd": stdev(defined) if n > 1 else math.nan,
        "n": n,
        "undefined": len(values) - n,
    }


@dataclass(frozen=True)
class Shown:
    """One cell of the table as text."""

    ours: str
    paper: str
    best: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreTable:
    """The scores of methods on metrics. A notebook shows it as a table."""

    title: str
    unit: str
    """The unit that each value belongs to: "sample", "seed"."""
    data: str
    """A description of the data."""
    settings: dict[str, Any]
    environment: dict[str, str]
    """Versions and machine; several if some scores are from a run elsewhere."""
    methods: dict[str, Any]
    """The parts and settings of each method, by label."""
    metrics: dict[str, Column]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    shows: Shows = "sd"
    """The number after ±: the standard deviation of the values, or the standard error of their mean."""
    ranked: bool = True
    """Whether all methods are scored on the same samples, so that their means can be compared."""

    # -- reading -------------------------------------------------------------------------------------------------------

    def row(self, method: str, metric: str) -> Row:
        """Return the scores of a method on a metric.

        Raises:
            InputError: if the table has no such row.
        """
        for row in self.rows:
            if (row.method, row.metric) == (method, metric):
                return row
        raise InputError(
            f"the table has no {describe(method)} × {describe(metric)}: its methods are {describe(list(self.methods))}"
        )

    def best(self, metric: str) -> set[str]:
        """Return the methods whose mean, as shown, no other beats; none if methods have different samples."""
        if not (self.ranked and self.metrics[metric].ranked):
            return set()
        digits = self.metrics[metric].digits
        means = {
            row.method: round(row.mean, digits) * (1 if row.better == "higher" else -1)
            for row in self.rows
            if row.metric == metric and row.n
        }
        return {method for method, mean in means.items() if mean == max(means.values())} if len(means) > 1 else set()

    def gap(self, method: str, other: str, metric: str) -> Gap:
        """Compare two methods sample by sample, over the samples with scores of both.

        Args:
            method: the label of the first method.
            other: the label of the second.
            metric: the label of the metric.

        Returns:
            The improvement of the first over the second.

        Raises:
            InputError: if their scores are not for the same samples.
        """
        first, second = self.row(method, metric), self.row(other, metric)
        if len(first.values) != len(second.values):
            raise InputError(
                f"{describe(method)} has {len(first.values)} values of {metric} and {describe(other)} {len(second.values)}: "
                "only scores of the same samples can be compared one by one"
            )
        sign = 1 if first.better == "higher" else -1
        gaps = spread([sign * (score - base) for score, base in zip(first.values, second.values, strict=True)])
        n = gaps["n"]
        return Gap(gaps["mean"], gaps["sd"] / math.sqrt(n) if n > 1 else math.nan, n)

    # -- showing -------------------------------------------------------------------------------------------------------

    def shown(self, method: str, metric: str) -> Shown:
        """Return a cell of the table as text: our mean ± standard deviation or error, and the paper's figure."""
        row, digits = self.row(method, metric), self.metrics[metric].digits
        paper = "" if row.paper is None else number(row.paper, digits)
        if not row.n:
            return Shown(NONE, paper, False)
        ours = number(row.mean, digits)
        if row.n > 1:
            ours += f" ± {number(row.sd if self.shows == 'sd' else row.se, digits)}"
        return Shown(ours, paper, method in self.best(metric))

    def columns(self, metrics: Sequence[str] | None = None) -> list[tuple[str, list[tuple[str, bool]]]]:
        """Return the columns as text: for each metric our scores, then the paper's figures if there are any.

        Args:
            metrics: the labels of the metrics; by default all.

        Returns:
            The heading of each column ("paper" for the paper's), and for each method the text and whether it is the best.
        """
        columns = []
        for metric in self.metrics if metrics is None else metrics:
            cells = [self.shown(method, metric) for method in self.methods]
            columns.append((self.heading(metric), [(cell.ours, cell.best) for cell in cells]))
            if self.in_paper(metric):
                columns.append((PAPER, [(cell.paper, False) for cell in cells]))
        return columns

    def usual_n(self, metric: str) -> int:
        """Return the number of values in the means of most methods."""
        counts = Counter(row.n for row in self.rows if row.metric == metric and row.n)
        return counts.most_common(1)[0][0] if counts else 0

    def in_paper(self, metric: str) -> bool:
        """Return whether the paper has a figure for any method shown."""
        return any(row.paper is not None for row in self.rows if row.metric == metric)

    def heading(self, metric: str) -> str:
        """Return the metric with an arrow in the better direction, if it has one."""
        column = self.metrics[metric]
        return f"{metric} {ARROWS[column.better]}" if column.ranked else metric

    def caption(self) -> list[str]:
        """Return sentences on how to read the numbers, without markup."""
        counts = {metric: self.usual_n(metric) for metric in self.metrics}
        first = next(iter(counts.values()), 0)
        others = [f"{metric}: {n}" for metric, n in counts.items() if n != first]
        over = format_count(first, self.unit) + (f" ({', '.join(others)})" if others else "")
        paper = any(self.in_paper(metric) for metric in self.metrics)
        around = f"± standard {SHOWN[self.shows]} " if max(counts.values(), default=0) > 1 else ""
        said = [
            f"Mean {around}over {over}",
            "↑ higher is better, ↓ lower",
            "the best mean is bold" if self.ranked else "rows of different samples are not to be compared",
            *(["the paper's figures stand beside ours"] if paper else []),
        ]
        return ["; ".join(said) + ".", f"Data: {self.data}"]

    def remarks(self) -> list[str]:
        """Return notes on values that are not counted, and others."""
        return [*self._incomplete(), *self.notes]

    def _incomplete(self) -> list[str]:
        """Return notes on methods whose means have fewer values than the others'."""
        metrics: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            undefined = f", {row.undefined} not defined and skipped" if row.undefined else ""
            if undefined or row.n not in (0, self.usual_n(row.metric)):
                metrics.setdefault((row.method, f"n = {row.n}{undefined}"), []).append(row.metric)
        methods: dict[str, list[str]] = {}
        for (method, said), where in metrics.items():
            methods.setdefault(f"{said} ({', '.join(where)})", []).append(method)
        everyone = len(self.methods) > 1
        between = "; " if any("," in label for label in self.methods) else ", "
        return [
            f"{'all methods' if everyone and len(who) == len(self.methods) else between.join(who)}: {said}"
            for said, who in methods.items()
        ]

    def to_markdown(self) -> str:
        """Return the whole table in Markdown, with columns aligned so that it also reads as plain text."""
        columns = self.columns()
        heads = ["method", *(escape_cell(heading) for heading, _ in columns)]
        lines = [
            [escape_cell(method), *(f"**{text}**" if best else text for text, best in (cells[i] for _, cells in columns))]
            for i, method in enumerate(self.methods)
        ]
        widths = [max(3, *(len(line[column]) for line in [heads, *lines])) for column in range(len(heads))]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        about = [f"- {_md(label)}: {_md(column.about)}" for label, column in self.metrics.items() if column.about]
        remarks = [f"- {_md(remark)}" for remark in self.remarks()]
        text = [
            f"# {_md(self.title)}",
            "\n".join(_line(line, widths) for line in [heads, rule, *lines]),
            *map(_md, self.caption()),
            *(["\n".join(about)] if about else []),
            *(["Notes:\n\n" + "\n".join(remarks)] if remarks else []),
            f"Settings: {_code(self.settings)}",
            f"Environment: {_code(self.environment)}",
        ]
        return "\n\n".join(text) + "\n"

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        left, right = ('style="text-align: left"', 'style="text-align: right; white-space: nowrap; padding-left: 1em"')
        columns = self.columns()
        lines = ["<th></th>" + "".join(f"<th {right}>{_html(heading)}</th>" for heading, _ in columns)]
        for i, method in enumerate(self.methods):
            cells = (f"<b>{text}</b>" if best else text for text, best in (column[i] for _, column in columns))
            lines.append(f"<th {left}>{_html(method)}</th>" + "".join(f"<td {right}>{cell}</td>" for cell in cells))
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        about = [f"{label}: {column.about}" for label, column in self.metrics.items() if column.about]
        below = "".join(f"<p>{_html(text)}</p>" for text in [*self.caption(), *about, *self.remarks()])
        return f'<div style="overflow-x: auto"><h4>{_html(self.title)}</h4><table>{body}</table>{below}</div>'


def number(value: float, digits: int) -> str:
    """Format a number with this many digits after the point, and no minus before a zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def settings_line(settings: Mapping[str, Any]) -> str:
    """Return names and values on one line."""
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, default=str)}" for name, value in settings.items()
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"


def _one_line(text: object) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())


def _md(text: object) -> str:
    """Return foreign text on one line, with all Markdown and HTML escaped."""
    return re.sub(r"([\\`*_\[\]~])", r"\\\1", html.escape(_one_line(text), quote=False))


def escape_cell(text: object) -> str:
    """Return `_md` of a text with bars escaped, since in a table they would begin the next cell."""
    return _md(text).replace("|", "\\|")


def _code(settings: Mapping[str, Any]) -> str:
    return f"`{_one_line(settings_line(settings)).replace('`', chr(39))}`"


def _html(text: object) -> str:
    return html.escape(_one_line(text))
