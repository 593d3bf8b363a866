"""Pictures in a folder: which there are, what they show, and how a picture and its mask come to one size together."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ig2._utils.datasets import Reading, Survey
from ig2._utils.files import check_regular
from ig2.errors import InputError, describe, import_extra, reason
from ig2.modalities.image.reading import SUFFIXES, Framing, read_image
from ig2.references import round_robin
from ig2_bench.datasets.base import LabelledSamples, check_limit, describe_source
from ig2_bench.datasets.survey import find_duplicates

Mask = NDArray[np.int8]
Frame = Callable[[Any], Any]
"""From a Pillow image of any size to one of the size that a network takes."""


@dataclass(frozen=True)
class Entry:
    """A picture that has not been read yet."""

    name: str
    label: int
    path: Path
    mask: Callable[[int, int], Mask] | None = None
    """The truth for the picture as stored, called with its height and width; none where nothing is marked."""


@dataclass(frozen=True)
class Listing:
    """The pictures of a data set, before any of them is read."""

    entries: list[Entry]
    classes: tuple[str, ...]
    source: str
    skipped: dict[str, int] = field(default_factory=dict)
    """How many were skipped on purpose, by the reason."""
    problems: list[str] = field(default_factory=list)
    """What is missing or does not fit, in a sentence each."""

    def load(
        self, size: int | tuple[int, int], frame: Frame | None = None, limit: int | None = None, seed: int = 0
    ) -> LabelledSamples:
        """Read pictures and masks, brought to one size.

        Args:
            size: height and width, or one number for both: pictures are scaled to cover it and their middle is kept.
            frame: instead of `size`: what brings a Pillow image to the network's size, such as a subject's `frame`.
            limit: how many at most, round-robin over classes; by default all.
            seed: of the choice.

        Returns:
            The samples.

        Raises:
            InputError: where something is missing, cannot be read or does not fit.
        """
        check_limit(limit)
        if self.problems:
            others = len(self.problems) - 1
            raise InputError(self.problems[0] + (f" (and {others:,} more: see ig2 data verify)" if others else ""))
        if not self.entries:
            raise InputError(f"no picture remains to be read ({describe_source(self.source, self.skipped)}): add some")
        if frame is None:
            frame = Framing((size, size) if isinstance(size, int) else size)
        read: dict[int, tuple[NDArray[np.uint8], Mask | None]] = {}
        unmarked = 0
        for number in round_robin(torch.tensor([entry.label for entry in self.entries]), seed):
            if len(read) == limit:
                break
            picture, mask = _read_framed(self.entries[number], frame)
            if mask is not None and not (mask == 1).any():
                unmarked += 1
            else:
                read[number] = picture, mask
        if not read:
            raise InputError(f"{self.source}: no picture has anything marked after it was cut to size: give a larger size")
        numbers = sorted(read)
        shapes = Counter(read[number][0].shape for number in numbers)
        if len(shapes) > 1:
            raise InputError(f"frame made pictures of several sizes, {describe(list(shapes))}: expected one")
        masks = [mask for number in numbers if (mask := read[number][1]) is not None]
        return LabelledSamples(
            x=torch.stack([torch.from_numpy(read[number][0]) for number in numbers]),
            y=torch.tensor([self.entries[number].label for number in numbers]),
            classes=self.classes,
            names=tuple(self.entries[number].name for number in numbers),
            source=describe_source(self.source, self.skipped | {"with nothing marked after they were cut to size": unmarked}),
            masks=torch.stack([torch.from_numpy(mask) for mask in masks]) if masks else None,
        )

    def survey(self, watch: Reading | None = None) -> Survey:
        """Read every picture and mask as it is stored, one after the other."""
        problems, contents = list(self.problems), []
        counts = Counter(entry.label for entry in self.entries)
        for done, entry in enumerate(self.entries, start=1):
            try:
                check_regular(entry.path)
                contents.append((entry.name, hashlib.sha256(entry.path.read_bytes()).digest()))
                _read(entry)
            except OSError as error:
                problems.append(f"{entry.path} cannot be read: {reason(error)}")
            except InputError as error:
                problems.append(str(error))
            if watch is not None:
                watch(done, len(self.entries))
        named = {self.classes[label]: counts[label] for label in sorted(counts)}
        source = describe_source(self.source, self.skipped)
        return Survey(source, named, find_duplicates(contents), tuple(problems))


def _read(entry: Entry) -> tuple[Any, Mask | None]:
    picture = read_image(entry.path, turn=False)
    width, height = picture.size
    mask = None if entry.mask is None else entry.mask(height, width)
    if mask is not None and mask.shape != (height, width):
        rows, columns = mask.shape
        raise InputError(f"the mask of {entry.path} is {columns} × {rows} and the picture {width} × {height}: they must fit")
    return picture, mask


def _read_framed(entry: Entry, frame: Frame) -> tuple[NDArray[np.uint8], Mask | None]:
    picture, mask = _read(entry)
    pixels = np.array(frame(picture), dtype=np.uint8)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels), None if mask is None else frame_mask(mask, frame)


def frame_mask(mask: Mask, frame: Frame) -> Mask:
    """Bring a mask to a network's size as its picture is: a pixel becomes what more than half of it was."""
    pillow = import_extra("PIL.Image", "image", "reading images")

    def where(value: int) -> NDArray[np.bool_]:
        flat = pillow.fromarray(np.where(mask == value, 255, 0).astype(np.uint8)).convert("RGB")
        return np.asarray(np.array(frame(flat).convert("L")) >= 128)

    on = where(1)
    # with an undecided border neither side has a majority everywhere
    beside = where(0) if (mask == -1).any() else ~on
    return np.where(on, 1, np.where(beside, 0, -1)).astype(np.int8)


# -- files in a folder -------------------------------------------------------------------------------------------------


def existing_folder(folder: str | PathLike[str]) -> Path:
    """The folder as a path.

    Raises:
        InputError: where there is none.
    """
    path = Path(folder)
    try:
        if path.is_dir():
            return path
        exists = path.exists()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    raise InputError(f"{path} is a file: name the folder it lies in" if exists else f"{path} does not exist")


def pictures_in(folder: Path, suffixes: Iterable[str] = SUFFIXES) -> dict[str, Path]:
    """The pictures in a folder, by their name without its ending. Hidden files are not among them."""
    wanted = tuple(suffixes)
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in wanted and not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {reason(error)}") from error
    pictures = {path.stem: path for path in paths}
    if len(pictures) < len(paths):
        first = next(path for path in paths if pictures[path.stem] != path)
        raise InputError(f"{folder} has both {first.name} and {pictures[first.stem].name}: remove one of them")
    return pictures


def read_lines(path: Path, encoding: str = "utf-8-sig") -> list[str]:
    """The lines of a text file.

    Raises:
        InputError: where it cannot be read, or is not in this encoding.
    """
    check_regular(path)
    try:
        return path.read_text(encoding=encoding).split("\n")  # not splitlines, which splits at more than that
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in {encoding.removesuffix('-sig').upper()}: {reason(error)}") from error


def read_csv(path: Path) -> tuple[list[str], list[tuple[str, dict[str, str | None]]]]:
    """The columns of a CSV file, and its rows, each with its file and line; what is missing in a short row is None."""
    rows = csv.DictReader(read_lines(path))
    try:
        return list(rows.fieldnames or []), [(f"{path} line {rows.line_num}", row) for row in rows]
    except csv.Error as error:
        raise InputError(
            f"{path} line {rows.line_num + 1}: {error}: close every quote, in that line or in one after it"
        ) from error
