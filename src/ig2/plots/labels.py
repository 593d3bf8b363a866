"""Text on figures: external names, numbers, and fonts for any script."""

from __future__ import annotations

import textwrap
from functools import cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib.font_manager import fontManager

# For scripts that matplotlib's own font lacks, those of these that are installed stand in.
FALLBACK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans",
    "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI", "Noto Sans Devanagari", "Noto Sans Thai",
    "Arial Unicode MS", "Segoe UI Symbol", "Noto Sans Symbols2",
)  # fmt: skip


@cache
def _installed_fallbacks() -> tuple[str, ...]:
    installed = {font.name for font in fontManager.ttflist}
    return tuple(name for name in FALLBACK_FONTS if name in installed)


def font_families() -> list[str]:
    """Return the user's fonts, with fallbacks for scripts they lack."""
    return [*matplotlib.rcParams["font.family"], *_installed_fallbacks()]


def text_options() -> dict[str, Any]:
    """Return options for external text: literal, so that dollar signs start no formula, and in any script with a font."""
    return {"parse_math": False, "family": font_families()}


def clean_text(text: object, longest: int | None = None) -> str:
    """Return a text on one line, with a space for each character that cannot be shown, truncated if too long."""
    line = "".join(character if character.isprintable() else " " for character in str(text))
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"


def wrap_text(text: object, inches: float) -> str:
    """Wrap external text in at most three lines, none much wider than this."""
    width = max(int(13 * inches), 8)  # small letters are about a thirteenth of an inch
    return "\n".join(textwrap.wrap(clean_text(text), width, max_lines=3, placeholder=" …"))


def format_number(value: float) -> str:
    """Format a number briefly for a figure, with a true minus sign."""
    return f"{value:.3g}".replace("-", "−")


def choose_ink(background: tuple[float, float, float]) -> str:
    """Return black or white, whichever has more contrast: the two are equal at a luminance of 0.179."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in background]
    return "white" if np.dot(linear, [0.2126, 0.7152, 0.0722]) < 0.179 else "black"
