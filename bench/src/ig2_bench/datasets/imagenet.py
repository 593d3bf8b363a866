"""ImageNet photos with their classes and, where there are any, object boxes or masks.

The layouts that are read, each recognised by what lies in the folder:

- `boxes.csv` (file, class_index, x0, y0, x1, y1: a row for each box, in pixels of the file) or `labels.csv` (file, class_index)
  beside `images/`;
- the public validation set: photos in the folder, in `val/`, in `images/` or in `ILSVRC/Data/CLS-LOC/val/`, with
  `LOC_val_solution.csv` or the XML annotations;
- a folder for each class, called by its number in WordNet (n01440764), with XML annotations if there are any.

A folder `masks/` of PNGs (0 beside the object, anything else on it) takes the place of boxes in all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from ig2._utils.datasets import DataSet, Reading, Survey
from ig2._utils.files import check_regular
from ig2.errors import InputError, describe, reason
from ig2.modalities.image import imagenet
from ig2.modalities.image.reading import read_image
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.listing import Entry, Frame, Listing, Mask, existing_folder, pictures_in, read_csv, read_lines

PHOTOS = ("ILSVRC/Data/CLS-LOC/val", "val", "images", ".")
ANNOTATIONS = ("ILSVRC/Annotations/CLS-LOC/val", "Annotations", "annotations", "bbox", *PHOTOS[1:])
SOLUTION = "LOC_val_solution.csv"
WNID = re.compile(r"n\d{8}")
# of an annotation: theirs have a few kilobytes
MOST_BYTES = 1_000_000
# A box may end a little outside the picture by rounding. Further out, it is the box of a larger picture.
OUTSIDE = 0.02

Box = tuple[float, float, float, float]  # x0, y0, x1, y1


@dataclass(frozen=True)
class Annotation:
    """What a file says of one picture."""

    label: int
    where: str  # the file, and the line
    boxes: tuple[Box, ...] = ()
    size: tuple[int, int] | None = None  # height and width of the picture the boxes were drawn on, where that is known

    def mask(self, height: int, width: int) -> Mask:
        """1 where any of the boxes is: a pixel belongs to a box if its middle does."""
        rows, columns = self.size or (height, width)
        mask = np.zeros((height, width), dtype=np.int8)
        for box in self.boxes:
            x0, y0, x1, y1 = box
            if x1 > columns * (1 + OUTSIDE) or y1 > rows * (1 + OUTSIDE):
                raise InputError(
                    f"{self.where}: the box {_join(box)} ends outside the picture of {columns} × {rows} pixels: "
                    "boxes must be given in pixels of the file, so take the original photos"
                )
            across, down = (np.arange(width) + 0.5) * (columns / width), (np.arange(height) + 0.5) * (rows / height)
            mask |= np.outer((y0 <= down) & (down < y1), (x0 <= across) & (across < x1)).astype(np.int8)
        return mask


def load(
    folder: str | PathLike[str],
    size: int | tuple[int, int] = 224,
    *,
    frame: Frame | None = None,
    boxes: str | PathLike[str] | None = None,
    masks: str | PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> LabelledSamples:
    """Photos of a folder, with masks where boxes or masks are there; photos whose object is cut off are skipped.

    Args:
        folder: where they lie, in one of the layouts above.
        size: height and width they are brought to, or one number for both.
        frame: instead of `size`: a function from a Pillow image to one of the network's size, such as the `frame` of a vision
            subject. Masks are framed alike.
        boxes: the file or folder with the boxes, where it lies elsewhere.
        masks: the folder of masks, likewise.
        limit: how many at most, round-robin over classes; by default all.
        seed: of the choice.

    Raises:
        InputError: where files are missing or do not fit together.
    """
    return find(folder, boxes, masks).load(size, frame, limit, seed)


def survey(folder: str | PathLike[str], watch: Reading | None = None) -> Survey:
    """Read every photo of a folder, and report what it holds; `watch` is called with how many have been read."""
    return find(folder).survey(watch)


def find(
    folder: str | PathLike[str], boxes: str | PathLike[str] | None = None, masks: str | PathLike[str] | None = None
) -> Listing:
    """Which photos there are, without reading them."""
    root = existing_folder(folder)
    problems = _other_order(root)
    notes, whole = _annotations(root, None if boxes is None else Path(boxes), problems)
    photos = _photos(root, problems)
    labels = {stem: label for stem, (_, label) in photos.items()}
    for stem, note in notes.items():
        if stem not in photos:
            if not whole:
                problems.append(f"{note.where} names {stem}, and there is no such picture: put it there, or take the line out")
        elif (label := labels[stem]) is None:
            labels[stem] = note.label
        elif label != note.label:
            path = photos[stem][0]
            problems.append(f"{path} lies in the folder of class {label}, and {note.where} says it is of class {note.label}")
    for stem, (path, _) in photos.items():
        if labels[stem] is None:
            problems.append(f"{path} has no label: name its class in a labels.csv, boxes.csv, {SOLUTION} or an annotation")
    marked, truth = _find_masks(root, None if masks is None else Path(masks), notes, photos, problems)
    entries = [
        Entry(path.name, label, path, marked.get(stem) if marked else None)
        for stem, (path, _) in photos.items()
        if (label := labels[stem]) is not None and (not marked or stem in marked)
    ]
    skipped = {
        "annotations without a photo": sum(stem not in photos for stem in notes) if whole else 0,
        "photos with nothing marked": sum(stem not in marked for stem in photos) if marked else 0,
    }
    return Listing(entries, imagenet.names(), f"ImageNet (ILSVRC 2012) photos, {truth}", skipped, problems)


# -- photos ------------------------------------------------------------------------------------------------------------


def _photos(root: Path, problems: list[str]) -> dict[str, tuple[Path, int | None]]:
    """Photos by name, each with the class of its folder, if it has one."""
    numbers = {wnid: number for number, wnid in enumerate(imagenet.wnids())}
    for place in PHOTOS:
        folder = root / place
        if not folder.is_dir():
            continue
        photos: dict[str, tuple[Path, int | None]] = {stem: (path, None) for stem, path in pictures_in(folder).items()}
        for inner in sorted(path for path in folder.iterdir() if path.is_dir() and WNID.fullmatch(path.name)):
            if inner.name not in numbers:
                problems.append(f"{inner} is called by none of the thousand classes of ILSVRC 2012: take it out")
                continue
            pictures = pictures_in(inner)
            if not pictures:
                problems.append(f"{inner} has no pictures")
            photos |= {stem: (path, numbers[inner.name]) for stem, path in pictures.items()}
        if photos:
            return photos
    looked = ", ".join(place for place in PHOTOS if place != ".")
    raise InputError(f"{root} has no pictures: expected some in it, in folders called n01440764 and so on, or in {looked}")


def _other_order(root: Path) -> list[str]:
    """Indices mean what they mean everywhere else, as far as synset_words.txt tells."""
    path = root / "synset_words.txt"
    if not path.is_file():
        return []
    wnids = tuple(line.partition(" ")[0] for line in read_lines(path) if line.strip())
    if wnids == imagenet.wnids():
        return []
    wrong = next((n for n, pair in enumerate(zip(wnids, imagenet.wnids(), strict=False)) if pair[0] != pair[1]), len(wnids))
    return [
        f"{path} line {wrong + 1}: the classes are not those of ILSVRC 2012 in their usual order, so its indices mean others"
    ]


# -- labels and boxes --------------------------------------------------------------------------------------------------


def _annotations(root: Path, chosen: Path | None, problems: list[str]) -> tuple[dict[str, Annotation], bool]:
    """Annotations by the photo's name, and whether they are those of the whole public set, of which photos may be a part."""
    if chosen is not None:
        if chosen.is_dir():
            return _from_xml(chosen, problems, must=True), True
        return (_from_solution(chosen, problems), True) if chosen.name == SOLUTION else (_from_table(chosen, problems), False)
    for name in ("boxes.csv", "labels.csv"):
        if (root / name).is_file():
            return _from_table(root / name, problems), False
    if (root / SOLUTION).is_file():
        return _from_solution(root / SOLUTION, problems), True
    for place in ANNOTATIONS:
        if (root / place).is_dir() and (notes := _from_xml(root / place, problems)):
            return notes, True
    return {}, True


def _from_table(path: Path, problems: list[str]) -> dict[str, Annotation]:
    """A row for each box, or for each photo: file, class_index and perhaps x0, y0, x1, y1."""
    notes: dict[str, Annotation] = {}
    columns, rows = read_csv(path)
    boxed = "x0" in columns
    for column in ("file", "class_index", *(("x0", "y0", "x1", "y1") if boxed else ())):
        if column not in columns:
            raise InputError(f"{path} has the columns {', '.join(columns) or 'nothing'}: {column} is missing")
    for where, row in rows:
        try:
            file = _name(row, "file")
            label = _class(row["class_index"])
            boxes = (_box([row[column] for column in ("x0", "y0", "x1", "y1")]),) if boxed else ()
        except ValueError as error:
            problems.append(f"{where}: {error}")
            continue
        stem = Path(file).stem
        before = notes.get(stem)
        if before is not None and before.label != label:
            problems.append(f"{where}: {file} is of class {label} here and of class {before.label} in {before.where}")
        elif before is not None and not boxed:
            problems.append(f"{where}: {file} is in {before.where} already")
        else:
            notes[stem] = Annotation(label, before.where if before else where, (*(before.boxes if before else ()), *boxes))
    return notes


def _from_solution(path: Path, problems: list[str]) -> dict[str, Annotation]:
    """A row for each photo: its name, and for each box the class and x0 y0 x1 y1."""
    notes: dict[str, Annotation] = {}
    columns, rows = read_csv(path)
    if not {"ImageId", "PredictionString"} <= set(columns):
        raise InputError(f"{path} has the columns {', '.join(columns)}: expected ImageId, PredictionString")
    for where, row in rows:
        words = (row["PredictionString"] or "").split()
        try:
            name = _name(row, "ImageId")
            if not words or len(words) % 5:
                raise ValueError(f"{describe(row['PredictionString'])}: expected a class and four numbers, again and again")
            objects = [(_wnid(words[n]), _box(words[n + 1 : n + 5])) for n in range(0, len(words), 5)]
        except ValueError as error:
            problems.append(f"{where}: {error}")
            continue
        label = objects[0][0]
        notes[name] = Annotation(label, where, tuple(box for other, box in objects if other == label))
    return notes


def _from_xml(folder: Path, problems: list[str], must: bool = False) -> dict[str, Annotation]:
    """A file for each photo, as in Pascal VOC: its size, and the name and bndbox of each object."""
    notes: dict[str, Annotation] = {}
    for path in sorted(folder.rglob("*.xml")):
        if path.name.startswith("."):
            continue
        try:
            root = _tree(path)
            objects = []
            for thing in root.iter("object"):
                corners = [thing.findtext(f"bndbox/{corner}") for corner in ("xmin", "ymin", "xmax", "ymax")]
                objects.append((_wnid((thing.findtext("name") or "").strip()), _box(corners)))
            if not objects:
                raise ValueError("there is no object in it")
            sides = [int(root.findtext(f"size/{side}") or 0) for side in ("height", "width")]
        except ValueError as error:
            problems.append(f"{path}: {error}")
            continue
        label = objects[0][0]
        size = (sides[0], sides[1]) if min(sides) > 0 else None
        notes[path.stem] = Annotation(label, str(path), tuple(box for other, box in objects if other == label), size)
    if must and not notes and not problems:
        raise InputError(f"{folder} has no XML annotations")
    return notes


def _tree(path: Path) -> ElementTree.Element:
    try:
        check_regular(path)
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"an annotation of {path.stat().st_size:,} bytes is none")
        text = path.read_bytes()
        # entities that expand to gigabytes can only be declared there, and annotations declare nothing
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise ValueError("annotations with a document type are not read")
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"it is no XML: {error}") from error
    except OSError as error:
        raise ValueError(f"it cannot be read: {reason(error)}") from error


def _name(row: dict[str, str | None], column: str) -> str:
    if not (name := row[column]):
        raise ValueError(f"{column} is {describe(name)}, expected the name of a photo")
    return name


def _class(text: str | None) -> int:
    if text is None or not text.strip().isdecimal() or not int(text) < len(imagenet.names()):
        raise ValueError(f"class_index is {describe(text)}, expected a whole number from 0 to 999")
    return int(text)


def _wnid(text: str) -> int:
    try:
        return imagenet.wnids().index(text)
    except ValueError:
        raise ValueError(f"{describe(text)} is none of the thousand classes of ILSVRC 2012, such as n01440764") from None


def _box(texts: Sequence[str | None]) -> Box:
    try:
        x0, y0, x1, y1 = (float(text or "") for text in texts)
    except ValueError:
        raise ValueError(f"a box is {describe(list(texts))}, expected four numbers x0, y0, x1, y1") from None
    if not (all(map(math.isfinite, (x0, y0, x1, y1))) and 0 <= x0 < x1 and 0 <= y0 < y1):
        raise ValueError(f"the box {_join((x0, y0, x1, y1))} has no inside: expected 0 ≤ x0 < x1 and 0 ≤ y0 < y1")
    return x0, y0, x1, y1


def _join(box: Box) -> str:
    return " ".join(f"{number:g}" for number in box)


# -- masks -------------------------------------------------------------------------------------------------------------


def _find_masks(
    root: Path,
    chosen: Path | None,
    notes: dict[str, Annotation],
    photos: dict[str, tuple[Path, int | None]],
    problems: list[str],
) -> tuple[dict[str, Callable[[int, int], Mask]], str]:
    """What makes each photo's mask, and what the truth is called."""
    folder = root / "masks" if chosen is None else existing_folder(chosen)
    if not folder.is_dir():
        boxed: dict[str, Callable[[int, int], Mask]] = {stem: note.mask for stem, note in notes.items() if note.boxes}
        return boxed, "object boxes" if boxed else "nothing marked"
    masks = pictures_in(folder, (".png",))
    if not masks:
        raise InputError(f"{folder} has no masks: expected a PNG for each photo, of the same name")
    for stem, path in masks.items():
        if stem not in photos:
            problems.append(f"{path} is the mask of no photo: there is no {stem} among them")
    return {stem: partial(_object, path) for stem, path in masks.items()}, "object masks"


def _object(path: Path, height: int, width: int) -> Mask:
    return (np.array(read_image(path, grey=True, turn=False)) > 0).astype(np.int8)


DATASET = DataSet(
    name="imagenet",
    about="photos of a thousand classes, with object boxes or masks",
    suites=("imagenet",),
    layout="the validation photos with LOC_val_solution.csv or their XML annotations; or a folder for each class "
    "(n01440764 and so on); or images/ beside boxes.csv or labels.csv; masks/ of PNGs if there are any",
    page="https://image-net.org/download-images",
    terms="for non-commercial research and teaching, after registration there",
    default="eight photos that come with packages, their objects outlined by hand",
    survey=survey,
)
