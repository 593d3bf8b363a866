"""Images as a kind of data: their files, and their cells in data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ig2._utils.fields import is_object, is_positive, is_size, is_text, or_null
from ig2.modalities.image.reading import SUFFIXES, Framing, read_image
from ig2.modalities.modality import Modality
from ig2.views import Numbers, Picture, View


class Images(Modality):
    """Photos and other images."""

    name = "image"
    nouns = "images"
    shows = Picture
    suffixes = SUFFIXES
    in_rows = True
    has_places = True
    originals = "image"
    fields = (
        ("view.framing", or_null(is_object), "an object or null"),
        ("view.framing.size", is_size, "a positive integer or two"),
        ("view.framing.cover", or_null(is_size), "a positive integer, two or null"),
        ("view.framing.interpolation", is_text, "a text"),
        ("view.value_range", or_null(is_positive), "a positive number or null"),
    )

    def is_cell(self, cell: Any) -> bool:
        return isinstance(cell, (bytes, Mapping)) or hasattr(cell, "convert")

    def extract(self, content: Any, column: str | None = None) -> Any:
        content = super().extract(content, column)
        if isinstance(content, Mapping):  # an encoded image, as Hugging Face stores it
            content = content.get("bytes") or content.get("path")
        return content

    def show_original(self, content: Any, view: View, scores: Numbers | None, about: Mapping[str, Any]) -> Picture:
        """Return the image as the network saw it; without a known framing, its middle in the proportions of the map."""
        image, framing = read_image(content), about.get("framing")
        if framing is not None:
            size, cover = (tuple(side) if isinstance(side := framing.get(name), list) else side for name in ("size", "cover"))
            image = Framing(size, cover, str(framing.get("interpolation", "bilinear")))(image)
        elif scores is not None:
            times = max(1, round(224 / max(scores.shape)))
            image = Framing((scores.shape[0] * times, scores.shape[1] * times))(image)
        return Picture(np.asarray(image, dtype=np.uint8))


IMAGES = Images()
