"""What `ig2 explain` prints, and what becomes of it when it is stopped."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import page_data, plain, summary
from limits import HANGS, wait_for
from matplotlib.colors import to_rgb
from rich.console import Console
from rich.progress import Progress
from torch import nn

from ig2 import Attribution, modalities
from ig2.cli import files, output, results
from ig2.cli.answer import print_answer
from ig2.demo import tables
from ig2.plots.canvas import AGAINST, FOR
from ig2.report.content import InputView, MethodView
from ig2.views import Bars, Curve, Picture

ESCAPE = "\x1b"


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_what_is_printed_is_the_result_in_columns_and_nothing_else(small):
    said = small("--compare", "ig,gradient", "--out", "out")
    assert (said.code, said.err) == (0, "")
    assert ESCAPE not in said.out
    first, trust, rest = said.out.split("\n\n")
    name, *lines = first.splitlines()
    assert name == "photo.png"
    assert [line[:12].strip() for line in lines] == ["prediction", "explained", "references", "picture"]
    heading, *verdicts = trust.splitlines()
    assert heading == "how far to believe it"
    assert [line[:12].strip() for line in verdicts] == ["IG²", "IG", "Gradient", "finer"]
    lines += verdicts
    assert all(line.startswith("  ") and line[12:14] == "  " and line[14] != " " for line in lines)
    told = {line[2:14].strip(): line[14:] for line in lines}
    assert re.fullmatch(r"(red|green|blue), \d\d%", told["prediction"])
    target, other = told["explained"].split(" rather than ")
    assert target == told["prediction"].split(",")[0] != other
    assert "sums to the change in the output" in told["IG²"]
    assert told["Gradient"] == "has no baseline, so its sum stands for nothing"
    assert told["finer"] == "--steps 4 --count 4, for 4 times as long"
    assert told["picture"] == "out/photo.png"
    assert [line[:14].strip() for line in rest.splitlines()] == ["numbers", "", "", "", "", "report"]
    paths = [line[14:] for line in rest.splitlines()]
    assert paths == [
        "out/summary.json", "out/ig2.safetensors", "out/ig.safetensors", "out/gradient.safetensors", "out/store",
        "out/report.html",
    ]  # fmt: skip
    assert all(Path(path).exists() for path in (told["picture"], *paths))


def test_a_large_residual_says_what_to_type_and_typing_it_helps(small):
    left = small("--rule", "left").out
    advice = r"try --steps 4 or --rule blended \(for all methods\), or read it as a ranking"
    assert re.search(rf"IG² +does NOT sum .*: {advice}(;|$)", left, re.MULTILINE)
    assert re.search(r"IG² +sums to the change in the output", small("--rule", "blended").out)


def test_a_verdict_is_said_once_for_all_photos(ig2):
    ig2.module()
    photos = [ig2.photo(f"{seed}.png", seed=seed) for seed in range(3)]
    said = ig2("explain", *photos, "-m", "mine:small", "--steps", 2)
    assert said.out.count("prediction") == 3 and said.out.count("sums to the change in the output") == 1


def test_paths_are_never_broken_however_long(small, ig2):
    out = Path("a folder with a long name " * 3, "and another one " * 4)
    said = small("--out", out)
    assert f"{out}/report.html" in said.out and (ig2.folder / out / "report.html").is_file()


def test_on_a_terminal_long_lines_are_folded_below_themselves(small, ig2):
    ig2.on_a_terminal(60)
    said = small("--rule", "left", "--out", "a-folder-with-a-name-that-is-longer-than-the-sixty-columns-there-are")
    shown = plain(said.out)
    folded = re.search(r"  IG² +does NOT.*\n((?: {14}\S.*\n)+)", shown)
    assert folded and len(folded[1].splitlines()) >= 1
    others = [line for line in shown.splitlines() if "a-folder" not in line]
    assert max(map(len, others)) <= 60
    assert ESCAPE in said.out  # in colour


def test_on_a_terminal_progress_is_shown_unless_quiet(small, ig2):
    ig2.on_a_terminal(80)
    said = small("--compare", "ig")
    for name in ("model", "references", "IG²", "IG", "pictures"):
        assert re.search(rf" {name} .*━.*\d:\d\d:\d\d", said.err), name
    assert "━" not in said.out
    assert small("--compare", "ig", "--quiet").err == ""


@pytest.mark.parametrize("keep", [True, False])
def test_progress_tells_the_time_left(ig2, capfd, keep):
    ig2.on_a_terminal(80)
    with output.show_progress(quiet=False, keep=keep) as watch:
        watch("first")(2, 2)  # ends, and what follows has not ended
        step = watch("second") if keep else partial(watch, "second")
        for done in range(1, 5):
            step(done, 10_000)
            time.sleep(0.02)
    said = capfd.readouterr()
    assert said.out == "" and re.search(r"second.*4/10000.*\d+:\d\d:\d\d left", plain(said.err))


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(monkeypatch):
    monkeypatch.setattr(output, "FIRST_LINE", 0.01)
    monkeypatch.setattr(output, "BETWEEN_LINES", 0.01)
    lines = []
    monkeypatch.setattr(output, "print_error", lambda line: lines.append(re.sub(r"\d:\d\d:\d\d", "TIME", line)))
    with output.show_progress(quiet=False) as watch:
        wait_for(lambda: lines)
        assert lines[0] == "working"
        watch("explaining")(120, 5000)
        wait_for(lambda: "explaining, 120/5000, TIME" in lines)
        watch("3 items/s", 150, 5000, left=2 * HANGS)
        wait_for(lambda: "3 items/s, 150/5000, TIME, TIME left" in lines)
    assert lines[-1] == "finished after TIME"
    lines.clear()
    with suppress(KeyError), output.show_progress(quiet=False):
        wait_for(lambda: lines)
        raise KeyError
    assert "finished after TIME" not in lines


@pytest.mark.parametrize("before", [0, 600])
def test_the_rate_and_the_time_left_are_those_of_this_run(monkeypatch, before):
    """600 items that an earlier run explained took it no time."""
    now, shown = [100.0], []
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    report = output.report_rate(lambda *what: shown.append(what))
    for seconds, items in ((0, 0), (0, 5), (10, 20), (20, 40)):
        now[0] = 100 + seconds
        report(before + items, 1000)
    ends = [("2 items/s", before + items, 1000, (1000 - before - items) / 2) for items in (20, 40)]
    assert shown == [*(("explaining", before + items, 1000, None) for items in (0, 5)), *ends]


def test_a_log_of_hours_has_tens_of_lines(monkeypatch):
    now, pauses = [0.0], []

    class Ended:
        def wait(self, seconds):
            now[0] += seconds
            pauses.append(seconds)
            return now[0] > 36_000

        def set(self):
            pass

    monkeypatch.setattr(output, "print_error", lambda line: None)
    monkeypatch.setattr(output.threading, "Event", Ended)
    monkeypatch.setattr(output.threading, "Thread", Inline)
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with output._print_lines(Progress(disable=True), ()):
        pass
    assert len(pauses) < 110 and pauses[:3] == [2.0, 10.0, 10.0] and max(pauses) <= 600


class Inline:
    """A thread that does its work when it is started."""

    def __init__(self, target, **_):
        self.start = target

    def join(self):
        pass


def test_quiet_commands_and_those_on_a_terminal_print_no_lines(ig2, monkeypatch):
    begun = []
    monkeypatch.setattr(output, "_print_lines", lambda *_: begun.append("lines") or nullcontext())
    with output.show_progress(quiet=True), output.show_progress(quiet=False):
        pass
    assert begun == ["lines"]
    ig2.on_a_terminal(80)
    with output.show_progress(quiet=False):
        pass
    assert begun == ["lines"]


def test_what_a_model_prints_does_not_get_into_the_result(ig2):
    ig2.module("""
def loud():
    print("here I am")
    class Loud(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
        def forward(self, x):
            print("called")
            return self.net(x)
    return subject(Loud())
""")
    said = ig2("explain", ig2.photo(), "--model", "mine:loud", "--steps", 1, "--count", 1)
    assert said.code == 0 and said.out.startswith("photo.png\n  prediction") and "called" not in said.out
    assert "here I am" in said.err and "called" in said.err


@pytest.mark.parametrize(
    ("probability", "shown"), [(0.394, "39%"), (0.9999, ">99%"), (1.0, ">99%"), (0.001, "<1%"), (0.994, "99%")]
)
def test_what_is_not_certain_is_not_called_so(probability, shown):
    assert files.format_class("cat", probability) == f"cat, {shown}"
    assert files.format_class("cat", None) == "cat" and files.format_share(probability) == shown


def test_the_answer_is_on_the_terminal(ig2, monkeypatch):
    """Words in colour, the strongest columns, a small picture; without colours, the strongest words."""
    tables.example_rows("wine").to_csv("rows.csv", index=False)
    ig2.module()
    photo = ig2.photo()
    runs = {
        "text": ("--text", "Where is Rome?"),
        "table": ("rows.csv", "-m", "wine", "--rows", 1),
        "image": (photo, "-m", "mine:small"),
    }
    piped = {kind: ig2("explain", *run, "--steps", 2).out for kind, run in runs.items()}
    assert "▀" not in piped["image"] and re.search(r"strongest +Where +\+[\d.]+\n +\S+ +[+-][\d.]+", piped["text"])
    ig2("explain", *runs["table"], "--steps", 2)
    (row,) = summary(Path("ig2-out"))["inputs"]
    scores = row["methods"]["IG²"]["scores"]
    order = sorted(range(len(scores)), key=lambda i: -abs(scores[i]))[:5]
    lines = re.search(r"  strongest +((?:.*\n){5})  picture", piped["table"])[1].splitlines()
    assert [line.split() for line in lines] == [[row["parts"][i], row["cells"][i], f"{scores[i]:+.3g}"] for i in order]
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    ig2.on_a_terminal(80)
    shown = {kind: ig2("explain", *run, "--steps", 2).out for kind, run in runs.items()}
    assert re.search(r"\x1b\[\d+;48;2;\d+;\d+;\d+mWhere\x1b", shown["text"]) and "strongest" not in shown["text"]
    assert "strongest" in shown["table"]
    blocks = [line for line in plain(shown["image"]).splitlines() if "▀" in line]
    assert len(blocks) == 16 and {line.strip() for line in blocks} == {"▀" * 32 + " " + "▀" * 32}
    monkeypatch.setenv("NO_COLOR", "1")
    assert "▀" not in ig2("explain", *runs["image"], "--steps", 2).out
    assert "strongest" in plain(ig2("explain", *runs["text"], "--steps", 2).out)


@pytest.mark.parametrize(("height", "width", "rows"), [(20, 40, 16), (40, 20, 64), (24, 24, 32)])
def test_a_picture_on_the_terminal_has_its_proportions_and_its_map_in_place(height, width, rows):
    pixels, scores = np.zeros((height, width, 3), np.uint8), np.zeros((height, width))
    pixels[:, : width // 2] = 255
    scores[: height // 2], scores[height // 2 :, : width // 2] = 1.0, -1.0
    method = MethodView("IG²", scores, {"output": 1.0}, {})
    view = InputView("photo", Picture(pixels), "cat", None, "cat", (), (method,))
    console = Console(file=StringIO(), force_terminal=True, color_system="truecolor", width=80)
    print_answer(console, view, 10)
    lines = [line for line in console.file.getvalue().splitlines() if "▀" in line]
    assert 2 * len(lines) == rows and plain(lines[0]).strip() == "▀" * 32 + " " + "▀" * 32
    # a letter has the colour of the upper of its two pixels, and a shade next to an edge may be of both sides
    top, bottom = (re.findall(r"38;2;([\d;]+);48;2", line) for line in (lines[0], lines[-1]))
    white, black = "255;255;255", "0;0;0"
    red, blue = (";".join(f"{round(255 * part)}" for part in to_rgb(colour)) for colour in (FOR, AGAINST))
    for row, left, right in ((top, red, red), (bottom, blue, black)):
        assert [row[place] for place in (0, 31, 32, 63)] == [white, black, left, right]


@pytest.mark.parametrize("columns", [40, 50, 60, 70, 80])
def test_a_picture_and_its_map_fit_the_terminal_beside_the_labels(columns):
    view = InputView("photo", Picture(np.zeros((8, 8, 3), np.uint8)), "cat", None, "cat", (),
                     (MethodView("IG²", np.eye(8), {"output": 1.0}, {}),))  # fmt: skip
    console = Console(file=StringIO(), force_terminal=True, color_system="truecolor", width=columns)
    print_answer(console, view, 16)
    lines = [plain(line) for line in console.file.getvalue().splitlines() if "▀" in line]
    assert lines and all(len(line.rstrip()) <= columns for line in lines)
    assert all(len({part.count("▀") for part in line.split()[-2:]}) == 1 for line in lines)  # none is cut off


def test_the_strongest_parts_have_their_cells_and_signs():
    columns, cells = tuple("abcdefg"), tuple("1234567")
    scores = np.array([0.5, -4.0, 0.25, 3.0, -0.125, -2.0, 1.0])

    def show(view, scores):
        method = MethodView("IG²", scores, {"output": 1.0}, {})
        console = Console(file=StringIO(), width=80)
        print_answer(console, InputView("row", view, "cat", None, "cat", (), (method,)), 10)
        return [line.split() for line in console.file.getvalue().splitlines()]

    bars = show(Bars(columns, cells), scores)
    assert bars[0].pop(0) == "strongest"
    assert bars == [["b", "2", "-4"], ["d", "4", "+3"], ["f", "6", "-2"], ["g", "7", "+1"], ["a", "1", "+0.5"]]
    curve = show(Curve(("left", "right"), 10, 5.0), np.stack([np.arange(-5.0, 5.0), np.zeros(10)]))
    assert curve[0][1:] == ["left,", "0–0.2", "s", "-5"] and curve[1] == ["left,", "0.2–0.4", "s", "-4"]
    assert curve[2] == ["left,", "1.8–2", "s", "+4"]


def test_a_long_run_says_how_long_before_it_begins(small, monkeypatch):
    monkeypatch.setattr(results, "LONG", 0.0)
    assert re.fullmatch(r"ig2: about 0 s\n", small("--compare", "ig,gradient").err)
    assert re.fullmatch(r"ig2: about \d+ s\n", small("--method", "turns", "--count", 4).err)  # no references to save
    assert "--count 2" in small("--count", 4).err
    assert small("--quiet").err == ""
    costs = {19.0: "", 80.0: "about 80 s; --count 2 for a quick look", 100.0: "about 2 min", 9000.0: "about 2 h"}
    monkeypatch.setattr(results, "LONG", 20.0)
    lines = []
    monkeypatch.setattr(results, "print_error", lines.append)
    for seconds in costs:
        results.announce_cost(seconds, 4 if seconds < 90 else 2)
    assert lines == [line for line in costs.values() if line]


def test_the_report_opens_in_the_browser_where_asked(small, ig2, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    small("--out", "out")
    assert opened == []
    small("--out", "out", "--open")
    assert opened == [(ig2.folder / "out" / "report.html").as_uri()]


# -- signals and streams -------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal
calls = 0
def interrupted():
    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
        def forward(self, x):
            global calls
            calls += 1
            if calls == 8:
                os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
            return self.net(x)
    return subject(Slow())
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.usefixtures("_signals_as_in_a_terminal")
def test_a_signal_in_the_middle_leaves_nothing_behind(ig2, monkeypatch, name, code):
    before = signal.getsignal(signal.SIGTERM)
    ig2.module(INTERRUPTED)
    photo = ig2.photo()
    monkeypatch.setenv("SIGNAL", name)
    files = ig2.files()
    said = ig2("explain", photo, "--model", "mine:interrupted", "--out", "a/b/c")
    assert (said.code, said.out) == (code, "")
    assert said.err == ("ig2: stopped\n" if name == "SIGINT" else "")
    assert ig2.files() == files
    assert sys.modules["mine"].calls == 8  # it had begun
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("closed", ["stdout", "both", "from the beginning"])
def test_a_reader_that_leaves_changes_neither_the_files_nor_the_code(ig2, closed):
    ig2.module()
    ig2.photo()
    read, write = os.pipe()
    os.close(read)
    streams = {"stdout": write, "stderr": write if closed == "both" else subprocess.PIPE}
    redirect = ">&-" if closed == "from the beginning" else ""
    commands = {"photo.png -m mine:small --steps 1 --count 1 -o out": 0}
    if closed == "both":  # an error needs standard error; each start of the command takes 3 s
        commands["nowhere.png"] = 1
    for arguments, code in commands.items():
        command = f"exec {sys.executable} -m ig2 explain --quiet {arguments} {redirect}"
        said = subprocess.run(command, shell=True, **streams, text=True, cwd=ig2.folder)
        assert (said.returncode, said.stderr or "") == (code, "")
    os.close(write)
    assert len(list(Path("out").iterdir())) == 5


def test_an_unknown_backend_of_matplotlib_does_not_matter(ig2):
    ig2.module()
    ig2.photo()
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    command = [sys.executable, "-m", "ig2", "explain", "photo.png", "-m", "mine:small", "--steps", "1", "-q"]
    said = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (said.returncode, said.stderr) == (0, "")
    said = subprocess.run([sys.executable, "-c", "import ig2.plots"], capture_output=True, text=True, env=environment)
    assert said.stderr.splitlines()[-1].startswith("ig2.errors.InputError") and "MPLBACKEND" in said.stderr


# -- scale -------------------------------------------------------------------------------------------------------------


def test_a_scale_is_that_of_the_picture_and_the_report_and_the_numbers_stay(small, ig2):
    small("--compare", "ig", "--out", "raw")
    said = small("--compare", "ig", "--scale", 1.5, "--out", "blurred")
    assert (said.code, said.err) == (0, "")
    raw, blurred = (Attribution.load(Path(folder) / "ig2.safetensors") for folder in ("raw", "blurred"))
    assert torch.equal(raw.values, blurred.values)  # so that any scale can be made of them
    assert page_data(Path("raw"))["scale"] == 0 and page_data(Path("blurred"))["scale"] == 1.5
    assert (
        page_data(Path("raw"))["inputs"][0]["methods"][0]["scores"]
        == page_data(Path("blurred"))["inputs"][0]["methods"][0]["scores"]
    )
    assert summary(Path("blurred"))["scale"] == 1.5 and "scale" not in summary(Path("raw"))
    assert Path("raw/photo.png").read_bytes() != Path("blurred/photo.png").read_bytes()


def test_large_photos_open_on_a_scale_of_their_size(small):
    subject = modalities.image.subject(nn.Conv2d(3, 2, 1), 250, classes=["a", "b"])
    assert subject.scale == 2
    assert modalities.table.subject(nn.Linear(1, 2), [modalities.table.Number("dose")], ["a", "b"]).scale == 0
    small("--out", "default"), small("--scale", 0, "--out", "raw")  # 64 pixels
    assert Path("default/photo.png").read_bytes() == Path("raw/photo.png").read_bytes()


def test_a_scale_is_refused_where_nothing_can_be_blurred(small, ig2):
    assert "--scale" in ig2("explain", "--text", "Who was first?", "--scale", 2).error
    assert "not between" in small("--scale", -1).err
