"""Aggregates of a run, updated row by row: means, quantiles, extremes and curves.

Everything is computed from the stored rows in their order, so that a run that was killed and resumed ends with the same
numbers, to the last bit, as one that was not. Memory depends on the numbers of classes and features, not on that of rows.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2.errors import InputError, describe, reason

ACCURACY = 0.01  # of a quantile, as a share of it
GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
SMALLEST = 1e-12  # smaller numbers count as zero
EXTREMES = 20  # items in each list of extremes
SIDE = 14  # of the grid that images are pooled to
MOST_FEATURES = 4096
MOST_WORDS = 10_000  # the first different words of a run; later ones are not counted
ROWS_AT_ONCE = 256  # taken as arrays: one by one, a row of 14 × 14 values took 107 µs, so it takes 29
POOLED_AT_ONCE = 2**15  # numbers, which stay in the cache: photos of 224 × 224 pixels took 18 times longer 256 at once
# Numbers of a row that are averaged, as all metrics are.
AVERAGED = (
    "output", "baseline_output", "residual", "relative_residual", "trust", "arrival", "stuck", "finished", "spread",
)  # fmt: skip
CURVE = "_curve"  # the end of the name of a column with curves


@dataclass
class Sketch:
    """Quantiles of a stream in bounded memory, each with a relative error of at most 1 %, in any order [Masson 2019].

    A number v falls into the bucket ⌈log_γ |v|⌉ of its sign with γ = (1 + α) / (1 − α), and 2·γ^bucket / (γ + 1) is
    within α·|v| of it.

    >>> sketch = Sketch()
    >>> sketch.add(range(1, 1001))
    >>> abs(sketch.quantile(0.5) - 500) < 5
    True
    """

    buckets: Counter[int] = field(default_factory=Counter)
    """The number of values in each bucket; even keys are positive, odd ones negative."""
    zeros: int = 0

    def add(self, values: Iterable[float]) -> None:
        """Add numbers; those that are not finite are ignored."""
        numbers = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=np.float64)
        self.buckets.update(_find_buckets(numbers[np.isfinite(numbers)]).tolist())
        self.zeros += self.buckets.pop(ZERO, 0)

    def _count(self, key: int) -> None:
        if key == ZERO:
            self.zeros += 1
        else:
            self.buckets[key] = self.buckets.get(key, 0) + 1

    def __len__(self) -> int:
        return self.zeros + sum(self.buckets.values())

    def quantile(self, share: float) -> float:
        """Return the number below which this share of all lies; NaN if there are none."""
        ordered = sorted((_read_bucket(key), count) for key, count in self.buckets.items())
        ordered = sorted([*ordered, (0.0, self.zeros)]) if self.zeros else ordered
        rank, seen = share * (len(self) - 1), 0
        for value, count in ordered:
            seen += count
            if seen > rank:
                return value
        return math.nan


ZERO = -(2**31)  # the bucket of zero


def _find_buckets(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    size = np.abs(numbers)
    with np.errstate(divide="ignore"):
        bucket = np.ceil(np.log(np.maximum(size, SMALLEST)) / math.log(GAMMA)).astype(np.int64)
    return np.where(size < SMALLEST, ZERO, 2 * bucket + (numbers < 0))


def _read_bucket(key: int) -> float:
    value = 2 * GAMMA ** (key // 2) / (GAMMA + 1)
    return -value if key % 2 else value


@dataclass
class Mean:
    """A mean as a sum and a count."""

    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        """Add a number."""
        self.count, self.total = self.count + 1, self.total + value

    @property
    def value(self) -> float:
        """The mean; NaN if there are no numbers."""
        return self.total / self.count if self.count else math.nan


@dataclass
class ClassAggregates:
    """The aggregates of the rows of one explained class."""

    count: int = 0
    means: dict[str, Mean] = field(default_factory=dict)
    """The means of output, residual, trust and the other scalars and metrics."""
    sketches: dict[str, Sketch] = field(default_factory=dict)
    """The quantiles of the same columns."""
    features: NDArray[np.float64] | None = None
    """The sum of the values of each feature."""
    curves: dict[str, tuple[int, NDArray[np.float64]]] = field(default_factory=dict)
    """The number of curves of each metric, and their sum."""


@dataclass
class Aggregates:
    """Running aggregates of the rows without errors."""

    rows: int = 0
    classes: dict[int, ClassAggregates] = field(default_factory=dict)
    words: dict[str, Mean] = field(default_factory=dict)
    """The mean of the values of each word."""
    extremes: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """`most_trusted`, `least_trusted` and `largest_residuals`: a number and an id each."""

    # -- what they say -------------------------------------------------------------------------------------------------

    def mean(self, column: str, target: int | None = None) -> float:
        """Return the mean of a column, for one explained class or for all."""
        means = [part.means[column] for part in self._choose(target) if column in part.means]
        return Mean(sum(mean.count for mean in means), math.fsum(mean.total for mean in means)).value

    def quantile(self, column: str, share: float, target: int | None = None) -> float:
        """Return a quantile of a column, with a relative error of at most 1 %."""
        merged = Sketch()
        for part in self._choose(target):
            sketch = part.sketches.get(column, Sketch())
            merged.zeros += sketch.zeros
            for key, count in sketch.buckets.items():
                merged.buckets[key] = merged.buckets.get(key, 0) + count
        return merged.quantile(share)

    def feature_means(self, target: int | None = None) -> NDArray[np.float64]:
        """Return the mean value of each feature: a table's column, or a field of an image's 14 × 14."""
        parts = [part for part in self._choose(target) if part.features is not None]
        sums = [part.features for part in parts if part.features is not None]
        return np.sum(sums, axis=0) / sum(part.count for part in parts) if sums else np.zeros(0)

    def curve(self, metric: str, target: int | None = None) -> NDArray[np.float64]:
        """Return the mean curve of a metric, such as "insertion"."""
        pairs = [part.curves[metric] for part in self._choose(target) if metric in part.curves]
        return np.sum([total for _, total in pairs], axis=0) / sum(count for count, _ in pairs) if pairs else np.zeros(0)

    def _choose(self, target: int | None) -> list[ClassAggregates]:
        if target is None:
            return [self.classes[label] for label in sorted(self.classes)]
        return [self.classes[target]] if target in self.classes else []

    # -- rows ----------------------------------------------------------------------------------------------------------

    def absorb(self, rows: Iterable[Mapping[str, Any]], metrics: Sequence[str] = ()) -> None:
        """Add rows of a store, in their order.

        Args:
            rows: the rows, as yielded by a `Store`.
            metrics: the columns that hold scores.
        """
        sound = (row for row in rows if row.get("error") is None)
        while chunk := list(itertools.islice(sound, ROWS_AT_ONCE)):
            self.absorb_columns({name: [row[name] for row in chunk] for name in chunk[0]}, metrics)

    def absorb_columns(self, columns: Mapping[str, Sequence[Any]], metrics: Sequence[str] = ()) -> None:
        """Add rows without errors, as columns; those without a number may be missing."""
        targets = [int(target) for target in columns["target"]]
        for target in dict.fromkeys(targets):
            self.classes.setdefault(target, ClassAggregates())
        parts = [self.classes[target] for target in targets]
        self.rows += len(parts)
        for part in parts:
            part.count += 1
        names = [name for name in (*AVERAGED, *metrics) if name in columns]
        numbers = np.array([columns[name] for name in names], dtype=np.float64)  # None becomes NaN
        numbers = numbers.reshape(len(names), len(parts)).T
        buckets = _find_buckets(np.nan_to_num(numbers)).tolist()
        for part, cells, keys in zip(parts, numbers.tolist(), buckets, strict=True):
            for name, cell, key in zip(names, cells, keys, strict=True):
                if math.isfinite(cell):
                    if name not in part.means:
                        part.means[name], part.sketches[name] = Mean(), Sketch()
                    part.means[name].add(cell)
                    part.sketches[name]._count(key)
        for name in metrics:
            for part, curve in zip(parts, columns.get(name + CURVE, ()), strict=False):
                if curve is not None and np.isfinite(curve).all():
                    count, total = part.curves.get(name, (0, np.zeros(len(curve))))
                    part.curves[name] = (count + 1, total + np.asarray(curve, dtype=np.float64))
        if "values" in columns and "regions" not in columns:
            self._absorb_values(parts, columns)
        nothing = [None] * len(parts)
        ranked = zip(columns["id"], columns.get("trust", nothing), columns.get("relative_residual", nothing), strict=True)
        for identity, trust, residual in ranked:
            if trust is not None:
                self._rank("least_trusted", float(trust), str(identity), 1)
                self._rank("most_trusted", float(trust), str(identity), -1)
            if residual is not None:
                self._rank("largest_residuals", float(residual), str(identity), -1)

    def _absorb_values(self, parts: Sequence[ClassAggregates], columns: Mapping[str, Sequence[Any]]) -> None:
        places = [place for place, values in enumerate(columns["values"]) if values is not None]
        values = [columns["values"][place] for place in places]
        if places and "units" in columns:
            self._absorb_words([(columns["units"][place], row) for place, row in zip(places, values, strict=True)])
        elif places:
            self._absorb_features([parts[place] for place in places], values)

    def _rank(self, name: str, value: float, identity: str, sign: int) -> None:
        entries = self.extremes.setdefault(name, [])
        if len(entries) == EXTREMES and (sign * value, identity) > (sign * entries[-1][0], entries[-1][1]):
            return
        entries.append((value, identity))
        entries.sort(key=lambda entry: (sign * entry[0], entry[1]))
        del entries[EXTREMES:]

    def _absorb_words(self, rows: Sequence[tuple[Sequence[str], NDArray[Any]]]) -> None:
        # with as many values as words: otherwise they are of tokens
        pairs = [(units, values) for units, values in rows if len(units) == values.size]
        words = [word.lower() for units, _ in pairs for word in units]
        values = np.concatenate([np.zeros(0), *(np.asarray(cells, dtype=np.float64).ravel() for _, cells in pairs)])
        for word, value in zip(words, values.tolist(), strict=True):
            if word in self.words or len(self.words) < MOST_WORDS:
                self.words.setdefault(word, Mean()).add(value)

    def _absorb_features(self, parts: Sequence[ClassAggregates], values: Sequence[NDArray[Any]]) -> None:
        step = max(1, POOLED_AT_ONCE // max(1, values[0].size))
        pieces = [pool_values(np.stack(values[first : first + step])) for first in range(0, len(values), step)]
        features = np.concatenate(pieces)
        if not features.size or features.shape[1] > MOST_FEATURES:
            return
        for part, row in zip(parts, features, strict=True):
            part.features = row.copy() if part.features is None else part.features + row

    # -- JSON ----------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-compatible form; numbers are restored to the last bit."""
        return {
            "rows": self.rows,
            "classes": {
                str(label): {
                    "count": part.count,
                    "means": {name: [mean.count, mean.total] for name, mean in part.means.items()},
                    "sketches": {name: _write_sketch(sketch) for name, sketch in part.sketches.items()},
                    "features": None if part.features is None else part.features.tolist(),
                    "curves": {name: [count, total.tolist()] for name, (count, total) in part.curves.items()},
                }
                for label, part in self.classes.items()
            },
            "words": {word: [mean.count, mean.total] for word, mean in self.words.items()},
            "extremes": self.extremes,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Aggregates:
        """Read the result of `to_json`.

        Raises:
            InputError: if it has another form.
        """
        try:
            return cls(
                int(content["rows"]),
                {
                    int(label): ClassAggregates(
                        int(part["count"]),
                        {name: Mean(int(count), float(total)) for name, (count, total) in part["means"].items()},
                        {name: _read_sketch(sketch) for name, sketch in part["sketches"].items()},
                        None if part["features"] is None else np.array(part["features"], dtype=np.float64),
                        {name: (int(n), np.array(total, dtype=np.float64)) for name, (n, total) in part["curves"].items()},
                    )
                    for label, part in content["classes"].items()
                },
                # those of earlier versions have quantiles behind them
                {str(word): Mean(int(count), float(total)) for word, (count, total, *_) in content["words"].items()},
                {
                    str(name): [(float(value), str(identity)) for value, identity in entries]
                    for name, entries in content["extremes"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the aggregates are damaged: {reason(error)}; got {describe(content)}") from error


def find_columns(metrics: Iterable[str]) -> set[str]:
    """Return the columns of a store that aggregates require; reading the others takes longer than these."""
    scores = [name for metric in metrics for name in (metric, metric + CURVE)]
    return {"id", "target", *AVERAGED, *scores, "units", "values", "values_shape", "regions"}


def _write_sketch(sketch: Sketch) -> list[Any]:
    return [sketch.zeros, {str(key): sketch.buckets[key] for key in sorted(sketch.buckets)}]


def _read_sketch(content: Sequence[Any]) -> Sketch:
    zeros, buckets = content
    return Sketch(Counter({int(key): int(count) for key, count in buckets.items()}), int(zeros))


def pool_values(values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert rows of values (n, ...) to features: for images, the sums over channels and over the fields of a 14 × 14 grid.

    >>> pool_values(np.ones((2, 3, 28, 28))).shape
    (2, 196)
    """
    numbers: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    if numbers.ndim < 3:
        return numbers.reshape(len(numbers), -1)
    plane: NDArray[np.float64] = numbers.reshape(len(numbers), -1, *numbers.shape[-2:]).sum(axis=1)
    for axis in (1, 2):
        side = plane.shape[axis]
        if side > SIDE:
            starts = -(-np.arange(SIDE) * side // SIDE)  # where a grid of `ig2.Grid` begins a field
            plane = np.add.reduceat(plane, starts, axis=axis)
    return plane.reshape(len(plane), -1)
