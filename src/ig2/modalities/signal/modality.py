"""Signals as a kind of data: files of sound, and curves of what a store keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from ig2._utils.checks import is_count
from ig2._utils.fields import is_positive, is_texts, or_null
from ig2.modalities.modality import Modality, clean
from ig2.modalities.signal.sound import SUFFIXES, read_sound
from ig2.views import Curve, Numbers, View, sum_bins


class Signals(Modality):
    """Time series and sounds."""

    name = "signal"
    nouns = "signals"
    shows = Curve
    maker = "ig2.modalities.signal.subject"
    suffixes = SUFFIXES
    originals = "signal"
    fields = (
        ("view.layout", lambda content: content in ("CT", "TC", "T"), "CT, TC or T"),
        ("view.steps", is_count, "a positive integer"),
        ("view.rate", or_null(is_positive), "a positive number or null"),
        ("view.channels", is_texts, "a list of texts"),
        ("view.window", is_count, "a positive integer"),
    )

    def show_row(self, row: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[Curve, Numbers]:
        """Return a curve for each channel; values of windows are sums over all channels.

        Intervals of a curve are of one length: where the last window is shorter than the others, each is spread evenly over as
        many intervals as it needs, which preserves sums.
        """
        values, about = clean(row["values"]), manifest["view"]
        channels, steps, layout = tuple(map(str, about["channels"])), int(about["steps"]), about["layout"]
        ordered = order_channels(values, layout) if values.ndim == len(layout) else values
        if ordered.shape == (len(channels), steps):
            return Curve(channels, steps, about["rate"]), sum_bins(ordered)
        if values.ndim == 2:  # as they are shown
            return Curve(channels, steps, about["rate"]), values
        single = channels if len(channels) == 1 else ("all channels",)
        window = int(about.get("window", 1))
        interval = math.gcd(window, steps)
        lengths = np.diff([*range(0, steps, window), steps]) // interval
        if len(values) == len(lengths):
            values = np.repeat(values / lengths, lengths)
        return Curve(single, steps, about["rate"]), sum_bins(values.reshape(1, -1))

    def show_original(self, content: Any, view: View, scores: Numbers | None, about: Mapping[str, Any]) -> Curve:
        assert isinstance(view, Curve) and scores is not None
        if isinstance(content, (str, PathLike)):
            series = read_sound(content)[0].T
            series = series.mean(axis=0, keepdims=True) if len(about["channels"]) == 1 else series
        else:
            series = order_channels(np.asarray(content), about["layout"])
        series = series[:, : view.steps]
        fits = series.shape == (len(view.channels), view.steps)
        return Curve.bin(series, view.channels, view.rate, most=scores.shape[1]) if fits else view


def order_channels(sample: Any, layout: str) -> Any:
    """Return a tensor or an array of this layout as (channels, T)."""
    return sample[None] if layout == "T" else sample.T if layout == "TC" else sample


SIGNALS = Signals()
