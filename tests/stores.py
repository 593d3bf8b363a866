"""Stores of rows that were never explained, for tests of what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from ig2.runs.files import FORMAT, PARTS, write_json, write_part


def write_store(folder: Path, columns: dict[str, Any], **manifest: Any) -> Path:
    """A store of rows that were never explained."""
    (folder / PARTS).mkdir(parents=True)
    made = {"method": {"type": "Made"}, "model": {"name": "a network"}, "settings": {}, "source": {"place": "nowhere"}}
    write_json(folder / "manifest.json", {"format": FORMAT, "fingerprint": made, "digest": "0", **manifest})
    rows = len(columns["id"])
    table = {"error": pyarrow.array([None] * rows, "string"), **columns}
    write_part(folder / PARTS / "part-00000000-00000000.parquet", pyarrow.table(table))
    return folder


def tiny(folder: Path, ids: list[str], outputs: list[float]) -> Path:
    """Rows of two columns, the first of which has the whole output."""
    values = pyarrow.array([np.array([output, 0.0], np.float32) for output in outputs])
    return write_store(folder, {"id": ids, "output": outputs, "values": values}, kind="table", units=["first", "second"])
