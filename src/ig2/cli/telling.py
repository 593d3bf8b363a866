"""What the terminal shows: progress and warnings on standard error, the result on standard output."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from ig2.cli.attributing import Explained, Watch
from ig2.cli.messages import one_line
from ig2.cli.writing import REPORT, SUMMARY, likely, numbers_of, pictures_of
from ig2.report import Content, MethodView

INDENT = 2


class _TimeLeft(ProgressColumn):
    max_refresh = 0.5  # more often it would flicker

    def render(self, task: Task) -> Text:
        if task.finished or task.time_remaining is None:
            return Text()
        return Text(f"{timedelta(seconds=int(task.time_remaining))} left", "cyan")


@contextmanager
def bars(quiet: bool) -> Iterator[Watch]:
    """A progress bar for each thing that is done, with the time left, where someone is looking.

    What a model prints meanwhile goes the same way: standard output is for the result.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:>16}"), BarColumn(), TimeElapsedColumn(), _TimeLeft())
    with (
        Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress,
        redirect_stdout(sys.stderr),
    ):

        def watch(name: str) -> Callable[[int, int], None]:
            for task in progress.tasks:
                progress.update(task.id, total=task.total or 1, completed=task.total or 1)
            line = progress.add_task(name, total=None)
            return lambda done, total: progress.update(line, completed=done, total=total)

        yield watch


# -- the result --------------------------------------------------------------------------------------------------------


def tell(explained: Explained, content: Content, out: Path) -> None:
    """What the model says of each input, how far the methods account for it, and where the files are."""
    console = Console(highlight=False)
    ruled = {recipe.title for recipe in explained.recipes if recipe.ruled}
    width = INDENT + max(len(label) for label in ("prediction", *explained.attributions))
    pictures = pictures_of(explained.batch.names, explained.subject.kind)
    for view, picture in zip(content.inputs, pictures, strict=True):
        console.print(Text(one_line(view.name), "bold"), soft_wrap=True)
        tell_line(console, "prediction", likely(view.prediction, view.probability), width)
        tell_line(console, "explained", view.target, width)
        if view.contrasted:
            tell_line(console, "against", ", ".join(view.contrasted), width)
        for method in view.methods:
            tell_line(console, method.name, verdict(method, method.name in ruled), width)
        tell_path(console, "  picture", out / picture, INDENT + width)
        console.print()
    if content.skipped:
        console.print(Text("skipped", "bold"))
        for skipped in content.skipped:
            tell_line(console, "", str(skipped), 0)
        console.print()
    for number, name in enumerate((SUMMARY, *numbers_of(explained).values())):
        tell_path(console, "" if number else "numbers", out / name, INDENT + width)
    tell_path(console, "report", out / REPORT, INDENT + width)


def verdict(method: MethodView, takes_rule: bool) -> str:
    """The residual in words, and what to type to be rid of it."""
    said, _, _ = method.verdict.partition(":")
    if "NOT" not in said:
        return method.verdict
    advice = "raise --steps, add --rule blended (for all methods), or " if takes_rule else ""
    return f"{said}: {advice}read it as a ranking"


def tell_line(console: Console, label: str, text: str, width: int) -> None:
    """A label and a text, which is folded below itself on a terminal and on one line anywhere else."""
    text, before = one_line(text), INDENT + width
    if console.is_terminal and console.width - before >= 20:
        text = f"\n{' ' * before}".join(textwrap.wrap(text, console.width - before, break_long_words=False))
    console.print(Text.assemble(" " * INDENT, (f"{label:<{width}}", "dim"), text), soft_wrap=True)


def tell_path(console: Console, label: str, path: Path, width: int) -> None:
    """Where a file is: never folded, so that it can be copied."""
    link = f"link {path.absolute().as_uri()}"
    console.print(Text.assemble((f"{label:<{width}}", "dim"), (one_line(path), link)), soft_wrap=True)
