"""A pool of references for classifiers of ImageNet: public photos, one a class, that are fetched on request and then cached.

People said what each photo shows. In the pool are those of which EfficientNet-Lite0 says the same, with a probability of at
least 0.4: of each class the photo of the first repository or, if that is not convincing, the best of five in the second. The
listing has names, sizes, SHA-256 checksums, and where files of the second repository are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from os import PathLike
from pathlib import Path

from ig2._utils.datasets import DataSet, Reading, Survey
from ig2._utils.downloads import PublicFile, find_difference
from ig2.errors import InputError
from ig2.modalities.image import imagenet
from ig2.modalities.samples import Sample

FIRST = "EliSchwartz/imagenet-sample-images/bc69043e2862758a1906c6a24a792bb28c6bb2ff"
SECOND = "ndb796/Small-ImageNet-Validation-Dataset-1000-Classes/c55ca047bd854ba01d3af6c283c034924a644db2"
OTHERS = 12  # photos of any class beside those of the wanted ones: a model may call these something else


@cache
def _files() -> tuple[PublicFile, ...]:
    lines = resources.files("ig2.demo").joinpath("pool.txt").read_text(encoding="utf-8").splitlines()
    files = []
    for name, size, sha256, *elsewhere in map(str.split, lines):
        place = f"{SECOND}/ILSVRC2012_img_val_subset/{elsewhere[0]}" if elsewhere else f"{FIRST}/{name}"
        files.append(PublicFile(name, (f"https://raw.githubusercontent.com/{place}",), int(size), sha256))
    return tuple(files)


@cache
def _classes() -> dict[str, str]:
    """Return the class of each WordNet number."""
    return dict(zip(imagenet.wnids(), imagenet.names(), strict=True))


def name_class(file: PublicFile) -> str:
    """Return the class that a photo shows; its name begins with the number of that in WordNet."""
    return _classes()[file.name.partition("_")[0]]


@cache
def list_classes() -> frozenset[str]:
    """Return the classes that have a photo."""
    return frozenset(map(name_class, DATASET.files))


def choose(ranked: Iterable[Sequence[str]] = (), count: int = 1) -> list[Sample] | None:
    """Return photos of the first `count` classes in each row that there is one of, and a few of
    others.

    None if they were not fetched.
    """
    if not DATASET.is_fetched:
        return None
    known = list_classes()
    wanted = {name for row in ranked for name in [name for name in row if name in known][:count]}
    step = len(DATASET.files) // OTHERS
    return [
        Sample(DATASET.folder / file.name, file.name, name_class(file))
        for number, file in enumerate(DATASET.files)
        if name_class(file) in wanted or number % step == 0
    ]


def survey(folder: str | PathLike[str], watch: Reading | None = None) -> Survey:
    """Compare every file of a folder with the listing."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder" if root.exists() else f"{root} does not exist")
    counts, problems = dict[str, int](), []
    for number, file in enumerate(DATASET.files, start=1):
        path = root / file.name
        problem = find_difference(file, path) if path.exists() else "is missing"
        if problem is None:
            counts[name_class(file)] = 1
        else:
            problems.append(f"{file.name}: {problem}")
        if watch is not None:
            watch(number, len(DATASET.files))
    return Survey("ImageNet photos, one a class", counts, problems=tuple(problems))


DATASET = DataSet(
    name="imagenet-photos",
    about=f"photos of {len(_files())} ImageNet classes, one each, for ig2 explain to contrast with",
    suites=(),
    layout="n01440764_tench.JPEG and so on, in the folder itself",
    page="https://github.com/EliSchwartz/imagenet-sample-images",
    terms="those of ImageNet: non-commercial research and education; the photos remain their owners'",
    default="seven photos of scikit-image and scikit-learn",
    files=_files(),
    survey=survey,
)
"""The pool, for `ig2 data fetch imagenet-photos`."""
