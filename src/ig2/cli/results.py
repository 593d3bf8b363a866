"""What `ig2 explain` prints: each input's answer, how far to believe it, and where the files are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from rich.console import Console

from ig2.cli import files
from ig2.cli.answer import print_answer
from ig2.cli.options import ExplainOptions
from ig2.cli.output import INDENT, open_console, print_heading, print_line, print_path, print_verdict
from ig2.cli.pages import Explained, Pages
from ig2.cli.streams import print_error
from ig2.demo import pool
from ig2.errors import format_count, quote_names
from ig2.methods.catalogue import Entry
from ig2.modalities.base import Subject
from ig2.modalities.models import default_photos
from ig2.question import COUNT, Question
from ig2.report import InputView, SkippedView
from ig2.report.content import Index
from ig2.task import choose_against
from ig2.views import Picture

LONG = 20.0  # seconds, from which on a run's length is printed before it begins
# References for a quick look, not fewer steps: with 4, 3 and 2 of 6 the map of a photo has a rank correlation of 0.92 to 0.97,
# 0.84 to 0.94 and 0.80 to 0.88 with that of all; with half the steps, at the cost of 3, 0.79 to 0.83.
QUICK = 2
FINER = 2  # times as many steps and references
SHOWN_CLASSES = 3  # of references, in a line
SHOWN_SKIPPED = 20  # of many


def announce_cost(seconds: float, count: int) -> None:
    """Print how long a run will take, if it is long, and what is quicker."""
    if seconds < LONG:
        return
    unit, size = next((unit, size) for unit, size in (("s", 1), ("min", 60), ("h", 3600)) if seconds < 90 * size or unit == "h")
    print_error(f"about {seconds / size:.0f} {unit}" + (f"; --count {QUICK} for a quick look" if count > QUICK else ""))


def print_results(
    pages: Pages,
    index: Index,
    least: Sequence[str],
    methods: Sequence[Entry],
    question: Question,
    options: ExplainOptions,
) -> None:
    """Print each input's answer or, of many, how many there are; how far to believe it, and where the files are.

    Args:
        pages: what was explained, if it is kept.
        index: the report.
        least: the inputs that are trusted least, of many.
        methods: the methods.
        question: what was asked.
        options: as typed.
    """
    console, out = open_console(), options.out
    label = "prediction" if pages.keeps else "least trusted"
    width = INDENT + max(len(word) for word in (label, *(method.title for method in methods)))
    for part, content in pages.parts:
        for i, view in enumerate(content.inputs):
            _print_input(console, part, view, i, options.references, width, pages.scale)
            print_path(console, "  picture", out / pages.pictures[view.name], INDENT + width)
            console.print()
    if not pages.keeps:
        skipped = f", {len(index.skipped):,} skipped" if index.skipped else ""
        print_heading(console, format_count(len(index.entries), "input") + skipped)
        if least:
            print_line(console, label, ", ".join(least), width)
        console.print()
    print_heading(console, "how far to believe it")
    for method in methods:
        finer = FINER * options.steps if method.takes_rule else None
        print_verdict(console, method.title, index.verdicts[method.title], width, finer)
    if pages.keeps and any(method.takes_rule for method in methods):
        print_line(console, "finer", suggest_finer([part for part, _ in pages.parts], options), width)
    console.print()
    if index.skipped:
        print_heading(console, "skipped")
        for line in first_lines(index.skipped, SHOWN_SKIPPED):
            print_line(console, "", line, 0)
        console.print()
    own = list(files.name_numbers(methods).values()) if pages.keeps else []
    for number, name in enumerate((files.SUMMARY, *own, files.STORE)):
        print_path(console, "" if number else "numbers", out / name, INDENT + width)
    if not pages.keeps:
        print_path(console, "pictures", out / files.PICTURES, INDENT + width)
    print_path(console, "report", out / files.REPORT, INDENT + width)
    for part, _ in pages.parts[:1]:
        offer_pool(part, question)


def _print_input(
    console: Console, part: Explained, view: InputView, i: int, source: str | None, width: int, scale: float
) -> None:
    """Print the prediction for one input, what was asked, and what the first method found."""
    print_heading(console, view.name)
    print_line(console, "prediction", files.format_class(view.prediction, view.probability), width)
    print_line(console, "explained", view.asked, width)
    for shown in view.methods:
        if shown.question:  # of its own
            print_line(console, shown.name, f"explains {shown.question}", width)
    if part.contrasts:
        print_line(console, "references", describe_references(part, i, source), width)
    elif source is not None and any(call.references is not None for call in part.calls.values()):
        print_line(console, "references", source, width)  # a strategy
    print_answer(console, view, width, scale)
    for shown in view.methods:
        if isinstance(view.view, Picture) and shown.is_against:  # which a picture of strength alone does not show
            print_line(console, shown.name, f"all of it speaks against {view.target}", width)


def first_lines(skipped: Iterable[SkippedView], most: int) -> list[str]:
    """Return what is printed of inputs that were skipped: the first, and how many more there are."""
    lines = [str(view) for view in skipped]
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"and {len(lines) - most:,} more, in {files.SUMMARY} and the report"]


def _takes_pool(subject: Subject) -> bool:
    """Return whether references come from the photos of the demo, which can be fetched, and the
    model knows their classes."""
    return subject.samples is default_photos and len(pool.list_classes().intersection(subject.classes or ())) > 1


def describe_references(explanation: Explained, i: int, source: str | None) -> str:
    """Return which references an input had, and why, in a line."""
    contrast = next(iter(explanation.contrasts.values()))
    origin = f"the samples of {explanation.subject.name}" if source is None else source
    if source is None and _takes_pool(explanation.subject):
        fetched, there = "the ImageNet photos", "photos that come with packages"
        origin = fetched if pool.DATASET.is_fetched else there
    shown = list(dict.fromkeys(contrast.labels[i]))
    classes = ", ".join(shown[:SHOWN_CLASSES]) + ", …" * (len(shown) > SHOWN_CLASSES)
    return f"{len(contrast.labels[i])} from {origin} ({classes}): {contrast.why[i]}"


def offer_pool(explanation: Explained, question: Question) -> None:
    """Print how to get photos of classes that no reference is of, and that some can be fetched of."""
    subject, found = explanation.subject, explanation.attributions.values()
    if question.references is not None or not _takes_pool(subject) or pool.DATASET.is_fetched:
        return
    contrast = next(iter(explanation.contrasts.values()), None)
    if contrast is None or question.against is None:
        return
    target, wanted = next(iter(found)).target, question.against
    wanted = "next" if isinstance(wanted, str) else wanted
    rows = torch.arange(len(target))
    against = choose_against(wanted, target, explanation.scores, rows).tolist()
    lacking = [
        name
        for row, labels in zip(against, contrast.labels, strict=True)
        for name in map(subject.label, row)
        if name not in labels and name in pool.list_classes()
    ]
    if lacking:
        data = pool.DATASET
        size = sum(file.size or 0 for file in data.files) / 1e6
        print_error(
            f"for references of {quote_names(list(dict.fromkeys(lacking)), 3)}, run "
            f"ig2 data fetch {data.name} once ({len(data.files)} photos, {size:.0f} MB)"
        )


def suggest_finer(parts: Sequence[Explained], options: ExplainOptions) -> str:
    """Return the options for a finer map: more references, unless there are no more, and more steps."""
    contrasts = (contrast for part in parts for contrast in part.contrasts.values())
    had = [len(labels) for contrast in contrasts for labels in contrast.labels]
    wanted = options.count or COUNT
    count = f" --count {FINER * wanted}" if had and max(had) == wanted else ""
    return f"--steps {FINER * options.steps}{count}, for {FINER ** (2 if count else 1)} times as long"
