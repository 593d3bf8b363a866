"""Export of the explorer as a folder of static files for any web server: the same page over precomputed answers."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

import ig2
from ig2._utils.files import check_regular
from ig2.errors import IG2Error, InputError, describe, reason
from ig2.explorer.catalogue import LAYOUTS, Positions, Query
from ig2.explorer.collection import Collection
from ig2.explorer.projection import read_umap
from ig2.explorer.server import FILES, read_file
from ig2.report.encoding import to_url
from ig2.report.page import render_script
from ig2.runs.files import arrow

LIMIT = 10_000  # items
CHUNK = 8  # rows in a file: few enough for a list sorted by another column, whose rows are each in another file
MARK = "export.json"  # by which an earlier export is known
PARTS = ("index.html", MARK, "static", "data", "items", "pictures")  # the last of earlier versions alone
CHARSET = '<meta charset="utf-8">'
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self' file:; style-src 'self' "
    "file:; img-src data:; base-uri 'none'; form-action 'none'\">"
)


def export_site(
    collection: Collection,
    out: str | os.PathLike[str],
    *,
    where: str = "",
    limit: int = LIMIT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write a collection as a site of static files: list, filters, map, clusters and items.

    All files are written beside `out` first and moved there at the end, so that a site is either complete or absent.

    Args:
        collection: the collection to export.
        out: the folder. An earlier export is replaced; any other content is an error.
        where: a condition, as for `Store.where`.
        limit: the maximum number of items, the first ones.
        progress: called with the number of written items and the total.

    Returns:
        The number of items of the site.

    Raises:
        InputError: if the folder has other content, no item fulfils the condition, or the limit is out of range.
        IG2Error: if the folder cannot be written to.
    """
    if not 1 <= limit <= LIMIT:
        raise InputError(f"a site has 1 to {LIMIT:,} items, got the limit {limit:,}")
    folder = Path(out)
    _check_folder(folder)
    positions = collection.find(Query(where=where))
    if not len(positions):
        raise InputError(
            f"no item fulfils {describe(where)}: there is nothing to export" if where else "the store has no items"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _write(collection, positions[:limit], len(positions), draft, progress)
            draft.chmod(0o755)  # a web server may be another user
            _check_folder(folder)
            _move(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        if isinstance(error, IG2Error):
            raise
        raise IG2Error(f"{folder} cannot be written to: {reason(error)}") from error
    return min(limit, len(positions))


def _check_folder(folder: Path) -> None:
    """Check that nothing but an earlier export would be replaced."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise InputError(f"{folder} is {'a link' if folder.is_symlink() else 'a file'}: choose a folder for the site")
    others = sorted(path.name for path in folder.iterdir() if path.name not in PARTS)
    if others:
        raise InputError(f"{folder} holds something else ({describe(others[0])}): choose an empty or new folder for the site")
    if any(folder.iterdir()) and not _is_export(folder / MARK):
        raise InputError(f"{folder} holds files that are not of an earlier export: choose an empty or new folder for the site")


def _is_export(path: Path) -> bool:
    with suppress(OSError, ValueError, InputError):
        check_regular(path)
        content = json.loads(path.read_text("utf-8"))
        return isinstance(content, dict) and str(content.get("made_by", "")).startswith("ig2 ")
    return False


def _move(draft: Path, folder: Path) -> None:
    """Replace an earlier export by the draft; the earlier one is kept on failure."""
    if not folder.exists():
        os.replace(draft, folder)
        return
    before = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    os.replace(folder, before)
    try:
        os.replace(draft, folder)
    except BaseException:
        os.replace(before, folder)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _write(collection: Collection, positions: Positions, of: int, draft: Path, progress: Callable[[int, int], None]) -> None:
    for name in ("static", "data/rows", "items"):
        (draft / name).mkdir(parents=True)
    page = read_file("ig2.explorer", "explorer.html").decode()
    assert page.count(CHARSET) == 1
    (draft / "index.html").write_text(page.replace(CHARSET, f"{CHARSET}\n{POLICY}"), "utf-8")
    for name, (package, _) in FILES.items():
        (draft / "static" / name).write_bytes(read_file(package, "files.js" if name == "data.js" else name))
    layouts = [LAYOUTS[0]]
    collection.project()
    if read_umap(collection.stores[0]) is not None:
        collection.lay_out()
        layouts = list(LAYOUTS)
    for layout in layouts:
        _write_script(draft, f"data/map-{layout}.js", {"progress": 1.0, **collection.encode_points(layout, positions)})
    clusters = collection.describe_clusters(positions)
    for row in (row for cluster in clusters for row in cluster["typical"]):
        row["picture"] = _read_picture(collection, row)
    _write_script(draft, "data/clusters.js", {"clusters": clusters})
    about = {"chunk": CHUNK, "shown": len(positions), "of": of, "layouts": layouts}
    _write_script(draft, "data/stores.js", {**collection.describe(), **about})
    _write_script(draft, "data/columns.js", _describe_columns(collection, positions))
    for start in range(0, len(positions), CHUNK):
        rows = collection.describe_rows(positions[start : start + CHUNK])
        for place, row in enumerate(rows, start=start):
            _write_script(draft, f"items/{place}.js", collection.show_item(row["id"]))
            row["picture"] = _read_picture(collection, row)
        _write_script(draft, f"data/rows/{start // CHUNK}.js", rows)
        progress(start + len(rows), len(positions))
    about = {"made_by": f"ig2 {ig2.__version__}", "stores": collection.names, "items": len(positions)}
    (draft / MARK).write_text(json.dumps(about), "utf-8")


def _read_picture(collection: Collection, row: dict[str, Any]) -> str | Literal[False]:
    """Return an item's picture as a data URL; False without one, or if its file is broken."""
    with suppress(InputError):
        return to_url(*collection.read_picture(row["id"])) if row["picture"] else False
    return False


def _describe_columns(collection: Collection, positions: Positions) -> dict[str, Any]:
    """Return the columns for filters, sorting and the overview, with one number or text for each item."""
    catalogue, types = collection.catalogue, arrow("pyarrow.types")
    columns = {}
    for name in catalogue.columns:
        column = catalogue.table[name].take(positions)
        is_text, is_integer = types.is_string(column.type), types.is_integer(column.type)
        kind = "text" if is_text else "integer" if is_integer else "number"
        cells = column.to_pylist()
        columns[name] = {"type": kind, "cells": [_spell(cell) if kind == "number" else cell for cell in cells]}
    texts = catalogue.texts.take(positions).to_pylist()
    return {
        "columns": columns,
        "texts": None if texts == columns["id"]["cells"] else texts,
        "labels": catalogue.labels[positions].tolist(),
        "predictions": catalogue.predictions[positions].tolist(),
        "right": catalogue.is_right[positions].tolist(),
        "distributions": [
            name for name in catalogue.list_distributions() if np.isfinite(catalogue.read_numbers(name)[positions]).any()
        ],
    }


def _spell(number: float | None) -> float | str | None:
    """Return a number for JSON: NaN and the infinities as words, which `Number` of JavaScript parses."""
    if number is None or math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _write_script(draft: Path, name: str, content: Any) -> None:
    (draft / name).write_text(render_script(name, content), "ascii")
