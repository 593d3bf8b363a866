"""Public data sets: what each looks like, under which terms, where it comes from, and what a look through its folder says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ig2._utils import downloads
from ig2._utils.downloads import PublicFile
from ig2._utils.files import cache_folder
from ig2._utils.registry import Registry
from ig2.errors import InputError

Fetching = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and of how many."""
Reading = Callable[[int, int], None]
"""Called with how many samples have been read, and of how many."""


@dataclass(frozen=True)
class Survey:
    """What a folder of a data set holds, and what is wrong with it."""

    source: str
    """Which data this is, and which of it is skipped."""
    counts: dict[str, int]
    """How many samples each class has, duplicates included."""
    duplicates: tuple[tuple[str, ...], ...] = ()
    """The names of samples that are the same, in groups."""
    problems: tuple[str, ...] = ()
    """What is missing, broken or does not fit, in a sentence each."""
    total: int | None = None
    """How many samples there are, where they have several labels; otherwise None, and the counts add up to it."""


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
    survey: Callable[[str | PathLike[str], Reading | None], Survey]
    """Reads everything in a folder, and says how much there is, what is duplicated and what is broken."""
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

    def fetch(self, to: str | PathLike[str] | None = None, progress: Fetching | None = None) -> Path:
        """Get its files. What is there already is not fetched again.

        Args:
            to: the folder it is put in; by default one in the cache.
            progress: called with a file's name, the bytes that are there, and of how many.

        Returns:
            The folder.

        Raises:
            InputError: where its terms do not let us fetch it.
            FetchError: where a file is not available, or another than expected.
        """
        folder = self.folder if to is None else Path(to)
        if not self.files:
            raise InputError(
                f"{self.name} is not fetched for you (terms: {self.terms}): get it from {self.page}, and name its folder "
                "with --data"
            )
        for file in self.files:
            downloads.fetch(file, folder, _for(file.name, progress))
        return folder


def _for(name: str, progress: Fetching | None) -> downloads.Progress | None:
    return None if progress is None else lambda done, total: progress(name, done, total)


DATASETS = Registry("ig2.datasets", "data set", "those of the paper come with pip install ig2-paper")
"""The data sets of installed packages, each a `DataSet`, by name."""
