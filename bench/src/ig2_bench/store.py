"""The store of scores: each is written as soon as it is computed, under a key of everything it depends on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ig2._utils.files import FileError, check_regular, write_file
from ig2.errors import InputError, format_count, reason, warn

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


# -- keys --------------------------------------------------------------------------------------------------------------


def key_of(*content: Any) -> str:
    """Return a digest of the content: the same for the same content, and for no other."""
    return _digest(json.dumps(content, sort_keys=True, default=repr).encode("utf-8", "backslashreplace"))


def fingerprint(thing: Any, _inside: tuple[int, ...] = ()) -> Any:
    """Return what an object consists of: its settings, the numbers in its tensors, the source files of its functions.

    Code that those functions call elsewhere is not considered. Objects that cannot be compared are never the same twice.
    """
    if thing is None or isinstance(thing, (str, int, float, bool)):
        return thing
    if id(thing) in _inside:
        return "itself"

    def of(part: Any) -> Any:
        return fingerprint(part, (*_inside, id(thing)))

    if isinstance(thing, Tensor) and hasattr(thing, "__tensor_flatten__"):  # made of others: quantised weights and their scales
        names, context = thing.__tensor_flatten__()
        return [place(type(thing)), [[name, of(getattr(thing, name))] for name in names], of(context)]
    if isinstance(thing, Tensor):
        content = thing.detach().cpu().reshape(-1).view(torch.uint8).numpy()
        return [str(thing.dtype), list(thing.shape), _digest(content.data)]
    if isinstance(thing, np.ndarray):
        return [str(thing.dtype), list(thing.shape), _digest(thing.tobytes())]
    if isinstance(thing, Mapping):
        return [[of(key), of(value)] for key, value in thing.items()]
    if isinstance(thing, (list, tuple)):
        return [of(part) for part in thing]
    if isinstance(thing, functools.partial):
        return ["partial", of(thing.func), of(thing.args), of(thing.keywords)]
    if isinstance(thing, MethodType):
        return ["method", of(thing.__func__), of(thing.__self__)]
    if isinstance(thing, FunctionType):
        closure = [of(cell.cell_contents) for cell in thing.__closure__ or ()]
        return [place(thing), _source(thing), closure, of(thing.__defaults__), of(thing.__kwdefaults__)]
    if isinstance(thing, type):
        return [place(thing), _source(thing)]
    if isinstance(thing, nn.Module):
        return [of(type(thing)), repr(thing), of(thing.state_dict())]
    if is_dataclass(thing):
        return [of(type(thing)), {part.name: of(getattr(thing, part.name)) for part in fields(thing)}]
    if hasattr(thing, "__dict__"):
        return [of(type(thing)), of(vars(thing))]
    return repr(thing)


# Where the code made for a dataclass says it is from: it follows from the class, and is another in each version of Python.
MADE = {"<string>", dataclasses.__file__}


def place(thing: Any) -> str:
    """Return where a function or class is defined."""
    return f"{thing.__module__}.{thing.__qualname__}"


def _source(thing: Any) -> str:
    """Return a digest of the source files, so that a method is scored again when it is edited. Ours go by the version."""
    if str(thing.__module__).partition(".")[0] == "ig2":
        return ""
    members = vars(thing) if isinstance(thing, type) else {"": thing}
    codes = [member.__code__ for member in members.values() if isinstance(member, FunctionType)]
    content: list[Any] = []
    names = {code.co_filename for code in codes}
    if not names <= MADE:
        names -= MADE
    elif (home := getattr(sys.modules.get(thing.__module__), "__file__", None)) is not None:
        names = {home}  # of a dataclass of fields alone
    for name in sorted(names):
        try:
            content.append(_digest(Path(name).read_bytes()))
        except (OSError, ValueError):  # typed into a notebook
            content += [describe_code(code) for code in codes if code.co_filename == name]
            content += [
                (key, value) for key, value in members.items() if isinstance(value, (str, int, float)) and key[:2] != "__"
            ]
    return _digest(repr(content).encode())


def describe_code(code: CodeType) -> list[Any]:
    inner = [describe_code(constant) if isinstance(constant, CodeType) else _constant(constant) for constant in code.co_consts]
    return [code.co_code, code.co_names, inner]


def _constant(constant: Any) -> str:
    """Return a constant of a function as text; a set, whose order differs between processes, sorted by its members."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


@functools.cache  # the running code is that of the start
def code_digest() -> str:
    """Return a digest of our own code, which may change without a new version, except code that only shows results."""
    root = Path(__file__).parent.parent
    shows = ("cli", "plots", "report", "compat")
    files = sorted(path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in shows)
    return _digest(b"".join(path.read_bytes() for path in files))[:12]


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


# -- files -------------------------------------------------------------------------------------------------------------


class Cells:
    """The cells scored so far; with a folder, in a file with one JSON line for each."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self.known: dict[str, Cell] = {}
        self.path = None if folder is None else folder / f"{name}.cells.jsonl"
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check_regular(self.path)
            self.path.open("ab").close()  # fails now, not after an hour's work
            content = self.path.read_bytes()
            if not content:
                self.path.unlink()  # the first score makes it
        except InputError:
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
            try:
                with self.path.open("ab", buffering=0) as file:
                    file.write(_encode_cell(key, cell))
                    os.fsync(file.fileno())
            except OSError as error:
                raise FileError(error.errno, reason(error), str(self.path)) from error
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
    return json.dumps({**record, SUM: _digest(content.encode())}, allow_nan=False).encode() + b"\n"


def _read(line: bytes) -> tuple[str, Cell]:
    record = json.loads(line)
    if record.pop(SUM) != _digest(json.dumps(record).encode()):
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
    """Remove the folders created for a run that failed before it stored anything."""
    new = [] if folder is None else [place for place in (folder, *folder.parents) if not os.path.exists(place)]
    try:
        yield
    except Exception:
        for place in new:
            with suppress(OSError, ValueError):  # there is something in it
                place.rmdir()
        raise
