"""`ig2 figures`: the paper's figures, each from the numbers that are stored, or computed anew."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ig2._utils.progress import ProgressOption
from ig2.benchmarks.figures import FIGURES, Made, Options, PictureFormat, Watch, make
from ig2.cli.messages import one_line, say
from ig2.cli.recipes import Misuse
from ig2.cli.telling import INDENT, tell_line
from ig2.errors import IG2Error, InputError


@dataclass(frozen=True)
class Request:
    """What was asked for, as it was typed."""

    names: tuple[str, ...]
    data: Path | None
    out: Path
    quick: bool
    fresh: bool
    seed: int
    device: str
    file_format: str
    quiet: bool
    debug: bool


def show_list() -> None:
    """Every figure and what it shows."""
    for name, figure in FIGURES.items():
        typer.echo(f"{name:<{max(map(len, FIGURES))}}  {figure.about}")


def run(request: Request) -> None:
    """Make the figures one after the other; what failed is in the exit code too."""
    try:
        names = list(dict.fromkeys(request.names)) or list(FIGURES)
        for name in names:
            FIGURES[name]
        if request.file_format not in get_args(PictureFormat):
            raise InputError(f"--format {request.file_format}: choose from {', '.join(get_args(PictureFormat))}")
        with _bar(request.quiet) as watch:
            options = Options(request.data, request.quick, request.seed, request.device, watch)
    except InputError as error:
        raise Misuse(str(error)) from error
    failed = 0
    console = Console(highlight=False)
    width = INDENT + max(map(len, names))
    for name in names:
        try:
            with _bar(request.quiet) as watch:
                options = Options(request.data, request.quick, request.seed, request.device, watch)
                made = make(
                    name,
                    options,
                    request.out,
                    fresh=request.fresh,
                    file_format=cast(PictureFormat, request.file_format),
                )
        except Exception as error:  # the others may go well, whatever it is
            failed += 1
            if request.debug:
                traceback.print_exception(error)
            ours = isinstance(error, IG2Error)
            say(f"{name}: {error}" if ours else f"{name}: {type(error).__name__}: {error} (--debug shows where)")
            continue
        except (KeyboardInterrupt, SystemExit):
            say(f"the figures made so far are in {request.out}: the same command goes on from there")
            raise
        _tell(console, made, width)
    if failed:
        say(f"{failed} of {len(names)} figures could not be made")
        raise typer.Exit(1)


@contextmanager
def _bar(quiet: bool) -> Iterator[Watch]:
    """One bar, with what is being done, where someone is looking."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:>32}", markup=False), BarColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress,
        redirect_stdout(sys.stderr),
    ):
        line = progress.add_task("", total=None)

        def watch(what: str) -> ProgressOption:
            progress.update(line, description=one_line(what), completed=0, total=None)
            return lambda done, total: progress.update(line, completed=done, total=total)

        yield watch


def _tell(console: Console, made: Made, width: int) -> None:
    """Where a figure is, and which data it is from: one line where nobody is looking, a few where they fold."""
    link = f"link {made.picture.absolute().as_uri()}"
    kept = "" if made.computed else " (from stored numbers)"
    told = Text.assemble((f"{made.name:<{width}}", "bold"), (one_line(made.picture), link), (kept, "dim"))
    if console.is_terminal:
        console.print(told, soft_wrap=True)
        tell_line(console, "", made.source, width - INDENT)
    else:
        console.print(told + Text(f"  {one_line(made.source)}"), soft_wrap=True)
