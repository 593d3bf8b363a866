"""Paths that know nothing of the network: the straight line, and any polyline the user gives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._engine.inputs import check_numeric
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs


@dataclass(frozen=True)
class Straight(KnownPath):
    """The straight line to the reference, γ(t) = x + t·(x′ − x), in `steps` equal segments [Sundararajan 2017].

    Args:
        steps: the number of segments.
    """

    steps: int = 50

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        share = torch.tensor([t / self.steps for t in numbers], dtype=pairs.explicand.dtype, device=pairs.explicand.device)
        share = share.reshape(-1, *[1] * pairs.explicand.ndim)
        # lerp is exact at both ends, so the path begins at the explicand and ends at the reference to the last bit
        return torch.lerp(pairs.explicand.unsqueeze(0), pairs.reference.unsqueeze(0), share)


@dataclass(frozen=True, eq=False)
class Polyline(KnownPath):
    """A path given by its vertices after the explicand, the last of which is the baseline.

    Args:
        points: (k, ...), the same vertices for every explicand, or (B, k, ...) with `per_explicand`.
        per_explicand: whether each explicand has its own line.
    """

    points: Tensor
    per_explicand: bool = False
    uses_reference = False

    def __post_init__(self) -> None:
        check_numeric(self.points, "the polyline's points")
        if self.points.ndim < 2 + self.per_explicand or self.segments < 1:
            raise InputError(f"a polyline needs points (k, ...) or (B, k, ...), k at least 1, got {describe(self.points)}")

    @property
    def segments(self) -> int:
        return self.points.shape[int(self.per_explicand)]

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        explicand = pairs.explicand
        points = self.points.to(explicand)
        if points.shape[1 + self.per_explicand :] != explicand.shape[1:]:
            raise InputError(f"the polyline's points are {describe(self.points)}, a sample is {tuple(explicand.shape[1:])}")
        if self.per_explicand and len(points) <= int(pairs.rows.max()):
            raise InputError(f"the polyline has lines for {len(points)} explicands, and there are more: give one for each")
        lines = points[pairs.rows] if self.per_explicand else points.expand(len(pairs), *points.shape)  # (n, k, ...)
        return torch.stack([explicand if t == 0 else lines[:, t - 1] for t in numbers])
