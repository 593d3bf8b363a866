"""Attributions of text: words with a colour behind them, as a figure and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import AGAINST, FOR, QUIET, Canvas, align_ends, families, left_out, number, outside, printable
from ig2.plots.readings import Array, Which, check_attribution, check_count, chosen, given_scores, rows, titles_of

MOST_SHOWN = 20
MOST_WORDS = 500
# Letters of a word that are drawn. One of 10,000, broken into lines, took 36 s and a page of its own.
LONGEST_WORD = 100
# How opaque the strongest colour behind a word is in HTML: at a half, both dark and light letters stay readable on it.
DEEPEST = 0.5
POINTS = 72.0  # in an inch

Words = Sequence[str] | Sequence[Sequence[str]]
Scale = Literal["each", "shared"]


class Piece(NamedTuple):
    """A word where it stands, or the part of a long word that fits on a line."""

    text: str
    word: int
    line: int
    x: float
    width: float


def text(
    result: Attribution,
    words: Words,
    *,
    scale: Scale = "each",
    scores: Sequence[Any] | None = None,
    count: int = MOST_SHOWN,
    which: Which = None,
    titles: Sequence[str] | None = None,
    width: float = 6.5,
) -> Figure:
    """Each explicand's words, red behind those that speak for the explained class and blue behind those against it.

    Args:
        result: what a method returned for samples (B, L) or, with embeddings, (B, L, E), which are summed.
        words: for each explicand its words, at the first positions of L; what follows is taken as padding and not shown. A
            single explicand's may be given without the outer list.
        scale: "each" text's colours end at its own strongest word; "shared" at the strongest of all.
        scores: for each explicand one number a word, to show instead of the values, as where tokens were merged to words.
        count: how many explicands to show at most.
        which: the input to show, by position or name, where the network takes several.
        titles: a line above each text; by default its class and output.
        width: of the figure in inches.
    """
    numbers, lists = _word_scores(result, words, scores, count, which)
    lines = titles_of(result, titles, len(lists))
    ends = _ends(numbers, scale)
    size = FontProperties(size="large").get_size_in_points()
    title, line, margin, foot = 1.9 * size, 1.75 * size, 0.8 * size, 3.4 * size
    room = width * POINTS - 2 * margin
    if room < 4 * size:
        raise InputError(f"width={describe(width)} is too narrow for words: give a number of inches, such as 6.5")
    placed = [flow(texts, room, size) for texts in lists]
    heights = [title + line * (pieces[-1].line + 1 if pieces else 1) for pieces in placed]
    total = sum(heights) + foot
    figure = Canvas(width, total / POINTS)

    def area(x: float, y: float, wide: float, high: float) -> tuple[float, float, float, float]:
        return x / (width * POINTS), y / total, wide / (width * POINTS), high / total

    colours = matplotlib.colormaps["RdBu_r"]
    bottom = total
    for row, pieces in enumerate(placed):
        bottom -= heights[row]
        axes = figure.add_axes(area(margin, bottom, room, heights[row]), xlim=(0, room), ylim=(heights[row], 0))
        axes.set_axis_off()
        reach = f"  (± {number(ends[row])})" if scale == "each" else ""
        axes.text(
            0, 1.4 * size, printable(lines[row], int(11 * width)) + reach, fontsize="small", color=QUIET, parse_math=False
        )
        for piece in pieces:
            base = title + piece.line * line + 1.2 * size
            red, green, blue, _ = colours(0.5 + 0.5 * numbers[row][piece.word] / ends[row])
            axes.add_patch(
                FancyBboxPatch(
                    (piece.x, base - 1.05 * size),
                    piece.width,
                    1.45 * size,
                    boxstyle="round,pad=0,rounding_size=2",
                    facecolor=(red, green, blue),
                    linewidth=0,
                )
            )
            axes.text(
                piece.x + 0.25 * size,
                base,
                piece.text,
                fontsize=size,
                color=letters((red, green, blue)),
                **outside(),
            )
    key = figure.add_axes(area(margin, foot - 1.3 * size, min(room, 14 * size), 0.5 * size))
    bar = figure.colorbar(ScalarMappable(Normalize(-1, 1), colours), cax=key, orientation="horizontal")
    ends_shown = ["against the class", "for the class"] if scale == "each" else [number(-ends[0]), number(ends[0])]
    bar.set_ticks([-1, 1], labels=ends_shown)
    align_ends(key)
    key.tick_params(labelsize="x-small", length=2)
    bar.outline.set_linewidth(0.5)
    longest = max(len(texts) for texts in lists)
    cut = f"the first {MOST_WORDS} of up to {longest} words" if longest > MOST_WORDS else ""
    said = "; ".join(filter(None, [left_out(len(lists), len(result)), cut]))
    figure.text(1 - margin / (width * POINTS), 0.6 * size / total, said, ha="right", fontsize="x-small", color=QUIET)
    return figure


def text_html(
    result: Attribution,
    words: Words,
    *,
    scale: Scale = "each",
    scores: Sequence[Any] | None = None,
    count: int = MOST_SHOWN,
    which: Which = None,
    titles: Sequence[str] | None = None,
) -> str:
    """The same as HTML, a `<p>` for each explicand: hover over a word for its number.

    Colours are see-through and the letters keep the page's own, so that it reads on light and dark pages alike. Everything
    from outside is escaped. See `text` for the arguments.
    """
    numbers, lists = _word_scores(result, words, scores, count, which)
    lines = titles_of(result, titles, len(lists))
    paragraphs = []
    for row, end in enumerate(_ends(numbers, scale)):
        spans = []
        for word, value in zip(lists[row], numbers[row], strict=False):
            red, green, blue = (round(255 * part) for part in to_rgb(FOR if value > 0 else AGAINST))
            colour = f"rgba({red},{green},{blue},{DEEPEST * abs(value) / end:.3f})"
            style = f"background-color:{colour};border-radius:3px;padding:1px 3px;overflow-wrap:anywhere"
            spans.append(f'<span style="{style}" title="{number(value)}">{escape(printable(word, LONGEST_WORD))}</span>')
        title = f'<span style="opacity:.7;font-size:85%">{escape(lines[row])}</span><br>'
        paragraphs.append(f'<p class="ig2-text" style="line-height:1.9">{title}{" ".join(spans)}</p>')
    return "\n".join(paragraphs)


def _word_scores(
    result: Attribution, words: Words, scores: Sequence[Any] | None, count: int, which: Which
) -> tuple[list[Array], list[list[str]]]:
    """For each explicand shown a number a word, and the words."""
    shown = min(check_count(count), len(check_attribution(result)))
    lists: Sequence[Any] = [words] if len(result) == 1 and all(isinstance(word, str) for word in words) else words
    if isinstance(words, str) or len(lists) != len(result) or any(isinstance(texts, str) for texts in lists):
        raise InputError(f"words are {describe(words)}: expected a list of words for each of {len(result)} explicands")
    numbers = list(rows(chosen(result.values, which)[:shown])) if scores is None else given_scores(result, scores, shown)
    for i, (texts, values) in enumerate(zip(lists, numbers, strict=False)):
        if len(texts) > len(values):
            raise InputError(f"explicand {i} has {len(texts)} words and only {len(values)} numbers: give a number a word")
    found = [list(texts) for texts in lists[:shown]]
    return [values[: len(texts)] for texts, values in zip(found, numbers, strict=True)], found


def _ends(numbers: list[Array], scale: Scale) -> list[float]:
    """Where the colours of each text end: at the strongest word, its own or of all."""
    if scale not in ("each", "shared"):
        raise InputError(f"scale must be 'each' or 'shared', got {describe(scale)}")
    ends = [float(np.abs(values).max(initial=0.0)) for values in numbers]
    if scale == "shared":
        ends = [max(ends)] * len(ends)
    return [end or 1.0 for end in ends]


def letters(behind: tuple[float, float, float]) -> str:
    """Black or white, whichever stands out more: the two contrasts are equal at a luminance of 0.179."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in behind]
    return "white" if np.dot(linear, [0.2126, 0.7152, 0.0722]) < 0.179 else "black"


def flow(words: list[str], room: float, size: float) -> list[Piece]:
    """Words set in lines of this width, in points; words that are longer than a line are broken."""
    pieces: list[Piece] = []
    x, line, gap = 0.0, 0, 0.3 * size
    for i, word in enumerate(words[:MOST_WORDS]):
        rest = printable(word, LONGEST_WORD) or " "
        while rest:
            taken = _fitting(rest, room, size)
            width = _width(taken, size)
            if x > 0 and x + width > room:
                x, line = 0.0, line + 1
            pieces.append(Piece(taken, i, line, x, width))
            x += width + gap
            rest = rest[len(taken) :]
    return pieces


def _fitting(text: str, room: float, size: float) -> str:
    """As much of a text as a line has room for, one character at least."""
    if _width(text, size) <= room:
        return text
    low, high = 1, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _width(text[:middle], size) <= room else (low, middle)
    return text[:low]


def _width(text: str, size: float) -> float:
    """How wide a word's box is, in points."""
    wide, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(family=families(), size=size), ismath=False)
    # letters are fitted to pixels when they are drawn, and get up to a thirtieth wider
    return 1.03 * float(wide) + 0.5 * size
