"""A rule that marks the failure pattern on a wafer map, for maps that nobody marked by hand.

The share of failing dies is smoothed. Where it is more than about halfway from what the map has elsewhere (the median) to what
it has on its densest spots (the 99th percentile), there is a pattern; what the class says of its shape decides which of these
places count. On drawn maps the exact mask is known; the intersection over union with it, mean over 200 maps of each class:

    Center .86   Donut .82   Edge-Loc .86   Edge-Ring .77   Loc .79   Near-full .99   Scratch .77
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ig2.errors import InputError, describe
from ig2_bench.datasets.wafer.drawn import CLASSES, FAILS, OUTSIDE

BATCH = 256
HALFWAY = 0.45  # a little below the middle: the smoothed edge of a pattern is wider than the pattern's shoulder is high


@dataclass(frozen=True)
class Shape:
    """What a pattern of a class looks like, in radii of the wafer.

    Args:
        zone: it lies between these radii.
        reaches: a part of it lies between these.
        peak: how dense it is: this quantile of the smoothed failing share in its zone. Lower for what fills its zone.
        parts: pieces of at least this share of the largest belong to it.
    """

    zone: tuple[float, float] = (0, 2)
    reaches: tuple[float, float] = (0, 2)
    peak: float = 0.99
    parts: float = 0.5


SHAPES = {
    "Center": Shape(zone=(0, 0.7), reaches=(0, 0.3), parts=1),
    "Donut": Shape(zone=(0, 0.92), parts=0.3),
    "Edge-Loc": Shape(reaches=(0.9, 2)),
    "Edge-Ring": Shape(zone=(0.72, 2), reaches=(0.9, 2), peak=0.95, parts=0.15),
    "Loc": Shape(zone=(0, 0.97)),
}


def mark(codes: Tensor, y: Tensor, classes: Sequence[str] = CLASSES) -> Tensor:
    """Masks (N, H, W) as int8 for maps of known class: 1 on the pattern, 0 on the rest of the wafer, −1 outside it.

    - Center, Donut, Edge-Loc, Edge-Ring, Loc: places of high density that lie where the class says, and of them the large ones.
    - Near-full: where more than half of the dies fail. Random and None: nothing.
    - Scratch: failing dies on a line, straight over about a fifth of the wafer, with clearly more failures than lie around it;
      of the lines they join to, the long ones.

    Args:
        codes: wafer maps (N, 1, H, W), 0 outside, 1 passing, 2 failing.
        y: their classes (N,).
        classes: the names of the classes, those of WM-811K.
    """
    if codes.ndim != 4 or codes.shape[1] != 1 or codes.shape[2] != codes.shape[3] or len(y) != len(codes):
        raise InputError(f"expected square maps (N, 1, H, H) and a class for each, got {describe(codes)} and {describe(y)}")
    if unknown := sorted(set(classes) - set(CLASSES)):
        raise InputError(f"classes {unknown} are not known: use those of WM-811K, {', '.join(CLASSES)}")
    masks = torch.zeros(codes.shape[0], *codes.shape[2:], dtype=torch.int8)
    for label, name in enumerate(classes):
        numbers = (y == label).nonzero()[:, 0]
        for start in range(0, len(numbers), BATCH):
            rows = numbers[start : start + BATCH]
            masks[rows] = _mark_class(name, codes[rows, 0]).to(torch.int8)
    return masks.masked_fill(codes[:, 0] == OUTSIDE, -1)


def _mark_class(name: str, codes: Tensor) -> Tensor:
    wafer, fails = (codes != OUTSIDE).float(), (codes == FAILS).float()
    die = codes.shape[-1] / 56  # the widths below are meant for maps of 56 × 56
    if name == "Near-full":
        return (_share(fails, wafer, 2 * die) > 0.5) & wafer.bool()
    if name == "Scratch":
        return _lines(fails, wafer, die)
    if name not in SHAPES:
        return torch.zeros_like(wafer, dtype=torch.bool)
    shape = SHAPES[name]
    axis = (torch.arange(codes.shape[-1]) + 0.5) * 2 / codes.shape[-1] - 1
    radius = torch.hypot(axis[:, None], axis[None])
    share = _share(fails, wafer, 1.5 * die)
    zone = (radius >= shape.zone[0]) & (radius <= shape.zone[1]) & wafer.bool()
    elsewhere, densest = _quantile(share, wafer.bool(), 0.5), _quantile(share, zone, shape.peak)
    places = pieces((share > elsewhere + HALFWAY * (densest - elsewhere)) & zone)
    reached = (radius >= shape.reaches[0]) & (radius <= shape.reaches[1])
    size = _count(places, torch.ones_like(places)) * (_count(places, reached.expand_as(places)) > 0)
    return _chosen(places, (size > 0) & (size >= shape.parts * size.amax(dim=1, keepdim=True)))


def _lines(fails: Tensor, wafer: Tensor, die: float) -> Tensor:
    """The failing dies that lie on lines."""
    kernels = _strokes(2 * round(5.5 * die - 0.5) + 1)
    around = kernels.shape[-1] // 2
    on = functional.conv2d(fails[:, None], kernels, padding=around)
    there = functional.conv2d(wafer[:, None], kernels, padding=around)
    along = (on / there.clamp(min=0.3)).amax(dim=1)  # a line may begin at the rim, and not where a corner of it is left
    places = pieces((along - _share(fails, wafer, 4 * die) > 0.25) & fails.bool(), corners=True)
    size = _count(places, torch.ones_like(places))
    largest = size.amax(dim=1, keepdim=True)
    # nine dies make a line; where there is none, what comes nearest
    return _chosen(places, (size > 0) & (size >= torch.minimum(largest, (0.25 * largest).clamp(min=9 * die))))


def _strokes(length: int, directions: int = 16) -> Tensor:
    """Lines of one die's width through the middle, each summing to 1, (directions, 1, length, length)."""
    axis = torch.arange(length) - length // 2.0
    turn = torch.arange(directions)[:, None, None] * math.pi / directions
    along = axis * turn.cos() + axis[:, None] * turn.sin()
    across = axis[:, None] * turn.cos() - axis * turn.sin()
    strokes = (1 - across.abs()).clamp(min=0) * (along.abs() < length / 2)
    return (strokes / strokes.sum(dim=(1, 2), keepdim=True))[:, None]


def _share(fails: Tensor, wafer: Tensor, sigma: float) -> Tensor:
    """The share of failing dies around each, weighted by a Gaussian."""
    reach = math.ceil(3 * sigma)
    weights = torch.exp(-((torch.arange(-reach, reach + 1) / sigma) ** 2) / 2)
    both = torch.stack([fails, wafer]).flatten(0, 1)[:, None]
    both = functional.conv2d(both, weights[None, None, :, None], padding=(reach, 0))
    both = functional.conv2d(both, weights[None, None, None], padding=(0, reach)).view(2, *fails.shape)
    return both[0] / both[1].clamp(min=1e-6) * wafer


def _quantile(values: Tensor, where: Tensor, q: float) -> Tensor:
    quantile: Tensor = torch.where(where, values, torch.nan).flatten(1).nanquantile(q, dim=1).nan_to_num()
    return quantile[:, None, None]


def pieces(mask: Tensor, corners: bool = False) -> Tensor:
    """Connected pieces of masks (N, H, W), each with a number of its own, and 0 elsewhere.

    Args:
        mask: boolean masks.
        corners: whether places that touch at a corner alone are connected.
    """
    height, width = mask.shape[1:]
    steps = [(1, 0), (1, 2), (0, 1), (2, 1)] + ([(0, 0), (0, 2), (2, 0), (2, 2)] if corners else [])
    number = torch.arange(1, height * width + 1, dtype=torch.int32).view(height, width) * mask
    # the largest number of each piece spreads through it: in each round to the neighbours, and to all who had it from there
    while True:
        framed, spread = functional.pad(number, (1, 1, 1, 1)), number
        for down, right in steps:
            spread = torch.maximum(spread, framed[:, down : down + height, right : right + width])
        known = functional.pad((spread * mask).flatten(1), (1, 0))
        spread = known.gather(1, known.long())[:, 1:].view(mask.shape)
        if torch.equal(spread, number):
            return number.long()
        number = spread


def _count(places: Tensor, what: Tensor) -> Tensor:
    """How many places of each piece have it, by the piece's number; 0 for what is no piece, (N, H·W + 1)."""
    counts = torch.zeros(len(places), places[0].numel() + 1)
    counts.scatter_add_(1, places.flatten(1), what.flatten(1).float())
    counts[:, 0] = 0
    return counts


def _chosen(places: Tensor, pieces: Tensor) -> Tensor:
    return pieces.gather(1, places.flatten(1)).view(places.shape)
