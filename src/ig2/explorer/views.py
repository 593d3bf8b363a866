"""Items of stores as the report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ig2.explorer.maps import Map, match, read_map, subtract
from ig2.report import InputView, MethodView, ReferenceView
from ig2.report.content import show_cell
from ig2.runs.aggregates import CURVE
from ig2.runs.store import EXTRA
from ig2.verdict import NUMBERS
from ig2.views import Numbers, Picture, View

DIFFERENCE = "Difference"


def view_item(
    name: str, entries: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any], Map]], original: View | None
) -> list[InputView]:
    """Return an item as the report shows it, with a method for each store and, of two, their difference.

    Args:
        name: the id.
        entries: for each store that has values of the item: its name, its manifest, the row, the map.
        original: how the item itself is shown, where the source is at hand.

    Returns:
        One view; or one for each store, where their maps cannot be brought to one shape.
    """
    matched = match([shown for *_, shown in entries])
    if matched is None:
        return [view for entry in entries for view in view_item(f"{name} · {entry[0]}", [entry], original)]
    methods = [
        _view_method(store, manifest, row, shown.scores, fine)
        for (store, manifest, row, fine), shown in zip(entries, matched, strict=True)
    ]
    if len(methods) == 2:
        meaning = f"is the share of each value in {methods[0].name}, less that in {methods[1].name}"
        methods.append(MethodView(DIFFERENCE, subtract(*matched), {}, {}, note=meaning))
    _, manifest, row, _ = entries[0]
    first = matched[0]
    against = row.get("against") or ()
    return [
        InputView(
            name=name,
            view=original or first.view,
            prediction=name_class(row, "prediction", manifest),
            probability=None,
            target=name_class(row, "target", manifest) or "unknown",
            contrasted=tuple(_find_class(number, manifest) for number in against),
            methods=tuple(methods),
            measure=str(row.get("measure") or ""),
            question=str(row.get("question") or ""),
            label=name_class(row, "label", manifest),
        )
    ]


def name_class(row: Mapping[str, Any], which: str, manifest: Mapping[str, Any]) -> str:
    """Return the name of a row's label, target or prediction; empty if it has none."""
    name = row.get(f"{which}_name")
    return str(name) if name is not None else _find_class(row.get(which), manifest)


def _find_class(number: Any, manifest: Mapping[str, Any]) -> str:
    classes = manifest.get("classes") or ()
    if isinstance(number, int) and 0 <= number < len(classes):
        return str(classes[number])
    return "" if number is None else f"class {number}"


def _view_method(
    name: str, manifest: Mapping[str, Any], row: Mapping[str, Any], scores: Numbers, stored_map: Map
) -> MethodView:
    metrics = [metric for metric in manifest.get("metrics") or () if row.get(metric) is not None]
    curves = {metric: np.asarray(row[metric + CURVE], float) for metric in metrics if row.get(metric + CURVE) is not None}
    shown = {name: row[name] for name in row if name in (*metrics, "spread") or name.startswith(EXTRA)}
    extra = {name.removeprefix(EXTRA): show_cell(cell) for name, cell in shown.items() if cell is not None}
    references = _view_references(row, manifest, stored_map) if stored_map.scores.shape == scores.shape else ()
    return MethodView(
        name=name,
        scores=scores,
        numbers={name: float(row[name]) for name in NUMBERS if row.get(name) is not None},
        settings={name: manifest["fingerprint"].get(name) for name in ("method", "model", "settings", "source")},
        references=references,
        gradcf=_draw_gradcf(row, manifest),
        note=str(row.get("note") or ""),
        extra=extra,
        metric_curves={metric: curve for metric, curve in curves.items() if np.isfinite(curve).all()},
    )


def _view_references(row: Mapping[str, Any], manifest: Mapping[str, Any], stored_map: Map) -> tuple[ReferenceView, ...]:
    """Return the references of a row with their own maps, where the run kept them."""
    labels, outputs, values = (row.get(f"reference_{name}") for name in ("labels", "outputs", "values"))
    if not labels or outputs is None or values is None or len(values) % len(labels):
        return ()
    trust = row.get("reference_trust") or [None] * len(labels)
    references = []
    parts = np.asarray(values, dtype=np.float64).reshape(len(labels), *np.shape(row["values"]))
    for label, output, share, part in zip(labels, outputs, trust, parts, strict=True):
        shown = read_map({**row, "values": part}, manifest)
        if shown is None or shown.scores.shape != stored_map.scores.shape:
            return ()
        residual = float(part.sum()) - (row["output"] - output) if row.get("output") is not None else None
        references.append(ReferenceView(str(label), output, scores=shown.scores, residual=residual, trust=share))
    return tuple(references)


def _draw_gradcf(row: Mapping[str, Any], manifest: Mapping[str, Any]) -> Picture | None:
    """Return where the first path of an image ended, as an image, where the run kept it."""
    ends, view = row.get("gradcf"), manifest.get("view") or {}
    if ends is None or view.get("name") != Picture.name or np.ndim(ends) != 4 or np.shape(ends)[1] not in (1, 3):
        return None
    pixels = np.nan_to_num(np.asarray(ends[0], dtype=np.float64) * 255).round().clip(0, 255)
    return Picture(np.broadcast_to(np.moveaxis(pixels, 0, -1), (*pixels.shape[1:], 3)).astype(np.uint8))
