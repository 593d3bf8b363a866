"""How a map is drawn: which part of it, in which colours, and how far they reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage

from ig2.errors import InputError, describe
from ig2.paths.blur import blur
from ig2.plots.canvas import align_ends, bare, number
from ig2.plots.readings import Array

Kind = Literal["signed", "magnitude", "positive"]
# Beyond this an image with square pixels would be a hairline.
MOST_SLENDER = 6.0
FAINTEST = 1e-200
# A colour bar beside a panel that is lower than this, in inches, has no room for its label.
LOWEST = 1.2


@dataclass(frozen=True)
class Scale:
    """Where the colours of a map end, and whether some of the map lies beyond."""

    end: float
    cut: bool


@dataclass(frozen=True)
class Look:
    """How maps are drawn. The image figures take these as keywords.

    Colours end at a high percentile of the absolute values, because a few extreme pixels would otherwise turn the rest
    white; the colour bar is pointed where something lies beyond its end, and the figure says so. A signed scale is symmetric
    about zero, so that white means nothing and equal strength for and against the class gives equally strong colours.

    Args:
        kind: "signed" (red speaks for the explained class, blue against it), "magnitude" (the absolute value) or "positive"
            (only what speaks for the class). Channels are summed before.
        scale: "each" map has its own scale, which shows where it is strong; "shared" gives the maps of one method the same,
            so that they can be compared.
        percentile: of the absolute values, where colours end. 100 cuts nothing.
        overlay: draw the map over the explicand in grey, this opaque (0 to 1) where it is strongest and clear where it is
            zero. None draws the map alone.
        smooth: blur the map with a Gaussian of this many pixels. The figure says so.
        cmap: a matplotlib colour map; by default RdBu_r (bwr over an image) for signed maps and inferno for others.
        bounds: the data values shown as black and white; by default (0, 1) or (0, 255) where the data lie inside, and
            otherwise the smallest and the largest value.
        size: the width of a panel in inches.
    """

    kind: Kind = "signed"
    scale: Literal["each", "shared"] = "each"
    percentile: float = 99.0
    overlay: float | None = None
    smooth: float = 0.0
    cmap: str | None = None
    bounds: tuple[float, float] | None = None
    size: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in ("signed", "magnitude", "positive"):
            raise InputError(f"kind must be 'signed', 'magnitude' or 'positive', got {describe(self.kind)}")
        if self.scale not in ("each", "shared"):
            raise InputError(f"scale must be 'each' or 'shared', got {describe(self.scale)}")
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
    def colours(self) -> str:
        """The name of the colour map."""
        # RdBu_r is dark at its ends, which a grey picture below would swallow
        signed = "RdBu_r" if self.overlay is None else "bwr"
        return self.cmap or (signed if self.kind == "signed" else "inferno")

    def of(self, maps: Array) -> Array:
        """The part of signed maps (N, H, W) that is shown."""
        if self.smooth:
            maps = blur(torch.from_numpy(maps), self.smooth).numpy()
        if self.kind == "signed":
            return maps
        return np.abs(maps) if self.kind == "magnitude" else np.maximum(maps, 0)

    def scales(self, maps: Array) -> list[Scale]:
        """A scale for each map (N, H, W): its own, or the same for all."""
        if self.scale == "shared":
            return [self._scale(maps)] * len(maps)
        return [self._scale(one) for one in maps]

    def _scale(self, values: Array) -> Scale:
        size = np.abs(values)
        largest = float(size.max())
        # more than the percentile may be exactly zero, as in a map of a few pixels; below FAINTEST matplotlib sees no range
        end = float(np.percentile(size, self.percentile))
        end = next((candidate for candidate in (end, largest) if candidate > FAINTEST), 1.0)
        return Scale(end, largest > end)

    def remark(self, scales: Sequence[Scale]) -> str:
        """What was done to the maps on the way to their colours, in words."""
        cut = any(scale.cut for scale in scales)
        done = [f"colours end at percentile {self.percentile:g} of |values|"] if cut else []
        if self.smooth:
            done.append(f"maps blurred by {self.smooth:g} px")
        return "; ".join(done)

    def draw(self, axes: Axes, values: Array, scale: Scale, picture: Array | None = None) -> AxesImage:
        """One map (H, W), over the picture where an overlay is asked for."""
        low = -scale.end if self.kind == "signed" else 0.0
        alpha = None
        if self.overlay is not None and picture is not None:
            grey = picture if picture.ndim == 2 else picture @ np.array([0.299, 0.587, 0.114])
            show(axes, grey)
            alpha = self.overlay * np.minimum(np.abs(values) / scale.end, 1)
        image = axes.imshow(
            values,
            cmap=self.colours,
            vmin=low,
            vmax=scale.end,
            alpha=alpha,
            aspect=_aspect(values),
            interpolation="antialiased",
        )
        bare(axes)
        return image

    def colour_bars(
        self,
        figure: Figure,
        images: Sequence[AxesImage],
        axes: Sequence[Axes],
        scales: Sequence[Scale],
        what: str | None = "attribution",
        **options: Any,
    ) -> None:
        """One for each map, or one for all where they share a scale; marked at its ends, pointed where values lie beyond."""
        shared = self.scale == "shared"
        signed = self.kind == "signed"
        label = {"signed": what, "magnitude": f"|{what}|", "positive": f"{what}, positive part"}[self.kind] if what else ""
        for i in range(1 if shared else len(images)):
            end, cut = scales[i].end, scales[i].cut
            low = -end if signed else 0.0
            extend = "neither" if not cut else "both" if signed else "max"
            beside = list(axes) if shared else [axes[i]]
            bar = figure.colorbar(images[i], ax=beside, extend=extend, **options)
            bar.set_ticks([low, end], labels=[number(low), number(end)])
            bar.ax.tick_params(labelsize="x-small", length=2)
            if options.get("location") == "bottom":
                align_ends(bar.ax)
            # between the two ends there is room for it
            bar.set_label(label, fontsize="x-small", labelpad=-FontProperties(size="medium").get_size_in_points())
            bar.outline.set_linewidth(0.5)

    def bar_place(self, height: float, rows: int) -> dict[str, Any]:
        """Where a column of panels has its colour bars: beside, or below where the panels are too low, as wide images are."""
        if height < LOWEST:
            return {"location": "bottom", "aspect": 30, "pad": 0.05}
        return {"shrink": min(1.0, 1.5 / rows)} if self.scale == "shared" else {}

    def end_of(self, scale: Scale) -> str:
        """Where a map's colours end, for below it."""
        return ("± " if self.kind == "signed" else "0 to ") + number(scale.end)

    def panel(self, height: int, width: int) -> float:
        """How high a panel of this image is, in inches. A tall image is narrower than its panel."""
        return self.size * min(max(height / width, 1 / MOST_SLENDER), 2.0)


def show(axes: Axes, picture: Array) -> AxesImage:
    """A picture in [0, 1], (H, W) or (H, W, 3)."""
    image = axes.imshow(picture, cmap="gray", vmin=0, vmax=1, aspect=_aspect(picture), interpolation="antialiased")
    bare(axes)
    return image


def _aspect(picture: Array) -> Literal["equal", "auto"]:
    height, width = picture.shape[:2]
    return "equal" if max(height, width) <= MOST_SLENDER * min(height, width) else "auto"
