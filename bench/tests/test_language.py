"""The tables of the page on language models are those of the stored cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.language import pairs, questions
from ig2_bench.language import Column, render

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("study", [pairs, questions], ids=["pairs", "questions"])
def test_the_page_has_the_stored_rows(study):
    rows = json.loads(Path(study.__file__).with_suffix(".json").read_text(encoding="utf-8"))["rows"]
    names = [(row["method"], row["references"]) for row in rows]
    assert len(set(names)) == len(names)
    table = study.render(rows, study.COLUMNS, study.DIGITS)
    assert f"\n\n{table}\n\n" in PAGE, f"{study.__file__} --render prints the table:\n{table}"


def make_row(method, references, values):
    return {"method": method, "references": references, "residual": None, "cases": [{"off": value} for value in values]}


@pytest.mark.parametrize(("is_gain", "better", "worse"), [(True, "+", "−"), (False, "−", "+")])
def test_a_sign_goes_by_differences_case_by_case(is_gain, better, worse):
    base = [number / 20 for number in range(20)]
    rows = [
        make_row("DeepSHAP", "pair", base),
        make_row("a little more each time", "pair", [value + 0.01 + value / 100 for value in base]),  # the intervals overlap
        make_row("a little less each time", "pair", [value - 0.01 - value / 100 for value in base]),
        make_row("more and less", "pair", [value + 0.1 * (-1) ** number for number, value in enumerate(base)]),
        make_row("more, of other references", "zero", [value + 0.5 for value in base]),
    ]
    lines = render(rows, [Column("off", "off Shapley", is_gain)], 2).splitlines()[2:]
    assert [line.split("] ")[1].split(" |")[0] for line in lines[1:3]] == [better, worse]
    assert [line.split("] ")[1] for line in (lines[0], *lines[3:])] == ["|  |"] * 3
