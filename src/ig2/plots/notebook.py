"""An attribution in a notebook: a small piece of HTML that needs nothing else."""

from __future__ import annotations

import base64
from html import escape

import numpy as np

from ig2.attribution import Attribution
from ig2.errors import InputError
from ig2.plots.canvas import AGAINST, FOR, number, png, printable
from ig2.plots.figures import is_image
from ig2.plots.images import heat_map
from ig2.plots.readings import Which, check_count, chosen, method_name, titles_of
from ig2.plots.tables import feature_names

MOST_SHOWN = 3
MOST_BARS = 8


def html(result: Attribution, count: int = MOST_SHOWN) -> str:
    """The first explicands with their attributions, the numbers, and what the residual means, as a `<div>`.

    Images are an inline PNG, anything else is bars that take the page's colours. Everything is escaped, and nothing is
    loaded from elsewhere.

    Args:
        result: what a method returned.
        count: how many explicands to show at most.
    """
    shown = min(check_count(count), len(result))
    some = result[:shown]
    head = f"<strong>{escape(method_name(result))}</strong>, {len(result)} explicand{'s' * (len(result) != 1)}"
    parts = [head + (f", the first {shown} shown" if shown < len(result) else "")]
    inputs: list[Which] = [None]
    if not hasattr(result.values, "shape"):
        inputs = list(result.values) if isinstance(result.values, dict) else list(range(len(result.values)))
    for which in inputs:
        if which is not None:
            parts.append(f"input {escape(printable(which, 40))}")
        try:
            parts.append(_drawn(some, which))
        except InputError as error:  # the numbers are worth showing even where nothing can be drawn
            parts.append(escape(str(error)))
    parts += [_numbers(some), escape(f"The attribution {result.verdict}.")]
    body = "".join(f'<div style="margin:2px 0 8px">{part}</div>' for part in parts)
    return f'<div class="ig2-attribution" style="max-width:46em;overflow-x:auto;line-height:1.4">{body}</div>'


def _drawn(result: Attribution, which: Which) -> str:
    values = chosen(result.values, which)
    if is_image(values):
        code = base64.b64encode(png(heat_map(result, which=which, count=len(result)))).decode("ascii")
        return f'<img style="max-width:100%" alt="explicands and heat maps" src="data:image/png;base64,{code}">'
    names = feature_names(None, values.shape[1:])
    lines = titles_of(result, None, len(result))
    return "".join(escape(line) + _bars(row, names) for line, row in zip(lines, values.flatten(1).numpy(), strict=True))


def _bars(values: np.ndarray, names: list[str]) -> str:
    """The strongest features of one explicand, drawn by the page."""
    order = np.argsort(-np.abs(values), kind="stable")[:MOST_BARS]
    end = float(np.abs(values).max(initial=0.0)) or 1.0
    lines = []
    for i in order:
        share = 50 * abs(values[i]) / end
        colour, left = (FOR, 50.0) if values[i] >= 0 else (AGAINST, 50.0 - share)
        bar = f'<div style="margin-left:{left:.1f}%;width:{share:.1f}%;height:.8em;background:{colour}"></div>'
        lines.append(_row([escape(names[i]), bar, number(values[i])], ["", "width:16em;", ""]))
    rest = values.sum() - values[order].sum()
    if len(values) > MOST_BARS:
        lines.append(_row([f"{len(values) - MOST_BARS} other features", "", number(rest)], ["", "", ""]))
    return f'<table style="border-collapse:collapse;margin:6px 0">{"".join(lines)}</table>'


def _numbers(result: Attribution) -> str:
    """A line for each explicand: what was explained, and how far the attribution is from accounting for it."""
    columns = ["class", "output", "baseline", "sum", "residual"]
    tensors = [result.target, result.output, result.baseline_output, result.total, result.residual]
    kept = [(name, values.tolist()) for name, values in zip(columns, tensors, strict=True) if values is not None]
    lines = [_row([f"<strong>{name}</strong>" for name, _ in kept], [""] * len(kept))]
    for i in range(len(result)):
        lines.append(_row([str(v[i]) if isinstance(v[i], int) else number(v[i]) for _, v in kept], [""] * len(kept)))
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


def _row(cells: list[str], styles: list[str]) -> str:
    inner = "".join(
        f'<td style="{style}padding:1px 14px 1px 0;text-align:left">{cell}</td>'
        for cell, style in zip(cells, styles, strict=True)
    )
    return f"<tr>{inner}</tr>"
