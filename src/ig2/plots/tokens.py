"""Maps of the words of one text × several targets, such as generated tokens, as a figure and as HTML."""

from __future__ import annotations

from html import escape

import numpy as np
from matplotlib.figure import Figure

from ig2.attribution import Attribution
from ig2.errors import InputError
from ig2.plots.canvas import Canvas, add_note
from ig2.plots.colours import Sharing, fit_scales
from ig2.plots.labels import clean_text, format_number, text_options
from ig2.plots.texts import shade, write_note
from ig2.plots.values import Array, Signs, choose_kind

LONGEST_LABEL = 24
MOST_COLUMNS = 120
CELL = 0.32  # inches


def token_map(result: Attribution, *, scale: Sharing = "shared", kind: Signs | None = None) -> Figure:
    """Draw the words of one text against the targets: red if a word speaks for a target, blue if it speaks against it.

    Args:
        result: an attribution of one text with a row for each target, such as each step of a generation, for example from
            `LanguageModel.explain(prompt, target, asking=Asking(each=True))`.
        scale: "shared" uses one colour scale for all targets, "each" one per target.
        kind: "signed", or "magnitude" for the absolute values; by default as for `text`.

    Returns:
        A matplotlib figure, targets as rows.

    Raises:
        InputError: if the rows belong to different texts, or the attribution has no words.
    """
    words, scores, kind, why = _read_map(result, kind)
    shown = scores[:, :MOST_COLUMNS]
    width, height = 1.6 + CELL * shown.shape[1], 1.5 + CELL * len(shown)
    figure = Canvas(max(width, 3.5), height, layout="constrained")
    axes = figure.add_subplot()
    ends = np.array([each.end for each in fit_scales(list(scores), scale)])[:, None]
    low, cmap = (-1.0, "RdBu_r") if kind == "signed" else (0.0, "Purples")
    image = axes.imshow(shown / ends, cmap=cmap, vmin=low, vmax=1.0, aspect="auto")
    labels = [clean_text(word, LONGEST_LABEL) for word in words[:MOST_COLUMNS]]
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize="small", **text_options())
    targets = [clean_text(target, LONGEST_LABEL) for target in result.explained]
    axes.set_yticks(range(len(targets)), targets, fontsize="small", **text_options())
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    end = format_number(float(ends[0, 0])) if scale == "shared" else "the strongest"
    bar.set_ticks([low, 1.0], labels=[f"−{end}" if low and scale == "shared" else "against" if low else "0", end])
    bar.ax.tick_params(labelsize="x-small", length=2)
    bar.outline.set_visible(False)
    cut = f"the first {MOST_COLUMNS} of {len(words)} words" if len(words) > MOST_COLUMNS else ""
    add_note(figure, why, cut)
    return figure


def token_map_html(result: Attribution, *, scale: Sharing = "shared", kind: Signs | None = None) -> str:
    """Return the map as an HTML table: hover over a cell for its number. The arguments are those of `token_map`.

    Returns:
        Self-contained HTML.

    Raises:
        InputError: if the rows belong to different texts, or the attribution has no words.
    """
    words, scores, kind, why = _read_map(result, kind)
    ends = [each.end for each in fit_scales(list(scores), scale)]
    cell = "padding:1px 4px;text-align:left"
    head = "".join(f'<th style="{cell};font-weight:normal">{escape(clean_text(word, LONGEST_LABEL))}</th>' for word in words)
    lines = [f"<tr><th></th>{head}</tr>"]
    for target, row, end in zip(result.explained, scores, ends, strict=True):
        cells = []
        for score in row:
            colour, number = shade(score / end, kind), format_number(float(score))
            cells.append(f'<td style="background-color:{colour}" title="{number}">&nbsp;</td>')
        lines.append(f'<tr><td style="{cell}">{escape(clean_text(target, LONGEST_LABEL))}</td>{"".join(cells)}</tr>')
    table = f'<table class="ig2-map" style="border-collapse:collapse;font-size:85%">{"".join(lines)}</table>'
    return "".join([table, *write_note(why)])


def _read_map(result: Attribution, kind: Signs | None) -> tuple[tuple[str, ...], Array, Signs, str]:
    """Return the words of the text, scores (targets, words), whether they have signs, and the reason if not."""
    names = result.names
    if names is None or names.units is None or len(set(names.units)) != 1:
        raise InputError("a map of words × targets needs one text with a row for each target: take it from lm.explain")
    scores = np.stack(result.sum_units())
    kind, why = choose_kind(result, kind)
    return names.units[0], np.abs(scores) if kind == "magnitude" else scores, kind, why
