"""Sources: the items of a run and their ids.

A source yields its items in a fixed order without reading their contents: an id, and a small handle that `load` turns into the
input. So ids are listed quickly, items already on disk are skipped unread, and a handle can be sent to another machine.
"""

from __future__ import annotations

import csv
import glob
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ig2._utils.checks import check_count
from ig2._utils.digests import fingerprint, key_of
from ig2._utils.files import check_regular, list_folder
from ig2._utils.suggestions import ChoiceError, suggest
from ig2.errors import InputError, describe, import_extra, reason
from ig2.modalities.base import Batch, Subject
from ig2.modalities.modality import (
    MODALITIES,
    TENSORS,
    Modality,
    find_by_suffix,
    guess,
    list_modalities,
)
from ig2.modalities.samples import Sample
from ig2.runs.files import arrow, clean_text, explain_damage

PARQUET = (".parquet", ".pq")
TABLES = (*PARQUET, ".csv", ".tsv", ".jsonl", ".ndjson")
LONGEST_LINE = 16 * 2**20  # characters
REMEDY = "restore it, or take it out of the source"
ROWS_AT_ONCE = 256  # read from Parquet
HERE = Path(".")


@dataclass(frozen=True)
class Item:
    """An item of a source: its id, a handle for `Source.load`, and its class if the source knows it."""

    id: str
    content: Any
    label: Any = None

    def __post_init__(self) -> None:
        if not self.id.isascii():
            object.__setattr__(self, "id", clean_text(self.id))


@dataclass(frozen=True)
class Reading:
    """How the items of a source are read.

    Args:
        id: the column of the source with the ids.
        label: the column of the source with the classes.
        column: the column with the text or image, if rows have several.
        batch: the number of items in one call of the method. It changes results only by rounding.
        readers: the number of threads or processes that read ahead; by default 2, for a GPU one per
            core, at most 8.
        processes: whether to read in processes instead of threads; by default for images and
            signals on a GPU, on Linux. They are forked: the counters and caches of your own source
            stay in each. False keeps them in this process.
        retry_failed: whether to explain items again that failed before.

    Raises:
        InputError: if batch or readers is not valid.
    """

    id: str | None = None
    label: str | None = None
    column: str | None = None
    batch: int | None = None
    readers: int | None = None
    processes: bool | None = None
    retry_failed: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "readers"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)


class Source(ABC):
    """The base class of sources: a sequence of items in a fixed order. Subclasses implement `items` and `describe`."""

    kinds: tuple[str, ...]
    """The names of the kinds of data that its items can be, the most likely first."""

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Yield every item, reading no more of it than its id."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what distinguishes this source from others: its location and options, not its current number of items."""

    def ids(self) -> Iterator[str]:
        """Yield the id of every item. Override it if there is a faster way than `items`."""
        return (item.id for item in self.items())

    def load(self, content: Any) -> Any:
        """Return the input for a handle. By default the handle is the input."""
        return content

    def extract(self, content: Any, modality: Modality, column: str | None) -> Any:
        """Return what a subject reads from loaded content, by default as the kind of data has it."""
        return modality.extract(content, column)

    def read(self, subject: Subject, ids: Sequence[str], contents: Sequence[Any]) -> Batch:
        """Read extracted contents into one batch."""
        pairs = zip(contents, ids, strict=True)
        return subject.read([Sample(content, name) for content, name in pairs])

    def __iter__(self) -> Iterator[Item]:
        return self.items()


# -- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files(Source):
    """Files that are a sample each: those of a folder and its sub-folders, or of a list or pattern.

    Ids are paths, sub-folders are classes.

    Args:
        place: a folder, a pattern such as `photos/*.jpg`, or a list of files.
        kinds: the kind of data that they are, such as `("image",)`.
        skip: a folder to skip: the store, if it is inside.
    """

    place: str | PathLike[str] | tuple[str, ...]
    kinds: tuple[str, ...]
    skip: Path | None = None

    def items(self) -> Iterator[Item]:
        if isinstance(self.place, tuple):
            yield from (Item(str(path), str(path)) for path in self.place)
            return
        root, suffixes = Path(self.place), MODALITIES[self.kinds[0]].suffixes
        if not root.is_dir():
            yield from (Item(path, path) for path in _match(str(self.place), suffixes, self.skip))
            return
        start = len(os.path.join(root, ""))
        for path in list_folder(root, suffixes, self.skip):
            name = path[start:]  # by letters, in half the time of a `Path`: there may be millions
            folder = os.path.basename(os.path.dirname(name))
            yield Item(name.replace(os.sep, "/"), name if root == HERE else path, folder or None)

    def describe(self) -> dict[str, Any]:
        return {"type": f"{self.kinds[0]}s", "place": _describe_place(self.place)}


@dataclass(frozen=True)
class Rows(Source):
    """The rows of a Parquet, CSV, TSV or JSON-lines file, or of a folder or pattern of such files.

    Args:
        place: the file, folder or pattern.
        id: the column with the ids; by default an id is the file's name and the number of the row, from 1.
        label: the column with the classes, if there is one.
        skip: a folder to skip: the store, if it is inside.
    """

    place: str | PathLike[str]
    id: str | None = None
    label: str | None = None
    skip: Path | None = None
    kinds: tuple[str, ...] = field(default_factory=lambda: _list_kinds_of_rows("table"))

    def ids(self) -> Iterator[str]:
        for path, name in _name_files(self.place, TABLES, self.skip):
            if path.suffix.lower() not in PARQUET:
                rows = enumerate(_read_rows(path), start=1)
                yield from (self._name(row, f"{name}:{number}") for number, row in rows)
            elif self.id is None:
                with explain_damage(path, REMEDY), arrow("pyarrow.parquet").ParquetFile(path) as file:
                    yield from (f"{name}:{number}" for number in range(1, file.metadata.num_rows + 1))
            else:
                yield from (self._name(row, name) for row in _read_rows(path, [self.id]))

    def _name(self, row: Any, place: str) -> str:
        return place if self.id is None or not isinstance(row, Mapping) else str(_find_cell(row, self.id, place))

    def items(self) -> Iterator[Item]:
        for path, name in _name_files(self.place, TABLES, self.skip):
            for number, row in enumerate(_read_rows(path), start=1):
                identity = f"{name}:{number}"
                if not isinstance(row, Mapping):  # a line that cannot be read
                    yield Item(identity, row)
                    continue
                name_of_row = self._name(row, identity)
                try:
                    label = None if self.label is None else _find_cell(row, self.label, identity)
                except InputError as error:  # of one line of JSON, which must not end the run
                    yield Item(name_of_row, str(error))
                    continue
                yield Item(name_of_row, row, label)

    def load(self, content: Any) -> Any:
        if isinstance(content, Mapping):
            return content
        raise InputError(str(content))

    def describe(self) -> dict[str, Any]:
        return {"type": "rows", "place": _describe_place(self.place), "id": self.id, "label": self.label}


@dataclass(frozen=True)
class Lines(Source):
    """The lines of a text file, or of a folder of text files; an id is the file's name and the number of the line, from 1."""

    place: str | PathLike[str]
    kinds: tuple[str, ...] = ("text",)

    def items(self) -> Iterator[Item]:
        for path, name in _name_files(self.place, MODALITIES[self.kinds[0]].suffixes):
            for number, line in enumerate(_read_lines(path), start=1):
                if line.strip():
                    yield Item(f"{name}:{number}", line.strip())

    def describe(self) -> dict[str, Any]:
        return {"type": "lines", "place": _describe_place(self.place)}


# -- objects -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HuggingFace(Source):
    """A data set of Hugging Face `datasets`; ids are from a column, or the numbers of the rows.

    Args:
        data: a `datasets.Dataset`.
        id: the column with the ids.
        label: the column with the classes.
        name: its name in the manifest; by default its own name, or the folder it was loaded from.
    """

    data: Any = field(repr=False)
    id: str | None = None
    label: str | None = None
    name: str | None = None
    kinds: tuple[str, ...] = field(default_factory=lambda: _list_kinds_of_rows("image"))

    def items(self) -> Iterator[Item]:
        names = [name for name in (self.id, self.label) if name is not None]
        for name in names:
            if name not in self.data.column_names:
                raise InputError(f"the data set has no column {name!r}{suggest(name, self.data.column_names, choice='it has')}")
        for start in range(0, len(self.data), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(self.data))
            cells = self.data.select_columns(names)[start:stop] if names else {}
            for number in range(start, stop):
                identity = number if self.id is None else cells[self.id][number - start]
                yield Item(str(identity), number, None if self.label is None else cells[self.label][number - start])

    def load(self, content: Any) -> Any:
        return self.data[content]

    def describe(self) -> dict[str, Any]:
        name = self.name or getattr(getattr(self.data, "info", None), "dataset_name", None)
        return {"type": "hugging face", "name": name, "id": self.id, "label": self.label}


@dataclass(frozen=True, eq=False)
class Samples(Source):
    """A `torch.utils.data.Dataset`, or anything with a length and items: samples, or (sample, label); ids are positions.

    Args:
        data: the data set, or a `module:function` that returns it.
        name: its name in the manifest; by default the function, or the class of the data set.
    """

    data: Any = field(repr=False)
    name: str | None = None
    kinds: tuple[str, ...] = field(default_factory=lambda: _begin_with(TENSORS.name, MODALITIES))

    def __post_init__(self) -> None:
        if not (hasattr(self.data, "__len__") and hasattr(self.data, "__getitem__")):
            raise InputError(
                f"a data set must have a length and items by their positions, got {describe(self.data)}: a stream has no ids "
                "to resume by"
            )

    def items(self) -> Iterator[Item]:
        return (Item(str(number), number) for number in range(len(self.data)))

    def load(self, content: Any) -> Any:
        return self.data[content]

    def describe(self) -> dict[str, Any]:
        """Return the data set's name; for an array, whose class is no description, also its first sample, since it may grow."""
        description = {"type": "samples", "name": self.name or type(self.data).__name__}
        if not isinstance(self.data, (Tensor, np.ndarray)) or not len(self.data):
            return description
        return {**description, "first_digest": key_of(fingerprint(self.data[0]))}


def _list_kinds_of_rows(first: str) -> tuple[str, ...]:
    """Return the kinds of data that rows can be, the likeliest first."""
    return _begin_with(first, [each.name for each in list_modalities() if each.in_rows])


def _begin_with(first: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: name != first))


# -- by name -----------------------------------------------------------------------------------------------------------


def space_evenly(total: int, count: int) -> list[int]:
    """Return the places of at most so many items, evenly spaced.

    >>> space_evenly(10, 4)
    [0, 2, 5, 7]
    """
    count = min(count, total)
    return [total * number // count for number in range(count)]


def find_source(
    place: Any, *, id: str | None = None, label: str | None = None, skip: Path | None = None, name: str | None = None
) -> Source:
    """Return the source for a path, a pattern, a `module:function` or an object.

    Args:
        place: a folder, file or pattern of images, tables (Parquet, CSV, TSV, JSON lines) or texts; a folder written by
            `datasets.save_to_disk`; `module:function`; a data set; or a source, which is returned unchanged.
        id: the column with the ids, for rows.
        label: the column with the classes, for rows.
        skip: a folder to skip.
        name: the name of an object in the manifest.

    Raises:
        InputError: if it is none of these.
    """
    if isinstance(place, Source):
        return place
    if isinstance(place, (str, PathLike)):
        return _find_path(os.fspath(place), id, label, skip)
    if isinstance(place, (list, tuple)) and place and all(isinstance(item, (str, PathLike)) for item in place):
        kinds = tuple(sorted({guess(str(item)).name for item in place}))
        if len(kinds) > 1:
            raise ChoiceError(f"files in a list must be of one kind, got {' and '.join(kinds)}: run each kind by itself")
        return Files(tuple(map(str, place)), kinds)
    if type(place).__module__.partition(".")[0] == "datasets":
        return HuggingFace(place, id, label, name)
    if id is not None or label is not None:
        raise ChoiceError(f"id and label name columns of tables, and this is {describe(place)}: omit them")
    return Samples(place, name)


def _find_path(place: str, id: str | None, label: str | None, skip: Path | None) -> Source:
    from ig2.modalities.loading import FUNCTION, import_from_here, load_function

    path = Path(place)
    if FUNCTION.fullmatch(place) and not path.exists():
        with import_from_here():
            value = load_function(place)
            if callable(value) and not isinstance(value, Source) and not hasattr(value, "__getitem__"):
                try:
                    value = value()
                except Exception as error:  # whatever the user's code raises
                    raise InputError(f"{place}() failed: {reason(error)}") from error
        return find_source(value, id=id, label=label, name=place)
    if path.is_dir() and ((path / "state.json").exists() or (path / "dataset_dict.json").exists()):
        data = import_extra("datasets", "run", f"reading {place}").load_from_disk(place)
        if not hasattr(data, "column_names") or isinstance(data, Mapping):
            raise InputError(f"{place} has several splits ({', '.join(data)}): name one, {path / next(iter(data))}")
        return HuggingFace(data, id, label, str(path.resolve()))
    endings = (*TABLES, *(suffix for each in list_modalities() for suffix in each.suffixes))
    first = next(iter(list_folder(path, endings, skip)), None) if path.is_dir() else _first_match(place)
    suffix = "" if first is None else Path(first).suffix.lower()
    if suffix in TABLES:
        return Rows(place, id, label, skip)
    if id is not None or label is not None:
        raise ChoiceError(f"id and label name columns of tables, and {place} is none: omit them")
    kind = find_by_suffix(suffix)
    if kind is not None:
        return Lines(place, (kind.name,)) if kind.has_many else Files(place, (kind.name,), skip)
    kinds = f"{', '.join(each.nouns for each in list_modalities() if each.suffixes)} (.jsonl too)"
    if first is None and not path.exists():
        raise InputError(f"{place} does not exist; a source is a folder, file or pattern of {kinds}, or module:function")
    raise InputError(f"{place} has no items: expected a folder, file or pattern of {kinds}")


def _first_match(place: str) -> str | None:
    if Path(place).exists():
        return place
    return next(iter(sorted(glob.glob(place, recursive=True))), None)


def _match(place: str, suffixes: Sequence[str], skip: Path | None = None) -> list[str]:
    """Return the files that a path or pattern matches, except those in the folder to skip."""
    if Path(place).exists():
        return [place]
    paths = sorted(path for path in glob.glob(place, recursive=True) if not suffixes or path.lower().endswith(tuple(suffixes)))
    if skip is not None:
        store = skip.resolve()
        paths = [path for path in paths if store not in Path(path).resolve().parents]
    if not paths:
        raise InputError(f"{place} does not exist")
    return paths


def _name_files(place: str | PathLike[str], suffixes: Sequence[str], skip: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder, file or pattern, each with its path in the folder, or else its name."""
    root = Path(place)
    is_folder = root.is_dir()
    for path in map(Path, list_folder(root, suffixes, skip) if is_folder else _match(str(place), suffixes, skip)):
        yield path, path.relative_to(root).as_posix() if is_folder else path.name


def _describe_place(place: Any) -> str:
    """Return the folder, file or pattern. A list may grow like a folder, and its ids are whole paths, so it has none."""
    return "a list of files" if isinstance(place, tuple) else str(Path(place).resolve())


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_rows(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of a file as dicts, and errors for those that cannot be read; of Parquet, only the given columns."""
    suffix = path.suffix.lower()
    check_regular(path)
    if suffix in PARQUET:
        with explain_damage(path, REMEDY), arrow("pyarrow.parquet").ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                yield from batch.to_pylist()
    elif suffix in (".jsonl", ".ndjson"):
        for line in _read_lines(path):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield f"the line is not JSON: {reason(error)}"
                continue
            yield row if isinstance(row, dict) else f"the line holds {describe(row)}, expected an object"
    else:
        lines = _read_lines(path)
        try:
            reader = csv.DictReader(lines, delimiter="\t" if suffix == ".tsv" else ",", restkey="")
            for cells in reader:
                if "" in cells and isinstance(cells[""], list):
                    yield "the row has more cells than the header"
                else:
                    yield {name: cell or "" for name, cell in cells.items()}
        except csv.Error as error:
            raise InputError(f"{path} cannot be read as a table: {reason(error)}") from error


def _read_lines(path: Path) -> Iterator[str]:
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            while line := file.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{path} has a line of more than {LONGEST_LINE:,} characters")
                yield line
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(f"{path} is not a text in UTF-8: it has the byte {byte:#04x}; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error


def _find_cell(row: Mapping[str, Any], column: str, where: str) -> Any:
    if column not in row:
        raise InputError(f"{where} has no column {column!r}{suggest(column, map(str, row), choice='it has')}")
    return row[column]


def split_label(content: Any) -> Any:
    """Return the class in a data set's (sample, label), or None if there is none."""
    if isinstance(content, (tuple, list)) and len(content) == 2:
        label = content[1]
        return label.item() if hasattr(label, "item") and getattr(label, "ndim", 0) == 0 else label
    return None


def group_items(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items; the last may be shorter."""
    while batch := list(itertools.islice(items, size)):
        yield batch
