"""The results pages of the docs are made from the stored tables, and from nothing else."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ig2_bench import Leaderboard, Table
from ig2_bench.suite import BenchOptions, find_suite

ROOT = Path(__file__).parents[2]
STORE = ROOT / "bench" / "results"


@pytest.fixture
def results(monkeypatch):
    monkeypatch.chdir(ROOT)
    return importlib.import_module("ig2_bench.results")


def test_the_pages_are_what_the_stored_tables_say(results):
    written = {"results.md", *(f"results/{path.name}" for path in (ROOT / "docs" / "results").iterdir())}
    pages = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in written - {"results/synthetic.md"}}
    assert pages == results.render_pages(STORE), "make the pages again: python -m ig2_bench.results --page"


def test_the_leaderboard_pages_are_what_the_stored_standings_say(results, tmp_path):
    results.write_leaderboard(tmp_path)
    written, stored = (
        {str(page.relative_to(folder)): page.read_text(encoding="utf-8") for page in folder.glob("**/*.md")}
        for folder in (tmp_path, ROOT / "docs")
    )
    of_leaderboard = {name: text for name, text in stored.items() if name.startswith("leaderboard")}
    assert of_leaderboard == written, "make the pages again: python -m ig2_bench.results --page"
    assert (ROOT / "docs" / "leaderboard.png").stat().st_size > 10_000
    board = Leaderboard.load(ROOT / "bench" / "leaderboard" / "leaderboard.json")
    assert not any(one.quick for one in board.boards.values())
    table = written["leaderboard.md"].partition("\n| | method |")[2].partition("\n\n")[0]
    assert 2 < table.count("\n") <= 15  # a screen


def test_every_table_is_on_one_page_and_the_index_begins_with_the_findings(results):
    pages = results.render_pages(STORE)
    text = "\n".join(pages.values())
    assert all(sum(run.folder in folders for _, folders in results.PAGES.values()) == 1 for run in results.RUNS)
    for run in results.RUNS:
        rows = Table.load(STORE / f"{run.name}.json").to_markdown().split("\n\n")[1]
        assert text.count(rows) == 1, run.name
    index = pages["results.md"]
    assert all(f"({name})" in index for name in [*pages, "results/synthetic.md"] if name != "results.md")
    places = [index.index(text) for text in ("In short", "| page |", "## At a glance", "## How they were made")]
    assert places == sorted(places)
    for name in pages.keys() - {"results.md", "results/rules.md"}:  # what was seen before what was set
        assert pages[name].rindex("How far ") < pages[name].index("## Data and settings") < pages[name].index("Settings: `")


def test_every_stored_table_is_of_a_listed_run_on_real_data(results):
    listed = {f"{one.name}.json" for one in results.RUNS} | {"xai-bench.json"}
    stored = {str(path.relative_to(STORE)) for path in STORE.rglob("*.json")}
    assert stored <= listed
    for name in stored - {"xai-bench.json"}:
        table = Table.load(STORE / name)
        assert not table.quick and table.failures == () and table.shows == "se", name
        assert "drawn by" not in table.data and "made up" not in table.data, name


def test_every_listed_table_is_stored_with_the_present_settings(results, tmp_path):
    of: dict[str, set[str]] = {one.folder: set() for one in results.RUNS}
    for one in results.RUNS:
        options = BenchOptions(data=tmp_path, samples=one.samples, study=one.study, split=one.split, device="cpu")
        path = STORE / f"{one.name}.json"
        of[one.folder].add(data := Table.load(path).environment["data"])
        assert results.is_stored(find_suite(one.suite, options), path, data), one.name
    assert all(len(digests) == 1 for digests in of.values())  # tables of one folder are of the same samples


def test_stored_means_are_those_of_the_stored_samples():
    for path in STORE.rglob("*.json"):
        for row in Table.load(path).rows:
            defined = [value for value in row.values if not math.isnan(value)]
            if defined:
                assert row.n == len(defined) and row.mean == pytest.approx(sum(defined) / row.n, rel=1e-3, abs=1e-5), path


def test_reported_tables_have_a_hundred_samples(results):
    for path in STORE.rglob("*.json"):
        table = Table.load(path)
        if table.unit == "sample" and table.settings["split"] == "test":
            assert table.settings["samples"] >= 100, path


def test_settings_were_chosen_on_the_validation_split(results):
    """Steps of the compared IG² are those that scored best on the validation split; the published are beside them."""
    for path in STORE.rglob("*-steps-choose.json"):
        chosen, compared = Table.load(path), path.with_name(path.name.replace("-steps-choose", ""))
        if not compared.exists():
            continue
        metrics = [label for label in ("GT-AUC", "GT-SUM", "ADD", "DEL") if label in chosen.metrics]
        scores = {
            method: sum((1 if chosen.metrics[m].better == "higher" else -1) * chosen.row(method, m).mean for m in metrics)
            for method in chosen.methods
            if not method.endswith("as published")
        }
        assert len(scores) == 15, path
        best = chosen.methods[max(scores, key=scores.__getitem__)]["path"]
        settings = Table.load(compared).settings
        assert (best["steps"], best["step_size"]) == (settings["steps"], settings["step_size"]), path
        assert chosen.settings["split"] == "validation" and settings["split"] == "test"


def test_the_settings_tried_can_be_tried_again():
    """The study has the rows that the stored table was made with, although other settings were chosen by it."""
    for path in STORE.rglob("*-steps-choose.json"):
        stored = Table.load(path)
        name = stored.suite.removesuffix("-steps-choose").replace("pets", "imagenet")
        suite = find_suite(name, BenchOptions(study="steps", split="validation", device="cpu"))
        assert set(stored.methods) <= set(suite.methods()), path


def test_a_note_for_a_table_that_is_not_there_is_refused(results, tmp_path):
    for name in ("wafer.json", "notes.md"):
        (tmp_path / name).write_bytes((STORE / name).read_bytes())
    with pytest.raises(SystemExit, match=r"notes\.md has notes for tables that are not stored: .*celeba"):
        results.render_pages(tmp_path)


def test_data_that_cannot_be_read_are_named_and_the_others_go_on(results, tmp_path, capsys):
    (tmp_path / "wafer").mkdir()
    chosen = [one for one in results.RUNS if one.name in ("wafer", "wafer-rules", "mnist")]
    assert not results.make_tables(chosen, tmp_path, tmp_path / "out", "cpu", again=False)
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == ["wafer", "wafer-rules", "mnist"]
    assert "has neither wm811k.npz nor LSWMD.pkl" in said[0] and said[2].endswith("is not available, skipped")


def test_what_is_stored_is_not_made_again(results, tmp_path):
    """Goes by settings, methods and data, so that a stored table of others is."""
    stored = Table.load(STORE / "wafer-rules.json")
    options = {name: stored.settings[name] for name in ("study", "split", "samples")}
    suite = find_suite("wafer", BenchOptions(**options, data=tmp_path, device="cpu"))
    data = stored.environment["data"]
    assert results.is_stored(suite, STORE / "wafer-rules.json", data)
    assert not results.is_stored(suite, STORE / "wafer-rules.json", "of other maps")
    assert not results.is_stored(suite, STORE / "wafer.json", data)
    assert not results.is_stored(suite, tmp_path / "wafer-rules.json", data)
    assert not results.is_stored(replace(suite, steps=26), STORE / "wafer-rules.json", data)


def test_a_folder_without_any_data_set_is_refused(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["results", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        results.main()
    assert stopped.value.code == 2 and "has none of the folders pets, imagenet-val" in capsys.readouterr().err


def test_what_could_not_be_made_leaves_the_pages_as_they_are(results, tmp_path, monkeypatch, capsys):
    (tmp_path / "wafer").mkdir()
    docs = tmp_path / "docs"
    monkeypatch.setattr(results, "STORE", tmp_path / "out")
    monkeypatch.setattr(results, "DOCS", docs)
    monkeypatch.setattr(
        "sys.argv", ["results", "wafer", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--device", "cpu"]
    )
    with pytest.raises(SystemExit) as stopped:
        results.main()
    assert stopped.value.code == 1 and not docs.exists() and "wafer:" in capsys.readouterr().out
