"""`ig2 data`: which data suites read, whether a folder of it is sound, and getting what may be fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from ig2.benchmarks.datasets import DATASETS, DataSet, Reading, Survey
from ig2.cli.messages import one_line, say
from ig2.cli.recipes import Misuse
from ig2.cli.telling import INDENT, tell_line, tell_path
from ig2.errors import InputError, counted

LABELS = 12  # the width of what stands before a line
SHOWN = 5  # groups of samples that are the same
MANY = 40  # classes; CelebA has as many attributes, ImageNet a thousand classes


def _find(name: str) -> DataSet:
    try:
        dataset: DataSet = DATASETS[name]
        return dataset
    except InputError as error:
        raise Misuse(str(error)) from error


# -- list --------------------------------------------------------------------------------------------------------------


def show_list() -> None:
    """Every data set: what it is, how its folder looks, where it comes from, and what stands in for it."""
    console = Console(highlight=False)
    for number, known in enumerate(DATASETS.values()):
        if number:
            console.print()
        console.print(Text.assemble((known.name, "bold"), f"  {known.about}"), soft_wrap=not console.is_terminal)
        tell_line(console, "suite", ", ".join(known.suites), LABELS)
        tell_line(console, "folder", known.layout, LABELS)
        tell_line(console, "terms", known.terms, LABELS)
        tell_line(console, "from", known.page, LABELS)
        if known.files:
            size = sum(file.size or 0 for file in known.files)
            unchecked = "" if all(file.sha256 for file in known.files) else ", no checksum known for some"
            tell_line(console, "fetch", f"ig2 data fetch {known.name} ({_bytes(size)}{unchecked})", LABELS)
        tell_line(console, "here", f"yes, in {known.folder}" if known.is_there else f"no, nothing in {known.folder}", LABELS)
        tell_line(console, "without it", known.default, LABELS)
    console.print()
    console.print("A suite reads the folder it is given: ig2 bench NAME --data FOLDER", soft_wrap=not console.is_terminal)


def _bytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


# -- verify ------------------------------------------------------------------------------------------------------------


def verify(name: str, folder: Path, quiet: bool) -> None:
    """Read everything, and say what there is; what is broken is in the exit code too."""
    wanted = _find(name)
    with _counting(quiet) as watch:
        survey = wanted.survey(folder, watch)
    _show(survey)
    if survey.problems:
        count = len(survey.problems)
        say(f"{folder} has {count:,} {'problem' if count == 1 else 'problems'}")
        raise typer.Exit(1)


@contextmanager
def _counting(quiet: bool) -> Iterator[Reading]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        line = bar.add_task("reading", total=None)
        yield lambda done, total: bar.update(line, completed=done, total=total)


def _show(survey: Survey) -> None:
    console = Console(highlight=False)
    console.print(Text(one_line(survey.source), "bold"), soft_wrap=not console.is_terminal)
    there = {name: count for name, count in survey.counts.items() if count}
    total, kind = (sum(there.values()), "class") if survey.total is None else (survey.total, "label")
    console.print(f"{counted(total, 'sample')}, {counted(len(there), kind)}")
    console.print()
    _show_counts(console, there)
    empty = [name for name, count in survey.counts.items() if not count]
    if empty:
        tell_line(console, "none of", ", ".join(empty), LABELS)
    console.print()
    tell_line(console, "twice", _repeated(survey), LABELS)
    tell_line(console, "problems", f"{len(survey.problems):,}" if survey.problems else "none", LABELS)
    for problem in survey.problems:
        tell_line(console, "", problem, INDENT)


def _show_counts(console: Console, there: dict[str, int]) -> None:
    if len(there) > MANY:
        ends = (min(there.values()), max(there.values()))
        fewest, most = (f"{count:,} ({_such([name for name in there if there[name] == count])})" for count in ends)
        tell_line(console, "of each", f"{ends[0]:,}" if ends[0] == ends[1] else f"from {fewest} to {most}", LABELS)
        return
    width = max((len(f"{count:,}") for count in there.values()), default=0)
    cells = [Text.assemble((f"{count:>{width},}", "cyan"), f"  {one_line(name)}") for name, count in there.items()]
    if console.is_terminal:
        console.print(Padding(Columns(cells, column_first=True, padding=(0, 3)), (0, 0, 0, INDENT)))
    else:
        for cell in cells:
            console.print(Text(" " * INDENT) + cell, soft_wrap=True)


def _such(names: list[str]) -> str:
    return one_line(names[0]) + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def _repeated(survey: Survey) -> str:
    groups = survey.duplicates
    if not groups:
        return "none"
    more = f"; and {len(groups) - SHOWN:,} more groups" if len(groups) > SHOWN else ""
    extra = sum(len(group) - 1 for group in groups)
    shown = "; ".join(" = ".join(group) for group in groups[:SHOWN])
    where = f", in {len(groups):,} groups of the same" if more else ""
    return f"{extra:,} of them {'stands' if extra == 1 else 'stand'} there again{where}: {shown}{more}"


# -- fetch -------------------------------------------------------------------------------------------------------------


def fetch(name: str, to: Path | None, quiet: bool) -> None:
    """Get a data set, and say where it is."""
    wanted = _find(name)
    with _downloading(quiet) as progress:
        folder = wanted.fetch(to, progress)
    console = Console(highlight=False)
    tell_path(console, wanted.name, folder, LABELS)
    tell_line(console, "terms", wanted.terms, LABELS - INDENT)
    tell_line(console, "check", f"ig2 data verify {wanted.name} {folder}", LABELS - INDENT)


@contextmanager
def _downloading(quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        lines: dict[str, TaskID] = {}

        def watch(name: str, done: int, total: int | None) -> None:
            if name not in lines:
                lines[name] = bar.add_task(name)
            bar.update(lines[name], completed=done, total=total)

        yield watch
