"""Looking through a data set from end to end: how many of each class, duplicates, what is broken."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable

from torch import Tensor

from ig2._utils.datasets import Survey
from ig2_bench.datasets.base import LabelledSamples


def survey_samples(*parts: LabelledSamples) -> Survey:
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
    return Survey(source, counts, find_duplicates(contents), total=sum(map(len, parts)) if several else None)


def _content(x: Tensor | str) -> Hashable:
    return x if isinstance(x, str) else hashlib.sha256(x.contiguous().numpy().tobytes()).digest()


def find_duplicates(contents: Iterable[tuple[str, Hashable]]) -> tuple[tuple[str, ...], ...]:
    """Names that come with the same content, in groups of two and more."""
    groups: defaultdict[Hashable, list[str]] = defaultdict(list)
    for name, content in contents:
        groups[content].append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
