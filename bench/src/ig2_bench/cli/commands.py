"""What can be typed after `ig2 bench` and `ig2 figures`, which `ig2` finds by their entry points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import typer

from ig2._utils.options import option
from ig2.cli.options import StoreOptions, add_command, argument, format_examples, list_option, out_option
from ig2_bench.figure import FIGURES, Options, PictureFormat
from ig2_bench.suite import SUITES, BenchOptions

LEADERBOARD = "leaderboard"

bench = typer.Typer(add_completion=False, rich_markup_mode="rich")
figures = typer.Typer(add_completion=False, rich_markup_mode="rich")


def _complete_suites(incomplete: str) -> list[str]:
    return [name for name in sorted([*SUITES, LEADERBOARD]) if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class BenchCommandOptions(BenchOptions, StoreOptions):
    """The options of `ig2 bench`; those that a suite may use are in `BenchOptions`."""

    suite: str | None = argument("The suite, or leaderboard; see [bold]--list[/bold].", "NAME", None, _complete_suites)
    show_list: bool = list_option("suites")
    methods: str | None = option(
        None,
        "The methods of the suite to compare, by name or first word, separated by commas: ig,guided,ig2. Default: all.",
        metavar="METHODS",
        panel=None,
    )
    own: tuple[str, ...] = option(
        (),
        "A method of your own to add to the table: module:function or LABEL=module:function, called with (model, x, target, "
        "references, seed=...). May be repeated.",
        metavar="FUNCTION",
        panel=None,
    )
    out: Path = out_option("ig2-bench")


@dataclass(frozen=True, kw_only=True)
class FiguresOptions(Options, StoreOptions):
    """The options of `ig2 figures`."""

    names: tuple[str, ...] = argument("The figures to draw; see [bold]--list[/bold]. Default: all.", "NAME", (), FIGURES)
    show_list: bool = list_option("figures")
    out: Path = out_option("ig2-figures")
    file_format: str = option(
        "png", "The format of the figures: png, pdf or svg.", "--format", complete=get_args(PictureFormat), panel=None
    )


BENCH_EXAMPLES = (
    "ig2 bench wafer --quick",
    "ig2 bench imagenet --data path/to/pets --study rules",
    "ig2 bench xai-bench --own mine=mymodule:attribute --methods ig,ig2",
    "ig2 bench leaderboard --data path/to/data --own mine=mymodule:attribute",
)


@add_command(bench, epilog=format_examples(BENCH_EXAMPLES))
def run_bench(options: BenchCommandOptions) -> None:
    """Compare methods by the paper's metrics, in a table beside the paper's published scores.

    Each score is stored as soon as it is computed; the same command resumes a run that was stopped.
    """
    from ig2_bench.cli.bench import print_list, run

    print_list() if options.show_list else run(options)


@add_command(figures, epilog=format_examples(("ig2 figures toy", "ig2 figures imagenet --data my-data")))
def run_figures(options: FiguresOptions) -> None:
    """Draw the paper's figures.

    The numbers behind each figure are stored beside it, so drawing it again, for example in another format, takes a second.
    """
    from ig2_bench.cli.figures import print_list, run

    print_list() if options.show_list else run(options)
