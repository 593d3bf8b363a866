"""What-if questions: read a new input, predict, and explain it with the settings of a store's run."""

from __future__ import annotations

import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ig2.errors import InputError, describe
from ig2.explorer.collection import Collection
from ig2.explorer.keeping import Keeper
from ig2.explorer.maps import Map, read_map
from ig2.explorer.queueing import Event, FairQueue
from ig2.explorer.streaming import stream
from ig2.explorer.views import name_class
from ig2.methods import Method
from ig2.modalities.base import Batch, Subject
from ig2.modalities.editing import Editor, parse_json
from ig2.question import COUNT, Question
from ig2.report.encoding import drop_nan, encode_scores
from ig2.runs.files import read_kept
from ig2.runs.manifest import describe_model, read_question
from ig2.runs.plan import MakeMethod, Saving
from ig2.runs.planning import make_plan
from ig2.runs.rows import Row
from ig2.runs.sources import Item, Source
from ig2.verdict import mark_row

MOST_COUNT = 50  # references that a page may ask for
MOST_CLASSES = 50  # of references, or to explain against
LONGEST_ID = 1000  # characters
MOST_TRIALS = 32  # explained inputs in memory, which can be kept
SHOWN_CLASSES = 5
NUMBERS = ("output", "baseline_output", "residual", "relative_residual", "trust", "arrival")


@dataclass(frozen=True)
class Request:
    """What a page sends: an input, and what of the store's question is changed for it.

    Args:
        content: the input, as the editor of its kind of data reads it.
        explain: whether to explain, or only predict.
        target: the explained class, by name or number; None for that of the run.
        against: the classes it is explained against; () for none, None for those of the run.
        count: the number of references; None for that of the run.
        classes: the classes of the references; () for any.
        origin: the id of the edited item.
    """

    content: Any
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
        self.editor = subject.modality.edit(subject)
        self.plan = make_plan(Nothing(), subject, method, question, Saving(read_kept(settings.get("values"))))
        self.keeper, self.queue = Keeper(self.plan, collection.folders[0]), FairQueue()
        self.trials: OrderedDict[str, tuple[Row, bytes | None]] = OrderedDict()
        self._lock = threading.Lock()
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
        return {
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
            **self.editor.describe(),
        }

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
        originals = self.collection.originals
        original = originals.load(identity) if originals is not None and identity in originals else None
        content = self.editor.show(row, None if shown is None else shown.view, original)
        return {"id": identity, "before": before, **content}

    def _describe_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        against = [self.subject.label(number) for number in row.get("against") or ()]
        numbers = {name: drop_nan(row.get(name)) for name in NUMBERS}
        named = {name: name_class(row, name, self.manifest) for name in ("target", "prediction")}
        question = row.get("question")
        return {**named, "against": against, "question": question, **numbers, "marks": mark_row(row)}

    def parse(self, content: bytes) -> Request:
        """Return the request in the body of one.

        Raises:
            InputError: if it is anything else.
        """
        return parse_request(parse_json(content), self.editor)

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, request: Request, check: Callable[..., None]) -> Iterator[Event]:
        """Yield the prediction for an input, then the explanation, refined with every batch of references.

        Args:
            request: the input and the question.
            check: called between and during batches; any exception it raises stops the computation.

        Raises:
            InputError: if the input or the question cannot be used.
        """
        batch = self.editor.read(request.content)
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
            changes["references"] = self._pool.take(rows)
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
        trial, picture = secrets.token_urlsafe(9), self.editor.draw(batch)
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


def parse_request(fields: Mapping[str, Any], editor: Editor) -> Request:
    """Return the request in the object that a page sends.

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
        editor.parse(fields.get("input")),
        fields.get("explain") is not False,
        target or None,
        None if against is None else _parse_names(against, "against"),
        count,
        _parse_names(fields.get("classes") or [], "classes"),
        origin[:LONGEST_ID],
    )


def _parse_names(names: Any, what: str) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) > MOST_CLASSES or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what} must be a list of {MOST_CLASSES} names at most, got {describe(names)}")
    return tuple(names)


# -- what pages get ----------------------------------------------------------------------------------------------------


def encode_map(shown: Map) -> dict[str, Any]:
    """Return the values of an input for a page."""
    units, cells = shown.view.name_parts(), shown.cells
    return {"view": shown.view.name, "scores": encode_scores(shown.scores), "units": units, "cells": cells}


def _name_method(method: Any) -> str:
    return str(getattr(method, "name", None) or type(method).__name__)
