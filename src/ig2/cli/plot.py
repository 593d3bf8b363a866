"""`ig2 plot`: figures of a whole table, from a store or a file of attributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ig2
from ig2 import plots
from ig2._utils.suggestions import ChoiceError, suggest
from ig2.cli.inputs import check_exists
from ig2.cli.options import FIGURES_OF_COLUMNS, PlotOptions
from ig2.cli.output import open_console, print_path

FORMATS = (".png", ".pdf", ".svg")
TITLE = 8  # characters


def run(options: PlotOptions) -> None:
    """Draw the figure, save it, and print where it is."""
    if options.figure not in FIGURES_OF_COLUMNS:
        raise ChoiceError(f"there is no figure {options.figure!r}{suggest(options.figure, FIGURES_OF_COLUMNS)}")
    is_dependence = options.figure == "dependence"
    if is_dependence and options.column is None:
        raise ChoiceError("a dependence plot shows one column: name it with --column")
    if not is_dependence and (options.column or options.colour):
        raise ChoiceError(f"--column and --colour are for --figure dependence, and this is {options.figure}: omit them")
    if options.figure == "waterfall" and options.target is not None:
        raise ChoiceError("a waterfall shows one row, chosen with --row: omit --target")
    out = Path(f"{options.figure}.png") if options.out is None else options.out
    if out.suffix.lower() not in FORMATS:
        raise ChoiceError(f"--out {out} is not a figure file: choose a name that ends in {', '.join(FORMATS)}")
    check_exists(options.place)
    result = ig2.open(options.place) if options.place.is_dir() else ig2.Attribution.load(options.place)
    settings: dict[str, Any] = {"top": options.top, "target": options.target}
    if is_dependence:
        settings = {"column": options.column, "colour": options.colour, "target": options.target}
    elif options.figure == "waterfall":
        settings = {"row": options.row - 1, "top": options.top}
    getattr(plots, options.figure)(result, **settings).savefig(out, bbox_inches="tight", dpi=150)
    print_path(open_console(), options.figure, out, TITLE + len(options.figure))
