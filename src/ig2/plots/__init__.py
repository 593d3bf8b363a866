"""Figures of attributions. Needs matplotlib: pip install 'ig2[plots]'.

Every function but the two that return HTML gives a matplotlib figure of its own, outside pyplot: change it, save it with
`savefig`, or let a notebook show it.
"""

from ig2.errors import import_extra

import_extra("matplotlib", "plots", "plotting")

from ig2.plots.curves import distance_curve, output_curve  # noqa: E402
from ig2.plots.figures import attribution  # noqa: E402
from ig2.plots.images import counterfactual, grid, heat_map, per_reference  # noqa: E402
from ig2.plots.look import Look  # noqa: E402
from ig2.plots.notebook import html  # noqa: E402
from ig2.plots.tables import bars  # noqa: E402
from ig2.plots.words import text, text_html  # noqa: E402

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
