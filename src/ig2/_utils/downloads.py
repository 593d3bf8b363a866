"""Downloads of public files: resumed, checked, cached, from several mirrors, and put in place when they are complete.

pooch was tried: it deletes what came before an interruption, tries one address, replaces a wrong file of the user's without a
word and unpacks in place, so that resuming, mirrors, sizes, errors and atomic unpacking would still have to be written here.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from ig2._utils.files import check_regular, open_in_place
from ig2.errors import IG2Error, InputError, reason

CHUNK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
TRIES = 3  # at one address, each going on where the last was cut off
AGENT = "ig2 (https://pypi.org/project/ig2)"

Progress = Callable[[int, int | None], object]
"""Called with the bytes fetched so far, and their total, or None if the server does not report it."""


class FetchError(IG2Error, OSError):
    """A file could not be fetched: no network, no such file, a broken one."""


@dataclass(frozen=True)
class PublicFile:
    """A file that may be fetched, and how to recognise it."""

    name: str
    """Its name in the folder."""
    urls: tuple[str, ...]
    """Its addresses; the first that has the right file is used."""
    size: int | None = None
    """Its size in bytes, if known."""
    sha256: str | None = None
    """Its checksum; if it is not known, only the size and the reader can detect a wrong file."""
    unpacks_to: str | None = None
    """The folder in an archive to unpack; the archive is deleted afterwards."""

    @classmethod
    def at(cls, mirrors: Sequence[str], name: str, size: int, sha256: str, unpacks_to: str | None = None) -> Self:
        """Return a file that several mirrors have under the same name."""
        return cls(name, tuple(mirror + name for mirror in mirrors), size, sha256, unpacks_to)


def fetch(file: PublicFile, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a file unless the folder has it; an interrupted download is resumed.

    Args:
        file: the file.
        folder: the folder for it, created if it does not exist.
        progress: called with the bytes fetched so far, and their total.

    Returns:
        The path of the file, or of the folder it unpacks to.

    Raises:
        FetchError: if no address has the right file, or the folder has a wrong one.
    """
    goal = folder / (file.unpacks_to or file.name)
    if goal.exists():
        if file.unpacks_to is None:
            _check_existing(file, goal)
        return goal
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / file.name
    if archive.exists():
        _check_existing(file, archive)
    else:
        _download(file, archive, progress)
    if file.unpacks_to is not None:
        unpack(archive, folder, file.unpacks_to)
        archive.unlink()
    return goal


def _check_existing(file: PublicFile, path: Path) -> None:
    wrong = find_difference(file, path)
    if wrong:
        raise FetchError(f"{path} exists already, but {wrong}: move it away and fetch again")


def find_difference(file: PublicFile, path: Path) -> str | None:
    """Return how a file differs from the expected one, in words, or None."""
    check_regular(path)
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"it has {size:,} bytes instead of {file.size:,}"
    if file.sha256 is None:
        return None
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return None if digest == file.sha256 else f"its SHA-256 is {digest} instead of {file.sha256}"


# -- over the network --------------------------------------------------------------------------------------------------


class _Cut(Exception):
    """The connection ended before the file did."""


def _download(file: PublicFile, path: Path, progress: Progress | None) -> None:
    """Fetch into a .part file beside the path, check it, and rename it."""
    part = path.with_name(f"{path.name}.part")
    if file.sha256 is None:
        # without a checksum nothing would show that two pieces are of different versions
        part.unlink(missing_ok=True)
    failures = []
    for url in file.urls:
        try:
            _complete(file, url, part, progress)
        except (OSError, http.client.HTTPException, _Cut, ValueError) as error:
            if isinstance(error, OSError) and not isinstance(error, urllib.error.URLError) and error.filename is not None:
                raise  # the disk is full, or may not be written to: no other address helps
            failures.append(f"{url}: {_explain(error)}")
            continue
        wrong = find_difference(file, part)
        if wrong is None:
            os.replace(part, path)
            return
        part.unlink()
        failures.append(f"{url}: the file is a wrong one, {wrong}; it was deleted")
    kept = f"; {part.stat().st_size:,} bytes are kept, and the same command resumes from there" if part.exists() else ""
    raise FetchError(
        f"{file.name} cannot be fetched ({'; '.join(failures)}){kept}. "
        f"Without a network, get it elsewhere and save it as {path}"
    )


def _complete(file: PublicFile, url: str, part: Path, progress: Progress | None) -> None:
    for attempt in range(1, TRIES + 1):
        before = part.stat().st_size if part.exists() else 0
        try:
            _piece(file, url, part, progress)
            return
        except (_Cut, TimeoutError, ConnectionError, http.client.IncompleteRead):
            after = part.stat().st_size if part.exists() else 0
            if attempt == TRIES or after == before:
                raise


def _piece(file: PublicFile, url: str, part: Path, progress: Progress | None) -> None:
    """Fetch what is missing of a file."""
    there = part.stat().st_size if part.exists() else 0
    if file.size is not None and there >= file.size:
        return
    # not compressed on the way: the bytes are counted
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity", **({"Range": f"bytes={there}-"} if there else {})}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not there:
            raise
        error.close()
        part.unlink()  # longer than the file, so a part of another
        _piece(file, url, part, progress)
        return
    with answer:
        resumes = answer.status == http.client.PARTIAL_CONTENT and _starts_at(answer) == there
        if there and not resumes and answer.status == http.client.PARTIAL_CONTENT:
            part.unlink()
            raise _Cut(f"the server sent another piece than bytes {there:,} and on")
        length = answer.headers.get("Content-Length")
        start = there if resumes else 0
        total = start + int(length) if length and length.isdecimal() else file.size
        with open(part, "ab" if resumes else "wb", opener=open_in_place) as opened:
            done = start
            while chunk := answer.read(CHUNK):
                opened.write(chunk)
                done += len(chunk)
                if file.size is not None and done > file.size:
                    raise ValueError(f"more than {file.size:,} bytes came")
                if progress is not None:
                    progress(done, total)
    if total is not None and done < total:
        raise _Cut(f"the connection was cut after {done:,} of {total:,} bytes")


def _starts_at(answer: Any) -> int | None:
    """Return where the piece that the server sends begins."""
    unit, _, piece = answer.headers.get("Content-Range", "").partition(" ")
    start = piece.partition("-")[0]
    return int(start) if unit == "bytes" and start.isdecimal() else None


def _explain(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server says {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        return reason(error.reason)
    return str(error) if isinstance(error, (_Cut, ValueError)) else reason(error)


# -- archives ----------------------------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path, holds: str) -> Path:
    """Unpack a folder of an archive; nothing is written anywhere else, and it appears when it is complete.

    Args:
        archive: .tar, .tar.gz, .tgz or .zip.
        folder: the folder to unpack into.
        holds: the folder in the archive.

    Returns:
        The path of the unpacked folder.

    Raises:
        InputError: if the archive is broken, holds no such folder, or has paths that lead out of it.
    """
    check_regular(archive)
    draft = Path(tempfile.mkdtemp(dir=folder, prefix=".unpacking-"))
    try:
        if archive.suffix == ".zip":
            _unzip(archive, draft)
        else:
            with tarfile.open(archive) as opened:
                # refuses links and paths that lead out of the folder, and devices
                opened.extractall(draft, filter="data")
        if not (draft / holds).is_dir():
            names = ", ".join(sorted(path.name for path in draft.iterdir())) or "nothing"
            raise InputError(f"{archive} holds {names}: expected a folder {holds}")
        os.replace(draft / holds, folder / holds)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{archive} cannot be unpacked: {reason(error)}") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(draft)
    return folder / holds


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts[:1]):
                raise InputError(f"{archive} holds {name!r}, a path that leads out of the folder: refused")
        opened.extractall(folder)
