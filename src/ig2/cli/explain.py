"""`ig2 explain`: read the inputs, attribute, write the files, print the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

import ig2
from ig2._utils.devices import find_device
from ig2.adapters.base import Batch, Contrast, Subject
from ig2.adapters.loading import load_subject
from ig2.adapters.tabular import MissingColumnsError
from ig2.adapters.text import TextBatch, TextSubject
from ig2.attribution import Attribution
from ig2.cli import files
from ig2.cli.inputs import check_exists, find_kind, read_inputs, read_references
from ig2.cli.methods import NamedMethod, find_methods, find_rule
from ig2.cli.options import ExplainOptions
from ig2.cli.output import INDENT, Watch, open_console, print_heading, print_line, print_path, show_progress
from ig2.errors import InputError, ModelError, describe
from ig2.report import Content, MethodView, SkippedView, build
from ig2.rules import Rule


def run(options: ExplainOptions) -> None:
    """Explain the inputs; the files appear in the folder once all of them are complete."""
    kind = find_kind(options.files, options.texts, options.rows)
    others = (name.strip() for name in (options.compare or "").split(","))
    methods = find_methods([options.method, *filter(None, others)], kind)
    rule = find_rule(options.rule, methods)
    skips_files = options.skip_bad and kind == "image"  # a missing file is one more that cannot be read
    for path in (*(() if skips_files else options.files), *filter(None, [options.references])):
        check_exists(path)
    with files.draft_folder(options.out) as draft, show_progress(options.quiet, keep=True) as watch:
        watch("model")
        subject = load_subject(options.model, kind, trust=options.trust).to(find_device(options.device))
        target = None if options.target == "auto" else subject.index(options.target)
        try:
            batch, skipped = read_inputs(subject, options.files, options.texts, options.rows, options.skip_bad)
        except MissingColumnsError as error:
            if options.model is not None:
                raise
            raise InputError(
                f"{error}. The default model is {subject.name}, which tells tumours apart: name your own network with --model"
            ) from error
        names = [*files.name_pictures(batch.names, kind), *files.name_numbers(methods).values()]
        files.check_replaceable(options.out, [files.REPORT, files.SUMMARY, *names])
        pool = None
        if options.references is not None:
            pool, skipped_references = read_references(subject, options.references, options.seed, options.skip_bad)
            skipped += skipped_references
        settings = {"count": options.count, "steps": options.steps, "seed": options.seed}
        explanation = attribute(subject, batch, methods, watch, target=target, pool=pool, rule=rule, **settings)
        watch("pictures")
        content = build_content(explanation, f"What {subject.name} went by", options.seed, skipped)
        files.write_files(draft, options.out, explanation, content)
    print_result(explanation, content, options.out)


@dataclass(frozen=True, eq=False)
class Explanation:
    """A batch and its attributions, by the titles of the methods."""

    subject: Subject
    batch: Batch
    methods: tuple[NamedMethod, ...]
    attributions: dict[str, Attribution] = field(default_factory=dict)
    contrasts: dict[str, Contrast] = field(default_factory=dict)


def attribute(
    subject: Subject,
    batch: Batch,
    methods: Sequence[NamedMethod],
    watch: Watch,
    *,
    target: int | None = None,
    pool: Batch | None = None,
    count: int = 6,
    steps: int = 50,
    rule: Rule | None = None,
    seed: int = 0,
) -> Explanation:
    """Run every method on the batch.

    Args:
        subject: the model.
        batch: the inputs.
        methods: the methods.
        watch: reports the progress of each.
        target: the class explained; by default the predicted one.
        pool: references to choose from; by default those that come with the model.
        count: references for each input.
        steps: steps of each path.
        rule: for the methods that take one; by default each has its own.
        seed: the seed of everything random.

    Raises:
        ModelError: if the model's answer to an input is not finite.
    """
    for name, outputs in zip(batch.names, subject.predict(batch), strict=True):
        if not outputs.isfinite().all():
            raise ModelError(f"{subject.name} returned {describe(outputs.tolist())} for {name!r}: expected finite numbers")
    contrast = None
    if any(method.contrasts for method in methods):
        watch("references")
        contrast = subject.contrast(batch, target, pool, count=count, seed=seed)
    explanation = Explanation(subject, batch, tuple(methods))
    for named in methods:
        method = named.make(subject, batch, steps, **({"rule": rule} if rule is not None and named.takes_rule else {}))
        references: Any = None
        if named.contrasts and contrast is not None:
            references = contrast.samples
            explanation.contrasts[named.title] = contrast
        elif named.has_baseline and isinstance(subject, TextSubject) and isinstance(batch, TextBatch):
            references = subject.baseline(batch)
        explanation.attributions[named.title] = method(
            subject.model,
            batch.x,
            target,
            references,
            seed=seed,
            progress=watch(named.title),
            curves=method.follows_paths,
            per_reference=method.follows_paths and named.contrasts and not isinstance(method, ig2.GradCFE),
        ).to("cpu")
    return explanation


def build_content(explanation: Explanation, title: str, seed: int, skipped: Sequence[SkippedView] = ()) -> Content:
    """Return the content of the report, with the inputs that were skipped."""
    made = f"{datetime.now():%Y-%m-%d %H:%M}"
    details = {"made": made, "ig2": ig2.__version__, "torch": torch.__version__, "seed": str(seed)}
    content = build(title, explanation.subject, explanation.batch, explanation.attributions, explanation.contrasts, details)
    return replace(content, skipped=tuple(skipped))


def print_result(explanation: Explanation, content: Content, out: Path) -> None:
    """Print each input's prediction, how far the methods account for it, and where the files are."""
    console = open_console()
    takes_rule = {method.title: method.takes_rule for method in explanation.methods}
    width = INDENT + max(len(label) for label in ("prediction", *explanation.attributions))
    pictures = files.name_pictures(explanation.batch.names, explanation.subject.kind)
    for view, picture in zip(content.inputs, pictures, strict=True):
        print_heading(console, view.name)
        print_line(console, "prediction", files.format_class(view.prediction, view.probability), width)
        print_line(console, "explained", view.target, width)
        if view.contrasted:
            print_line(console, "against", ", ".join(view.contrasted), width)
        for method in view.methods:
            print_line(console, method.name, format_verdict(method, takes_rule[method.name]), width)
        print_path(console, "  picture", out / picture, INDENT + width)
        console.print()
    if content.skipped:
        print_heading(console, "skipped")
        for skipped in content.skipped:
            print_line(console, "", str(skipped), 0)
        console.print()
    for number, name in enumerate((files.SUMMARY, *files.name_numbers(explanation.methods).values())):
        print_path(console, "" if number else "numbers", out / name, INDENT + width)
    print_path(console, "report", out / files.REPORT, INDENT + width)


def format_verdict(method: MethodView, takes_rule: bool) -> str:
    """Return the residual in words, and what to type to make it smaller."""
    verdict, _, _ = method.verdict.partition(":")
    if "NOT" not in verdict:
        return method.verdict
    advice = "raise --steps, add --rule blended (for all methods), or " if takes_rule else ""
    return f"{verdict}: {advice}read it as a ranking"
