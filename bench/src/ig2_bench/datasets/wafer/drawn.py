"""Wafer maps drawn after WM-811K: eight failure patterns and none, each with the exact mask of what was drawn.

The dies of a map lie on a grid of 25 dies or more a side, and are then enlarged to the size asked for, as the small maps of
WM-811K are. Dies fail here and there at a rate of the map's own, and at a higher one on its pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._utils.checks import check_count, is_count
from ig2.errors import InputError, describe
from ig2_bench.datasets.base import LabelledSamples

CLASSES = ("Center", "Donut", "Edge-Loc", "Edge-Ring", "Loc", "Near-full", "Random", "Scratch", "None")
OUTSIDE, PASSES, FAILS = 0, 1, 2
SMALLEST = 25  # dies a side: with fewer, rings and discs can no longer be distinguished

Numbers = NDArray[np.float64]
Region = NDArray[np.bool_]


def draw_maps(per_class: int, seed: int = 0, size: int = 56) -> LabelledSamples:
    """Draw wafer maps as codes (N, 1, size, size): 0 outside the wafer, 1 where a die passes, 2 where it fails.

    The masks are 1 on the pattern, failing dies and the few passing ones among them, 0 on the rest of the wafer and −1 outside.
    [None] and [Random] have no place to mark: their masks hold no 1. [Near-full] is marked where the failures are, on some
    maps everywhere. A larger `per_class` adds maps and keeps the others.

    Args:
        per_class: how many maps of each of the nine classes.
        seed: which maps.
        size: pixels a side, 25 or more.

    >>> samples = draw_maps(2)
    >>> samples.x.shape, samples.counts()["Donut"]
    (torch.Size([18, 1, 56, 56]), 2)
    >>> one_hot(samples.x).shape
    torch.Size([18, 3, 56, 56])
    """
    check_count(per_class, "per_class")
    if not is_count(size) or size < SMALLEST:
        raise InputError(f"size must be a whole number of pixels, {SMALLEST} or more, got {describe(size)}")
    maps_and_masks = [
        _draw(PATTERNS[name], size, np.random.default_rng((seed, label, number)))
        for label, name in enumerate(CLASSES)
        for number in range(per_class)
    ]
    codes, masks = (torch.from_numpy(np.stack(part)) for part in zip(*maps_and_masks, strict=True))
    return LabelledSamples(
        x=codes[:, None],
        y=torch.arange(len(CLASSES)).repeat_interleave(per_class),
        classes=CLASSES,
        names=tuple(f"{name} {number}" for name in CLASSES for number in range(per_class)),
        source=f"wafer maps drawn by ig2 after the patterns of WM-811K, {size}×{size}, seed {seed}, with exact masks",
        masks=masks,
    )


def one_hot(codes: Tensor) -> Tensor:
    """Codes (N, 1, H, W) as what the paper's network takes: floats (N, 3, H, W), outside, passing and failing."""
    if codes.ndim != 4 or codes.shape[1] != 1 or (codes.numel() and int(codes.max()) > FAILS):
        raise InputError(f"expected codes 0, 1 and 2 of the shape (N, 1, H, W), got {describe(codes)}")
    return (codes == torch.arange(3, device=codes.device)[:, None, None]).float()


@dataclass(frozen=True, eq=False)
class Dies:
    """Where the dies of a map are. The wafer is the disc of radius 1 around (0, 0)."""

    x: Numbers
    y: Numbers
    pitch: float
    """From one die to the next, the longer way."""

    @classmethod
    def grid(cls, rows: int, columns: int) -> Dies:
        y, x = np.meshgrid(*((np.arange(n) + 0.5) * 2 / n - 1 for n in (rows, columns)), indexing="ij")
        return cls(x, y, 2 / min(rows, columns))

    @property
    def radius(self) -> Numbers:
        return np.hypot(self.x, self.y)

    def blob(self, rng: np.random.Generator, cx: float, cy: float, size: float, longer: float = 1.5) -> Region:
        """An oval with an uneven outline, about `size` from its middle to its edge and up to `longer` times as long as wide."""
        turn, stretch = rng.uniform(0, np.pi), np.sqrt(rng.uniform(1, longer))
        u = ((self.x - cx) * np.cos(turn) + (self.y - cy) * np.sin(turn)) / stretch
        v = ((self.y - cy) * np.cos(turn) - (self.x - cx) * np.sin(turn)) * stretch
        return np.asarray(np.hypot(u, v) < size * _wobble(np.arctan2(v, u), rng))

    def sector(self, middle: float, half: float) -> Region:
        """The dies whose direction from the centre is `half` a turn's angle or less away from `middle`."""
        away = np.arctan2(self.y, self.x) - middle
        return np.asarray(np.abs(np.angle(np.exp(1j * away))) <= half)


def _wobble(angle: Numbers, rng: np.random.Generator) -> Numbers:
    """About 1, a little more in some directions and less in others."""
    waves = [rng.normal(0, 0.16 / k) * np.cos(k * angle + rng.uniform(0, 2 * np.pi)) for k in (2, 3, 4, 5)]
    return np.maximum(1 + sum(waves), 0.5)


def _centre(dies: Dies, rng: np.random.Generator) -> Region:
    cx, cy = rng.normal(0, 0.05, 2)
    return dies.blob(rng, cx, cy, rng.uniform(0.18, 0.42))


def _donut(dies: Dies, rng: np.random.Generator) -> Region:
    cx, cy = rng.normal(0, 0.08, 2)
    radius, half = rng.uniform(0.36, 0.58), rng.uniform(0.08, 0.2)
    away = np.hypot(dies.x - cx, dies.y - cy)
    ring = np.abs(away - radius * _wobble(np.arctan2(dies.y - cy, dies.x - cx), rng) ** 0.5) < max(half, dies.pitch)
    # now and then a part of the ring is missing
    gap = dies.sector(rng.uniform(-np.pi, np.pi), rng.uniform(0.2, 0.9)) & (rng.random() < 0.3)
    return np.asarray(ring & ~gap & (dies.radius < 0.9))


def _edge_loc(dies: Dies, rng: np.random.Generator) -> Region:
    middle = rng.uniform(-np.pi, np.pi)
    if rng.random() < 0.5:
        depth = max(rng.uniform(0.1, 0.3), 1.5 * dies.pitch)
        return dies.sector(middle, rng.uniform(0.25, 0.7)) & (dies.radius > 1 - depth)
    return dies.blob(rng, np.cos(middle), np.sin(middle), rng.uniform(0.25, 0.5))


def _edge_ring(dies: Dies, rng: np.random.Generator) -> Region:
    depth = max(rng.uniform(0.05, 0.2), 1.1 * dies.pitch)
    gap = dies.sector(rng.uniform(-np.pi, np.pi), rng.uniform(0.2, 0.8)) & (rng.random() < 0.4)
    return (dies.radius > 1 - depth) & ~gap


def _loc(dies: Dies, rng: np.random.Generator) -> Region:
    size = max(rng.uniform(0.14, 0.28), 2 * dies.pitch)
    away, direction = rng.uniform(0.3 + size / 2, 0.85 - size), rng.uniform(-np.pi, np.pi)
    return dies.blob(rng, away * np.cos(direction), away * np.sin(direction), size, longer=2.5) & (dies.radius < 0.93)


def _near_full(dies: Dies, rng: np.random.Generator) -> Region:
    if rng.random() < 0.4:
        return np.ones(dies.x.shape, dtype=bool)
    middle = rng.uniform(-np.pi, np.pi)
    spared = dies.blob(rng, 1.1 * np.cos(middle), 1.1 * np.sin(middle), rng.uniform(0.3, 0.6), longer=2)
    return ~spared


def _scratch(dies: Dies, rng: np.random.Generator) -> Region:
    """One to three arcs, one die wide or two; several run side by side, as the teeth of one tool leave them."""
    rows, columns = dies.x.shape
    region = np.zeros((rows, columns), dtype=bool)
    heading, bend, length = rng.uniform(-np.pi, np.pi), rng.normal(0, 1.2), rng.uniform(0.6, 1.5)
    away, direction = rng.uniform(0, 0.6), rng.uniform(-np.pi, np.pi)
    cx, cy = away * np.cos(direction), away * np.sin(direction)
    wide = rng.random() < 0.2
    for _ in range(rng.choice((1, 2, 3), p=(0.65, 0.25, 0.1))):
        along = np.arange(-length / 2, length / 2, dies.pitch / 8)
        angle = heading + bend * along
        x, y = (np.cumsum(part(angle)) * dies.pitch / 8 for part in (np.cos, np.sin))
        x, y = x - x[len(x) // 2] + cx, y - y[len(y) // 2] + cy
        for shift in (0.0, dies.pitch) if wide else (0.0,):
            row, column = ((y + shift) + 1) * rows / 2, (x + 1) * columns / 2
            on = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            region[row[on].astype(int), column[on].astype(int)] = True
        cx, cy = cx + rng.uniform(0.15, 0.35) * np.sin(heading), cy - rng.uniform(0.15, 0.35) * np.cos(heading)
        length, heading = length * rng.uniform(0.6, 1), heading + rng.normal(0, 0.1)
    return region


def _nowhere(dies: Dies, rng: np.random.Generator) -> Region:
    return np.zeros(dies.x.shape, dtype=bool)


@dataclass(frozen=True)
class Pattern:
    """How maps of a class come about: where the pattern is, and how many dies fail on it and beside it."""

    region: Callable[[Dies, np.random.Generator], Region]
    within: tuple[float, float] = (0.6, 1.0)
    beside: tuple[float, float] = (0.01, 0.2)


PATTERNS = {
    "Center": Pattern(_centre),
    "Donut": Pattern(_donut),
    "Edge-Loc": Pattern(_edge_loc),
    "Edge-Ring": Pattern(_edge_ring),
    "Loc": Pattern(_loc),
    "Near-full": Pattern(_near_full, within=(0.8, 1.0), beside=(0.15, 0.4)),
    "Random": Pattern(_nowhere, beside=(0.3, 0.6)),
    "Scratch": Pattern(_scratch, within=(0.85, 1.0), beside=(0.005, 0.12)),
    "None": Pattern(_nowhere),
}


def _draw(pattern: Pattern, size: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """One map and its mask, (size, size)."""
    rows = int(rng.integers(SMALLEST, size, endpoint=True))
    columns = int(np.clip(round(rows * rng.uniform(0.85, 1.18)), SMALLEST, size))
    dies = Dies.grid(rows, columns)
    wafer = dies.radius <= 1
    region = pattern.region(dies, rng) & wafer
    fails = rng.random(wafer.shape) < np.where(region, rng.uniform(*pattern.within), rng.uniform(*pattern.beside))
    code = np.where(wafer, np.where(fails, FAILS, PASSES), OUTSIDE).astype(np.uint8)
    mask = np.where(wafer, region.astype(np.int8), np.int8(-1))
    row, column = ((np.arange(size) * n // size) for n in (rows, columns))
    return code[np.ix_(row, column)], mask[np.ix_(row, column)]
