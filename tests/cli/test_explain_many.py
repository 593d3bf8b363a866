"""`ig2 explain` of many inputs: a run that skips what is broken, goes on where it stopped, and a report that stays usable."""

import errno
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import page_data, summary

import ig2 as library
from browsing import open_browser, open_screen, ready
from ig2 import Attribution
from ig2.cli import explain, files, pages
from ig2.demo import tables
from ig2.errors import IG2Error
from ig2.modalities.image.modality import Images
from links import check_links

COMMAND = ("explain", "photos", "-m", "mine:small", "--steps", 2, "--count", 2, "--compare", "ig")


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch):
    """Pictures of nothing: matplotlib would take most of the time."""
    empty = SimpleNamespace(savefig=lambda file, **_: Path(file).touch() if isinstance(file, Path) else None)
    monkeypatch.setattr(files, "draw_input", lambda *_: empty)


@pytest.fixture
def photos(ig2, monkeypatch):
    """Seven photos in a folder, of which four are many, explained three at a time."""
    monkeypatch.setattr(explain, "MANY", 4)
    monkeypatch.setattr(Images, "batch", 3)
    ig2.module()
    for seed in range(7):
        ig2.photo(f"photos/{'ab'[seed % 2]}/{seed}.png", seed=seed)
    return Path("photos")


def test_many_photos_are_shown_by_strata_and_ig2_and_ranked_by_the_trust_of_ig2(ig2, conv, monkeypatch):
    monkeypatch.setattr(explain, "MANY", 2)
    said = conv(photos=[ig2.photo(f"{seed}.png", seed=seed) for seed in range(3)])
    assert said.code == 0 and re.search(r"least trusted +\d\.png \(<?\d+%\), \d\.png", said.out)
    store = library.open("ig2-out/store")
    for entry in summary(Path("ig2-out"))["inputs"]:
        assert [found["column"] for found in entry["methods"].values()] == ["values", "values_ig2"]
        assert list(entry["methods"]) == ["Strata", "IG²"]
        assert store[entry["name"]]["trust_ig2"] == pytest.approx(entry["methods"]["IG²"]["trust"], abs=1e-5)
    verdicts = re.findall(r"^  (Strata|IG²) +\w", said.out, re.MULTILINE)
    assert verdicts == ["Strata", "IG²"]


def test_what_the_page_is_made_of_is_no_column_to_filter_or_sort_by(ig2, photos):
    """The explorer and its sites had the JSON and the small pictures of every item in their lists of columns."""
    assert ig2("explain", "photos", "-m", "mine:small", "--steps", 2, "--count", 2).code == 0
    store = library.open("ig2-out/store")
    assert not set(pages.JSON_COLUMNS) & set(store.scalars)
    assert set(pages.JSON_COLUMNS) < set(store.columns)


def test_a_folder_with_a_store_in_it_names_that(ig2, photos):
    assert ig2("explain", "photos/a/0.png", "-m", "mine:small", "--steps", 2).code == 0
    with pytest.raises(IG2Error, match=re.escape(f"use {Path('ig2-out/store')}")):
        library.open("ig2-out")


def test_how_long_it_takes_is_said_once_and_of_all_inputs(ig2, photos, monkeypatch):
    """Seven inputs in batches of three, each of which takes nine minutes."""
    monkeypatch.setattr("ig2.question.Call.estimate", lambda call: 540.0)
    said = ig2(*COMMAND, "-o", "many")
    methods = len(summary(Path("many"))["inputs"][0]["methods"])
    assert said.err.count("about") == 1
    assert f"about {methods * 540 * 7 / 3 / 60:.0f} min" in said.err


@pytest.mark.slow
def test_many_inputs_have_the_numbers_of_few_and_broken_ones_are_skipped(ig2, photos, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(explain, "MANY", 100)
        assert ig2(*COMMAND, "-o", "few").code == 0
    ig2.photo("photos/a/broken.png").write_text("no photo")
    said = ig2(*COMMAND, "-o", "many")
    assert said.code == 0 and "7 inputs, 1 skipped" in said.out and "broken.png is not an image" in said.out
    few, listed = summary(Path("few")), summary(Path("many"))
    assert [entry["name"] for entry in listed["inputs"]] == [entry["name"] for entry in few["inputs"]]
    assert [entry["name"] for entry in listed["skipped"]] == ["broken.png"] and listed["settings"].keys() == few[
        "settings"
    ].keys()
    assert sorted(listed["files"]) == sorted(os.listdir("many"))
    store = library.open("many/store")
    assert len(store) == 8 and store.failures == {"InputError": 1}
    for entry, alone in zip(listed["inputs"], few["inputs"], strict=True):
        assert entry["prediction"] == alone["prediction"] and Path("many", entry["picture"]).is_file()
        for method, numbers in entry["methods"].items():
            other = alone["methods"][method]
            expected = Attribution.load(Path("few", other["file"])).values[other["row"]].numpy()
            np.testing.assert_allclose(store[entry["name"]][numbers["column"]], expected, rtol=1e-4, atol=1e-6)
            assert numbers["verdict"] == other["verdict"] and numbers["trust"] == pytest.approx(other["trust"], abs=1e-5)
    # what is said of all is what is said of them in one piece
    said_of_few = re.findall(r"(?<=<bdi>)[^<]*sums? to[^<]*", Path("few/report.html").read_text("utf-8"))
    assert re.findall(r"(?<=<bdi>)[^<]*sums? to[^<]*", Path("many/report.html").read_text("utf-8"))[:2] == said_of_few[:2]


def test_the_details_are_beside_the_page_which_lists_all(ig2, photos):
    assert ig2(*COMMAND, "-o", "out").code == 0
    data = page_data(Path("out"))
    assert data["inputs"] == [] and len(data["files"]) == 7
    page = Path("out/report.html").read_text("utf-8")
    assert page.count('src="data:image/') == 7 and len(page) < 150_000
    for file in data["files"]:
        script = Path("out", file).read_text("utf-8")
        name, content = re.fullmatch(r'receive\("([^"]+)", (.*)\);\n', script, re.DOTALL).groups()
        assert name == file and [method["name"] for method in json.loads(content)["input"]["methods"]] == ["IG²", "IG"]


STOPPED = """
import os, signal
calls = 0
def stopped():
    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
        def forward(self, x):
            global calls
            calls += len(x)
            if calls > float(os.environ.get("STOP", "inf")):
                os.kill(os.getpid(), signal.SIGINT)
            return self.net(x)
    return subject(Slow())
"""


@pytest.mark.slow
@pytest.mark.usefixtures("_signals_as_in_a_terminal")
def test_the_same_command_goes_on_where_it_was_stopped(ig2, photos, monkeypatch):
    ig2.module(STOPPED)
    command = (*COMMAND[:3], "mine:stopped", *COMMAND[4:])
    assert ig2(*command, "-o", "whole").code == 0
    all_calls = sys.modules["mine"].calls
    assert ig2(*COMMAND[:2], "-m", "mine:small", "--method", "gradient", "-o", "out").code == 0
    before = Path("out/report.html").read_bytes()
    monkeypatch.setenv("STOP", str(all_calls * 0.7))
    said = ig2(*command, "-o", "out")
    assert said.code == 130 and "the same command resumes" in said.err
    assert Path("out/report.html").read_bytes() == before  # of the run before
    monkeypatch.delenv("STOP")
    said = ig2(*command, "-o", "out")
    assert said.code == 0 and re.search(r"resuming: [36] of 7 ", said.err)
    assert sys.modules["mine"].calls < 0.8 * all_calls
    assert sorted(os.listdir("out")) == sorted(os.listdir("whole"))
    one, two = summary(Path("out")), summary(Path("whole"))
    assert one["inputs"] == two["inputs"]
    for folder in ("report-files", "pictures"):
        assert sorted(os.listdir(Path("out", folder))) == sorted(os.listdir(Path("whole", folder))) and os.listdir(
            f"out/{folder}"
        )


@pytest.mark.slow
@pytest.mark.usefixtures("_signals_as_in_a_terminal")
@pytest.mark.parametrize("change", ["setting", "photo"])
def test_what_is_not_the_same_run_begins_again(ig2, photos, monkeypatch, change):
    ig2.module(STOPPED)
    command = (*COMMAND[:3], "mine:stopped", *COMMAND[4:], "-o", "out")
    assert ig2(*command).code == 0
    monkeypatch.setenv("STOP", str(sys.modules["mine"].calls * 0.7))
    assert ig2(*command).code == 130 and Path("out/.unfinished").is_dir()
    monkeypatch.delenv("STOP")
    if change == "photo":
        ig2.photo("photos/a/0.png", seed=99)
    said = ig2(*command, *(["--seed", 1] if change == "setting" else []))
    assert said.code == 0 and "going on" not in said.err
    assert len(summary(Path("out"))["inputs"]) == 7 and not Path("out/.unfinished").exists()


@pytest.mark.slow
def test_an_output_folder_holds_one_run_of_many_or_few(ig2, photos):
    assert ig2(*COMMAND, "-o", "out").code == 0
    assert ig2(*COMMAND, "-o", "out").code == 0  # replaces itself
    Path("out/mine.txt").touch()
    assert ig2("explain", "photos/a/0.png", *COMMAND[2:], "-o", "out").code == 0
    assert sorted(os.listdir("out")) == [
        "0.png",
        "ig.safetensors",
        "ig2.safetensors",
        "mine.txt",
        "report.html",
        "store",
        "summary.json",
    ]
    Path("own/store").mkdir(parents=True)
    assert "own/store exists already" in ig2.refused(*COMMAND, "-o", "own")


def test_a_full_disk_is_no_fault_of_the_inputs(ig2, photos, monkeypatch):
    def fail(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(pages, "write_file", fail)
    assert "No space left" in ig2.refused(*COMMAND, "-o", "out")


def test_where_no_input_is_sound_nothing_is_left(ig2, photos):
    for path in photos.rglob("*.png"):
        path.write_text("no photo")
    assert "none of 7 items can be explained" in ig2.refused(*COMMAND, "-o", "out")


@pytest.mark.slow
def test_many_sentences_and_rows(ig2, monkeypatch):
    monkeypatch.setattr(explain, "MANY", 2)
    Path("lines.txt").write_text("Who wrote Hamlet?\nWhere is Rome?\nWho wrote Hamlet?\n")
    assert ig2("explain", "lines.txt", "--method", "gradient", "-o", "texts").code == 0
    names = [entry["name"] for entry in summary(Path("texts"))["inputs"]]
    assert names == ["Who wrote Hamlet?", "Where is Rome?", "Who wrote Hamlet? (2)"]
    frame = tables.example_rows("iris", 5).astype(str)
    frame.iloc[2, 0] = "broken"
    frame.to_csv("rows.csv", index=False)
    said = ig2("explain", "rows.csv", "-m", "iris", "--steps", 2, "-o", "rows")
    assert said.code == 0 and "4 inputs, 1 skipped" in said.out and "row 3" in said.out
    assert [entry["name"] for entry in summary(Path("rows"))["inputs"]] == ["row 1", "row 2", "row 4", "row 5"]
    frame.drop(columns=frame.columns[0]).to_csv("other.csv", index=False)
    assert "column" in ig2.refused("explain", "other.csv", "-m", "iris", "-o", "none")


@pytest.mark.slow
def test_many_are_looked_at_one_by_one(ig2, photos):
    for seed in range(8, 15):
        ig2.photo(f"photos/c/tulip-{seed}.png", seed=seed)
    assert ig2(*COMMAND, "-o", "out").code == 0
    with open_browser() as browser:
        page, trouble, _ = open_screen(browser, viewport={"width": 390, "height": 844})
        page.goto(f"{(ig2.folder / 'out' / 'report.html').as_uri()}#input-3-method-2")
        ready(page)
        assert page.locator("section[data-input]").count() == 1  # the others are still in their files
        assert page.locator("section[data-input] .file").inner_text() == "4.png"
        assert page.locator("[role=tab][aria-selected=true]").inner_text() == "IG"
        for number in range(1, 15):
            page.evaluate("hash => { location.hash = hash }", f"#input-{number}")
            page.wait_for_selector(f'section[data-input="{number - 1}"]:not([hidden])[data-ready]')
        assert page.locator("section[data-input]").count() == 10  # and no more are kept
        page.keyboard.press("/")
        page.keyboard.type("TULIP 1")
        assert page.locator(".filter output").inner_text() == "5 of 14"
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.locator("section[data-input]:not([hidden]) .file", has_text="tulip-11.png").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not trouble
        (ig2.folder / "out" / page_data(Path("out"))["files"][0]).unlink()
        page.reload()
        ready(page)
        page.evaluate("location.hash = '#input-1'")
        page.wait_for_selector("#trouble:not([hidden])")
        assert "is missing" in page.locator("#trouble").inner_text()
        page.close()


@pytest.mark.slow
@pytest.mark.usefixtures("_signals_as_in_a_terminal")
def test_an_unfinished_run_is_emptied_and_filled_but_not_through_links(ig2, photos, monkeypatch):
    ig2.module(STOPPED)
    assert ig2(*COMMAND[:3], "mine:stopped", *COMMAND[4:], "-o", "whole").code == 0
    monkeypatch.setenv("STOP", str(sys.modules["mine"].calls * 0.7))
    (ig2.folder / "links").mkdir()

    def write(folder):
        seed = len(list(folder.parent.iterdir()))  # another run, before which the folder is emptied
        said = ig2(*COMMAND[:3], "mine:stopped", *COMMAND[4:], "--seed", seed, "-o", folder)
        if said.code != 130:
            raise IG2Error(said.error)

    check_links(write, ig2.folder / "links")
    assert (ig2.folder / "links" / "first" / ".unfinished" / "store" / "lock").is_file()
