"""Figures, and HTML for notebooks, of attributions of any kind: heat maps of images, words of texts, bars of the rest."""

from __future__ import annotations

import base64
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from ig2._utils.checks import check_count
from ig2.attribution import Attribution, name_positions
from ig2.errors import InputError
from ig2.plots.canvas import encode_png
from ig2.plots.colours import fit_scales
from ig2.plots.images import heat_map
from ig2.plots.labels import clean_text, format_number
from ig2.plots.signals import signal
from ig2.plots.tables import REST, bar_colour, bars, cut_rest, describe_cells, split_strongest
from ig2.plots.texts import text, text_html
from ig2.plots.tokens import token_map, token_map_html
from ig2.plots.values import (
    Array,
    InputKey,
    Signs,
    choose_kind,
    is_image,
    is_series,
    method_name,
    select_tensor,
    split_inputs,
    take_first,
)

MOST_HTML_BARS = 8


def attribution(result: Attribution, count: int = 8, input_key: InputKey = None, **options: Any) -> Figure:
    """Draw a row for each explicand: images as `heat_map` does, words as `text`, signals as `signal`, the rest as `bars`.

    One prompt with several targets is drawn by `token_map`.

    Args:
        result: an attribution. Unless it has the kind of its samples, (H, W), (C, H, W) and (H, W, C) are treated as images,
            but two axes as signals (C, T) or (T, C) if one has at most 12 entries and the other at least twice as many.
        count: the maximum number of explicands to show.
        input_key: the input to show, by position or name, if the network takes several.
        options: options of `heat_map`, `text`, `signal` or `bars`.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if the function that draws the attribution raises one.
    """
    if _is_map(result):
        return token_map(result, **options)
    values = select_tensor(result.values, input_key)
    draw: Callable[..., Figure] = heat_map if is_image(values) else bars
    draw = text if _is_text(result) else signal if _is_signal(result, values) else draw
    return draw(result, count=count, input_key=input_key, **options)


def html(result: Attribution, count: int = 3) -> str:
    """Return the first explicands with their attributions, the numbers, and the meaning of the residual, as a `<div>`.

    Images are an inline PNG, anything else is bars in the page's colours. All text is escaped, and no external resources
    are loaded.

    Args:
        result: an attribution.
        count: the maximum number of explicands to show.

    Returns:
        Self-contained HTML.

    Raises:
        InputError: if count is not a positive integer. An attribution that cannot be drawn is not an error: the HTML gives
            the reason.
    """
    shown = result if _is_map(result) else result[: check_count(count)]
    head = f"<strong>{escape(method_name(result))}</strong>, {len(result)} explicand{'s' * (len(result) != 1)}"
    parts = [head + (f", the first {len(shown)} shown" if len(shown) < len(result) else "")]
    for key in split_inputs(result.values):
        if key is not None and result.names is None:
            parts.append(f"input {escape(clean_text(key, 40))}")
        try:
            parts.append(_write_values(shown, key))
        except InputError as error:  # the numbers are worth showing even where nothing can be drawn
            parts.append(escape(str(error)))
    parts += [_write_numbers(shown), escape(f"The attribution {result.verdict}.")]
    body = "".join(f'<div style="margin:2px 0 8px">{part}</div>' for part in parts)
    return f'<div class="ig2-attribution" style="max-width:46em;overflow-x:auto;line-height:1.4">{body}</div>'


def _is_text(result: Attribution) -> bool:
    return result.names is not None and result.names.view == "words"


def _is_map(result: Attribution) -> bool:
    """Return whether the result is one prompt of a language model with a row for each target."""
    return _is_text(result) and "lm" in result.settings and len(result) > 1


def _is_signal(result: Attribution, values: Tensor) -> bool:
    return is_series(values) if result.names is None else result.names.view == "curve"


def _write_values(result: Attribution, key: InputKey) -> str:
    if _is_map(result):
        return token_map_html(result)
    if _is_text(result):
        return text_html(result, count=len(result))
    values = select_tensor(result.values, key)
    is_signal = _is_signal(result, values)
    if is_signal or is_image(values):
        draw: Any = signal if is_signal else heat_map
        code = base64.b64encode(encode_png(draw(result, input_key=key, count=len(result)))).decode("ascii")
        return f'<img style="max-width:100%" alt="explicands and their attributions" src="data:image/png;base64,{code}">'
    _, lines, _ = take_first(result, len(result), None)
    known = result.names
    if known is None or known.units is None:
        names, rows = [name_positions(values.shape[1:])] * len(result), list(values.flatten(1).numpy())
    else:
        names, rows = [list(units) for units in known.units], result.sum_units()
        if known.cells is not None:
            labelled = zip(names, describe_cells(known), strict=True)
            names = [[f"{unit} = {cell}" for unit, cell in zip(*pair, strict=True)] for pair in labelled]
    kind, why = choose_kind(result, None)
    parts = [escape(line) + _write_bars(row, row_names, kind) for line, row_names, row in zip(lines, names, rows, strict=True)]
    return "".join([*parts, why])


def _write_bars(values: Array, names: list[str], kind: Signs) -> str:
    """Return the strongest features of one explicand, as bars drawn by the page."""
    values = np.abs(values) if kind == "magnitude" else values
    order, rest = split_strongest(values, MOST_HTML_BARS)
    (scale,) = fit_scales([values], "each")
    drawn = [(names[i], values[i], format_number(values[i]), bar_colour(values[i], kind)) for i in order]
    if len(values) > MOST_HTML_BARS:
        drawn.append((f"{len(values) - MOST_HTML_BARS} other features", *cut_rest(rest, scale.end), REST))
    end = max(scale.end, *(abs(length) for _, length, _, _ in drawn))
    rows = []
    for name, length, number, colour in drawn:
        share = 50 * abs(length) / end
        left = 50.0 if length >= 0 else 50.0 - share
        bar = f'<div style="margin-left:{left:.1f}%;width:{share:.1f}%;height:.8em;background:{colour}"></div>'
        rows.append([escape(clean_text(name, 80)), f'<div style="width:16em">{bar}</div>', number])
    return _write_table(rows, "margin:6px 0")


def _write_numbers(result: Attribution) -> str:
    """Return a line for each explicand: the explained output, and the residual of the attribution."""
    columns = {
        "output": result.output,
        "baseline": result.baseline_output,
        "sum": result.total,
        "residual": result.residual,
        "trust": result.median("trust"),
    }
    kept: dict[str, list[Any]] = {"class": result.target.tolist()}
    if result.against is not None or result.names is not None:
        kept = {"explains": result.explained}
    kept |= {name: values.tolist() for name, values in columns.items() if values is not None}
    heads = [f"<strong>{name}</strong>" for name in kept]
    rows = [
        [format_number(v) if isinstance(v, float) else escape(str(v)) for v in row] for row in zip(*kept.values(), strict=True)
    ]
    return _write_table([heads, *rows])


def _write_table(rows: list[list[str]], style: str = "") -> str:
    cells = ["".join(f'<td style="padding:1px 14px 1px 0;text-align:left">{cell}</td>' for cell in row) for row in rows]
    return f'<table style="border-collapse:collapse;{style}">' + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
