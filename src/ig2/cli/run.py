"""`ig2 run` and `ig2 status`: a whole data set into a store, and how far that is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import ig2
from ig2._utils.suggestions import ChoiceError, suggest
from ig2.cli.asking import parse_question
from ig2.cli.methods import TypedMethod, check_gradients, find_methods, find_rule
from ig2.cli.models import load_model
from ig2.cli.options import TYPED, RunCommandOptions, StatusOptions
from ig2.cli.output import INDENT, open_console, print_heading, print_line, print_path, report_rate, show_progress
from ig2.cli.streams import print_error
from ig2.errors import format_count
from ig2.groups import Groups
from ig2.metrics import Metric
from ig2.modalities.base import Subject
from ig2.modalities.loading import load_network
from ig2.modalities.modality import TENSORS, find
from ig2.modalities.text.modality import TEXTS
from ig2.runs import Cluster, Reading, Saving, Source, Store, find_source
from ig2.runs.files import PROGRESS

METRICS = {
    "insertion": "Insertion", "deletion": "Deletion", "infidelity": "Infidelity", "faithfulness": "Faithfulness",
    "monotonicity": "Monotonicity", "completeness": "Completeness",
}  # fmt: skip
WIDTH = 18  # of the labels
SHOWN = 5  # items of a list
SHOWN_ERRORS = 8  # of a kind
MOST_ERRORS = 1000  # texts of errors that are distinguished


def run(options: RunCommandOptions) -> None:
    """Explain every item of the source, and print where the store is."""
    if options.engine not in ("local", "ray"):
        raise ChoiceError(f"--engine {options.engine!r} is unknown: use local or ray")
    for name in ("workers", "gpus_per_worker", "address"):
        if options.engine == "local" and getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise ChoiceError(f"--{option} is for a run with Ray: add --engine ray, or omit it")
    if options.lm is None and options.precision is not None:
        raise ChoiceError("--precision is for a language model: name one with --lm, for example --lm smollm2")
    source = find_source(options.source, id=options.id, label=options.label, skip=options.out)
    with show_progress(options.quiet) as watch:
        watch("model")
        load = _load_model if options.lm is None else _load_language
        model, method = load(options, source)
        saving = Saving(
            parse_values(options.values),
            options.gradcf,
            options.per_reference,
            _find_metrics(options.metrics),
            command={name: getattr(options, name) for name in TYPED} | {"method": method.name},
        )
        reading = Reading(
            column=options.column,
            batch=options.batch,
            readers=options.readers,
            processes=False if options.read_by_threads else None,
            retry_failed=options.retry_failed,
        )
        cluster = Cluster(options.workers or 2, options.gpus_per_worker or 0.0, options.address)
        try:
            store = ig2.run(
                source,
                model,
                method,
                options.out,
                parse_question(options, model),
                saving,
                reading,
                device=options.device,
                cluster=cluster if options.engine == "ray" else None,
                progress=report_rate(watch),
            )
        except KeyboardInterrupt:
            print_error("finished items are stored: the same command resumes")
            raise
    print_store(store)


def _load_model(options: RunCommandOptions, source: Source) -> tuple[Any, TypedMethod]:
    """Load a model and find the method for it."""
    name = options.method or "ig2"
    model = _load(options, source)
    subject = model if isinstance(model, Subject) else None
    (entry,) = find_methods([name], None if subject is None else subject.modality)
    find_rule(options.rule, [entry])
    if subject is not None:
        check_gradients([entry], subject)
    return model, TypedMethod(name, options.steps, options.rule)


def _load_language(options: RunCommandOptions, source: Source) -> tuple[Any, TypedMethod]:
    """Load a language model and find the method for it."""
    from ig2 import modalities
    from ig2.cli.language import TypedPromptMethod

    for part in ("model", "size", "bounds", "mean", "std", "classes"):
        if getattr(options, part) is not None:
            raise ChoiceError(f"--{part} does not apply to a language model: omit it")
    assert options.lm is not None
    name = options.method or type(modalities.language.LanguageModel.default_method).__name__.lower()
    find_rule(options.rule, find_methods([name], TEXTS))
    prepare = True if options.precision is None else ig2.Preparation(precision=options.precision)
    model = modalities.language.load(options.lm, prepare=prepare)
    return model, TypedPromptMethod(name, options.steps, options.rule)


def print_status(options: StatusOptions) -> None:
    """Print how far a store is."""
    print_store(ig2.open(options.store), details=True)


def print_store(store: Store, details: bool = False) -> None:
    """Print how many items are done, which failed and why, and how long the rest will take."""
    console, progress, fingerprint = open_console(), store.progress, store.manifest["fingerprint"]
    gone = round(progress.get("gone", 0))
    total, done, rate = round(progress.get("total", 0)), len(store) - gone, progress.get("rate", 0)
    failures = store.failures
    print_heading(console, f"{done:,} of {total:,} items", f"{sum(failures.values()):,} failed" if failures else "")
    for kind, text in describe_failures(store):
        print_line(console, kind, text, WIDTH)
    if gone:
        print_line(console, "gone", f"{format_count(gone, 'row')} of items that are no longer in the source", WIDTH)
    if rate > 0:
        left = f"; {_format_seconds((total - done) / rate)} left" if done < total else ""
        print_line(console, "speed", f"{rate:.3g} items/s{left}", WIDTH)
    if details and done < total:  # a run that was killed says nothing more
        age = time.time() - (store.folder / PROGRESS).stat().st_mtime
        print_line(
            console,
            "last written",
            f"{_format_seconds(max(0.0, age))} ago; if the run stopped, the same command resumes it",
            WIDTH,
        )
    if details:
        for name in ("method", "model", "source"):
            content = fingerprint.get(name)
            parts = content if isinstance(content, dict) else {"": content}
            plain = {
                key: value
                for key, value in parts.items()
                if isinstance(value, (str, int, float)) and not isinstance(value, bool) and not key.endswith("digest")
            }
            if name == "method" and "name" in plain:  # as the command line names it
                plain.pop("type", None)
            print_line(console, name, ", ".join(f"{key} {value}" for key, value in plain.items()), WIDTH)
    aggregates = store.aggregates
    if aggregates.rows:
        for name in ("trust", "relative_residual"):
            low, middle, high = (aggregates.quantile(name, share) for share in (0.1, 0.5, 0.9))
            if middle == middle:
                label = name.replace("relative_", "")
                spread = f" (80 % between {low:.3g} and {high:.3g})" if low < high else ""
                print_line(console, label, f"{middle:.3g}{spread}", WIDTH)
        for name in ("least_trusted", "largest_residuals") if details else ():
            extremes = aggregates.extremes.get(name, ())[:SHOWN]
            if name == "largest_residuals":  # none is large where all are zero, as those of complete methods
                extremes = [(value, identity) for value, identity in extremes if value]
            entries = [f"{identity} ({value:.3g})" for value, identity in extremes]
            if entries:
                print_line(console, name.replace("_", " "), ", ".join(entries), WIDTH)
    print_path(console, "store", store.folder, INDENT + WIDTH)


def describe_failures(store: Store) -> list[tuple[str, str]]:
    """Return the kinds of errors with how many items have each and one of them; those that differ in names and numbers only
    are one."""
    counts: dict[tuple[str, str], int] = {}
    examples: dict[tuple[str, str], str] = {}
    for row in store.where("error is not None").iterate(["id", "error_kind", "error"]) if store.failures else ():
        kind, error = str(row["error_kind"]), str(row["error"])
        key = kind, re.sub(r"\d+", "0", error.replace(row["id"], ""))
        key = key if key in counts or len(counts) < MOST_ERRORS else (kind, "")
        counts[key] = counts.get(key, 0) + 1
        examples.setdefault(key, f"{row['id']}: {error}")
    lines: list[tuple[str, str]] = []
    for kind in sorted({kind for kind, _ in counts}):
        keys = sorted((key for key in counts if key[0] == kind), key=lambda key: -counts[key])
        lines += [
            (kind, f"{counts[key]:,}, such as {examples[key]}" if counts[key] > 1 else examples[key])
            for key in keys[:SHOWN_ERRORS]
        ]
        rest = sum(counts[key] for key in keys[SHOWN_ERRORS:])
        lines += [(kind, f"{rest:,} with other errors")] if rest else []
    return lines


# -- what was typed ----------------------------------------------------------------------------------------------------


def _load(options: RunCommandOptions, source: Source) -> Any:
    """Load the model: for sources that may be several things, it decides what they are."""
    network = load_network(options.model, trust=options.trust) if options.model is not None and len(source.kinds) > 1 else None
    if isinstance(network, Subject) and not any((options.size, options.bounds, options.mean, options.std, options.classes)):
        return network
    if network is not None and TENSORS.name in source.kinds:
        return network
    modality = network.modality if isinstance(network, Subject) else find(source.kinds[0])
    return load_model(options, modality, [Path(options.source)])


def parse_values(wanted: str | None) -> Any:
    """Return what to keep of the values: "grid:14" is a grid of 14 × 14, "superpixels:50" about fifty regions.

    Raises:
        ChoiceError: for anything else.
    """
    name, colon, number = (wanted or "").partition(":")
    pooled: dict[str, Callable[[int], Groups]] = {"grid": lambda side: ig2.Grid(side, side), "superpixels": ig2.Superpixels}
    if name in pooled and (not colon or number.isdecimal()):
        return pooled[name](int(number or (14 if name == "grid" else 50)))
    if wanted is not None and wanted not in ("float32", "float16", "units", "view", "none"):
        raise ChoiceError(
            f"--values {wanted!r} is unknown: choose one of float32, float16, units, view, grid:14, superpixels:50, none"
        )
    return wanted


def _find_metrics(wanted: str | None) -> dict[str, Metric]:
    names = [name.strip() for name in (wanted or "").split(",") if name.strip()]
    for name in names:
        if name not in METRICS:
            raise ChoiceError(f"there is no metric {name!r} for a run{suggest(name, METRICS)}")
    return {name: getattr(ig2.metrics, METRICS[name])() for name in names}


def _format_seconds(seconds: float) -> str:
    return str(timedelta(seconds=round(min(seconds, 1e9))))
