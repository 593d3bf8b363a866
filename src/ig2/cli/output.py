"""What the terminal shows: results on standard output, progress on standard error."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from rich import filesize
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from ig2.cli.streams import one_line, print_error
from ig2.verdict import Finding, advise_typing, say

INDENT = 2
MOST_BARS = 12  # that are visible; a terminal of 24 lines has room for them
FIRST_LINE = 2.0  # seconds before a log gets its first line: most commands have ended by then
BETWEEN_LINES = 10.0  # seconds at least, and a tenth of the time so far: ten hours are 60 lines
MOST_BETWEEN_LINES = 600.0


def open_console(stderr: bool = False) -> Console:
    """Return a console for results, or for progress."""
    return Console(stderr=stderr, highlight=False)


def name_command() -> str:
    """Return what a shell finds this command by, so that a line with it can be pasted."""
    if shutil.which("ig2"):
        return "ig2"
    started = Path(sys.argv[0])
    return shlex.quote(str(started)) if started.name == "ig2" else f"{shlex.quote(sys.executable)} -m ig2"


def print_heading(console: Console, text: object, rest: str = "") -> None:
    """Print a bold line, and what follows it."""
    line = Text.assemble((one_line(text), "bold"), f"  {one_line(rest)}" if rest else "")
    console.print(line, soft_wrap=not console.is_terminal)


def print_line(console: Console, label: str, text: str, width: int, *, fold: bool = True) -> None:
    """Print a label and a text, folded below itself on a terminal and on one line anywhere else."""
    text, before = one_line(text) if fold else text, INDENT + width
    if fold and console.is_terminal and console.width - before >= 20:
        text = f"\n{' ' * before}".join(textwrap.wrap(text, console.width - before, break_long_words=False))
    console.print(Text.assemble(" " * INDENT, (f"{label:<{width}}", "dim"), text), soft_wrap=True)


def print_verdict(
    console: Console, label: str, findings: Sequence[Finding], width: int, finer: int | None, noun: str = "input"
) -> None:
    """Print how far a method can be believed, and what to type if not far; `finer` are more steps for one that takes steps."""
    advice = advise_typing(findings, finer)
    print_line(console, label, ": ".join(filter(None, (say(findings, noun), advice))), width)


def print_path(console: Console, label: str, path: Path, width: int) -> None:
    """Print where a file is: never folded, so that it can be copied."""
    link = f"link {path.absolute().as_uri()}"
    console.print(Text.assemble((f"{label:<{width}}", "dim"), (one_line(path), link)), soft_wrap=True)


# -- progress ----------------------------------------------------------------------------------------------------------


class _Amount(ProgressColumn):
    """How much is done, of how much."""

    def __init__(self, format: Callable[[int], str]) -> None:
        self.format = format
        super().__init__()

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text()
        return Text(f"{self.format(int(task.completed))}/{self.format(int(task.total))}", "green")


class _TimeLeft(ProgressColumn):
    max_refresh = 0.5  # more often it would flicker

    def render(self, task: Task) -> Text:
        end = task.fields.get("end")
        left = task.time_remaining if end is None else end - time.monotonic()
        return Text() if task.finished or left is None or left < 1 else Text(f"{timedelta(seconds=int(left))} left", "cyan")


class Watch(Protocol):
    """Called with what begins, and how far it is if that is known; returns a function of (done, total) to report progress."""

    def __call__(
        self, what: str, done: int = 0, total: int | None = None, left: float | None = None
    ) -> Callable[[int, int | None], None]: ...


@contextmanager
def show_progress(quiet: bool, *, keep: bool = False, in_bytes: bool = False) -> Iterator[Watch]:
    """Show a bar with what is being done, how much of it, the time it took and the time left.

    Anywhere but on a terminal, that is printed in a line now and then.
    What a model prints meanwhile goes to standard error too: standard output is for the result.

    Args:
        quiet: show nothing.
        keep: give everything that begins a bar of its own, below those before; otherwise there is one bar.
        in_bytes: whether the numbers are bytes.
    """
    console = open_console(stderr=True)
    label = TextColumn("{task.description:>24}", markup=False)
    facts = (_Amount(filesize.decimal if in_bytes else str), TimeElapsedColumn(), _TimeLeft())
    no_bar = quiet or not console.is_terminal
    with (
        Progress(label, BarColumn(), *facts, console=console, transient=True, disable=no_bar) as progress,
        _print_lines(progress, (label, *facts)) if no_bar and not quiet else nullcontext(),
        redirect_stdout(sys.stderr),
    ):

        def watch(
            what: str, done: int = 0, total: int | None = None, left: float | None = None
        ) -> Callable[[int, int | None], None]:
            if keep or not progress.tasks:
                for older, task in zip(reversed(range(len(progress.tasks))), progress.tasks, strict=True):
                    full = task.total or 1
                    progress.update(task.id, total=full, completed=full, visible=older < MOST_BARS)
                progress.add_task("", total=None)
            task = progress.tasks[-1]
            task.total, task.finished_time = total, None  # update() would keep both
            end = None if left is None else time.monotonic() + left
            progress.update(task.id, description=one_line(what), completed=done, end=end, refresh=left is not None)
            return lambda done, total: progress.update(task.id, completed=done, total=total)

        yield watch


@contextmanager
def _print_lines(progress: Progress, columns: Sequence[ProgressColumn]) -> Iterator[None]:
    """Print the newest task into a log: soon after the start, more and more rarely, and at the end."""
    began, ended, printed = time.monotonic(), threading.Event(), False

    def print_lines() -> None:
        nonlocal printed
        pause = FIRST_LINE
        while not ended.wait(pause):
            texts = [str(column.render(task)).strip() for task in progress.tasks[-1:] for column in columns]
            print_error(", ".join(filter(None, texts)) or "working")
            printed = True
            pause = min(max(BETWEEN_LINES, (time.monotonic() - began) / 10), MOST_BETWEEN_LINES)

    thread = threading.Thread(target=print_lines, name="ig2-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if printed:
        print_error(f"finished after {timedelta(seconds=round(time.monotonic() - began))}")


def ignore_progress(
    what: str, done: int = 0, total: int | None = None, left: float | None = None
) -> Callable[[int, int | None], None]:
    """Return the watch of parts of something whose progress is shown as a whole."""
    return lambda done, total: None


def report_rate(watch: Watch) -> Callable[[int, int], None]:
    """Return a function of (done, total) that shows the items a second of this run."""
    began: list[tuple[float, int]] = []

    def report(done: int, total: int) -> None:
        began.append((time.monotonic(), done)) if not began else None
        seconds, items = time.monotonic() - began[0][0], done - began[0][1]
        rate = items / seconds if items and seconds else 0.0
        watch(f"{rate:.3g} items/s" if rate else "explaining", done, total, (total - done) / rate if rate else None)

    return report
