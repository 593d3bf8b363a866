"""The benchmarks run: what they measure is for people to read."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["authors", "overhead", "residuals", "precision"])
def test_a_small_run_ends_with_numbers(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    main = importlib.import_module("performance.__main__")
    monkeypatch.setattr("sys.argv", ["bench", name, "--quick", "--out", str(tmp_path)])
    main.main()
    rows = json.loads((tmp_path / "performance.json").read_text())["results"][name]
    assert rows and all(row.keys() == rows[0].keys() for row in rows)
