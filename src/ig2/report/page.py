"""A report as one HTML file that opens from disk and asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from os import PathLike
from typing import Any

import numpy as np

from ig2._utils.files import write_file
from ig2.attribution import LARGE_RESIDUAL, LITTLE_ARRIVAL
from ig2.errors import InputError, describe, import_extra
from ig2.report.content import Content, InputView, MethodView, Numbers, Picture, ReferenceView

# A reference's own map is a small picture beside the main one, and there may be hundreds: at most this many pixels a side.
REFERENCE_SIDE = 128
REFERENCE_PICTURE_SIDE = 160
REFERENCE_BITS = 8
# Six photos by five methods with eight references each make 6 MB so; 16 bits would add half a megabyte.
MAP_BITS = 14
# More points than this on a curve would not be seen.
MOST_CURVE_POINTS = 101
# Below this share of the change, a residual is what float32 leaves of nothing.
ROUNDING = 1e-5
# Pictures up to this side are kept exactly: blurring a digit of 28 pixels would show.
EXACT_PICTURE_SIDE = 64


def write(content: Content, path: str | PathLike[str]) -> None:
    """Write a report to `path`. Either the whole file is there in the end, or whatever was there before.

    Args:
        content: what it shows.
        path: of the HTML file.
    """
    # names of files may hold bytes that are no text, and UTF-8 refuses those
    page = render(content).encode("utf-8", errors="replace")
    write_file(path, page)


def render(content: Content) -> str:
    """The page as text."""
    jinja2 = import_extra("jinja2", "report", "a report")
    markup = import_extra("markupsafe", "report", "a report").Markup
    _check(content)
    files = resources.files("ig2.report")
    script, style = (files.joinpath(name).read_text("utf-8") for name in ("page.js", "page.css"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(number=_number, percent=_percent, listed=lambda names: _listed(names, markup))
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    pictures = _Pictures()
    data: dict[str, Any] = {"inputs": [_input_data(view, pictures) for view in content.inputs], "pictures": pictures.urls}
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment.from_string(files.joinpath("page.html.j2").read_text("utf-8"))
    page: str = template.render(
        content=content,
        data=data,
        views=[_input_words(view, entry) for view, entry in zip(content.inputs, data["inputs"], strict=True)],
        script=markup(script),
        style=markup(style),
        policy=(
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        ),
    )
    return page


# -- what the script draws ---------------------------------------------------------------------------------------------


class _Pictures:
    """Every picture once, however many methods show it."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._known: dict[tuple[bytes, int, int | None], int] = {}

    def add(self, picture: Picture | None, side: int | None = None) -> int | None:
        """The number of a picture, shrunk so that no side is longer than `side`."""
        if picture is None:
            return None
        key = hashlib.sha256(picture.tobytes()).digest(), picture.shape[1], side
        if key not in self._known:
            self._known[key] = len(self.urls)
            self.urls.append(_data_url(picture, side))
        return self._known[key]


def _data_url(picture: Picture, side: int | None) -> str:
    image = import_extra("PIL.Image", "image", "pictures in a report").fromarray(picture)
    if side is not None:
        image.thumbnail((side, side))
    written: dict[str, bytes] = {}
    formats = ("PNG",) if max(picture.shape) <= EXACT_PICTURE_SIDE else ("PNG", "JPEG")
    for name in formats:
        buffer = io.BytesIO()
        image.save(buffer, name, **({"quality": 88} if name == "JPEG" else {}))
        written[name] = buffer.getvalue()
    best = min(written, key=lambda name: len(written[name]))
    return f"data:image/{best.lower()};base64,{base64.b64encode(written[best]).decode()}"


def _input_data(view: InputView, pictures: _Pictures) -> dict[str, Any]:
    return {
        "name": view.name,
        "kind": view.kind,
        "prediction": view.prediction,
        "probability": _float(view.probability),
        "target": view.target,
        "contrasted": list(view.contrasted),
        "picture": pictures.add(view.picture),
        "units": list(view.units),
        "cells": list(view.cells),
        "methods": [_method_data(method, pictures) for method in view.methods],
    }


def _method_data(method: MethodView, pictures: _Pictures) -> dict[str, Any]:
    return {
        "name": method.name,
        "scores": _scores(method.scores),
        "output": _float(method.output),
        "baseline_output": _float(method.baseline_output),
        "residual": _float(method.residual),
        "verdict": method.verdict,
        "trust": _float(method.trust),
        "arrival": _float(method.arrival),
        "reference_output": _float(method.reference_output),
        "settings": _plain(method.settings),
        "output_curve": _curve(method.output_curve),
        "distance_curve": _curve(method.distance_curve),
        "references": [_reference_data(reference, pictures, len(method.references)) for reference in method.references],
        "gradcf": pictures.add(method.gradcf),
    }


def _reference_data(reference: ReferenceView, pictures: _Pictures, among: int) -> dict[str, Any]:
    scores = reference.scores if among > 1 else None  # the only one's own are the method's
    return {
        "label": reference.label,
        "output": _float(reference.output),
        "text": reference.text,
        "picture": pictures.add(reference.picture, REFERENCE_PICTURE_SIDE),
        "scores": None if scores is None else _packed(_pooled(scores), REFERENCE_BITS) if scores.ndim == 2 else _scores(scores),
    }


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)  # NumPy's are no JSON


def _scores(scores: Numbers) -> Any:
    """A map packed into MAP_BITS a pixel; words and columns as they are."""
    return _packed(scores, MAP_BITS) if scores.ndim == 2 else scores.astype(float).tolist()


def _packed(values: Numbers, bits: int) -> dict[str, Any]:
    """Whole multiples of a scale, so that no number is off by more than half of it; deflated, in base64."""
    largest = float(np.abs(values).max())
    scale = largest / (2 ** (bits - 1) - 1) or 1.0
    whole = np.rint(values / scale).astype("<i1" if bits <= 8 else "<i2")
    # low bytes first, then high ones: the high ones hardly vary, and deflate to a third when they stand together
    planes = whole.reshape(-1, 1).view(np.uint8).T.tobytes()
    return {
        "shape": list(values.shape),
        "bits": bits,
        "scale": scale,
        "data": base64.b64encode(zlib.compress(planes, 9)).decode(),
    }


def _pooled(scores: Numbers) -> Numbers:
    """The means of square blocks, as small as make the map no larger than REFERENCE_SIDE."""
    block = math.ceil(max(scores.shape) / REFERENCE_SIDE)
    for axis in (0, 1):
        starts = np.arange(0, scores.shape[axis], block)
        sizes = np.diff(np.append(starts, scores.shape[axis]))
        scores = np.add.reduceat(scores, starts, axis=axis) / (sizes[:, None] if axis == 0 else sizes)
    return scores


def _curve(curves: Numbers | None) -> dict[str, Any] | None:
    """Each reference's curve in five digits, at no more steps than can be seen."""
    if curves is None:
        return None
    last = curves.shape[1] - 1
    steps = np.unique(np.rint(np.linspace(0, last, min(last + 1, MOST_CURVE_POINTS))).astype(int))
    return {"steps": steps.tolist(), "values": [[float(f"{value:.5g}") for value in curve[steps]] for curve in curves]}


def _plain(value: Any) -> Any:
    """A setting as JSON knows it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return describe(value) if hasattr(value, "shape") else str(value)


# -- what the template says --------------------------------------------------------------------------------------------


def _input_words(view: InputView, entry: dict[str, Any]) -> dict[str, Any]:
    methods = [_method_words(method, data) for method, data in zip(view.methods, entry["methods"], strict=True)]
    precision = ""
    if view.kind == "image":
        precision = f"They are kept in {MAP_BITS} bits a pixel, within {_error(MAP_BITS)} of the map’s largest."
        pooled = [
            math.ceil(max(reference.scores.shape) / REFERENCE_SIDE)
            for method in view.methods
            for reference in method.references
            if reference.scores is not None and len(method.references) > 1
        ]
        if pooled:
            block = f", as means over {max(pooled)} × {max(pooled)} pixels" if max(pooled) > 1 else ""
            precision += f" Those for each reference are kept in {REFERENCE_BITS} bits{block}: within {_error(REFERENCE_BITS)}."
    return {"picture": entry["picture"], "methods": methods, "precision": precision}


def _method_words(method: MethodView, data: dict[str, Any]) -> dict[str, Any]:
    verdict = method.verdict.strip()
    verdict = verdict[:1].upper() + verdict[1:] + ("" if verdict.endswith((".", "!", "?")) else ".")
    words: dict[str, Any] = {
        "verdict": verdict,
        "trust": "none",
        "sums": [],
        "relative": "",
        "residual": "" if method.residual is None else _number(method.residual),
        "settings": list(_rows(data["settings"])),
        "gradcf": data["gradcf"],
        "shares": [
            {"name": name, "value": _percent(value), "meaning": meaning}
            for name, value, meaning in (
                ("Trust", method.trust, "how well gradients predicted the output along the paths"),
                ("Arrival", method.arrival, "how much of the distance to the references the paths covered"),
            )
            if value is not None
        ],
    }
    if method.baseline_output is None or method.residual is None:
        return words
    change = method.output - method.baseline_output
    total = change + method.residual
    low, high = min(change, total, 0.0), max(change, total, 0.0)
    width = (high - low) or 1.0
    for name, value in (("Change in the output", change), ("Sum of the scores", total)):
        left, right = sorted((0.0, value))
        start, length = (f"{100 * part / width:.2f}" for part in (left - low, right - left))
        words["sums"].append({"name": name, "value": value, "left": start, "width": length})
    if change:
        relative = abs(method.residual / change)
        arrived = method.arrival is None or method.arrival >= LITTLE_ARRIVAL
        if relative < ROUNDING:
            words["residual"] = "none"
        else:
            words["relative"] = _percent(relative)
        words["trust"] = "good" if relative < LARGE_RESIDUAL and arrived else "poor"
    return words


def _error(bits: int) -> str:
    """How far a packed number may be off, as a share of the largest."""
    return f"{50 / (2 ** (bits - 1) - 1):.1g} %"


def _rows(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Settings inside settings as rows of one table; a part by its name, then its own settings."""
    if isinstance(settings, dict):
        called = settings.get("name") or settings.get("type")
        if called and name:
            yield name, str(called)
        for key, value in settings.items():
            if not (called and name and key in ("name", "type")):
                yield from _rows(value, f"{name} › {key}" if name else key)
    elif isinstance(settings, list):
        yield name, ", ".join(map(str, settings))
    else:
        yield name, "none" if settings is None else str(settings)


def _number(value: float) -> str:
    """Three digits that count, and a real minus."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -3 <= exponent < 5:
        text = f"{value:.{max(0, 2 - exponent)}f}"
    else:
        raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{value / 10.0**exponent:.2f} × 10{raised}"
    return text.replace("-", "−")


def _percent(share: float) -> str:
    percent = 100 * share
    if percent >= 1000:
        return f"{share:,.0f} times" if share < 1e6 else "millions of times"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %" if percent >= 0.1 or percent == 0 else "below 0.1 %"


def _listed(names: Sequence[str], markup: Any) -> Any:
    """Some names as a person lists them, escaped."""
    most = 4 if len(names) == 4 else 3  # «or 1 others» is no English, and takes no less room than the name
    shown = [markup("<bdi>{}</bdi>").format(name) for name in names[:most]]
    if len(names) > most:
        return markup("{} or {} others").format(markup(", ").join(shown), len(names) - most)
    if len(shown) == 1:
        return shown[0]
    return markup("{} or {}").format(markup(", ").join(shown[:-1]), shown[-1])


# -- what cannot be shown ----------------------------------------------------------------------------------------------


def _check(content: Content) -> None:
    if not content.inputs:
        raise InputError("a report needs at least one input")
    for view in content.inputs:
        if view.kind not in ("image", "text", "table"):
            raise InputError(f"{view.name!r} is of kind {view.kind!r}: expected 'image', 'text' or 'table'")
        if not view.methods:
            raise InputError(f"{view.name!r} has no method's answer to show")
        if view.kind == "table" and len(view.cells) not in (0, len(view.units)):
            raise InputError(f"{view.name!r} has {len(view.cells)} cells for {len(view.units)} columns")
        _check_picture(view.picture, repr(view.name))
        _check_finite([view.probability], repr(view.name))
        shape: tuple[int, ...] = (len(view.units),)
        if view.kind == "image":
            shape = view.methods[0].scores.shape
            if len(shape) != 2 or 0 in shape:
                raise InputError(f"scores of {view.name!r} are {describe(view.methods[0].scores)}: expected (H, W)")
        elif not view.units:
            raise InputError(f"{view.name!r} has no words or columns to show")
        for method in view.methods:
            where = f"{method.name} of {view.name!r}"
            _check_scores(method.scores, shape, where)
            _check_finite([method.output, method.baseline_output, method.residual], where)
            _check_picture(method.gradcf, where)
            for curve in (method.output_curve, method.distance_curve):
                if curve is not None:
                    if curve.ndim != 2 or 0 in curve.shape:
                        raise InputError(f"a curve of {where} is {describe(curve)}: expected (R, k + 1)")
                    _check_finite(curve, where)
            for reference in method.references:
                _check_picture(reference.picture, where)
                _check_finite([reference.output], where)
                if reference.scores is not None:
                    _check_scores(reference.scores, shape, f"reference {reference.label!r} in {where}")


def _check_scores(scores: Numbers, shape: tuple[int, ...], where: str) -> None:
    if scores.shape != shape:
        raise InputError(f"scores of {where} are {describe(scores)}: expected {shape}")
    _check_finite(scores, where)


def _check_finite(values: Any, where: str) -> None:
    if not all(np.isfinite(value).all() for value in values if value is not None):
        raise InputError(f"{where} has numbers that are not finite, and those cannot be shown")


def _check_picture(picture: Picture | None, where: str) -> None:
    if picture is not None and (picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or not picture.size):
        raise InputError(f"the picture of {where} is {describe(picture)}: expected uint8 (H, W, 3)")
