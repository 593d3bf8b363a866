"""What counts as one feature when attributions are ranked: a pixel, a word, or each number of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ig2._engine.task import Task
from ig2._utils.checks import require
from ig2.errors import InputError, describe
from ig2.groups import Groups, count_groups, number_groups

FeatureOption = Literal["auto", "pixel", "word", "element"]
Sign = Literal["keep", "positive", "absolute"]


@dataclass(frozen=True)
class Features:
    """How a sample's numbers make up its M features: those along some axes are one feature."""

    shape: tuple[int, ...]  # of a sample, with 1 where an axis is summed
    labels: Tensor | None = None  # the feature that each number of an explicand is of, (B, numbers), where these are groups

    @classmethod
    def of(cls, option: FeatureOption, sample: torch.Size) -> Features:
        """The features of samples of this shape.

        >>> Features.of("auto", torch.Size([3, 8, 8])).shape
        (1, 8, 8)

        Args:
            option: "pixel": images (C, H, W), all channels of a pixel together. "word": texts (length, embedding), each
                word's numbers together. "element": each number alone. "auto": "pixel" for three axes, "element" for one.
            sample: the shape of a sample.

        Raises:
            InputError: the option is unknown, or does not suit the shape.
        """
        if option not in ("auto", "pixel", "word", "element"):
            raise InputError(f"features={describe(option)}: use 'auto', 'pixel', 'word' or 'element'")
        axes = len(sample)
        if option == "auto" and axes == 2:
            raise InputError(
                f"samples of shape {tuple(sample)} may be words by embedding or a grey picture: say features='word' or "
                "features='element'"
            )
        if option == "pixel" and axes != 3:
            raise InputError(f"features='pixel' takes images (C, H, W), these samples are {tuple(sample)}")
        if option == "word" and axes != 2:
            raise InputError(f"features='word' takes texts (length, embedding), these samples are {tuple(sample)}")
        if option == "word":
            return cls((sample[0], 1))
        return cls((1, *sample[1:]) if axes == 3 and option != "element" else tuple(sample))

    @classmethod
    def grouped(cls, groups: Groups | Tensor, task: Task) -> Features:
        """Groups of a task's samples as features; where explicands have different numbers of them, M is the largest."""
        return cls(tuple(task.x.shape[1:]), count_groups(number_groups(groups, task, "features")))

    def __len__(self) -> int:
        return math.prod(self.shape) if self.labels is None else int(self.labels.max()) + 1

    def pool(self, values: Tensor) -> Tensor:
        """Attributions (B, ...) summed to one number a feature, (B, M)."""
        if self.labels is not None:
            sums = values.new_zeros(len(values), len(self))
            return sums.scatter_add(1, self.labels.to(values.device), values.flatten(1))
        axes = [axis + 1 for axis, size in enumerate(self.shape) if size != values.shape[axis + 1]]
        return (values.sum(dim=axes, keepdim=True) if axes else values).flatten(1)

    def group_movable(self, moves: Tensor | None, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The explicands by how many of their features may move: their rows (n,), and the indices of those features (n, m).

        Args:
            moves: booleans (B, ...) for the numbers of each explicand, or None where all may move.
            values: attributions of the features, (B, M).
        """
        if moves is None and self.labels is None:
            rows = torch.arange(len(values), device=values.device)
            yield rows, torch.arange(len(self), device=values.device).expand(len(rows), -1)
            return
        free = values.new_ones(len(values), *self.shape) if moves is None else moves.to(values)
        movable = self.pool(free) > 0
        counts = movable.sum(dim=1)
        for count in sorted(set(counts.tolist())):
            rows = (counts == count).nonzero()[:, 0]
            yield rows, movable[rows].nonzero()[:, 1].view(len(rows), count)

    def spread(self, ranks: Tensor, rows: Tensor) -> Tensor:
        """Numbers for the features of some explicands, (n, M), as one for each of what a point is made of, (n, places)."""
        return ranks if self.labels is None else ranks.gather(1, self.labels[rows])


def apply_sign(values: Tensor, sign: Sign) -> Tensor:
    """Attributions as they are ("keep"), with the negative ones at zero ("positive"), or their sizes ("absolute")."""
    require(sign in ("keep", "positive", "absolute"), "sign", sign, "'keep', 'positive' or 'absolute'")
    return values if sign == "keep" else values.clamp(min=0) if sign == "positive" else values.abs()
