"""The store of scores: each is written as soon as it is computed, under a key of everything it depends on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ig2._utils.digests import digest
from ig2._utils.files import name_in_errors, open_in_place, write_file
from ig2.errors import IG2Error, InputError, format_count, reason, warn

SUM = "sha256"  # the checksum of a line, without itself


@dataclass(frozen=True)
class Cell:
    """The scores of one method on one part."""

    part: str
    method: str | None  # None for the facts about the part itself
    values: dict[str, list[float]]
    seconds: float
    environment: dict[str, str]
    warnings: list[str] = field(default_factory=list)


class Cells:
    """The cells scored so far; with a folder, in a file with one JSON line for each."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self.known: dict[str, Cell] = {}
        self.path = None if folder is None else folder / f"{name}.cells.jsonl"
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(open_in_place(self.path, os.O_WRONLY))  # fails now, not after an hour's work
            content = self.path.read_bytes()
            if not content:
                self.path.unlink()  # the first score makes it
        except IG2Error:
            raise
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"{folder} is a file, or in one: choose a folder") from error
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} cannot be written to: {reason(error)}") from error
        damaged, lines = 0, content.splitlines()
        for line in lines:
            try:
                key, cell = _read(line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                damaged += 1
            else:
                self.known[key] = cell
        if damaged:
            warn(f"{self.path}: {damaged} of {format_count(len(lines), 'line')} damaged: those scores are computed again")
        if damaged or (content and not content.endswith(b"\n")):
            self._write()

    def add(self, key: str, cell: Cell) -> None:
        """Store a cell; once this returns, the cell survives a crash of the process or the machine."""
        if self.path is not None:
            with name_in_errors(self.path), open(self.path, "ab", buffering=0, opener=open_in_place) as file:
                file.write(_encode_cell(key, cell))
                os.fsync(file.fileno())
        self.known[key] = cell

    def forget(self, keys: Collection[str]) -> None:
        """Drop cells, also from the file."""
        dropped = [key for key in keys if self.known.pop(key, None) is not None]
        if dropped:
            self._write()

    def _write(self) -> None:
        if self.path is not None:
            write_file(self.path, b"".join(_encode_cell(key, cell) for key, cell in self.known.items()))


def _encode_cell(key: str, cell: Cell) -> bytes:
    values = {label: [value if math.isfinite(value) else None for value in numbers] for label, numbers in cell.values.items()}
    record = {"key": key, **asdict(cell), "values": values}
    content = json.dumps(record, allow_nan=False)
    return json.dumps({**record, SUM: digest(content.encode())}, allow_nan=False).encode() + b"\n"


def _read(line: bytes) -> tuple[str, Cell]:
    record = json.loads(line)
    if record.pop(SUM) != digest(json.dumps(record).encode()):
        raise ValueError("the line is not as it was written")
    values = {
        str(label): [math.nan if value is None else float(value) for value in numbers]
        for label, numbers in record["values"].items()
    }
    environment = {str(name): str(value) for name, value in record["environment"].items()}
    method = None if record["method"] is None else str(record["method"])
    warned = [str(text) for text in record["warnings"]]
    return str(record["key"]), Cell(str(record["part"]), method, values, float(record["seconds"]), environment, warned)


@contextmanager
def no_empty_folder(folder: Path | None) -> Iterator[None]:
    """Remove the folders created for a run that ended before it stored anything."""
    new = [] if folder is None else [place for place in (folder, *folder.parents) if not os.path.exists(place)]
    try:
        yield
    except BaseException:  # Ctrl-C too
        for place in new:
            with suppress(OSError, ValueError):  # there is something in it
                place.rmdir()
        raise
