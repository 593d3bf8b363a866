import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from commands import plain
from PIL import Image
from torch import nn

from ig2 import Attribution, ExpectedIG, IntegratedGradients, rules
from ig2.adapters import vision
from ig2.cli import demo, explain, files, inputs, output
from ig2.cli.methods import METHODS, find_rule
from ig2.demo import photos as demo_photos
from ig2.demo import tables

FOR_ALL = [name for name, recipe in METHODS.items() if not recipe.images_only]
WITHOUT_BASELINE = ("GradCFE", "Gradient", "Input × gradient", "SmoothGrad", "Random")
ESCAPE = "\x1b"


@pytest.fixture
def small(ig2):
    """`ig2 explain` of a photo by a small network, in two steps."""
    ig2.module()
    photo = ig2.photo()
    return lambda *options: ig2("explain", photo, "--model", "mine:small", "--steps", 2, "--count", 2, *options)


def summary(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def page_data(folder):
    """What the script of a report is given; the page is checked for sense when it is written."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_what_is_printed_is_the_result_in_columns_and_nothing_else(small):
    said = small("--compare", "ig,gradient", "--out", "out")
    assert (said.code, said.err) == (0, "")
    assert ESCAPE not in said.out
    first, rest = said.out.split("\n\n")
    name, *lines = first.splitlines()
    assert name == "photo.png"
    labels = ["prediction", "explained", "against", "references", "IG²", "IG", "Gradient", "picture"]
    assert [line[:12].strip() for line in lines] == labels
    assert all(line.startswith("  ") and line[12:14] == "  " and line[14] != " " for line in lines)
    told = {line[2:14].strip(): line[14:] for line in lines}
    assert re.fullmatch(r"(red|green|blue), \d\d%", told["prediction"])
    assert told["explained"] == told["prediction"].split(",")[0]
    assert told["explained"] not in told["against"]
    assert "sums to the change in the output" in told["IG²"]
    assert told["Gradient"] == "has no baseline, so its sum stands for nothing"
    assert told["picture"] == "out/photo.png"
    assert [line[:14].strip() for line in rest.splitlines()] == ["numbers", "", "", "", "report"]
    paths = [line[14:] for line in rest.splitlines()]
    assert paths == [
        "out/summary.json", "out/ig2.safetensors", "out/ig.safetensors", "out/gradient.safetensors", "out/report.html",
    ]  # fmt: skip
    assert all(Path(path).is_file() for path in (told["picture"], *paths))


def test_a_large_residual_says_what_to_type_and_typing_it_helps(small):
    left = small("--rule", "left").out
    advice = r"raise --steps, add --rule blended \(for all methods\), or read it as a ranking"
    assert re.search(rf"IG² +does NOT sum .*: {advice}$", left, re.MULTILINE)
    assert re.search(r"IG² +sums to the change in the output", small("--rule", "blended").out)
    # DeepSHAP takes no rule, so none is recommended
    view = explain.MethodView("XRAI", None, 1.0, 0.0, 2.0, "does NOT sum (off by 200%): read it so, or use ig2.rules", {})
    assert explain.format_verdict(view, takes_rule=False) == "does NOT sum (off by 200%): read it as a ranking"


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
        assert re.search(rf" {name} .*━.*0:00:0\d", said.err), name
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
    assert files.format_class("cat", None) == "cat"


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
    lines = re.search(r"  strongest +((?:.*\n){5})  IG²", piped["table"])[1].splitlines()
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


def test_a_long_run_says_how_long_before_it_begins(small, monkeypatch):
    monkeypatch.setattr(explain, "LONG", 0.0)
    assert re.fullmatch(r"ig2: about 0 s\n", small("--compare", "ig,gradient").err)
    assert small("--quiet").err == ""
    costs = {19.0: "", 80.0: "about 80 s; --steps 20 for a quick look", 100.0: "about 2 min", 9000.0: "about 2 h"}
    monkeypatch.setattr(explain, "LONG", 20.0)
    lines = []
    monkeypatch.setattr(explain, "print_error", lines.append)
    for seconds in costs:
        explain.announce_cost(seconds, 50 if seconds < 90 else 20)
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
    for arguments, code in (("photo.png -m mine:small --steps 1 --count 1 -o out", 0), ("nowhere.png", 1)):
        command = f"exec {sys.executable} -m ig2 explain {arguments} {redirect}"
        said = subprocess.run(command, shell=True, **streams, text=True, cwd=ig2.folder)
        assert said.returncode == code
        assert not said.stderr or (code == 1 and "nowhere.png" in said.stderr)
    os.close(write)
    assert len(list(Path("out").iterdir())) == 4


def test_an_unknown_backend_of_matplotlib_does_not_matter(ig2):
    ig2.module()
    ig2.photo()
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    command = [sys.executable, "-m", "ig2", "explain", "photo.png", "-m", "mine:small", "--steps", "1", "--count", "1"]
    said = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (said.returncode, said.stderr) == (0, "")
    said = subprocess.run([sys.executable, "-c", "import ig2.plots"], capture_output=True, text=True, env=environment)
    assert said.stderr.splitlines()[-1].startswith("ig2.errors.InputError") and "MPLBACKEND" in said.stderr


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_files_hold_what_was_found(small, ig2):
    small("--compare", "expected-ig", "--out", "out")
    out = ig2.folder / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "expected-ig.safetensors", "ig2.safetensors", "photo.png", "report.html", "summary.json",
    ]  # fmt: skip
    found = summary(out)
    (entry,) = found["inputs"]
    assert found["model"] == "Sequential" and entry["name"] == "photo.png" and entry["picture"] == "photo.png"
    assert entry["prediction"] == entry["explained"] == ("red", "green", "blue")[entry["class"]]
    attribution = Attribution.load(out / entry["methods"]["IG²"]["file"])
    assert attribution.values.shape == (1, 3, 8, 8) and int(attribution.target) == entry["class"]
    assert float(attribution.residual) == pytest.approx(entry["methods"]["IG²"]["residual"])
    assert entry["methods"]["Expected IG"]["output"] == pytest.approx(float(attribution.output))
    assert found["settings"]["IG²"]["parts"]["path"]["steps"] == 2
    (shown,) = page_data(out)["inputs"]
    assert [method["name"] for method in shown["methods"]] == ["IG²", "Expected IG"]
    assert [len(method["references"]) for method in shown["methods"]] == [2, 2]
    with Image.open(out / "photo.png") as picture:
        assert min(picture.size) > 100


def test_the_numbers_are_those_of_the_library(ig2):
    ig2.module()
    photo = ig2.photo()
    options = ("--compare", "expected-ig", "--seed", 3, "--against", "others", "--out", "out")
    ig2("explain", photo, "--model", "mine:small", "--method", "ig", *options)
    subject = sys.modules["mine"].small()
    batch = subject.read([photo])
    # as many points on its one path as the six of the other method have together
    torch.testing.assert_close(
        Attribution.load("out/ig.safetensors").values, IntegratedGradients(6 * 50)(subject.model, batch.x).values
    )
    references = subject.contrast(batch, count=6, seed=3).samples
    found = ExpectedIG(50)(subject.model, batch.x, references=references)
    torch.testing.assert_close(Attribution.load("out/expected-ig.safetensors").values, found.values)
    ig2("explain", photo, "--model", "mine:small", "--method", "ig", "--against", "others", "--out", "alone")
    alone = IntegratedGradients(50)(subject.model, batch.x)
    torch.testing.assert_close(Attribution.load("alone/ig.safetensors").values, alone.values)


def test_the_same_seed_gives_the_same_and_another_gives_other_references(small):
    def values(seed, out):
        small("--seed", seed, "--out", out)
        return Attribution.load(Path(out, "ig2.safetensors")).values

    assert torch.equal(values(0, "a"), values(0, "b"))
    assert not torch.equal(values(0, "a"), values(1, "c"))


def test_files_of_an_earlier_run_are_replaced_and_stay_replaceable(small, ig2):
    small("--out", "out")
    before = ig2.files()
    small("--out", "out", "--rule", "shared")
    after = ig2.files()
    assert before.keys() == after.keys()
    assert before["out/ig2.safetensors"] != after["out/ig2.safetensors"]


def test_an_output_folder_holds_one_run_and_what_is_not_of_a_run_stays(small, ig2):
    small("--compare", "gradient", "--out", "out")
    Path("out/mine.png").write_text("my own")
    Path("precious").write_text("my own")
    listed = summary(Path("out"))
    listed["files"] += ["../precious", "link", "other.png"]
    Path("out/summary.json").write_text(json.dumps(listed))
    Path("out/link").symlink_to("../precious")
    Path("out/other.png").write_text("changed after the run")
    os.utime("out/other.png", (2e9, 2e9))
    photo = ig2.photo("third.png", seed=1)
    assert ig2("explain", photo, "--model", "mine:small", "--steps", 1, "--out", "out").code == 0
    kept = ["ig2.safetensors", "link", "mine.png", "other.png", "report.html", "summary.json", "third.png"]
    assert sorted(os.listdir("out")) == kept and Path("precious").exists()
    assert summary(Path("out"))["files"] == ["ig2.safetensors", "report.html", "summary.json", "third.png"]


def test_a_file_of_the_users_is_never_replaced(small, ig2):
    photo = ig2.photo()
    before = photo.read_bytes()
    said = small("--out", ".")  # where the photo itself lies
    assert said.code == 1 and "photo.png exists already" in said.err
    assert photo.read_bytes() == before
    Path("mine").mkdir()
    Path("mine/report.html").write_text("my own")
    assert small("--out", "mine").code == 1 and Path("mine/report.html").read_text() == "my own"
    # nor by a summary that is not ours
    Path("mine/summary.json").write_text('{"files": ["report.html", "summary.json", "photo.png", "ig2.safetensors"]}')
    assert small("--out", "mine").code == 1 and Path("mine/report.html").read_text() == "my own"
    assert not list(ig2.folder.rglob(".draft-*"))


def test_whoever_may_read_other_files_may_read_these(small):
    small("--out", "out")
    Path("other").write_text("")
    usual = Path("other").stat().st_mode
    assert [path.name for path in Path("out").iterdir() if path.stat().st_mode != usual] == []


def test_after_a_failure_the_files_of_the_earlier_run_are_there(small, ig2, monkeypatch):
    small("--out", "out")
    before = ig2.files()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_report", fail)
    said = small("--out", "out", "--rule", "shared")
    assert said.code == 1 and said.error == "out cannot be written to: No space left on device"
    assert ig2.files() == before


def test_folders_are_made_and_after_a_failure_unmade(small, ig2, monkeypatch):
    Path("there").mkdir()
    monkeypatch.setattr(files, "write_part", lambda *_: 1 / 0)
    before = ig2.files()
    assert small("--out", "there/a/b").code == 1
    assert ig2.files() == before  # with the folder that was there before


NAMES = ["with space.png", "größe.png", "猫.png", "-dash.png", "new\nline.png", "a" * 200 + ".png", "a'b\"c.png", ".hidden.png"]


def test_any_name_of_a_file_can_be_explained(ig2):
    ig2.module()
    for seed, name in enumerate([*NAMES, "also/größe.png", "GRÖSSE.png", "Größe.png"]):
        ig2.photo(name, seed=seed)
    raw = os.fsdecode(b"not utf-8 \xff.png")
    shutil.copy("größe.png", raw)
    names = [*NAMES, "also/größe.png", "GRÖSSE.png", "Größe.png", raw]
    said = ig2("explain", "--model", "mine:small", "--steps", 1, "--count", 1, "--out", "out", "--", *names)
    assert said.code == 0 and said.err == ""
    inputs = summary(ig2.folder / "out")["inputs"]
    assert [entry["name"] for entry in inputs][:6] == [
        "with space.png", "größe.png", "猫.png", "-dash.png", "new line.png", "a" * 200 + ".png",
    ]  # fmt: skip
    pictures = [entry["picture"] for entry in inputs]
    assert len({picture.lower() for picture in pictures}) == len(names)
    assert all((ig2.folder / "out" / picture).is_file() and re.fullmatch(r"[\w.-]+", picture) for picture in pictures)
    assert pictures[0] == "with-space.png" and pictures[2] == "猫.png" and pictures[3] == "dash.png"
    assert len(page_data(ig2.folder / "out")["inputs"]) == len(names)


def test_two_photos_of_one_name_are_told_apart(ig2):
    ig2.module()
    paths = [ig2.photo("a/cat.png", seed=1), ig2.photo("b/cat.png", seed=2), ig2.photo("cat-2.png", seed=3)]
    said = ig2("explain", *(path.relative_to(ig2.folder) for path in paths), "-m", "mine:small", "--steps", 1, "-o", "out")
    names = [(entry["name"], entry["picture"]) for entry in summary(Path("out"))["inputs"]]
    assert names == [("a/cat.png", "cat.png"), ("b/cat.png", "cat-2.png"), ("cat-2.png", "cat-2-2.png")]
    assert "a/cat.png\n" in said.out and "b/cat.png\n" in said.out
    assert files.name_pictures(["a", "a-2", "a", "A"], "image") == ["a.png", "a-2.png", "a-3.png", "A-4.png"]
    assert files.name_pictures(["???", "...", "\U00020000" * 90], "image")[:2] == ["image-1.png", "image-2.png"]
    assert len(os.fsencode(files.name_pictures(["\U00020000" * 90], "image")[0])) <= 255


# -- the kinds of data and the methods ---------------------------------------------------------------------------------


def methods_run(said, out, names):
    """Every method is there, with finite numbers, and a page to look at."""
    assert (said.code, said.err) == (0, "")
    titles = [METHODS[name].title for name in names]
    for entry in summary(out)["inputs"]:
        assert list(entry["methods"]) == titles
        for title, found in entry["methods"].items():
            assert (found["residual"] is None) == (title in WITHOUT_BASELINE)
            assert found["row"] == summary(out)["inputs"].index(entry)
    for name in names:
        attribution = Attribution.load(out / f"{name}.safetensors")
        tensors = attribution.values.values() if isinstance(attribution.values, dict) else [attribution.values]
        assert all(tensor.isfinite().all() and tensor.abs().sum() > 0 for tensor in tensors), name
    for shown in page_data(out)["inputs"]:
        assert [method["name"] for method in shown["methods"]] == titles
        for method, name in zip(shown["methods"], names, strict=True):
            assert bool(method["references"]) == METHODS[name].contrasts


@pytest.fixture
def digit(ig2):
    """A handwritten seven that the network has not seen, in a file."""
    photos = vision.load("digits").photos()
    Image.fromarray(next(photo for photo in photos if photo.label == "7").source).save("seven.png")
    return Path("seven.png")


def test_every_method_runs_on_images(ig2, digit):
    said = ig2("explain", digit, "-m", "digits", "--compare", ",".join(METHODS), "--steps", 3, "--count", 2, "-o", "out")
    methods_run(said, Path("out"), list(METHODS))
    assert "prediction        7, >99%" in said.out


def test_every_method_that_is_not_for_images_alone_runs_on_text(ig2):
    sentences = ("Where did guinea pigs originate?", "Who wrote it?")
    options = ["--compare", ",".join(FOR_ALL), "--steps", 5, "--count", 2, "-o", "out"]
    said = ig2("explain", "--text", sentences[0], "-t", sentences[1], *options)
    methods_run(said, Path("out"), FOR_ALL)
    first, second = summary(Path("out"))["inputs"]
    assert (first["name"], first["picture"]) == (sentences[0], "text-1.png")
    assert first["parts"] == ["Where", "did", "guinea", "pigs", "originate?"]
    assert first["prediction"] == "place (LOC)" and second["prediction"] == "person (HUM)"
    for found in first["methods"].values():
        assert len(found["scores"]) == 5
    # a word is present or absent as a whole, so KernelSHAP's words sum to the change in the output
    kernel = first["methods"]["KernelSHAP"]
    assert sum(kernel["scores"]) == pytest.approx(kernel["output"] - kernel["baseline_output"], abs=1e-4)
    assert first["methods"]["IG"]["baseline_output"] == pytest.approx(kernel["baseline_output"], abs=1e-5)


def test_every_method_that_is_not_for_images_alone_runs_on_tables(ig2):
    tables.example_rows("wine").to_csv("rows.csv", index=False)
    options = ["--compare", ",".join(FOR_ALL), "--steps", 5, "--count", 2, "-o", "out"]
    said = ig2("explain", "rows.csv", "--model", "wine", "--rows", "2,4", *options)
    methods_run(said, Path("out"), FOR_ALL)
    first, second = summary(Path("out"))["inputs"]
    assert (first["name"], second["name"]) == ("row 2", "row 4") and first["picture"] == "row-2.png"
    assert first["parts"][0] == "alcohol" and float(first["cells"][0]) > 10


def test_kernelshap_takes_a_column_of_several_features_as_one(ig2):
    ig2.module("""
from ig2.adapters import tabular
def table():
    columns = (tabular.Number("size"), tabular.Category("colour", ("red", "green", "blue")))
    rows = [{"size": i / 9, "colour": ("red", "green", "blue")[i % 3]} for i in range(12)]
    class Net(nn.Module):
        def forward(self, x):
            score = x @ torch.tensor([1.0, 2.0, -1.0, 0.0])
            return torch.stack([score, -score], dim=1)
    return tabular.subject(Net(), columns, ("yes", "no"), representation="output", rows=rows)
""")
    Path("rows.csv").write_text("colour,size,other\nred,0.5,x\n")
    options = ("--method", "kernelshap", "--against", "others", "-o", "out")
    assert ig2("explain", "rows.csv", "-m", "mine:table", *options).code == 0
    (entry,) = summary(Path("out"))["inputs"]
    assert entry["parts"] == ["size", "colour"] and entry["cells"] == ["0.5", "red"]
    assert entry["methods"]["KernelSHAP"]["scores"] == pytest.approx([0.5, 2.0])
    # each of the three features of a colour carries a third
    assert Attribution.load("out/kernelshap.safetensors").values.tolist() == [pytest.approx([0.5, 2 / 3, 2 / 3, 2 / 3])]


def test_the_default_model_knows_a_cup_of_coffee(ig2):
    (coffee,) = [path for path in demo_photos.paths() if path.stem == "coffee"]
    said = ig2("explain", coffee, "--steps", 1, "--count", 1)
    assert said.code == 0
    assert re.search(r"coffee\.png\n  prediction  espresso, 9\d%\n  explained   espresso\n  against     \w+", said.out)
    assert Path("ig2-out/coffee.png").is_file()


def test_a_model_of_numbers_and_one_of_labels_say_what_they_predict(ig2):
    tables.example_rows("diabetes").to_csv("rows.csv", index=False)
    said = ig2("explain", "rows.csv", "--rows", "1", "-m", "diabetes", "--steps", 2, "--out", "numbers")
    number = re.search(r"prediction  disease progression = ([\d.]+)\n  explained   disease progression = ([\d.]+)\n", said.out)
    assert number and number[1] == number[2]
    ig2.module("""
def labels():
    return subject(net(), ("round", "sweet", "red"), outputs="labels")
""")
    said = ig2("explain", ig2.photo(), "-m", "mine:labels", "--method", "ig", "--target", "sweet", "--out", "labels")
    assert re.search(r"prediction  (not )?sweet, \d\d%\n  explained   sweet\n", said.out)
    probability = torch.sigmoid(Attribution.load("labels/ig.safetensors").output)
    expected = ("not " if probability < 0.5 else "") + f"sweet, {max(probability, 1 - probability).item():.0%}"
    assert f"prediction  {expected}\n" in said.out


# -- what to explain ---------------------------------------------------------------------------------------------------


def explained(out="ig2-out"):
    return [(entry["explained"], entry["class"]) for entry in summary(Path(out))["inputs"]]


def test_the_class_explained_by_number_name_and_part_of_a_name(small):
    for typed, index in (("0", 0), ("2", 2), ("green", 1), ("GREEN", 1), ("blu", 2)):
        said = small("--target", typed)
        assert said.code == 0 and explained() == [(("red", "green", "blue")[index], index)]
        assert f"  explained   {explained()[0][0]}\n" in said.out
        against = re.search(r"against +(.*)", said.out)[1].split(", ")
        assert explained()[0][0] not in against


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("re", "class 're' could be 'red', 'green': say which"),
        ("gren", "the model has no class 'gren'; did you mean green?"),
        ("7", "class 7 does not exist: the model's classes are numbered from 0 to 2"),
        ("-1", "class -1 does not exist: the model's classes are numbered from 0 to 2"),
        ("", "the model has no class '': it has red, green, blue"),
        ("location", "the model has no class 'location': it has red, green, blue"),
    ],
)
def test_a_class_that_is_none_or_several(ig2, typed, said):
    ig2.module()
    assert ig2.refused("explain", ig2.photo(), "-m", "mine:small", "--target", typed) == said


def test_a_class_of_a_model_without_names_goes_by_its_number(ig2):
    ig2.module("def nameless(): return subject(net(), None)")
    photo = ig2.photo()
    assert "no names, give a number" in ig2.refused("explain", photo, "-m", "mine:nameless", "--target", "cat")
    assert "target 9 is not a class" in ig2.refused("explain", photo, "-m", "mine:nameless", "--target", "9", "--method", "ig")
    assert ig2("explain", photo, "-m", "mine:nameless", "--target", "1", "--method", "ig").code == 0
    assert explained() == [("class 1", 1)]


def contrast_lines(said):
    assert said.code == 0, said
    return [re.search(rf"\n  {label} +(.*)", said.out)[1] for label in ("explained", "against", "references")]


def test_the_default_is_to_contrast_with_the_runner_up(ig2):
    """References of its class where there are some; the output explained is the difference of the two."""
    ig2.module()
    photo = ig2.photo()
    said = ig2("explain", photo, "-m", "mine:small", "--compare", "ig,gradient", "--steps", 2, "--count", 2, "-o", "out")
    subject = sys.modules["mine"].small()
    scores = subject.predict(subject.read([photo]))[0]
    first, second, third = scores.argsort(descending=True).tolist()
    names = [subject.label(i) for i in (first, second, third)]
    why = f"2 from the samples of Sequential ({names[1]}): samples the model calls {names[1]!r}"
    assert contrast_lines(said) == [names[0], f"{names[1]} (the runner-up)", why]
    for name in ("ig2", "ig", "gradient"):
        attribution = Attribution.load(f"out/{name}.safetensors")
        assert attribution.against.tolist() == [second]
        torch.testing.assert_close(attribution.output, scores[[first]] - scores[[second]])
    assert summary(Path("out"))["inputs"][0]["contrasted_with"] == [names[1]]
    assert all(reference["label"] == names[1] for reference in page_data(Path("out"))["inputs"][0]["methods"][0]["references"])
    # what is not predicted is contrasted with what is
    said = ig2("explain", photo, "-m", "mine:small", "--target", names[2], "--steps", 2)
    assert contrast_lines(said)[:2] == [names[2], f"{names[0]} (predicted)"]
    said = ig2("explain", photo, "-m", "mine:small", "--against", f"{names[2]}, {names[1]}", "--steps", 2, "--count", 2)
    assert contrast_lines(said)[1] == f"{names[2]}, {names[1]}"
    assert f"samples the model calls {names[2]!r} or {names[1]!r}" in contrast_lines(said)[2]
    assert Attribution.load("ig2-out/ig2.safetensors").against.tolist() == [[third, second]]


def test_without_references_of_the_class_the_outputs_make_the_contrast(ig2):
    ig2.module()
    photo = ig2.photo()
    subject = runpy.run_path("mine.py")["small"]()
    scores = subject.predict(subject.read([photo]))[0]
    _, second, third = (subject.label(i) for i in scores.argsort(descending=True).tolist())
    for seed in range(1, 40):
        path = ig2.photo(f"pool/{seed}.png", seed=seed)
        if subject.describe_output(subject.predict(subject.read([path]))[0]) != third:
            path.unlink()
    said = ig2("explain", photo, "-m", "mine:small", "--references", "pool", "--steps", 2, "--count", 2, "-o", "out")
    line = contrast_lines(said)[2]
    assert (
        line.startswith(f"2 from pool ({third}): ") and f"calls none of the pool's {len(list(Path('pool').iterdir()))}" in line
    )
    assert line.endswith(repr(second))
    assert Attribution.load("out/ig2.safetensors").against is not None


def test_against_what_makes_no_sense(ig2):
    tables.example_rows("diabetes").to_csv("rows.csv", index=False)
    said = ig2.refused("explain", "rows.csv", "-m", "diabetes", "--against", "next", code=2)
    assert "plain numbers" in said and "omit it" in said
    ig2.module("""
def labels():
    return subject(net(), outputs="labels")
def single():
    return subject(net(1), ("yes",))
""")
    photo = ig2.photo()
    assert "independently" in ig2.refused("explain", photo, "-m", "mine:labels", "--against", "red", code=2)
    assert "did you mean green" in ig2.refused("explain", photo, "-m", "mine:small", "--against", "red,gren")
    assert "names that class too" in ig2.refused("explain", photo, "-m", "mine:small", "--target", "red", "--against", "red")
    assert "names that class too" in ig2.refused("explain", photo, "-m", "mine:single", "--against", "yes", "--method", "ig")
    assert ig2("explain", photo, "-m", "mine:single", "--method", "ig").code == 0


def test_references_from_a_folder_flat_or_by_class(ig2, small):
    """They are chosen by what the network says of them, and never of the class explained."""
    for seed in range(12):
        ig2.photo(f"flat/{seed}.png", seed=seed)
        ig2.photo(f"classes/{'ab'[seed % 2]}/{seed}.jpg", seed=seed)
    for folder in ("flat", "classes"):
        said = small("--references", folder, "--out", f"out-{folder}")
        assert said.code == 0
        references = page_data(Path(f"out-{folder}"))["inputs"][0]["methods"][0]["references"]
        assert len(references) == 2
        assert all(reference["label"] != explained(f"out-{folder}")[0][0] for reference in references)


def test_references_that_are_none(ig2):
    ig2.module()
    photo = ig2.photo()
    Path("empty").mkdir()
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("not a picture")
    ig2.photo("same/again.png")
    for references, said in (
        ("nowhere", "nowhere does not exist"),
        ("photo.png/x", "photo.png/x does not exist"),
        (photo, "is not a folder"),
        ("empty", "empty has no images"),
        ("notes", "notes has no images"),
        ("same", "nothing to contrast 'photo.png' with: each reference there is"),
    ):
        assert said in ig2.refused("explain", photo, "-m", "mine:small", "--references", references)


def test_references_of_text_and_of_tables_are_files(ig2):
    Path("others.txt").write_text("How many people live there?\n\nWho painted it?\n")
    said = ig2("explain", "--text", "Where is Rome?", "--references", "others.txt", "--against", "others", "--steps", 2)
    assert re.search(r"against +(number \(NUM\), person \(HUM\)|person \(HUM\), number \(NUM\))\n", said.out)
    rows = tables.example_rows("iris", 30)
    rows[:10].to_csv("rows.csv", index=False)
    rows[10:].to_parquet("others.parquet")
    said = ig2("explain", "rows.csv", "-m", "iris", "--rows", "1", "--references", "others.parquet", "--steps", 2, "-o", "t")
    assert said.code == 0 and re.search(r"against +(setosa|versicolor|virginica)", said.out)
    assert "is a folder" in ig2.refused("explain", "--text", "Why?", "--references", ".")


def test_fewer_references_than_asked_for_are_a_line(ig2):
    ig2.module()
    said = ig2("explain", ig2.photo(), "-m", "mine:small", "--steps", 1, "--count", 500)
    assert said.code == 0
    used = len(page_data(Path("ig2-out"))["inputs"][0]["methods"][0]["references"])
    line = f"{used} references a sample, and not 500: of the 24 there are, no more can be contrasted with 'photo.png'"
    assert used < 24 and said.err == f"ig2: warning: {line}\n"


def test_a_table_for_another_network_says_which_was_taken(ig2):
    Path("mine.csv").write_text("a,b\n1,2\n")
    said = ig2.refused("explain", "mine.csv")
    assert "lacks 30 of 30 columns" in said and "breast-cancer MLP" in said and said.endswith("--model")
    assert "--model" not in ig2.refused("explain", "mine.csv", "-m", "iris")


def test_sentences_from_a_file(ig2):
    Path("questions.txt").write_bytes("\ufeffWhere is Rome?\r\n\r\n  Who wrote Hamlet?  \nWhat is bismuth?\n".encode())
    assert ig2("explain", "questions.txt", "--steps", 1, "--count", 1, "-o", "all").code == 0
    names = [entry["name"] for entry in summary(Path("all"))["inputs"]]
    assert names == ["Where is Rome?", "Who wrote Hamlet?", "What is bismuth?"]
    assert ig2("explain", "questions.txt", "--rows", "3,1", "--steps", 1, "--count", 1, "-o", "some").code == 0
    assert [entry["name"] for entry in summary(Path("some"))["inputs"]] == ["What is bismuth?", "Where is Rome?"]
    both = ig2("explain", "questions.txt", "-t", "How far is it?", "--method", "ig", "--steps", 1, "-o", "both")
    assert both.out.startswith("How far is it?\n") and len(summary(Path("both"))["inputs"]) == 4


@pytest.mark.parametrize(
    ("wanted", "rows"), [("3", [2]), ("1,4", [0, 3]), ("2:5", [1, 2, 3, 4]), (" 2 : 3 , 1 ", [1, 2, 0]), ("1,1:2", [0, 1])]
)
def test_rows_are_counted_from_one_with_both_ends(wanted, rows):
    assert inputs.parse_rows(wanted, 5) == rows


def test_rows_that_are_not_there(ig2):
    tables.example_rows("iris", 5).to_csv("rows.csv", index=False)
    for wanted in ("0", "6", "2:9", "3:2"):
        line = ig2.refused("explain", "rows.csv", "-m", "iris", "--rows", wanted)
        assert "rows 1 to 5" in line
    for wanted in ("a", "1:2:3", "-1", "1.5", "", "1,,2", "²"):
        assert "--rows" in ig2.refused("explain", "rows.csv", "-m", "iris", "--rows", wanted, code=2)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "PQ"])
def test_tables_of_every_kind_and_by_default_all_rows(ig2, suffix):
    rows = tables.example_rows("iris", 7)
    path = Path(f"rows.{suffix}")
    if suffix in ("csv", "tsv"):
        rows.to_csv(path, index=False, sep="," if suffix == "csv" else "\t")
    else:
        rows.to_parquet(path)
    assert ig2("explain", path, "-m", "iris", "--steps", 1, "--count", 1).code == 0
    assert [entry["name"] for entry in summary(Path("ig2-out"))["inputs"]] == [f"row {i}" for i in range(1, 8)]


def test_rows_beyond_the_limit_are_listed_as_skipped(ig2, monkeypatch):
    monkeypatch.setattr(inputs, "FIRST_ROWS", 3)
    tables.example_rows("iris", 7).to_csv("rows.csv", index=False)
    said = ig2("explain", "rows.csv", "-m", "iris", "--method", "gradient")
    assert re.search(r"skipped\n  rows 4 to 7: only the first 3 rows .* --rows 4:7\n", said.out)
    assert len(summary(Path("ig2-out"))["inputs"]) == 3
    said = ig2("explain", "rows.csv", "-m", "iris", "--method", "gradient", "--rows", "4:7")
    assert "skipped" not in said.out and len(summary(Path("ig2-out"))["inputs"]) == 4


@pytest.mark.parametrize("skip_bad", [False, True])
def test_more_inputs_than_a_report_shows_are_all_explained(ig2, monkeypatch, skip_bad):
    """In parts: the numbers are those of a run in one part, and the files of all parts are listed."""
    ig2.module()
    for seed in range(7):
        ig2.photo(f"photos/{'ab'[seed % 2]}/{seed}.png", seed=seed)
    bad = ["--skip-bad"] * skip_bad
    command = ("explain", "photos", "-m", "mine:small", "--steps", 2, "--count", 2, "--compare", "ig", *bad)
    assert ig2(*command, "--out", "whole").code == 0
    whole = summary(Path("whole"))["inputs"]
    for module in (inputs, explain):
        monkeypatch.setattr(module, "PART", 3)
    if skip_bad:
        for name in ("c/7.png", "c/8.png", "c/9.png", "c/10.png", "c/11.png"):  # one part has no sound input
            ig2.photo(f"photos/{name}").write_text("no photo")
    said = ig2(*command, "--out", "parts")
    assert said.code == 0
    assert re.search(r"more  inputs 4 to 7 are in the pictures and numbers; the report shows the first 3\n", said.out)
    listed = summary(Path("parts"))
    assert len(listed["skipped"]) == 5 * skip_bad
    assert [entry["name"] for entry in listed["inputs"]] == [f"{i}.png" for i in (0, 2, 4, 6, 1, 3, 5)]
    assert sorted(listed["files"]) == sorted(os.listdir("parts"))
    shown = page_data(Path("parts"))
    assert [view["name"] for view in shown["inputs"]] == ["0.png", "2.png", "4.png"]
    for entry, alone in zip(listed["inputs"], whole, strict=True):
        for method, found in entry["methods"].items():
            values = [
                Attribution.load(Path(out, one["methods"][method]["file"])).values[one["methods"][method]["row"]]
                for out, one in (("parts", entry), ("whole", alone))
            ]
            torch.testing.assert_close(*values, rtol=1e-4, atol=1e-6)
            assert found["verdict"] == alone["methods"][method]["verdict"]


def test_a_folder_is_explained_without_the_pictures_of_an_earlier_run(ig2):
    ig2.module()
    ig2.photo("a.png")
    ig2.photo("deep/er/b.png", seed=1)
    for _ in range(2):
        assert ig2("explain", ".", "-m", "mine:small", "--method", "gradient").code == 0
        assert [entry["name"] for entry in summary(Path("ig2-out"))["inputs"]] == ["a.png", "b.png"]
    Path("empty").mkdir()
    assert "has no images" in ig2.refused("explain", "empty", "-m", "mine:small")
    assert "one kind" in ig2.refused("explain", "deep", "--text", "Why?", code=2)


def test_the_limit_of_a_folder_of_references_is_printed(ig2):
    ig2.module()
    for seed in range(61):
        ig2.photo(f"pool/{seed}.png", seed=seed + 1)
    said = ig2("explain", ig2.photo(), "-m", "mine:small", "--references", "pool", "--steps", 1)
    assert "\n  1 photos of pool: references are chosen from 60 of its 61 photos" in said.out


# -- models ------------------------------------------------------------------------------------------------------------


def test_models_from_functions_weights_and_files(ig2):
    ig2.module("""
class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)
    def forward(self, x):
        return self.head(x.mean(dim=(2, 3)))
def pooled():
    torch.manual_seed(0)
    return Pooled().train()  # is put in eval mode
""")
    net = runpy.run_path("mine.py")["pooled"]().eval()
    with torch.no_grad():
        net.head.weight.copy_(torch.eye(3) * 20)
        net.head.bias.zero_()
    torch.save(net.state_dict(), "weights.pt")
    batch = {"x": {0: torch.export.Dim("batch")}}
    torch.export.save(torch.export.export(net, (torch.rand(2, 3, 16, 16),), dynamic_shapes=batch), "program.pt2")
    for name, colour in (("red", (255, 0, 0)), ("green", (0, 255, 0)), ("blue", (0, 0, 255))):
        Image.new("RGB", (16, 16), colour).save(ig2.photo(f"pool/{name}.png"))
    assert "--trust" in ig2.refused("explain", "pool/green.png", "-m", "program.pt2")
    for model in (["mine:pooled@weights.pt"], ["program.pt2", "--trust"]):
        options = ("--references", "pool", "--against", "others", "--steps", 2, "--compare", "ig", "-o", "out")
        said = ig2("explain", "pool/green.png", "-m", *model, *options)
        assert said.code == 0, said
        assert "  prediction  class 1, >99%\n" in said.out
        assert re.search(r"IG² +sums to the change in the output by construction; its signs", said.out)  # it is linear
        assert set(re.search(r"against +(.*)", said.out)[1].split(", ")) == {"class 0", "class 2"}
    assert ig2("explain", "pool/red.png", "-m", "mine:pooled", "--method", "gradient", "-o", "out").code == 0


ALONE = """
class Pooled(nn.Module):
    def __init__(self, features=3):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.head = nn.Linear(features, 3)
    def forward(self, x):
        return self.head(x.mean(dim=(2, 3)) if x.ndim == 4 else x)
def photos():
    return Pooled()
def table():
    return Pooled(4)
def number():
    return nn.Linear(4, 1)
"""


def test_a_network_alone_says_what_is_assumed_and_takes_it_from_options(ig2):
    ig2.module(ALONE)
    photo = ig2.photo()
    Path("names.txt").write_text("a\nb\nc\n")
    said = ig2("explain", photo, "-m", "mine:photos", "--method", "gradient", "-o", "out")
    assert said.code == 0 and said.error.startswith("mine:photos is a network alone; assumed: RGB photos of 224 × 224")
    assert all(part in said.error for part in ("0 to 1", "no normalisation", "classes by their numbers", "--size", "--std"))
    typed = ("--size", "8x6", "--mean", "0.5,0.4,0.3", "--std", "0.25", "--classes")
    for classes in ("a,b, c", "names.txt"):
        said = ig2("explain", photo, "-m", "mine:photos", "--method", "ig", *typed, classes, "-o", "out")
        assert said.code == 0 and all(part in said.error for part in ("8 × 6", "[0.5, 0.4, 0.3]", "std 0.25", "3 classes, 'a'"))
        attribution = Attribution.load("out/ig.safetensors")
        net, subject = sys.modules["mine"].photos(), vision.subject(nn.Identity(), (8, 6))
        x = (subject.read([photo]).x - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / 0.25
        scores = net(x)[0].detach().sort(descending=True).values
        torch.testing.assert_close(attribution.output, scores[:1] - scores[1:2])
        assert attribution.values.shape == (1, 3, 8, 6) and explained("out")[0][0] in "abc"
    for option, value in (("--size", "big"), ("--size", "1x2x3"), ("--mean", "a"), ("--std", "1,,2")):
        assert option in ig2.refused("explain", photo, "-m", "mine:photos", option, value, code=2)
    assert "brings its own" in ig2.refused("explain", photo, "-m", "mine:small", "--size", 8, code=2)


def test_a_network_alone_takes_a_table_with_the_statistics_of_its_file(ig2):
    ig2.module(ALONE)
    rows = tables.example_rows("iris", 30)
    rows.to_csv("rows.csv", index=False)
    said = ig2("explain", "rows.csv", "-m", "mine:table", "--method", "ig", "--rows", 2, "--classes", "a,b,c")
    assert said.code == 0 and "mine:table is a network alone; assumed: 4 columns" in said.error and "in rows.csv" in said.error
    features = torch.tensor(((rows - rows.mean()) / rows.std(ddof=0)).to_numpy()[1], dtype=torch.float32)
    scores = sys.modules["mine"].table()(features).detach().sort(descending=True).values
    output = Attribution.load("ig2-out/ig.safetensors").output
    torch.testing.assert_close(output, scores[:1] - scores[1:2], rtol=1e-4, atol=1e-5)
    said = ig2("explain", "rows.csv", "-m", "mine:number", "--rows", "1:3", "--steps", 2)
    assert said.code == 0 and "one plain number" in said.error
    rows.assign(answer=["x", "y"] * 15).to_csv("answers.csv", index=False)
    said = ig2.refused("explain", "answers.csv", "-m", "mine:table")
    assert "6 features of answers.csv" in said and "leave_out" in said and "tabular.subject(" in said
    assert "for images" in ig2.refused("explain", "rows.csv", "-m", "mine:table", "--size", 8, code=2)
    assert "from_parts" in ig2.refused("explain", "-t", "Why?", "-m", "mine:table")


def test_a_model_for_another_kind_is_refused(ig2):
    photo = ig2.photo()
    assert ig2.refused("explain", photo, "-m", "questions") == "questions explains texts, and this is an image"
    assert "wine explains tables, and this is a text" in ig2.refused("explain", "--text", "Why?", "-m", "wine")
    assert "did you mean digits?" in ig2.refused("explain", photo, "-m", "digit")


def test_the_device_can_be_named(small):
    assert small("--device", "cpu").code == 0
    assert small("--device", "cpu:0").code == 0


# -- the demo ----------------------------------------------------------------------------------------------------------


def test_the_demo_in_small(ig2, capfd):
    demo.run(ig2.folder / "out", steps=1, photos=["coffee.png"], digits=["5"])
    said = capfd.readouterr().out
    assert re.search(r"a cup of coffee  espresso, 9\d%, not \w+", said) and "a handwritten 5  5, >99%, not" in said
    assert f"{ig2.folder}/out/report.html" in said
    assert sorted(os.listdir("out")) == ["digits.png", "photos.png", "report.html", "summary.json"]
    shown = page_data(Path("out"))["inputs"]
    assert [view["name"] for view in shown] == ["a cup of coffee", "a handwritten 5"]
    titles = ["IG²", "Gradient", "IG", "Guided IG", "Expected IG"]
    assert all([method["name"] for method in view["methods"]] == titles for view in shown)
    assert [len(view["methods"][0]["references"]) for view in shown] == [4, 8]
    assert shown[0]["methods"][0]["settings"]["parts"]["rule"]["name"] == "blended"
    files.check_replaceable(Path("out"), os.listdir("out"))  # another demo may replace them


def test_the_demo_passes_on_what_is_typed(ig2, monkeypatch):
    asked = []
    monkeypatch.setattr(demo, "run", lambda out, **options: asked.append((out, options)))
    assert ig2("demo").code == 0
    assert ig2("demo", "-o", "there", "--steps", 7, "--quiet").code == 0
    assert asked == [(Path("ig2-demo"), {"steps": 20, "quiet": False}), (Path("there"), {"steps": 7, "quiet": True})]


def test_the_demo_leaves_nothing_behind_and_replaces_nothing_of_the_users(ig2, monkeypatch):
    monkeypatch.setattr(demo_photos, "paths", tuple)
    assert "the photo chelsea.png comes with scikit-image" in ig2.refused("demo")
    Path("ig2-demo").mkdir()
    Path("ig2-demo/photos.png").write_text("mine")
    assert "ig2-demo/photos.png exists already" in ig2.refused("demo")


# -- in a browser ------------------------------------------------------------------------------------------------------


def test_the_reports_open_in_a_browser_in_silence(ig2, digit):
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if executable is None and not os.environ.get("CI"):
        pytest.skip("no browser: install Chromium or Chrome")
    tables.example_rows("iris").to_csv("rows.csv", index=False)
    quick = ("--steps", 2, "--count", 2, "--compare", "ig,gradient,gradcfe")
    assert ig2("explain", digit, "-m", "digits", *quick, "-o", "image").code == 0
    assert ig2("explain", "-t", "Where is Rome?", *quick, "-o", "text").code == 0
    assert ig2("explain", "rows.csv", "-m", "iris", *quick, "-o", "table").code == 0
    trouble = []
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        page = browser.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        for kind, heading in (
            ("image", "Why 7 rather than"),
            ("text", "Why place (LOC) rather than"),
            ("table", "rather than"),
        ):
            page.goto((ig2.folder / kind / "report.html").as_uri())
            page.wait_for_selector("section[data-input]:not([hidden])[data-ready]")
            assert heading in page.inner_text("h2")
            assert page.locator("[role=tab]:visible").all_inner_texts()[-4:] == ["IG²", "IG", "Gradient", "GradCFE"]
        browser.close()
    assert trouble == []


def test_text_is_never_taken_for_markup_of_the_terminal(ig2):
    said = ig2("explain", "-t", "Where is [bold]Rome[/bold] :smile: [/]?", "--method", "gradient")
    assert said.out.startswith("Where is [bold]Rome[/bold] :smile: [/]?\n")


def test_a_rule_answers_to_the_name_its_paper_gave_it():
    assert find_rule("idgi", METHODS.values()) is rules.direct
    assert find_rule("secant", METHODS.values()) is rules.secant
