"""The table of a suite: its scores, with the data and networks they are of, what failed, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import ig2
from ig2._utils.files import check_regular
from ig2.errors import InputError, describe
from ig2.table import NONE, Column, Gap, Row, ScoreTable, Shown

MADE_BY = "ig2 "
ROWS = "<rows>"  # where they stand in the file
EACH = "accuracy of "  # how a fact of one class begins
COMMONEST = f"{EACH}the commonest answers"  # which is one of all classes


@dataclass(frozen=True)
class Fact:
    """A value beside the scores, such as the accuracy of the networks explained; the numbers are those of `Row`."""

    name: str
    mean: float
    sd: float
    n: int
    undefined: int


@dataclass(frozen=True)
class Failure:
    """A part on which a method raised an error, or that could not be prepared."""

    part: str
    method: str | None
    """The label of the method; None if the part itself failed."""
    said: str
    """The error message on one line."""
    error: Exception | None = field(default=None, repr=False, compare=False)
    """The error itself, for its traceback; not stored in the file."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Table(ScoreTable):
    """The scores of methods on the metrics of a suite, with everything needed to read them. A notebook shows it as a table."""

    suite: str
    quick: bool
    """Whether it is from a small run, which only tests that everything works."""
    facts: tuple[Fact, ...] = ()
    failures: tuple[Failure, ...] = ()

    def gap(self, method: str, other: str, metric: str) -> Gap:
        failed, others = ({failure.part for failure in self.failures if failure.method == label} for label in (method, other))
        if failed != others:
            raise InputError(
                f"{describe(method)} or {describe(other)} failed on {', '.join(sorted(failed ^ others))}: run the suite again, "
                "it keeps the scores it has"
            )
        return super().gap(method, other, metric)

    def shown(self, method: str, metric: str) -> Shown:
        shown, row = super().shown(method, metric), self.row(method, metric)
        failed = any(failure.method in (method, None) for failure in self.failures)
        return Shown("failed", shown.paper, False) if failed and not row.n and not row.undefined else shown

    def caption(self) -> list[str]:
        """Return sentences on how to read the numbers, without markup."""
        quick = ["A quick run: it shows that everything runs, and no more."] if self.quick else []
        return [*quick, *super().caption(), *(["; ".join(_format_facts(self.facts))] if self.facts else [])]

    def remarks(self) -> list[str]:
        """Return notes on failures and on values that are not counted."""
        return [*_failures(self.failures), *super().remarks()]

    # -- files ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return everything as JSON, with a line for each row."""
        content = {
            "made_by": f"{MADE_BY}{ig2.__version__}",
            **{name: getattr(self, name) for name in ("suite", "title", "unit", "quick", "data", "shows", "ranked")},
            **{name: getattr(self, name) for name in ("settings", "environment", "methods")},
            "metrics": {label: asdict(column) for label, column in self.metrics.items()},
            "rows": ROWS,
            "facts": [_record(fact) for fact in self.facts],
            "failures": [_record(failure, "error") for failure in self.failures],
            "notes": self.notes,
        }
        rows = [json.dumps(_sound(_record(row)), ensure_ascii=False, allow_nan=False) for row in self.rows]
        text = json.dumps(_sound(content), indent=2, ensure_ascii=False, allow_nan=False)
        return text.replace(f'"{ROWS}"', "[\n    " + ",\n    ".join(rows) + "\n  ]", 1) + "\n"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Table:
        """Read the NAME.json of a run.

        Raises:
            InputError: if the file is not a table of `ig2 bench`.
        """
        check_regular(path)
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if not str(content.pop("made_by")).startswith(MADE_BY):
                raise InputError(f"{path} was not made by ig2 bench")
            content["metrics"] = {label: Column(**column) for label, column in content["metrics"].items()}
            kinds: dict[str, type[Any]] = {"rows": Row, "facts": Fact, "failures": Failure}
            for name, kind in kinds.items():
                content[name] = tuple(kind(**{key: _read(key, value) for key, value in item.items()}) for item in content[name])
            return cls(**{**content, "notes": tuple(content["notes"])})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} holds no table of ig2 bench: {type(error).__name__}: {error}") from error


def merge_environments(*environments: Mapping[str, str]) -> dict[str, str]:
    """Merge environments: each entry lists all its distinct values.

    >>> merge_environments({"device": "cpu"}, {"device": "cuda, cpu", "data": "1f"})
    {'device': 'cpu, cuda', 'data': '1f'}
    """
    merged: dict[str, dict[str, None]] = {}
    for environment in environments:
        for name, values in environment.items():
            merged.setdefault(name, {}).update(dict.fromkeys(values.split(", ")))
    return {name: ", ".join(values) for name, values in merged.items()}


def _format_facts(facts: Sequence[Fact]) -> list[str]:
    """Return each fact with its value; those of single classes together, at the end."""
    each = [fact for fact in facts if fact.name.startswith(EACH) and fact.name != COMMONEST]
    others = [f"{fact.name} {_fact(fact)}" for fact in facts if fact not in each]
    classes = ", ".join(f"{fact.name.removeprefix(EACH)} {_fact(fact)}" for fact in each)
    return [*others, f"by class: {classes}"] if each else others


def _fact(fact: Fact) -> str:
    around = f" ± {fact.sd:.3f} (n = {fact.n})" if fact.n > 1 else ""
    return f"{fact.mean:.3f}{around}" if fact.n else NONE


def _failures(failures: Sequence[Failure]) -> list[str]:
    """Return one line for each error, however many parts and methods it occurred on."""
    parts: dict[tuple[str | None, str], list[str]] = {}
    for failure in failures:
        parts.setdefault((failure.method, failure.said), []).append(failure.part)
    methods: dict[tuple[str, str], list[str | None]] = {}
    for (method, said), where in parts.items():
        places = ", ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")
        methods.setdefault((places, said), []).append(method)
    return [
        f"{', '.join(who for who in labels if who)} failed on {places}: {said}"
        if any(labels)
        else f"{places} could not be prepared: {said}"
        for (places, said), labels in methods.items()
    ]


def _record(thing: Row | Fact | Failure, *omit: str) -> dict[str, Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, tuple):
            return [float(f"{score:.6g}") if math.isfinite(score) else None for score in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return {name: convert(value) for name, value in vars(thing).items() if name not in omit}


def _read(key: str, value: Any) -> Any:
    """Read what `_record` wrote."""
    if key == "values":
        return tuple(math.nan if score is None else float(score) for score in value)
    return math.nan if key in ("mean", "sd") and value is None else value


def _sound(thing: Any) -> Any:
    """Return a value that JSON can hold, whatever the settings: an hour of work must not be lost to an error in writing."""
    if isinstance(thing, Mapping):
        return {str(key): _sound(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_sound(value) for value in thing]
    if thing is None or isinstance(thing, (str, int)) or (isinstance(thing, float) and math.isfinite(thing)):
        return thing
    return str(thing)
