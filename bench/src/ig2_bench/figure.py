"""Figures: their options, their stored numbers and their pictures, and the figures of installed packages."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import ig2
from ig2._utils.devices import find_device
from ig2._utils.files import check_regular, write_file
from ig2._utils.options import option
from ig2._utils.progress import ProgressOption
from ig2._utils.registry import Registry
from ig2.errors import InputError, describe, reason, warn
from ig2_bench.options import DataOptions

if TYPE_CHECKING:  # imported where they are used: the command line names figures without them
    from matplotlib.figure import Figure as MatplotlibFigure
    from numpy.typing import NDArray

ABOUT = "about"  # the array of a file that holds everything that is no array, as JSON
BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)

Array: TypeAlias = "NDArray[Any]"
PictureFormat = Literal["png", "pdf", "svg"]
# Called with what begins, returns what a method takes as `progress`
Watch = Callable[[str], ProgressOption]

FIGURES = Registry(
    "ig2.figures",
    "figure",
    {
        "toy": "ig2_bench.figures.illustrations:TOY",
        "gaussians": "ig2_bench.figures.illustrations:GAUSSIANS",
        "paths": "ig2_bench.figures.paths:PATHS",
        "baselines": "ig2_bench.figures.paths:BASELINES",
        "saturation": "ig2_bench.figures.paths:SATURATION",
        "mnist-shifted": "ig2_bench.figures.digits:MNIST_SHIFTED",
        "mnist-fives": "ig2_bench.figures.digits:MNIST_FIVES",
        "imagenet": "ig2_bench.figures.grids:IMAGENET",
        "imagenet-gradcfe": "ig2_bench.figures.grids:IMAGENET_GRADCFE",
        "imagenet-references": "ig2_bench.figures.grids:IMAGENET_REFERENCES",
        "faces": "ig2_bench.figures.grids:FACES",
        "faces-references": "ig2_bench.figures.labels:FACES_REFERENCES",
        "trec-words": "ig2_bench.figures.words:TREC_WORDS",
        "trec-references": "ig2_bench.figures.words:TREC_REFERENCES",
        "wafers": "ig2_bench.figures.grids:WAFERS",
        "wafer-patterns": "ig2_bench.figures.grids:WAFER_PATTERNS",
        "steps": "ig2_bench.figures.settings:STEPS",
        "norms": "ig2_bench.figures.settings:NORMS",
        "layers": "ig2_bench.figures.settings:LAYERS",
        "distances": "ig2_bench.figures.settings:DISTANCES",
    },
)
"""The figures of installed packages, each a `Figure`, by name."""


def show_nothing(what: str) -> ProgressOption:
    """The default of `Options.watch`: no progress is shown."""
    return False


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions):
    """The options that a figure is computed with."""

    data: Path | None = option(
        None,
        "The folder that holds the data sets, each in a folder of its name (ig2 figures --list). Default, and for one that is "
        "missing: what comes with the package.",
    )
    """The folder that holds data sets by name. A missing data set is replaced by the one that comes with the package."""
    watch: Watch = field(default=show_nothing, repr=False, compare=False)
    """A function called with the name of the work that begins; it returns the `progress` argument for a method."""


def check_holds_data(folder: Path) -> None:
    """Check that a folder holds data that some figure can read, whether or not this one does.

    Raises:
        InputError: if it cannot be read, or holds none.
    """
    names = dict.fromkeys(name for figure in FIGURES.values() for name in figure.uses)
    try:
        is_folder, holds_some = folder.is_dir(), any((folder / name).is_dir() for name in names)
    except (OSError, ValueError) as error:  # a name that no folder can have
        raise InputError(f"{folder} cannot be read: {reason(error)}") from error
    if not is_folder:
        raise InputError(f"{folder} is no folder: name the one that holds {', '.join(names)}")
    if not holds_some:
        raise InputError(f"{folder} holds none of the data sets {', '.join(names)}: name the folder above them")


def digest_folder(folder: Path) -> str | None:
    """Return a digest of the names, sizes and times of the files in a folder, or None if there is no such folder."""
    if not folder.is_dir():
        return None
    files = []
    for place, _, names in os.walk(folder, followlinks=True):
        for path in (os.path.join(place, name) for name in names):
            if os.path.isfile(path):  # and no link to nowhere
                status = os.stat(path)
                files.append((os.path.relpath(path, folder), status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Stored:
    """The stored results of a figure: the numbers and short texts it is drawn from."""

    arrays: Mapping[str, Array]
    """Numbers, by name."""
    texts: Mapping[str, Any]
    """Texts and lists of texts, by name, and whatever else JSON can hold."""
    source: str
    """The data and network it was computed from, for the line below the figure."""

    def save(self, path: Path, key: Mapping[str, Any]) -> None:
        """Write everything to an .npz file, atomically.

        Args:
            path: the file.
            key: everything the results depend on; `load` returns them only for the same key.
        """
        import numpy as np

        if ABOUT in self.arrays:
            raise InputError(f"an array of a figure cannot be called {ABOUT!r}")
        about = json.dumps({"key": dict(key), "texts": dict(self.texts), "source": self.source})
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **{**self.arrays, ABOUT: np.array(about)})
        write_file(path, file.getvalue())

    @classmethod
    def load(cls, path: Path, key: Mapping[str, Any]) -> Stored | None:
        """Read the results that `save` wrote for the same key.

        Args:
            path: the file.
            key: everything the results must depend on.

        Returns:
            The results, or None if there is no such file, or it is broken or has another key.
        """
        import numpy as np

        try:
            check_regular(path)
            # from its bytes: NumPy leaves a file open that is not in its format
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                about = json.loads(str(file[ABOUT]))
                if about["key"] != dict(key):
                    return None
                arrays = {name: file[name] for name in file.files if name != ABOUT}
            return cls(arrays, dict(about["texts"]), str(about["source"]))
        except FileNotFoundError:
            return None
        except BROKEN as error:
            warn(f"{path} is damaged ({reason(error)}) and is computed again")
            return None


@dataclass(frozen=True)
class Figure:
    """A figure: numbers that are computed and stored in a file, and a picture drawn from that file alone."""

    about: str
    """A short description of what it shows."""
    compute: Callable[[Options], Stored]
    """Computes its numbers."""
    draw: Callable[[Stored], MatplotlibFigure]
    """Draws them as a matplotlib figure."""
    uses: tuple[str, ...] = ()
    """The data sets it reads if they are available, by the names of their folders."""
    version: int = 2
    """Increment it when the computation changes: results stored before are then computed again."""

    def key(self, options: Options) -> dict[str, Any]:
        """Return everything that its numbers depend on."""
        data = None
        if options.data is not None and self.uses:
            data = {name: digest_folder(options.data / name) for name in self.uses}
        return {"ig2": ig2.__version__, "version": self.version, "quick": options.quick, "seed": options.seed, "data": data}


@dataclass(frozen=True, eq=False)
class Made:
    """A finished figure and its files."""

    name: str
    """The name of the figure."""
    picture: Path
    """The file of the picture."""
    numbers: Path
    """The file of the numbers it was drawn from."""
    source: str
    """The data and network it was computed from."""
    computed: bool
    """Whether the numbers were computed now, rather than read from the file."""


def make(
    name: str,
    options: Options | None = None,
    out: str | PathLike[str] = "ig2-figures",
    *,
    fresh: bool = False,
    file_format: PictureFormat = "png",
    dpi: int = 150,
) -> Made:
    """Compute a figure unless its numbers are stored, draw it, and write both as NAME.npz and NAME.png.

    Args:
        name: the name of a figure in `FIGURES`.
        options: the options to compute it with. Numbers stored for other options or data files are computed again.
        out: the folder for the files.
        fresh: whether to compute stored numbers again.
        file_format: the format of the picture, "png", "pdf" or "svg".
        dpi: pixels per inch, for raster images.

    Returns:
        The figure with the paths of its files.

    Raises:
        InputError: for an unknown name or format, data that cannot be read, or a folder that cannot be written to.
    """
    options = options or Options()
    options = replace(options, device=find_device(options.device))
    figure, folder = FIGURES[name], Path(out)
    if file_format not in get_args(PictureFormat):
        raise InputError(f"the format must be one of {', '.join(get_args(PictureFormat))}, got {describe(file_format)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{folder} is a file, or in one: choose a folder") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} cannot be created: {reason(error)}") from error
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
    write_file(picture, file.getvalue())
    return Made(name, picture, numbers, stored.source, computed)
