"""`ig2 bench`: methods compared on data with metrics, in a table beside the paper's.

Its options are declared in `ig2_bench.suite.BenchOptions`, and those that every command has in `ig2.cli.options`.
"""

from __future__ import annotations

import math
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

import ig2_bench
from ig2._utils.files import find_cache
from ig2._utils.suggestions import ChoiceError
from ig2.cli.output import INDENT, open_console, print_path, show_progress
from ig2.cli.streams import one_line, print_error
from ig2.errors import InputError, describe, format_count
from ig2.modalities.loading import FUNCTION, import_from_here, load_function
from ig2.table import PAPER, settings_line
from ig2_bench import SUITES, BenchOptions, Table
from ig2_bench.cli.commands import LEADERBOARD, BenchCommandOptions
from ig2_bench.networks.checkpoint import SUFFIX
from ig2_bench.runner import Step
from ig2_bench.suite import MethodLike

LONGEST_LABEL = 24  # of a method; a longer one is folded


def print_list() -> None:
    """Print every suite, what it compares, and its studies."""
    from ig2_bench.board.leaderboard import CONTESTS

    width = max(map(len, [*SUITES, LEADERBOARD])) + 1
    indent = " " * width
    for name, suite in SUITES.items():
        typer.echo(f"{name:<{width}}{suite.about}")
        if suite.studies:
            words = f"studies: {', '.join(suite.studies)}"
            typer.echo(textwrap.fill(words, 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))
    typer.echo(f"{LEADERBOARD:<{width}}every method on every data set, each at its own scale")
    words = f"studies: {', '.join([*CONTESTS, 'factors'])}"
    typer.echo(textwrap.fill(words, 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


def run(options: BenchCommandOptions) -> None:
    """Score, write, and print the table; if a score failed, the exit code is 1."""
    if options.suite is None:
        raise ChoiceError(f"no suite was named: choose one of {', '.join([*SUITES, LEADERBOARD])}")
    if options.suite == LEADERBOARD:
        run_leaderboard(options)
        return
    with import_from_here(), _show_steps(options) as show:
        table = ig2_bench.run(
            options.suite,
            None if options.methods is None else _split_names(options.methods),
            own=_load_own(options.own),
            out=options.out,
            fresh=options.fresh,
            progress=show,
            **{part.name: getattr(options, part.name) for part in fields(BenchOptions)},
        )
    print_table(table, options.out)
    if table.failures:
        if options.debug:
            for failure in table.failures:
                traceback.print_exception(failure.error)
        print_error(f"{format_count(len(table.failures), 'score')} failed: see the notes, and retry with the same command")
        raise typer.Exit(1)


def run_leaderboard(options: BenchCommandOptions) -> None:
    """Score every method on every data set, write the files, and print the first table."""
    from ig2_bench.board import leaderboard
    from ig2_bench.board.factors import FACTORS
    from ig2_bench.board.rendering import render_overview

    options.check(LEADERBOARD, "data", "samples", "study")
    names = None if options.study is None else _split_names(options.study)
    shared = {name: getattr(options, name) for name in ("data", "samples", "quick", "seed", "device", "out", "fresh")}
    with import_from_here(), _show_steps(options) as shared["progress"]:
        if names is None or FACTORS in names:
            leaderboard.run_factors(None if names == [FACTORS] else names and [n for n in names if n != FACTORS], **shared)
        contests = None if names is None else [name for name in names if name != FACTORS]
        methods = None if options.methods is None else _split_names(options.methods)
        board = leaderboard.run_leaderboard(contests, methods, own=_load_own(options.own), **shared)
    leaderboard.write_pages(board, leaderboard.load_effects(options.out), options.out)
    typer.echo(render_overview(board))
    for name, why in board.skipped.items():
        print_error(f"{name} was skipped: {one_line(why)}")
    console = open_console()
    for label, name in (("page", "md"), ("picture", "png"), ("numbers", "json")):
        print_path(console, label, options.out / f"{LEADERBOARD}.{name}", 9)
    # once for each method, which may fail on every part alike
    failed = {f"{failure.method or failure.part}: {failure.said}": failure.error for failure in board.failures}
    if failed:
        if options.debug:
            for error in failed.values():
                traceback.print_exception(error)
        print_error(f"{format_count(len(failed), 'method')} failed (the same command retries): {'; '.join(failed)}")
        raise typer.Exit(1)


def _split_names(typed: str) -> list[str]:
    """Split at commas, except within parentheses, which belong to a name."""
    return [name for name in map(str.strip, re.split(r",(?![^()]*\))", typed)) if name]


def _load_own(typed: Sequence[str]) -> dict[str, MethodLike]:
    methods: dict[str, MethodLike] = {}
    for text in typed:
        label, _, spec = text.rpartition("=")
        label = label.strip() or spec.rpartition(":")[2].rpartition(".")[2]
        if not FUNCTION.fullmatch(spec):
            raise ChoiceError(f"--own {text}: expected module:function, or LABEL=module:function")
        if label in methods:
            raise ChoiceError(f"--own {text}: two methods are named {label!r}: label one of them, LABEL=module:function")
        method = load_function(spec)
        if isinstance(method, type):  # a class of methods, with its defaults
            method = method()
        if not callable(method):
            raise InputError(f"{spec} is {describe(method)}: expected a function of (model, x, target, references, seed=...)")
        methods[label] = method
    return methods


@contextmanager
def _show_steps(options: BenchCommandOptions) -> Iterator[Callable[[Step], None]]:
    """Yield what shows a step; where the bench is stopped, print what is stored and how to resume."""
    now, stored = "", 0
    with show_progress(options.quiet) as watch:

        def show(step: Step) -> None:
            nonlocal now, stored
            # the leaderboard's suites follow each other
            now, stored = step.now, step.stored or (stored if options.suite == LEADERBOARD else 0)
            watch(step.now, step.done, step.total, step.left)

        try:
            yield show
        except (KeyboardInterrupt, SystemExit):
            same = "the same command without --fresh" if options.fresh else "the same command"
            if stored:
                print_error(f"the scores so far are stored in {options.out}: {same} resumes from there")
            else:
                at, cache = f" ({now})" if now else "", find_cache()
                trained = f"; what was trained is kept in {cache}" if any(cache.glob(f"*{SUFFIX}")) else ""
                print_error(f"no score is stored yet{at}: {same} begins again{trained}")
            raise


# -- the table ---------------------------------------------------------------------------------------------------------


def print_table(table: Table, out: Path) -> None:
    """Print the table: on a terminal so that it fits, anywhere else in Markdown."""
    console = open_console()
    if not console.is_terminal:
        print(table.to_markdown(), end="")
        return
    console.print(Text(one_line(table.title), "bold"))
    for metrics in _split_metrics(table, console.width):
        console.print(_build_grid(table, metrics))
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
        print_path(console, label, out / name, 9)


def _split_metrics(table: Table, width: int) -> list[list[str]]:
    """Split the metrics into as few tables as fit the width, about as many in each."""
    metrics = list(table.metrics)
    for count in range(1, len(metrics) + 1):
        size = math.ceil(len(metrics) / count)
        blocks = [metrics[start : start + size] for start in range(0, len(metrics), size)]
        if all(Console(width=10_000).measure(_build_grid(table, block)).maximum <= width for block in blocks):
            return blocks
    return [[metric] for metric in metrics]


def _build_grid(table: Table, metrics: list[str]) -> Grid:
    """Build a line for each method: of each metric our scores, and the paper's figures if there are any."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    grid.add_column("", max_width=LONGEST_LABEL)
    columns = table.columns(metrics)
    for heading, cells in columns:
        if heading == PAPER:
            grid.add_column(Text(heading, "dim"), justify="right")
        else:
            width = max(len(text) for text, _ in cells)
            grid.add_column(Text(_fold_heading(heading, width)), justify="right", no_wrap=True)
    for i, method in enumerate(table.methods):
        shown = ((heading, *cells[i]) for heading, cells in columns)
        styled = (Text(text, "dim" if heading == PAPER else "bold green" if best else "") for heading, text, best in shown)
        grid.add_row(Text(one_line(method)), *styled)
    return grid


def _fold_heading(heading: str, width: int) -> str:
    """Fold a long name to two lines above its numbers, the arrow beside its last word."""
    name, _, arrow = one_line(heading).rpartition(" ")
    together = f"{name}\N{NO-BREAK SPACE}{arrow}"
    width = max(width, *map(len, together.split(" ")))
    while len(lines := textwrap.wrap(together, width)) > 2:
        width += 1
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
