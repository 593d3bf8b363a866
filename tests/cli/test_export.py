"""The command that writes the explorer as a site."""

from __future__ import annotations

import json
from pathlib import Path

from stores import tiny


def test_a_site_is_written_and_how_to_look_at_it_is_printed(ig2):
    tiny(ig2.folder / "store", ["x", "y", "z"], [1.0, 2.0, 3.0])
    said = ig2("export", "store", "--out", "my site", "--where", "output > 1", "--limit", 1).out
    assert "1 item  of 3" in said and "open" in said and "my site/index.html" in said
    assert json.loads(Path("my site/export.json").read_text())["items"] == 1
    assert "3 items" in ig2("export", "store", "--out", "my site").out  # replaces it


def test_what_cannot_be_exported_is_refused(ig2):
    assert "ig2 export ig2-run" in ig2.refused("export", code=2)
    assert "no store" in ig2.refused("export", ".")
    tiny(ig2.folder / "store", ["x"], [1.0])
    assert "something else" in ig2.refused("export", "store", "--out", "store")
    assert "10001" in ig2.refused("export", "store", "--limit", 10_001, code=2)
    assert "fulfils" in ig2.refused("export", "store", "--where", "output > 5")
    assert not Path("ig2-site").exists()
