"""What the loader of every data set returns: labelled samples, with masks where there are any, and where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from ig2._utils.checks import check_count, check_seed
from ig2.errors import InputError, describe, format_count
from ig2.references.choice import round_robin

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """N samples of one data set, in memory, small: pictures are bytes until they are asked for."""

    x: Tensor | tuple[str, ...]
    """Pictures (N, C, H, W) as uint8 (or floats already in the model's space), or texts."""
    y: Tensor
    """The class of each, (N,); or 0/1 for each of L labels, (N, L)."""
    classes: tuple[str, ...]
    """The names of classes or labels."""
    names: tuple[str, ...]
    """The name of each sample, such as its file or line."""
    source: str
    """Which data this is, in a sentence that is printed under every table made from it."""
    masks: Tensor | None = None
    """Where the truth is, (N, H, W) as int8: 1 on it, 0 beside it, −1 where it is undecided. None where nothing is marked."""

    def __post_init__(self) -> None:
        for item in ("y", "names", "masks"):
            value = getattr(self, item)
            if value is not None and len(value) != len(self.x):
                raise InputError(f"{item} is {describe(value)} for {len(self.x)} samples: expected one for each")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, indices: Sequence[int] | slice | Tensor) -> Self:
        """The samples of these indices, of a slice, or of a mask."""
        rows = torch.arange(len(self))[indices]
        if rows.ndim != 1:
            raise InputError(f"samples are chosen by indices, a slice or a mask, got {describe(indices)}")

        def select(value: Any) -> Any:
            return (
                tuple(value[i] for i in rows.tolist()) if isinstance(value, tuple) else value if value is None else value[rows]
            )

        return replace(
            self, **{f.name: select(getattr(self, f.name)) for f in fields(self) if f.name not in ("classes", "source")}
        )

    def digest(self) -> str:
        """A name for exactly these samples: another picture, label or mask gives another one."""
        digest = hashlib.sha256()
        for part in fields(self):
            if part.name != "source":
                update_digest(digest, getattr(self, part.name))
        return digest.hexdigest()[:24]

    def counts(self) -> dict[str, int]:
        """How many samples each class has, or each label is true for."""
        number = torch.bincount(self.y, minlength=len(self.classes)) if self.y.ndim == 1 else self.y.sum(dim=0)
        return dict(zip(self.classes, number.tolist(), strict=True))

    def take(self, limit: int | None, seed: int = 0) -> Self:
        """A seeded choice of this many, round-robin over classes; those of a smaller limit are among them."""
        check_limit(limit)
        return self if limit is None else self[sorted(round_robin(self.y, seed)[:limit])]

    def split(self, *shares: float, seed: int = 0) -> tuple[Self, ...]:
        """Split into parts of these shares and the rest, in a seeded order; where samples have one class, each class by itself.

        Raises:
            InputError: where the shares do not lie between 0 and 1, or sum to more than 1.
        """
        if not shares or any(not 0 < share < 1 for share in shares) or sum(shares) > 1:
            raise InputError(f"shares must lie between 0 and 1 and sum to 1 at most, got {describe(shares)}")
        order = _order(len(self), seed)
        groups = [order] if self.y.ndim > 1 else [order[self.y[order] == c] for c in self.y.unique()] or [order]  # type: ignore[no-untyped-call]
        parts: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
        for group in groups:
            edges = [round(len(group) * sum(shares[:n])) for n in range(len(shares) + 1)] + [len(group)]
            for part, start, stop in zip(parts, edges, edges[1:], strict=False):
                part.append(group[start:stop])
        return tuple(self[torch.cat(part).sort().values] for part in parts)


def update_digest(digest: _Hash, value: Any) -> None:
    """Let a digest depend on a tensor, or on anything that shows what it holds."""
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        digest.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        digest.update(plain.numpy().data)
    else:
        digest.update(repr(value).encode())


def describe_source(source: str, skipped: Mapping[str, int], verb: str = "skipped:") -> str:
    """A source with what was skipped of it: how many, by the reason.

    >>> describe_source("TREC questions", {"duplicates": 71, "with two classes": 0})
    'TREC questions; skipped: 71 duplicates'
    """
    reasons = [
        f"{count:,} {why}" if why != "duplicates" else format_count(count, "duplicate")
        for why, count in skipped.items()
        if count
    ]
    return f"{source}; {verb} {', '.join(reasons)}" if reasons else source


def check_limit(limit: int | None, name: str = "limit") -> None:
    """Raise an InputError unless the limit is a count, or None for no limit."""
    if limit is not None:
        check_count(limit, name)


def _order(count: int, seed: int) -> Tensor:
    check_seed(seed)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed), device="cpu")


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
