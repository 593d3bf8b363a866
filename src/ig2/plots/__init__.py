"""Figures of attributions. Needs matplotlib: pip install 'ig2[plots]'."""

from ig2.plots.figures import attribution

__all__ = ["attribution"]
