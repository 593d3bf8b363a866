"""The plan of a run: read a batch of items, explain them, and make a row of each, including those that fail."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2._utils.checks import check_count, is_number, require
from ig2._utils.files import FileError
from ig2.attribution import Attribution
from ig2.errors import IG2Warning, InputError
from ig2.groups import Groups
from ig2.methods import Grid, Method
from ig2.metrics.base import Metric, Scores
from ig2.modalities.base import Batch, Subject, find_tensor
from ig2.modalities.modality import TENSORS, Modality, Values
from ig2.model import Model
from ig2.question import Call, Inquiry, Question
from ig2.runs.aggregates import CURVE
from ig2.runs.files import FLUSH_SECONDS, PART_BYTES, arrow
from ig2.runs.pooling import label_planes, list_members, pool, pool_each
from ig2.runs.rows import REFERENCE_VALUES, Cells, Columns, Row, describe_failure, find_type
from ig2.runs.sources import Item, Source, split_label
from ig2.runs.store import EXTRA, SHAPE
from ig2.targets import Target
from ig2.task import scores
from ig2.verdict import NUMBERS

MakeMethod = Callable[[Subject | None, Batch], Method]
Finish = Callable[[], Sequence[Row]]
"""Makes the rows of items that the network has explained: pools values, writes pictures."""
OF_REFERENCES = ("reference_outputs", "reference_trust")
INTEGERS = ("label", "target", "prediction")
LARGEST = 2**63 - 1  # of them; a larger label, a hash for example, is a text
TEXTS = ("id", "error", "error_kind", "label_name", "target_name", "prediction_name", "question", "note")
SCALARS = (*NUMBERS, "spread")
COLUMNS = (
    *TEXTS, *INTEGERS, *SCALARS, *OF_REFERENCES, REFERENCE_VALUES, "reference_labels", SHAPE, "against", "units", "cells",
    "values", "regions", "gradcf", "measure",
)  # fmt: skip
"""All possible columns of a store, except metrics, their curves, and fields of the user."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """Items after reading, including those that could not be read."""

    items: list[Item]
    inputs: list[Any]
    """The model's input of each item."""
    labels: list[Any]
    failures: dict[int, Row]
    """The rows of items that could not be read or explained, by position."""
    batches: list[tuple[list[int], Batch]] | None
    """The other items in batches, with their positions; None if they are read later, before they are explained."""


@dataclass(frozen=True, eq=False)
class Saving:
    """What a store keeps of each item, and how it is written.

    Args:
        values: the form in which values are stored: "float32", "float16", "units" (a number for
            each word, column or window), "view" (as they are shown, such as summed over channels),
            a grid or regions (`ig2.Grid(14, 14)`, `ig2.Superpixels(50)`), or "none". By default
            units for texts and tables, float32 otherwise.
        gradcf: whether to store the ends of the paths, for methods that end in a counterfactual.
        per_reference: whether to store the values for each reference too, for methods that follow
            paths. The store grows with the number of references.
        metrics: the metrics to score every item with, by name or in a list.
        part_bytes: the size of a part of the store, measured as rows in memory.
        flush_seconds: the longest time before rows are written to disk.
        command: what `ig2 serve --what-if` loads the model by, kept in the store from the start:
            "model", a name as `--model` takes it, and "references", a strategy as `--references`
            takes it.

    Raises:
        InputError: if part_bytes or flush_seconds is not valid.
    """

    values: Values | Groups | None = None
    gradcf: bool = False
    per_reference: bool = False
    metrics: Mapping[str, Metric] | Sequence[Metric] = ()
    part_bytes: int = PART_BYTES
    flush_seconds: float = FLUSH_SECONDS
    command: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_count(self.part_bytes, "part_bytes")
        seconds = self.flush_seconds
        require(is_number(seconds) and seconds >= 0, "flush_seconds", seconds, "seconds, 0 or more")

    @property
    def scored(self) -> dict[str, Metric]:
        """The metrics by the names of their columns."""
        if isinstance(self.metrics, Mapping):
            return dict(self.metrics)
        return {name_metric(metric): metric for metric in self.metrics}


class Showing:
    """What a run makes of its batches besides rows, such as a page of each item; by default nothing."""

    def explain(self, batch: Batch, calls: Mapping[str, Call]) -> dict[str, Attribution]:
        """Call the methods on a batch, and return the attributions of the samples by the same names."""
        return {name: call.run() for name, call in calls.items()}

    def describe(self, batch: Batch, calls: Mapping[str, Call], attributions: Mapping[str, Attribution]) -> dict[str, Cells]:
        """Return further columns.

        Raises:
            FileError: if a file cannot be written, which ends the run, and is no fault of an item.
        """
        return {}


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that determines the rows of a run. It can be sent to other processes."""

    source: Source
    subject: Subject | None
    """The model and the data it reads, or None for a model of tensors."""
    model: Model
    method: Method | MakeMethod
    question: Question = Question()
    saving: Saving = Saving()
    column: str | None = None
    beside: Mapping[str, Method | MakeMethod] = field(default_factory=dict)
    """Further methods that explain each item; their columns end in their name."""
    showing: Showing | None = None
    is_strict: bool = False
    """Whether an item that cannot be read or explained ends the run, instead of having a row with its error."""
    _known: dict[str, Any] = field(default_factory=dict, repr=False)  # what the first batch shows

    @cached_property
    def inquiry(self) -> Inquiry | None:
        """The question, put to a model that knows its data."""
        if self.subject is None:
            return None
        return Inquiry(self.question, replace(self.subject, model=self.model))

    @property
    def modality(self) -> Modality:
        """The kind of data that the model takes."""
        return TENSORS if self.subject is None else self.subject.modality

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, items: list[Item]) -> Loaded:
        """Read items. This may run in another thread than `explain`, since it does not use the network."""
        inputs: list[Any] = [None] * len(items)
        labels: list[Any] = [item.label for item in items]
        failures: dict[int, Row] = {}
        for place, item in enumerate(items):
            try:
                content = self.source.load(item.content)
                inputs[place] = self.source.extract(content, self.modality, self.column)
                labels[place] = split_label(content) if labels[place] is None else labels[place]
            except Exception as error:  # whatever a broken file or the user's data set raises
                failures[place] = self._fail(error)
        loaded = Loaded(items, inputs, labels, failures, None)
        if not self.modality.reads_ahead:
            return loaded
        return replace(loaded, batches=self.batch(loaded, [i for i in range(len(items)) if i not in failures]))

    def batch(self, loaded: Loaded, places: list[int]) -> list[tuple[list[int], Batch]]:
        """Read inputs as one batch, or one by one if that fails, and record which of them are at fault."""
        if not places:
            return []
        try:
            return [(places, self._read([loaded.items[i].id for i in places], [loaded.inputs[i] for i in places]))]
        except Exception as error:  # as above
            failure = self._fail(error)
            if len(places) == 1:
                loaded.failures[places[0]] = failure
                return []
        alone = [pair for place in places for pair in self.batch(loaded, [place])]
        sound = [place for members, _ in alone for place in members]
        return self.batch(loaded, sound) if len(sound) < len(places) else alone

    def _read(self, ids: list[str], inputs: list[Any]) -> Batch:
        if self.subject is None:
            return Batch(tuple(ids), torch.stack(inputs))
        return self.source.read(self.subject, ids, inputs)

    def _fail(self, error: Exception) -> Row:
        """Return the row of an item at fault, unless that ends the run."""
        if self.is_strict or isinstance(error, FileError):
            raise error
        return describe_failure(error)

    # -- explaining ----------------------------------------------------------------------------------------------------

    def explain(self, loaded: Loaded, quiet: bool = True) -> Finish:
        """Run the network on items, and return a function that makes a row of each: its results, or the reason of its failure.

        Args:
            loaded: the items.
            quiet: whether to suppress warnings, which recur with every batch.

        Returns:
            A function that another thread may call, while the network explains the next items.
        """
        parts: list[tuple[list[int], Finish]] = []
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore", IG2Warning)
            sound = [place for place in range(len(loaded.items)) if place not in loaded.failures]
            batches = self.batch(loaded, sound) if loaded.batches is None else loaded.batches
            for places, batch in batches:
                self._attempt(loaded, places, batch, parts)
        return partial(self._finish, loaded, parts)

    def _finish(self, loaded: Loaded, parts: Sequence[tuple[list[int], Finish]]) -> Sequence[Row]:
        rows: dict[int, Row] = {}
        labels = [self._describe_label(label) for label in loaded.labels]
        for places, make_rows in parts:
            try:
                part_rows = make_rows()
            except Exception as error:  # of what is kept, which is the same for all of them
                loaded.failures.update(dict.fromkeys(places, self._fail(error)))
                continue
            if isinstance(part_rows, Columns) and len(part_rows) == len(loaded.items):  # none failed, in a batch that is whole
                named = {name: [label.get(name) for label in labels] for name in dict.fromkeys(itertools.chain(*labels))}
                return Columns(len(part_rows), {"id": [item.id for item in loaded.items], **named, **part_rows.columns})
            rows.update(zip(places, part_rows, strict=True))
        rows.update(loaded.failures)
        return [{"id": item.id, **labels[place], **rows[place]} for place, item in enumerate(loaded.items)]

    def _attempt(self, loaded: Loaded, places: list[int], batch: Batch, parts: list[tuple[list[int], Finish]]) -> None:
        """Explain a batch, and retry without the items at fault; one by one if these are unknown."""
        try:
            parts.append((places, self._explain(batch)))
            return
        except Exception as error:  # of one input of many, which must not end the run
            failure, named = self._fail(error), getattr(error, "rows", ())
            bad = [places[row] for row in named if row < len(places)] or (places if len(places) == 1 else [])
            loaded.failures.update(dict.fromkeys(bad, failure))
        rest = [place for place in places if place not in loaded.failures]
        for group in [rest] if len(rest) < len(places) else [[place] for place in rest]:
            for members, smaller in self.batch(loaded, group):
                self._attempt(loaded, members, smaller, parts)

    def _explain(self, batch: Batch) -> Finish:
        calls = {"": self.pose(batch)}
        calls |= {name: self.pose(batch, method) for name, method in self.beside.items()}
        calls = {name: self._place(call) for name, call in calls.items()}
        if self.showing is None:
            kept = {"per_reference": self.saving.per_reference}
            attributions = {name: call.run(**kept) for name, call in calls.items()}
        else:
            attributions = self.showing.explain(batch, calls)
        fetched = {}
        for name, attribution in attributions.items():
            prediction = self._predict(batch, attribution)
            fetched[name] = self._begin(batch, attribution, prediction, {} if name else self._score(attribution))
        own = {} if self.showing is None else self.showing.describe(batch, calls, attributions)

        def finish() -> Columns:
            columns = dict[str, Cells]()
            for name, fetch in fetched.items():
                cells = self._make_columns(batch, fetch(), calls[name], attributions[name].question)
                # of further methods what differs
                numbers = (each for each in cells if not name or each in (*NUMBERS, "values"))
                columns |= {f"{each}_{name}" if name else each: cells[each] for each in numbers}
            return Columns(len(batch), columns | own)

        return finish

    def _place(self, call: Call) -> Call:
        """Return a call of the network as it is opened, with samples on its GPU, so that results are made there."""
        device = self.model.device
        if isinstance(call.x, Tensor) and device is not None and device.type == "cuda":
            return replace(call, x=call.x.to(device, non_blocking=True))
        return call

    def _score(self, attribution: Attribution) -> dict[str, Scores]:
        metrics, seed = self.saving.scored.items(), self.question.seed
        return {name: metric(self.model, attribution, seed=seed) for name, metric in metrics}

    def _begin(
        self, batch: Batch, attribution: Attribution, prediction: Tensor | None, scored: Mapping[str, Scores]
    ) -> Callable[[], dict[str, Any]]:
        """Begin to copy what rows have of an attribution; what is kept is the same for all of them, and fails later."""
        try:
            return _begin_copy(self._measure(batch, attribution, prediction) | _read_scores(scored))
        except Exception as error:
            return partial(_raise, error)

    def _predict(self, batch: Batch, attribution: Attribution) -> Tensor | None:
        """Return the predicted classes; None if the explained output is not a class."""
        if attribution.question is not None:
            return None
        if self.question.target is None:
            return attribution.target
        outputs = scores(self.model, batch.x) if self.inquiry is None else self.inquiry.scores(batch)
        return outputs.argmax(dim=1)

    def pose(self, batch: Batch, method: Method | MakeMethod | None = None) -> Call:
        """Return the call that explains a batch, by default by the plan's method."""
        method = self.method if method is None else method
        method = method if isinstance(method, Method) else method(self.subject, batch)
        if self.inquiry is None:
            return self.question.pose(self.model, method, batch.x)
        return self.inquiry.pose(method, batch)

    def make_rows(self, batch: Batch, attribution: Attribution, call: Call) -> list[Row]:
        """Return the row of each item of a batch."""
        return list(Columns(len(batch), self.describe_columns(batch, attribution, call)))

    def describe_columns(self, batch: Batch, attribution: Attribution, call: Call) -> dict[str, Cells]:
        """Return the columns of a batch's rows, except metrics."""
        tensors = self._measure(batch, attribution, self._predict(batch, attribution))
        return self._make_columns(batch, _begin_copy(tensors)(), call, attribution.question)

    # -- columns -------------------------------------------------------------------------------------------------------

    def _measure(self, batch: Batch, attribution: Attribution, prediction: Tensor | None) -> dict[str, Any]:
        """Return the contents of rows, summed and pooled on the device of the attribution, so that little is copied.

        These are tensors; the note and the fields of the user can be lists.
        """
        tensors = {"target": attribution.target, **list_own_columns(attribution)}
        if prediction is not None:
            tensors["prediction"] = prediction
        if attribution.against is not None:
            tensors["against"] = attribution.against.reshape(len(batch), -1)
        tensors |= attribution.numbers
        if attribution.spread is not None:
            parts = [find_tensor(attribution, part) for part in (attribution.spread, None)]
            sizes = [part.abs().flatten(1).sum(dim=1, dtype=torch.float64) for part in parts]
            tensors["spread"] = sizes[0] / sizes[1]
        if self.saving.gradcf:
            if attribution.gradcf is None:
                raise InputError("the method ends in no counterfactual: omit gradcf")
            tensors["gradcf"] = find_tensor(attribution, attribution.gradcf)
        if self.saving.values == "none":
            return tensors
        tensors["values"] = self._shrink(batch, find_tensor(attribution, None))
        if self.saving.per_reference and attribution.per_reference is not None:
            each = find_tensor(attribution, attribution.per_reference)
            shrunk = self._shrink(batch, each.flatten(0, 1))
            tensors[REFERENCE_VALUES] = shrunk.reshape(*each.shape[:2], *shrunk.shape[1:])
            outputs = {"reference_outputs": attribution.baseline_outputs, "reference_trust": attribution.trust}
            tensors |= {name: tensor for name, tensor in outputs.items() if tensor is not None}
        return tensors

    def _shrink(self, batch: Batch, values: Tensor) -> Tensor:
        """Reduce values in the shape of the inputs to the numbers that rows require, as far as possible on the device."""
        if isinstance(self.saving.values, Grid):
            return pool(self._list_members(self.saving.values, batch.attributed, values.device), values)
        if self.saving.values in ("float32", "float16"):
            return values.to(torch.float16 if self.saving.values == "float16" else torch.float32)
        return values  # the rest needs words, or each image

    def _list_members(self, grid: Grid, samples: Tensor, device: torch.device) -> Tensor:
        """Return the positions of each field, which are the same for all samples of a shape."""
        key = (samples.shape[1:], device)
        if self._known.get("members", (None,))[0] != key:
            self._known["members"] = key, list_members(label_planes(grid, samples[:1])[0]).to(device)
        members: Tensor = self._known["members"][1]
        return members

    def _make_columns(
        self,
        batch: Batch,
        tensors: Mapping[str, Any],
        call: Call,
        target: Target | None,
    ) -> dict[str, Cells]:
        """Return the columns of rows from the results of `_measure`."""
        columns: dict[str, Cells] = {name: cells for name, cells in tensors.items() if isinstance(cells, list)}
        tensors = {name: tensor for name, tensor in tensors.items() if name not in columns}
        columns |= {
            name: (tensor.double() if tensor.is_floating_point() else tensor).tolist()
            for name, tensor in tensors.items()
            if tensor.ndim == 1 or name == "against"
        }
        for name in ("spread", *self.saving.scored):
            if name in columns:
                columns[name] = [number if np.isfinite(number) else None for number in columns[name]]
        for name, tensor in tensors.items():
            if name in ("gradcf", *(metric + CURVE for metric in self.saving.scored)) or (
                name.startswith(EXTRA) and tensor.ndim > 1
            ):
                columns[name] = tensor.float().numpy()
        classes: Any = columns["target"]
        others: Any = columns.get("against")
        columns["question"] = call.describe(classes, others, target)
        if target is not None:
            columns["target_name"] = columns["question"]
        elif self.subject is not None:
            columns["target_name"] = [self.subject.label(label) for label in columns["target"]]
            columns["prediction_name"] = [self.subject.label(label) for label in columns["prediction"]]
        if (
            batch.units is not None and self.subject is not None and self.subject.units is None
        ):  # those of all are in the manifest
            columns["units"] = batch.units
        if batch.cells is not None:
            columns["cells"] = batch.cells
        if REFERENCE_VALUES in tensors:
            columns |= self._keep_references(batch, tensors, None if call.contrast is None else call.contrast.labels)
        return columns | self._reduce(batch, tensors["values"]) if "values" in tensors else columns

    def _keep_references(
        self, batch: Batch, tensors: Mapping[str, Tensor], labels: Sequence[Sequence[str]] | None
    ) -> dict[str, Cells]:
        """Return the values per reference, in order, with the model's prediction for it and the output at its path's end."""
        maps = [self._reduce(batch, values)["values"] for values in tensors[REFERENCE_VALUES].unbind(1)]
        rows = range(len(batch))
        numbers = [len(labels[row]) if labels is not None else len(maps) for row in rows]  # some have fewer than others
        columns: dict[str, Cells] = {
            REFERENCE_VALUES: [np.concatenate([maps[r][row].reshape(-1) for r in range(numbers[row])]) for row in rows],
            "reference_labels": [
                list(labels[row]) if labels is not None else [str(r + 1) for r in range(numbers[row])] for row in rows
            ],
        }
        for name in OF_REFERENCES:
            if name in tensors:
                columns[name] = [tensors[name][row, : numbers[row]].double().tolist() for row in rows]
        return columns

    def _reduce(self, batch: Batch, values: Tensor) -> dict[str, Cells]:
        """Return the stored form of values that `_shrink` returned."""
        if isinstance(self.saving.values, Groups):
            if isinstance(self.saving.values, Grid):
                return {"values": values.numpy().reshape(len(values), self.saving.values.rows, self.saving.values.columns)}
            return pool_each(self.saving.values, batch.attributed, values)
        if self.saving.values == "units":
            if self.subject is None or batch.units is None:
                raise InputError("units are words or columns, and these inputs have none: keep float32, or a grid")
            return {"values": [row.astype(np.float32) for row in self.subject.names(batch).sum_units(values.double())]}
        if self.saving.values == "view":
            assert self.subject is not None
            return {"values": [row.astype(np.float32) for row in self.subject.fold(batch, values.cpu().double())]}
        if batch.lengths is None:
            return {"values": values.numpy()}
        kept = [row[:length] for row, length in zip(values.numpy(), batch.lengths, strict=True)]
        return {SHAPE: [list(row.shape) for row in kept], "values": [row.reshape(-1) for row in kept]}  # without padding

    def _describe_label(self, label: Any) -> Row:
        """Return the class of an item according to the source, by number and name, as far as known."""
        if label is None or isinstance(label, (float, dict, list, tuple, Tensor, np.ndarray)):
            return {}
        classes = None if self.subject is None else self.subject.classes
        if isinstance(label, (int, np.integer)) and abs(int(label)) <= LARGEST:
            named = self.subject is not None and (classes is None or 0 <= int(label) < len(classes))
            return {"label": int(label), "label_name": self.subject.label(int(label)) if named and self.subject else None}
        if "numbers" not in self._known:  # once for all items: it takes 50 µs of a thousand classes
            pairs = [(name.lower(), number) for number, name in enumerate(classes or ())]
            self._known["numbers"] = dict(reversed(pairs))  # the first of those with one name
        numbers: dict[str, int] = self._known["numbers"]
        text = str(label)
        is_number = text.isdecimal() and len(text) < len(str(LARGEST)) and not numbers
        return {"label": numbers.get(text.lower(), int(text) if is_number else None), "label_name": text}

    # -- tables --------------------------------------------------------------------------------------------------------

    def make_schema(self, row: Row) -> Any:
        """Return the Arrow schema of the store, from its first row that has values."""
        pyarrow = arrow()
        integers, texts = pyarrow.list_(pyarrow.int64()), pyarrow.list_(pyarrow.string())
        floats = pyarrow.list_(pyarrow.float32())
        types: dict[str, Any] = {name: pyarrow.string() for name in TEXTS}
        types |= {name: pyarrow.int64() for name in INTEGERS} | {"against": integers}
        types |= {name: pyarrow.float64() for name in (*SCALARS, *self.saving.scored)}
        types |= {name + CURVE: floats for name in self.saving.scored if name + CURVE in row}
        types |= {name: texts for name in ("units", "cells") if name in row}
        ragged = SHAPE in row or "units" in row or "regions" in row
        if SHAPE in row:
            types[SHAPE] = integers
        if REFERENCE_VALUES in row:
            types |= {REFERENCE_VALUES: pyarrow.list_(pyarrow.from_numpy_dtype(row[REFERENCE_VALUES].dtype))}
            types["reference_labels"] = texts
            types |= {
                name: pyarrow.list_(pyarrow.float64()) for name in ("reference_outputs", "reference_trust") if name in row
            }
        for name in ("values", "regions", "gradcf"):
            if name in row:
                element = pyarrow.from_numpy_dtype(row[name].dtype)
                flat = name == "values" and ragged
                types[name] = pyarrow.list_(element) if flat else pyarrow.fixed_shape_tensor(element, row[name].shape)
        if "values" in types:
            types |= {f"values_{name}": types["values"] for name in self.beside}
        return pyarrow.schema(types | {name: find_type(cell) for name, cell in row.items() if name not in types})


def list_own_columns(attribution: Attribution) -> dict[str, Tensor | list[Any]]:
    """Return the columns of an attribution's note and of the fields of the user, by name."""
    own = {EXTRA + name: column for name, column in attribution.extra.items()}
    return {"note": [attribution.note] * len(attribution), **own} if attribution.note else own


def _read_scores(scored: Mapping[str, Scores]) -> dict[str, Tensor]:
    curves = {name + CURVE: scores.curves for name, scores in scored.items() if scores.curves is not None}
    return {name: scores.values for name, scores in scored.items()} | curves


def _begin_copy(contents: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    """Begin to copy results from a GPU, into memory that it writes to while it computes the next items.

    Columns with one number per item are copied together: a copy occupies the thread that launches kernels as long as a
    kernel does.

    Returns:
        A function that waits for the results, in another thread.
    """
    packs: dict[Any, dict[str, Tensor]] = {}
    tensors = {name: tensor for name, tensor in contents.items() if isinstance(tensor, Tensor)}
    for name, tensor in tensors.items():
        key = (tensor.device, tensor.is_floating_point()) if tensor.ndim == 1 else name
        packs.setdefault(key, {})[name] = tensor
    stacks = [torch.stack([*pack.values()]) if len(pack) > 1 else next(iter(pack.values()))[None] for pack in packs.values()]
    copies = [stack.to("cpu", non_blocking=True) for stack in stacks]
    devices = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
    waits = [torch.cuda.Event(blocking=True) for _ in devices]  # type: ignore[no-untyped-call]
    for wait, device in zip(waits, devices, strict=True):
        wait.record(torch.cuda.current_stream(device))

    def fetch() -> dict[str, Tensor]:
        for wait in waits:
            wait.synchronize()
        pairs = zip(packs.values(), copies, strict=True)
        return {**contents, **{name: tensor for names, copy in pairs for name, tensor in zip(names, copy, strict=True)}}

    return fetch


def _raise(error: Exception) -> dict[str, Any]:
    raise error


def name_metric(metric: Any) -> str:
    """Return the name of a metric's column, that of its class: "insertion", "max_sensitivity"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(metric).__name__).lower()
