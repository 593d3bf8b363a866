"""Files: which may be opened, how one is written atomically, and where the cache is."""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from os import PathLike
from pathlib import Path

from ig2.errors import IG2Error, InputError


class FileError(IG2Error, OSError):
    """A file could not be written. Its arguments are those of OSError: errno, the reason, the file."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}"


def check_regular(path: str | PathLike[str]) -> None:
    """Check that a path is a regular file before it is opened: a pipe would block for ever, and a device has no end.

    A path that does not exist passes: opening it says why.

    Raises:
        InputError: for a folder, a pipe, a device or a socket.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # ValueError: a path with a null character
        return
    if stat.S_ISDIR(mode):
        raise InputError(f"{os.fspath(path)} is a folder: name a file in it")
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise InputError(f"{os.fspath(path)} is not a file but {kind}: copy its content into a file")


def write_file(path: str | PathLike[str], content: bytes) -> None:
    """Write a file atomically: completely or not at all, and until then the earlier one stays.

    Raises:
        FileError: if it cannot be written; the error names the file, not its draft.
    """
    target = Path(path)
    draft = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise FileError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the renames in a folder survive a power cut, where the system can do that."""
    with suppress(OSError, AttributeError):  # Windows opens no folders
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def find_cache() -> Path:
    """Return the cache folder: $IG2_CACHE, or the system's folder for caches."""
    if chosen := os.environ.get("IG2_CACHE"):
        return Path(chosen)
    try:
        from platformdirs import user_cache_path
    except ImportError:  # it comes with the extras that download or train; the core alone does neither
        return Path.home() / ".cache" / "ig2"
    return user_cache_path("ig2", appauthor=False)
