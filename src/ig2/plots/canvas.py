"""The canvas of a figure outside pyplot, with images, bare axes and a note below."""

from __future__ import annotations

import io
import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

# The ends of matplotlib's RdBu, which people who confuse red and green can distinguish.
FOR, AGAINST = "#b2182b", "#2166ac"
STRENGTH = "#923480"  # where signs are not to be believed; no shade of the two above
QUIET = "0.35"
# Okabe and Ito's colours, which stay apart for people who do not see all of them.
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# Beyond this an image with square pixels would be a hairline.
MOST_SLENDER = 6.0


class Canvas(Figure):
    """A matplotlib figure outside pyplot, which notebooks display."""

    def __init__(self, width: float, height: float, **options: Any) -> None:
        super().__init__(figsize=(width, height), **options)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        return encode_png(self)


def encode_png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


def draw_image(axes: Axes, image: NDArray[np.float64], **options: Any) -> AxesImage:
    """Draw an image in [0, 1], (H, W) in grey or (H, W, 3); or, with other options of `imshow`, a map (H, W)."""
    height, width = image.shape[:2]
    aspect = "equal" if max(height, width) <= MOST_SLENDER * min(height, width) else "auto"
    options = {"cmap": "gray", "vmin": 0, "vmax": 1, "aspect": aspect, "interpolation": "antialiased", **options}
    drawn = axes.imshow(image, **options)
    remove_frame(axes)
    return drawn


def remove_frame(axes: Axes) -> None:
    """Remove ticks and frame; unlike `set_axis_off`, this keeps the labels."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def align_end_labels(axes: Axes) -> None:
    """Keep the two labels of a horizontal colour bar between its ends, clear of its neighbours."""
    for label, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
        label.set(horizontalalignment=side)


def add_note(figure: Figure, *notes: str) -> None:
    """Add a subdued line below the figure, with the notes that are not empty."""
    note = "; ".join(filter(None, notes))
    if note:
        # the smallest letters are about a sixteenth of an inch
        lines = textwrap.fill(note, max(int(16 * figure.get_figwidth()), 20))
        figure.supxlabel(lines, fontsize="x-small", color=QUIET)
