"""The files of a store: parts, a journal of the newest rows, a manifest, and a lock.

    STORE/manifest.json      provenance: code, model, method, settings, source
    STORE/parts/*.parquet    rows, in files of some 32 MB
    STORE/journal/*.parquet  the newest rows, which the next part takes over
    STORE/progress.json      progress of the run
    STORE/lock               held by the process that writes

Every file appears by an atomic rename after a flush to disk, so a reader never sees a partial file. Journal files have
increasing numbers, and a part is named by the numbers it took over: a journal file that a part covers is a leftover of a run
that was killed between writing the part and deleting the file, and is ignored.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ig2._utils.fields import Field, find_fault, is_object, is_text, is_texts, or_null
from ig2._utils.files import check_regular, make_subfolder, open_in_place, write_file
from ig2.errors import InputError, describe, import_extra, reason
from ig2.modalities.modality import MODALITIES

FORMAT = "ig2.run/1"
MANIFEST, PROGRESS, LOCK = "manifest.json", "progress.json", "lock"
PARTS, JOURNAL = "parts", "journal"
PART_BYTES = 32 * 2**20  # of rows in memory; zstd makes about two thirds of noise
GROUP_BYTES = 2 * 2**20  # of a row group, the least that is read for one row
FLUSH_SECONDS = 10.0  # the most work, in time, that a killed run does again
LARGEST_JSON = 256 * 2**20  # bytes; a manifest of ours has a few million at most
REMEDY = "delete that file, and the same command explains its items again"  # of a store; a source is the user's own
GONE = "open the store again, since a run that writes to it has joined that file with others, or somebody deleted it"
PART_NAME = re.compile(r"part-(\d{8})-(\d{8})\.parquet")
JOURNAL_NAME = re.compile(r"(\d{8})\.parquet")


def arrow(module: str = "pyarrow") -> Any:
    """Import pyarrow, or one of its modules."""
    return import_extra(module, "run", "a store of attributions")


def clean_text(text: str) -> str:
    r"""Return a text as valid UTF-8: file names in another encoding contain lone surrogates.

    >>> clean_text("gr\udcfcn.png")
    'gr\\udcfcn.png'
    """
    return text.encode("utf-8", "backslashreplace").decode()


# -- JSON --------------------------------------------------------------------------------------------------------------


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = 1) -> None:
    """Write a JSON file atomically; without indent on one line, which takes a third of the time."""
    write_file(path, json.dumps(content, ensure_ascii=False, indent=indent, default=str).encode("utf-8", "backslashreplace"))


def read_json(path: Path) -> dict[str, Any]:
    """Read an object from a JSON file.

    Raises:
        InputError: if the file is missing, too large, or holds anything else.
    """
    check_regular(path)
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise InputError(f"{path} has {path.stat().st_size:,} bytes: a store's has {LARGEST_JSON:,} at most")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {reason(error)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} is damaged: it holds {describe(content)}, expected an object")
    return content


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a store.

    Raises:
        InputError: if the folder is not a store, or has another format.
    """
    path = folder / MANIFEST
    if not path.exists():
        inner = folder / "store"  # of a folder of ig2 explain
        hint = f"use {inner}" if (inner / MANIFEST).exists() else "ig2 run makes one"
        raise InputError(f"{folder} is no store: it has no {MANIFEST}; {hint}")
    manifest = read_json(path)
    if manifest.get("format") != FORMAT:
        raise InputError(f"{path} has the format {describe(manifest.get('format'))}, expected {FORMAT!r}")
    if "fingerprint" not in manifest:
        raise InputError(f"{path} is damaged: it has no fingerprint")
    fault = find_fault(manifest, MANIFEST_FIELDS)
    if fault is None and manifest.get("kind") in MODALITIES:
        fault = find_fault(manifest, MODALITIES[manifest["kind"]].fields)
    if fault is not None:
        raise InputError(f"{path} is damaged: {fault}; restore the file from a copy, or run into another folder")
    return manifest


def read_kept(content: Any) -> Any:
    """Return what a run keeps of the values, as it is in a manifest; None, which is the default, where it keeps none.

    Raises:
        InputError: if it is something else.
    """
    from ig2.groups import Grid, Superpixels  # opening a store does not wait for PyTorch

    kinds = {"Grid": Grid, "Superpixels": Superpixels}
    try:
        if isinstance(content, dict) and content["type"] in kinds:
            return kinds[content["type"]](**{name: value for name, value in content.items() if name != "type"})
    except (TypeError, KeyError) as error:
        raise InputError(f"values are {describe(content)}") from error
    return content if content in ("float32", "float16", "units", "view") else None


def _is_kept(content: object) -> bool:
    try:
        read_kept(content)
    except InputError:
        return False
    return True


# What is read of a manifest of any kind of data; objects before what they hold.
MANIFEST_FIELDS: tuple[Field, ...] = (
    *((name, is_text, "a text") for name in ("created", "digest", "kind")),
    ("fingerprint", is_object, "an object"),
    *((f"fingerprint.{name}", is_object, "an object") for name in ("question", "settings", "source", "model")),
    *((f"fingerprint.model.{name}", is_text, "a text") for name in ("name", "weights")),
    ("fingerprint.method", or_null(is_object), "an object or null"),
    ("fingerprint.settings.column", or_null(is_text), "a text or null"),
    ("fingerprint.settings.values", _is_kept, "a text, null, or the settings of a grid or of superpixels"),
    ("classes", or_null(is_texts), "a list of texts or null"),
    ("view", or_null(is_object), "an object or null"),
    ("view.name", is_text, "a text"),
    ("units", or_null(is_texts), "a list of texts or null"),
    ("metrics", or_null(is_texts), "a list of texts or null"),
    ("command", or_null(is_object), "an object or null"),
    *((f"command.{name}", or_null(is_text), "a text or null") for name in ("model", "references")),
)


def find_differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Return the differences between two fingerprints, in words.

    >>> find_differences({"method": {"steps": 50}, "seed": 0}, {"method": {"steps": 20}, "seed": 0})
    ['method.steps is 50 there and 20 here']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        keys = [*there, *(key for key in here if key not in there)]
        inner = [find_differences(there.get(key), here.get(key), f"{name}.{key}" if name else str(key)) for key in keys]
        texts = [text for texts in inner for text in texts]
        # a digest says that something differs, which is of use only where no setting says what
        return [text for text in texts if "digest is " not in text] or texts
    # a manifest has lists where the run has tuples, and short texts of long ones
    if json.dumps(there, default=str) == json.dumps(here, default=str):
        return []
    return [f"{name} is {describe(there)} there and {describe(here)} here"]


# -- parts -------------------------------------------------------------------------------------------------------------


def list_parts(folder: Path) -> list[Path]:
    """Return the files of a store that hold rows, in their order."""
    journal = _list_matching(folder / JOURNAL, JOURNAL_NAME)  # first: a run may make a part of it just now
    parts = _list_matching(folder / PARTS, PART_NAME)
    covered = [(int(match[1]), int(match[2])) for match, _ in parts]
    young = [path for match, path in journal if not any(first <= int(match[1]) <= last for first, last in covered)]
    return [path for _, path in parts] + young


def _list_matching(folder: Path, pattern: re.Pattern[str]) -> list[tuple[re.Match[str], Path]]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {reason(error)}") from error
    return [(match, folder / name) for name in names if (match := pattern.fullmatch(name))]


@contextmanager
def explain_damage(path: object, remedy: str = REMEDY) -> Iterator[None]:
    """Convert errors of pyarrow inside the context to an `InputError` that names the file and the remedy."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path} is gone: {GONE if remedy is REMEDY else remedy}") from error
    except Exception as error:  # a damaged file makes pyarrow raise whatever it meets
        raise InputError(f"{path} is damaged ({reason(error)}): {remedy}") from error


def open_part(path: Path) -> Any:
    """Open a Parquet file whose pages are verified by their checksums.

    Raises:
        InputError: if it is damaged.
    """
    with explain_damage(path):
        check_regular(path)
        return arrow("pyarrow.parquet").ParquetFile(path, page_checksum_verification=True)


def read_part(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Read the rows of a part as an Arrow table.

    Raises:
        InputError: if it is damaged.
    """
    with explain_damage(path), open_part(path) as file:
        return file.read(columns=None if columns is None else list(columns))


def write_part(path: Path, table: Any) -> None:
    """Write an Arrow table as a Parquet file, atomically.

    Raises:
        FileError: if it cannot be written, for example because the disk is full.
    """
    draft = Draft()
    draft.add(table)
    write_file(path, draft.finish())


class Draft:
    """A Parquet file in progress. Rows are compressed as they arrive, so that little work remains at the end."""

    def __init__(self) -> None:
        self.rows = self.failed = self.bytes = 0
        self._content: Any = None  # the file, once it is finished
        self._tables: list[Any] = []
        self._bytes = 0  # of these
        self._stream: Any = None
        self._encoder: Any = None

    def add(self, table: Any) -> None:
        """Add a table; rows are buffered until there are enough for a group."""
        if self._content is not None:  # a file that could not be written, which these rows go into, too
            self._tables = [arrow("pyarrow.parquet").read_table(arrow().BufferReader(self._content))]
            self._encoder = self._content = None
        self._tables.append(table)
        self._bytes += table.nbytes
        self.rows, self.bytes = self.rows + len(table), self.bytes + table.nbytes
        self.failed += len(table) - table["error"].null_count
        if self._bytes >= GROUP_BYTES:
            self._encode()

    def _encode(self) -> None:
        table = arrow().concat_tables(self._tables)
        if self._encoder is None:
            self._stream = arrow().BufferOutputStream()
            options = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": _repeating(table.schema)}
            self._encoder = arrow("pyarrow.parquet").ParquetWriter(self._stream, table.schema, **options)
        self._encoder.write_table(table, row_group_size=max(1, int(len(table) * GROUP_BYTES / max(1, self._bytes))))
        self._tables, self._bytes = [], 0

    def finish(self) -> Any:
        """Finish and return the file."""
        if self._content is None:
            if self._tables:
                self._encode()
            self._encoder.close()
            self._content = self._stream.getvalue()
        return self._content


def _repeating(schema: Any) -> list[str]:
    """Return the columns whose cells repeat; dictionaries of tensors or ids only cost time."""
    return [field.name for field in schema if str(field.type) == "string" and field.name != "id"]


class Writer:
    """A writer of rows: every few seconds to the journal, and as a part when there are enough for one.

    Args:
        folder: the store.
        written: called with the number of rows, and of those with errors, that have been written to disk.
        part_bytes: the size of a part, as rows in memory.
        flush_seconds: the maximum time until rows are written, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        written: Callable[[int, int], None],
        part_bytes: int = PART_BYTES,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        self.folder, self.written, self.part_bytes, self.flush_seconds = folder, written, part_bytes, flush_seconds
        make_subfolders(folder)
        for place in (folder, *(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())):
            for draft in place.glob(".*.part"):  # of a run that was killed while it wrote
                draft.unlink(missing_ok=True)
        in_use = set(list_parts(folder))
        for _, path in _list_matching(folder / JOURNAL, JOURNAL_NAME):
            if path not in in_use:  # a part has its rows
                path.unlink()
        self.journal = [path for path in list_parts(folder) if path.parent.name == JOURNAL]
        self.journal_bytes = sum(path.stat().st_size for path in self.journal)
        names = [path.stem.rpartition("-")[2] for path in list_parts(folder)]
        self.number = max(map(int, names), default=-1) + 1  # of the next journal file
        self.draft = Draft()
        self.since = time.monotonic()

    def add(self, table: Any) -> None:
        """Add a table; `written` is called once it is on disk."""
        self.draft.add(table)
        if self.draft.bytes >= self.part_bytes or time.monotonic() - self.since >= self.flush_seconds:
            self.flush()

    def flush(self, last: bool = False) -> None:
        """Write the collected rows; the last ones as a part, if there is no journal for the part to take over."""
        draft = self.draft
        if draft.rows:
            if (last or draft.bytes >= self.part_bytes) and not self.journal:
                write_file(self._name_part(self.number, self.number), draft.finish())
            else:
                path = self.folder / JOURNAL / f"{self.number:08d}.parquet"
                write_file(path, draft.finish())
                self.journal.append(path)
                self.journal_bytes += draft.bytes
            self.number += 1
            self.draft = Draft()
            self.written(draft.rows, draft.failed)
        self.since = time.monotonic()
        if self.journal_bytes >= self.part_bytes:
            self.compact()

    def compact(self) -> None:
        """Convert the journal to a part."""
        if not self.journal:
            return
        table = arrow().concat_tables([read_part(path) for path in self.journal])
        write_part(self._name_part(int(self.journal[0].stem), int(self.journal[-1].stem)), table)
        for path in self.journal:
            path.unlink(missing_ok=True)
        self.journal, self.journal_bytes = [], 0

    def close(self) -> None:
        """Write all remaining rows."""
        self.flush(last=True)
        self.compact()

    def _name_part(self, first: int, last: int) -> Path:
        return self.folder / PARTS / f"part-{first:08d}-{last:08d}.parquet"


def make_subfolders(folder: Path) -> None:
    """Create the folders of a store's rows, unless they exist; links are errors, since files in them are replaced."""
    for name in (PARTS, JOURNAL):
        make_subfolder(folder / name)


def drop_failed(folder: Path) -> int:
    """Remove the rows of items that failed, so that they are explained again; return their number."""
    make_subfolders(folder)
    compute, dropped = arrow("pyarrow.compute"), 0
    for path in list_parts(folder):
        errors = read_part(path, ["error"])["error"]
        failed = len(errors) - errors.null_count
        if not failed:
            continue
        table = read_part(path)
        table = table.filter(compute.is_null(table["error"]))
        if len(table):
            write_part(path, table)
        else:
            path.unlink()
        dropped += failed
    return dropped


# -- the lock ----------------------------------------------------------------------------------------------------------


HOLDER = b"process "  # how the content of a lock begins
_locks: set[int] = set()  # descriptors of those this process holds


@contextmanager
def lock_store(folder: Path) -> Iterator[None]:
    """Hold the store's lock: one process writes at a time. The system releases the lock of a process that died.

    Raises:
        InputError: if another process holds it, or the file of that name is no lock.
        FileError: if it is a link, or cannot be written.
    """
    path = folder / LOCK
    descriptor = open_in_place(path, os.O_RDWR)
    try:
        try:
            _lock(descriptor)
        except OSError as error:
            holder = " ".join(os.read(descriptor, 200).decode("utf-8", "replace").split()) or "just started"
            raise InputError(f"another run writes to {folder} ({holder}): wait for its end, or choose another --out") from error
        if os.read(descriptor, len(HOLDER)) not in (b"", HOLDER):
            raise InputError(f"{path} is no lock of a run: move it away, or choose another folder for the store")
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, HOLDER + f"{os.getpid()} on {socket.gethostname()}\n".encode())
        _locks.add(descriptor)
        yield
    finally:
        _locks.discard(descriptor)
        os.close(descriptor)  # which frees the lock


def close_locks() -> None:
    """Close the parent's locks in a forked process: the system releases a lock when the last process with it open is gone."""
    while _locks:
        os.close(_locks.pop())


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        locking: Any = msvcrt
        locking.locking(descriptor, locking.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
