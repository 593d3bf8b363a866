"""Exports of a selection: as a table, as rows with values, as the report, or as figures."""

from __future__ import annotations

import csv
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch

from ig2 import plots
from ig2.attribution import Attribution
from ig2.errors import InputError, format_count
from ig2.explorer.catalogue import Positions
from ig2.explorer.collection import Collection
from ig2.modalities.image.reading import SUFFIXES
from ig2.plots.canvas import encode_png
from ig2.report import InputView, MethodView, render
from ig2.runs.files import arrow
from ig2.views import Bars, Curve, Picture, Words

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
                plain = str(path.with_suffix("")) if path.suffix.lower() in SUFFIXES else view.name
                stem = re.sub(r"[^\w.-]+", "-", plain).strip("-.")[:LONGEST_NAME] or "item"
                candidates = (stem if copy == 1 else f"{stem}-{copy}" for copy in count(1))
                name = next(name for name in candidates if name.lower() not in names)
                names.add(name.lower())
                with DRAWING:
                    archive.writestr(f"{name}.png", encode_png(draw_view(view)))
    if not names:
        raise InputError("none of these items can be shown: choose others")
    return stream.getvalue()


def draw_view(shown: InputView) -> Any:
    """Draw the figure of an item: a panel for each store."""
    title, view = f"{shown.name}: {shown.target}", shown.view
    many, first = len(shown.methods), shown.methods[0]
    if isinstance(view, Picture):
        side = first.scores.shape if view.pixels is None else view.pixels.shape[:2]
        image = torch.full((1, 3, *side), 0.5)
        if view.pixels is not None:
            image = torch.from_numpy(np.array(view.pixels)).movedim(2, 0)[None] / 255
        maps = {method.name: _as_attribution(method, image) for method in shown.methods}
        return plots.grid(maps, titles=[title], bounds=(0.0, 1.0))
    titles = [title if many == 1 else f"{method.name}: {title}" for method in shown.methods]
    scores = [method.scores for method in shown.methods]
    same = _as_attribution(first, torch.zeros(1, *first.scores.shape))[[0] * many]
    if isinstance(view, Curve):
        middle = 0 if view.lowest is None or view.highest is None else torch.from_numpy((view.lowest + view.highest) / 2)
        stacked = replace(
            same, values=torch.from_numpy(np.stack(scores)), explicand=torch.zeros(many, *first.scores.shape) + middle
        )
        rate = None if view.seconds is None else first.scores.shape[1] / view.seconds
        return plots.signal(stacked, time_axis=2, rate=rate, channels=view.channels, titles=titles, count=many)
    if isinstance(view, Words):
        return plots.text(same, [list(view.words)] * many, scores=scores, titles=titles, count=many)
    assert isinstance(view, Bars)
    return plots.bars(same, list(view.columns), cells=[list(view.cells)] * many, scores=scores, titles=titles, count=many)


def _as_attribution(method: MethodView, explicand: torch.Tensor) -> Attribution:
    """Return an attribution for plots: a map is enlarged to its image."""
    values = torch.from_numpy(np.array(method.scores, dtype=np.float32))[None]
    if values.ndim == 3 and explicand.ndim == 4:
        values = torch.nn.functional.interpolate(values[None], explicand.shape[-2:])[0]
    trust, output = method.numbers.get("trust"), torch.tensor([method.numbers.get("output", 0.0)])
    known = None if trust is None else torch.tensor([[trust]])
    return Attribution(values=values, explicand=explicand, target=torch.zeros(1, dtype=torch.long), output=output, trust=known)


def _check_count(positions: Positions, what: str) -> None:
    if not 1 <= len(positions) <= MOST_INPUTS:
        raise InputError(f"{what} 1 to {MOST_INPUTS} items, and these are {len(positions):,}: choose fewer")
