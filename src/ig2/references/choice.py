"""Round-robin over classes: the order in which samples are chosen from a pool as references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import torch
from torch import Tensor

from ig2._utils.checks import check_seed


def interleave(indices: Iterable[int], classes: Iterable[Hashable]) -> list[int]:
    """Reorder indices so that every class contributes one before any contributes two, keeping the order within each class.

    Args:
        indices: indices of samples, in order of preference.
        classes: the class of each sample.

    Returns:
        The reordered indices.

    >>> interleave([10, 11, 12, 13], ["cat", "cat", "cat", "dog"])
    [10, 13, 11, 12]
    """
    seen: Counter[Hashable] = Counter()
    turns = []
    for index, name in zip(indices, classes, strict=True):
        turns.append((seen[name], index))
        seen[name] += 1
    return [index for _, index in sorted(turns, key=lambda turn: turn[0])]


def round_robin(classes: Tensor, seed: int = 0, eligible: Tensor | None = None) -> list[int]:
    """Return the indices of all samples in a seeded order in which every class contributes one before any contributes two.

    The first n indices are thus a balanced choice of n samples, which contains the choice for any smaller n.

    Args:
        classes: the class of each sample, (N,). If samples have several labels, (N, L), the order is only shuffled.
        seed: the seed of the order.
        eligible: the samples to order, booleans (N,); by default all.

    >>> round_robin(torch.tensor([7, 7, 7, 7, 3]))[:2]
    [4, 0]
    """
    check_seed(seed)
    indices = torch.arange(len(classes), device="cpu") if eligible is None else eligible.nonzero().flatten().cpu()
    generator = torch.Generator().manual_seed(seed)
    indices = indices[torch.randperm(len(indices), generator=generator, device="cpu")]
    return indices.tolist() if classes.ndim > 1 else interleave(indices.tolist(), classes.cpu()[indices].tolist())
