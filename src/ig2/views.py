"""Views: how an explanation is shown. What draws one knows these four, and never what kind of data it is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ig2.errors import InputError, describe

Image = NDArray[np.uint8]  # (H, W, 3)
Numbers = NDArray[np.float64]
MOST_BINS = 1000  # of a curve along time: more than a wide page has pixels for


@dataclass(frozen=True, eq=False)
class View(ABC):
    """What an input looks like; the scores that are drawn on it come beside it, one or several arrays of them."""

    name: ClassVar[str]
    part: ClassVar[str]
    """What one number belongs to."""

    @abstractmethod
    def expect(self, scores: Numbers) -> tuple[int, ...]:
        """Return the shape that scores must have, where these are the first of them.

        Raises:
            InputError: if the view itself cannot be shown.
        """

    def name_parts(self) -> tuple[str, ...]:
        """Return a name for each number; empty where they have places instead."""
        return ()


@dataclass(frozen=True, eq=False)
class Picture(View):
    """An image under its map, (H, W) scores of any size."""

    name = "picture"
    part = "pixel"
    pixels: Image | None = None
    """None where the image is not at hand: the map is then shown alone."""

    def expect(self, scores: Numbers) -> tuple[int, ...]:
        pixels = self.pixels
        if pixels is not None and (pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size):
            raise InputError(f"the picture is {describe(pixels)}: expected uint8 (H, W, 3)")
        if scores.ndim != 2 or not scores.size:
            raise InputError(f"the scores of a picture are {describe(scores)}: expected (H, W)")
        return scores.shape


@dataclass(frozen=True, eq=False)
class Words(View):
    """A text, with a score for each word."""

    name = "words"
    part = "word"
    words: tuple[str, ...] = ()

    def expect(self, scores: Numbers) -> tuple[int, ...]:
        if not self.words:
            raise InputError("there are no words to show")
        return (len(self.words),)

    def name_parts(self) -> tuple[str, ...]:
        return self.words


@dataclass(frozen=True, eq=False)
class Bars(View):
    """A list of columns with the contents of their cells, and a score for each."""

    name = "bars"
    part = "column"
    columns: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()

    def expect(self, scores: Numbers) -> tuple[int, ...]:
        if not self.columns:
            raise InputError("there are no columns to show")
        if len(self.cells) not in (0, len(self.columns)):
            raise InputError(f"there are {len(self.cells)} cells for {len(self.columns)} columns")
        return (len(self.columns),)

    def name_parts(self) -> tuple[str, ...]:
        return self.columns


@dataclass(frozen=True, eq=False)
class Curve(View):
    """Channels over time, in intervals of equal length, with a score for each interval of each channel, (C, intervals).

    >>> curve = Curve.bin(np.arange(6.0)[None], ("lead",), rate=2.0, most=3)
    >>> curve.lowest.tolist(), curve.highest.tolist(), curve.seconds
    ([[0.0, 2.0, 4.0]], [[1.0, 3.0, 5.0]], 3.0)
    """

    name = "curve"
    part = "moment"
    channels: tuple[str, ...] = ()
    steps: int = 0
    """The time steps of the whole signal."""
    rate: float | None = None
    """Time steps per second."""
    lowest: Numbers | None = None
    """The lowest value in each interval, (C, intervals); None where the signal is not at hand."""
    highest: Numbers | None = None

    @property
    def seconds(self) -> float | None:
        """How long the signal is; None without a rate."""
        return None if self.rate is None else self.steps / self.rate

    def name_moment(self, channel: int, interval: int, intervals: int) -> str:
        """Return the name of an interval of a channel, if the signal is divided into so many.

        >>> Curve(("left", "right"), 100, 50.0).name_moment(1, 0, 4)
        'right, 0–0.5 s'
        """
        edges = (place * self.steps // intervals for place in (interval, interval + 1))
        first, last = (edge / (self.rate or 1) for edge in edges)
        lead = f"{self.channels[channel]}, " if len(self.channels) > 1 else ""
        return f"{lead}{first:.4g}–{last:.4g}{' s' if self.rate else ''}"

    def expect(self, scores: Numbers) -> tuple[int, ...]:
        if scores.ndim != 2 or not scores.size or len(scores) != len(self.channels):
            expected = f"({len(self.channels)}, intervals of time)"
            raise InputError(f"the scores of a signal are {describe(scores)}: expected {expected}")
        for series in (self.lowest, self.highest):
            if series is not None and series.shape != scores.shape:
                raise InputError(f"the curve is {describe(series)} and its scores {scores.shape}")
        return scores.shape

    @classmethod
    def bin(cls, series: NDArray[Any], channels: tuple[str, ...], rate: float | None = None, most: int = MOST_BINS) -> Curve:
        """Return the view of a signal (C, T), in at most this many intervals."""
        edges = find_edges(series.shape[1], most)
        lowest, highest = (cut.reduceat(series, edges, axis=1) for cut in (np.minimum, np.maximum))
        return cls(channels, series.shape[1], rate, lowest.astype(float), highest.astype(float))


def find_edges(steps: int, most: int) -> NDArray[np.intp]:
    """Return where each of at most `most` intervals of about equal length begins."""
    count = min(steps, most)
    edges: NDArray[np.intp] = np.arange(count) * steps // count
    return edges


def sum_bins(series: NDArray[Any], most: int = MOST_BINS) -> Numbers:
    """Sum series (C, T) over the intervals of a curve, (C, intervals); the total is preserved.

    >>> sum_bins(np.ones((1, 5)), 2)
    array([[2., 3.]])
    """
    sums: Numbers = np.add.reduceat(series.astype(np.float64), find_edges(series.shape[1], most), axis=1)
    return sums


def pool(scores: Numbers, rows: int, columns: int) -> Numbers:
    """Return the sums of a map over a grid of at most `rows` × `columns` fields; the total is preserved.

    >>> pool(np.ones((4, 6)), 2, 3)
    array([[4., 4., 4.],
           [4., 4., 4.]])
    """
    for axis, most in ((0, rows), (1, columns)):
        if scores.shape[axis] > most:
            scores = np.add.reduceat(scores, find_edges(scores.shape[axis], most), axis=axis)
    return scores
