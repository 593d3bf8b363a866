"""The features that are ranked by their attributions: pixels, words, or the single numbers of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ig2._utils.checks import check_choice
from ig2.errors import InputError
from ig2.groups import Groups, count_groups, number_groups
from ig2.task import Task

FeatureOption = Literal["auto", "pixel", "word", "element"]
Sign = Literal["keep", "positive", "absolute"]


@dataclass(frozen=True)
class Features:
    """The division of a sample's numbers into M features: the numbers along some axes form one feature."""

    shape: tuple[int, ...]  # of a sample, with 1 where an axis is summed
    labels: Tensor | None = None  # the feature that each number of an explicand is of, (B, numbers), where these are groups

    @classmethod
    def of(cls, option: FeatureOption, sample: torch.Size) -> Features:
        """Return the features of samples of this shape.

        >>> Features.of("auto", torch.Size([3, 8, 8])).shape
        (1, 8, 8)

        Args:
            option: "pixel": all channels of each pixel of an image (C, H, W). "word": all numbers of each word of a text
                (length, embedding). "element": each number. "auto": "pixel" for three axes, "element" for one.
            sample: the shape of a sample.

        Raises:
            InputError: if the option is unknown, or does not suit the shape.
        """
        check_choice(option, FeatureOption, "features")
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
        """Return the groups of a task's samples as features; if explicands have different numbers of them, M is the largest."""
        return cls(tuple(task.x.shape[1:]), count_groups(number_groups(groups, task, "features")))

    def __len__(self) -> int:
        return math.prod(self.shape) if self.labels is None else int(self.labels.max()) + 1

    def pool(self, values: Tensor) -> Tensor:
        """Sum attributions (B, ...) to one number for each feature, (B, M)."""
        if self.labels is not None:
            sums = values.new_zeros(len(values), len(self))
            return sums.scatter_add(1, self.labels.to(values.device), values.flatten(1))
        axes = [axis + 1 for axis, size in enumerate(self.shape) if size != values.shape[axis + 1]]
        return (values.sum(dim=axes, keepdim=True) if axes else values).flatten(1)

    def group_movable(self, moves: Tensor | None, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Group the explicands by the number of features that may change.

        Args:
            moves: which numbers of each explicand may change, booleans (B, ...), or None if all may.
            values: attributions of the features, (B, M).

        Yields:
            The rows of a group (n,), and the indices of their features that may change (n, m).
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
        """Expand numbers for the features of some explicands, (n, M), to one for each number of a grouped sample, (n, size)."""
        return ranks if self.labels is None else ranks.gather(1, self.labels[rows])


def apply_sign(values: Tensor, sign: Sign) -> Tensor:
    """Return attributions unchanged ("keep"), with negative ones set to zero ("positive"), or in absolute value ("absolute").

    Raises:
        InputError: if the sign is unknown.
    """
    check_choice(sign, Sign, "sign")
    return values if sign == "keep" else values.clamp(min=0) if sign == "positive" else values.abs()
