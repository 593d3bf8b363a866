"""The tables of the pages on runs are those that were measured and stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from performance import runs

ROOT = Path(__file__).parent.parent.parent
STORED: dict[str, Any] = json.loads((ROOT / "performance/results/runs-cpu.json").read_text())["results"]
PAGE = (ROOT / "docs/runs.md").read_text(encoding="utf-8")


def test_the_page_has_the_stored_figures() -> None:
    for row in STORED["overhead"]:
        names = ("items/s alone", "items/s of ig2.run", "share", "share in between", "share of CPU time")
        assert f"| `{row['what']}` | {' | '.join(str(row[name]) for name in names)} |" in PAGE
    for row in STORED["memory"]:
        assert any(line.startswith(f"| {row['items']:,}") and line.endswith(f"| {row['MiB']} |") for line in PAGE.splitlines())
    scaling = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
    for row in STORED["ray"]:
        numbers = (row[name] for name in ("seconds", "until the first rows", "items/s after them"))
        assert f"| {row['what']} | {' | '.join(map(str, numbers))} |" in scaling


def test_the_page_has_the_figures_of_a_gpu() -> None:
    stored = json.loads((ROOT / "performance/results/runs-h200.json").read_text())["results"]
    for row in stored["overhead"]:
        numbers = (row[name] for name in ("items/s alone", "items/s of ig2.run", "share", "share in between"))
        assert f"| small images, `{row['what']}` | {' | '.join(map(str, numbers))} | |" in PAGE
    for row in stored["photos"]:
        method, *more = row["what"].split(", ")
        what = ", ".join([f"{row['photos']:,} photos", f"`{method}`", *more])
        numbers = (row[name] for name in ("photos/s alone", "photos/s of ig2.run", "share", "share in between", "GPU busy"))
        assert f"| {what} | {' | '.join(map(str, numbers))} |" in PAGE


def test_the_page_on_language_has_the_stored_figures() -> None:
    page = (ROOT / "docs/language.md").read_text(encoding="utf-8")
    stored = json.loads((ROOT / "performance/results/lm-h200.json").read_text())["results"]
    names = ("size", "tokens", "bare s", "ours s", "predicted s", "bare GiB", "ours GiB", "prefix GiB", "DeepSHAP s")
    for row in stored["lm"]:
        assert f"| {' | '.join(str(row[name]) for name in names)} |" in page


def test_what_a_benchmark_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_is_there", lambda name: name == "PIL")
    assert runs.find_missing(["overhead", "ray"]) == ["pyarrow", "ray"]
    assert "torchvision or timm" in runs.find_missing(["photos"])[1]
