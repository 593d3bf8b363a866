"""The images of a run, from the source named in the command: never from a path in a request or a store."""

from __future__ import annotations

import io
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2.errors import InputError, describe, import_extra
from ig2.explorer.maps import Map, find_view
from ig2.modalities.image.reading import Framing, read_image
from ig2.modalities.signal.recordings import order_channels, read_sound
from ig2.runs.sources import Rows, Source, extract_input, find_source
from ig2.views import Curve, Picture, View

SMALL = 96  # pixels of a thumbnail's longer side


class Pictures:
    """Images by the ids of their items, as the network saw them.

    The source is listed once. A request can access only the ids in that list.

    Args:
        source: a folder or pattern of images, a data set, or a `Source`.
        manifest: the manifest of the store, with the framing and the column.

    Raises:
        InputError: if the source has no images by id.
    """

    def __init__(self, source: Any, manifest: Mapping[str, Any]) -> None:
        self.source: Source = find_source(source)
        self.about = manifest.get("view") or {}
        wanted = "signal" if find_view(manifest) == "curve" else "image"
        if isinstance(self.source, Rows) or wanted not in self.source.kinds:
            raise InputError(
                f"--source {describe(source)} has no {wanted}s that can be read one by one: name the folder of {wanted}s, or "
                "module:function that returns the data set"
            )
        self.handles = {item.id: item.content for item in self.source.items()}
        self.column = manifest["fingerprint"].get("settings", {}).get("column")
        self.framing = _read_framing(manifest.get("framing"))

    def __contains__(self, identity: str) -> bool:
        return identity in self.handles

    def read(self, identity: str, shape: tuple[int, int] | None = None) -> NDArray[np.uint8]:
        """Return the image of an item, (H, W, 3), framed as for the network.

        Args:
            identity: the id.
            shape: the shape of the item's map; if the framing is unknown, the centre of the image in this proportion is shown.

        Raises:
            InputError: if there is no image with that id, or it is broken.
        """
        if identity not in self.handles:
            raise InputError(f"there is no image {describe(identity)} in the source")
        image = read_image(extract_input(self.source.load(self.handles[identity]), "image", self.column))
        framing = self.framing
        if framing is None and shape is not None:
            times = max(1, round(224 / max(shape)))
            framing = Framing((shape[0] * times, shape[1] * times))
        return np.asarray(image if framing is None else framing(image), dtype=np.uint8)

    def view(self, identity: str, shown: Map) -> View | None:
        """Return how an item itself is shown under its map; None if it is missing or broken."""
        if identity not in self.handles:
            return None
        try:
            if isinstance(shown.view, Curve):
                return self._read_curve(identity, shown.view, shown.scores.shape[1])
            return Picture(self.read(identity, (shown.scores.shape[0], shown.scores.shape[1])))
        except InputError:  # a broken file: the map alone is shown
            return None

    def _read_curve(self, identity: str, shown: Curve, intervals: int) -> Curve:
        content = extract_input(self.source.load(self.handles[identity]), "signal", self.column)
        if isinstance(content, (str, PathLike)):
            series = read_sound(content)[0].T
            series = series.mean(axis=0, keepdims=True) if len(self.about["channels"]) == 1 else series
        else:
            series = order_channels(np.asarray(content), self.about["layout"])
        series = series[:, : shown.steps]
        fits = series.shape == (len(shown.channels), shown.steps)
        return Curve.bin(series, shown.channels, shown.rate, most=intervals) if fits else shown

    def encode(self, identity: str, shape: tuple[int, int] | None = None) -> bytes:
        """Return a small PNG of an item's image."""
        image = import_extra("PIL.Image", "image", "pictures").fromarray(self.read(identity, shape))
        image.thumbnail((SMALL, SMALL))
        stream = io.BytesIO()
        image.save(stream, "png")
        return stream.getvalue()


def _read_framing(content: Any) -> Framing | None:
    if not isinstance(content, Mapping):
        return None
    sides: dict[str, Any] = {
        name: tuple(side) if isinstance(side := content.get(name), list) else side for name in ("size", "cover")
    }
    return Framing(sides["size"], sides["cover"], str(content.get("interpolation", "bilinear")))
