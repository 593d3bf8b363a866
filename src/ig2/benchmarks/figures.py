"""Figures: what a figure is, how one is made, and those of installed packages."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

import ig2
from ig2._utils.checks import check_seed
from ig2._utils.files import check_regular, write_whole
from ig2._utils.progress import ProgressOption
from ig2._utils.registry import Registry
from ig2.benchmarks.suite import usable_device
from ig2.errors import InputError, describe, reason, warn

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

ABOUT = "about"  # the array of a file that holds everything that is no array, as JSON
BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)

Array = NDArray[Any]
PictureFormat = Literal["png", "pdf", "svg"]
# Given what is being done, returns what is called with how much of it is done, and of how much
Watch = Callable[[str], ProgressOption]


def unwatched(what: str) -> ProgressOption:
    """Nobody is looking."""
    return False


@dataclass(frozen=True)
class Options:
    """What a figure is computed from."""

    data: Path | None = None
    """The folder that holds data sets by their names. A set that is not there is replaced by what comes with the package."""
    quick: bool = False
    """A few samples, a few steps and networks that are hardly trained, to see that it runs."""
    seed: int = 0
    """Of everything random."""
    device: str = "auto"
    """Where networks run; "auto" becomes "cuda" if there is a GPU, otherwise "cpu"."""
    watch: Watch = field(default=unwatched, repr=False, compare=False)
    """Called with what is being done; returns what a method takes as `progress`."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        object.__setattr__(self, "device", usable_device(self.device))


def check_holds_data(folder: Path) -> None:
    """Refuse a folder that no figure can read anything from, whether or not this one would."""
    names = dict.fromkeys(name for figure in FIGURES.values() for name in figure.uses)
    try:
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder: name the one that holds {', '.join(names)}")
        if not any((folder / name).is_dir() for name in names):
            raise InputError(f"{folder} holds none of the data sets {', '.join(names)}: name the folder above them")
    except (OSError, ValueError) as error:  # a name that no folder can have
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder} cannot be read: {reason(error)}") from error


def digest_folder(folder: Path) -> str | None:
    """A digest of the names, sizes and times of a folder's files; nothing where there is no such folder."""
    if not folder.is_dir():
        return None
    found = []
    for place, _, names in os.walk(folder, followlinks=True):
        for path in (os.path.join(place, name) for name in names):
            if os.path.isfile(path):  # and no link to nowhere
                about = os.stat(path)
                found.append((os.path.relpath(path, folder), about.st_size, about.st_mtime_ns))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Stored:
    """What was computed for a figure: numbers and short texts, enough to draw it."""

    arrays: Mapping[str, Array]
    """Numbers, by name."""
    texts: Mapping[str, Any]
    """Texts and lists of texts, by name, and whatever else JSON can hold."""
    source: str
    """Which data and which network this is from, for the line below the figure."""

    def save(self, path: Path, key: Mapping[str, Any]) -> None:
        """Write everything to an .npz file, whole or not at all.

        Args:
            path: the file.
            key: what it was computed from; `load` gives it back only for the same.
        """
        if ABOUT in self.arrays:
            raise InputError(f"an array of a figure cannot be called {ABOUT!r}")
        about = json.dumps({"key": dict(key), "texts": dict(self.texts), "source": self.source})
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **{**self.arrays, ABOUT: np.array(about)})
        write_whole(path, file.getvalue())

    @classmethod
    def load(cls, path: Path, key: Mapping[str, Any]) -> Stored | None:
        """What `save` wrote for the same key; nothing where there is no such file, or it is broken or of something else.

        Args:
            path: the file.
            key: what it has to be computed from.
        """
        try:
            check_regular(path)
            # by way of its bytes: NumPy leaves a file open that is none of its own
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                about = json.loads(str(file[ABOUT]))
                if about["key"] != dict(key):
                    return None
                arrays = {name: file[name] for name in file.files if name != ABOUT}
            return cls(arrays, dict(about["texts"]), str(about["source"]))
        except FileNotFoundError:
            return None
        except BROKEN as error:
            warn(f"{path} is damaged ({reason(error)}): it is computed again")
            return None


@dataclass(frozen=True)
class Figure:
    """Something to compute, kept in a file, and a picture drawn from that file alone."""

    about: str
    """What it shows, in a few words."""
    compute: Callable[[Options], Stored]
    """Makes its numbers."""
    draw: Callable[[Stored], MatplotlibFigure]
    """Makes a matplotlib figure of them."""
    uses: tuple[str, ...] = ()
    """The data sets it reads where they are there, by the names of their folders."""
    version: int = 2
    """Raised when it computes something else: what was stored before is then computed again."""

    def key(self, options: Options) -> dict[str, Any]:
        """What its numbers depend on."""
        data = None
        if options.data is not None and self.uses:
            data = {name: digest_folder(options.data / name) for name in self.uses}
        return {"ig2": ig2.__version__, "version": self.version, "quick": options.quick, "seed": options.seed, "data": data}


@dataclass(frozen=True, eq=False)
class Made:
    """A figure that was made, and where it is."""

    name: str
    """Of the figure."""
    picture: Path
    """The file to look at."""
    numbers: Path
    """The file it was drawn from."""
    source: str
    """Which data and which network it is from."""
    computed: bool
    """Whether the numbers were computed now; otherwise they were there."""


FIGURES = Registry("ig2.figures", "figure", "those of the paper come with pip install ig2-paper")
"""The figures of installed packages, each a `Figure`, by name."""


def make(
    name: str,
    options: Options = Options(),
    out: str | PathLike[str] = "ig2-figures",
    *,
    fresh: bool = False,
    file_format: PictureFormat = "png",
    dpi: int = 150,
) -> Made:
    """Compute a figure unless its numbers are stored, draw it, and write both as NAME.npz and NAME.png.

    Args:
        name: one of those in `FIGURES`.
        options: what it is computed from. What is stored from other options, or other files of data, is computed again.
        out: the folder for the files.
        fresh: compute again what is stored.
        file_format: of the picture, "png", "pdf" or "svg".
        dpi: pixels an inch, where the format has pixels.
    """
    figure, folder = FIGURES[name], Path(out)
    if file_format not in get_args(PictureFormat):
        raise InputError(f"the format must be one of {', '.join(get_args(PictureFormat))}, got {describe(file_format)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{folder} is a file, or in one: give a folder") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} cannot be made: {reason(error)}") from error
    numbers, picture = folder / f"{name}.npz", folder / f"{name}.{file_format}"
    if options.data is not None:
        check_holds_data(options.data)
    key = figure.key(options)
    stored = None if fresh else Stored.load(numbers, key)
    computed = stored is None
    if stored is None:
        stored = figure.compute(options)
        stored.save(numbers, key)
    file = io.BytesIO()
    # without the time of day, so that the same numbers give the same file
    undated: dict[str, Any] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.draw(stored).savefig(file, format=file_format, bbox_inches="tight", dpi=dpi, metadata=undated[file_format])
    write_whole(picture, file.getvalue())
    return Made(name, picture, numbers, stored.source, computed)
