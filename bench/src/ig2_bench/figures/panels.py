"""How the figures are laid out: rows and columns of pictures and maps, with one key for all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from ig2.plots.canvas import QUIET, Canvas, draw_image, remove_frame
from ig2.plots.colours import ColourScale, MapStyle
from ig2.plots.labels import clean_text, text_options
from ig2_bench.figure import Array

# the paper's red box, in a red that people who confuse red and green tell from the blue of a signed map
MARK = "#e66100"
SIGNED = MapStyle()
# outside, passing and failing dies: light to dark, so that they differ in brightness and not in hue alone
DIES = np.array([[1.0, 1.0, 1.0], [0.80, 0.85, 0.90], [0.13, 0.22, 0.42]])


def sheet(rows: int, columns: int, shape: Sequence[int], size: float = 1.15, left: float = 0.3) -> tuple[Canvas, NDArray[Any]]:
    """A figure with rows × columns panels for pictures of this height and width, and its axes, bare."""
    height, width = shape[0], shape[1]
    panel = size * height / width
    figure = Canvas(columns * (size + 0.04) + left, rows * (panel + 0.06) + 0.9, layout="compressed")
    axes = figure.subplots(rows, columns, squeeze=False)
    for each in axes.flat:
        remove_frame(each)
    return figure, axes


def column_titles(axes: NDArray[Any], titles: Sequence[str], size: str = "small", width: int = 16) -> None:
    """A line or two above each column."""
    for each, title in zip(axes[0], titles, strict=False):
        each.set_title(wrap_text(title, width), fontsize=size, **text_options())


def row_labels(axes: NDArray[Any], labels: Sequence[str], width: int = 16, size: str = "small") -> None:
    """Words beside each row."""
    for each, label in zip(axes[:, 0], labels, strict=False):
        each.set_ylabel(wrap_text(label, width), fontsize=size, **text_options())


def wrap_text(text: str, width: int) -> str:
    """A text on two lines at most."""
    return "\n".join(textwrap.wrap(clean_text(text), width, max_lines=2, placeholder=" …"))


def picture(axes: Axes, image: Array) -> None:
    """A picture (H, W), (H, W, 3) or (1 or 3, H, W), from 0 to 1."""
    image = np.asarray(image, dtype=np.float64)
    if image.ndim == 3 and image.shape[0] in (1, 3) and image.shape[-1] != 3:
        image = image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0)
    draw_image(axes, image)


def dies(codes: Array) -> Array:
    """A wafer map (H, W) in colours."""
    return DIES[np.asarray(codes, dtype=np.int64)]


def heat(axes: Axes, values: Array, look: MapStyle = SIGNED, end: float | None = None) -> float:
    """A map (H, W) on its own scale, or up to the end given; where its colours end."""
    shown = look.transform(np.asarray(values, dtype=np.float64)[None])
    scale = look.fit_scales(shown)[0] if end is None else ColourScale(end, False)
    look.draw(axes, shown[0], scale)
    return scale.end


def outline(axes: Axes, mask: Array, colour: str = MARK, style: str = "solid") -> None:
    """A line around where the mask is one."""
    marked = np.asarray(mask) == 1
    if marked.any() and not marked.all():
        # drawn along pixels' edges, and round the picture's own edge too
        larger = np.kron(np.pad(marked, 1), np.ones((4, 4)))
        at = (np.arange(larger.shape[1]) + 0.5) / 4 - 1.5
        down = (np.arange(larger.shape[0]) + 0.5) / 4 - 1.5
        axes.contour(at, down, larger, levels=[0.5], colors=[colour], linewidths=1.1, linestyles=style)
        axes.set(xlim=(-0.5, marked.shape[1] - 0.5), ylim=(marked.shape[0] - 0.5, -0.5))


def key(figure: Figure, axes: NDArray[Any], look: MapStyle = SIGNED, ends: tuple[str, str] | None = None) -> None:
    """One colour bar for maps that have each their own scale."""
    signed = look.kind == "signed"
    ends = ends or (("against the class", "for the class") if signed else ("none", "strongest"))
    colours = ScalarMappable(Normalize(-1 if signed else 0, 1), matplotlib.colormaps[look.cmap_name])
    bar = figure.colorbar(colours, ax=list(axes.flat), location="bottom", fraction=0.03, aspect=30, shrink=0.35, pad=0.015)
    bar.set_ticks([-1 if signed else 0, 1], labels=list(ends))
    bar.ax.tick_params(labelsize="x-small", length=2)
    bar.outline.set_linewidth(0.5)


def caption(figure: Figure, *texts: str) -> None:
    """Small print below the figure: what is shown, and which data it is from."""
    lines = wrap_caption(texts, figure.get_figwidth())
    figure.supxlabel(lines, fontsize="x-small", color=QUIET, x=0.01, ha="left", **text_options())


def wrap_caption(texts: Sequence[str], inches: float) -> str:
    """Sentences in lines of small letters that are about this wide."""
    sentences = ". ".join(text[:1].upper() + text[1:] for text in (text.strip(" .") for text in texts) if text)
    return textwrap.fill(clean_text(sentences) + ".", max(int(18.5 * inches), 40))


def describe_scale(look: MapStyle = SIGNED) -> str:
    """How the colours of maps are to be read."""
    summed = "channels are summed" + (", negative sums omitted" if look.kind == "positive" else "")
    blurred = f"; maps are blurred by {look.smooth:g} px" if look.smooth else ""
    return f"each map has its own scale, which ends at percentile {look.percentile:g} of its size; {summed}{blurred}"


def sum_channels(values: Tensor) -> NDArray[np.float32]:
    """Attributions (..., C, H, W) as maps (..., H, W)."""
    return values.detach().sum(dim=-3).to("cpu", torch.float32).numpy()


def to_bytes(x: Tensor) -> NDArray[np.uint8]:
    """Pictures (N, 3, H, W) from 0 to 1 as bytes (N, H, W, 3)."""
    return (x * 255).round().to("cpu", torch.uint8).permute(0, 2, 3, 1).numpy()
