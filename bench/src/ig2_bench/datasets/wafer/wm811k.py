"""WM-811K: maps of real wafers, of eight failure patterns and none.

Two layouts are read: the public `LSWMD.pkl`, a table that pandas pickled (of its 811,457 maps those that have a class), and
`wm811k.npz` with `x` (N, H, W), `y` (N,) and `classes`. Codes are 0 outside the wafer, 1 where a die passes, 2 where it fails.
Duplicates are skipped: a map must not be both learnt from and tested on. Nobody has marked the patterns;
the masks come from a rule, see `ig2_bench.datasets.wafer.marks`.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._utils.checks import check_count
from ig2._utils.datasets import DataSet, Reading, Survey
from ig2._utils.files import check_regular
from ig2.errors import InputError, describe, reason
from ig2.references import round_robin
from ig2_bench.datasets.base import LabelledSamples, check_limit, describe_source
from ig2_bench.datasets.survey import find_duplicates
from ig2_bench.datasets.wafer.drawn import CLASSES, FAILS, OUTSIDE, PASSES
from ig2_bench.datasets.wafer.frames import read_frame
from ig2_bench.datasets.wafer.marks import mark

FILES = ("wm811k.npz", "LSWMD.pkl")
# as the public table writes them, and as others do
SPELLINGS = {name.lower(): name for name in CLASSES} | {"local": "Loc", "nearfull": "Near-full"}

Map = NDArray[np.uint8]


def load(
    folder: str | PathLike[str],
    size: int = 56,
    *,
    limit: int | None = None,
    per_class: int | None = None,
    seed: int = 0,
    marked: bool = True,
) -> LabelledSamples:
    """Wafer maps as codes (N, 1, size, size), with masks by the marking rule; `drawn.one_hot` makes them a network's input.

    Args:
        folder: where `wm811k.npz` or `LSWMD.pkl` lies, or one of these files.
        size: pixels a side.
        limit: how many at most, round-robin over classes; by default all.
        per_class: how many of each class at most. The rarest, Near-full, has fifty, None three quarters of all.
        seed: of the choice.
        marked: whether patterns are marked, which takes some milliseconds a map.

    Raises:
        InputError: where there is no such file, or it holds something else.
    """
    check_limit(limit)
    check_limit(per_class, "per_class")
    check_count(size, "size")
    path = _file(folder)
    file = _read(path)
    first, again = _find_distinct(file.maps)
    y = torch.from_numpy(file.y[first])
    rows = _some_of_each(y, per_class, seed)
    rows = rows[torch.tensor(sorted(round_robin(y[rows], seed)[:limit]), dtype=torch.long)]
    numbers = first[rows.numpy()]
    codes = torch.from_numpy(_resize_all([file.read(number) for number in numbers], size))[:, None]
    y = y[rows]
    return LabelledSamples(
        x=codes,
        y=y,
        classes=CLASSES,
        names=tuple(f"{path.name} {number}" for number in numbers),
        source=describe_source(
            f"WM-811K ({path.name}), {len(rows):,} of {len(first):,} distinct maps, {size}×{size}"
            + ("; patterns marked by a rule" if marked else ""),
            {"duplicates": again},
        ),
        masks=mark(codes, y) if marked else None,
    )


def survey(folder: str | PathLike[str], watch: Reading | None = None) -> Survey:
    """Read every map of a file, and report what it holds; `watch` is called with how many have been read, and of how many."""
    path = _file(folder)
    file = _read(path)
    problems, contents = [], []
    for number in range(len(file.maps)):
        try:
            contents.append((f"{path.name} {number}", _content(file.read(number))))
        except InputError as error:
            problems.append(str(error))
        if watch is not None:
            watch(number + 1, len(file.maps))
    counts = np.bincount(file.y, minlength=len(CLASSES)).tolist()
    groups = find_duplicates(contents)
    again = sum(len(group) - 1 for group in groups)
    source = describe_source(f"WM-811K ({path.name})", {"duplicates": again}, "loading skips")
    return Survey(source, dict(zip(CLASSES, counts, strict=True)), groups, tuple(problems))


@dataclass(frozen=True, eq=False)
class WaferFile:
    """The maps of a file that have a class, each in its own size."""

    path: Path
    maps: Sequence[Any] | NDArray[Any]
    y: NDArray[np.int64]

    def read(self, number: int) -> Map:
        """A map, checked to be one."""
        codes = self.maps[number]
        if not isinstance(codes, np.ndarray) or codes.ndim != 2 or codes.dtype.kind not in "iuf" or codes.size == 0:
            raise InputError(f"{self.path}: map {number} is {describe(codes)}, expected a table of codes 0, 1 and 2")
        known = np.isin(codes, (OUTSIDE, PASSES, FAILS))
        if not known.all():
            raise InputError(
                f"{self.path}: map {number} holds {codes[~known][0]:g}, expected codes 0 (outside), 1 (passes) and 2 (fails)"
            )
        return codes.astype(np.uint8)


def _file(folder: str | PathLike[str]) -> Path:
    path = Path(folder)
    try:
        if path.is_file():
            return path
        for name in FILES:
            if (path / name).is_file():
                return path / name
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    raise InputError(f"{path} has neither {' nor '.join(FILES)}" if path.is_dir() else f"{path} does not exist")


def _read(path: Path) -> WaferFile:
    file = _read_npz(path) if path.suffix == ".npz" else _read_pickle(path)
    if not len(file.maps):
        raise InputError(f"{path} has no map with a class")
    return file


def _read_npz(path: Path) -> WaferFile:
    check_regular(path)
    try:
        # opened here: NumPy leaves a broken archive open
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if missing := {"x", "y", "classes"} - set(file.files):
                raise InputError(f"{path} has {', '.join(file.files)}: {', '.join(sorted(missing))} missing")
            maps, y, names = file["x"], file["y"], file["classes"]
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path} is broken, probably cut short ({reason(error)}): fetch it again") from error
    except Exception as error:  # NumPy raises whatever else a broken archive leads to
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if maps.ndim != 3 or y.shape != maps.shape[:1] or y.dtype.kind not in "iu" or names.ndim != 1:
        raise InputError(f"{path} has x {describe(maps)} and y {describe(y)}: expected maps (N, H, W) and a class for each")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < len(names):
        raise InputError(f"{path} has classes from {y.min()} to {y.max()} in y and {len(names)} names")
    known = np.array([_class(name, path) for name in names], dtype=np.int64)
    return WaferFile(path, maps, known[y])


def _read_pickle(path: Path) -> WaferFile:
    columns = read_frame(path)
    if missing := {"waferMap", "failureType"} - set(columns):
        raise InputError(f"{path} has the columns {', '.join(columns)}: {' and '.join(sorted(missing))} missing")
    labels = [_innermost(cell) for cell in columns["failureType"]]
    there = [row for row, label in enumerate(labels) if label is not None]
    y = np.array([_class(labels[row], path) for row in there], dtype=np.int64)
    return WaferFile(path, [columns["waferMap"][row] for row in there], y)


def _innermost(cell: Any) -> Any:
    """What a cell such as [['Donut']] holds; None where it is empty."""
    while isinstance(cell, (list, tuple, np.ndarray)):
        flat = np.asarray(cell, dtype=object).ravel()
        cell = flat[0] if flat.size else None
    return cell


def _class(name: Any, path: Path) -> int:
    known = SPELLINGS.get(str(name).strip().lower())
    if known is None:
        raise InputError(f"{path} has the class {describe(str(name))}: expected one of {', '.join(CLASSES)}")
    return CLASSES.index(known)


def _content(codes: Any) -> bytes:
    return hashlib.sha256(f"{np.shape(codes)}".encode() + np.asarray(codes).tobytes()).digest()


def _find_distinct(maps: Sequence[Any] | NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """The numbers of those maps that no other before them equals, and how many there are besides."""
    first: dict[bytes, int] = {}
    for number, codes in enumerate(maps):
        first.setdefault(_content(codes), number)
    return np.array(list(first.values()), dtype=np.int64), len(maps) - len(first)


def _some_of_each(y: Tensor, count: int | None, seed: int) -> Tensor:
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed), device="cpu")
    of_each = [order[y[order] == label][:count] for label in range(len(CLASSES))]
    return torch.cat(of_each).sort().values


def resize(codes: Map, size: int) -> Map:
    """Bring maps (N, H, W) to (N, size, size), so that a scratch stays a line.

    Taking every eighth row away would take away a scratch that lies in it, or break one that crosses it. So each die of a
    larger map goes into one pixel, and a pixel fails when it holds as many failing dies as a line across it has: 64 × 64 to
    56 × 56 keeps every scratch, and 8 % more of WM-811K's dies fail. Smaller maps are enlarged, each pixel the nearest die.
    """
    for axis in (1, 2):
        if codes.shape[axis] < size:
            codes = codes.take(np.arange(size) * codes.shape[axis] // size, axis=axis)
    starts = [-(-np.arange(size) * codes.shape[axis] // size) for axis in (1, 2)]
    rows, columns = (np.diff(start, append=codes.shape[axis]) for axis, start in zip((1, 2), starts, strict=True))

    def total(flag: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.add.reduceat(np.add.reduceat(flag.astype(np.int64), starts[0], axis=1), starts[1], axis=2)

    fails = total(codes == FAILS) >= np.minimum(rows[:, None], columns)
    wafer = 2 * total(codes != OUTSIDE) >= rows[:, None] * columns
    return np.where(fails, FAILS, np.where(wafer, PASSES, OUTSIDE)).astype(np.uint8)


def _resize_all(maps: Sequence[Map], size: int) -> Map:
    """Maps of all sizes brought to one, those of a size together."""
    result = np.empty((len(maps), size, size), dtype=np.uint8)
    shapes: dict[tuple[int, ...], list[int]] = {}
    for number, codes in enumerate(maps):
        shapes.setdefault(codes.shape, []).append(number)
    for numbers in shapes.values():
        for start in range(0, len(numbers), 1000):
            batch = numbers[start : start + 1000]
            result[batch] = resize(np.stack([maps[number] for number in batch]), size)
    return result


DATASET = DataSet(
    name="wafer",
    about="WM-811K: wafer maps of eight failure patterns and none",
    suites=("wafer",),
    layout="LSWMD.pkl, or wm811k.npz with x, y and classes",
    page="http://mirlab.org/dataset/public/",
    terms="those of the publishers, MIR Lab",
    default="drawn maps of the eight patterns, with exact masks",
    survey=survey,
)
