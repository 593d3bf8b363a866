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
from ig2.modalities.modality import find_stored
from ig2.runs.files import arrow, explain_damage, open_part
from ig2.runs.store import Store, read_rows
from ig2.views import Bars, Numbers, Picture, View, pool

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


def read_map(row: Mapping[str, Any], manifest: Mapping[str, Any]) -> Map | None:
    """Return the values of a row in their displayed form; None if it has none."""
    shown = None if row.get("values") is None else find_stored(manifest).show_row(row, manifest)
    return None if shown is None else Map(*shown)


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
