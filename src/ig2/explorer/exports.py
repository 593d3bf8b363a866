"""A selection to take along: as a table, as the rows themselves, or as the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from ig2.errors import InputError, format_count
from ig2.explorer.catalogue import Positions
from ig2.explorer.collection import Collection
from ig2.report import render
from ig2.runs.files import arrow

MOST_BYTES = 2**29  # of rows with their values, in memory
MOST_INPUTS = 200  # of a report
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run
ROWS_AT_ONCE = 1000


def write_csv(collection: Collection, positions: Positions) -> Iterator[str]:
    """Yield the lines of a CSV file with the numbers and names of items, those of compared stores beside them."""
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
        InputError: if they are too many to be held in memory.
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
    if not 1 <= len(positions) <= MOST_INPUTS:
        raise InputError(f"a report shows 1 to {MOST_INPUTS} items, and these are {len(positions):,}: choose fewer")
    return render(collection.make_report([collection.catalogue.ids[position] for position in positions], title))
