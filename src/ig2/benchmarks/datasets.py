"""Public data sets: their layout, terms and source, how to fetch one, and what a survey of its folder reports."""

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
    """What the folder of a data set holds, and what is wrong with it."""

    source: str
    """Which data this is, and which of it is skipped."""
    counts: dict[str, int]
    """How many samples each class has, duplicates included."""
    duplicates: tuple[tuple[str, ...], ...] = ()
    """The names of identical samples, in groups."""
    problems: tuple[str, ...] = ()
    """What is missing, broken or does not fit, a sentence each."""
    total: int | None = None
    """How many samples there are, if they have several labels; otherwise None, and the counts add up to it."""


@dataclass(frozen=True)
class DataSet:
    """A public data set, and how to get it."""

    name: str
    about: str
    """What it is, in a few words."""
    suites: tuple[str, ...]
    """Which suites of `ig2 bench` read it; none for what `ig2 explain` reads."""
    layout: str
    """What its folder must hold."""
    page: str
    """The page of its publishers."""
    terms: str
    """The terms of its use."""
    default: str
    """What suites use without a folder."""
    survey: Callable[[str | PathLike[str], Reading | None], Survey]
    """Reads everything in a folder, and returns how much there is, what is duplicated and what is broken."""
    files: tuple[PublicFile, ...] = ()
    """What `fetch` downloads; empty if the terms demand a registration or an agreement."""

    @property
    def folder(self) -> Path:
        """Where `fetch` puts it by default, in the cache."""
        return find_cache() / "data" / self.name

    @property
    def is_fetched(self) -> bool:
        """Whether that folder holds it."""
        if self.files:
            return all((self.folder / (file.unpacks_to or file.name)).exists() for file in self.files)
        return self.folder.is_dir() and any(self.folder.iterdir())

    def fetch(self, to: str | PathLike[str] | None = None, progress: Fetching | None = None) -> Path:
        """Download its files, except those that are there already.

        Args:
            to: the folder for them; by default one in the cache.
            progress: called with a file's name, the bytes fetched so far, and their total.

        Returns:
            The folder.

        Raises:
            InputError: if its terms do not allow it.
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


DATASETS = Registry("ig2.datasets", "data set", "ig2-paper", built_in={"imagenet-photos": "ig2.demo.pool:DATASET"})
"""The data sets of installed packages, each a `DataSet`, by name, and the photos that `ig2 explain` contrasts with."""
