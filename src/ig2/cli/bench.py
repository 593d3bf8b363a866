"""`ig2 bench`: methods compared on data with metrics, in a table beside the paper's."""

from __future__ import annotations

import math
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid
from rich.text import Text

from ig2 import benchmarks
from ig2.adapters.loading import FUNCTION, importable_from_here, load_function
from ig2.benchmarks import Step, Table
from ig2.benchmarks.suite import ChoiceError, MethodLike
from ig2.benchmarks.table import settings_line
from ig2.cli.messages import one_line, say
from ig2.cli.recipes import Misuse
from ig2.cli.telling import INDENT, tell_path
from ig2.errors import InputError, describe

LONGEST_LABEL = 24  # of a method; a longer one is folded


@dataclass(frozen=True)
class Request:
    """What was asked for, as it was typed."""

    suite: str
    methods: str | None
    own: tuple[str, ...]
    seeds: int | None
    quick: bool
    data: Path | None
    samples: int | None
    study: str | None
    split: str | None
    seed: int
    device: str
    out: Path
    fresh: bool
    quiet: bool
    debug: bool


def run(request: Request) -> None:
    """Score, write, and show the table; what failed is in the exit code too."""
    with importable_from_here(), _bar(request.quiet) as progress, _saying_how_to_go_on(request):
        own = _own(request.own)
        names = None if request.methods is None else _names(request.methods)
        try:
            table = benchmarks.run(
                request.suite,
                names,
                own=own,
                out=request.out,
                fresh=request.fresh,
                progress=progress,
                seeds=request.seeds,
                quick=request.quick,
                data=request.data,
                samples=request.samples,
                study=request.study,
                split=request.split,  # type: ignore[arg-type]  # checked where it is used
                seed=request.seed,
                device=request.device,
            )
        except ChoiceError as error:
            raise Misuse(str(error)) from error
    show(table, request.out)
    if table.failures:
        if request.debug:
            for failure in table.failures:
                traceback.print_exception(failure.error)
        count = len(table.failures)
        say(f"{count} {'score' if count == 1 else 'scores'} could not be made, see the notes; the same command tries again")
        raise typer.Exit(1)


def _names(typed: str) -> list[str]:
    """Names between commas; those within parentheses belong to a name."""
    return [name for name in map(str.strip, re.split(r",(?![^()]*\))", typed)) if name]


def _own(typed: Sequence[str]) -> dict[str, MethodLike]:
    found: dict[str, MethodLike] = {}
    for text in typed:
        label, _, spec = text.rpartition("=")
        label = label.strip() or spec.rpartition(":")[2].rpartition(".")[2]
        if not FUNCTION.fullmatch(spec):
            raise Misuse(f"--own {text}: expected module:function, or LABEL=module:function")
        if label in found:
            raise Misuse(f"--own {text}: there are two methods {label!r}; tell them apart, LABEL=module:function")
        method = load_function(spec)
        if isinstance(method, type):  # a class of methods, with its defaults
            method = method()
        if not callable(method):
            raise InputError(f"{spec} is {describe(method)}: expected a function of (model, x, target, references, seed=...)")
        found[label] = method
    return found


@contextmanager
def _saying_how_to_go_on(request: Request) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        same = "the same command without --fresh" if request.fresh else "the same command"
        say(f"what is scored so far is kept in {request.out}: {same} goes on from there")
        raise


# -- progress ----------------------------------------------------------------------------------------------------------


class _TimeLeft(ProgressColumn):
    max_refresh = 0.5  # more often it would flicker

    def render(self, task: Task) -> Text:
        end = task.fields.get("end")
        left = 0.0 if end is None or task.finished else end - time.monotonic()
        return Text(f"{timedelta(seconds=int(left))} left" if left >= 1 else "", "cyan")


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[Step], None]]:
    """A bar over parts × methods, with what is being done, where someone is looking; what a method prints goes there too."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:>24}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        _TimeLeft(),
    )
    with (
        Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar,
        redirect_stdout(sys.stderr),
    ):
        line = bar.add_task("", total=None)

        def watch(step: Step) -> None:
            bar.update(
                line,
                description=one_line(step.now),
                completed=step.done,
                total=step.total,
                refresh=True,
                end=None if step.left is None else time.monotonic() + step.left,
            )

        yield watch


# -- the table ---------------------------------------------------------------------------------------------------------


def show(table: Table, out: Path) -> None:
    """On a terminal as a table that fits it; anywhere else in Markdown."""
    console = Console(highlight=False)
    if not console.is_terminal:
        print(table.to_markdown(), end="")
        return
    console.print(Text(one_line(table.title), "bold"))
    for metrics in _blocks(table, console.width):
        console.print(_grid(table, metrics))
    for line in table.caption():
        console.print(Text(one_line(line)))
    abouts = [(label, column.about) for label, column in table.metrics.items() if column.about]
    if abouts:
        console.print()
    for label, about in abouts:
        console.print(Text.assemble((one_line(label), "bold"), f": {one_line(about)}"))
    remarks = table.remarks()
    if remarks:
        console.print(Text("\nNotes", "bold"))
    for remark in remarks:
        console.print(Padding(Text(one_line(remark)), (0, 0, 0, INDENT), expand=False))
    console.print()
    console.print(Text(f"settings: {one_line(settings_line(table.settings))}", "dim"))
    console.print(Text(f"environment: {one_line(settings_line(table.environment))}", "dim"))
    console.print()
    for label, name in (("table", f"{table.suite}.md"), ("numbers", f"{table.suite}.json")):
        tell_path(console, label, out / name, 9)


def _blocks(table: Table, width: int) -> list[list[str]]:
    """The metrics, in as many tables as it takes for each to fit, about as many in each."""
    metrics = list(table.metrics)
    for count in range(1, len(metrics) + 1):
        size = math.ceil(len(metrics) / count)
        blocks = [metrics[start : start + size] for start in range(0, len(metrics), size)]
        if all(_width(_grid(table, block)) <= width for block in blocks):
            return blocks
    return [[metric] for metric in metrics]


def _width(grid: Grid) -> int:
    return Console(width=10_000).measure(grid).maximum


def _grid(table: Table, metrics: list[str]) -> Grid:
    """A line for each method; of each metric our figures, and the paper's where it has some."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    grid.add_column("", max_width=LONGEST_LABEL)
    columns: list[list[Text]] = [[Text(one_line(method)) for method in table.methods]]
    for metric in metrics:
        cells = [table.shown(method, metric) for method in table.methods]
        grid.add_column(
            Text(_folded(table.heading(metric), max(len(cell.ours) for cell in cells))), justify="right", no_wrap=True
        )
        columns.append([Text(cell.ours, "bold green" if cell.best else "") for cell in cells])
        if table.in_paper(metric):
            grid.add_column(Text("paper", "dim"), justify="right")
            columns.append([Text(cell.paper, "dim") for cell in cells])
    for row in zip(*columns, strict=True):
        grid.add_row(*row)
    return grid


def _folded(heading: str, width: int) -> str:
    """A long name on two lines above its figures, the arrow beside its last word."""
    name, _, arrow = one_line(heading).rpartition(" ")
    together = f"{name}\N{NO-BREAK SPACE}{arrow}"
    width = max(width, *map(len, together.split(" ")))
    while len(lines := textwrap.wrap(together, width)) > 2:
        width += 1
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
