"""From samples to attributions: every method on the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import torch

import ig2
from ig2.adapters.base import Batch, Contrast, Subject
from ig2.adapters.text import TextBatch, TextSubject
from ig2.attribution import Attribution
from ig2.cli.recipes import Recipe
from ig2.errors import ModelError, describe
from ig2.report import Content, SkippedView, build
from ig2.rules import Rule

# called with what begins, gives a function to be called with (done, total)
Watch = Callable[[str], Callable[[int, int], None]]


@dataclass(frozen=True, eq=False)
class Explained:
    """One batch and what each method said of it, by the titles of the methods."""

    subject: Subject
    batch: Batch
    recipes: tuple[Recipe, ...]
    attributions: dict[str, Attribution] = field(default_factory=dict)
    contrasts: dict[str, Contrast] = field(default_factory=dict)


def attribute(
    subject: Subject,
    batch: Batch,
    recipes: Sequence[Recipe],
    watch: Watch,
    *,
    target: int | None = None,
    pool: Batch | None = None,
    count: int = 6,
    steps: int = 50,
    rule: Rule | None = None,
    seed: int = 0,
) -> Explained:
    """Run every method on the batch.

    Args:
        subject: the model.
        batch: what it read.
        recipes: the methods.
        watch: is told how far each is.
        target: the class explained; by default the one predicted.
        pool: what to contrast with; by default what comes with the model.
        count: how many references for each sample.
        steps: of each path.
        rule: for the methods that take one; by default each has its own.
        seed: of everything random.
    """
    _check_answers(subject, batch)
    contrast = None
    if any(recipe.contrasts for recipe in recipes):
        watch("references")
        contrast = subject.contrast(batch, target, pool, count=count, seed=seed)
    explained = Explained(subject, batch, tuple(recipes))
    for recipe in recipes:
        method = recipe.make(subject, batch, steps, rule if recipe.ruled else None)
        references = None
        if recipe.contrasts and contrast is not None:
            references = contrast.samples
            explained.contrasts[recipe.title] = contrast
        elif recipe.baseline and isinstance(subject, TextSubject) and isinstance(batch, TextBatch):
            references = subject.baseline(batch)
        explained.attributions[recipe.title] = method(
            subject.model,
            batch.x,
            target,
            references,
            seed=seed,
            progress=watch(recipe.title),
            curves=method.follows_paths,
            per_reference=method.follows_paths and recipe.contrasts and not isinstance(method, ig2.GradCFE),
        ).to("cpu")
    return explained


def _check_answers(subject: Subject, batch: Batch) -> None:
    """See that the model has an answer to each sample, before references are chosen by it."""
    for name, outputs in zip(batch.names, subject.predict(batch), strict=True):
        if not outputs.isfinite().all():
            raise ModelError(f"{subject.name} says {describe(outputs.tolist())} of {name!r}: it fails on it")


def content_of(explained: Explained, title: str, seed: int, skipped: Sequence[SkippedView] = ()) -> Content:
    """What the report says of them, and of the inputs that were skipped."""
    details = {
        "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        "ig2": ig2.__version__,
        "torch": torch.__version__,
        "seed": str(seed),
    }
    content = build(title, explained.subject, explained.batch, explained.attributions, explained.contrasts, details)
    return replace(content, skipped=tuple(skipped))
