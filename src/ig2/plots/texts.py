"""Figures of attributions of text: words on a coloured background, as a figure and as HTML."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import QUIET, STRENGTH, Canvas, align_end_labels
from ig2.plots.colours import Sharing, fit_scales
from ig2.plots.labels import choose_ink, clean_text, font_families, format_number, text_options
from ig2.plots.tables import bar_colour
from ig2.plots.values import Array, InputKey, Signs, Titles, check_scores, choose_kind, select_tensor, take_first, to_rows

MOST_WORDS = 500
# Letters of a word that are drawn. One of 10,000, broken into lines, took 36 s and a page of its own.
LONGEST_WORD = 100
# How opaque the strongest colour behind a word is in HTML: at a half, both dark and light letters stay readable on it.
DEEPEST = 0.5
POINTS = 72.0  # in an inch

Words = Sequence[str] | Sequence[Sequence[str]] | None


class Piece(NamedTuple):
    """A word with its position, or the part of a long word that fits on a line."""

    text: str
    word: int
    line: int
    x: float
    width: float


class _Sentence(NamedTuple):
    title: str
    words: list[str]
    scores: Array
    end: float
    """The score at which the colours end."""


def text(
    result: Attribution,
    words: Words = None,
    *,
    scale: Sharing = "each",
    scores: Sequence[Any] | None = None,
    count: int = 20,
    input_key: InputKey = None,
    titles: Titles = None,
    width: float = 6.5,
    kind: Signs | None = None,
) -> Figure:
    """Draw each explicand's words, red behind those that speak for the explained class and blue behind those against it.

    Args:
        result: the attribution of samples (B, L) or, with embeddings, (B, L, E), which are summed over E.
        words: the words of each explicand, at the first positions of L; the rest counts as padding and is not shown. The
            outer list is optional for a single explicand. By default the words of the attribution, if it has any.
        scale: "each" ends the colours of a text at its strongest word, "shared" at the strongest of all texts.
        scores: one number per word for each explicand, shown instead of the values, for example if tokens were merged.
        count: the maximum number of explicands to show.
        input_key: the input to show, by position or name, if the network takes several.
        titles: a line above each text; by default its class and output.
        width: the width of the figure in inches.
        kind: "signed", or "magnitude" for the absolute values in one colour. By default "signed", but "magnitude" if the
            trust of a shown explicand is low: the figure then notes it, as `heat_map` does.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if words or scores do not fit the attribution, or the figure is too narrow for words.
    """
    sentences, kind, *notes = _read_sentences(result, words, scale, scores, count, input_key, titles, kind)
    size = FontProperties(size="large").get_size_in_points()
    title, line, margin, foot = 1.9 * size, 1.75 * size, 0.8 * size, 3.4 * size
    line_width = width * POINTS - 2 * margin
    if line_width < 4 * size:
        raise InputError(f"width={describe(width)} is too narrow for words: give a number of inches, such as 6.5")
    layouts = [lay_out_words(sentence.words, line_width, size) for sentence in sentences]
    heights = [title + line * (pieces[-1].line + 1 if pieces else 1) for pieces in layouts]
    total = sum(heights) + foot
    figure = Canvas(width, total / POINTS)

    def area(x: float, y: float, wide: float, high: float) -> tuple[float, float, float, float]:
        return x / (width * POINTS), y / total, wide / (width * POINTS), high / total

    cmap = matplotlib.colormaps["RdBu_r"]
    if kind == "magnitude":
        cmap = LinearSegmentedColormap.from_list("strength", ["#f7f7f7", STRENGTH])  # from the white of the other
    low = -1.0 if kind == "signed" else 0.0
    bottom = total
    for sentence, pieces, height in zip(sentences, layouts, heights, strict=True):
        bottom -= height
        axes = figure.add_axes(area(margin, bottom, line_width, height), xlim=(0, line_width), ylim=(height, 0))
        axes.set_axis_off()
        head = clean_text(sentence.title, int(11 * width))
        axes.text(0, 1.4 * size, head, fontsize="small", color=QUIET, parse_math=False)
        for piece in pieces:
            base = title + piece.line * line + 1.2 * size
            colour = cmap((sentence.scores[piece.word] / sentence.end - low) / (1 - low))[:3]
            corner, style = (piece.x, base - 1.05 * size), "round,pad=0,rounding_size=2"
            axes.add_patch(FancyBboxPatch(corner, piece.width, 1.45 * size, boxstyle=style, facecolor=colour, linewidth=0))
            ink = choose_ink(colour)
            axes.text(piece.x + 0.25 * size, base, piece.text, fontsize=size, color=ink, **text_options())
    key = figure.add_axes(area(margin, foot - 1.3 * size, min(line_width, 14 * size), 0.5 * size))
    bar = figure.colorbar(ScalarMappable(Normalize(low, 1), cmap), cax=key, orientation="horizontal")
    ends = ["against the class", "for the class"] if kind == "signed" else ["nothing", "the strongest"]
    if scale == "shared":
        ends = [format_number(end * sentences[0].end) for end in (low, 1)]
    bar.set_ticks([low, 1], labels=ends)
    align_end_labels(key)
    key.tick_params(labelsize="x-small", length=2)
    bar.outline.set_linewidth(0.5)
    longest = max(len(sentence.words) for sentence in sentences)
    cut = f"the first {MOST_WORDS} of up to {longest} words" if longest > MOST_WORDS else ""
    rule = "each text's colours end at its strongest word" if scale == "each" else ""
    footer = "; ".join(filter(None, [rule, *notes, cut]))
    # beside the key, in lines of letters that are about 0.4 of the size wide
    footer = textwrap.fill(footer, max(int((line_width - 15 * size) / (0.4 * size)), 20))
    figure.text(1 - margin / (width * POINTS), 0.6 * size / total, footer, ha="right", fontsize="x-small", color=QUIET)
    return figure


def text_html(result: Attribution, words: Words = None, **options: Any) -> str:
    """Return the words as HTML, a `<p>` for each explicand: hover over a word for its number.

    Backgrounds are translucent and letters keep the page's colour, so that the result is readable on light and dark pages.
    All external text is escaped. The arguments are those of `text`, without the width.

    Returns:
        Self-contained HTML.

    Raises:
        InputError: if words or scores do not fit the attribution.
    """
    paragraphs = []
    sentences, kind, why, _ = _read_sentences(result, words, **options)
    for sentence in sentences:
        spans = []
        for word, score in zip(sentence.words, sentence.scores, strict=True):
            colour = shade(score / sentence.end, kind)
            style = f"background-color:{colour};border-radius:3px;padding:1px 3px;overflow-wrap:anywhere"
            shown = escape(clean_text(word, LONGEST_WORD))
            spans.append(f'<span style="{style}" title="{format_number(score)}">{shown}</span>')
        title = f'<span style="opacity:.7;font-size:85%">{escape(sentence.title)}</span><br>'
        paragraphs.append(f'<p class="ig2-text" style="line-height:1.9">{title}{" ".join(spans)}</p>')
    return "\n".join([*paragraphs, *write_note(why)])


def shade(share: float, kind: Signs) -> str:
    """Return the CSS colour behind a word, of this share of the strongest."""
    red, green, blue = (round(255 * part) for part in to_rgb(bar_colour(share, kind)))
    return f"rgba({red},{green},{blue},{DEEPEST * abs(share):.3f})"


def write_note(note: str) -> list[str]:
    """Return a subdued paragraph, if there is something to note."""
    return [f'<p style="opacity:.7;font-size:85%">{note}</p>'] if note else []


def _read_sentences(
    result: Attribution,
    words: Words,
    scale: Sharing = "each",
    scores: Sequence[Any] | None = None,
    count: int = 20,
    input_key: InputKey = None,
    titles: Titles = None,
    kind: Signs | None = None,
) -> tuple[list[_Sentence], Signs, str, str]:
    """Return the words and scores of each shown explicand, whether they have signs, the reason if not, and a note on others."""
    shown, lines, note = take_first(result, count, titles)
    if words is None:
        if result.names is None or result.names.view != "words":
            raise InputError("this attribution knows no words: give words=, or take it from subject.explain(texts)")
        words, scores = result.units, result.sum_units() if scores is None else scores
    lists: Sequence[Any] = [words] if len(result) == 1 and all(isinstance(word, str) for word in words) else words
    if isinstance(words, str) or len(lists) != len(result) or any(isinstance(texts, str) for texts in lists):
        raise InputError(f"words are {describe(words)}: expected a list of words for each of {len(result)} explicands")
    rows = list(to_rows(select_tensor(shown.values, input_key))) if scores is None else check_scores(scores, len(result))
    for i, (texts, values) in enumerate(zip(lists, rows, strict=False)):
        if len(texts) > len(values):
            raise InputError(f"explicand {i} has {len(texts)} words and only {len(values)} numbers: give a number a word")
    numbers = [values[: len(texts)] for texts, values in zip(lists[: len(shown)], rows, strict=False)]
    kind, why = choose_kind(shown, kind)
    if kind == "magnitude":
        numbers = [np.abs(values) for values in numbers]
    scales = fit_scales(numbers, scale)
    cases = zip(lines, lists[: len(shown)], numbers, scales, strict=True)
    sentences = [_Sentence(title, list(texts), values, scale.end) for title, texts, values, scale in cases]
    return sentences, kind, why, note


def lay_out_words(words: Sequence[str], line_width: float, size: float) -> list[Piece]:
    """Set words in lines of this width, in points; words longer than a line are broken."""
    pieces: list[Piece] = []
    x, line, gap = 0.0, 0, 0.3 * size
    for i, word in enumerate(words[:MOST_WORDS]):
        rest = clean_text(word, LONGEST_WORD) or " "
        while rest:
            part = _cut_to_width(rest, line_width, size)
            width = _measure(part, size)
            if x > 0 and x + width > line_width:
                x, line = 0.0, line + 1
            pieces.append(Piece(part, i, line, x, width))
            x += width + gap
            rest = rest[len(part) :]
    return pieces


def _cut_to_width(text: str, width: float, size: float) -> str:
    """Return as much of a text as fits on a line, at least one character."""
    if _measure(text, size) <= width:
        return text
    length = bisect_right(range(1, len(text)), width, key=lambda length: _measure(text[:length], size))
    return text[: max(length, 1)]


def _measure(text: str, size: float) -> float:
    """Return the width of a word's box, in points."""
    width, _, _ = text_to_path.get_text_width_height_descent(
        text, FontProperties(family=font_families(), size=size), ismath=False
    )
    # letters are fitted to pixels when they are drawn, and get up to a thirtieth wider
    return 1.03 * float(width) + 0.5 * size
