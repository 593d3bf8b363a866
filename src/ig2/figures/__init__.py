"""The paper's figures, each computed once and drawn from what was stored. Needs matplotlib: pip install 'ig2[plots]'.

`make("toy")` computes and draws one. `FIGURES["toy"].compute(Options())` gives its numbers, and `draw` a matplotlib figure of
them.
"""

from ig2.figures.base import Made, Options, PaperFigure, Stored
from ig2.figures.registry import FIGURES, make

__all__ = ["FIGURES", "Made", "Options", "PaperFigure", "Stored", "make"]
