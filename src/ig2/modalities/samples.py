"""Samples with their names: one of them, and a list of which some are read at a time, and what is wrong with bad ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ig2.errors import InputError, format_count

if TYPE_CHECKING:
    from ig2.modalities.base import Batch


@dataclass(frozen=True, eq=False)
class Sample:
    """Something to read, with its name, and its class if known.

    Args:
        source: whatever the kind of data is read from: a file, an array, a tensor.
        name: the name to show; by default the file's name.
        label: the class of the sample.
    """

    source: Any
    name: str | None = None
    label: str | None = None


class MismatchError(InputError):
    """The samples are not what the model takes, such as a table that lacks columns."""


class BadRowsError(InputError):
    """Some samples of a file cannot be read; the others may be valid.

    Args:
        problems: what is wrong with each, by its number, counted from 1.
        remedy: how to fix it.
    """

    def __init__(self, problems: dict[int, str], remedy: str) -> None:
        more = f" (and {format_count(len(problems) - 1, 'more row')})" if len(problems) > 1 else ""
        super().__init__(f"{next(iter(problems.values()))}{more}; {remedy}")
        self.problems = problems


@dataclass(frozen=True)
class SampleList:
    """Samples that can be read some at a time."""

    names: Sequence[str]
    read: Callable[[Sequence[int]], Batch]
    """Reads those of these indices."""
    chosen: Sequence[int]
    """The indices of those to read."""
    files: Sequence[Path] = ()
    """Their files, where each has its own."""

    @classmethod
    def of(cls, samples: Sequence[Any], names: Sequence[str], read: Callable[[list[Any]], Batch]) -> SampleList:
        """Return a samples of samples that are read from a list."""
        return cls(names, lambda indices: read([samples[i] for i in indices]), range(len(samples)))

    def find_bad(self, error: InputError, indices: Sequence[int]) -> dict[int, str]:
        """Return why each bad sample cannot be read, by its index; nothing if the error is not about single samples.

        Args:
            error: the error of reading them together.
            indices: those that were read.
        """
        if isinstance(error, BadRowsError):
            return {number - 1: problem for number, problem in error.problems.items()}
        problems: dict[int, str] = {}
        for index in indices if not isinstance(error, MismatchError) else ():
            try:
                self.read([index])
            except InputError as problem:
                problems[index] = str(problem)
        # what is wrong with each of several in the same words is not about one of them
        is_of_all = len(problems) == len(indices) > 1 and set(problems.values()) == {str(error)}
        return {} if is_of_all else problems


def name_files(files: Sequence[Path]) -> list[str]:
    """Return a name for each file, on one line: its own, or its path if another has the same.

    >>> name_files([Path("a/1.png"), Path("b/1.png"), Path("b/2.png")])
    ['a/1.png', 'b/1.png', '2.png']
    """
    times = Counter(path.name for path in files)
    names = (path.name if times[path.name] == 1 else str(path) for path in files)
    return [" ".join("".join(sign if sign.isprintable() else " " for sign in name).split()) for name in names]
