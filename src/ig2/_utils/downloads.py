"""Public files, fetched once: resumed where they were cut off, checked, and put in place when they are whole."""

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

from ig2._utils.files import check_regular
from ig2.errors import IG2Error, InputError, reason

CHUNK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
TRIES = 3  # at one address, each going on where the last was cut off
AGENT = "ig2 (https://pypi.org/project/ig2)"

Progress = Callable[[int, int | None], object]
"""Called with the bytes that are there, and of how many, or None where the server does not say."""


class FetchError(IG2Error, OSError):
    """A file could not be had: no network, no such file, a broken one."""


@dataclass(frozen=True)
class PublicFile:
    """A file that may be fetched, and how to know it when it is there."""

    name: str
    """What it is called in the folder."""
    urls: tuple[str, ...]
    """Where it lies; the first that answers is taken."""
    size: int | None = None
    """In bytes, where that is known."""
    sha256: str | None = None
    """Its checksum. None where no checksum is known, and only the size and what reads it can tell a wrong file."""
    unpacks_to: str | None = None
    """The folder that an archive holds. The archive is deleted when that is in place."""

    @classmethod
    def at(cls, mirrors: Sequence[str], name: str, size: int, sha256: str, unpacks_to: str | None = None) -> Self:
        """One that lies at several addresses, under the same name."""
        return cls(name, tuple(mirror + name for mirror in mirrors), size, sha256, unpacks_to)


def fetch(file: PublicFile, folder: Path, progress: Progress | None = None) -> Path:
    """The file in this folder, or the folder it unpacks to; fetched if it is not there yet.

    A download that was cut off goes on where it was when it is asked for again.

    Args:
        file: which.
        folder: where it is put; made if need be.
        progress: called with the bytes that are there, and of how many.
    """
    goal = folder / (file.unpacks_to or file.name)
    if goal.exists():
        if file.unpacks_to is None:
            _check_there(file, goal)
        return goal
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / file.name
    if archive.exists():
        _check_there(file, archive)
    else:
        _download(file, archive, progress)
    if file.unpacks_to is not None:
        unpack(archive, folder, file.unpacks_to)
        archive.unlink()
    return goal


def _check_there(file: PublicFile, path: Path) -> None:
    wrong = _wrong(file, path)
    if wrong:
        raise FetchError(f"{path} is there already, and {wrong}: move it away and fetch again")


def _wrong(file: PublicFile, path: Path) -> str | None:
    """How a file that is there differs from the one meant, in words; nothing if it does not."""
    check_regular(path)
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"it has {size:,} bytes instead of {file.size:,}"
    if file.sha256 is None:
        return None
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    return None if found == file.sha256 else f"its SHA-256 is {found} instead of {file.sha256}"


# -- over the network --------------------------------------------------------------------------------------------------


class _Cut(Exception):
    """The connection ended before the file did."""


def _download(file: PublicFile, path: Path, progress: Progress | None) -> None:
    """Fetch into a .part file beside the path, check it, and give it its name at once."""
    part = path.with_name(f"{path.name}.part")
    if file.sha256 is None:
        # without a checksum nothing would tell that two pieces are of different versions
        part.unlink(missing_ok=True)
    failures = []
    for url in file.urls:
        try:
            _complete(file, url, part, progress)
        except (OSError, http.client.HTTPException, _Cut, ValueError) as error:
            if isinstance(error, OSError) and not isinstance(error, urllib.error.URLError) and error.filename is not None:
                raise  # the disk is full, or may not be written to: no other address helps
            failures.append(f"{url}: {_why(error)}")
            continue
        wrong = _wrong(file, part)
        if wrong is None:
            os.replace(part, path)
            return
        part.unlink()
        failures.append(f"{url}: what came is not the file, {wrong}; it was deleted")
    kept = f"; {part.stat().st_size:,} bytes are kept, and the same command goes on from there" if part.exists() else ""
    raise FetchError(
        f"{file.name} cannot be fetched ({'; '.join(failures)}){kept}. "
        f"Without a network, get it elsewhere and put it there by hand: {path}"
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
    # the bytes as they are, not compressed on the way: their number is counted
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity", **({"Range": f"bytes={there}-"} if there else {})}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not there:
            raise
        error.close()
        part.unlink()  # longer than the file: it is of another
        _piece(file, url, part, progress)
        return
    with answer:
        goes_on = answer.status == http.client.PARTIAL_CONTENT and _starts_at(answer) == there
        if there and not goes_on and answer.status == http.client.PARTIAL_CONTENT:
            part.unlink()
            raise _Cut(f"the server sent another piece than bytes {there:,} and on")
        length = answer.headers.get("Content-Length")
        start = there if goes_on else 0
        total = start + int(length) if length and length.isdecimal() else file.size
        with part.open("ab" if goes_on else "wb") as opened:
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
    """Where the piece that the server sends begins."""
    unit, _, piece = answer.headers.get("Content-Range", "").partition(" ")
    start = piece.partition("-")[0]
    return int(start) if unit == "bytes" and start.isdecimal() else None


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server says {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        return reason(error.reason)
    return str(error) if isinstance(error, (_Cut, ValueError)) else reason(error)


# -- archives ----------------------------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path, holds: str) -> Path:
    """Unpack what an archive holds into a folder; nothing is written anywhere else, and it appears when it is whole.

    Args:
        archive: .tar, .tar.gz, .tgz or .zip.
        folder: where to.
        holds: the folder in the archive that is wanted.
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
            there = ", ".join(sorted(path.name for path in draft.iterdir())) or "nothing"
            raise InputError(f"{archive} holds {there}: expected a folder {holds}")
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
                raise InputError(f"{archive} holds {name!r}, a path that leads out of the folder: it is not unpacked")
        opened.extractall(folder)
