"""Rows of a store on their way to the disk: columns of a batch, failures, and Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2.errors import IG2Error, InputError, reason
from ig2.modalities.samples import BadRowsError
from ig2.runs.files import arrow, clean_text

Row = dict[str, Any]
Cells = Sequence[Any] | NDArray[Any]
REFERENCE_VALUES = "reference_values"
VALUES = ("values", REFERENCE_VALUES)  # which a method returns finite, and float16 may not hold


@dataclass(frozen=True, eq=False)
class Columns(Sequence[Row]):
    """The rows of a batch as columns, which become a table without a dictionary for each row."""

    length: int
    columns: Mapping[str, Cells]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != self.length:
                raise InputError(f"{name} has {len(column)} rows, expected {self.length}")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: Any) -> Any:
        return {name: column[range(self.length)[row]] for name, column in self.columns.items()}


def find_type(cell: Any) -> Any:
    """Return the Arrow type of a column, from a cell."""
    pyarrow = arrow()
    if isinstance(cell, np.ndarray):
        return pyarrow.fixed_shape_tensor(pyarrow.from_numpy_dtype(cell.dtype), cell.shape)
    if isinstance(cell, bytes):
        return pyarrow.binary()  # which conditions cannot compare
    return pyarrow.string() if isinstance(cell, str) else pyarrow.float64()


def make_table(rows: Sequence[Row], schema: Any) -> Any:
    """Return rows as an Arrow table; a row with tensors of another shape or non-finite values becomes an error."""
    pyarrow = arrow()
    shapes = {field.name: tuple(field.type.shape) for field in schema if isinstance(field.type, pyarrow.FixedShapeTensorType)}
    columns: Mapping[str, Cells]
    if (
        isinstance(rows, Columns)
        and all(_are_of(shape, rows.columns.get(name, ())) for name, shape in shapes.items())
        and all(_are_finite(rows.columns.get(name, ())) for name in VALUES)
    ):
        columns = rows.columns
    else:
        rows = [_fit(row, shapes) for row in rows]
        columns = {name: [row.get(name) for row in rows] for name in schema.names}
    arrays = [_make_array(columns.get(column.name, [None] * len(rows)), column.type) for column in schema]
    return pyarrow.table(arrays, schema=schema)


def _are_of(shape: tuple[int, ...], cells: Cells) -> bool:
    return cells.shape[1:] == shape if isinstance(cells, np.ndarray) else all(cell.shape == shape for cell in cells)


def _are_finite(cells: Cells) -> bool:
    return bool(np.isfinite(cells).all()) if isinstance(cells, np.ndarray) else all(np.isfinite(cell).all() for cell in cells)


def _fit(row: Row, shapes: Mapping[str, tuple[int, ...]]) -> Row:
    identity: Row = {name: row[name] for name in ("id", "label", "label_name") if name in row}
    for name in VALUES:
        if row.get(name) is not None and not np.isfinite(row[name]).all():
            kind = row[name].dtype
            hint = ": keep float32" if kind == np.float16 else ""
            message = f"the {name} of this item are too large for {kind}, which ends at {np.finfo(kind).max:.6g}{hint}"
            return {**identity, "error": message, "error_kind": "InputError"}
    for name, shape in shapes.items():
        tensor = row.get(name)
        if tensor is None or tensor.shape == shape:
            continue
        if name == "gradcf" and tensor.shape[1:] == shape[1:] and len(tensor) < shape[0]:
            # an item with fewer references than the first one
            missing = np.full((shape[0] - len(tensor), *shape[1:]), np.nan, tensor.dtype)
            row = {**row, "gradcf": np.concatenate([tensor, missing])}
            continue
        message = f"the {name} of this item are {tuple(tensor.shape)}, those of the store {shape}"
        return {**identity, "error": message, "error_kind": "InputError"}
    return row


def _make_array(cells: Cells, kind: Any) -> Any:
    pyarrow = arrow()
    if not isinstance(kind, pyarrow.FixedShapeTensorType):
        try:
            return pyarrow.array(list(cells), kind)
        except UnicodeEncodeError:  # of one text, which must not end the run
            return pyarrow.array([_clean(cell) for cell in cells], kind)
    width, dtype, mask = kind.storage_type.list_size, kind.value_type.to_pandas_dtype(), None
    flat = np.zeros((len(cells), width), dtype)
    if isinstance(cells, np.ndarray):
        flat[:] = cells.reshape(len(cells), width)
    else:
        mask = pyarrow.array([cell is None for cell in cells], pyarrow.bool_())
        for place, cell in enumerate(cells):
            if cell is not None:
                flat[place] = cell.reshape(-1)
    storage = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat.reshape(-1)), width, mask=mask)
    return pyarrow.ExtensionArray.from_storage(kind, storage)


def _clean(cell: Any) -> Any:
    """Return a text, or several, as valid UTF-8."""
    return clean_text(cell) if isinstance(cell, str) else cell if cell is None else [clean_text(text) for text in cell]


def describe_failure(error: BaseException) -> Row:
    """Return the row of an item that could not be read or explained."""
    if isinstance(error, BadRowsError):
        message = next(iter(error.problems.values()))  # the remedy is the same for all
    else:
        message = " ".join(str(error).split()) if isinstance(error, IG2Error) else reason(error)
    message = message.removeprefix("row 1, ")  # of a table: it was read alone, and has an id
    return {"error": message, "error_kind": type(error).__name__}
