"""`ig2 data`: the data that suites and `ig2 explain` read, whether a folder of it is sound, and how to fetch it."""

from __future__ import annotations

import typer
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ig2._utils.datasets import DATASETS, DataSet, Survey
from ig2._utils.registry import INSTALL_BENCH, UnknownNameError, is_bench_installed
from ig2._utils.suggestions import ChoiceError
from ig2.cli.options import FetchOptions, VerifyOptions
from ig2.cli.output import INDENT, open_console, print_heading, print_line, print_path, show_progress
from ig2.cli.streams import one_line, print_error
from ig2.errors import format_count

LABELS = 12  # the width of the labels
SHOWN = 5  # groups of duplicates
MANY = 40  # classes; CelebA has as many attributes, ImageNet a thousand classes


def print_list() -> None:
    """Print every data set: what it is, how its folder looks, where it comes from, and what is used without it."""
    console = open_console()
    for number, (name, dataset) in enumerate(DATASETS.items()):
        if number:
            console.print()
        print_heading(console, name, dataset.about)
        if dataset.suites:
            print_line(console, "suite", ", ".join(dataset.suites), LABELS)
        print_line(console, "folder", dataset.layout, LABELS)
        print_line(console, "terms", dataset.terms, LABELS)
        print_line(console, "from", dataset.page, LABELS)
        if dataset.files:
            size = sum(file.size or 0 for file in dataset.files)
            unchecked = "" if all(file.sha256 for file in dataset.files) else ", some without a checksum"
            print_line(console, "fetch", f"ig2 data fetch {name} ({_format_size(size)}{unchecked})", LABELS)
        fetched = f"yes, in {dataset.folder}" if dataset.is_fetched else f"no, nothing in {dataset.folder}"
        print_line(console, "fetched", fetched, LABELS)
        print_line(console, "without it", dataset.default, LABELS)
    console.print()
    end = "A suite reads the folder named by --data: ig2 bench NAME --data FOLDER"
    if not is_bench_installed():
        end = f"The data sets of ig2 bench come {INSTALL_BENCH}"
    console.print(end, soft_wrap=not console.is_terminal)


def _find(name: str) -> DataSet:
    """Return the data set of this name.

    Raises:
        ChoiceError: if there is none.
    """
    try:
        dataset: DataSet = DATASETS[name]
    except UnknownNameError as error:
        if is_bench_installed():
            raise
        raise ChoiceError(f"{error}; those of ig2 bench come {INSTALL_BENCH}") from error
    return dataset


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


# -- verify ------------------------------------------------------------------------------------------------------------


def verify(options: VerifyOptions) -> None:
    """Read everything in a folder and print what there is; if something is broken, the exit code is 1."""
    dataset = _find(options.name)
    with show_progress(options.quiet) as watch:
        survey = dataset.survey(options.folder, watch("reading"))
    _print_survey(survey)
    if survey.problems:
        print_error(f"{options.folder} has {format_count(len(survey.problems), 'problem')}")
        raise typer.Exit(1)


def _print_survey(survey: Survey) -> None:
    console = open_console()
    print_heading(console, survey.source)
    counts = {name: count for name, count in survey.counts.items() if count}
    total, kind = (sum(counts.values()), "class") if survey.total is None else (survey.total, "label")
    console.print(f"{format_count(total, 'sample')}, {format_count(len(counts), kind)}")
    console.print()
    _print_counts(console, counts)
    empty = [name for name, count in survey.counts.items() if not count]
    if empty:
        print_line(console, "none of", ", ".join(empty), LABELS)
    console.print()
    print_line(console, "duplicates", _format_duplicates(survey), LABELS)
    print_line(console, "problems", f"{len(survey.problems):,}" if survey.problems else "none", LABELS)
    for problem in survey.problems:
        print_line(console, "", problem, INDENT)


def _print_counts(console: Console, counts: dict[str, int]) -> None:
    if len(counts) > MANY:
        ends = (min(counts.values()), max(counts.values()))
        fewest, most = (f"{end:,} ({_shorten([name for name in counts if counts[name] == end])})" for end in ends)
        print_line(console, "of each", f"{ends[0]:,}" if ends[0] == ends[1] else f"from {fewest} to {most}", LABELS)
        return
    width = max((len(f"{count:,}") for count in counts.values()), default=0)
    cells = [Text.assemble((f"{count:>{width},}", "cyan"), f"  {one_line(name)}") for name, count in counts.items()]
    if console.is_terminal:
        console.print(Padding(Columns(cells, column_first=True, padding=(0, 3)), (0, 0, 0, INDENT)))
    else:
        for cell in cells:
            console.print(Text(" " * INDENT) + cell, soft_wrap=True)


def _shorten(names: list[str]) -> str:
    return one_line(names[0]) + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def _format_duplicates(survey: Survey) -> str:
    groups = survey.duplicates
    if not groups:
        return "none"
    shown = "; ".join(" = ".join(group) for group in groups[:SHOWN])
    count = f"{sum(len(group) - 1 for group in groups):,}"
    if len(groups) <= SHOWN:
        return f"{count}: {shown}"
    return f"{count} in {len(groups):,} groups: {shown}; and {len(groups) - SHOWN:,} more groups"


# -- fetch -------------------------------------------------------------------------------------------------------------


def fetch(options: FetchOptions) -> None:
    """Download a data set, and print where it is."""
    dataset = _find(options.name)
    with show_progress(options.quiet, in_bytes=True) as watch:
        folder = dataset.fetch(options.to, lambda name, done, total: watch(name, done, total))
    console = open_console()
    print_path(console, options.name, folder, LABELS)
    print_line(console, "terms", dataset.terms, LABELS - INDENT)
    print_line(console, "check", f"ig2 data verify {options.name} {folder}", LABELS - INDENT)
