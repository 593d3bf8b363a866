"""Colours of maps: the part that is shown, the colour map, and the ends of the scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage

from ig2._utils.blur import blur
from ig2._utils.checks import check_choice
from ig2.errors import InputError, describe
from ig2.plots.canvas import MOST_SLENDER, align_end_labels, draw_image
from ig2.plots.labels import format_number
from ig2.plots.values import Array

Kind = Literal["signed", "magnitude", "positive"]
Sharing = Literal["each", "shared"]
# A scale that ends below this has no range in matplotlib's eyes.
FAINTEST = 1e-200
# A colour bar beside a panel that is lower than this, in inches, has no room for its label.
LOWEST_PANEL = 1.2


class ColourScale(NamedTuple):
    """The end of the colours of a map, and whether some values lie beyond it."""

    end: float
    is_cut: bool


def fit_scales(maps: Sequence[Array], scale: Sharing, percentile: float = 100.0) -> list[ColourScale]:
    """Return a scale for each map, individual or shared, that ends at this percentile of the absolute values."""
    check_choice(scale, Sharing, "scale")
    if scale == "shared":
        return fit_scales([np.concatenate([values.ravel() for values in maps])], "each", percentile) * len(maps)
    scales = []
    for values in maps:
        strengths = np.abs(values)
        largest = float(strengths.max(initial=0.0))
        # more than the percentile may be exactly zero, as in a map of a few pixels
        ends = (float(np.percentile(strengths, percentile)) if values.size else 0.0, largest)
        end = next((end for end in ends if end > FAINTEST), 1.0)
        scales.append(ColourScale(end, largest > end))
    return scales


@dataclass(frozen=True)
class MapStyle:
    """The style of maps. The image figures accept these fields as keyword arguments.

    Colours end at a high percentile of the absolute values, because a few extreme pixels would otherwise turn the rest
    white; the colour bar is pointed where values lie beyond its end, and the figure notes it. A signed scale is symmetric
    about zero: white means zero, and equal strength for and against the class has equally strong colours.

    Args:
        kind: "signed" (red speaks for the explained class, blue against it), "magnitude" (the absolute value) or "positive"
            (only evidence for the class). Channels are summed before. Figures of attributions use "magnitude" by default if
            the trust of any of them is low, and note it: its signs are unreliable.
        scale: "each" uses one scale per map, which shows where it is strong; "shared" uses one for all maps of a method, so
            that they can be compared.
        percentile: the percentile of the absolute values at which colours end. 100 cuts nothing.
        overlay: the opacity (0 to 1) of the map at its strongest point, drawn over the explicand in grey and clear where it
            is zero. None draws the map alone.
        smooth: the width in pixels of a Gaussian that blurs the map. The figure notes it.
        cmap: a matplotlib colour map; by default RdBu_r (bwr over an image) for signed maps and inferno for others.
        bounds: the data values shown as black and white; by default (0, 1) or (0, 255) if the data lie inside, and
            otherwise the smallest and the largest value.
        size: the width of a panel in inches.

    Raises:
        InputError: if a field is not one of the values above.

    >>> MapStyle(kind="magnitude").cmap_name
    'inferno'
    """

    kind: Kind = "signed"
    scale: Sharing = "each"
    percentile: float = 99.0
    overlay: float | None = None
    smooth: float = 0.0
    cmap: str | None = None
    bounds: tuple[float, float] | None = None
    size: float = 2.0

    def __post_init__(self) -> None:
        check_choice(self.kind, Kind, "kind")
        check_choice(self.scale, Sharing, "scale")
        if not 0 < self.percentile <= 100:
            raise InputError(f"percentile must be above 0 and at most 100, got {describe(self.percentile)}")
        if self.overlay is not None and not 0 < self.overlay <= 1:
            raise InputError(f"overlay must be above 0 and at most 1, or None; got {describe(self.overlay)}")
        if not 0 <= self.smooth < float("inf"):
            raise InputError(f"smooth must be a number of pixels, 0 or more; got {describe(self.smooth)}")
        if self.cmap is not None and self.cmap not in matplotlib.colormaps:
            raise InputError(f"matplotlib has no colour map {describe(self.cmap)}; see matplotlib.colormaps")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise InputError(f"bounds must be (low, high) with low below high, got {describe(self.bounds)}")
        if not self.size > 0:
            raise InputError(f"size must be a positive number of inches, got {describe(self.size)}")

    @property
    def cmap_name(self) -> str:
        """The name of the colour map."""
        # RdBu_r is dark at its ends, which a grey image below would swallow
        signed = "RdBu_r" if self.overlay is None else "bwr"
        return self.cmap or (signed if self.kind == "signed" else "inferno")

    def transform(self, maps: Array) -> Array:
        """Return the part of signed maps (N, H, W) that is shown.

        The part is selected before the blur: neighbours of opposite signs would cancel, and a method with signs would look
        weaker than one without.
        """
        if self.kind != "signed":
            maps = np.abs(maps) if self.kind == "magnitude" else np.maximum(maps, 0)
        return blur(torch.from_numpy(maps), self.smooth).numpy() if self.smooth else maps

    def fit_scales(self, maps: Array) -> list[ColourScale]:
        """Return a scale for each map (N, H, W), individual or shared."""
        return fit_scales(list(maps), self.scale, self.percentile)

    def format_note(self, scales: Sequence[ColourScale], whose: str = "") -> str:
        """Return a note on how maps were turned into colours; `whose` names their scales, if no colour bar shows them."""
        is_cut = any(scale.is_cut for scale in scales)
        end = f"percentile {self.percentile:g} of |values|" if is_cut else "the largest |value|"
        cut = f"{whose and whose + ' '}colours end at {end}" if whose or is_cut else ""
        blurred = f"maps blurred by {self.smooth:g} px" if self.smooth else ""
        return "; ".join(filter(None, [cut, blurred]))

    def draw(self, axes: Axes, values: Array, scale: ColourScale, image: Array | None = None) -> AxesImage:
        """Draw one map (H, W), over the image if `overlay` is set."""
        alpha = None
        if self.overlay is not None and image is not None:
            draw_image(axes, image if image.ndim == 2 else image @ np.array([0.299, 0.587, 0.114]))
            alpha = self.overlay * np.minimum(np.abs(values) / scale.end, 1)
        low = -scale.end if self.kind == "signed" else 0.0
        return draw_image(axes, values, cmap=self.cmap_name, vmin=low, vmax=scale.end, alpha=alpha)

    def add_colour_bars(
        self,
        figure: Figure,
        maps: Sequence[AxesImage],
        scales: Sequence[ColourScale],
        quantity: str | None = "attribution",
        **options: Any,
    ) -> None:
        """Add a colour bar for each map, or one for a shared scale; marked at its ends, pointed where values lie beyond."""
        labels = {"signed": quantity or "", "magnitude": f"|{quantity}|", "positive": f"{quantity}, positive part"}
        for i, drawn in enumerate(maps[:1] if self.scale == "shared" else maps):
            ends = drawn.get_clim()
            extend = "neither" if not scales[i].is_cut else "both" if self.kind == "signed" else "max"
            beside = [each.axes for each in maps] if self.scale == "shared" else [drawn.axes]
            bar = figure.colorbar(drawn, ax=beside, extend=extend, **options)
            bar.set_ticks(ends, labels=[format_number(end) for end in ends])
            bar.ax.tick_params(labelsize="x-small", length=2)
            if options.get("location") == "bottom":
                align_end_labels(bar.ax)
            # the label goes between the two ends
            padding = -FontProperties(size="medium").get_size_in_points()
            bar.set_label(labels[self.kind] if quantity else "", fontsize="x-small", labelpad=padding)
            bar.outline.set_linewidth(0.5)

    def place_colour_bars(self, height: float, rows: int) -> dict[str, Any]:
        """Return options for colour bars of a column of panels: beside, or below if panels are too low, as for wide images."""
        if height < LOWEST_PANEL:
            return {"location": "bottom", "aspect": 30, "pad": 0.05}
        return {"shrink": min(1.0, 1.5 / rows)} if self.scale == "shared" else {}

    def panel_height(self, height: int, width: int) -> float:
        """Return the height of a panel for this image, in inches. A tall image is narrower than its panel."""
        return self.size * min(max(height / width, 1 / MOST_SLENDER), 2.0)
