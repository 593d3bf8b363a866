"""Named things that packages add to this one: suites, data sets, figures and models, found by their entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from ig2._utils.suggestions import ChoiceError, suggest
from ig2.errors import InputError, describe


@cache
def entry_points(**chosen: str) -> Any:
    """Return the entry points of installed packages, looked up once: it takes 3 to 25 ms, and each row of a store asks."""
    return metadata.entry_points(**chosen)


class UnknownNameError(ChoiceError, KeyError):
    """A registry has nothing of this name."""

    def __str__(self) -> str:  # KeyError's would put it in quotes
        return str(self.args[0])


class Registry(MutableMapping[str, Any]):
    """What installed packages registered under one entry-point group, by name. Nothing is imported before it is looked up.

    A package adds to it with one line in its `pyproject.toml`:

        [project.entry-points."ig2.suites"]
        mine = "mypackage.suites:Mine"

    A script adds to it by assignment, `SUITES["mine"] = Mine`; a command line names `module:object`.

    Args:
        group: the group of the entry points, such as "ig2.suites".
        kind: what one of them is called in messages, such as "suite".
        built_in: `module:object` by name, for what this package brings itself.
    """

    def __init__(self, group: str, kind: str, built_in: Mapping[str, str] | None = None) -> None:
        self.group, self.kind = group, kind
        self.built_in = {name: EntryPoint(name, value, group) for name, value in (built_in or {}).items()}
        self.added: dict[str, Any] = {}

    def _collect(self) -> dict[str, Any]:
        return self.built_in | {point.name: point for point in entry_points(group=self.group)} | self.added

    def __setitem__(self, name: str, value: Any) -> None:
        self.added[name] = value

    def __delitem__(self, name: str) -> None:
        del self.added[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._collect())

    def __len__(self) -> int:
        return len(self._collect())

    def __contains__(self, name: object) -> bool:
        return name in self._collect()

    def __getitem__(self, name: str) -> Any:
        """Return the object of this name, or of this `module:object`.

        Raises:
            UnknownNameError: if there is none.
            InputError: if it cannot be imported.
        """
        known = self._collect()
        point = known.get(name)
        if point is None and isinstance(name, str) and ":" in name:
            point = EntryPoint(name, name, self.group)
        if point is None:
            raise UnknownNameError(f"there is no {self.kind} {describe(name)}{suggest(name, known)}")
        if name in self.added:
            return point
        try:
            return point.load()
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"the {self.kind} {describe(name)} cannot be imported from {point.value}: {error}") from error


def is_bench_installed() -> bool:
    """Return whether ig2-bench is installed, whose commands and data sets are found by their entry points."""
    return bool(entry_points(group="ig2.commands", name="bench"))


INSTALL_BENCH = "with the package ig2-bench: pip install ig2-bench (in a checkout: pip install ./bench)"
