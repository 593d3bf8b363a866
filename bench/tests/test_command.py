"""`ig2 bench`: what is typed, what is printed, and what is left in the folder."""

import json
import os
import re
import signal
from functools import partial
from pathlib import Path

import pytest
import toysuite
from commands import plain

from ig2_bench import SUITES, Table
from ig2_bench.cli import bench

ESCAPE = "\x1b"
OWN = """
from toysuite import *

def mine(model, x, target=None, references=None, *, seed=0):
    print("here I am")
    return x + AMOUNT

class Kind:
    def __call__(self, model, x, target=None, references=None, *, seed=0):
        return x

number = 3
"""


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    monkeypatch.setitem(SUITES, "toy", toysuite.Toy)
    monkeypatch.setitem(SUITES, "wide", toysuite.Wide)


@pytest.fixture
def toy(ig2):
    """`ig2 bench toy` beside a module of methods."""
    module(ig2)
    return partial(ig2, "bench", "toy")


def module(ig2, amount=0.5):
    (ig2.folder / "methods.py").write_text(OWN.replace("AMOUNT", str(amount)), encoding="utf-8")


def lines(folder="ig2-bench"):
    return [json.loads(line) for line in Path(folder, "toy.cells.jsonl").read_text().splitlines()]


def test_the_list_names_every_suite(ig2):
    said = ig2("bench", "--list")
    assert said.code == 0 and said.err == ""
    named = [line.split()[0] for line in said.out.splitlines() if not line.startswith(" ")]
    assert named == [*SUITES, "leaderboard"] and "xai-bench" in SUITES
    assert re.search(r"^wafer .*\n +studies: rules, distances, .*ablation", said.out, re.MULTILINE)
    assert re.search(r"^toy +a toy$", said.out, re.MULTILINE)
    assert max(map(len, said.out.splitlines())) <= 80
    assert not ig2.files()


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_away_from_a_terminal_the_table_is_markdown_and_nothing_else(toy):
    said = toy("--out", "out")
    assert (said.code, said.err) == (0, "")
    assert said.out == Path("out/toy.md").read_text(encoding="utf-8") and ESCAPE not in said.out
    assert said.out.startswith("# A toy\n\n| method ")
    assert sorted(path.name for path in Path("out").iterdir()) == ["toy.cells.jsonl", "toy.json", "toy.md"]
    assert Table.load("out/toy.json").row("IG", "distance").n == 3


@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_terminal_the_table_fits(ig2, width):
    ig2.on_a_terminal(width)
    module(ig2)
    said = ig2("bench", "wide", "--seeds", 2, "-q", "--own", "methods:broken", "--own", "mine=methods:mine")
    shown = plain(said.out)
    assert said.code == 1 and ESCAPE in said.out
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width
    for metric in toysuite.Wide.many:
        assert all(word in shown for word in metric.split())
    for label in toysuite.Wide().methods():
        rows = re.findall(rf"^ {re.escape(label)}  +.*$", shown, re.MULTILINE)
        figures = sum(len(re.findall(r"\d\.\d{3} ± \d\.\d{3}", row)) for row in rows)
        assert figures == len(toysuite.Wide.many), label  # in one table or several, none folded
    assert "ig2-bench/wide.md" in shown and "ig2-bench/wide.json" in shown
    assert "broken failed on seed 0, seed 1: ValueError" in " ".join(shown.split())


def test_on_a_terminal_the_best_is_bold_and_the_paper_beside_it(toy, ig2):
    ig2.on_a_terminal(80)
    shown = toy("-q").out
    (row,) = (line for line in shown.splitlines() if plain(line).startswith(" IG² "))
    assert f"{ESCAPE}[1;32m" in row and "-0.300" in row
    (row,) = (line for line in shown.splitlines() if plain(line).startswith(" IG "))
    assert f"{ESCAPE}[1;32m" not in row and "-1.200" in row and "1.20" in row


def test_hostile_labels_are_text_on_a_terminal(toy, ig2):
    ig2.on_a_terminal(80)
    label = "[red]a[/red] | \x1b[31m<script>"
    shown = plain(toy("-q", "--own", f"{label}=methods:Kind").out)
    assert "[red]a[/red] |" in shown and "[31m<script>" in shown  # folded between them
    assert "\x1b" not in shown


def test_on_a_terminal_progress_is_shown_unless_quiet(toy, ig2):
    ig2.on_a_terminal(80)
    said = toy("--own", "mine=methods:mine")
    assert re.search(r"seed 2: mine .*━.*14/15", plain(said.err)) and "━" not in said.out
    assert toy("--quiet", "--fresh").err == ""


def test_what_a_method_prints_does_not_get_into_the_table(toy):
    said = toy("--own", "mine=methods:mine", "--seeds", 1)
    assert "here I am" in said.err and "here I am" not in said.out


# -- choosing ----------------------------------------------------------------------------------------------------------


def methods_of(said):
    assert said.code == 0, said
    return [line.split("|")[1].strip() for line in said.out.splitlines() if line.startswith("|")][2:]


def test_methods_are_chosen_by_label(toy):
    assert methods_of(toy("--methods", "ig2, Guided_IG")) == ["Guided IG", "IG²"]
    assert methods_of(toy("--methods", "ig", "--own", "methods:mine", "--own", "best one=methods:Kind")) == [
        "IG", "mine", "best one",
    ]  # fmt: skip
    assert methods_of(toy()) == ["IG", "Guided IG", "IG²"]


def test_a_comma_within_a_label_is_not_one_between_labels():
    assert bench._split_names("ig, IG² (left, as published) ,,x") == ["ig", "IG² (left, as published)", "x"]


def test_an_own_method_stands_in_the_table(toy):
    toy("--own", "mine=methods:mine")
    found = Table.load("ig2-bench/toy.json")
    assert found.methods["mine"] == "methods.mine"
    assert found.row("mine", "distance").mean == pytest.approx(0.55)


def test_an_own_method_is_scored_again_when_its_file_changes(toy, ig2):
    toy("--own", "mine=methods:mine")
    module(ig2, amount=1.5)
    toy("--own", "mine=methods:mine")
    assert Table.load("ig2-bench/toy.json").row("mine", "distance").mean == pytest.approx(1.65)
    assert [line["method"] for line in lines()].count("mine") == 6
    assert [line["method"] for line in lines()].count("IG") == 3  # kept


def test_quick_and_seeds_reach_the_suite(toy):
    assert "A quick run" in toy("--quick").out
    assert "over 2 seeds" in toy("--seeds", 2).out
    toy("--seeds", 1, "--seed", 7)
    assert Table.load("ig2-bench/toy.json").row("IG", "distance").mean == pytest.approx(1.7)


def test_a_suite_is_named_by_its_module_too(ig2):
    module(ig2)
    assert "over 3 seeds" in ig2("bench", "methods:Toy").out and Path("ig2-bench/toy.md").is_file()
    assert "is not a suite" in ig2.refused("bench", "methods:mine", code=2)


def test_fresh_scores_again(toy):
    toy()
    first = lines()
    toy()
    assert lines() == first
    toy("--fresh")
    assert len(lines()) == len(first) and lines() != first  # other times


# -- going on ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.usefixtures("_signals_as_in_a_terminal")
def test_a_run_that_is_stopped_keeps_what_it_has_and_says_how_to_go_on(toy, monkeypatch, name, code):
    monkeypatch.setenv("SIGNAL", name)
    typed = ("--own", "mine=methods:interrupted", "--out", "out")
    said = toy(*typed)
    assert (said.code, said.out) == (code, "")
    first, *rest = said.err.splitlines()
    assert "out: the same command resumes" in first
    assert rest == (["ig2: stopped"] if name == "SIGINT" else [])
    kept = lines("out")
    assert [line["method"] for line in kept] == [None, "IG", "Guided IG", "IG²", "mine", None, "IG", "Guided IG", "IG²"]
    assert "the same command without --fresh resumes" in toy(*typed, "--fresh").err
    kept = lines("out")
    assert len(kept) == 9
    monkeypatch.setenv("SIGNAL", "SIGCONT")  # which does nothing
    said = toy(*typed)
    assert said.code == 0 and len(lines("out")) == 15 and lines("out")[:9] == kept


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.usefixtures("_signals_as_in_a_terminal")
def test_a_run_that_is_stopped_before_its_first_score_says_so(toy, ig2, monkeypatch, tmp_path_factory, name):
    """While a network is trained, for example, be the folder new or full of other scores."""
    kept = tmp_path_factory.mktemp("kept")
    (kept / "wafer-0-cpu.checkpoint").touch()
    monkeypatch.setenv("IG2_CACHE", str(kept))
    before = ig2.files()
    stop = partial(os.kill, os.getpid(), getattr(signal, name))
    with monkeypatch.context() as patch:
        patch.setattr(toysuite.Toy, "prepare", lambda *_: stop())
        first, *_ = toy("--out", "out").err.splitlines()
        assert "no score is stored yet (seed 0: preparing): the same command begins again" in first
        assert first.endswith(f"; what was trained is kept in {kept}")
        assert ig2.files() == before
    toy("--out", "out")
    with monkeypatch.context() as patch:
        patch.setattr(toysuite.Toy, "prepare", lambda *_: stop())
        assert "no score is stored yet" in toy("--out", "out", "--fresh").err
        assert "no score is stored yet" in toy("--out", "out", "--seed", 7).err


def test_a_failure_is_in_the_notes_and_in_the_exit_code_and_the_rest_is_there(toy):
    said = toy("--own", "bad=methods:broken")
    assert said.code == 1
    assert said.error.startswith("3 scores failed")
    assert "- bad failed on seed 0, seed 1, seed 2: ValueError: cannot do this | &lt;b&gt;" in said.out
    found = Table.load("ig2-bench/toy.json")
    assert found.row("IG", "distance").n == 3 and len(found.failures) == 3
    said = toy("--own", "bad=methods:broken", "--debug")
    assert said.code == 1 and said.err.count("Traceback") == 3 and "in broken" in said.err


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "keyword", "code"),
    [
        ("", "xai-units, xai-tris, imagenet", 2),
        ("xai-benhc", "did you mean xai-bench?", 2),
        ("zzz", "'zzz': choose from", 2),
        ("toy --methods guidde", "did you mean Guided IG?", 2),
        ("toy --methods zzz", "'zzz': choose from IG, Guided IG, IG²", 2),
        ("toy --methods ,", "choose from IG, Guided IG, IG²", 2),
        ("toy --own nothing", "expected module:function", 2),
        ("toy --own a=b", "expected module:function", 2),
        ("toy --own methods:mine --own mine=methods:Kind", "two methods", 2),
        ("toy --seeds 0", "between 1 and 10000", 2),
        ("toy --seed -1", "between 0 and", 2),
        ("toy --data somewhere", "(--data)", 2),
        ("toy --study rules", "(--study)", 2),
        ("toy --split test", "(--split)", 2),
        ("toy --samples 3", "(--samples)", 2),
        ("wafer --samples 0", "between 1 and", 2),
        ("wafer --split left", "'left'", 2),
        ("wafer --study nonsense", "'nonsense': choose from rules, distances", 2),
        ("wafer --seeds 3", "(--seeds)", 2),
        ("toy --device toaster", "'toaster' is not available", 2),
        ("toy --nonsense", "No such option", 2),
        ("toy --own nowhere:mine", "no module 'nowhere'", 1),
        ("toy --own methods:min", "did you mean mine?", 1),
        ("toy --own methods:number", "methods:number is 3", 1),
        ("toy --out methods.py", "methods.py is a file", 1),
        ("toy --out /proc/nowhere", "/proc/nowhere cannot be written to", 1),
    ],
)
def test_an_error_is_one_line_and_its_exit_code_says_whose_it_is(ig2, typed, keyword, code):
    module(ig2)
    assert keyword in ig2.refused("bench", *typed.split(), code=code)


def test_more_samples_than_there_are_is_one_line(ig2):
    assert "(--samples)" in ig2.refused("bench", "mnist", "--quick", "--samples", 100_000)


def test_a_file_that_is_not_ours_is_not_replaced(toy, ig2):
    Path("toy.json").write_text("{}")
    assert "toy.json exists already" in ig2.refused("bench", "toy", "--out", ".")


def test_own_methods_may_import_their_neighbours_late(toy, ig2):
    (ig2.folder / "neighbour.py").write_text("AMOUNT = 0.5\n")
    (ig2.folder / "late.py").write_text(
        "def mine(model, x, *rest, seed):\n    from neighbour import AMOUNT\n    return x + AMOUNT\n", encoding="utf-8"
    )
    assert toy("--own", "late:mine", "--seeds", 1).code == 0


def test_a_method_that_fails_in_the_leaderboard_is_named_and_has_a_traceback_if_asked(ig2):
    (ig2.folder / "mine.py").write_text(
        "def broken(model, x, target=None, references=None, *, seed=0):\n    raise ValueError('no such luck')\n",
        encoding="utf-8",
    )
    typed = ("bench", "leaderboard", "--study", "xai-units", "--samples", "2", "--methods", "random", "--device", "cpu", "-q")
    said = ig2(*typed, "--own", "bad=mine:broken")
    assert said.code == 1 and "1 method failed" in said.err and "bad: ValueError: no such luck" in said.err
    assert "Traceback" not in said.err
    debugged = ig2(*typed, "--own", "bad=mine:broken", "--debug").err
    assert debugged.count("Traceback") == 1 and "in broken" in debugged
    assert ig2(*typed).code == 0  # what failed before is not asked for


def test_a_method_of_ones_own_appears_in_the_leaderboard_by_one_option(ig2):
    (ig2.folder / "mine.py").write_text(
        "import ig2\n\n\ndef steep(model, x, target=None, references=None, *, seed=0):\n"
        "    slope = ig2.Gradient()(model, x, target).values\n    return slope * (x - references[0])\n",
        encoding="utf-8",
    )
    typed = ("bench", "leaderboard", "--study", "xai-units", "--samples", "3", "--methods", "gradient,ig", "--device", "cpu")
    said = ig2(*typed, "--own", "steep=mine:steep", "-q")
    assert said.code == 0, said.err
    assert re.findall(r"^\| \d \| ([^|]+) \|", said.out, re.MULTILINE) == ["IG", "steep", "Gradient"]
    page = Path("ig2-bench", "leaderboard.md").read_text(encoding="utf-8")
    assert "added with `--own`: steep" in page and Path("ig2-bench", "leaderboard.png").stat().st_size > 1000
    # the next run adds its row to the file
    assert ig2(*typed[:7], "random", *typed[8:], "-q").out.count("\n| ") == 4
    assert ig2(*typed, "--study", "nowhere", "-q").code == 2
    assert "fresh" in ig2(*typed[:5], "2", *typed[6:], "-q").err  # of other samples
