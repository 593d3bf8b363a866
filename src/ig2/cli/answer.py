"""The answer on a terminal: words in colour, the strongest columns, a small picture."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text
from torch.nn.functional import adaptive_avg_pool2d

from ig2._utils.blur import blur
from ig2.cli.output import INDENT, print_line
from ig2.cli.streams import one_line
from ig2.plots.canvas import AGAINST, FOR
from ig2.report import InputView
from ig2.views import Bars, Curve, Picture, Words, sum_bins

STRONGEST = 5
MOMENTS = 20  # that a signal is divided into
FAINT = 0.1  # of the strongest score: a word below it has no colour
DARK = 0.6  # of it: letters are white on stronger colours
WIDEST = 32  # columns of a picture; two of them and a label fit into 80

Pixels = NDArray[np.float64]  # (H, W, 3), from 0 to 1


def print_answer(console: Console, view: InputView, width: int, scale: float = 0.0) -> None:
    """Print what the first method found: red speaks for the class explained, blue against it.

    Args:
        console: pictures and colours are for terminals; other readers get words and columns as text.
        view: the input.
        width: of the labels before it.
        scale: the pixels that a map is blurred by.
    """
    scores = view.methods[0].scores
    in_colour = console.is_terminal and not console.no_color and console.color_system in ("256", "truecolor")
    shown = view.view
    if isinstance(shown, Picture):
        if in_colour and shown.pixels is not None and console.encoding.startswith("utf"):
            _print_picture(console, shown.pixels / 255, blur(torch.from_numpy(scores), scale).numpy(), width)
    elif isinstance(shown, Words) and in_colour:
        table = Table.grid()
        table.add_row(Text(" " * INDENT + f"{'words':<{width}}", "dim"), _colour_words(shown.words, scores))
        console.print(table)
    else:
        names, known = shown.name_parts(), shown.cells if isinstance(shown, Bars) else ()
        if isinstance(shown, Curve):
            sums = sum_bins(scores, MOMENTS)
            names = tuple(shown.name_moment(i, j, sums.shape[1]) for i in range(len(sums)) for j in range(sums.shape[1]))
            scores = sums.reshape(-1)
        strongest = np.argsort(-np.abs(scores), kind="stable")[:STRONGEST]
        units = [one_line(names[i]) for i in strongest]
        cells = [f"  {one_line(known[i]):>8}" if known else "" for i in strongest]
        longest = max(map(len, units))
        for number, (i, unit, cell) in enumerate(zip(strongest, units, cells, strict=True)):
            print_line(console, "" if number else "strongest", f"{unit:<{longest}}{cell}  {scores[i]:+.3g}", width, fold=False)


def _colour_words(words: tuple[str, ...], scores: Pixels) -> Text:
    text = Text()
    for word, shade in zip(words, _scale(scores), strict=True):
        ink = "white" if abs(shade) > DARK else "black"
        style = Style(color=ink, bgcolor=_hex(_blend(np.ones(3), shade))) if abs(shade) >= FAINT else Style()
        text.append(one_line(word), style).append(" ")
    return text


def _print_picture(console: Console, picture: Pixels, scores: Pixels, width: int) -> None:
    """Print the input and, beside it, the map over the input in grey: two pixels to a letter."""
    columns = min(WIDEST, (console.width - INDENT - width - 1) // 2)
    if columns < 8:
        return
    rows = max(2, round(columns * picture.shape[0] / picture.shape[1] / 2) * 2)
    small, shades = _shrink(picture, rows, columns), _scale(_shrink(scores[..., None], rows, columns)[..., 0])
    grey = np.repeat(small.mean(axis=2, keepdims=True), 3, axis=2)
    pixels = np.concatenate([small, np.full((rows, 1, 3), np.nan), _blend(grey, shades[..., None])], axis=1)
    segments = []
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        for top, bottom in zip(upper, lower, strict=True):
            gap = np.isnan(top).any()
            segments.append(Segment(" ") if gap else Segment("▀", Style(color=_hex(top), bgcolor=_hex(bottom))))
        segments.append(Segment.line())
    console.print(Padding(Segments(segments), (0, 0, 0, INDENT + width)), end="")


def _shrink(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Return the means over (rows, columns) fields of an array (H, W, channels)."""
    means: Pixels = adaptive_avg_pool2d(torch.from_numpy(pixels).permute(2, 0, 1), (rows, columns)).permute(1, 2, 0).numpy()
    return means


def _scale(scores: Pixels) -> Pixels:
    """Return scores divided by the largest absolute one."""
    return scores / max(float(np.abs(scores).max()), 1e-300)


def _blend(ground: Pixels, shade: Pixels) -> Pixels:
    """Return the ground under red where the shade, from -1 to 1, is positive, and under blue where it is negative."""
    blended: Pixels = ground * (1 - np.abs(shade)) + np.abs(shade) * np.where(shade > 0, to_rgb(FOR), to_rgb(AGAINST))
    return blended


def _hex(colour: Pixels) -> str:
    return "#" + "".join(f"{round(255 * float(part)):02x}" for part in colour.clip(0, 1))
