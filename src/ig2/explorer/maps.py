"""The values of rows as maps and lists, read from a store a row group at a time."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ig2.errors import InputError
from ig2.modalities.signal.recordings import order_channels
from ig2.runs.files import arrow, explain_damage, open_part
from ig2.runs.store import Store, read_rows
from ig2.views import Bars, Curve, Numbers, Picture, View, Words, pool, sum_bins

VIEWS = {"image": "picture", "tensor": "picture", "text": "words"}  # of stores that do not say it
MOST_BYTES = 256 * 2**20  # of row groups that are kept in memory


@dataclass(frozen=True, eq=False)
class Map:
    """The values of one item, and how they are shown."""

    view: View
    scores: Numbers

    @property
    def is_flat(self) -> bool:
        """Whether the values have places in two directions, rather than names."""
        return self.scores.ndim == 2

    @property
    def cells(self) -> tuple[str, ...]:
        """The contents of the columns, if there are any."""
        return self.view.cells if isinstance(self.view, Bars) else ()


class Reader:
    """Rows of a store by position, with the most recent row groups cached in memory."""

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES) -> None:
        self.store, self.most_bytes = store, most_bytes
        self.groups: list[tuple[Any, int]] = []  # a file and a group of it
        self.starts: list[int] = []
        self.length = 0
        for path in store.files:
            with explain_damage(path), open_part(path) as part:
                for group in range(part.num_row_groups):
                    self.groups.append((path, group))
                    self.starts.append(self.length)
                    self.length += part.metadata.row_group(group).num_rows
        self._tables: OrderedDict[int, Any] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return a row.

        Raises:
            InputError: if there is none at this position, or its file is missing or damaged.
        """
        return self.read([position])[0]

    def read(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows in the order of their positions.

        They are converted together: one by one, the forty rows of a list's request took 30 ms instead of 1.

        Raises:
            InputError: as for one row.
        """
        slices = []
        for position in positions:
            if not 0 <= position < self.length:
                raise InputError(f"there is no row {position}: the store has {self.length:,}")
            number = bisect_right(self.starts, position) - 1
            slices.append(self._read_group(number).slice(position - self.starts[number], 1))
        return list(read_rows(arrow().concat_tables(slices, promote_options="default"))) if slices else []

    def _read_group(self, number: int) -> Any:
        # Read under the lock: a sorted list has a row in almost every group, and asks for three chunks of rows at once. Each of
        # them read all groups, which took five times as long as for one.
        with self._lock:
            if number not in self._tables:
                path, group = self.groups[number]
                with explain_damage(path), open_part(path) as part:
                    self._tables[number] = part.read_row_group(group)
                self._bytes += self._tables[number].nbytes
            self._tables.move_to_end(number)
            while self._bytes > self.most_bytes and len(self._tables) > 1:
                self._bytes -= self._tables.popitem(last=False)[1].nbytes
            return self._tables[number]


def find_view(manifest: Mapping[str, Any]) -> str:
    """Return the name of the view of a store's items; those that do not say it are known by their kind."""
    about = manifest.get("view") or {}
    return str(about.get("name") or VIEWS.get(str(manifest.get("kind")), "bars"))


def read_map(row: Mapping[str, Any], manifest: Mapping[str, Any]) -> Map | None:
    """Return the values of a row in their displayed form; None if it has none.

    Images are summed over channels. The sum of a superpixel is spread evenly over its pixels, which preserves sums.
    """
    if row.get("values") is None:
        return None
    values = np.nan_to_num(np.asarray(row["values"], dtype=np.float64), posinf=0.0, neginf=0.0)
    name = find_view(manifest)
    if row.get("regions") is not None:
        regions = np.asarray(row["regions"], dtype=np.int64)
        sizes = np.bincount(regions.reshape(-1), minlength=len(values))
        return Map(Picture(), (values / np.maximum(sizes, 1))[regions])
    if name == "curve":
        return _read_curve(values, manifest["view"])
    if name == "picture" and values.ndim >= 2:
        return Map(Picture(), values.reshape(-1, *values.shape[-2:]).sum(axis=0))
    scores = values.reshape(len(values), -1).sum(axis=1)
    names = row.get("units") if name == "words" else manifest.get("units")
    fits = names is not None and len(names) == len(scores)
    units = tuple(map(str, names)) if fits and names is not None else tuple(str(i + 1) for i in range(len(scores)))
    if name == "words":
        return Map(Words(units), scores)
    cells = tuple(map(str, row.get("cells") or ()))
    return Map(Bars(units, cells if len(cells) == len(units) else ()), scores)


def _read_curve(values: Numbers, about: Mapping[str, Any]) -> Map:
    """Return the values of a signal, (channels, intervals); those of windows are sums over the channels."""
    channels, steps = tuple(map(str, about["channels"])), int(about["steps"])
    if values.ndim != len(about["layout"]) or values.shape[len(about["layout"]) - 1 - (about["layout"] == "TC")] != steps:
        return Map(Curve(channels if len(channels) == 1 else ("all channels",), steps, about["rate"]), values.reshape(1, -1))
    return Map(Curve(channels, steps, about["rate"]), sum_bins(order_channels(values, about["layout"])))


def match(maps: Sequence[Map]) -> list[Map] | None:
    """Return maps of one item by several stores in one shape, the smallest; None if there is none."""
    if len({map.view.name for map in maps}) > 1:
        return None
    if not isinstance(maps[0].view, Picture):
        alike = len({(map.view.name_parts(), map.scores.shape) for map in maps}) == 1
        return list(maps) if alike else None
    height, width = (min(map.scores.shape[axis] for map in maps) for axis in (0, 1))
    pooled = [Map(map.view, pool(map.scores, height, width)) for map in maps]
    return pooled if len({map.scores.shape for map in pooled}) == 1 else None


def subtract(first: Map, second: Map) -> Numbers:
    """Return the difference of two maps, of models or methods, each normalised by the sum of its magnitudes."""
    shares = [map.scores / (np.abs(map.scores).sum() or 1.0) for map in (first, second)]
    difference: Numbers = shares[0] - shares[1]
    return difference
