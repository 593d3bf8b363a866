"""Columns of tables: numbers and categories, as a network takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ig2.errors import InputError, describe, import_extra, quote_names
from ig2.modalities.samples import BadRowsError
from ig2.modalities.table.cells import as_text, check_unique, is_missing, parse_numbers, read_frame


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
        return tuple(map(as_text, self.values))

    @property
    def table(self) -> Tensor:
        """A vector for each value, (values, width)."""
        return torch.eye(len(self.values)) if self.embedding is None else self.embedding.weight.detach().cpu().float()

    @property
    def width(self) -> int:
        """The number of features of the column."""
        return self.table.shape[1]


Column = Number | Category


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
    check_unique(names, names)
    columns: list[Column] = []
    for name in names:
        series = table[name]
        if name not in categories and name not in fixed and pandas.to_numeric(series, errors="coerce").notna().any():
            numbers = parse_numbers(series, str(name))
            # a column that never changes has nothing to divide by
            columns.append(Number(str(name), float(numbers.mean()), float(numbers.std()) or 1.0))
        else:
            values = sorted({as_text(value) for value in series if not is_missing(value)})
            columns.append(Category(str(name), tuple(values), fixed=name in fixed))
    return tuple(columns)


def parse_codes(series: Any, column: Category) -> Tensor:
    """Return the codes of a column's categories."""
    known = {value: code for code, value in enumerate(column.texts)}
    codes, problems = [], {}
    for row, value in series.items():
        text = "" if is_missing(value) else as_text(value)
        if text in known:
            codes.append(known[text])
        else:
            what = f"{describe(text)} is unknown" if text else "nothing there"
            problems[int(row)] = f"row {row}, column {column.name!r}: {what}"
    if problems:
        raise BadRowsError(problems, f"it can be {quote_names(column.texts, 6)}")
    return torch.tensor(codes)
