"""The figure of one input, with a panel for each method, drawn by its view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2 import plots
from ig2._utils.blur import blur
from ig2.attribution import Attribution
from ig2.report.content import InputView, MethodView
from ig2.views import Bars, Curve, Numbers, Picture, Words

BARS = 15  # of columns


def draw_figure(shown: InputView, title: str, scale: float = 0.0, usual: float = 0.0) -> Any:
    """Draw the figure of an input.

    Args:
        shown: the input.
        title: a line above it.
        scale: the pixels that the maps of a picture are blurred by.
        usual: the pixels that only the strength of colours is blurred by where the scale is this: single pixels of a photo mean
            nothing to the eye.

    Returns:
        A matplotlib figure.
    """
    view, many, first = shown.view, len(shown.methods), shown.methods[0]
    if isinstance(view, Picture):
        return _draw_picture(shown, view, title, scale, usual)
    titles = [title if many == 1 else f"{method.name}: {title}" for method in shown.methods]
    scores = [method.scores for method in shown.methods]
    # the figures have a part for each explicand: here it is the same one, and each part shows another method's numbers
    same = _as_attribution(first, first.scores, torch.zeros(1, *first.scores.shape))[[0] * many]
    if isinstance(view, Curve):
        series, sums = _unfold(view, scores)
        stacked = replace(same, values=sums, explicand=series.expand(sums.shape))
        rate = None if view.seconds is None else sums.shape[2] / view.seconds
        return plots.signal(stacked, time_axis=2, rate=rate, channels=view.channels, titles=titles, count=many)
    if isinstance(view, Words):
        return plots.text(same, [list(view.words)] * many, scores=scores, titles=titles, count=many)
    assert isinstance(view, Bars)
    cells, top = [list(view.cells)] * many, BARS if many == 1 else BARS // 2
    return plots.bars(same, list(view.columns), cells=cells, scores=scores, titles=titles, count=many, top=top)


def _draw_picture(shown: InputView, view: Picture, title: str, scale: float, usual: float) -> Any:
    pixels = np.full((*shown.methods[0].scores.shape, 3), 128, np.uint8) if view.pixels is None else view.pixels
    image, maps = torch.from_numpy(np.array(pixels)).movedim(2, 0)[None] / 255, {}
    is_usual = scale == usual
    label = "" if is_usual or not scale else f", {scale:g} px"
    for method in shown.methods:
        # a map of strength alone does not show it
        name = f"{method.name}, all against{label}" if method.is_against else f"{method.name}{label}"
        scores = method.scores if is_usual else blur(torch.from_numpy(method.scores), scale).numpy()
        maps[name] = _as_attribution(method, scores, image)
    return plots.grid(maps, titles=[title], bounds=(0.0, 1.0), smooth=usual if is_usual else 0.0)


def _unfold(view: Curve, scores: list[Numbers]) -> tuple[Tensor, Tensor]:
    """Return a curve as a series that goes to the lowest and the highest value of each interval, and its scores likewise."""
    sums = torch.from_numpy(np.stack(scores))
    if view.lowest is None or view.highest is None:
        return torch.zeros(()), sums
    if np.array_equal(view.lowest, view.highest):
        return torch.from_numpy(view.lowest), sums
    both = torch.from_numpy(np.stack([view.lowest, view.highest], axis=-1))
    return both.flatten(1), (sums / 2).repeat_interleave(2, dim=2)


def _as_attribution(method: MethodView, scores: Numbers, explicand: Tensor) -> Attribution:
    """Return an attribution for plots: a map is enlarged to its image."""
    values = torch.from_numpy(np.array(scores, dtype=np.float32))[None]
    if values.ndim == 3 and explicand.ndim == 4:
        values = torch.nn.functional.interpolate(values[None], explicand.shape[-2:])[0]
    trust, output = method.numbers.get("trust"), torch.tensor([method.numbers.get("output", 0.0)])
    known = None if trust is None else torch.tensor([[trust]])
    return Attribution(values=values, explicand=explicand, target=torch.zeros(1, dtype=torch.long), output=output, trust=known)
