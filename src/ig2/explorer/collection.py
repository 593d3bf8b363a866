"""The displayed stores: their catalogue, rows, pictures and projection, and the queries of each page."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ig2.errors import InputError, describe, reason
from ig2.explorer.catalogue import LAYOUTS, OTHER, Catalogue, Positions, Query
from ig2.explorer.maps import Map, Reader, match, read_map, subtract
from ig2.explorer.originals import Originals
from ig2.explorer.projection import Matrix, Projection, has_umap, open_projection, open_umap
from ig2.explorer.views import name_class, view_item
from ig2.modalities.modality import find_stored
from ig2.report import Content, InputView, SkippedView
from ig2.report.encoding import draw_thumbnail, drop_nan, pack_map
from ig2.report.page import encode_details
from ig2.runs.files import list_parts
from ig2.runs.sources import find_source
from ig2.runs.store import Store
from ig2.runs.store import open as open_store
from ig2.verdict import mark_rows
from ig2.views import Bars, Picture, pool

SMALL_SIDE = 56  # fields of a list's map, each way
SMALL_BITS = 8
MOST_ROWS = 100  # in one answer
MOST_UNITS = 60  # words or columns in a row of the list
MOST_STORES = 4
MOST_QUERIES = 8  # queries whose positions are kept
MOST_COLOURS = 12  # of classes on the map; the last is grey, for all others
SEVERAL = 2_000_000  # points that the map of all items sends at most


class Collection:
    """One or several stores, read once and refreshed as runs write to them.

    Args:
        stores: their folders. The first has the items; the others are compared with it.
        source: the source of the images, for stores of images.

    Raises:
        InputError: if a folder is not a store, a store is damaged, or the source has no images.
    """

    def __init__(self, stores: Sequence[str | PathLike[str]], source: Any = None) -> None:
        if not 1 <= len(stores) <= MOST_STORES:
            raise InputError(f"name 1 to {MOST_STORES} stores, got {len(stores)}")
        self.folders = [Path(folder) for folder in stores]
        self.names = _name_stores(self.folders)
        self._loading, self._finding = threading.Lock(), threading.Lock()
        self._positions: OrderedDict[Query, tuple[Catalogue, Positions]] = OrderedDict()
        self._load()
        self.originals = self._find_originals(source)

    def _load(self) -> None:
        self.stores: list[Store] = [open_store(folder) for folder in self.folders]
        self.catalogue = Catalogue(self.stores)
        self.readers = [Reader(store) for store in self.stores]
        first = self.stores[0]
        self.layouts = {
            "pca": Background(lambda progress: open_projection(first, progress)),
            "umap": Background(lambda progress: open_umap(first, progress)),
        }

    def _find_originals(self, source: Any) -> Originals | None:
        manifest = self.stores[0].manifest
        if source is not None and find_stored(manifest).originals is None:
            find_source(source)  # words and cells are in the store; a place that does not exist is still an error
            return None
        return None if source is None else Originals(source, manifest)

    def refresh(self) -> bool:
        """Read the stores again if a run has written to them; return whether it has."""
        with self._loading:
            if all(tuple(list_parts(store.folder)) == store.files for store in self.stores):
                return False
            self._load()
            return True

    # -- what pages ask ------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return a description of each store: its name, kind, method, model and number of items."""
        stores = []
        for name, store, reader in zip(self.names, self.stores, self.readers, strict=True):
            fingerprint = store.manifest["fingerprint"]
            place = fingerprint.get("source", {})
            stores.append(
                {
                    "name": name,
                    "view": find_stored(store.manifest).shows.name,
                    "items": reader.length,
                    "method": _name_part(fingerprint.get("method")),
                    "model": _name_part(fingerprint.get("model")),
                    "source": str(place.get("place") or place.get("name") or "") if isinstance(place, dict) else "",
                    "created": str(store.manifest.get("created", "")),
                }
            )
        layouts = list(LAYOUTS if has_umap(self.stores[0]) else LAYOUTS[:1])
        return {
            "stores": stores, "columns": self.catalogue.columns, "pictures": self.originals is not None, "layouts": layouts,
        }  # fmt: skip

    def find(self, query: Query) -> Positions:
        """Return the positions that match a query; the last queries are cached, since a list repeats them often."""
        if query.brush is not None or query.cluster is not None:
            self.project()
        catalogue, shown = self.catalogue, self.projection
        points = None if shown is None else shown.points
        if query.brush is not None and query.layout == "umap":
            points = self.lay_out()
        with self._finding:  # while it is searched, too: the overview and the first rows ask for the same at once
            if query not in self._positions or self._positions[query][0] is not catalogue:
                self._positions[query] = catalogue, catalogue.find(query, points, None if shown is None else shown.clusters)
            self._positions.move_to_end(query)
            while len(self._positions) > MOST_QUERIES:
                self._positions.popitem(last=False)
            return self._positions[query][1]

    def list_rows(self, query: Query, start: int, count: int) -> dict[str, Any]:
        """Return some rows of a query, with small maps."""
        if start < 0 or not 1 <= count <= MOST_ROWS:
            raise InputError(f"rows are read {MOST_ROWS} at once at most, from 0 on; got {count} from {start}")
        positions = self.find(query)
        return {"total": len(positions), "start": start, "rows": self.describe_rows(positions[start : start + count])}

    def describe_rows(self, positions: Positions) -> list[dict[str, Any]]:
        """Return items as the list shows them."""
        maps = zip(*(self._read_maps(number, positions) for number in range(len(self.stores))), strict=True)
        judged = (self.catalogue.judge(suffix, positions) for suffix in self.catalogue.suffixes)
        marks = zip(*(mark_rows(findings, len(positions)) for findings in judged), strict=True)
        rows = zip(positions.tolist(), maps, marks, strict=True)
        return [self._describe_row(*row) for row in rows]

    def _describe_row(self, position: int, maps: Sequence[Map | None], marks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        cells = self.catalogue.read_row(position)
        row = {name: cells.get(name) for name in ("id", "error", "trust", "relative_residual", "output")}
        manifest = self.stores[0].manifest
        row |= {name: name_class(cells, name, manifest) or None for name in ("label", "prediction", "target")}
        row["right"] = int(self.catalogue.is_right[position])
        row["marks"] = marks
        first = next((shown for shown in maps if shown is not None), None)
        row["maps"] = [None if shown is None else _encode_map(shown, first) for shown in maps]
        both = [shown for shown in maps if shown is not None]
        matched = match(both) if len(self.stores) == 2 and len(both) == 2 else None
        row["difference"] = None if matched is None else _encode_map(Map(matched[0].view, subtract(*matched)), first)
        has_picture = first is None or isinstance(first.view, Picture)
        row["picture"] = has_picture and self.originals is not None and cells["id"] in self.originals
        return row

    def _read_maps(self, number: int, positions: Positions) -> list[Map | None]:
        """Return the maps of items by one of the stores."""
        places = self.catalogue.places[number][positions].tolist()
        rows = iter(self.readers[number].read([place for place in places if place >= 0]))
        return [None if place < 0 else read_map(next(rows), self.stores[number].manifest) for place in places]

    def locate(self, identity: str) -> int:
        """Return the position of an id.

        Raises:
            InputError: if there is none.
        """
        if identity not in self.catalogue.numbers:
            raise InputError(f"there is no item {describe(identity)}")
        return self.catalogue.numbers[identity]

    def read_picture(self, identity: str) -> tuple[bytes, str]:
        """Return the thumbnail of an item's image, as a file with its media type."""
        position = self.locate(identity)
        if self.originals is None:
            raise InputError("there are no pictures: start with --source, the folder of the images")
        view = self.originals.view(identity, self._read_maps(0, np.array([position]))[0])
        found = None if view is None else draw_thumbnail(view)
        if found is None:
            raise InputError(f"the item {describe(identity)} is no picture that can be read")
        return found

    def view(self, identity: str) -> tuple[list[InputView], str]:
        """Return an item as the report shows it, or why it cannot be shown."""
        position = self.locate(identity)
        entries, manifest = [], self.stores[0].manifest
        error = ""
        for number, reader in enumerate(self.readers):
            place = int(self.catalogue.places[number][position])
            if place < 0:
                continue
            row, manifest = reader[place], self.stores[number].manifest
            shown = read_map(row, manifest)
            error = error or row.get("error") or ("" if shown is not None else "the store keeps no values")
            if shown is not None:
                known = {name: drop_nan(cell) for name, cell in row.items()}
                entries.append((self.names[number], manifest, known, shown))
        if not entries:
            return [], str(error)
        first = entries[0][3]
        original = self.originals.view(identity, first) if self.originals is not None else None
        return view_item(identity, entries, original), ""

    def make_report(self, identities: Sequence[str], title: str) -> Content:
        """Return the report of some items."""
        views, skipped = list[InputView](), list[SkippedView]()
        for identity in identities:
            inputs, why = self.view(identity)
            views += inputs
            if why:
                skipped.append(SkippedView(identity, why))
        if not views:
            raise InputError(f"none of these items can be shown: {skipped[0] if skipped else 'there are none'}")
        model = _name_part(self.stores[0].manifest["fingerprint"].get("model"))
        return Content(title, model, tuple(views), {"store": ", ".join(self.names)}, tuple(skipped))

    def show_item(self, identity: str) -> dict[str, Any]:
        """Return an item as its page draws it: its inputs as in a report, or why there are none."""
        views, why = self.view(identity)
        inputs = [encode_details(view, f"{number} {identity}") for number, view in enumerate(views)]
        return {"id": identity, "inputs": inputs, "why": why}

    # -- the map of all items ------------------------------------------------------------------------------------------

    @property
    def projection(self) -> Projection | None:
        """The projection, once it is computed."""
        return self.layouts["pca"].value  # type: ignore[no-any-return]

    def project(self) -> Projection | None:
        """Return the projection, computed if missing; None if too few items have values."""
        return self.layouts["pca"].get()  # type: ignore[no-any-return]

    def lay_out(self) -> Matrix | None:
        """Return the map by UMAP, computed if missing; None if too few items have values."""
        return self.layouts["umap"].get()  # type: ignore[no-any-return]

    def start_projection(self, layout: str = "pca") -> float:
        """Start to compute a map in a thread, once, UMAP after the projection; return its progress."""
        progress = self.layouts["pca"].start()
        return progress if layout == "pca" or progress < 1.0 else self.layouts[layout].start()

    @property
    def trouble(self) -> str:
        """Why a map could not be computed, if one could not."""
        return next((each.trouble for each in self.layouts.values() if each.trouble), "")

    def encode_points(self, layout: str = "pca", positions: Positions | None = None) -> dict[str, Any]:
        """Return each item's position on the map, its cluster, its class and whether it is right, as packed numbers.

        Args:
            layout: "pca" or "umap", if available.
            positions: the items; by default all.

        Raises:
            InputError: if there are too many for a page.
        """
        shown, catalogue = self.projection, self.catalogue
        places = self.layouts["umap"].value if layout == "umap" else None if shown is None else shown.points
        if shown is None or places is None:
            return {"count": 0}
        where: Any = slice(None) if positions is None else positions
        points, clusters = places[where], shown.clusters[where]
        if len(points) > SEVERAL:
            raise InputError(f"a map shows {SEVERAL:,} items at most, and these are {len(points):,}")
        names, classes = _merge_classes(*np.unique(catalogue.predictions[where].astype(str), return_inverse=True))
        whole = np.rint(np.nan_to_num(points) * 65535).astype("<u2")

        def pack(values: Any, kind: str) -> str:
            return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode()

        return {
            "count": len(points),
            "explained": shown.explained if layout == "pca" else None,
            "x": pack(whole[:, 0], "<u2"),
            "y": pack(whole[:, 1], "<u2"),
            "there": pack(clusters >= 0, "u1"),
            "cluster": pack(np.maximum(clusters, 0), "u1"),
            "class": pack(classes, "<u2"),
            "right": pack(catalogue.is_right[where], "i1"),
            "classes": names,
        }

    def describe_clusters(self, positions: Positions | None = None) -> list[dict[str, Any]]:
        """Return the clusters: how many items, right and wrong, their mean map, their most typical items, their classes.

        Args:
            positions: the items to count; by default all. The mean is always over all items.
        """
        shown = self.project()
        if shown is None:
            return []
        clusters = []
        is_right, counts = self.catalogue.is_right, np.ones(len(self.catalogue), dtype=bool)
        if positions is not None:
            counts[:] = False
            counts[positions] = True
        for number, mean in enumerate(shown.means):
            members = np.flatnonzero((shown.clusters == number) & counts)
            names, times = np.unique(self.catalogue.predictions[members].astype(str), return_counts=True)
            order = np.argsort(-times, kind="stable")[:3]
            typical = shown.typical[number][shown.typical[number] >= 0]
            typical = typical[counts[typical]]
            known = is_right[members][is_right[members] >= 0]
            clusters.append(
                {
                    "number": number,
                    "items": len(members),
                    "labelled": len(known),
                    "right": int(known.sum()),
                    "classes": [[str(names[place]), int(times[place])] for place in order],
                    "typical": self.describe_rows(typical),
                    **_encode_mean(shown, mean.astype(float)),
                }
            )
        return [cluster for cluster in clusters if cluster["items"]]


class Background:
    """A value that takes long, computed once: by who needs it first, or in a thread of its own.

    Args:
        compute: a function of another, which is called with the completed share.
    """

    def __init__(self, compute: Callable[[Callable[[float], None]], Any]) -> None:
        self._compute, self._lock = compute, threading.Lock()
        self.value: Any = None
        self.progress: float | None = None
        """The completed share; None before it begins."""
        self.trouble = ""
        """Why it could not be computed in its thread."""

    def get(self) -> Any:
        """Return the value, computed if missing."""
        with self._lock:
            if self.progress != 1.0:
                self.progress = 0.0
                self.value = self._compute(self._note)
                self.progress = 1.0
            return self.value

    def start(self) -> float:
        """Compute it in a separate thread, once; return the progress."""
        if self.progress is None:
            self.progress = 0.0
            threading.Thread(target=self._get_quietly, name="ig2-projection", daemon=True).start()
        return self.progress

    def _get_quietly(self) -> None:
        try:
            self.get()
        except Exception as error:  # a damaged part, or whatever UMAP raises: reported on the page
            self.trouble, self.progress = reason(error), 1.0

    def _note(self, share: float) -> None:
        self.progress = min(share, 0.99)


def _merge_classes(names: Any, classes: Any) -> tuple[list[str], Any]:
    """Return the most frequent classes, as many as there are colours, with one for all others."""
    if len(names) <= MOST_COLOURS:
        return [str(name) for name in names], classes
    frequent = np.sort(np.argsort(-np.bincount(classes), kind="stable")[: MOST_COLOURS - 1])
    places = np.full(len(names), MOST_COLOURS - 1)
    places[frequent] = np.arange(MOST_COLOURS - 1)
    return [*(str(names[place]) for place in frequent), OTHER], places[classes]


def _encode_mean(shown: Projection, mean: Any) -> dict[str, Any]:
    if shown.shape is not None:
        return {"map": pack_map(mean.reshape(shown.shape), SMALL_BITS)}
    order = np.argsort(-mean, kind="stable")[:8]
    return {"units": [[shown.names[place], float(mean[place])] for place in order if mean[place] > 0]}


def _encode_map(shown: Map, first: Map | None) -> dict[str, Any]:
    """Return a map for the list; columns in the order of the first store's strengths, so that stores can be compared."""
    if shown.is_flat:
        return {"view": shown.view.name, "scores": pack_map(pool(shown.scores, SMALL_SIDE, SMALL_SIDE), SMALL_BITS)}
    units, cells = shown.view.name_parts(), shown.cells
    strongest = float(np.abs(shown.scores).max()) if len(shown.scores) else 0.0
    order = np.arange(min(len(units), MOST_UNITS))
    if isinstance(shown.view, Bars):
        leading = first.scores if first is not None and first.view.name_parts() == units else shown.scores
        order = np.argsort(-np.abs(leading), kind="stable")[:MOST_UNITS]
    return {
        "view": shown.view.name,
        "scores": [float(f"{shown.scores[place]:.4g}") for place in order],
        "units": [units[place][:80] for place in order],
        "cells": [cells[place][:80] for place in order] if cells else [],
        "strongest": strongest,
        "more": len(units) - len(order),
    }


def _name_part(part: Any) -> str:
    if isinstance(part, dict):
        return str(part.get("name") or part.get("type") or "")
    return "" if part is None else str(part)


def _name_stores(folders: Sequence[Path]) -> list[str]:
    """Return a short name for each store: its folder's, with the one above where two are alike.

    The store of `ig2 explain` lies in the folder `store` of its output, which has the name.
    """
    found = [folder.resolve() for folder in folders]
    names = [place.parent.name if place.name == "store" else place.name for place in found]
    if len(set(names)) == len(names):
        return names
    longer = ["/".join(folder.resolve().parts[-2:]) for folder in folders]
    return longer if len(set(longer)) == len(longer) else [f"{name} ({number})" for number, name in enumerate(longer, start=1)]
