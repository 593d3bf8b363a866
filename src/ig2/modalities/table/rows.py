"""Networks on tables: rows in, a number for each column out.

Rows are read and shown in the user's units; the network receives every number minus its column's mean, divided by its column's
standard deviation. Paths, however, have to move in the network's units: a step has one length over all columns, and next to an
area of 1,000, a smoothness of 0.1 has no weight. On scikit-learn's breast cancer rows, IG² in the rows' units moved 4,500
standard deviations away, and left 90 times the change in the output unexplained; in standard units, 0.7 %. Straight paths give
the same attribution in both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2._engine.inputs import Fixed
from ig2._utils.files import check_regular
from ig2._utils.suggestions import suggest
from ig2.attribution import Attribution
from ig2.errors import IG2Error, InputError, describe, import_extra, quote_names, reason
from ig2.modalities.base import Batch, Outputs, Subject, extract_tensor, unwrap
from ig2.modalities.modality import Modality
from ig2.modalities.models import MODELS
from ig2.modalities.samples import BadRowsError, MismatchError
from ig2.modalities.table.modality import TABLES
from ig2.model import OutputName, wrap
from ig2.views import Bars

Space = Literal["standard", "raw"]
# what people write where a number is missing
LARGEST = float(np.finfo(np.float32).max)  # the networks' numbers
LONGEST_NUMBER = 10  # characters of a cell
MISSING = ("na", "nan", "n/a", "null", "none", "-", "?")


@dataclass(frozen=True)
class Number:
    """A column of numbers, with the mean and standard deviation that standardise it for the network."""

    name: str
    mean: float = 0.0
    std: float = 1.0
    fixed: ClassVar[bool] = False
    width: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.std > 0 or not np.isfinite([self.mean, self.std]).all():
            raise InputError(f"column {self.name!r}: mean {self.mean} and std {self.std} do not standardise")


@dataclass(frozen=True, eq=False)
class Category:
    """A column with a few possible values.

    Args:
        name: the name of the column.
        values: the possible values, in the order of the network's codes; read as text.
        embedding: the network's embedding of the values; by default one-hot.
        fixed: whether to pass the value's index to the network unchanged, never moved and never attributed.
    """

    name: str
    values: Sequence[Any]
    embedding: nn.Embedding | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        if not self.texts or len(set(self.texts)) != len(self.texts):
            raise InputError(f"column {self.name!r} needs different values, got {describe(self.values)}")
        if self.embedding is not None and self.embedding.num_embeddings != len(self.values):
            raise InputError(
                f"column {self.name!r} has {len(self.values)} values and an embedding of {self.embedding.num_embeddings}"
            )

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as they are written in a table."""
        return tuple(map(_as_text, self.values))

    @property
    def table(self) -> Tensor:
        """A vector for each value, (values, width)."""
        return torch.eye(len(self.values)) if self.embedding is None else self.embedding.weight.detach().cpu().float()

    @property
    def width(self) -> int:
        """The number of features of the column."""
        return self.table.shape[1]


Column = Number | Category


class Standardise(nn.Module):
    """Standardise each feature, (x − mean) / std; fixed inputs are passed on."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, features: Tensor, *fixed: Any) -> Any:
        features = (features - self.mean) / self.std
        return (features, *fixed) if fixed else features


@dataclass(frozen=True, eq=False, repr=False)
class TableSubject(Subject):
    """A network on rows of a table, with the columns it takes."""

    columns: tuple[Column, ...]
    space: Space = "standard"
    modality: ClassVar[Modality] = TABLES
    dtype: ClassVar[torch.dtype] = torch.float32  # of the features

    @property
    def attributed(self) -> tuple[Column, ...]:
        """The columns that are not fixed, in the order of the features."""
        return tuple(column for column in self.columns if not column.fixed)

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the attributed columns."""
        return tuple(column.name for column in self.attributed)

    @property
    def widths(self) -> list[int]:
        """The number of features of each attributed column."""
        return [column.width for column in self.attributed]

    def read(self, sources: Any, rows: Callable[[int], Sequence[int]] | None = None) -> Batch:
        """Read rows of a table.

        Args:
            sources: a CSV, TSV or Parquet file, a pandas DataFrame, or a list of dicts; columns are matched by name, in any
                order, and others are ignored.
            rows: a function from the number of rows to the indices of those to read, counted from 0; the other rows are not
                checked. By default all.
        """
        frame = read_frame(unwrap(sources))
        names = [str(name) for name in frame.columns]
        missing = [column.name for column in self.columns if column.name not in names]
        if missing:
            hint = suggest(missing[0], names, choice="it has")
            if len(names) == 1 and any(separator in names[0] for separator in ",;\t|"):
                hint = f": its one column is {names[0]!r}. A .csv file is separated by commas, a .tsv file by tabs"
            raise MismatchError(f"the table lacks {len(missing)} of {len(self.columns)} columns, such as {missing[0]!r}{hint}")
        _check_unique(names, [column.name for column in self.columns])
        if len(frame) == 0:
            raise InputError("the table has no rows")
        frame.columns = names
        if rows is not None:
            frame = frame.iloc[list(rows(len(frame)))]
        features, codes, cells = [], [], []
        for column in self.columns:
            series = frame[column.name]
            if isinstance(column, Number):
                numbers = _parse_numbers(series, column.name)
                features.append(torch.tensor(self._encode(column, numbers), dtype=self.dtype)[:, None])
            else:
                chosen = _parse_codes(series, column)
                if column.fixed:
                    codes.append(chosen)
                    continue
                features.append(column.table[chosen].to(self.dtype))
            cells.append([_as_cell(value) if isinstance(column, Number) else _as_text(value) for value in series])
        x: Any = torch.cat(features, dim=1)
        if codes:
            x = (x, Fixed(torch.stack(codes, dim=1)))
        return Batch(
            tuple(f"row {number}" for number in frame.index),
            x,
            (self.units,) * len(frame),
            tuple(tuple(column[i] for column in cells) for i in range(len(frame))),
        )

    def _encode(self, column: Number, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return (numbers - column.mean) / column.std if self.space == "standard" else numbers

    def cells(self, sample: Tensor) -> tuple[str, ...]:
        """Return one sample of the data space in the rows' units: each attributed column's number or nearest category."""
        texts = []
        for column, piece in zip(self.attributed, torch.split(sample.detach().cpu(), self.widths), strict=True):
            if isinstance(column, Number):
                number = float(piece) * column.std + column.mean if self.space == "standard" else float(piece)
                texts.append(_as_text(float(f"{number:.4g}")))  # 32000, where 4g alone says 3.2e+04
            else:
                texts.append(column.texts[int(torch.linalg.vector_norm(column.table - piece, dim=1).argmin())])
        return tuple(texts)

    def view(self, batch: Batch, row: int) -> Bars:
        assert batch.units is not None
        return Bars(batch.units[row], batch.cells[row] if batch.cells else ())

    def view_sample(self, sample: Tensor) -> Bars:
        return Bars(self.units, self.cells(sample))

    def groups(self, batch: Batch) -> tuple[tuple[int, ...], ...]:
        """Return the column of each feature."""
        return (tuple(number for number, width in enumerate(self.widths) for _ in range(width)),) * len(batch)

    def describe_counterfactual(self, attribution: Attribution) -> tuple[tuple[str, ...], ...] | None:
        """Return each explicand's row at the end of GradPath, the mean over references; None for methods without it."""
        if attribution.gradcf is None:
            return None
        ends, weights = extract_tensor(attribution, attribution.gradcf), attribution.weights
        means = ends.mean(dim=1) if weights is None else (weights.cpu().to(ends)[:, :, None] * ends).sum(dim=1)
        return tuple(map(self.cells, means))


# -- reading -----------------------------------------------------------------------------------------------------------


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


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() else f"{float(value):.6g}"
    return str(value)


def _as_cell(value: Any) -> str:
    """Return a number as written in the file, or with six digits if it has more than a person would write."""
    text = _as_text(value)
    return _as_text(float(text)) if len(text) > LONGEST_NUMBER else text


def _is_missing(value: Any) -> bool:
    return bool(import_extra("pandas", "table", "reading tables").isna(value)) or not str(value).strip()


def _check_unique(names: Sequence[Any], wanted: Sequence[Any]) -> None:
    for name in wanted:
        if list(names).count(name) > 1:
            raise InputError(f"the table has more than one column called {name!r}: rename or remove all but one")


def _parse_numbers(series: Any, name: str) -> NDArray[np.float64]:
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
        missing = _is_missing(value) or str(value).strip().lower() in MISSING
        reason_not = "is too large for the network" if np.isfinite(numbers[place]) else "is not a finite number"
        problems[row] = f"row {row}, column {name!r}: {'nothing there' if missing else f'{describe(value)} {reason_not}'}"
    if problems:
        raise BadRowsError(problems, "fill it in or leave the row out")
    return numbers


def _parse_codes(series: Any, column: Category) -> Tensor:
    known = {value: code for code, value in enumerate(column.texts)}
    codes, problems = [], {}
    for row, value in series.items():
        text = "" if _is_missing(value) else _as_text(value)
        if text in known:
            codes.append(known[text])
        else:
            what = f"{describe(text)} is unknown" if text else "nothing there"
            problems[int(row)] = f"row {row}, column {column.name!r}: {what}"
    if problems:
        raise BadRowsError(problems, f"it can be {quote_names(column.texts, 6)}")
    return torch.tensor(codes)


def infer_columns(
    frame: Any, categories: str | Sequence[str] = (), fixed: str | Sequence[str] = (), leave_out: str | Sequence[str] = ()
) -> tuple[Column, ...]:
    """Infer columns, with their means, standard deviations and values, from the table a network was trained on.

    Args:
        frame: the training rows, in any form that `TableSubject.read` accepts.
        categories: numeric columns to treat as categories; columns of text always are.
        fixed: categories that are never moved or attributed.
        leave_out: columns that are not inputs, such as the label.
    """
    table = read_frame(frame)
    categories, fixed, leave_out = ([names] if isinstance(names, str) else names for names in (categories, fixed, leave_out))
    unknown = [name for name in (*categories, *fixed, *leave_out) if name not in table.columns]
    if unknown:
        raise InputError(f"the table has no column {unknown[0]!r}: it has {quote_names(list(map(str, table.columns)), 6)}")
    pandas = import_extra("pandas", "table", "reading tables")
    names = [name for name in table.columns if name not in leave_out]
    _check_unique(names, names)
    columns: list[Column] = []
    for name in names:
        series = table[name]
        if name not in categories and name not in fixed and pandas.to_numeric(series, errors="coerce").notna().any():
            numbers = _parse_numbers(series, str(name))
            # a column that never changes has nothing to divide by
            columns.append(Number(str(name), float(numbers.mean()), float(numbers.std()) or 1.0))
        else:
            values = sorted({_as_text(value) for value in series if not _is_missing(value)})
            columns.append(Category(str(name), tuple(values), fixed=name in fixed))
    return tuple(columns)


# -- networks ----------------------------------------------------------------------------------------------------------


def subject(
    net: nn.Module,
    columns: Sequence[Column | str],
    classes: Sequence[str] | None = None,
    *,
    space: Space = "standard",
    name: str | None = None,
    representation: str | nn.Module | None = None,
    output: OutputName | Callable[[Any], Tensor] = "logit",
    outputs: Outputs = "classes",
    rows: Any = None,
) -> TableSubject:
    """Create a subject from any network that takes rows of features (B, F).

    Args:
        net: a network of the columns' features, concatenated in the order of `columns`: standardised numbers and one-hot or
            embedded categories; and, if some are fixed, their codes (B, fixed columns) as a second argument.
        columns: `Number`s and `Category`s, as returned by `infer_columns`; a bare name is a number that is not standardised.
        classes: names of the outputs.
        space: the units in which paths move. `"standard"`: each column's standard deviation, as GradPath needs. `"raw"`: the
            rows' units, with standardisation inside the model.
        name: the name to show; by default the network's class.
        representation: see `ig2.wrap`.
        output: see `ig2.wrap`.
        outputs: the kind of outputs: mutually exclusive `"classes"`, independent `"labels"`, or plain `"numbers"`.
        rows: the default rows to choose references from.
    """
    known = tuple(Number(column) if isinstance(column, str) else column for column in columns)
    if not known or not all(isinstance(column, (Number, Category)) for column in known):
        raise InputError(f"columns must be a list of Number and Category, got {describe(columns)}")
    if space not in ("standard", "raw"):
        raise InputError(f"space={space!r} is unknown: use 'standard' or 'raw'")
    moving = [column for column in known if not column.fixed]
    if not moving:
        raise InputError("every column is fixed: nothing is left to attribute")
    standardise = None
    if space == "raw":
        scales = [[(c.mean, c.std)] if isinstance(c, Number) else [(0.0, 1.0)] * c.width for c in moving]
        mean, std = torch.tensor([pair for column in scales for pair in column]).unbind(dim=1)
        standardise = Standardise(mean.clone(), std.clone()).eval()
        standardise.to(next((tensor.device for tensor in [*net.parameters(), *net.buffers()]), None))
    return TableSubject(
        name or type(net).__name__,
        wrap(net, representation, output, preprocess=standardise),
        None if classes is None else tuple(map(str, classes)),
        known,
        space,
        outputs=outputs,
        samples=rows,
    )


def load(model: str = "breast-cancer") -> TableSubject:
    """Load a table model by name.

    Args:
        model: a registered name; the demo provides the classifiers `"breast-cancer"`, `"wine"` and `"iris"`, and `"diabetes"`,
            which predicts a number. Each is trained on one of scikit-learn's tables on first use.
    """
    if model in MODELS:
        return MODELS.load(model, TableSubject)
    raise InputError(f"no table model is called {describe(model)}: use one of {', '.join(MODELS)}")
