"""What an attribution looks like: images as heat maps, anything else as bars."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from ig2.attribution import Attribution
from ig2.plots.images import MOST_SHOWN, heat_map
from ig2.plots.readings import Which, check_attribution, chosen
from ig2.plots.tables import bars


def attribution(result: Attribution, count: int = MOST_SHOWN, which: Which = None, **options: Any) -> Figure:
    """A figure with a row for each explicand: images as `heat_map` shows them, other samples as `bars` does.

    Args:
        result: what a method returned. Samples (H, W), (C, H, W) or (H, W, C) are taken for images.
        count: how many explicands to show at most.
        which: the input to show, by position or name, where the network takes several.
        options: those of `heat_map` or of `bars`.
    """
    values = chosen(check_attribution(result).values, which)
    draw = heat_map if is_image(values) else bars
    return draw(result, count=count, which=which, **options)


def is_image(values: Tensor) -> bool:
    return values.ndim in (3, 4)
