"""Figures of attributions. Needs matplotlib: pip install 'ig2[plots]'.

Every function, except the two that return HTML, returns a new matplotlib figure outside pyplot: change it, save it with
`savefig`, or let a notebook show it.

>>> import torch, ig2
>>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()
>>> attribution = ig2.IntegratedGradients()(net, torch.rand(2, 1, 8, 8))
>>> figure = ig2.plots.heat_map(attribution, kind="magnitude", scale="shared")
>>> figure.axes[0].get_title().startswith("class")
True
"""

import os

from ig2.errors import InputError, import_extra

try:
    import_extra("matplotlib", "plots", "plotting")
except ValueError as error:  # matplotlib reads this variable on import
    raise InputError(
        f"the environment variable MPLBACKEND is {os.environ.get('MPLBACKEND')!r}, which matplotlib refuses: unset it, or "
        "set it to 'agg'"
    ) from error

from ig2.plots.colours import MapStyle
from ig2.plots.columns import beeswarm, dependence, importance, waterfall
from ig2.plots.curves import distance_curve, output_curve
from ig2.plots.images import counterfactual, grid, heat_map, per_reference
from ig2.plots.overview import attribution, html
from ig2.plots.signals import signal
from ig2.plots.tables import bars
from ig2.plots.texts import text, text_html
from ig2.plots.tokens import token_map, token_map_html

__all__ = [
    "MapStyle",
    "attribution",
    "bars",
    "beeswarm",
    "counterfactual",
    "dependence",
    "distance_curve",
    "grid",
    "heat_map",
    "html",
    "importance",
    "output_curve",
    "per_reference",
    "signal",
    "text",
    "text_html",
    "token_map",
    "token_map_html",
    "waterfall",
]
