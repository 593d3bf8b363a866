"""The benchmarks run: what they measure is for people to read."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["authors", "overhead", "residuals", "precision"])
def test_a_small_run_ends_with_numbers(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    main = importlib.import_module("performance.__main__")
    monkeypatch.setattr("sys.argv", ["bench", name, "--quick", "--out", str(tmp_path)])
    main.main()
    rows = json.loads((tmp_path / "performance.json").read_text())["results"][name]
    assert rows and all(row.keys() == rows[0].keys() for row in rows)


def test_both_sides_of_the_speed_contest_return_the_same_numbers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    contest = importlib.import_module("performance.authors").Contest.wafers(1, 2)
    contest.net.double()
    # with a little noise: on maps of three values, ties of the pooling are broken by rounding
    noise = 0.05 * torch.randn(3, 56, 56, generator=torch.Generator().manual_seed(0)).double()
    contest = replace(contest, x=contest.x + noise, references=contest.references + noise)
    ours, theirs = contest.ours(4), contest.theirs(4)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9 * float(theirs.abs().max()))
    assert not torch.allclose(contest.ours(3), theirs, rtol=0, atol=1e-3 * float(theirs.abs().max()))


def test_the_faster_copy_is_measured_row_by_row(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    measured = importlib.import_module("performance.faster_copy")
    monkeypatch.setattr("sys.argv", ["bench", str(tmp_path / "copy.json"), "--device", "cpu", "--quick"])
    measured.main()
    rough, bare, *prepared = json.loads((tmp_path / "copy.json").read_text())["results"]["faster copy"]
    assert "as it is" in rough and bare["to bare"] == 1
    assert [row["accepted"] for row in prepared] == [True, True]
