"""Figures of attributions. Needs matplotlib: pip install 'ig2[plots]'.

Every function but the two that return HTML gives a matplotlib figure of its own, outside pyplot: change it, save it with
`savefig`, or let a notebook show it.
"""

import os

from ig2.errors import InputError, import_extra

try:
    import_extra("matplotlib", "plots", "plotting")
except ValueError as error:  # it looks at this variable as it is imported
    raise InputError(
        f"the environment variable MPLBACKEND is {os.environ.get('MPLBACKEND')!r}, which matplotlib refuses: unset it, or "
        "set it to 'agg'"
    ) from error

from ig2.plots.curves import distance_curve, output_curve
from ig2.plots.figures import attribution
from ig2.plots.images import counterfactual, grid, heat_map, per_reference
from ig2.plots.look import Look
from ig2.plots.notebook import html
from ig2.plots.tables import bars
from ig2.plots.words import text, text_html

__all__ = [
    "Look",
    "attribution",
    "bars",
    "counterfactual",
    "distance_curve",
    "grid",
    "heat_map",
    "html",
    "output_curve",
    "per_reference",
    "text",
    "text_html",
]
