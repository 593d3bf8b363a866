"""Files: which may be opened, how one is written atomically, and where the cache is."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from ig2.errors import IG2Error, InputError, reason


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


def decode_text(content: bytes, name: str) -> str:
    """Return the text in a file's content; `name` is what errors call the file.

    Raises:
        InputError: if it is not UTF-8, or no text.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: save it as UTF-8") from error
    if "\0" in text:
        raise InputError(f"{name} is not text, since it holds null characters")
    return text


def list_folder(folder: Path, suffixes: Sequence[str], skip: Path | None = None) -> Iterator[str]:
    """Yield the files of a folder and its sub-folders with these endings, in a fixed order, less what is hidden.

    Args:
        folder: the folder.
        suffixes: the endings, in small letters.
        skip: a folder to skip.

    Raises:
        InputError: if a folder cannot be read.
    """
    skip = None if skip is None else skip.resolve()
    for place, below, names in os.walk(folder, onerror=_raise):
        below[:] = sorted(name for name in below if name[:1] != "." and Path(place, name).resolve() != skip)
        for name in sorted(names):
            if name[:1] != "." and name.lower().endswith(tuple(suffixes)):
                yield os.path.join(place, name)


def _raise(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read: {reason(error)}") from error


def write_file(path: str | PathLike[str], content: bytes) -> None:
    """Write a file atomically: completely or not at all, and until then the earlier one stays.

    A link is replaced by the file; what it leads to stays as it is.

    Raises:
        FileError: if it cannot be written; the error names the file, not its draft.
    """
    target = Path(path)
    draft = target.with_name(f".{uuid.uuid4().hex}.part")
    with name_in_errors(target):
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
            _sync_folder(target.parent)
        finally:
            with suppress(OSError):
                draft.unlink()


def open_in_place(path: str | PathLike[str], flags: int) -> int:
    """Open a file of ours that is not written by `write_file`: an opener for `open`, which follows no link.

    What is sent or unpacked with a store may hold a link of a name that we write to, and the file behind it is not ours.

    Args:
        path: the file; it is created unless it exists.
        flags: those of `os.open`; a file is truncated only once it has been found to be ours.

    Raises:
        InputError: for a folder, a pipe, a device or a socket.
        FileError: for a link, symbolic or hard, and for a file that cannot be opened.
    """
    check_regular(path)
    with name_in_errors(path):
        refuse_link(path)
        # against a link or a pipe made since then, which would wait for its reader
        safe = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags & ~os.O_TRUNC | os.O_CREAT | safe, 0o644)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file: delete it")
            if status.st_nlink > 1:
                raise OSError(errno.EMLINK, "it is a hard link, to a file with another name: put a copy in its place")
            if flags & os.O_TRUNC:
                os.ftruncate(descriptor, 0)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def make_subfolder(path: Path) -> None:
    """Create a folder inside one of ours, unless it exists; a link to a folder elsewhere is not followed.

    Raises:
        FileError: for a link or a file, and for a folder that cannot be created.
    """
    with name_in_errors(path):
        refuse_link(path)
        path.mkdir(exist_ok=True)


def refuse_link(path: str | PathLike[str]) -> None:
    """Check that a file or folder of ours, to be written to, is no symbolic link.

    Raises:
        FileError: if it is one.
    """
    if os.path.islink(path):
        raise FileError(errno.ELOOP, f"it is a link to {os.readlink(path)}: put a copy of that in its place", os.fspath(path))


@contextmanager
def name_in_errors(path: str | PathLike[str]) -> Iterator[None]:
    """Convert an OSError inside the context to a `FileError` that names the file, and not its draft."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(error.errno, reason(error), os.fspath(path)) from error


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
