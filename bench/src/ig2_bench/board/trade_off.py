"""Figures of quality against cost, with one labelled point for each method."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ig2.errors import InputError, describe
from ig2.plots.canvas import LINE_COLOURS, Canvas

# Where a label may stand beside its point, the nearest first; far ones get a line to it
OFFSETS = [(6, 0), (-6, 0), (0, 8), (0, -8)]
OFFSETS += [(side * x, up * y) for y in (9, 18, 27, 38, 50) for x in (6, 30) for side in (1, -1) for up in (1, -1)]


def trade_off(points: Mapping[str, tuple[float, float]], front: Collection[str] = (), *, cost: str, quality: str) -> Figure:
    """Draw the quality of each method against its cost, with the best and cheapest at the top left.

    Args:
        points: the cost, above 0, and the quality, higher is better, of each method by its label.
        front: the methods that no other beats in both, which are joined by a line.
        cost: the label of the horizontal axis, which is logarithmic.
        quality: the label of the vertical axis.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: if there are no points, or a cost is not above 0.
    """
    if not points or any(work <= 0 for work, _ in points.values()):
        raise InputError(f"points must have costs above 0, by their labels, got {describe(dict(points))}")
    figure = Canvas(9.0, 6.5, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    corners = sorted(points[label] for label in front)
    axes.plot(*([point[i] for point in corners] for i in (0, 1)), color=LINE_COLOURS[1], drawstyle="steps-post", zorder=1)
    for label, (work, worth) in points.items():
        colour = LINE_COLOURS[1] if label in front else LINE_COLOURS[0]
        axes.plot(work, worth, "o", color=colour, markersize=5, zorder=2)
    axes.margins(x=0.12, y=0.06)
    axes.set_xlabel(cost)
    axes.set_ylabel(quality)
    figure.draw_without_rendering()  # places of points are final then
    dots = [axes.transData.transform(point) for point in points.values()]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    places = [axes.transData.transform(corner) for corner in corners]
    for (x0, y0), (x1, y1) in pairwise(places):  # along the line, and up
        taken += [Bbox.from_extents(x0, y0 - 1, x1, y0 + 1), Bbox.from_extents(x1 - 1, y0, x1 + 1, y1)]
    frame, renderer = axes.bbox, figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for label in sorted(points, key=lambda label: (label not in front, points[label])):
        for x, y in [(-6, 7), (6, 7), *OFFSETS] if label in front else OFFSETS:  # the first that is free
            text = axes.annotate(
                label, points[label], (x, y), textcoords="offset points", fontsize=7, va="center",
                ha="left" if x > 0 else "right" if x < 0 else "center", fontweight="bold" if label in front else "normal",
                arrowprops={"arrowstyle": "-", "color": "0.7", "linewidth": 0.5} if max(abs(x), abs(y)) > 9 else None,
            )  # fmt: skip
            text.update_positions(renderer)
            box = Text.get_window_extent(text, renderer)  # an annotation's own would include the line to the point
            is_inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
            if is_inside and not any(box.overlaps(other) for other in taken):
                break
            if (x, y) != OFFSETS[-1]:
                text.remove()
        taken.append(box)
    return figure
