"""The thousand classes of ILSVRC 2012, in the order that every classifier of them uses."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def _lines() -> tuple[tuple[str, str], ...]:
    text = resources.files("ig2.adapters").joinpath("imagenet.txt").read_text(encoding="utf-8")
    pairs = [line.split(" ", 1) for line in text.splitlines()]
    return tuple((wnid, name) for wnid, name in pairs)


@cache
def names() -> tuple[str, ...]:
    """A short name for each class, and no name twice."""
    return tuple(name for _, name in _lines())


@cache
def wnids() -> tuple[str, ...]:
    """The number of each class in WordNet, such as n01440764: what its folder and its annotations are called."""
    return tuple(wnid for wnid, _ in _lines())
