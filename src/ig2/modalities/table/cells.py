"""Cells of tables: files of them, their texts and numbers, and what is wrong with them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2._utils.files import check_regular
from ig2.errors import IG2Error, InputError, describe, import_extra, reason
from ig2.modalities.samples import BadRowsError

# what people write where a number is missing
MISSING = ("na", "nan", "n/a", "null", "none", "-", "?")
LARGEST = float(np.finfo(np.float32).max)  # the networks' numbers
LONGEST_NUMBER = 10  # characters of a cell


def read_frame(sources: Any) -> Any:
    """Read a DataFrame with rows numbered from 1; the cells of a CSV file are kept as text, unchanged."""
    pandas = import_extra("pandas", "table", "reading tables")
    frame = _to_frame(sources, pandas)
    return frame.set_axis(range(1, len(frame) + 1), axis=0)


def _to_frame(sources: Any, pandas: Any) -> Any:
    if isinstance(sources, (str, PathLike)):
        return _read_file(Path(fspath(sources)), pandas)
    if isinstance(sources, pandas.DataFrame):
        return sources.copy(deep=False)
    if isinstance(sources, dict) or (isinstance(sources, (list, tuple)) and all(isinstance(row, dict) for row in sources)):
        return pandas.DataFrame([sources] if isinstance(sources, dict) else list(sources))
    raise InputError(f"a table is a file, a DataFrame or a list of dicts, got {describe(sources)}")


def _read_file(path: Path, pandas: Any) -> Any:
    suffix = path.suffix.lower()
    try:
        check_regular(path)
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{path} is empty (0 bytes)")
        if suffix in (".parquet", ".pq"):
            import_extra("pyarrow", "table", f"reading {path}")
            return pandas.read_parquet(path, engine="pyarrow")
        if suffix in (".csv", ".tsv", ".txt"):
            separator = "\t" if suffix == ".tsv" else ","
            # texts, so that a cell is shown as it stands and a wrong one can be quoted
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows longer than the header would be cut
                read = partial(
                    pandas.read_csv,
                    path,
                    sep=separator,
                    dtype=str,
                    keep_default_na=False,
                    encoding="utf-8-sig",
                    index_col=False,
                )
                frame = read()
                # where two columns have one name, pandas calls the second 'name.1'
                frame.columns = read(header=None, nrows=1).iloc[0].tolist()
                return frame
    except IG2Error:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path} cannot be read as a table: it is not UTF-8; save it in UTF-8") from error
    except pandas.errors.ParserWarning as error:
        raise InputError(f"{path} cannot be read as a table: its rows have more cells than its header") from error
    except Exception as error:  # a broken file makes pandas and pyarrow raise whatever they meet
        kind = "cannot be read" if isinstance(error, OSError) and error.strerror else "cannot be read as a table"
        raise InputError(f"{path} {kind}: {reason(error)}") from error
    raise InputError(f"{path}: a table is a .csv, .tsv or .parquet file, not {suffix or 'a file without an ending'}")


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() else f"{float(value):.6g}"
    return str(value)


def as_cell(value: Any) -> str:
    """Return a number as written in the file, or with six digits if it has more than a person would write."""
    text = as_text(value)
    return as_text(float(text)) if len(text) > LONGEST_NUMBER else text


def is_missing(value: Any) -> bool:
    return bool(import_extra("pandas", "table", "reading tables").isna(value)) or not str(value).strip()


def check_unique(names: Sequence[Any], wanted: Sequence[Any]) -> None:
    for name in wanted:
        if list(names).count(name) > 1:
            raise InputError(f"the table has more than one column called {name!r}: rename or remove all but one")


def parse_numbers(series: Any, name: str) -> NDArray[np.float64]:
    pandas = import_extra("pandas", "table", "reading tables")
    if series.dtype.kind in "mM" or isinstance(series.dtype, pandas.PeriodDtype):
        # pandas makes numbers of them: nanoseconds, microseconds or whatever else the file counts in
        raise InputError(
            f"column {name!r} holds dates or times ({series.dtype}), not numbers: make numbers of them, such as days since "
            "some date, as the network was trained on"
        )
    if series.dtype.kind == "c":
        raise InputError(f"column {name!r} holds complex numbers ({series.dtype}): give their parts columns of their own")
    numbers: NDArray[np.float64] = pandas.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    problems = {}
    for place in np.flatnonzero(~(np.abs(numbers) <= LARGEST)):
        row, value = int(series.index[place]), series.iloc[place]
        value = value.item() if isinstance(value, np.generic) else value  # to be quoted as it was typed
        missing = is_missing(value) or str(value).strip().lower() in MISSING
        reason_not = "is too large for the network" if np.isfinite(numbers[place]) else "is not a finite number"
        problems[row] = f"row {row}, column {name!r}: {'nothing there' if missing else f'{describe(value)} {reason_not}'}"
    if problems:
        raise BadRowsError(problems, "fill it in or leave the row out")
    return numbers
