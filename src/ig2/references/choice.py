"""Round-robin over classes: the order in which samples are chosen from a pool as references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import torch
from torch import Tensor

from ig2._utils.checks import check_seed
from ig2.errors import InputError


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


def choose_other_classes(target: Tensor, classes: Tensor, count: int, seed: int = 0) -> Tensor:
    """Choose references of other classes for each explicand, round-robin over the classes.

    Args:
        target: the class of each explicand, (B,).
        classes: the class of each sample of the pool, (N,).
        count: the number of references for each explicand.
        seed: the seed of the choice; explicand i uses seed + i.

    Returns:
        The indices of each explicand's references in the pool, (B, count).

    Raises:
        InputError: if the pool has fewer than `count` samples outside an explicand's class.

    >>> choose_other_classes(torch.tensor([0, 1]), torch.tensor([0, 1, 2, 2]), 2).tolist()
    [[3, 1], [2, 0]]
    """
    rows = []
    for i, label in enumerate(target.tolist()):
        rows.append(round_robin(classes, (seed + i) % 2**62, classes != label)[:count])
        if len(rows[-1]) < count:
            raise InputError(
                f"there are {len(rows[-1])} samples of classes other than {label}, too few for {count} references: ask for "
                "fewer, or give a larger pool"
            )
    return torch.tensor(rows, dtype=torch.long).view(-1, count)
