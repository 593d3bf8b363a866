"""A store of attributions, read lazily: only requested rows are read, and nothing is kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ig2._utils.checks import is_number
from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe, format_count, import_extra
from ig2.runs.aggregates import Aggregates
from ig2.runs.files import (
    PROGRESS,
    arrow,
    clean_text,
    explain_damage,
    list_parts,
    open_part,
    read_json,
    read_manifest,
)
from ig2.runs.filters import parse_condition

if TYPE_CHECKING:
    from ig2.names import ColumnValues  # which imports PyTorch; a store is read without it

ROWS_AT_ONCE = 64
SHAPE = "values_shape"  # the column with each row's shape, where shapes differ
EXTRA = "extra_"  # columns of fields of the user begin so


def open(path: str | PathLike[str]) -> Store:
    """Open a store that `ig2 run` wrote or is writing.

    Args:
        path: the folder of the store.

    Returns:
        A store of the rows that are on disk now.

    Raises:
        InputError: if the folder is not a store, or is damaged.
    """
    folder = Path(path)
    return Store(folder, read_manifest(folder), tuple(list_parts(folder)))


@dataclass(frozen=True, eq=False, repr=False)
class Store:
    """The rows of a run, one for each item, by id. Opened by `ig2.open`."""

    folder: Path
    manifest: dict[str, Any]
    """The origin of the rows: code, model, method, settings, source."""
    files: tuple[Path, ...]
    condition: Any = field(default=None)
    """The condition that the rows satisfy, as an Arrow expression."""
    conditions: tuple[str, ...] = ()
    """The condition as text, one for each call of `where`."""

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> Any:
        """The rows of all files as a `pyarrow.dataset.Dataset`."""
        datasets, pyarrow = arrow("pyarrow.dataset"), arrow()
        if not self.files:
            return datasets.dataset(pyarrow.table({"id": pyarrow.array([], "string"), "error": pyarrow.array([], "string")}))
        options = datasets.ParquetFragmentScanOptions(page_checksum_verification=True)
        with open_part(self.files[-1]):  # says which file is damaged, if it is that one
            pass
        with explain_damage(self.folder):
            parquet = datasets.ParquetFileFormat(default_fragment_scan_options=options)
            return datasets.dataset([str(file) for file in self.files], format=parquet)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.dataset.schema.names)

    @property
    def scalars(self) -> list[str]:
        """The names of the columns with one number or text per row, which conditions can compare."""
        return list(self._comparable.names)

    @property
    def _comparable(self) -> Any:
        types = arrow("pyarrow.types")
        checks = (types.is_integer, types.is_floating, types.is_string)
        return arrow().schema([column for column in self.dataset.schema if any(check(column.type) for check in checks)])

    def __len__(self) -> int:
        with self._name_damage():
            return int(self.dataset.count_rows(filter=self.condition))

    @property
    def ids(self) -> list[str]:
        """The ids of all rows, in order."""
        return [str(text) for text in self._read(["id"])["id"].to_pylist()]

    @property
    def failures(self) -> dict[str, int]:
        """The number of items that failed, by the kind of error."""
        kinds = self.where("error is not None")._read(["error_kind"])["error_kind"] if self.files else None
        counts = [] if kinds is None else kinds.value_counts().to_pylist()
        return dict(sorted((str(count["values"]), int(count["counts"])) for count in counts))

    @property
    def progress(self) -> dict[str, float]:
        """The progress of the run: `total`, `done` and `failed` items, rows of items that are `gone` from the source, `items`
        explained in `seconds`, and the last `rate`."""
        path = self.folder / PROGRESS
        content = read_json(path) if path.exists() else {}
        wrong = [name for name, number in content.items() if not is_number(number) or number < 0]
        if wrong:
            raise InputError(f"{path} is damaged: {wrong[0]} is {describe(content[wrong[0]])}, expected a number")
        return content

    @property
    def aggregates(self) -> Aggregates:
        """Means, quantiles, extremes and curves of the rows without errors."""
        return Aggregates(self)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def __getitem__(self, which: int | str) -> dict[str, Any]:
        """Return a row by its id or position.

        Raises:
            KeyError: if there is no such id.
            IndexError: if there are fewer rows.
        """
        if isinstance(which, str):
            wanted = self._both(arrow("pyarrow.compute").field("id") == clean_text(which))
            with self._name_damage():
                table = self.dataset.to_table(filter=wanted)
            if not len(table):
                raise KeyError(f"{which!r} is not in {self.folder}")
            return next(read_rows(table.slice(0, 1)))
        if isinstance(which, bool) or not isinstance(which, (int, np.integer)):
            raise InputError(f"a row is named by its id or its position, got {describe(which)}")
        position = int(which) + (len(self) if which < 0 else 0)
        if self.condition is not None:
            ids = self.ids
            if not 0 <= position < len(ids):
                raise IndexError(f"row {which} of {len(ids)}")
            return self[ids[position]]
        left = position
        for path in self.files if position >= 0 else ():
            with explain_damage(path), open_part(path) as part:
                if left >= part.metadata.num_rows:
                    left -= part.metadata.num_rows
                    continue
                for group in range(part.num_row_groups):
                    rows = part.metadata.row_group(group).num_rows
                    if left < rows:
                        return next(read_rows(part.read_row_group(group).slice(left, 1)))
                    left -= rows
        raise IndexError(f"row {which} of {len(self)}")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows one by one; empty cells are None, tensors are NumPy arrays."""
        return self.iterate()

    def iterate(self, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows with these columns only; by default all."""
        for batch in self._read_batches(columns):
            yield from read_rows(batch)

    def where(self, condition: str) -> Store:
        """Return the rows that satisfy a condition, such as "trust < 0.2 and target != label".

        Args:
            condition: comparisons of columns and constants, joined by and, or, not; also in (…), is None, abs(), + - * /.
                It is parsed, and never executed as code.

        Returns:
            A store of these rows.

        Raises:
            InputError: for any other expression, or a column that the store does not have.
        """
        expression = self._both(parse_condition(condition, self._comparable))
        return Store(self.folder, self.manifest, self.files, expression, (*self.conditions, condition))

    def join(self, other: Store, suffix: str = "_other", columns: Sequence[str] | None = None) -> Any:
        """Join the rows that two stores share, side by side, to compare two models or two methods.

        Args:
            other: the other store.
            suffix: the suffix of the names of its columns.
            columns: the columns to read from both; by default those with one number or text per row.

        Returns:
            An Arrow table.
        """
        compute, pyarrow = arrow("pyarrow.compute"), arrow()
        tables = []
        for store in (self, other):
            names = [name for name in (store.scalars if columns is None else columns) if name != "id"]
            tables.append(store._read(["id", *names]))
        places = compute.index_in(tables[0]["id"], tables[1]["id"].combine_chunks())
        both = places.is_valid()
        left, right = tables[0].filter(both), tables[1].take(places.drop_null())
        joined = {name: left[name] for name in left.column_names}
        return pyarrow.table(joined | {name + suffix: right[name] for name in right.column_names if name != "id"})

    def find(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the rows with these ids, by id; ids that the store does not have are missing from the result."""
        wanted = arrow().array([clean_text(identity) for identity in ids], "string")
        is_wanted = self._both(arrow("pyarrow.compute").field("id").isin(wanted))
        with self._name_damage():
            table = self.dataset.to_table(filter=is_wanted)
        return {row["id"]: row for row in read_rows(table)}

    def score(self, metric: Any, source: Any, model: Any, **options: Any) -> Any:
        """Score the values of all rows without errors with a metric that was not part of the run.

        Args:
            metric: a metric of `ig2.metrics` that needs no ground truth.
            source: the source of the inputs, as for `ig2.run`.
            model: the model that was explained, as for `ig2.run`.
            options: `column`, `batch` and `seed`, as for `ig2.run`.

        Returns:
            `ig2.metrics.Scores`, in the order of `where("error is None").ids`.

        Raises:
            InputError: if the values are stored pooled, or not at all.
        """
        from ig2.runs.scoring import score_store

        return score_store(self, metric, source, model, **options)

    # -- other eyes ----------------------------------------------------------------------------------------------------

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows as a `pyarrow.Table`."""
        return self._read(columns)

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows as a pandas DataFrame; tensors are NumPy arrays of their original shape."""
        pandas = import_extra("pandas", "table", "to_pandas()")
        names = self.columns if columns is None else list(columns)
        frame = pandas.DataFrame(self.iterate(names), columns=[name for name in names if name != SHAPE])
        nullable = {name: "Int64" for name in frame.columns if self._is_integer(name)}
        return frame.astype(nullable)

    def to_shap(self) -> Any:
        """Return a `shap.Explanation` of the rows that have values, for SHAP's plots."""
        shap = import_extra("shap", "shap", "to_shap()")
        self._check_column("values")
        wanted = [name for name in ("values", SHAPE, "baseline_output", "units", "cells") if name in self.columns]
        rows = [row for row in self.iterate(wanted) if row["values"] is not None]
        names = self.manifest.get("units")
        content: dict[str, Any] = {"values": [row["values"] for row in rows]}
        if "units" in wanted:
            content["data"] = [np.array(row["units"], dtype=object) for row in rows]
        else:
            content["values"] = np.stack(content["values"]) if rows else np.zeros((0, 0))
        if "cells" in wanted:
            content["display_data"] = np.array([row["cells"] for row in rows])
            content["data"] = self.tabulate().data
        base = [row.get("baseline_output") or 0.0 for row in rows]
        return shap.Explanation(**content, base_values=np.array(base), feature_names=names)

    def tabulate(self) -> ColumnValues:
        """Return a number for each row and column of a table, with the contents of its cell, for `ig2.plots.beeswarm` etc.

        Rows with errors are skipped.

        Raises:
            InputError: if the run was not on a table, or a number for each column is not stored.
        """
        from ig2.names import ColumnValues, name_output

        names = tuple(self.manifest.get("units") or ())
        if "values" not in self.columns or "cells" not in self.columns or not names:
            raise InputError(
                f"{self.folder} keeps no numbers of a table's columns: run a table with ig2.Saving('units'), or --values units"
            )
        wanted = ["id", "values", "cells", "target", "target_name", "output", "baseline_output", SHAPE]
        rows = [row for row in self.iterate([name for name in wanted if name in self.columns]) if row["values"] is not None]
        if rows and rows[0]["values"].shape != (len(names),):
            raise InputError(
                f"{self.folder} keeps {rows[0]['values'].shape} numbers a row, and the table has {len(names)} columns: run it "
                "with ig2.Saving('units'), or --values units"
            )
        numbers: dict[str, Any] = {}
        for name in ("output", "baseline_output"):
            column = [row.get(name) for row in rows]
            numbers[name] = None if not rows or None in column else np.array(column, dtype=np.float64)
        return ColumnValues(
            names,
            tuple(str(row["id"]) for row in rows),
            np.array([row["values"] for row in rows], dtype=np.float64).reshape(-1, len(names)),
            [row["cells"] for row in rows],
            tuple(row.get("target_name") or name_output(row["target"]) for row in rows),
            tuple(int(row["target"]) for row in rows),
            numbers["output"],
            numbers["baseline_output"],
        )

    @property
    def features(self) -> Any:
        """The columns as `datasets.Features`: `load_dataset("parquet", data_dir=store / "parts", features=this)`."""
        datasets, pyarrow = import_extra("datasets", "run", "features"), arrow()
        plain = [
            column.with_type(column.type.storage_type) if isinstance(column.type, pyarrow.BaseExtensionType) else column
            for column in self.dataset.schema
        ]
        return datasets.Features.from_arrow_schema(pyarrow.schema(plain))

    def __repr__(self) -> str:
        fingerprint = self.manifest["fingerprint"]
        parts = [f"Store {self.folder}: {format_count(len(self), 'row')} in {format_count(len(self.files), 'file')}"]
        parts += [f"  where     {condition}" for condition in self.conditions]
        for name in ("method", "model", "source"):
            content = fingerprint.get(name)
            shown = content.get("type", content.get("name")) if isinstance(content, Mapping) else content
            parts.append(f"  {name:9s} {describe(shown)}")
        return "\n".join([*parts, f"  columns   {', '.join(self.columns)}"])

    # -- reading -------------------------------------------------------------------------------------------------------

    def _both(self, condition: Any) -> Any:
        return condition if self.condition is None else self.condition & condition

    def _is_integer(self, name: str) -> bool:
        return bool(arrow("pyarrow.types").is_integer(self.dataset.schema.field(name).type))

    def _check_column(self, name: str) -> None:
        if name not in self.columns:
            raise InputError(f"{self.folder} has no column {name!r}{suggest(name, self.columns, choice='it has')}")

    def _read(self, columns: Sequence[str] | None) -> Any:
        for name in columns or ():
            self._check_column(name)
        with self._name_damage():
            return self.dataset.to_table(columns=None if columns is None else list(columns), filter=self.condition)

    def _read_batches(self, columns: Sequence[str] | None) -> Iterator[Any]:
        names = None if columns is None else list(columns)
        for name in names or ():
            self._check_column(name)
        if names is not None and "values" in names and SHAPE in self.columns and SHAPE not in names:
            names.append(SHAPE)
        # little ahead of the reader: a part at a time, or all parts of a large store would be in memory
        ahead = {"batch_size": ROWS_AT_ONCE, "batch_readahead": 1, "fragment_readahead": 1}
        with self._name_damage():
            yield from self.dataset.to_batches(columns=names, filter=self.condition, **ahead)

    def _name_damage(self) -> Any:
        return explain_damage(f"a part of {self.folder}" if len(self.files) != 1 else self.files[0])


def read_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow table or batch."""
    cells = read_columns(batch, batch.schema.names)
    for row in range(batch.num_rows):
        yield {name: column[row] for name, column in cells.items()}


def read_columns(batch: Any, names: Iterable[str]) -> dict[str, list[Any]]:
    """Return columns of an Arrow table or batch, with tensors in their original shape."""
    pyarrow = arrow()
    cells: dict[str, list[Any]] = {}
    for name in names:
        column = batch[name]
        column = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
        is_tensor = isinstance(column.type, pyarrow.FixedShapeTensorType)
        cells[name] = _read_tensors(column) if is_tensor else column.to_pylist()
    shapes = cells.pop(SHAPE, None)
    if "values" in cells and not isinstance(batch.schema.field("values").type, pyarrow.FixedShapeTensorType):
        values = [None if row is None else np.asarray(row, dtype=np.float32) for row in cells["values"]]
        if shapes is not None:
            values = [None if row is None else row.reshape(shape) for row, shape in zip(values, shapes, strict=True)]
        cells["values"] = values
    return cells


def _read_tensors(column: Any) -> list[NDArray[Any] | None]:
    shape, storage = column.type.shape, column.storage
    width = int(np.prod(shape))
    flat = storage.values.to_numpy(zero_copy_only=False)[storage.offset * width : (storage.offset + len(storage)) * width]
    tensors = flat.reshape(len(storage), *shape)
    return [None if is_null else tensor for tensor, is_null in zip(tensors, storage.is_null().to_pylist(), strict=True)]
