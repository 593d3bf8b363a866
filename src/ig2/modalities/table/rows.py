"""Networks on tables: rows in, a number for each column out.

Rows are read and shown in the user's units; the network receives every number minus its column's mean, divided by its column's
standard deviation. Paths, however, have to move in the network's units: a step has one length over all columns, and next to an
area of 1,000, a smoothness of 0.1 has no weight. On scikit-learn's breast cancer rows, IG² in the rows' units moved 4,500
standard deviations away, and left 90 times the change in the output unexplained; in standard units, 0.7 %. Straight paths give
the same attribution in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._utils.suggestions import suggest
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.inputs import Fixed
from ig2.modalities.base import Batch, Outputs, Subject, extract_tensor, make_model, unwrap
from ig2.modalities.modality import Modality
from ig2.modalities.samples import MismatchError
from ig2.modalities.table.cells import as_cell, as_text, check_unique, parse_numbers, read_frame
from ig2.modalities.table.columns import Category, Column, Number, parse_codes
from ig2.modalities.table.modality import TABLES
from ig2.views import Bars


@dataclass(frozen=True, eq=False, repr=False)
class TableSubject(Subject):
    """A network on rows of a table, with the columns it takes."""

    columns: tuple[Column, ...]
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
        check_unique(names, [column.name for column in self.columns])
        if len(frame) == 0:
            raise InputError("the table has no rows")
        frame.columns = names
        if rows is not None:
            frame = frame.iloc[list(rows(len(frame)))]
        features, codes, cells = [], [], []
        for column in self.columns:
            series = frame[column.name]
            if isinstance(column, Number):
                numbers = parse_numbers(series, column.name)
                features.append(torch.tensor((numbers - column.mean) / column.std, dtype=self.dtype)[:, None])
            else:
                chosen = parse_codes(series, column)
                if column.fixed:
                    codes.append(chosen)
                    continue
                features.append(column.table[chosen].to(self.dtype))
            cells.append([as_cell(value) if isinstance(column, Number) else as_text(value) for value in series])
        x: Any = torch.cat(features, dim=1)
        if codes:
            x = (x, Fixed(torch.stack(codes, dim=1)))
        return Batch(
            tuple(f"row {number}" for number in frame.index),
            x,
            (self.units,) * len(frame),
            tuple(tuple(column[i] for column in cells) for i in range(len(frame))),
        )

    def cells(self, sample: Tensor) -> tuple[str, ...]:
        """Return one sample of the data space in the rows' units: each attributed column's number or nearest category."""
        texts = []
        for column, piece in zip(self.attributed, torch.split(sample.detach().cpu(), self.widths), strict=True):
            if isinstance(column, Number):
                number = float(piece) * column.std + column.mean
                texts.append(as_text(float(f"{number:.4g}")))  # 32000, where 4g alone says 3.2e+04
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


# -- networks ----------------------------------------------------------------------------------------------------------


def subject(
    net: Any,
    columns: Sequence[Column | str],
    classes: Sequence[str] | None = None,
    *,
    name: str | None = None,
    outputs: Outputs = "classes",
    rows: Any = None,
) -> TableSubject:
    """Create a subject from any network that takes rows of features (B, F).

    Args:
        net: a network of the columns' features, concatenated in the order of `columns`: standardised numbers and one-hot or
            embedded categories; and, if some are fixed, their codes (B, fixed columns) as a second argument. Or what
            `ig2.wrap` made of it, with another representation or output.
        columns: `Number`s and `Category`s, as returned by `infer_columns`; a bare name is a number that is not standardised.
        classes: names of the outputs.
        name: the name to show; by default the network's class.
        outputs: the kind of outputs: mutually exclusive `"classes"`, independent `"labels"`, or plain `"numbers"`.
        rows: the default rows to choose references from.
    """
    known = tuple(Number(column) if isinstance(column, str) else column for column in columns)
    if not known or not all(isinstance(column, (Number, Category)) for column in known):
        raise InputError(f"columns must be a list of Number and Category, got {describe(columns)}")
    if all(column.fixed for column in known):
        raise InputError("every column is fixed: nothing is left to attribute")
    model = make_model(net)
    return TableSubject(
        name or type(model.net).__name__,
        model,
        classes,
        known,
        outputs=outputs,
        samples=rows,
    )
