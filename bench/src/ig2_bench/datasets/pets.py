"""Oxford-IIIT Pets: cats and dogs of 37 breeds, each with a true segmentation.

Two layouts are read: the public one (`images/`, `annotations/list.txt`, `annotations/trimaps/`), and one with `labels.csv`
(name, class_index of ImageNet) beside `images/` and `trimaps/`. In a trimap 1 is the animal, 2 the background, and 3 the border
between them, which is undecided.
"""

from __future__ import annotations

from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from ig2._utils.datasets import DataSet, Reading, Survey
from ig2._utils.downloads import PublicFile
from ig2.errors import InputError, describe
from ig2.modalities.image import imagenet
from ig2.modalities.image.reading import read_image
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.listing import Entry, Frame, Listing, Mask, existing_folder, pictures_in, read_csv, read_lines

# the breeds that are classes of ImageNet, by their index there
IMAGENET = {
    "Egyptian_Mau": 285, "Persian": 283, "Siamese": 284, "american_pit_bull_terrier": 180, "basset_hound": 161,
    "beagle": 162, "boxer": 242, "chihuahua": 151, "english_cocker_spaniel": 219, "english_setter": 212,
    "german_shorthaired": 210, "great_pyrenees": 257, "japanese_chin": 152, "keeshond": 261, "leonberger": 255,
    "miniature_pinscher": 237, "newfoundland": 256, "pomeranian": 259, "pug": 254, "saint_bernard": 247, "samoyed": 258,
    "scottish_terrier": 199, "staffordshire_bull_terrier": 179, "wheaten_terrier": 202, "yorkshire_terrier": 187,
}  # fmt: skip
OTHERS = (
    "Abyssinian", "Bengal", "Birman", "Bombay", "British_Shorthair", "Maine_Coon", "Ragdoll", "Russian_Blue", "Sphynx",
    "american_bulldog", "havanese", "shiba_inu",
)  # fmt: skip
BREEDS = tuple(sorted((*IMAGENET, *OTHERS), key=str.lower))
"""All 37, by name."""
Classes = Literal["imagenet", "breeds"]
# what a trimap's 1 (subject), 2 (background) and 3 (border) become; there is no 0
TRIMAP = np.array([0, 1, 0, -1], dtype=np.int8)


def load(
    folder: str | PathLike[str],
    size: int | tuple[int, int] = 224,
    *,
    frame: Frame | None = None,
    classes: Classes = "imagenet",
    limit: int | None = None,
    seed: int = 0,
) -> LabelledSamples:
    """Photos with masks: 1 on the animal, 0 beside it, −1 on its border. Photos without animal after the cut are skipped.

    Args:
        folder: where they lie, in one of the layouts above.
        size: height and width they are brought to, or one number for both.
        frame: instead of `size`: a function from a Pillow image to one of the network's size, such as the `frame` of a vision
            subject. Masks are framed alike.
        classes: `"imagenet"` for the 25 breeds that ImageNet has, labelled as there; `"breeds"` for all 37.
        limit: how many at most, round-robin over classes; by default all.
        seed: of the choice.

    Raises:
        InputError: where files are missing or do not fit together.
    """
    return find(folder, classes).load(size, frame, limit, seed)


def survey(folder: str | PathLike[str], watch: Reading | None = None) -> Survey:
    """Read every photo and trimap of a folder, and report what it holds; `watch` is called with how many have been read."""
    return find(folder, "breeds").survey(watch)


def find(folder: str | PathLike[str], classes: Classes = "imagenet") -> Listing:
    """Which photos there are, without reading them."""
    if classes not in ("imagenet", "breeds"):
        raise InputError(f"classes must be 'imagenet' or 'breeds', got {describe(classes)}")
    root = existing_folder(folder)
    problems: list[str] = []
    public = (root / "annotations" / "list.txt").is_file()
    if not public and not (root / "labels.csv").is_file():
        raise InputError(f"{root} has neither annotations/list.txt nor labels.csv: expected Oxford-IIIT Pets, unpacked")
    named = _list(root, problems) if public else _table(root, problems)
    photos = _within(root / "images")
    trimaps = _within(root / "annotations" / "trimaps" if public else root / "trimaps", (".png",))
    for name, where in named.items():
        if name not in photos:
            problems.append(f"{where} names {name}, and there is no such photo in {root / 'images'}")
        elif name not in trimaps:
            problems.append(f"{photos[name]} has no trimap: expected {name}.png beside the others")
    unnamed = [name for name in photos if name not in named]
    if not public:  # the public list lacks 41 of its own photos
        problems += [f"{photos[name]} has no label: name it in {root / 'labels.csv'}" for name in unnamed]
    labels = IMAGENET if classes == "imagenet" else {breed: number for number, breed in enumerate(BREEDS)}
    chosen = [name for name in named if name in photos and name in trimaps]
    entries = [
        Entry(name, labels[_breed(name)], photos[name], partial(_truth, trimaps[name]))
        for name in chosen
        if _breed(name) in labels
    ]
    skipped = {
        "photos that list.txt does not name": len(unnamed) if public else 0,
        "photos of breeds that ImageNet has not": len(chosen) - len(entries),
    }
    source = f"Oxford-IIIT Pets, {'breeds that are ImageNet classes, ' if classes == 'imagenet' else ''}true segmentations"
    return Listing(entries, imagenet.names() if classes == "imagenet" else BREEDS, source, skipped, problems)


def _breed(name: str) -> str:
    return name.rpartition("_")[0]


def _within(folder: Path, suffixes: tuple[str, ...] | None = None) -> dict[str, Path]:
    pictures = pictures_in(existing_folder(folder), *(() if suffixes is None else (suffixes,)))
    if not pictures:
        raise InputError(f"{folder} has no pictures: expected those of Oxford-IIIT Pets")
    return pictures


def _list(root: Path, problems: list[str]) -> dict[str, str]:
    """The photos that list.txt names, each with where it does."""
    path = root / "annotations" / "list.txt"
    named = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *numbers = line.split()
        if len(numbers) != 3 or _breed(name) not in BREEDS:
            problems.append(f"{path} line {number}: {describe(line)}, expected a name such as Abyssinian_100 and three numbers")
        else:
            named[name] = f"{path} line {number}"
    return named


def _table(root: Path, problems: list[str]) -> dict[str, str]:
    """The photos that labels.csv names, each with where it does."""
    path = root / "labels.csv"
    columns, rows = read_csv(path)
    if not {"name", "class_index"} <= set(columns):
        raise InputError(f"{path} has the columns {', '.join(columns)}: expected name, class_index")
    named = {}
    for where, row in rows:
        name = row["name"] or ""
        index = IMAGENET.get(_breed(name))
        if index is None:
            problems.append(f"{where}: {describe(row['name'])}, expected a breed that ImageNet has and a number, such as pug_1")
        elif row["class_index"] != str(index):
            problems.append(f"{where}: {describe(name)} with class_index {describe(row['class_index'])}, expected {index}")
        else:
            named[name] = where
    return named


def _truth(path: Path, height: int, width: int) -> Mask:
    trimap = np.array(read_image(path, grey=True, turn=False))
    strange = np.setdiff1d(trimap, (1, 2, 3))
    if strange.size:
        raise InputError(f"{path} has the value {strange[0]}: a trimap has 1 (subject), 2 (background) and 3 (border) alone")
    return np.take(TRIMAP, trimap)


MIRRORS = ("https://www.robots.ox.ac.uk/~vgg/data/pets/data/", "https://thor.robots.ox.ac.uk/datasets/pets/")
DATASET = DataSet(
    name="pets",
    about="Oxford-IIIT Pets: cats and dogs of 37 breeds, with true segmentations",
    suites=("imagenet",),
    layout="images/, annotations/list.txt and annotations/trimaps/; or images/, trimaps/ and labels.csv",
    page="https://www.robots.ox.ac.uk/~vgg/data/pets/",
    terms="CC BY-SA 4.0; the photos remain their owners'",
    default="as for imagenet",
    files=tuple(
        PublicFile.at(MIRRORS, *file)
        for file in (
            ("images.tar.gz", 791_918_971, "67195c5e1c01f1ab5f9b6a5d22b8c27a580d896ece458917e61d459337fa318d", "images"),
            (
                "annotations.tar.gz",
                19_173_078,
                "52425fb6de5c424942b7626b428656fcbd798db970a937df61750c0f1d358e91",
                "annotations",
            ),
        )
    ),
    survey=survey,
)
