"""Straight lines, with vertices equally spaced or dense where the output changes fast, and user-defined polylines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ig2._engine.explicands import check_numeric
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs, Path, PreparedPath
from ig2.task import Task


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


def outputs_on_lines(task: Task, references: Tensor, steps: int) -> Tensor:
    """Return the output at equally spaced points of the lines from references to explicands, (B, R, steps + 1).

    Args:
        task: the call.
        references: the references of each sample, (B, R, ...).
        steps: the number of segments.
    """
    every = torch.arange(len(task), device=task.x.device)
    at_once = max(1, task.batch.points // len(task))
    curves = []
    for reference in references.unbind(dim=1):
        start, pieces = reference.to(task.x), []
        for numbers in torch.split(torch.arange(steps + 1, device="cpu"), at_once):
            share = (numbers.double() / steps).to(task.x).reshape(-1, *[1] * task.x.ndim)
            points = torch.lerp(start[None], task.x[None], share).flatten(0, 1)
            pieces.append(task.outputs(points, every.repeat(len(numbers))).view(len(numbers), len(task)))
        curves.append(torch.cat(pieces).T)
    return torch.stack(curves, dim=1)


@dataclass(frozen=True)
class Adaptive(Path):
    """The straight line to the reference, with dense vertices where the output changes fast, as in IDG [Walker 2024].

    A first pass evaluates the output at `steps` + 1 equally spaced points α. On each piece the slope (fᵢ₊₁ − fᵢ)/Δα, minus the
    smallest and divided by the largest, is the density of the vertices of the second pass. If all slopes are equal, so is the
    spacing. The published code rounds the number of vertices in each piece and does not advance where it is zero, so that
    later vertices lie too near the baseline; here the vertices are the quantiles of the density.

    Args:
        steps: the number of segments, also of the first pass.
    """

    steps: int = 50

    def prepare(self, task: Task, references: Tensor) -> KnownPath:
        slopes = outputs_on_lines(task, references, self.steps).double().diff(dim=2).flatten(0, 1)
        density = slopes - slopes.amin(dim=1, keepdim=True)
        density = torch.where(density.amax(dim=1, keepdim=True) > 0, density, 1.0)
        edges = nn.functional.pad(density.cumsum(dim=1) / density.sum(dim=1, keepdim=True), (1, 0))
        wanted = torch.linspace(0, 1, self.steps + 1, dtype=edges.dtype, device=edges.device)[1:-1].expand(len(edges), -1)
        piece = torch.searchsorted(edges, wanted.contiguous(), right=True).clamp(1, self.steps) - 1
        low, high = edges.gather(1, piece), edges.gather(1, piece + 1)
        places = (piece + (wanted - low) / (high - low)) / self.steps
        places = 1 - nn.functional.pad(nn.functional.pad(places, (1, 0)), (0, 1), value=1.0).flip(1)  # from the explicand

        def draw(pairs: Pairs, numbers: range) -> Tensor:
            assert pairs.numbers is not None
            each = places[pairs.numbers][:, numbers.start : numbers.stop].T
            share = each.to(pairs.explicand).reshape(*each.shape, *[1] * (pairs.explicand.ndim - 1))
            return torch.lerp(pairs.explicand.unsqueeze(0), pairs.reference.unsqueeze(0), share)

        return PreparedPath(self.steps, draw)


@dataclass(frozen=True, eq=False)
class Polyline(KnownPath):
    """A path defined by its vertices after the explicand, the last of which is the baseline.

    Args:
        points: the vertices: (k, ...), the same for every explicand, or (B, k, ...) with `per_explicand`.
        per_explicand: whether each explicand has its own vertices.

    Raises:
        InputError: if points has the wrong number of axes, or does not fit x.
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
