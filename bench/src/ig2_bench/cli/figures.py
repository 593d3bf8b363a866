"""`ig2 figures`: the paper's figures, each from its stored numbers, or computed anew."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import cast, get_args

import typer
from rich.console import Console
from rich.text import Text

from ig2._utils.suggestions import ChoiceError, suggest
from ig2.cli.output import INDENT, open_console, print_line, show_progress
from ig2.cli.streams import one_line, print_error
from ig2.errors import IG2Error
from ig2_bench.cli.commands import FiguresOptions
from ig2_bench.figure import FIGURES, Made, PictureFormat, make


def print_list() -> None:
    """Print every figure and what it shows."""
    width = max(map(len, FIGURES))
    for name, figure in FIGURES.items():
        typer.echo(f"{name:<{width}}  {figure.about}")


def run(options: FiguresOptions) -> None:
    """Make the figures one after the other; if one fails, the exit code is 1."""
    names = list(dict.fromkeys(options.names)) or list(FIGURES)
    for name in names:
        FIGURES[name]
    formats = get_args(PictureFormat)
    if options.file_format not in formats:
        raise ChoiceError(f"there is no format {options.file_format!r} (--format){suggest(options.file_format, formats)}")
    failed = 0
    console = open_console()
    width = INDENT + max(map(len, names))
    for name in names:
        try:
            with show_progress(options.quiet) as watch:
                file_format = cast(PictureFormat, options.file_format)
                figure = make(name, replace(options, watch=watch), options.out, fresh=options.fresh, file_format=file_format)
        except Exception as error:  # the others may succeed, whatever it is
            failed += 1
            if options.debug:
                traceback.print_exception(error)
            ours = isinstance(error, IG2Error)
            print_error(f"{name}: {error}" if ours else f"{name}: {type(error).__name__}: {error} (--debug shows where)")
            continue
        except (KeyboardInterrupt, SystemExit):
            print_error(f"the figures made so far are in {options.out}: the same command resumes from there")
            raise
        _print_figure(console, figure, width)
    if failed:
        print_error(f"{failed} of {len(names)} figures could not be made")
        raise typer.Exit(1)


def _print_figure(console: Console, figure: Made, width: int) -> None:
    """Print where a figure is, and which data it is from: folded on a terminal, on one line anywhere else."""
    link = f"link {figure.picture.absolute().as_uri()}"
    stored = "" if figure.computed else " (from stored numbers)"
    line = Text.assemble((f"{figure.name:<{width}}", "bold"), (one_line(figure.picture), link), (stored, "dim"))
    if console.is_terminal:
        console.print(line, soft_wrap=True)
        print_line(console, "", figure.source, width - INDENT)
    else:
        console.print(line + Text(f"  {one_line(figure.source)}"), soft_wrap=True)
