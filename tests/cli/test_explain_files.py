"""The files of `ig2 explain`."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from commands import page_data, summary
from PIL import Image

from ig2 import Attribution, ExpectedIG, IntegratedGradients, Question
from ig2.cli import explain, files, pages
from ig2.modalities.modality import find


def test_the_files_hold_what_was_found(small, ig2):
    small("--compare", "expected-ig", "--out", "out")
    out = ig2.folder / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "expected-ig.safetensors", "ig2.safetensors", "photo.png", "report.html", "store",
        "summary.json",
    ]  # fmt: skip
    found = summary(out)
    (entry,) = found["inputs"]
    assert found["model"] == "Sequential" and entry["name"] == "photo.png" and entry["picture"] == "photo.png"
    assert entry["prediction"] == entry["explained"] == ("red", "green", "blue")[entry["class"]]
    attribution = Attribution.load(out / entry["methods"]["IG²"]["file"])
    assert attribution.values.shape == (1, 3, 8, 8) and int(attribution.target) == entry["class"]
    listed = entry["methods"]["IG²"]
    assert float(attribution.residual) == pytest.approx(listed["residual"])
    numbers = {name: float(each) for name, each in attribution.numbers.items()}
    known = {name: number for name, number in numbers.items() if name in listed}
    shown = ("output", "baseline_output", "residual", "trust", "arrival", "reference_output")
    assert sorted(known) == sorted(shown) and {name: listed[name] for name in known} == pytest.approx(known, rel=1e-5)
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
    references = Question(against=None, count=4, seed=3).contrast(subject, batch).samples
    found = ExpectedIG(50)(subject.model, batch.x, references=references)
    torch.testing.assert_close(Attribution.load("out/expected-ig.safetensors").values, found.values)
    ig2("explain", photo, "--model", "mine:small", "--method", "ig", "--against", "others", "--out", "alone")
    for out in ("out", "alone"):  # as much beside a method with four paths
        alone = IntegratedGradients(50)(subject.model, batch.x)
        torch.testing.assert_close(Attribution.load(f"{out}/ig.safetensors").values, alone.values)


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
    kept = ["ig2.safetensors", "link", "mine.png", "other.png", "report.html", "store", "summary.json", "third.png"]
    assert sorted(os.listdir("out")) == kept and Path("precious").exists()
    assert summary(Path("out"))["files"] == ["ig2.safetensors", "report.html", "store", "summary.json", "third.png"]


def test_folders_of_an_earlier_run_are_replaced_or_removed_and_no_others(tmp_path):
    def write(folder, *names):
        with files.draft_folder(folder) as draft:
            for name in names:
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).write_text("by a run")
            listed = sorted({Path(name).parts[0] for name in names} | {files.SUMMARY})
            (draft / files.SUMMARY).write_text(json.dumps({"made_by": "ig2 1", "files": [*listed, "mine"]}))

    write(tmp_path, "pictures/deep/a.png", "report-files/deep/a.html", "store/old", "alone.png")
    for name in ("mine/a.png", "theirs/a.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("my own")
        os.utime(tmp_path / name, (0, 0))  # older than the run
    (tmp_path / "report-files/deep/later.html").write_text("changed after the run")
    os.utime(tmp_path / "report-files/deep/later.html", (2e9, 2e9))
    write(tmp_path, "store/new", "report.html")
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    kept = ["mine/a.png", "report-files/deep/a.html", "report-files/deep/later.html"]
    assert found == [*kept, "report.html", "store/new", "summary.json", "theirs/a.png"]
    assert not (tmp_path / "pictures").exists()


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
    assert [path.name for path in Path("out").iterdir() if path.is_file() and path.stat().st_mode != usual] == []


def test_after_a_failure_the_files_of_the_earlier_run_are_there(small, ig2, monkeypatch):
    small("--out", "out")
    before = ig2.files()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(explain, "write_report", fail)
    said = small("--out", "out", "--rule", "shared")
    assert said.code == 1 and said.error == "out cannot be written to: No space left on device"
    assert ig2.files() == before


def test_folders_are_made_and_after_a_failure_unmade(small, ig2, monkeypatch):
    Path("there").mkdir()
    monkeypatch.setattr(pages.Pages, "describe", lambda *_: 1 / 0)
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
    assert files.name_pictures(["a", "a-2", "a", "A"], find("image")) == ["a.png", "a-2.png", "a-3.png", "A-4.png"]
    assert files.name_pictures(["???", "...", "\U00020000" * 90], find("image"))[:2] == ["image-1.png", "image-2.png"]
    assert len(os.fsencode(files.name_pictures(["\U00020000" * 90], find("image"))[0])) <= 255
