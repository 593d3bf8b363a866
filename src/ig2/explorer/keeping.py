"""Storage of inputs that users made: a small store beside the displayed one."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from ig2._utils.files import make_subfolder, write_file
from ig2.errors import InputError
from ig2.runs.files import Writer, list_parts, lock_store, read_part
from ig2.runs.manifest import check_manifest, make_fingerprint, make_folder
from ig2.runs.plan import Plan
from ig2.runs.rows import Row, make_table

SUFFIX = "-whatif"
INPUTS = "inputs"  # the folder of images, in that of the store
MOST_ITEMS = 500
MOST_BYTES = 64 * 2**20  # of the whole folder
MOST_FOLDERS = 20  # beside a store, one for each model and method
LONGEST_NAME = 80


class Keeper:
    """A store beside another, of limited size, so that requests cannot fill the disk.

    Args:
        plan: the plan that makes the rows.
        store: the folder of the other store. Nothing is written before the first item is kept.
    """

    def __init__(self, plan: Plan, store: Path) -> None:
        self.plan, self._fingerprint = plan, make_fingerprint(plan, plan.question.references)
        self._store = store.resolve()
        self.folder = self._name(1)
        self._lock = threading.Lock()

    def _name(self, number: int) -> Path:
        return self._store.with_name(f"{self._store.name}{SUFFIX}{f'-{number}' if number > 1 else ''}")

    def add(self, row: Row, name: str, picture: bytes | None = None) -> str:
        """Write a row and its image, and return its new id.

        Raises:
            InputError: if the store is full.
            FileError: if it cannot be written.
        """
        with self._lock:
            self._open()
            with lock_store(self.folder):
                ids, size = self._list_ids(), sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
                values = sum(getattr(cell, "nbytes", 0) for cell in row.values()) + len(picture or b"")
                if len(ids) >= MOST_ITEMS or size + values > MOST_BYTES:
                    raise InputError(
                        f"{self.folder.name} is full: it has {len(ids):,} items and {size / 2**20:.0f} MiB, of {MOST_ITEMS:,} "
                        f"and {MOST_BYTES / 2**20:.0f} at most; move it elsewhere to begin another"
                    )
                identity = make_id(name, ids, ".png" if picture is not None else "")
                if picture is not None:
                    make_subfolder(self.folder / INPUTS)
                    write_file(self.folder / INPUTS / identity, picture)
                writer = Writer(self.folder, lambda rows, failed: None)
                writer.add(make_table([{"id": identity, **row}], self.plan.make_schema(row)))
                writer.close()
                return identity

    def _open(self) -> None:
        """Create the folder of the store, or find the one of this model and method."""
        for number in range(1, MOST_FOLDERS + 1):
            self.folder = self._name(number)
            make_folder(self.folder)
            try:
                check_manifest(self.folder, self.plan, self._fingerprint)
                return
            except InputError:  # of another model or method
                continue
        raise InputError(f"there are {MOST_FOLDERS} stores of kept inputs beside {self._store.name}: move some elsewhere")

    def _list_ids(self) -> list[str]:
        return [str(identity) for path in list_parts(self.folder) for identity in read_part(path, ["id"])["id"].to_pylist()]


def make_id(name: str, taken: list[str], suffix: str = "") -> str:
    """Return an unused id that is a plain file name.

    >>> make_id("../a cat.png", ["a-cat.png"], ".png")
    'a-cat-2.png'
    """
    plain = re.sub(r"[^\w.-]+", "-", name.removesuffix(suffix)[:LONGEST_NAME]).strip(".-_") or "input"
    known, number = {identity.lower() for identity in taken}, 1
    while (identity := f"{plain}{f'-{number}' if number > 1 else ''}{suffix}").lower() in known:
        number += 1
    return identity
