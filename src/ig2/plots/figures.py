"""What an attribution looks like: images as heat maps, anything else as bars."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ig2.attribution import Attribution
from ig2.errors import InputError, import_extra

MOST_SHOWN = 8
MOST_BARS = 20


def attribution(result: Attribution, count: int = MOST_SHOWN) -> Any:
    """A matplotlib figure with a row for each explicand: the explicand, and its signed attribution.

    Images (B, C, H, W) or (B, H, W) are shown as heat maps with channels summed, red for features that speak for the
    explained class and blue for those against it; each map's scale is symmetric about zero. Other samples are bars of the
    features with the largest values.

    Args:
        result: what a method returned.
        count: how many explicands to show at most.
    """
    if not isinstance(result.values, Tensor) or not isinstance(result.explicand, Tensor):
        raise InputError("a figure shows a single tensor; this attribution is of several, plot each by itself")
    figure_type = import_extra("matplotlib.figure", "plots", "plotting").Figure
    shown = result[: min(count, len(result))].to("cpu")
    values, explicands = shown.values, shown.explicand
    assert isinstance(values, Tensor)
    assert isinstance(explicands, Tensor)
    is_image = values.ndim in (3, 4) and values.ndim - (values.ndim == 4 and values.shape[1] <= 4) == 3
    rows = len(shown)
    figure = figure_type(figsize=(6.4, 3.0 * rows), layout="constrained")
    grid = figure.subplots(rows, 2 if is_image else 1, squeeze=False)
    for row, axes in enumerate(grid):
        title = f"class {int(shown.target[row])}, output {float(shown.output[row]):.3g}"
        if is_image:
            _picture(axes[0], explicands[row], title)
            _heat_map(figure, axes[1], values[row], str(shown.settings.get("method", "")))
        else:
            _bars(axes[0], values[row].flatten(), title)
    return figure


def _picture(axes: Any, sample: Tensor, title: str) -> None:
    sample = sample.float()
    if sample.ndim == 3 and sample.shape[0] not in (3, 4):
        sample = sample.mean(dim=0)
    low, high = sample.min(), sample.max()
    sample = (sample - low) / (high - low).clamp(min=1e-12)
    axes.imshow(sample if sample.ndim == 2 else sample.permute(1, 2, 0), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, fontsize="medium")
    axes.set_axis_off()


def _heat_map(figure: Any, axes: Any, values: Tensor, title: str) -> None:
    flat = values.sum(dim=0) if values.ndim == 3 else values
    # a few extreme pixels must not turn the rest white
    limit = float(torch.quantile(flat.abs().flatten().double(), 0.995)) or float(flat.abs().max()) or 1.0
    image = axes.imshow(flat, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_title(title, fontsize="medium")
    axes.set_axis_off()
    figure.colorbar(image, ax=axes, shrink=0.8)


def _bars(axes: Any, values: Tensor, title: str) -> None:
    order = values.abs().argsort(descending=True)[:MOST_BARS].flip(0)
    colours = ["#b2182b" if value > 0 else "#2166ac" for value in values[order].tolist()]
    axes.barh([str(i) for i in order.tolist()], values[order].numpy(), color=colours)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_ylabel("feature")
    axes.set_xlabel("attribution")
    axes.set_title(title, fontsize="medium")
