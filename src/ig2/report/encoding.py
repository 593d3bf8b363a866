"""Encoding of a report's pictures, scores, curves and settings for the page's script."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ig2.errors import describe, import_extra
from ig2.report.content import InputView, MethodView, ReferenceView
from ig2.verdict import NUMBERS
from ig2.views import Curve, Image, Numbers, Picture, View

# A reference's own map is a small picture beside the main one, and there may be hundreds: at most this many pixels a side.
REFERENCE_SIDE = 128
REFERENCE_PICTURE_SIDE = 160
REFERENCE_BITS = 8
THUMBNAIL_SIDE = 88  # twice what is shown, for dense screens
# Six photos by five methods with eight references each make 6 MB so; 16 bits would add half a megabyte.
MAP_BITS = 14
# More points than this on a curve would not be seen.
MOST_CURVE_POINTS = 101
# Pictures up to this side are kept exactly: blurring a digit of 28 pixels would show.
EXACT_PICTURE_SIDE = 64


class PictureStore:
    """A store of pictures as data URLs, each held once, even if several methods show it."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._indices: dict[tuple[bytes, int, int | None], int] = {}

    def add(self, picture: Image | None, side: int | None = None) -> int | None:
        """Add a picture, shrunk so that no side is longer than `side`, and return its index."""
        if picture is None:
            return None
        key = hashlib.sha256(picture.tobytes()).digest(), picture.shape[1], side
        if key not in self._indices:
            self._indices[key] = len(self.urls)
            self.urls.append(_encode_picture(picture, side))
        return self._indices[key]


def encode_thumbnail(view: View) -> str | None:
    """Return a small picture for the index, as a data URL; None for a view without one."""
    found = draw_thumbnail(view)
    return None if found is None else to_url(*found)


def draw_thumbnail(view: View) -> tuple[bytes, str] | None:
    """Return a small picture as a file with its media type; None for a view without one."""
    if not isinstance(view, Picture) or view.pixels is None:
        return None
    return compress(view.pixels, THUMBNAIL_SIDE)


def _encode_picture(picture: Image, side: int | None) -> str:
    return to_url(*compress(picture, side))


def to_url(content: bytes, kind: str) -> str:
    """Return a picture as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def compress(picture: Image, side: int | None) -> tuple[bytes, str]:
    """Return a picture as a file in whichever format is smaller, with its media type."""
    image = import_extra("PIL.Image", "image", "pictures in a report").fromarray(picture)
    if side is not None:
        image.thumbnail((side, side))
    files: dict[str, bytes] = {}
    for name in ("png",) if max(picture.shape) <= EXACT_PICTURE_SIDE else ("png", "jpeg"):
        buffer = io.BytesIO()
        image.save(buffer, name, **({"quality": 88} if name == "jpeg" else {}))
        files[name] = buffer.getvalue()
    smallest = min(files, key=lambda name: len(files[name]))
    return files[smallest], f"image/{smallest}"


def encode_input(view: InputView, pictures: PictureStore) -> dict[str, Any]:
    """Return the fields of an input as JSON."""
    methods = [_encode_method(method, view.view, pictures) for method in view.methods]
    return {**vars(view), "view": encode_view(view.view, pictures), "methods": methods}


def encode_view(view: View | None, pictures: PictureStore, side: int | None = None) -> dict[str, Any] | None:
    """Return how something is shown as JSON; its picture is put among the others, no larger than a side."""
    if view is None:
        return None
    fields = {"name": view.name, "part": view.part, **vars(view)}
    if isinstance(view, Picture):
        fields["pixels"] = pictures.add(view.pixels, side)
    if isinstance(view, Curve):
        fields |= {name: None if (series := fields[name]) is None else _round(series) for name in ("lowest", "highest")}
    return fields


def drop_nan(cell: Any) -> Any:
    """Return a cell as JSON has it: numbers that are not finite are None."""
    return None if isinstance(cell, (float, np.floating)) and not math.isfinite(cell) else cell


def _round(values: Numbers) -> list[list[float]]:
    """Return a curve in four digits, more than can be seen."""
    return [[float(f"{value:.4g}") for value in row] for row in values]


def _encode_method(method: MethodView, view: View, pictures: PictureStore) -> dict[str, Any]:
    return {
        **{name: value for name, value in vars(method).items() if name != "numbers"},
        **{name: drop_nan(method.numbers.get(name)) for name in NUMBERS},
        "verdict": method.verdict,
        "marks": method.mark(),
        "is_against": method.is_against,
        "scores": encode_scores(method.scores),
        "settings": _encode_settings(method.settings),
        "output_curve": encode_curves(method.output_curve),
        "distance_curve": encode_curves(method.distance_curve),
        "metric_curves": {name: encode_curves(curve[None]) for name, curve in method.metric_curves.items()},
        "references": [_encode_reference(reference, method, view, pictures) for reference in method.references],
        "gradcf": encode_view(method.gradcf, pictures, REFERENCE_PICTURE_SIDE),
    }


def _encode_reference(reference: ReferenceView, method: MethodView, view: View, pictures: PictureStore) -> dict[str, Any]:
    scores: Any = None
    if reference.scores is not None and len(method.references) > 1:  # the only one's own are the method's
        scores = encode_scores(reference.scores)
        if reference.scores.ndim == 2:
            scores = pack_map(pool_map(reference.scores, view), REFERENCE_BITS)
    return {
        **vars(reference),
        "marks": method.mark(reference),
        "view": encode_view(reference.view, pictures, REFERENCE_PICTURE_SIDE),
        "gradcf": encode_view(reference.gradcf, pictures, REFERENCE_PICTURE_SIDE),
        "scores": scores,
    }


def encode_scores(scores: Numbers) -> Any:
    """Return a map packed into MAP_BITS per pixel; words and columns unchanged."""
    return pack_map(scores, MAP_BITS) if scores.ndim == 2 else scores.astype(float).tolist()


def pack_map(values: Numbers, bits: int) -> dict[str, Any]:
    """Quantise to integer multiples of a scale, with an error of at most half of it; deflated, in base64."""
    scale = float(np.abs(values).max()) / (2 ** (bits - 1) - 1) or 1.0
    whole = np.rint(values / scale).astype("<i1" if bits <= 8 else "<i2")
    # low bytes first, then high ones: the high ones hardly vary, and deflate to a third when they stand together
    planes = whole.reshape(-1, 1).view(np.uint8).T.tobytes()
    data = base64.b64encode(zlib.compress(planes, 9)).decode()
    return {"shape": list(values.shape), "bits": bits, "scale": scale, "data": data}


def pool_map(scores: Numbers, view: View) -> Numbers:
    """Return the means of blocks that make the map no larger than REFERENCE_SIDE: squares, of a curve along time alone."""
    block = block_side(scores)
    for axis in (0, 1) if isinstance(view, Picture) else (1,):
        starts = np.arange(0, scores.shape[axis], block)
        sizes = np.diff(np.append(starts, scores.shape[axis]))
        scores = np.add.reduceat(scores, starts, axis=axis) / (sizes[:, None] if axis == 0 else sizes)
    return scores


def block_side(scores: Numbers) -> int:
    """Return the side of a block of a reference's map, in pixels."""
    return int(-(-max(scores.shape) // REFERENCE_SIDE))


def encode_curves(curves: Numbers | None) -> dict[str, Any] | None:
    """Return each reference's curve in five digits, at no more steps than are visible."""
    if curves is None:
        return None
    last = curves.shape[1] - 1
    steps = np.unique(np.rint(np.linspace(0, last, min(last + 1, MOST_CURVE_POINTS))).astype(int))
    return {"steps": steps.tolist(), "values": [[float(f"{value:.5g}") for value in curve[steps]] for curve in curves]}


def _encode_settings(value: Any) -> Any:
    """Convert a setting to JSON types."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _encode_settings(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode_settings(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return describe(value) if hasattr(value, "shape") else str(value)
