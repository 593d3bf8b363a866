"""The figure itself, and text from outside on it."""

from __future__ import annotations

import io
import textwrap
from functools import cache
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

# The ends of matplotlib's RdBu, which people who confuse red and green tell apart.
FOR, AGAINST = "#b2182b", "#2166ac"
QUIET = "0.35"
# Writing that matplotlib's own font lacks: those of these that are installed stand in.
STAND_INS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans",
    "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI", "Noto Sans Devanagari", "Noto Sans Thai",
    "Arial Unicode MS", "Segoe UI Symbol", "Noto Sans Symbols2",
)  # fmt: skip


class Canvas(Figure):
    """A matplotlib figure that pyplot knows nothing of, and that a notebook shows by itself."""

    def __init__(self, width: float, height: float, **options: Any) -> None:
        super().__init__(figsize=(width, height), **options)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        return png(self)


def png(figure: Figure) -> bytes:
    """A figure as a PNG file's bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


@cache
def _installed() -> tuple[str, ...]:
    names = {font.name for font in fontManager.ttflist}
    return tuple(name for name in STAND_INS if name in names)


def families() -> list[str]:
    """The user's fonts, and those that stand in for writing they lack."""
    return [*matplotlib.rcParams["font.family"], *_installed()]


def outside() -> dict[str, Any]:
    """How text from outside is set: as it is, so that dollar signs start no formula, and in any writing there is a font for."""
    return {"parse_math": False, "family": families()}


def fitted(text: object, inches: float) -> str:
    """A text from outside in lines that are no wider than about this, three of them at most."""
    width = max(int(13 * inches), 8)  # small letters are about a thirteenth of an inch
    return "\n".join(textwrap.wrap(printable(text), width, max_lines=3, placeholder=" …"))


def printable(text: object, longest: int | None = None) -> str:
    """A text on one line, with a space where a character cannot be shown, and cut where it is too long."""
    shown = "".join(character if character.isprintable() else " " for character in str(text))
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"


def bare(axes: Axes) -> None:
    """No ticks and no frame; unlike `set_axis_off` this keeps the labels."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def align_ends(axes: Axes) -> None:
    """The two labels of a horizontal colour bar stay between its ends, clear of its neighbours."""
    for label, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
        label.set(horizontalalignment=side)


def note(figure: Figure, *texts: str) -> None:
    """A quiet line below everything, if there is something to say."""
    said = "; ".join(text for text in texts if text)
    if said:
        # the smallest letters are about a sixteenth of an inch
        lines = textwrap.fill(said, max(int(16 * figure.get_figwidth()), 20))
        figure.supxlabel(lines, fontsize="x-small", color=QUIET)


def left_out(count: int, total: int) -> str:
    return "" if count >= total else f"the first {count} of {total} explicands"


def number(value: float) -> str:
    """A number as short as a figure needs it, with a real minus sign."""
    return f"{value:.3g}".replace("-", "−")
