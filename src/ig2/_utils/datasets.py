"""Public data sets: their layout, terms and source, their download, and surveys of their folders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ig2._utils.files import find_cache
from ig2._utils.registry import Registry
from ig2.errors import InputError

if TYPE_CHECKING:  # imported where it is used: the command line names data sets without it
    from ig2._utils.downloads import PublicFile

Fetching = Callable[[str, int, int | None], object]
"""Called with a file's name, the bytes fetched so far, and their total, or None if the server does not report it."""
Reading = Callable[[int, int], None]
"""Called with the number of samples read so far, and their total."""


@dataclass(frozen=True)
class Survey:
    """The contents of a data set's folder, and the problems in it."""

    source: str
    """A description of the data, and of the part that is skipped."""
    counts: dict[str, int]
    """The number of samples in each class, duplicates included."""
    duplicates: tuple[tuple[str, ...], ...] = ()
    """The names of identical samples, in groups."""
    problems: tuple[str, ...] = ()
    """Missing, broken or inconsistent files, a sentence each."""
    total: int | None = None
    """The number of samples if they have several labels; otherwise None, and it is the sum of the counts."""


@dataclass(frozen=True)
class DataSet:
    """A public data set and how to obtain it."""

    name: str
    about: str
    """A short description."""
    suites: tuple[str, ...]
    """The suites of `ig2 bench` that read it; empty for data of `ig2 explain`."""
    layout: str
    """The required contents of its folder."""
    page: str
    """The web page of its publishers."""
    terms: str
    """Its terms of use."""
    default: str
    """The data that suites use if no folder is given."""
    survey: Callable[[str | PathLike[str], Reading | None], Survey]
    """A function that reads a whole folder and reports sizes, duplicates and problems."""
    files: tuple[PublicFile, ...] = ()
    """The files that `fetch` downloads; empty if the terms require a registration or an agreement."""

    @property
    def folder(self) -> Path:
        """The default folder of `fetch`, in the cache."""
        return find_cache() / "data" / self.name

    @property
    def is_fetched(self) -> bool:
        """Whether the default folder holds the data set."""
        if self.files:
            return all((self.folder / (file.unpacks_to or file.name)).exists() for file in self.files)
        return self.folder.is_dir() and any(self.folder.iterdir())

    def fetch(self, to: str | PathLike[str] | None = None, progress: Fetching | None = None) -> Path:
        """Download the files of the data set, except those already in the folder.

        Args:
            to: the folder for the files; by default one in the cache.
            progress: called with a file's name, the bytes fetched so far, and their total.

        Returns:
            The folder.

        Raises:
            InputError: if the terms of the data set do not allow it.
            FetchError: if a file is not available, or differs from the expected one.
        """
        from ig2._utils import downloads

        folder = self.folder if to is None else Path(to)
        if not self.files:
            raise InputError(
                f"{self.name} cannot be fetched automatically (terms: {self.terms}): get it from {self.page}, and name its "
                "folder with --data"
            )
        for file in self.files:
            downloads.fetch(file, folder, None if progress is None else partial(progress, file.name))
        return folder


DATASETS = Registry("ig2.datasets", "data set", {"imagenet-photos": "ig2.demo.pool:DATASET"})
"""The data sets of installed packages, each a `DataSet`, by name, and the photos that `ig2 explain` uses as references."""
