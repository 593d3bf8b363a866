"""Stores of rows that were never explained, for tests of what reads them, and the explorer over stores."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from limits import HANGS

from ig2.explorer import Collection
from ig2.explorer.server import listen, make_server
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


def read_script(path: Path) -> Any:
    """What a file of an exported site hands to the page."""
    found = re.fullmatch(r'receive\("[^"]+", (.*)\);\n', path.read_text("ascii"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@contextmanager
def running(collection: Collection, host: str = "127.0.0.1", whatif: Any = None):
    """A server in a thread; yields its address."""
    addresses: list[str] = []
    is_up = threading.Event()
    with listen(host, 0) as listener:
        server = make_server(collection, host, listener, lambda address: (addresses.append(address), is_up.set()), whatif)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        assert is_up.wait(HANGS)
        try:
            yield addresses[0]
        finally:
            server.should_exit = True
            thread.join(HANGS)
