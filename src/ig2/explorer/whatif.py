"""What-if questions: read a new input, predict, and explain it with the settings of a store's run."""

from __future__ import annotations

import base64
import io
import json
import re
import secrets
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ig2._engine.inputs import take_rows
from ig2.errors import InputError, describe, import_extra
from ig2.explorer.collection import Collection
from ig2.explorer.keeping import Keeper
from ig2.explorer.maps import Map, read_map
from ig2.explorer.streaming import stream
from ig2.explorer.turns import Event, Turns
from ig2.explorer.views import name_class
from ig2.methods import Method
from ig2.modalities.base import Batch, Subject
from ig2.modalities.image.photos import ImageSubject
from ig2.modalities.image.reading import read_image
from ig2.modalities.samples import Sample
from ig2.modalities.table.rows import Category, TableSubject, read_frame
from ig2.modalities.text.sentences import TextBatch
from ig2.question import COUNT, Question
from ig2.report.encoding import MAP_BITS, pack_map
from ig2.runs.files import read_kept
from ig2.runs.manifest import describe_model, read_question
from ig2.runs.plan import MakeMethod, Row, Storing
from ig2.runs.planning import make_plan
from ig2.runs.sources import Item, Source
from ig2.verdict import mark_row

MOST_COUNT = 50  # references that a page may ask for
MOST_CLASSES = 50  # of references, or to explain against
LONGEST_TEXT = 20_000  # characters
LONGEST_CELL = 1000
MOST_TRIALS = 32  # explained inputs in memory, which can be kept
SHOWN_CLASSES = 5
READING_SECONDS = 10.0  # that an image waits for others
NUMBERS = ("output", "baseline_output", "residual", "relative_residual", "trust", "arrival")


@dataclass(frozen=True)
class Request:
    """What a page sends: an input, and what of the store's question is changed for it.

    Args:
        content: an image as `WhatIf.read_image` returns it, a text, or cells by the names of their columns.
        explain: whether to explain, or only predict.
        target: the explained class, by name or number; None for that of the run.
        against: the classes it is explained against; () for none, None for those of the run.
        count: the number of references; None for that of the run.
        classes: the classes of the references; () for any.
        origin: the id of the edited item.
    """

    content: Batch | str | dict[str, str]
    explain: bool = True
    target: str | None = None
    against: tuple[str, ...] | None = None
    count: int | None = None
    classes: tuple[str, ...] = ()
    origin: str = ""


class Nothing(Source):
    """The source of inputs that users make: it has no items."""

    def items(self) -> Iterator[Item]:
        return iter(())

    def describe(self) -> dict[str, Any]:
        return {"type": "what if"}


class WhatIf:
    """A model that explains new inputs by the settings of a store.

    Args:
        collection: the displayed stores; the settings are those of the first.
        subject: the model.
        method: a method, or a function of (subject, batch) that returns one.
        question: what is asked by default; that of the store, with the model's own references.

    Raises:
        InputError: if the store has inputs of another kind, or the question does not fit the model.
    """

    def __init__(
        self,
        collection: Collection,
        subject: Subject,
        method: Method | MakeMethod,
        question: Question | None = None,
    ) -> None:
        manifest = collection.stores[0].manifest
        if manifest.get("kind") != subject.modality.name:
            raise InputError(
                f"{subject.name} reads {subject.modality.name}s, and the store has {manifest.get('kind')}s: name another"
            )
        question = read_question(manifest) if question is None else question
        if isinstance(question.target, Mapping):
            raise InputError(
                f"{collection.folders[0]} explains {describe(question.target)}, no class: name the class to explain, "
                "target= or --target"
            )
        self.collection, self.subject, self.manifest = collection, subject, manifest
        settings = manifest["fingerprint"].get("settings", {})
        self.plan = make_plan(Nothing(), subject, method, question, Storing(read_kept(settings.get("values"))))
        self.keeper, self.turns = Keeper(self.plan, collection.folders[0]), Turns()
        self.trials: OrderedDict[str, tuple[Row, bytes | None]] = OrderedDict()
        self._reading, self._lock = threading.Lock(), threading.Lock()
        self._pool, self._pool_classes = self._open_pool()
        self._notes = self._list_differences()  # once: weights are many

    def _open_pool(self) -> tuple[Batch | None, list[int]]:
        """Return the pool of references, and the model's prediction for each of them."""
        method, inquiry = self.plan.method, self.plan.inquiry
        assert inquiry is not None
        if not isinstance(method, Method):
            example = getattr(method, "example", None)
            method = method(self.subject, inquiry.pool) if example is None else example
        if not inquiry.is_contrasted(method):
            return None, []
        pool = inquiry.pool
        is_class = self.subject.outputs == "classes"
        return pool, self.subject.predict(pool).argmax(dim=1).tolist() if is_class else []

    # -- what there is -------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return a description for the page: the model, its classes, its columns, and the available choices."""
        subject, plan = self.subject, self.plan
        asked = plan.question
        about: dict[str, Any] = {
            "view": subject.modality.shows.name,
            "model": subject.name,
            "method": _name_method(plan.method),
            "classes": subject.classes,
            "target": subject.label(asked.target) if isinstance(asked.target, int) else None,
            "against": describe(asked.against) if not isinstance(asked.against, (int, str, type(None))) else asked.against,
            "contrasts": self._pool is not None,
            "count": asked.count or COUNT,
            "most": MOST_COUNT,
            "reference_classes": [subject.label(number) for number in sorted(set(self._pool_classes))],
            "kept": self.keeper.folder.name,
            "notes": self._notes,
        }
        if isinstance(subject, ImageSubject):
            about["size"] = list(subject.size)
        if isinstance(subject, TableSubject):
            about["columns"] = [
                {"name": column.name, "values": list(column.texts) if isinstance(column, Category) else None}
                for column in subject.columns
            ]
        return about

    def _list_differences(self) -> list[str]:
        """Return how the model differs from that of the store, in sentences."""
        there = self.manifest["fingerprint"].get("model", {})
        here = describe_model(self.plan)
        if there.get("weights") in (None, here["weights"]):
            return []
        return [f"The store was made with other weights ({there.get('name')}): before and after are of two models."]

    def show_item(self, identity: str) -> dict[str, Any]:
        """Return an item of the store in editable form, with its explanation from the store.

        Raises:
            InputError: if there is no such item.
        """
        collection = self.collection
        position = collection.locate(identity)
        row = collection.readers[0][position]
        shown = read_map(row, self.manifest)
        before = None if shown is None else {"map": encode_map(shown), **self._describe_row(row)}
        content: dict[str, Any] = {}
        if self.subject.modality.name == "image":
            content["picture"] = self._show_picture(identity)
        elif self.subject.modality.name == "text":
            content["text"] = join_words(row.get("units") or ())
        elif shown is not None:
            content["cells"] = dict(zip(shown.view.name_parts(), shown.cells, strict=False))
        return {"id": identity, "before": before, **content}

    def _show_picture(self, identity: str) -> str | None:
        originals = self.collection.originals
        if originals is None or identity not in originals:
            return None
        try:
            return self._encode_picture(self.read_image(originals.load(identity)))
        except InputError:  # a broken file
            return None

    def _describe_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        against = [self.subject.label(number) for number in row.get("against") or ()]
        numbers = {name: _finite(row.get(name)) for name in NUMBERS}
        named = {name: name_class(row, name, self.manifest) for name in ("target", "prediction")}
        question = row.get("question")
        return {**named, "against": against, "question": question, **numbers, "marks": mark_row(row)}

    # -- reading -------------------------------------------------------------------------------------------------------

    def read_upload(self, content: bytes, name: str) -> dict[str, Any]:
        """Return a file, or pasted content, in editable form.

        Args:
            content: the content of the file.
            name: the name of the file, which identifies tables.

        Raises:
            InputError: if the model cannot read it; the message gives the reason.
        """
        if self.subject.modality.name == "image":
            return {"picture": self._encode_picture(self.read_image(content))}
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError("the file is not a text in UTF-8") from error
        if "\0" in text:
            raise InputError("the file is not a text: it holds null characters")
        if self.subject.modality.name == "table":
            return {"cells": self._read_cells(text, name)}
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            raise InputError("the file has no sentences: expected one on a line")
        return {"text": _check_text(lines[0]), "skipped": len(lines) - 1}

    def _read_cells(self, text: str, name: str) -> dict[str, str]:
        """Read the first row of a table with a header, of tabs or commas; or a JSON object."""
        assert isinstance(self.subject, TableSubject)
        if text.lstrip().startswith("{"):
            frame = read_frame([parse_json(text)])
        else:
            first = text.lstrip("\r\n").partition("\n")[0]
            suffix = ".tsv" if name.lower().endswith(".tsv") or "\t" in first else ".csv"
            with tempfile.TemporaryDirectory() as folder:  # so that it is read as the command reads a file
                path = Path(folder) / f"table{suffix}"
                path.write_text(text, "utf-8")
                try:
                    frame = read_frame(path)
                except InputError as error:
                    raise InputError(str(error).replace(str(path), "the table")) from None
        if not len(frame):
            raise InputError("the table has no rows: expected a line of column names, and a row below")
        self.subject.read(frame, lambda total: [0])  # what is wrong with it
        row = frame.iloc[0]
        return {column.name: str(row[column.name]).strip() for column in self.subject.columns}

    def read_image(self, content: Any, framed: bool = False) -> Batch:
        """Return an image as the network takes it; one that is framed has its size already.

        Raises:
            InputError: if it cannot be read, or others are read for too long.
        """
        subject = self.subject
        assert isinstance(subject, ImageSubject)
        # one at a time: a small file can have a hundred million pixels
        if not self._reading.acquire(timeout=READING_SECONDS):
            raise InputError("too many images are read at once: try again in a while")
        try:
            reader = replace(subject, frame=lambda image: image) if framed else subject
            return reader.read([Sample(read_image(content, grey=subject.channels == 1), "the image")])
        finally:
            self._reading.release()

    def _encode_picture(self, batch: Batch) -> str:
        assert isinstance(self.subject, ImageSubject)
        return "data:image/png;base64," + base64.b64encode(encode_png(self.subject.picture(batch.attributed[0]))).decode()

    def parse(self, content: bytes) -> Request:
        """Return the request in the body of one; an image in it must have the network's size already.

        Raises:
            InputError: if it is anything else.
        """
        fields = parse_json(content)
        request = parse_request(fields, self.subject.modality.name)
        if self.subject.modality.name != "image":
            return request
        assert isinstance(self.subject, ImageSubject)
        content = _decode_image(fields.get("input"), self.subject.size)
        return replace(request, content=self.read_image(content, framed=True))

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, request: Request, check: Callable[..., None]) -> Iterator[Event]:
        """Yield the prediction for an input, then the explanation, refined with every batch of references.

        Args:
            request: the input and the question.
            check: called between and during batches; any exception it raises stops the computation.

        Raises:
            InputError: if the input or the question cannot be used.
        """
        content = request.content
        batch = content if isinstance(content, Batch) else self.subject.read([content])
        scores = self.subject.predict(batch)[0]
        if not bool(scores.isfinite().all()):
            raise InputError("the model's answer is not a finite number")
        yield {"event": "prediction", **self._describe_scores(scores), "is_last": not request.explain}
        if not request.explain:
            return
        plan = replace(self.plan, question=self._find_question(request))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fewer references than asked for: the page shows how many
            call = plan.pose(batch)
        chosen = call.contrast
        for part in stream(
            call.method, plan.model, batch.x, call.target, call.references,
            against=call.against, seed=plan.question.seed, progress=check,
        ):  # fmt: skip
            check()
            columns = plan.describe_columns(batch, part.attribution.to("cpu"), call)
            row = {name: cells[0] for name, cells in columns.items()}
            shown = read_map(row, self.manifest)
            assert shown is not None
            about: dict[str, Any] = {"done": part.done, "total": part.total}
            if chosen is not None:
                pairs = zip(chosen.names[0], chosen.labels[0], strict=True)
                about |= {"references": list(pairs)[: part.done], "why": chosen.why[0]}
            yield {"event": "map", "map": encode_map(shown), **self._describe_row(row), **about}
        yield {"event": "done", "trial": self._remember(row, batch, request.origin)}

    def _find_question(self, request: Request) -> Question:
        """Return the question of the run with the choices made on the page."""
        subject, changes = self.subject, dict[str, Any]()
        if request.target is not None:
            changes["target"] = subject.index(request.target)
        if request.against is not None:
            against = [subject.index(name) for name in request.against if name != "next"]
            changes["against"] = "next" if "next" in request.against else [against] if against else None
        if request.count is not None:
            changes["count"] = request.count
        if request.classes and self._pool is not None:
            wanted = {subject.index(name) for name in request.classes}
            rows = [row for row, number in enumerate(self._pool_classes) if number in wanted]
            if not rows:
                raise InputError(f"none of the references is of {describe(list(request.classes))}: choose another class")
            changes["references"] = take_batch(self._pool, rows)
        return replace(self.plan.question, **changes)

    def _describe_scores(self, scores: Tensor) -> dict[str, Any]:
        subject = self.subject
        probabilities = subject.probabilities(scores[None])
        shares = scores if probabilities is None else probabilities[0]
        best = shares.argsort(descending=True, stable=True)[:SHOWN_CLASSES].tolist()
        return {
            "prediction": subject.describe_output(scores),
            "classes": [[subject.label(number), float(shares[number])] for number in best],
            "are_shares": probabilities is not None,
        }

    def _remember(self, row: Row, batch: Batch, origin: str) -> str:
        subject, trial = self.subject, secrets.token_urlsafe(9)
        picture = encode_png(subject.picture(batch.attributed[0])) if isinstance(subject, ImageSubject) else None
        with self._lock:
            self.trials[trial] = {**row, "origin": origin}, picture
            while len(self.trials) > MOST_TRIALS:
                self.trials.popitem(last=False)
        return trial

    def keep(self, trial: str, name: str) -> str:
        """Write an explained input to the adjacent store; return its id.

        Raises:
            InputError: if it is no longer remembered, or the store is full.
        """
        with self._lock:
            if trial not in self.trials:
                raise InputError("this explanation is not remembered any more: explain the input again")
            row, picture = self.trials[trial]
        return self.keeper.add(row, name, picture)


# -- what pages send ---------------------------------------------------------------------------------------------------


def parse_request(fields: Mapping[str, Any], kind: str) -> Request:
    """Return a question from the object that a page sends; the content of an image is left empty.

    Raises:
        InputError: if a field is invalid.
    """
    known = ("input", "explain", "target", "against", "count", "classes", "origin")
    for name in fields:
        if name not in known:
            raise InputError(f"{describe(name)} is unknown: a request has {', '.join(known)}")
    count, origin = fields.get("count"), fields.get("origin", "")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_COUNT):
        raise InputError(f"count is a number from 1 to {MOST_COUNT}, got {describe(count)}")
    target = fields.get("target")
    if not (target is None or isinstance(target, str)) or not isinstance(origin, str):
        raise InputError(f"target and origin are texts, got {describe([target, origin])}")
    against = fields.get("against")
    return Request(
        "" if kind == "image" else _parse_input(fields.get("input"), kind),
        fields.get("explain") is not False,
        target or None,
        None if against is None else _parse_names(against, "against"),
        count,
        _parse_names(fields.get("classes") or [], "classes"),
        origin[:LONGEST_CELL],
    )


def parse_json(content: bytes | str) -> dict[str, Any]:
    """Return the object in a JSON text."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError("expected a JSON object") from error
    if not isinstance(fields, dict):
        raise InputError(f"expected a JSON object, got {describe(fields)}")
    return fields


def _decode_image(content: Any, size: tuple[int, int]) -> bytes:
    """Return the PNG file in a text, after a look at its size, which takes none of its pixels."""
    try:
        file = base64.b64decode(content.removeprefix("data:image/png;base64,"), validate=True)
        width, height = import_extra("PIL.Image", "image", "pictures").open(io.BytesIO(file), formats=["PNG"]).size
    except Exception as error:  # whatever a broken file makes Pillow raise
        raise InputError(f"the image must be a PNG file in base64, got {describe(content)}") from error
    if (height, width) != size:
        raise InputError(f"the image is {width} × {height}, expected {size[1]} × {size[0]}")
    return file


def _parse_input(content: Any, kind: str) -> str | dict[str, str]:
    if kind == "table":
        if not isinstance(content, dict):
            raise InputError(f"a row is an object of cells, got {describe(content)}")
        cells = {str(name): cell if isinstance(cell, str) else str(cell) for name, cell in content.items()}
        if any(len(cell) > LONGEST_CELL for cell in cells.values()):
            raise InputError(f"a cell has {LONGEST_CELL} characters at most")
        return cells
    if not isinstance(content, str):
        raise InputError(f"the input must be a text, got {describe(content)}")
    return _check_text(content)


def _parse_names(names: Any, what: str) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) > MOST_CLASSES or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what} must be a list of {MOST_CLASSES} names at most, got {describe(names)}")
    return tuple(names)


def _check_text(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise InputError(f"a text has {LONGEST_TEXT:,} characters at most, got {len(text):,}")
    if "\0" in text:
        raise InputError("the text holds null characters")
    return " ".join(text.split()) if "\n" in text or "\r" in text else text.strip()


# -- what pages get ----------------------------------------------------------------------------------------------------


def encode_map(shown: Map) -> dict[str, Any]:
    """Return the values of an input for a page."""
    if shown.is_flat:
        return {"view": shown.view.name, "scores": pack_map(shown.scores, MAP_BITS)}
    return {
        "view": shown.view.name,
        "scores": shown.scores.tolist(),
        "units": shown.view.name_parts(),
        "cells": shown.cells,
    }


def encode_png(picture: Any) -> bytes:
    """Return a picture (H, W, 3) as a PNG file."""
    stream = io.BytesIO()
    import_extra("PIL.Image", "image", "pictures").fromarray(picture).save(stream, "png")
    return stream.getvalue()


def join_words(words: Sequence[str]) -> str:
    """Return words as a sentence: without a blank before a comma or behind an opening bracket.

    >>> join_words(["Where", "did", "guinea", "pigs", "(", "cavies", ")", "originate", "?"])
    'Where did guinea pigs (cavies) originate?'
    """
    text = " ".join(map(str, words))
    return re.sub(r"([(\[{]) ", r"\1", re.sub(r" ([,.;:!?)\]}])", r"\1", text))


def take_batch(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return some samples of a batch."""

    def take(cells: Any) -> Any:
        return None if cells is None else tuple(cells[row] for row in rows)

    parts: dict[str, Any] = {"names": take(batch.names), "x": take_rows(batch.x, rows)}
    parts |= {name: take(getattr(batch, name)) for name in ("units", "cells", "labels")}
    if isinstance(batch, TextBatch):
        parts |= {name: getattr(batch, name)[list(rows)] for name in ("ids", "mask", "word")}
    return replace(batch, **parts)


def _name_method(method: Any) -> str:
    return str(getattr(method, "name", None) or type(method).__name__)


def _finite(number: Any) -> float | None:
    return float(number) if isinstance(number, (int, float)) and np.isfinite(number) else None
