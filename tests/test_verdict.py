"""Every finding says the same in a sentence, in the command, in a report and in the explorer."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import ig2
from ig2 import Attribution, modalities, verdict
from ig2.cli.output import print_verdict
from ig2.explorer import Collection
from ig2.explorer.routes import encode_json
from ig2.explorer.site import export_site
from ig2.modalities.base import Batch, Subject
from ig2.report import Content, build, render
from ig2.runs.files import FORMAT, MANIFEST, PARTS, write_json, write_part
from ig2.runs.plan import Plan, Saving
from ig2.runs.rows import make_table
from ig2.runs.sources import find_source
from stores import read_script

# What makes the first of two explicands a case of a finding: its values and what it is compared with. The other one's
# values add up, signs are to be believed, and paths arrived, as far as any of these is known.
ZERO: dict[str, Any] = {"values": [0.0, 0.0], "baseline_outputs": 4.0}
CASES: dict[str, dict[str, Any]] = {
    "lost": ZERO | {"arrival": 0.0, "steps_taken": 0},
    "flat": ZERO | {"baseline_outputs": None},
    "no_baseline": {"baseline_outputs": None},
    "asleep": ZERO | {"arrival": 1.0, "steps_taken": 0, "reference_outputs": 4.0},
    "same_representation": ZERO | {"arrival": 1.0, "steps_taken": 0, "reference_outputs": 2.0},
    "nothing": ZERO,
    "unchanged": {"values": [1.0, -1.0], "baseline_outputs": 4.0},
    "complete": {"complete": True},
    "sums": {},
    "unsteady": {"values": [3.0, 3.0], "complete": True},
    "off": {"values": [3.0, 3.0]},
    "opposed": {"against": True, "values": [-1.0, 0.0], "baseline_outputs": 5.0},
    "same_side": {"against": True, "values": [1.0, 1.0], "baseline_outputs": 2.0},
    "signless": {"trust": 0.1},
    "trusted": {"trust": 0.9},
    "unmoved": {"arrival": 0.0, "steps_taken": 0},
    "overshot": {"arrival": -2.0, "steps_taken": 5},
    "stuck": {"arrival": 0.3, "steps_taken": 5, "stuck": True},
    "no_nearer": {"arrival": 0.001, "steps_taken": 5},
    "short": {"arrival": 0.4, "steps_taken": 5},
    "finished": {"arrival": 1.0, "finished": 0.4},
    "arrived": {"arrival": 0.9},
}
SOUND = {
    "baseline_outputs": 1.0, "reference_outputs": 1.0, "trust": 0.9, "arrival": 0.95, "steps_taken": 5, "stuck": False,
    "finished": 0.0,
}  # fmt: skip


def make(case: dict[str, Any], subject: Subject | None = None, batch: Batch | None = None) -> Attribution:
    """An attribution of two explicands, of which the first is this case."""
    known = {"baseline_outputs": 1.0, **case}
    pairs = {name: (known[name], other) for name, other in SOUND.items() if known.get(name) is not None}
    values = torch.tensor([known.get("values", [1.0, 2.0]), [1.0, 2.0]]).double()
    found = Attribution(
        values=values,
        explicand=values,
        target=torch.zeros(2, dtype=torch.long),
        output=torch.full((2,), 4.0).double(),
        against=torch.zeros(2, 1, dtype=torch.long) if known.get("against") else None,
        settings={"method": "IG2", "complete": known.get("complete", False)},
        **{name: torch.tensor([[one], [other]]) for name, (one, other) in pairs.items()},
    )
    return found if subject is None or batch is None else subject.add_names(batch, found, subject.predict(batch))


class Door:
    """The four places where one attribution is judged."""

    def __init__(self, case: dict[str, Any], folder: Path) -> None:
        subject, batch = read_rows()
        self.attribution = make(case, subject, batch)
        self.content = build("t", subject, batch, {"IG²": self.attribution})
        self.collection = Collection([_store(folder / "store", subject, batch, self.attribution)])
        export_site(self.collection, folder / "site")
        self.site = folder / "site"

    def print(self, finer: int | None = 20) -> str:
        """What the command prints."""
        stream = io.StringIO()
        print_verdict(Console(file=stream, width=9999), "IG²", self.content.verdicts["IG²"], 5, finer)
        return " ".join(stream.getvalue().split())


def read_rows() -> tuple[Subject, Batch]:
    """A model of a table, and two of its rows."""
    rows = [{"age": age, "size": -age} for age in range(2)]
    net = torch.nn.Linear(2, 1).eval()
    subject = modalities.table.subject(net, ["age", "size"], ["price"], outputs="numbers", rows=rows)
    return subject, subject.read(rows)


def _store(folder: Path, subject: Subject, batch: Batch, attribution: Attribution) -> Path:
    """A store with the rows of an attribution."""
    plan = Plan(find_source([1, 2]), subject, subject.model, ig2.Gradient(), saving=Saving("units"))
    made = plan.make_rows(batch, attribution, plan.pose(batch))
    rows = [{"id": str(i), **row} for i, row in enumerate(made)]
    (folder / PARTS).mkdir(parents=True)
    write_part(folder / PARTS / "part-00000000-00000000.parquet", make_table(rows, plan.make_schema(rows[0])))
    made_by = {"method": {"name": "IG²"}, "model": {"name": "a network"}, "source": {}}
    shows = {"kind": "table", "view": {"name": "bars"}, "units": ["age", "size"]}
    write_json(folder / MANIFEST, {"format": FORMAT, "fingerprint": made_by, "digest": "0", **shows})
    return folder


def strip(text: str) -> str:
    """The words of HTML."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", text)).split())


def read(page: str) -> tuple[str, dict[str, Any], list[tuple[str, str]]]:
    """The text of a page, its data, and the mark and words of each verdict."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    header = page[page.index('aria-label="How far to believe them"') : page.index("What the numbers mean")]
    lines = re.findall(r'<li class="(\w+)">(.*?)</li>', header, re.DOTALL)
    return strip(page), json.loads(found[1]), [(mark, strip(text)) for mark, text in lines]


def check_surfaces(door: Door, code: str) -> None:
    """Check that all four places have a finding for the first explicand, with its words, mark and badge."""
    check = verdict.BY_CODE[code]
    findings = verdict.judge(door.attribution)
    (found,) = [each for each in findings if each.code == code]
    assert 0 in found.rows and found.of == 2 and found.severity == check.severity
    # in a sentence
    assert found.say() in door.attribution.verdict and check.remedies in door.attribution.verdict
    # in the command
    assert door.content.verdicts["IG²"] == findings
    printed = door.print()
    assert found.say("input") in printed and check.otherwise in printed
    for option in (*(option.format(steps=20) for option in check.finer), *check.options):
        assert option in printed
    # in the report: at its top, and beside the input
    _, data, header = read(render(door.content))
    ((mark, words),) = header
    assert mark == verdict.mark(findings) and found.say("input").strip() in words
    shown = {"code": code, "mark": check.severity, "badge": check.badge}
    assert data["inputs"][0]["methods"][0]["marks"][check.topic] == shown
    # in the explorer: in the list, as a column, on the item's page, and in an exported site
    collection = door.collection
    everything = np.arange(2)
    assert collection.describe_rows(everything)[0]["marks"][0][check.topic] == shown
    codes = collection.catalogue.read_row(0)["findings"]
    assert (code in (codes or "").split(", ")) == (check.severity == "poor")
    (item,) = collection.show_item("0")["inputs"]
    assert item["input"]["methods"][0]["marks"][check.topic] == shown
    alone = verdict.judge(door.attribution[0])
    line = re.search(r'<span class="(\w+)" data-method="0" hidden>(.*?)</span>', item["html"], re.DOTALL)
    assert line is not None and line[1] == verdict.mark(alone)
    assert verdict.say(alone, "input") in strip(line[2]) and verdict.advise(alone) in strip(item["html"])
    _, _, ((mark, words),) = read(render(collection.make_report(["0", "1"], "both")))
    assert found.say("input") in words and mark == verdict.mark(findings)
    rows = read_script(door.site / "data/rows/0.js")
    assert rows[0]["marks"][0][check.topic] == shown
    assert read_script(door.site / "items/0.js") == json.loads(encode_json(collection.show_item("0")))


@pytest.mark.parametrize("code", [check.code for check in verdict.CHECKS if check.code != "empty"])
def test_a_finding_is_the_same_on_every_surface(code: str, tmp_path: Path) -> None:
    check_surfaces(Door(CASES[code], tmp_path), code)


def test_a_further_finding_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = verdict.Check(
        "loud", "strength", "poor", "too loud", lambda at: at.strength > 5, "is too loud{share}", remedies="to turn it down",
        options=("--quiet",),
    )  # fmt: skip
    monkeypatch.setattr(verdict, "CHECKS", (*verdict.CHECKS, check))
    monkeypatch.setattr(verdict, "BY_CODE", {**verdict.BY_CODE, "loud": check})
    check_surfaces(Door({"values": [9.0, -6.0]}, tmp_path), "loud")


def test_an_attribution_of_nothing_says_so() -> None:
    empty = make({})[[]]
    assert [found.code for found in verdict.judge(empty)] == ["empty"]
    assert empty.verdict == "explains nothing, since it is empty" and verdict.judge_columns({}) == ()


def test_every_explicand_is_judged_by_itself() -> None:
    """A batch finds of each row what the row alone finds, from tensors and from the cells of a store."""
    parts = []
    for case in CASES.values():
        alone = make(case).numbers
        parts.append({name: alone[name][0].item() if name in alone else None for name in verdict.NUMBERS})
    together = verdict.mark_rows(
        verdict.judge_columns({name: [part[name] for part in parts] for name in verdict.NUMBERS}), len(parts)
    )
    assert together == [verdict.mark_row(part) for part in parts]
    assert [marks["residual"]["code"] for marks in together[:11]] == list(CASES)[:11]
    assert set(make(CASES["short"] | CASES["finished"] | CASES["signless"]).numbers) <= set(verdict.NUMBERS)


@pytest.mark.parametrize(
    ("far", "code"), [(5.0, "opposed"), (3.0, "same_side"), (0.41, "same_side"), (0.39, None), (-1.0, None)]
)
def test_a_contrast_has_the_other_class_at_its_far_end(far: float, code: str | None) -> None:
    """A margin of 4 at x, and another at its references; of an output without a contrast nothing is said."""
    for name in ("baseline_outputs", "reference_outputs"):
        known = {"baseline_outputs": -1.0, name: far, "values": [0.5 * (4 - (far if name[0] == "b" else -1.0))] * 2}
        marks = verdict.mark_rows(verdict.judge(make(known | {"against": True}))[:], 2)[0]
        assert marks.get("contrast", {}).get("code") == code
        assert "contrast" not in verdict.mark_rows(verdict.judge(make(known)), 2)[0]


@pytest.mark.parametrize(
    ("topic", "changes", "code"),
    [
        ("residual", {"relative_residual": 0.0009, "complete": 1.0}, "complete"),
        ("residual", {"relative_residual": 0.0011, "complete": 1.0}, "sums"),
        ("residual", {"relative_residual": 0.0999}, "sums"),
        ("residual", {"relative_residual": 0.1001}, "off"),
        ("residual", {"relative_residual": 0.1001, "complete": 1.0}, "unsteady"),
        ("trust", {"trust": 0.499}, "signless"),
        ("trust", {"trust": 0.5}, "trusted"),
        ("arrival", {"arrival": 0.749}, "short"),
        ("arrival", {"arrival": 0.751}, "arrived"),
        ("arrival", {"arrival": 0.0051}, "short"),
        ("arrival", {"arrival": 0.0049}, "no_nearer"),
        ("arrival", {"arrival": 0.0}, "no_nearer"),
        ("arrival", {"arrival": -0.001}, "overshot"),
        # of a few references is enough, unless they stood still where they were to go
        ("arrival", {"stuck": 0.25, "arrival": 0.5}, "stuck"),
        ("arrival", {"stuck": 0.25, "arrival": 0.989}, "stuck"),
        ("arrival", {"stuck": 0.25, "arrival": 0.991}, "arrived"),
        ("arrival", {"steps_taken": 0.0, "arrival": 0.2}, "unmoved"),
        ("arrival", {"finished": 0.01, "arrival": 0.9}, "finished"),
        ("arrival", {"finished": 0.0, "arrival": 0.9}, "arrived"),
    ],
    ids=lambda value: str(value),
)
def test_each_finding_ends_where_the_next_begins(topic: str, changes: dict[str, float], code: str) -> None:
    row = {"output": 2.0, "baseline_output": 1.0, "residual": 0.0, "relative_residual": 0.0, "strength": 1.0}
    walked = {"complete": 0.0, "trust": 0.9, "arrival": 0.9, "stuck": 0.0, "finished": 0.0, "steps_taken": 5.0}
    assert verdict.mark_row(row | walked | changes)[topic]["code"] == code


def test_findings_have_the_worst_number_and_the_rows() -> None:
    outputs = torch.tensor([4.0, 4.0, 4.0, 4.0])
    values = torch.tensor([[3.0], [3.15], [6.0], [9.0]])
    found = Attribution(
        values, torch.tensor([[1.0], [1.0], [1.0], [4.0]]), explicand=values, target=outputs.long(), output=outputs
    )
    sums, off = verdict.judge(found)
    assert (sums.code, sums.rows, off.code, off.rows) == ("sums", (0, 1), "off", (2, 3))
    assert sums.numbers["worst"] == pytest.approx(0.05) and sums.numbers["inexact"] == 1
    assert off.numbers["worst"] == pytest.approx(1.0) and off.numbers["endless"] == 1


def test_nan_is_a_large_residual() -> None:
    (found,) = verdict.judge_columns({"output": [1.0], "baseline_output": [0.0], "residual": [float("nan")]})
    assert found.code == "off" and "NOT" in found.say()
    # of rows of a store, infinite numbers are empty cells
    row = {"output": [1.0], "baseline_output": [1.0], "residual": [0.5], "relative_residual": [None]}
    (found,) = verdict.judge_columns(row)
    assert found.code == "off" and "(which is zero)" in found.say()


def test_a_run_that_found_state_in_a_part_is_complete_in_none_of_it() -> None:
    one, two = make(CASES["complete"]), make(CASES["sums"])
    joined = Attribution.join([one, two])
    assert joined.settings["complete"] == [True, False] and "by construction" not in joined.verdict


@pytest.mark.parametrize(
    ("code", "finer", "words"),
    [
        ("off", 20, ": try --steps 20 or --rule blended (for all methods), or read it as a ranking"),
        ("off", None, ": read it as a ranking"),
        ("unsteady", 20, "look for state or randomness in its forward pass"),
        ("short", 20, ": try --steps 20 or --method ig2-straight or --method expected-ig"),
        ("stuck", 20, ": try --method ig2-straight or --method expected-ig"),
        ("nothing", 20, ": contrast it with other references, or explain another output"),
        ("sums", 20, "sums to the change in the output"),
    ],
)
def test_the_command_advises_what_can_be_typed(code: str, finer: int | None, words: str, tmp_path: Path) -> None:
    printed = Door(CASES[code], tmp_path).print(finer)
    assert printed.endswith(words) and "ig2." not in printed


def test_fields_of_the_user_are_in_stores_reports_and_the_explorer(tmp_path: Path) -> None:
    door = Door({}, tmp_path / "plain")
    own = {"age": torch.tensor([3, 4]), "hue": ["red", "<b>blue</b>"], "box": torch.arange(6.0).reshape(2, 3)}
    found = replace(door.attribution, extra=own, note="drawn <i>twice</i>")
    subject, batch = read_rows()
    content = build("t", subject, batch, {"IG²": found})
    assert isinstance(content, Content)
    second = content.inputs[1].methods[0]
    assert second.note == found.note and second.extra == {"age": 4.0, "hue": "<b>blue</b>", "box": "Tensor float32 (3,)"}
    collection = Collection([_store(tmp_path / "store", subject, batch, found)])
    store = collection.stores[0]
    row = store["1"]
    assert (row["note"], row["extra_age"], row["extra_hue"]) == (found.note, 4, "<b>blue</b>")
    np.testing.assert_array_equal(row["extra_box"], [3, 4, 5])
    assert store.where("extra_age > 3 and extra_hue == '<b>blue</b>'").ids == ["1"]
    (view,) = collection.view("1")[0]
    assert view.methods[0].note == found.note and view.methods[0].extra["age"] == 4.0
    assert collection.catalogue.read_row(1)["extra_hue"] == "<b>blue</b>"
    frame = found.to_frame(per="input")
    assert frame["age"].tolist() == [3, 4] and frame["hue"].tolist() == own["hue"] and "box" not in frame
