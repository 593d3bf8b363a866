"""CelebA, aligned: faces with forty attributes, and where the parts of a face are, if someone parsed them.

Read are `img_align_celeba/*.jpg`, `list_attr_celeba.txt` (the number of faces, the names of the attributes, then for each face
1 or −1 for each attribute) and, if it is there, `masks/*.png`: for each pixel the number of the component it belongs to, as in
CelebAMask-HQ. Which component shows an attribute is the paper's table, `ATTRIBUTE_COMPONENTS`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._utils.checks import is_count
from ig2._utils.datasets import DataSet, Reading, Survey
from ig2.errors import InputError, describe, format_count, import_extra
from ig2.modalities.image.reading import read_image
from ig2_bench.datasets.base import LabelledSamples, check_limit, describe_source
from ig2_bench.datasets.listing import existing_folder, pictures_in, read_lines
from ig2_bench.datasets.survey import find_duplicates

ATTRIBUTES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips", "Big_Nose",
    "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses", "Goatee",
    "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache", "Narrow_Eyes", "No_Beard",
    "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks", "Sideburns", "Smiling", "Straight_Hair",
    "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip
COMPONENTS = (
    "background", "skin", "l_brow", "r_brow", "l_eye", "r_eye", "eye_g", "l_ear", "r_ear", "ear_r", "nose", "mouth", "u_lip",
    "l_lip", "neck", "neck_l", "cloth", "hair", "hat",
)  # fmt: skip
"""Their places are the numbers in the masks. eye_g are glasses, ear_r earrings, neck_l a necklace, mouth what is inside."""
UNPARSED = 255
"""Stands in place of a component where a face has no mask."""
LIST, PICTURES, MASKS = "list_attr_celeba.txt", "img_align_celeba", "masks"
FEW = 5  # names in a sentence: of two hundred thousand faces any number may be missing

_SHOWN_BY = {
    ("hair",): ("Bald", "Bangs", "Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair", "Receding_Hairline", "Sideburns",
                "Straight_Hair", "Wavy_Hair"),
    ("l_brow", "r_brow"): ("Arched_Eyebrows", "Bushy_Eyebrows"),
    ("l_eye", "r_eye"): ("Bags_Under_Eyes", "Narrow_Eyes"),
    ("u_lip", "l_lip"): ("Big_Lips", "Wearing_Lipstick"),
    ("nose",): ("Big_Nose", "Pointy_Nose"),
    ("mouth",): ("Mouth_Slightly_Open", "Smiling"),
    ("eye_g",): ("Eyeglasses",),
    ("skin",): ("Pale_Skin",),
    ("ear_r",): ("Wearing_Earrings",),
    ("hat",): ("Wearing_Hat",),
    ("neck_l",): ("Wearing_Necklace",),
    ("cloth",): ("Wearing_Necktie",),
}  # fmt: skip
_COMPONENTS_OF = {attribute: components for components, attributes in _SHOWN_BY.items() for attribute in attributes}
ATTRIBUTE_COMPONENTS: dict[str, tuple[str, ...]] = {name: _COMPONENTS_OF[name] for name in ATTRIBUTES if name in _COMPONENTS_OF}
"""Which components show an attribute, by the paper's appendix. The other attributes have no place there."""


@dataclass(frozen=True, eq=False)
class FaceSamples(LabelledSamples):
    """Faces with several labels each, and the component that each pixel belongs to."""

    components: Tensor | None = None
    """(N, H, W) as uint8, places in `COMPONENTS`, and `UNPARSED` where it is not known. None where no face is parsed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components is not None and len(self.components) != len(self.x):
            raise InputError(f"components is {describe(self.components)} for {len(self.x)} faces: expected one for each")

    def truth(self, attribute: str, components: Sequence[str] | None = None) -> Tensor:
        """Masks (N, H, W) as int8 for one attribute: 1 on what shows it, 0 beside that, −1 on faces that are not parsed.

        Where a face lacks the component, such as the hair of the bald, its mask holds no 1 and metrics leave it out.

        Args:
            attribute: one of those in `ATTRIBUTE_COMPONENTS`.
            components: takes the place of the paper's choice: names from `COMPONENTS`.
        """
        if components is None and attribute not in ATTRIBUTE_COMPONENTS:
            raise InputError(
                f"no component of a face shows {describe(attribute)}: use one of {', '.join(ATTRIBUTE_COMPONENTS)}, "
                "or name the components"
            )
        chosen = ATTRIBUTE_COMPONENTS[attribute] if components is None else tuple(components)
        if unknown := [name for name in chosen if name not in COMPONENTS]:
            raise InputError(f"components {describe(unknown)} are not known: use some of {', '.join(COMPONENTS)}")
        if self.components is None:
            raise InputError("these faces are not parsed into components: load faces that have masks")
        value = torch.zeros(256, dtype=torch.int8)
        value[[COMPONENTS.index(name) for name in chosen]] = 1
        value[UNPARSED] = -1
        return value[self.components.long()]


def load(
    folder: str | PathLike[str],
    size: int | tuple[int, int] | None = None,
    *,
    parsed: bool = False,
    limit: int | None = None,
    seed: int = 0,
) -> FaceSamples:
    """Faces as bytes (N, 3, H, W) with all their attributes as 0 and 1, (N, 40).

    Args:
        folder: where `img_align_celeba` and `list_attr_celeba.txt` lie.
        size: height and width to scale the whole picture to, or one number for both. by default as the first is stored.
        parsed: whether only faces with components are taken.
        limit: how many at most; by default all.
        seed: of the choice.

    Raises:
        InputError: where the folder has another layout, or no such faces.
    """
    check_limit(limit)
    shape = None if size is None else sides(size)
    content = _find(existing_folder(folder))
    if content.wrong:
        raise InputError(content.wrong[0])
    names = [name for name in content.faces if name in content.masks] if parsed else list(content.faces)
    if not names:
        raise InputError(f"{folder} has no face with components: expected masks/*.png with the names of the pictures")
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed), device="cpu")
    chosen = [names[number] for number in sorted(order[:limit].tolist())]
    pictures, components = [], []
    for name in chosen:
        picture = read_image(content.pictures[name], turn=False)
        shape = shape or (picture.height, picture.width)
        pictures.append(_scale(picture, shape))
        components.append(_read_components(content.masks.get(name), shape))
    skipped = {
        "without a picture": len(content.listed) - len(content.faces),
        "without components": len(content.faces) - len(names),
        f"pictures that {LIST} does not name": sum(name not in content.listed for name in content.pictures),
    }
    return FaceSamples(
        x=torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous(),
        y=torch.tensor([content.faces[name].has for name in chosen]),
        classes=content.attributes,
        names=tuple(content.pictures[name].name for name in chosen),
        source=describe_source(f"CelebA, aligned, {len(chosen):,} of {len(names):,} faces", skipped),
        components=torch.from_numpy(np.stack(components)) if any(name in content.masks for name in chosen) else None,
    )


def survey(folder: str | PathLike[str], watch: Reading | None = None) -> Survey:
    """Read every face and mask of a folder, and report what it holds; `watch` is called with how many have been read."""
    content = _find(existing_folder(folder))
    problems = [*content.wrong, *content.unmatched()]
    contents = []
    for done, name in enumerate(content.faces, start=1):
        try:
            picture = read_image(content.pictures[name], turn=False)
            contents.append((content.pictures[name].name, hashlib.sha256(picture.tobytes()).digest()))
            _read_components(content.masks.get(name), (picture.height, picture.width))
        except InputError as error:
            problems.append(str(error))
        if watch is not None:
            watch(done, len(content.faces))
    true = np.array([face.has for face in content.faces.values()]).sum(axis=0).tolist()
    counts = dict(zip(content.attributes, true, strict=True))
    parsed = sum(name in content.masks for name in content.faces)
    source = f"CelebA, aligned, {len(content.faces):,} faces, {parsed:,} of them parsed"
    return Survey(source, counts, find_duplicates(contents), tuple(problems), total=len(content.faces))


def sides(size: int | tuple[int, int], least: int = 1) -> tuple[int, int]:
    """Height and width, from both or from one number for both."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(is_count(side) and side >= least for side in pair):
        raise InputError(f"size must be (height, width) in pixels, {least} or more, got {describe(size)}")
    return int(pair[0]), int(pair[1])


class Face(NamedTuple):
    """One line of the list."""

    file: str
    line: int
    has: list[int]
    """0 or 1 for each attribute; nothing where the line is broken."""


@dataclass(frozen=True)
class FaceFolder:
    """What a folder holds, each by its name without its ending, before any picture is read."""

    root: Path
    attributes: tuple[str, ...]
    listed: dict[str, Face]
    faces: dict[str, Face]
    """Those that have a picture and attributes."""
    pictures: dict[str, Path]
    masks: dict[str, Path]
    wrong: list[str]
    """What is wrong with the list, a sentence for each kind."""

    def unmatched(self) -> list[str]:
        """What of list, pictures and masks has no counterpart, a sentence for each kind."""
        lost = [f"{face.file} (line {face.line})" for name, face in self.listed.items() if name not in self.pictures]
        unnamed = [path.name for name, path in self.pictures.items() if name not in self.listed]
        faceless = [path.name for name, path in self.masks.items() if name not in self.listed or name not in self.pictures]
        unmatched = {
            f"{self.root / LIST} names {format_count(len(lost), 'face')} without a picture": lost,
            f"{self.root / PICTURES} has {format_count(len(unnamed), 'picture')} that {LIST} does not name": unnamed,
            f"{self.root / MASKS} has {format_count(len(faceless), 'mask')} without a face": faceless,
        }
        return [f"{what}: {_few(names)}" for what, names in unmatched.items() if names]


def _few(names: Sequence[str], between: str = ", ") -> str:
    """The first of them, and how many there are besides."""
    return between.join(names[:FEW]) + (f" and {len(names) - FEW:,} more" if len(names) > FEW else "")


def _find(root: Path) -> FaceFolder:
    attributes, listed, wrong = _attributes(root / LIST)
    pictures = pictures_in(existing_folder(root / PICTURES))
    faces = {name: face for name, face in listed.items() if face.has and name in pictures}
    if not faces and wrong:
        raise InputError(wrong[0])
    if not faces:
        raise InputError(f"{root / PICTURES} has no picture that {LIST} names, such as {next(iter(listed.values())).file}")
    masks = pictures_in(root / MASKS, (".png",)) if (root / MASKS).is_dir() else {}
    return FaceFolder(root, attributes, listed, faces, pictures, masks, wrong)


def _attributes(path: Path) -> tuple[tuple[str, ...], dict[str, Face], list[str]]:
    """The names of the attributes, the faces by their names without the ending, and what is wrong with their lines."""
    lines = [(number, line) for number, line in enumerate(read_lines(path), start=1) if line.strip()]
    names = tuple(lines[1][1].split()) if len(lines) > 1 else ()
    if len(lines) < 3 or not lines[0][1].strip().isdigit() or not names or names[0].lstrip("-").isdigit():
        raise InputError(f"{path} has {len(lines)} lines: expected the number of faces, the names of the attributes, the faces")
    if unknown := [name for name in names if name not in ATTRIBUTES]:
        raise InputError(f"{path} names the attribute {describe(unknown[0])}: expected CelebA's, such as {ATTRIBUTES[0]}")
    if len(set(names)) < len(names):
        raise InputError(f"{path} names an attribute twice")
    if int(lines[0][1]) != len(lines) - 2:
        raise InputError(f"{path} says {int(lines[0][1]):,} faces and has {len(lines) - 2:,}: is it whole?")
    faces: dict[str, Face] = {}
    broken, duplicates = [], []
    for number, line in lines[2:]:
        file, *values = line.split()
        bad = [f"{describe(value)} for {name}" for name, value in zip(names, values, strict=False) if value not in ("1", "-1")]
        if len(values) != len(names):
            bad = [f"{len(values)} values"]
        if bad:
            broken.append(f"line {number}: {file} has {bad[0]}")
        if before := faces.get(Path(file).stem):
            duplicates.append(f"{file} (lines {before.line} and {number})")
        else:
            faces[Path(file).stem] = Face(file, number, [] if bad else [int(value == "1") for value in values])
    wrong = []
    if broken:
        wrong.append(f"{path} {_few(broken, '; ')}, expected 1 or -1 for each of {len(names)} attributes")
    if duplicates:
        wrong.append(f"{path} names a face twice: {_few(duplicates)}")
    return names, faces, wrong


def _scale(picture: Any, shape: tuple[int, int]) -> NDArray[np.uint8]:
    methods = import_extra("PIL.Image", "image", "resizing images").Resampling
    same = (picture.height, picture.width) == shape
    return np.array(picture if same else picture.resize(shape[::-1], methods.BILINEAR), dtype=np.uint8)


def _read_components(path: Path | None, shape: tuple[int, int]) -> NDArray[np.uint8]:
    """The component of each pixel."""
    if path is None:
        return np.full(shape, UNPARSED, dtype=np.uint8)
    mask = read_image(path, grey=True, turn=False)
    methods = import_extra("PIL.Image", "image", "resizing images").Resampling
    components = np.array(mask.resize(shape[::-1], methods.NEAREST), dtype=np.uint8)
    if components.max() >= len(COMPONENTS):
        raise InputError(f"{path} has the value {components.max()}: expected components from 0 to {len(COMPONENTS) - 1}")
    return components


DATASET = DataSet(
    name="celeba",
    about="CelebA: aligned faces with 40 attributes",
    suites=("celeba",),
    layout="img_align_celeba/ and list_attr_celeba.txt; masks/ of the parts of faces if there are any",
    page="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    terms="for non-commercial research, by agreement",
    default="drawn faces with attributes and exact masks of their parts",
    survey=survey,
)
