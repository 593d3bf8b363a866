"""`ig2 explain`: a small run over the inputs that were typed, whose store is shown as a page."""

from __future__ import annotations

import json
import os
import shutil
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ig2._utils.devices import find_device
from ig2._utils.digests import key_of
from ig2._utils.files import FileError, make_subfolder, name_in_errors, write_file
from ig2._utils.suggestions import ChoiceError
from ig2.cli import files
from ig2.cli.asking import parse_question
from ig2.cli.inputs import check_exists, find_modality, list_files, open_inputs
from ig2.cli.methods import TypedMethod, check_gradients, find_methods, find_rule
from ig2.cli.models import load_model
from ig2.cli.options import TYPED, ExplainOptions
from ig2.cli.output import Watch, show_progress
from ig2.cli.pages import JSON_COLUMNS, Pages, list_versions
from ig2.cli.results import announce_cost, print_results
from ig2.cli.streams import print_error
from ig2.errors import IG2Error, InputError, reason
from ig2.methods.catalogue import Entry
from ig2.modalities.base import Batch, Subject
from ig2.modalities.modality import Modality
from ig2.modalities.samples import MismatchError, SampleList
from ig2.question import Question
from ig2.report import SkippedView
from ig2.report import write as write_report
from ig2.report.content import Index, IndexEntry
from ig2.report.page import render_index
from ig2.runs.execution import run_plan
from ig2.runs.files import LOCK, MANIFEST, clean_text, find_differences, lock_store, read_manifest
from ig2.runs.manifest import make_fingerprint
from ig2.runs.plan import Plan, Saving
from ig2.runs.planning import is_source, read_pool
from ig2.runs.rows import Row
from ig2.runs.sources import Item, Reading, Source
from ig2.runs.store import Store
from ig2.runs.store import open as open_store
from ig2.verdict import NUMBERS, judge_columns

MANY = 30  # inputs: more can be stopped and resumed, and each one's details are in a file
UNFINISHED = ".unfinished"  # folder of a run of many that did not end yet, in that of its files
SETTINGS_OF_TERMINAL = ("files", "out", "quiet", "debug", "open_report", "skip_bad", "device")
LANGUAGE_ONLY = ("prompt", "rather_than", "generate", "chat", "precision")


@dataclass(frozen=True)
class Typed(Source):
    """The inputs of a command line, by their names."""

    inputs: SampleList
    states: tuple[Any, ...]
    """The size and time of each of their files."""

    def items(self) -> Iterator[Item]:
        return (Item(self.inputs.names[number], number) for number in self.inputs.chosen)

    def describe(self) -> dict[str, Any]:
        names, chosen = list(self.inputs.names), list(self.inputs.chosen)
        return {"inputs": len(chosen), "digest": key_of(self.states, names, chosen)}

    def extract(self, content: Any, modality: Modality, column: str | None) -> Any:
        return content

    def read(self, subject: Subject, ids: Sequence[str], contents: Sequence[Any]) -> Batch:
        return replace(self.inputs.read(contents), names=tuple(ids))


def run(options: ExplainOptions) -> None:
    """Explain the inputs; the files appear in the folder once all of them are complete."""
    for name in LANGUAGE_ONLY:
        if getattr(options, name):
            name = name.replace("_", "-")
            raise ChoiceError(f"--{name} is for a language model: name one with --lm, for example --lm smollm2")
    paths = list_files(options.files, options.out, options.skip_bad)
    modality = find_modality(paths, options.texts, options.rows)
    others = [name.strip() for name in (options.compare or "").split(",") if name.strip()]
    methods = find_methods([options.method or "ig2", *others], modality)
    find_rule(options.rule, methods)
    # a missing file is one more that cannot be read
    skips_files = not modality.has_many and (options.skip_bad or len(paths) > MANY)
    for name in ("scale", "at"):
        if getattr(options, name) is not None and not modality.has_places:
            raise ChoiceError(f"--{name} {getattr(options, name)} is for photos, and these are {modality.nouns}: omit it")
    for path in () if skips_files else paths:
        check_exists(path)
    with ExitStack() as stack:
        draft = stack.enter_context(files.draft_folder(options.out))
        watch = stack.enter_context(show_progress(options.quiet, keep=True))
        watch("model")
        device = find_device(options.device)
        like = [Path(options.references)] if options.references and Path(options.references).exists() else []
        subject = load_model(options, modality, [*like, *paths]).to(device)
        if options.method is None and options.rule is None and options.at is None:
            methods = find_methods([*subject.default_methods, *others], modality)
        check_gradients(methods, subject)
        question, skipped = _read_references(subject, parse_question(options, subject), options.skip_bad)
        try:
            inputs, unread = open_inputs(subject, paths, options.texts, options.rows)
            inputs = replace(inputs, names=tell_apart(inputs.names))
            is_many = len(inputs.chosen) > MANY
            if is_many or not inputs.chosen:
                check_fit(inputs)
            names = [inputs.names[number] for number in inputs.chosen]
            pictures, numbers = files.name_pictures(names, modality), list(files.name_numbers(methods).values())
            files.check_replaceable(
                options.out, [files.REPORT, files.SUMMARY, *(files.FOLDERS if is_many else (files.STORE, *pictures, *numbers))]
            )
            folder = options.out / UNFINISHED if is_many else draft
            scale = subject.scale if options.scale is None else options.scale
            pages = Pages(
                methods, dict(zip(names, pictures, strict=True)), folder, options.seed, scale, not is_many, watch, options.at,
                None if options.quiet else announce_cost,
            )  # fmt: skip
            first, *rest = (TypedMethod(entry.name, options.steps, options.rule) for entry in methods)
            plan = Plan(
                Typed(inputs, tuple(_describe_file(path) for path in inputs.files or options.files)), subject, subject.model,
                first, question,
                Saving(modality.keeps, command={name: getattr(options, name) for name in TYPED} | {"method": first.name}),
                beside={method.name: method for method in rest}, showing=pages,
                is_strict=not (is_many or options.skip_bad),
            )  # fmt: skip
            watch("references")
            store = _run(plan, options, folder, device, watch)
        except MismatchError as error:
            if options.model is not None:
                raise
            raise InputError(f"{error}. The default model is {subject.name}: name your own model with --model") from error
        watch("report")
        index = write_files(store, pages, methods, names, subject.name, (*unread, *skipped), draft, options)
    least = [] if pages.keeps else list_least_trusted(open_store(options.out / files.STORE), methods)
    print_results(pages, index, least, methods, question, options)
    if options.open_report:
        webbrowser.open((options.out / files.REPORT).absolute().as_uri())


def _read_references(subject: Subject, question: Question, skip_bad: bool) -> tuple[Question, list[SkippedView]]:
    """Return the question with the samples of its source, and which of these were skipped.

    Raises:
        InputError: if one of them cannot be read, and that is not skipped.
    """
    if not is_source(question.references):
        return question, []
    references, problems, total = read_pool(subject, question.references)
    skipped = [SkippedView(f"reference {name}", why) for name, why in problems.items()]
    if skipped and not skip_bad:
        raise InputError(f"{skipped[0]} (--skip-bad skips it)")
    looked_at = len(references) + len(skipped)
    if looked_at < total:
        why = f"references are chosen from {looked_at} of {total:,}, evenly spaced"
        skipped.append(SkippedView(f"{total - looked_at:,} {subject.modality.nouns} of the references", why))
    return replace(question, references=references), skipped


def _run(plan: Plan, options: ExplainOptions, folder: Path, device: str, watch: Watch) -> Store:
    """Explain the inputs into the store in a folder; many of them outlive an interruption.

    Raises:
        InputError: if an input is at fault, or none of many can be explained.
    """
    assert isinstance(plan.source, Typed) and isinstance(plan.showing, Pages)
    inputs, few = plan.source.inputs, plan.showing.keeps
    described = {name.name: getattr(options, name.name) for name in fields(options)}
    described = {name: _describe(value) for name, value in described.items() if name not in SETTINGS_OF_TERMINAL}
    known = {**make_fingerprint(plan, options.references), "typed": described}
    if not few:
        with name_in_errors(folder):
            done = _open_unfinished(folder, known)
        if done:
            print_error(f"resuming: {done:,} of {len(inputs.chosen):,} inputs are done")
    try:
        reading = Reading(batch=MANY if few else None)
        bar = False if few else watch("explaining")
        return run_plan(plan, known, folder / files.STORE, reading, device=device, progress=bar)
    except BaseException as error:
        if not few and not any((folder / files.STORE).rglob("*.parquet")):
            shutil.rmtree(folder, ignore_errors=True)  # there is nothing to resume
        elif not few and isinstance(error, KeyboardInterrupt):
            print_error("finished inputs are stored: the same command resumes")
        if few and isinstance(error, FileError):  # which names the draft
            raise IG2Error(f"{options.out} cannot be written to: {reason(error)}") from error
        is_one = plan.is_strict and isinstance(error, InputError) and len(inputs.chosen) > 1
        if is_one and inputs.find_bad(error, inputs.chosen):  # type: ignore[arg-type]
            raise InputError(f"{error} (--skip-bad skips it)") from error
        raise


def write_files(
    store: Store,
    pages: Pages,
    methods: Sequence[Entry],
    names: Sequence[str],
    model: str,
    skipped: Sequence[SkippedView],
    draft: Path,
    options: ExplainOptions,
) -> Index:
    """Write the report and the summary from the store, and move all that belongs to them into the draft."""
    columns = [name for name in store.columns if not name.startswith("values")]
    rows = {str(row["id"]): row for row in store.iterate(columns)}
    explained = [rows[name] for name in names if rows[name]["error"] is None]
    failed = [SkippedView(name, str(rows[name]["error"])) for name in names if rows[name]["error"] is not None]
    summaries, entries, settings = ([json.loads(row[name]) for row in explained] for name in JSON_COLUMNS)
    index = Index(
        f"What {model} went by",
        model,
        tuple(
            IndexEntry(row["id"], entry["view"], entry["target"], entry["thumbnail"], entry["file"])
            for row, entry in zip(explained, entries, strict=True)
        ),
        list_versions(options.seed),
        (*skipped, *failed),
        _judge(explained, methods),
        pages.scale,
    )
    folders = (files.STORE,) if pages.keeps else files.FOLDERS
    with files.name_folder_in_errors(options.out):
        if pages.keeps:
            pages.save(draft)
            write_report(replace(pages.join(), skipped=index.skipped), draft / files.REPORT)
        else:
            write_file(draft / files.REPORT, render_index(index).encode("utf-8", "replace"))
        files.write_summary(draft, model, summaries, index.skipped, pages.scale, settings[0], folders)
        if not pages.keeps:
            for name in folders:
                os.replace(pages.folder / name, draft / name)
            shutil.rmtree(pages.folder)
    return index


def _judge(rows: Sequence[Row], methods: Sequence[Entry]) -> dict[str, Any]:
    """Return how far each method can be believed on all inputs."""
    verdicts = {}
    for number, method in enumerate(methods):
        suffix = f"_{method.name}" if number else ""
        verdicts[method.title] = judge_columns({name: [row.get(name + suffix) for row in rows] for name in NUMBERS})
    return verdicts


def check_fit(inputs: SampleList) -> None:
    """Check by the first of many inputs that they are what the model takes; one that cannot be read is skipped later.

    Raises:
        InputError: if they are not, such as a table that lacks columns, or has no rows.
    """
    try:
        inputs.read(inputs.chosen[:1])
    except InputError as error:
        if isinstance(error, MismatchError) or not inputs.chosen:
            raise


def tell_apart(names: Sequence[str]) -> list[str]:
    """Return names as a store has them, of which none is another's: a sentence that comes again has
    its number behind it."""
    labels, seen = dict[str, None](), dict[str, int]()
    for name in map(clean_text, names):
        label = name
        while label in labels:
            seen[name] = seen.get(name, 1) + 1
            label = f"{name} ({seen[name]})"
        labels[label] = None
    return list(labels)


def _describe(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


def _describe_file(path: Path) -> tuple[str, int, int]:
    try:
        state = path.stat()
    except (OSError, ValueError):
        return str(path), 0, 0
    return str(path), state.st_size, state.st_mtime_ns


def _open_unfinished(folder: Path, run_fingerprint: dict[str, Any]) -> int:
    """Make the folder of a run ready: as it is if the run is the same, otherwise empty; return how many rows it has."""
    folders = (folder, *(folder / name for name in (files.DETAILS, files.PICTURES, files.STORE)))
    for place in folders:
        make_subfolder(place)
    store = folders[-1]
    with lock_store(store):
        try:
            if (store / MANIFEST).exists() and not find_differences(read_manifest(store)["fingerprint"], run_fingerprint):
                return len(open_store(store))
        except InputError:  # damaged
            pass
        for path in [*(folder / files.DETAILS).iterdir(), *(folder / files.PICTURES).iterdir(), *store.iterdir()]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
    return 0


def list_least_trusted(store: Store, methods: Sequence[Entry], count: int = 5) -> list[str]:
    """Return the names of the inputs that the first method with paths trusts least, with that; none where none has paths."""
    for column in ("trust", *(f"trust_{method.name}" for method in methods[1:])):
        rows = [row for row in store.iterate(["id", column]) if row[column] is not None] if column in store.columns else []
        if rows:
            least = sorted(rows, key=lambda row: float(row[column]))[:count]
            return [f"{row['id']} ({files.format_share(row[column])})" for row in least]
    return []
