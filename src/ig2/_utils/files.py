"""Files from outside and files of ours: what is opened, how one is written, where what can be made again is kept."""

from __future__ import annotations

import os
import stat
import sys
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
    """Refuse to open what is no regular file: a pipe would keep us waiting for ever, and a device has no end.

    A path that leads nowhere passes: opening it says why.

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
        raise InputError(f"{os.fspath(path)} is not a file but {kind}: copy what it holds into a file")


def write_whole(path: str | PathLike[str], content: bytes) -> None:
    """Write a file that is there as a whole or not at all; what was there before stays until then.

    Raises:
        FileError: where it cannot be written; it names the file, not the draft.
    """
    target = Path(path)
    draft = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        raise FileError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def cache_folder() -> Path:
    """$IG2_CACHE, or the folder for such things on this system."""
    if chosen := os.environ.get("IG2_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "ig2"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ig2"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ig2"
