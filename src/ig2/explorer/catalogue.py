"""The numbers and names of all items in memory, and queries of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe, reason
from ig2.report.encoding import drop_nan
from ig2.runs.files import arrow
from ig2.runs.filters import parse_condition
from ig2.runs.store import Store
from ig2.verdict import NUMBERS, Finding, judge_columns

FINDINGS = "findings"  # the column with the codes of the reasons not to take an item's values as they are
POSITION = "position"  # the column with the place of a row in its store
BINS = 32
MOST_CLASSES = 12  # of a confusion matrix; the rest is "other"
OTHER = "other classes"
LONGEST_TEXT = 200  # characters that are searched for
LAYOUTS = ("pca", "umap")
DISTRIBUTIONS = ("trust", "relative_residual", "output", "arrival", "spread")
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Query:
    """A selection of items and their order. All conditions must be fulfilled.

    Args:
        where: a condition, as for `Store.where`.
        text: a part of the id, the words or the cells, in any case.
        ranges: (column, least, most) of numbers, both ends included.
        cell: the label and the prediction of a cell of the confusion matrix, by their names.
        brush: (left, top, right, bottom) on the map of all items.
        cluster: a cluster of explanations, by number.
        sort: a column, with a minus in front for the largest first; by default the order of the store.
        layout: the map that the brush is on: "pca" or "umap".
    """

    where: str = ""
    text: str = ""
    ranges: tuple[tuple[str, float, float], ...] = ()
    cell: tuple[str, str] | None = None
    brush: tuple[float, float, float, float] | None = None
    cluster: int | None = None
    sort: str = ""
    layout: str = "pca"


class Catalogue:
    """The columns with one number or text for each item, of a store and of those it is compared with.

    Columns of the second store end in `_2`, those of the third in `_3`. Values missing in another store are empty. The column
    `findings` has the codes of `ig2.verdict` that make an item's values doubtful, such as "signless, short".

    Args:
        stores: the first has the items; the others are joined by the ids.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        pyarrow, compute = arrow(), arrow("pyarrow.compute")
        first = stores[0]
        self.table = first.to_arrow(first.scalars)
        self.places: list[Positions] = [np.arange(len(self.table))]
        for number, other in enumerate(stores[1:], start=2):
            table = other.to_arrow(other.scalars)
            places = compute.index_in(self.table["id"], table["id"].combine_chunks()).combine_chunks()
            self.places.append(np.asarray(places.fill_null(-1), dtype=np.int64))
            for name in table.column_names:
                if name != "id":
                    self.table = self.table.append_column(f"{name}_{number}", table[name].take(places))
        for suffix in self.suffixes:
            self.table = self.table.append_column(FINDINGS + suffix, pyarrow.array(self._list_doubts(suffix), "string"))
        self.columns: list[str] = list(self.table.column_names)
        self.texts = _read_texts(first, self.table["id"])
        self.labels, self.predictions = (self._name_classes(name, first) for name in ("label", "prediction"))
        known = (self.labels != "") & (self.predictions != "")
        self.is_right: NDArray[np.int8] = np.where(known, self.labels == self.predictions, -1).astype(np.int8)
        """Whether each prediction is the label: 1, 0, or -1 where one of them is missing."""
        # the names in their order, and each item's label and prediction as places among them
        self._classes, codes = np.unique(np.concatenate([self.labels, self.predictions]).astype(str), return_inverse=True)
        self._codes = codes.reshape(2, -1)
        self.table = self.table.append_column(POSITION, pyarrow.array(np.arange(len(self.table))))
        self.ids: list[str] = self.table["id"].to_pylist()
        self._read: dict[str, NDArray[np.float64]] = {}  # columns as numbers, once they were asked for
        self._scales: dict[str, dict[str, Any]] = {}  # what a histogram of all items is, which no filter changes
        self.numbers: dict[str, int] = {identity: number for number, identity in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def suffixes(self) -> list[str]:
        """The ends of the columns of each store."""
        return ["", *(f"_{number}" for number in range(2, len(self.places) + 1))]

    def judge(self, suffix: str = "", positions: Positions | None = None) -> tuple[Finding, ...]:
        """Return the findings on items.

        Args:
            suffix: of the columns of the store.
            positions: the items; by default all.
        """
        table = self.table if positions is None else self.table.take(positions)
        numbers = {name: table[name + suffix] for name in NUMBERS if name + suffix in table.column_names}
        return judge_columns({name: cells.to_numpy() for name, cells in numbers.items() if str(cells.type) != "string"})

    def _list_doubts(self, suffix: str) -> NDArray[np.object_]:
        """Return the codes of what makes each item's values doubtful; None where nothing does."""
        doubts = np.full(len(self.table), None, dtype=object)
        for finding in self.judge(suffix):
            if finding.severity == "poor":
                rows = np.array(finding.rows)
                doubts[rows] = [finding.code if had is None else f"{had}, {finding.code}" for had in doubts[rows]]
        return doubts

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def find(self, query: Query, points: NDArray[np.float32] | None = None, clusters: Any = None) -> Positions:
        """Return the positions of the items that fulfil a query, in its order.

        Args:
            query: the query.
            points: the position of each item on the map, for a brush.
            clusters: the number of each item's cluster.

        Raises:
            InputError: if the query is invalid, or requires a map that is not yet available.
        """
        kept = np.ones(len(self), dtype=bool)
        if query.where.strip():
            kept &= self._fulfils(query.where)
        if query.text:
            kept &= self._contains(query.text)
        for name, least, most in query.ranges:
            numbers = self.read_numbers(name)
            with np.errstate(invalid="ignore"):
                kept &= (numbers >= least) & (numbers <= most)
        if query.cell is not None:
            kept &= (self.labels == query.cell[0]) & (self.predictions == query.cell[1])
        if query.brush is not None:
            left, top, right, bottom = query.brush
            x, y = _need(points, "a brush").T
            kept &= (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
        if query.cluster is not None:
            kept &= _need(clusters, "a cluster") == query.cluster
        positions: Positions = np.flatnonzero(kept)
        return self._sort(positions, query.sort) if query.sort else positions

    def _fulfils(self, condition: str) -> NDArray[np.bool_]:
        expression = parse_condition(condition, self.table.select(self.columns).schema)
        try:
            positions = self.table.filter(expression)[POSITION]
        except arrow().ArrowException as error:  # texts compared with numbers, for example
            raise InputError(f"the condition {describe(condition)} cannot be used: {reason(error)}") from error
        kept = np.zeros(len(self), dtype=bool)
        kept[np.asarray(positions)] = True
        return kept

    def _contains(self, text: str) -> Any:
        if len(text) > LONGEST_TEXT:
            raise InputError(f"a search has {LONGEST_TEXT} characters at most, got {len(text):,}")
        compute = arrow("pyarrow.compute")
        matches = compute.match_substring(self.texts, text, ignore_case=True)
        return np.asarray(matches.fill_null(False), dtype=bool)

    def _sort(self, positions: Positions, sort: str) -> Positions:
        name, order = sort.removeprefix("-"), "descending" if sort.startswith("-") else "ascending"
        self._check_column(name)
        column = self.table[name].take(positions)
        if str(column.type) in ("double", "float"):
            column = arrow().chunked_array([arrow().array(np.asarray(column, dtype=float), from_pandas=True)])  # NaN is empty
        indices = arrow("pyarrow.compute").sort_indices(column, sort_keys=[("", order)])
        ordered: Positions = positions[np.asarray(indices)]
        return ordered

    # -- what there is -------------------------------------------------------------------------------------------------

    def read_numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers, with NaN where it is empty."""
        if name not in self._read:
            self._check_column(name)
            column = self.table[name]
            if str(column.type) == "string":
                raise InputError(f"the column {name!r} has texts, expected numbers")
            self._read[name] = np.asarray(column.cast("float64").fill_null(float("nan")), dtype=float)
        return self._read[name]

    def read_row(self, position: int) -> dict[str, Any]:
        """Return the numbers and names of an item; NaN is None."""
        return {name: drop_nan(self.table[name][position].as_py()) for name in self.columns}

    def summarise(self, positions: Positions) -> dict[str, Any]:
        """Return counts, accuracy, the confusion matrix and the distributions of some items, beside those of all."""
        is_right = self.is_right[positions]
        known, errors = is_right[is_right >= 0], self.table["error"].take(positions) if "error" in self.columns else None
        failed = 0 if errors is None else len(errors) - errors.null_count
        return {
            "total": len(self),
            "selected": len(positions),
            "failed": failed,
            "labelled": len(known),
            "right": int(known.sum()),
            "confusion": self._confuse(positions),
            "distributions": [self._distribute(name, positions) for name in self.list_distributions()],
        }

    def list_distributions(self) -> list[str]:
        """Return the columns of numbers whose histograms are shown: those that differ between items."""
        integers = ("label", "target", "prediction")
        numbers = [
            name
            for name in self.columns
            if str(self.table[name].type) in ("double", "float", "int64", "int32") and name not in integers
        ]
        known = [name for name in DISTRIBUTIONS if name in numbers]
        hidden = ("residual", "baseline_output", "reference_output", "complete", *integers)
        metrics = [
            name for name in numbers if name not in known and name.rpartition("_")[0] not in hidden and name not in hidden
        ]
        return [name for name in [*known, *metrics] if _differs(_drop_empty(self.read_numbers(name)))]

    def _distribute(self, name: str, positions: Positions) -> dict[str, Any]:
        """Count the values of a column; the first and the last bin include values beyond them."""
        numbers = self.read_numbers(name)
        if name not in self._scales:
            finite = _drop_empty(numbers)
            low, high = (float(edge) for edge in np.quantile(finite, [0.005, 0.995]))
            high = high if high > low else low + 1.0
            ends = {"low": low, "high": high, "least": float(finite.min()), "most": float(finite.max())}
            self._scales[name] = {"name": name, **ends, "all": _count(finite, low, high)}
        scale = self._scales[name]
        return {**scale, "selected": _count(_drop_empty(numbers[positions]), scale["low"], scale["high"])}

    def _confuse(self, positions: Positions) -> dict[str, Any] | None:
        known = positions[self.is_right[positions] >= 0]
        if not len(known):
            return None
        rows, columns = (codes[known] for codes in self._codes)
        times = np.bincount(rows, minlength=len(self._classes)) + np.bincount(columns, minlength=len(self._classes))
        largest = np.sort(np.argsort(-times, kind="stable")[: min(MOST_CLASSES, int((times > 0).sum()))])
        shown = [str(self._classes[code]) for code in largest]
        others = len(shown) if (times > 0).sum() > len(shown) else None
        places = np.full(len(self._classes), -1 if others is None else others)
        places[largest] = np.arange(len(largest))
        counts = np.zeros((len(shown) + (others is not None),) * 2, dtype=int)
        np.add.at(counts, (places[rows], places[columns]), 1)
        return {"classes": shown + [OTHER] * (others is not None), "counts": counts.tolist(), "others": others is not None}

    def _name_classes(self, name: str, store: Store) -> NDArray[np.object_]:
        """Return each item's class by its name; a number where it has none, nothing where it has no class."""
        classes = store.manifest.get("classes") or []
        empty = [None] * len(self.table)
        numbers = self.table[name].to_pylist() if name in self.columns else empty
        names = self.table[f"{name}_name"].to_pylist() if f"{name}_name" in self.columns else empty
        texts = [
            str(classes[number]) if number is not None and 0 <= number < len(classes)
            else text if text is not None
            else "" if number is None
            else str(number)
            for number, text in zip(numbers, names, strict=True)
        ]  # fmt: skip
        return np.array(texts, dtype=object)

    def _check_column(self, name: str) -> None:
        if name not in self.columns:
            raise InputError(f"there is no column {describe(name)}{suggest(name, self.columns, choice='there are')}")


def _differs(numbers: NDArray[np.float64]) -> bool:
    return len(numbers) > 0 and bool((numbers != numbers[0]).any())


def _count(finite: NDArray[np.float64], low: float, high: float) -> list[int]:
    edges = np.linspace(low, high, BINS + 1)
    return [int(times) for times in np.histogram(np.clip(finite, low, high), edges)[0]]


def _drop_empty(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return numbers[np.isfinite(numbers)]


def _need(values: Any, purpose: str) -> Any:
    if values is None:
        raise InputError(f"{purpose} needs the map of all items, which is not made yet: wait for it, or omit it")
    return values


def _read_texts(store: Store, ids: Any) -> Any:
    """Return the searchable text of each item: the id, with the words of a text or the cells of a row."""
    compute = arrow("pyarrow.compute")
    name = next((name for name in ("units", "cells") if name in store.columns), None)
    if name is None:
        return ids
    words = compute.binary_join(store.to_arrow([name])[name], " ")
    return compute.binary_join_element_wise(ids, words.fill_null(""), " ")
