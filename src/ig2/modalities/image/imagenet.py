"""The thousand classes of ILSVRC 2012, in the order used by its classifiers."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def _lines() -> tuple[tuple[str, str], ...]:
    text = resources.files("ig2.modalities.image").joinpath("imagenet.txt").read_text(encoding="utf-8")
    pairs = [line.split(" ", 1) for line in text.splitlines()]
    return tuple((wnid, name) for wnid, name in pairs)


@cache
def names() -> tuple[str, ...]:
    """Return a short name for each class, without duplicates."""
    return tuple(name for _, name in _lines())


@cache
def wnids() -> tuple[str, ...]:
    """Return the WordNet ID of each class, such as n01440764: the name of its folder and its annotations."""
    return tuple(wnid for wnid, _ in _lines())
