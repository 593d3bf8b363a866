"""Looking through a data set from end to end: how many of each class, duplicates, what is broken."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from torch import Tensor

from ig2.data.base import Samples

Watch = Callable[[int, int], None]
"""Called with how many have been looked at, and of how many."""


@dataclass(frozen=True)
class Survey:
    """What a data set holds, and what is wrong with it."""

    source: str
    """Which data this is, and what was left out of it."""
    counts: dict[str, int]
    """How many samples each class has, those that stand there again among them."""
    duplicates: tuple[tuple[str, ...], ...] = ()
    """The names of samples that are the same, in groups."""
    problems: tuple[str, ...] = ()
    """What is missing, broken or does not fit, in a sentence each."""
    total: int | None = None
    """How many samples there are, where they have several labels; otherwise None, and the counts add up to it."""


def survey(*parts: Samples) -> Survey:
    """Count the samples of one or several parts, and find those that are the same.

    Args:
        parts: of one data set, such as its training and its test samples.
    """
    counts: dict[str, int] = {}
    for samples in parts:
        for name, number in samples.counts().items():
            counts[name] = counts.get(name, 0) + number
    contents = ((name, _content(x)) for samples in parts for name, x in zip(samples.names, samples.x, strict=True))
    several = any(samples.y.ndim > 1 for samples in parts)
    source = " · ".join(dict.fromkeys(samples.source for samples in parts))
    return Survey(source, counts, repeated(contents), total=sum(map(len, parts)) if several else None)


def _content(x: Tensor | str) -> Hashable:
    return x if isinstance(x, str) else hashlib.sha256(x.contiguous().numpy().tobytes()).digest()


def repeated(contents: Iterable[tuple[str, Hashable]]) -> tuple[tuple[str, ...], ...]:
    """Names that come with the same content, in groups of two and more."""
    groups: defaultdict[Hashable, list[str]] = defaultdict(list)
    for name, content in contents:
        groups[content].append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
