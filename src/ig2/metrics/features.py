"""What counts as one feature when attributions are ranked: a pixel, a word, or each number of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ig2._utils.checks import require
from ig2.errors import InputError, describe

FeatureOption = Literal["auto", "pixel", "word", "element"]
Sign = Literal["keep", "positive", "absolute"]


@dataclass(frozen=True)
class Features:
    """How a sample's numbers make up its M features: those along some axes are one feature."""

    shape: tuple[int, ...]  # of a sample, with 1 where an axis is summed

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

    def __len__(self) -> int:
        return math.prod(self.shape)

    def pool(self, values: Tensor) -> Tensor:
        """Attributions (B, ...) summed to one number a feature, (B, M)."""
        axes = [axis + 1 for axis, size in enumerate(self.shape) if size != values.shape[axis + 1]]
        return (values.sum(dim=axes, keepdim=True) if axes else values).flatten(1)

    def group_movable(self, moves: Tensor | None, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The explicands by how many of their features may move: their rows (n,), and the indices of those features (n, m).

        Args:
            moves: booleans (B, ...) for the numbers of each explicand, or None where all may move.
            values: attributions of the features, (B, M).
        """
        if moves is None:
            rows = torch.arange(len(values), device=values.device)
            yield rows, torch.arange(len(self), device=values.device).expand(len(rows), -1)
            return
        movable = self.pool(moves.to(values)) > 0
        counts = movable.sum(dim=1)
        for count in sorted(set(counts.tolist())):
            rows = (counts == count).nonzero()[:, 0]
            yield rows, movable[rows].nonzero()[:, 1].view(len(rows), count)


def apply_sign(values: Tensor, sign: Sign) -> Tensor:
    """Attributions as they are ("keep"), with the negative ones at zero ("positive"), or their sizes ("absolute")."""
    require(sign in ("keep", "positive", "absolute"), "sign", sign, "'keep', 'positive' or 'absolute'")
    return values if sign == "keep" else values.clamp(min=0) if sign == "positive" else values.abs()
