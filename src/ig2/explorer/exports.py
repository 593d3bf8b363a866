"""Exports of a selection: as a table, as rows with values, as the report, or as figures."""

from __future__ import annotations

import csv
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import PurePosixPath

from ig2.errors import InputError, format_count
from ig2.explorer.catalogue import Positions
from ig2.explorer.collection import Collection
from ig2.modalities.modality import find_by_suffix
from ig2.plots.canvas import encode_png
from ig2.report import render
from ig2.report.figures import draw_figure
from ig2.runs.files import arrow

MOST_BYTES = 2**29  # of rows with their values, in memory
MOST_INPUTS = 200  # of a report, or figures
LONGEST_NAME = 60  # characters of a file
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run
ROWS_AT_ONCE = 1000
DRAWING = threading.Lock()  # matplotlib's fonts are for one thread at a time


def write_csv(collection: Collection, positions: Positions) -> Iterator[str]:
    """Yield the lines of a CSV file with the numbers and names of items, with those of compared stores beside them."""
    catalogue = collection.catalogue
    for start in range(0, max(1, len(positions)), ROWS_AT_ONCE):
        stream = io.StringIO()
        writer = csv.writer(stream)
        if start == 0:
            writer.writerow(catalogue.columns)
        chosen = catalogue.table.select(catalogue.columns).take(positions[start : start + ROWS_AT_ONCE])
        for row in chosen.to_pylist():
            writer.writerow([_guard(cell) for cell in row.values()])
        yield stream.getvalue()


def _guard(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULAS) else cell


def write_parquet(collection: Collection, positions: Positions) -> bytes:
    """Return a Parquet file of the rows of the first store, with their values.

    Raises:
        InputError: if there are too many to hold in memory.
    """
    store, length = collection.stores[0], collection.readers[0].length
    size = sum(path.stat().st_size for path in store.files) / max(1, length) * len(positions)
    if size > MOST_BYTES:
        raise InputError(
            f"{format_count(len(positions), 'row')} have {size / 2**30:.1f} GiB: choose fewer, or read the store with ig2.open"
        )
    compute = arrow("pyarrow.compute")
    ids = [collection.catalogue.ids[position] for position in positions]
    rows = store.dataset.to_table(filter=compute.field("id").isin(ids))
    # in the order of the selection
    rows = rows.take(compute.index_in(arrow().array(ids, "string"), rows["id"].combine_chunks()))
    stream = arrow().BufferOutputStream()
    arrow("pyarrow.parquet").write_table(rows, stream, compression="zstd")
    return bytes(stream.getvalue())


def write_report(collection: Collection, positions: Positions, title: str) -> str:
    """Return the report of items as one HTML page.

    Raises:
        InputError: if there are too many, or none that can be shown.
    """
    _check_count(positions, "a report shows")
    return render(collection.make_report([collection.catalogue.ids[position] for position in positions], title))


def write_figures(collection: Collection, positions: Positions) -> bytes:
    """Return a ZIP file with a PNG of each item: the image and its maps, the words, or the columns.

    Raises:
        InputError: if there are too many, or none that can be shown.
    """
    _check_count(positions, "figures are made of")
    stream, names = io.BytesIO(), set[str]()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:  # PNG is deflated already
        for position in positions:
            for view in collection.view(collection.catalogue.ids[position])[0]:
                path = PurePosixPath(view.name)
                plain = str(path.with_suffix("")) if find_by_suffix(view.name) else view.name
                stem = re.sub(r"[^\w.-]+", "-", plain).strip("-.")[:LONGEST_NAME] or "item"
                candidates = (stem if copy == 1 else f"{stem}-{copy}" for copy in count(1))
                name = next(name for name in candidates if name.lower() not in names)
                names.add(name.lower())
                with DRAWING:
                    archive.writestr(f"{name}.png", encode_png(draw_figure(view, f"{view.name}: {view.target}")))
    if not names:
        raise InputError("none of these items can be shown: choose others")
    return stream.getvalue()


def _check_count(positions: Positions, what: str) -> None:
    if not 1 <= len(positions) <= MOST_INPUTS:
        raise InputError(f"{what} 1 to {MOST_INPUTS} items, and these are {len(positions):,}: choose fewer")
