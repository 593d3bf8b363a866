"""`ig2 explain` of many inputs: the run and the store of `ig2 run`, with a picture and a page of details for each input."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ig2
from ig2._utils.digests import code_digest, fingerprint, key_of
from ig2._utils.files import make_subfolder, name_in_errors, write_file
from ig2.cli import files
from ig2.cli.inputs import Skipped
from ig2.cli.options import ExplainOptions
from ig2.cli.output import Watch
from ig2.cli.streams import print_error
from ig2.errors import InputError, format_count
from ig2.methods.catalogue import Entry
from ig2.modalities.base import Batch, Subject
from ig2.modalities.samples import SampleList
from ig2.model import Model
from ig2.question import Question
from ig2.report import Content, SkippedView
from ig2.report.content import Index, IndexEntry
from ig2.report.encoding import encode_thumbnail
from ig2.report.page import render_details, render_index
from ig2.runs.execution import run_plan
from ig2.runs.files import LOCK, MANIFEST, find_differences, lock_store, read_manifest
from ig2.runs.manifest import describe_model
from ig2.runs.plan import Cells, Finish, Loaded, Plan, Row, Storing
from ig2.runs.sources import Item, Source
from ig2.runs.store import Store
from ig2.runs.store import open as open_store
from ig2.verdict import NUMBERS, judge_columns

if TYPE_CHECKING:
    from ig2.cli.explain import Explanation

MANY = 30  # inputs: more are a run that can be stopped and goes on, and the report reads each one's details when looked at
UNFINISHED = ".unfinished"  # folder of a run that did not end yet, in that of its files
SETTINGS_OF_TERMINAL = ("files", "out", "quiet", "debug", "open_report", "skip_bad", "device")
FILES = "files"  # of a row, on its way to the disk
JSON_COLUMNS = ("summary", "entry", "settings")


@dataclass(frozen=True)
class Inputs(Source):
    """The inputs of the command line, by their names."""

    inputs: SampleList

    def items(self) -> Iterator[Item]:
        return (Item(self.inputs.names[number], number) for number in self.inputs.chosen)

    def describe(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Explaining(Plan):
    """The plan of a run whose rows come with files for the report: all methods of a batch, and a row for each input."""

    inputs: SampleList
    explain_batch: Callable[[Batch], tuple[Explanation, Content]]
    folder: Path
    pictures: Mapping[str, str]
    """The file of each input's picture, by its name."""
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def read(self, items: list[Item]) -> Loaded:
        loaded = Loaded(items, [item.content for item in items], [None] * len(items), {}, None)
        return replace(loaded, batches=self.batch(loaded, list(range(len(items))))) if self.modality.reads_ahead else loaded

    def _read(self, ids: list[str], inputs: list[Any]) -> Batch:
        return replace(self.inputs.read(inputs), names=tuple(ids))

    def _finish(self, loaded: Loaded, parts: Sequence[tuple[list[int], Finish]]) -> Sequence[Row]:
        rows = super()._finish(loaded, parts)
        for row in rows:  # here, where a full disk ends the run, and is no fault of an input
            for path, content in row.pop(FILES, {}).items():
                write_file(path, content)
        return rows

    def _explain(self, batch: Batch, model: Model) -> Finish:
        explanation, content = self.explain_batch(batch)
        columns: dict[str, Cells] = {}
        where: dict[str, dict[str, Any]] = {}
        for method in explanation.methods:
            attribution = explanation.attributions[method.title]
            cells = self.describe_columns(batch, attribution, explanation.calls[method.title])
            suffix = f"_{method.name}" if columns else ""
            columns |= {name + suffix: cells[name] for name in cells if not suffix or name in (*NUMBERS, "values")}
            where[method.title] = {"file": files.STORE, "column": f"values{suffix}"}
        settings = {title: attribution.settings for title, attribution in explanation.attributions.items()}
        rows = []
        for i, view in enumerate(content.inputs):
            picture = self.pictures[view.name]
            details = f"{files.DETAILS}/{Path(picture).stem}.js"
            entry = {
                "view": view.view.name,
                "target": view.target,
                "thumbnail": encode_thumbnail(view.view),
                "file": details,
            }
            contents = (files.summarise_methods(explanation, content, i, f"{files.PICTURES}/{picture}", where), entry, settings)
            drawing = io.BytesIO()
            files.draw_input(view, content.scale, explanation.subject.scale).savefig(drawing, bbox_inches="tight", dpi=150)
            written = {
                self.folder / files.PICTURES / picture: drawing.getvalue(),
                self.folder / details: render_details(view, details, content.scale).encode("utf-8", "replace"),
            }
            texts = {name: json.dumps(part, default=str) for name, part in zip(JSON_COLUMNS, contents, strict=True)}
            rows.append({name: cells[i] for name, cells in columns.items()} | texts | {FILES: written})
        return lambda: rows

    def make_schema(self, row: Row) -> Any:
        schema = super().make_schema(row)
        for name in row:
            if name.startswith("values_"):
                schema = schema.set(schema.get_field_index(name), schema.field("values").with_name(name))
        return schema


def explain_many(
    options: ExplainOptions,
    subject: Subject,
    methods: Sequence[Entry],
    inputs: SampleList,
    question: Question,
    explain_batch: Callable[[Batch], tuple[Explanation, Content]],
    details: dict[str, str],
    skipped: Skipped,
    draft: Path,
    device: str,
    watch: Watch,
) -> tuple[Index, Store]:
    """Explain inputs into a store that outlives an interruption, then write the report into the draft, and move all there.

    Args:
        options: as typed.
        subject: the model.
        methods: the methods.
        inputs: what is explained.
        question: what is asked.
        explain_batch: runs the methods on a batch.
        details: for the foot of the report.
        skipped: what is known to be skipped; inputs that cannot be explained are added.
        draft: where the files of this run are collected.
        device: where the network is.
        watch: reports the progress.

    Returns:
        The report and the store, both as they lie in the draft.

    Raises:
        InputError: if none of the inputs can be explained, or another process is at work in the folder.
    """
    inputs = replace(inputs, names=tell_apart(inputs.names))
    names = [inputs.names[number] for number in inputs.chosen]
    unfinished = options.out / UNFINISHED
    storing = Storing(subject.modality.keeps)
    plan = Explaining(
        Inputs(inputs), subject, subject.model, ig2.Gradient(), question, storing, inputs=inputs, explain_batch=explain_batch,
        folder=unfinished, pictures=dict(zip(names, files.name_pictures(names, subject.modality), strict=True)),
    )  # fmt: skip
    run_fingerprint = _fingerprint(plan, options, question.references)
    with name_in_errors(unfinished):
        done = _open_unfinished(unfinished, run_fingerprint)
    if done:
        print_error(f"resuming: {done:,} of {len(names):,} inputs are done")
    try:
        store = run_plan(plan, run_fingerprint, unfinished / files.STORE, device=device, progress=watch("explaining"))
    except BaseException as error:
        if not any((unfinished / files.STORE).rglob("*.parquet")):
            shutil.rmtree(unfinished, ignore_errors=True)  # there is nothing to go on with
        elif isinstance(error, KeyboardInterrupt):
            print_error("finished inputs are stored: the same command resumes")
        raise
    watch("report")
    rows = {row["id"]: row for row in store.iterate([name for name in store.columns if not name.startswith("values")])}
    explained = [rows[name] for name in names if rows[name]["error"] is None]
    failed = [SkippedView(name, str(rows[name]["error"])) for name in names if rows[name]["error"] is not None]
    entries = [json.loads(row["entry"]) for row in explained]
    settings = json.loads(explained[0]["settings"])
    verdicts = {}
    for number, method in enumerate(methods):
        suffix = f"_{method.name}" if number else ""
        verdicts[method.title] = judge_columns({name: [row.get(name + suffix) for row in explained] for name in NUMBERS})
    parts = tuple(
        IndexEntry(row["id"], entry["view"], entry["target"], entry["thumbnail"], entry["file"])
        for row, entry in zip(explained, entries, strict=True)
    )
    title = f"What {subject.name} went by"
    scale = subject.scale if options.scale is None else options.scale
    index = Index(title, subject.name, parts, details, (*skipped, *failed), verdicts, scale)
    folders = (files.DETAILS, files.PICTURES, files.STORE)
    summaries = [json.loads(row["summary"]) for row in explained]
    with files.name_folder_in_errors(options.out):
        write_file(draft / files.REPORT, render_index(index).encode("utf-8", "replace"))
        files.write_summary(draft, subject.name, summaries, index.skipped, scale, settings, folders)
        for name in folders:
            os.replace(unfinished / name, draft / name)
        shutil.rmtree(unfinished)
    return index, open_store(draft / files.STORE)


def tell_apart(names: Sequence[str]) -> list[str]:
    """Return names of which none is another's: a sentence that comes again has its number behind it."""
    seen: dict[str, int] = {}
    labels = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        labels.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return labels


def _fingerprint(plan: Explaining, options: ExplainOptions, references: Batch | None) -> dict[str, Any]:
    """Everything that decides the rows and files: with anything else, an interrupted run is not gone on with."""
    typed = {name.name: getattr(options, name.name) for name in fields(options) if name.name not in SETTINGS_OF_TERMINAL}
    described = {
        name: value if isinstance(value, (int, float, str)) or value is None else str(value) for name, value in typed.items()
    }
    states = [(str(path), *_describe_file(Path(path))) for path in plan.inputs.files or options.files]
    return {
        "code": f"ig2 {ig2.__version__} ({code_digest()})",
        "model": describe_model(plan),
        "settings": described,
        "inputs": {"digest": key_of(states, list(plan.inputs.names), list(plan.inputs.chosen))},
        "references": {"digest": None if references is None else key_of(fingerprint(references.attributed))},
    }


def _describe_file(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return state.st_size, state.st_mtime_ns


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


def list_least_trusted(store: Store, methods: Sequence[Entry], count: int) -> list[str]:
    """Return the names of the inputs that the first method with paths trusts least, with that; none where none has paths."""
    for column in ("trust", *(f"trust_{method.name}" for method in methods[1:])):
        rows = [row for row in store.iterate(["id", column]) if row[column] is not None] if column in store.columns else []
        if rows:
            least = sorted(rows, key=lambda row: float(row[column]))[:count]
            return [f"{row['id']} ({files.format_share(row[column])})" for row in least]
    return []


def count_words(index: Index) -> str:
    """Return how many inputs were explained and skipped."""
    return format_count(len(index.entries), "input") + (f", {len(index.skipped):,} skipped" if index.skipped else "")


def first_lines(skipped: Iterable[SkippedView], most: int) -> list[str]:
    """Return what is printed of inputs that were skipped: the first, and how many more there are."""
    lines = [str(view) for view in skipped]
    return (
        lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most:,} more, in {files.SUMMARY} and the report"]
    )
