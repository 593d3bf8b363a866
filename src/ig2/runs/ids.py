"""The ids of items: which are stored, which are pending, and a check for duplicates."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ig2.errors import InputError
from ig2.runs.files import list_parts, read_part
from ig2.runs.sources import Source


def hash_ids(ids: Iterator[str]) -> NDArray[np.uint64]:
    """Return the sorted hashes of ids: eight bytes per item, whereas a set of texts takes a hundred."""
    numbers = array("Q", map(_hash, ids))
    return np.sort(np.frombuffer(numbers, dtype=np.uint64)) if numbers else np.zeros(0, np.uint64)


def _hash(identity: str) -> int:
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "backslashreplace"), digest_size=8).digest(), "little")


def contains(hashes: NDArray[np.uint64], identity: str) -> bool:
    number = np.uint64(_hash(identity))
    where = int(np.searchsorted(hashes, number))
    return where < len(hashes) and bool(hashes[where] == number)


def list_stored_ids(folder: Path) -> Iterator[str]:
    for path in list_parts(folder):
        for chunk in read_part(path, ["id"])["id"].chunks:
            yield from (str(identity) for identity in chunk.to_pylist())


def count_items(source: Source, known: NDArray[np.uint64]) -> tuple[int, int]:
    """Return the number of items, and how many of them are pending.

    Raises:
        InputError: if there are none, or two share an id.
    """
    hashes = hash_ids(source.ids())
    if not len(hashes):
        description = source.describe()
        raise InputError(f"{description.get('place') or description.get('name') or 'the source'} has no items")
    if len(hashes) > 1 and (hashes[1:] == hashes[:-1]).any():
        double, seen = hashes[1:][hashes[1:] == hashes[:-1]][0], 0
        for identity in source.ids():
            seen += _hash(identity) == int(double)
            if seen == 2:
                raise InputError(f"the id {identity!r} is a duplicate: name a column with different ids (id=, --id)")
    waiting = len(hashes) - int(np.isin(hashes, known, assume_unique=True).sum())
    return len(hashes), waiting
