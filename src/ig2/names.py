"""Human-readable names of what is explained: inputs, outputs, words or columns, and their contents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2.errors import InputError, describe


def name_output(index: int, classes: Sequence[str] | None = None, outputs: str = "classes") -> str:
    """Return an output in words: its name, or its number and kind.

    >>> name_output(0), name_output(0, ["price"], "numbers"), name_output(1, None, "numbers")
    ('class 0', 'price', 'output 1')
    """
    if classes is not None and index < len(classes):
        return classes[index]
    return f"{'output' if outputs == 'numbers' else 'class'} {index}"


def list_some(names: Sequence[str]) -> str:
    """Return names as a list in prose, each once, and how many more there are.

    >>> list_some(["a", "b", "a"]), list_some(list("abcdef"))
    ('a or b', 'a, b, c or 3 others')
    """
    names = list(dict.fromkeys(names))
    most = 4 if len(names) == 4 else 3  # «or 1 others» is no English, and takes no less room than the name
    parts = [*names[:most], *([f"{len(names) - most} others"] if len(names) > most else [])]
    return " or ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def ask_why(target: str, against: Sequence[str] = (), beside: Sequence[str] = ()) -> str:
    """Return a question in words: what is explained, against what, and what its references are of, if that is something else.

    >>> ask_why("cat"), ask_why("cat", ["dog", "eel"]), ask_why("cat", ["dog"], ["eel"])
    ('cat', 'cat rather than dog or eel', 'cat rather than dog, beside references of eel')
    """
    words = f"{target} rather than {list_some(against)}" if against else target
    return f"{words}, beside references of {list_some(beside)}" if beside else words


@dataclass(frozen=True)
class Names:
    """The names of B explicands. Fields that are tuples of tuples have one row for each.

    >>> names = Names("bars", ("row 1",), units=(("age", "town"),), groups=((0, 1, 1),))
    >>> names.sum_units(torch.tensor([[1.0, 2.0, 3.0]]))
    [array([1., 5.])]
    """

    view: str
    """How the explicands are shown: as a "picture", "words", "bars" or a "curve", see `ig2.views`."""
    samples: tuple[str, ...]
    """The name of each explicand: a file name, a sentence or a row."""
    classes: tuple[str, ...] | None = None
    """The names of the model's outputs."""
    outputs: str = "classes"
    """The kind of the outputs: "classes", "labels" or "numbers"."""
    units: tuple[tuple[str, ...], ...] | None = None
    """Each explicand's words, columns or windows of time; None for images."""
    groups: tuple[tuple[int, ...], ...] | None = None
    """The unit that each position of the values, a token or a feature, belongs to; −1 for none."""
    cells: tuple[tuple[str, ...], ...] | None = None
    """The contents of the columns, in the user's units."""
    becomes: tuple[tuple[str, ...], ...] | None = None
    """The contents in the counterfactual, the end of GradPath; the mean over references."""
    predictions: tuple[str, ...] | None = None
    """The model's prediction for each explicand."""
    questions: tuple[str, ...] | None = None
    """What is asked of each explicand, in words."""
    references: tuple[tuple[str, ...], ...] | None = None
    """The name of each explicand's references, if these were chosen from a pool."""
    reference_classes: tuple[tuple[str, ...], ...] | None = None
    """The model's prediction for each of them."""
    why: tuple[str, ...] | None = None
    """Which samples of the pool each explicand's references are, and why."""
    time_axis: int | None = None
    """The time axis of the values, for signals."""
    rate: float | None = None
    """The sampling rate in steps per second, for signals."""
    channels: tuple[str, ...] | None = None
    """The names of the channels, for signals."""

    def __post_init__(self) -> None:
        for name in self._list_row_fields():
            rows = getattr(self, name)
            if rows is not None and len(rows) != len(self.samples):
                raise InputError(f"names have {len(self.samples)} samples and {len(rows)} rows of {name}: give one for each")
        if (self.units is None) != (self.groups is None):
            raise InputError("units and groups belong together: give for each position of the values the number of its unit")

    def __len__(self) -> int:
        return len(self.samples)

    @staticmethod
    def _list_row_fields() -> tuple[str, ...]:
        rowed = ("samples", "units", "groups", "cells", "becomes", "predictions")
        return (*rowed, "questions", "references", "reference_classes", "why")

    def name_output(self, index: int) -> str:
        """Return an output in words."""
        return name_output(index, self.classes, self.outputs)

    def sum_units(self, values: Tensor) -> list[NDArray[np.float64]]:
        """Return the sum of values (B, positions, ...) over each unit of each explicand; the total is preserved.

        Raises:
            InputError: if the positions of the values do not match the explicands.
        """
        rows = values.detach().cpu().double()
        if self.time_axis is not None and rows.ndim > self.time_axis:
            rows = rows.movedim(self.time_axis, 1)
        rows = rows.flatten(2).sum(dim=2) if rows.ndim > 2 else rows
        if self.units is None or self.groups is None:
            raise InputError("these explicands have no units, such as words or columns, to sum over")
        if rows.ndim != 2 or len(rows) != len(self) or any(rows.shape[1] != len(groups) for groups in self.groups):
            sizes = " or ".join(map(str, sorted({len(groups) for groups in self.groups})))
            raise InputError(f"the attribution is {describe(values)}, expected {len(self)} rows of {sizes} positions")
        sums = []
        for row, groups, units in zip(rows, self.groups, self.units, strict=True):
            numbers = torch.tensor(groups)
            sums.append(torch.zeros(len(units), dtype=torch.float64).index_add(0, numbers[numbers >= 0], row[numbers >= 0]))
        return [row.numpy() for row in sums]

    def __getitem__(self, rows: Sequence[int]) -> Names:
        """Return the names of the selected explicands."""
        taken: dict[str, Any] = {name: _take(getattr(self, name), rows) for name in self._list_row_fields()}
        return replace(self, **taken)

    @classmethod
    def join(cls, parts: Sequence[Names]) -> Names:
        """Return the names of the explicands of several attributions.

        Raises:
            InputError: if they do not belong to inputs of one model.
        """
        first, joined = parts[0], dict[str, Any]()
        for field in fields(cls):
            values = [getattr(part, field.name) for part in parts]
            if field.name in cls._list_row_fields() and all(value is not None for value in values):
                joined[field.name] = tuple(row for value in values for row in value)
            elif any(value != values[0] for value in values):
                raise InputError(f"cannot join: the {field.name} of their names differ: {describe(values)}")
        return replace(first, **joined)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-compatible form; rows that are all equal, such as columns, are stored once."""
        return {
            name: value[:1] if name in self._list_row_fields()[1:] and value and len(set(value)) == 1 else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Names:
        """Read the result of `to_json`.

        Raises:
            InputError: if it has another form.
        """
        count = len(content["samples"])
        read = {name: _freeze(value) for name, value in content.items()}
        for name in cls._list_row_fields()[1:]:
            rows = read.get(name)
            read[name] = rows * count if rows is not None and len(rows) == 1 else rows
        return cls(**read)


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The attributions of N rows of a table with F columns, as used by figures of a whole table and by SHAP's plots."""

    names: tuple[str, ...]
    """The names of the columns."""
    samples: tuple[str, ...]
    """The name of each row."""
    values: NDArray[np.float64]
    """The attribution of each row and column, (N, F)."""
    cells: Sequence[Sequence[str]]
    """The contents of the cells, as readable text."""
    explained: tuple[str, ...]
    """The explained output of each row, in words."""
    targets: tuple[int, ...]
    """The explained class of each row."""
    outputs: NDArray[np.float64] | None = None
    """The output f of each row, (N,)."""
    baselines: NDArray[np.float64] | None = None
    """The output f at each row's baseline, (N,); None for methods without one."""

    @property
    def data(self) -> NDArray[Any]:
        """The cells, (N, F) objects: numbers in columns that hold only numbers, and text in all others."""
        data = np.array([list(row) for row in self.cells], dtype=object).reshape(self.values.shape)
        for column in data.T:
            with suppress(ValueError):
                column[:] = [float(cell.replace("−", "-")) for cell in column]
        return data

    def __getitem__(self, rows: Sequence[int] | NDArray[np.intp]) -> ColumnValues:
        """Return the selected rows."""
        numbers = [int(row) for row in rows]
        rowed: dict[str, Any] = {name: _take(getattr(self, name), numbers) for name in ("samples", "explained", "targets")}
        arrays = {name: getattr(self, name) for name in ("values", "outputs", "baselines")}
        rowed |= {name: None if array is None else array[numbers] for name, array in arrays.items()}
        return replace(self, **rowed, cells=[self.cells[row] for row in numbers])


def _take(rows: tuple[Any, ...] | None, numbers: Sequence[int]) -> tuple[Any, ...] | None:
    return None if rows is None else tuple(rows[i] for i in numbers)


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
