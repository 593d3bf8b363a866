"""`ig2 run` and `ig2 status`, typed."""

from __future__ import annotations

import json

import pytest

import ig2 as library

NOISE = """
import numpy as np, torch
from ig2.references import Zeros

def pixels():
    return torch.rand(9, 3, 8, 8, generator=torch.Generator().manual_seed(0))

def black():
    return Zeros()
"""


@pytest.fixture
def folder(ig2):
    ig2.module(NOISE)
    for name in "ab":
        for i in range(4):
            ig2.photo(f"photos/{name}/{i}.png", (8, 8), seed=10 * ord(name) + i)
    return ig2.folder


COMMON = ("--model", "mine:small", "--steps", 3, "--count", 2, "--out", "store")


def test_a_folder_is_explained_and_the_same_command_goes_on(ig2, folder):
    (folder / "photos/a/\x1b[31mbad.png").write_bytes(b"x")
    result = ig2("run", "photos", *COMMON, "--values", "grid:2", "--metrics", "insertion,deletion", "--gradcf")
    assert result.code == 0 and result.err == ""
    assert "9 of 9 items  1 failed" in result.out and "\x1b[31m" not in result.out
    assert "InputError" in result.out and "store" in result.out
    store = library.open("store")
    assert store[1]["values"].shape == (2, 2) and "deletion_curve" in store.columns and "gradcf" in store.columns
    rows = store.ids
    ig2.photo("photos/b/9.png", (8, 8), seed=5)
    again = ig2("run", "photos", *COMMON, "--values", "grid:2", "--metrics", "insertion,deletion", "--gradcf")
    assert "10 of 10 items" in again.out
    assert library.open("store").ids[:9] == rows
    (folder / "photos/a/\x1b[31mbad.png").unlink()
    ig2.photo("photos/a/\x1b[31mbad.png", (8, 8), seed=6)
    fixed = ig2("run", "photos", *COMMON, "--values", "grid:2", "--metrics", "insertion,deletion", "--gradcf", "--retry-failed")
    assert "failed" not in fixed.out


def test_processes_that_read_can_be_turned_off(ig2, folder, monkeypatch):
    run, asked = library.run, []

    def watch(*args, **options):
        asked.append(args[-1].processes)
        return run(*args, **options)

    monkeypatch.setattr(library, "run", watch)
    assert ig2("run", "photos", *COMMON).code == 0
    assert ig2("run", "photos", *COMMON, "--read-by-threads").code == 0
    assert asked == [None, False]


def test_options_of_ray_are_not_ignored(ig2, folder):
    for option in ("--workers", "--gpus-per-worker"):
        said = ig2("run", "photos", *COMMON, option, 1)
        assert said.code == 2 and f"{option} is for a run with Ray: add --engine ray" in said.err


def test_the_status_shows_failures_and_the_time_left(ig2, folder):
    (folder / "photos/a/bad.png").write_bytes(b"x")
    ig2("run", "photos", *COMMON)
    progress = json.loads((folder / "store/progress.json").read_text())
    (folder / "store/progress.json").write_text(json.dumps({**progress, "total": 29, "rate": 0.5}))
    result = ig2("status", "store")
    assert result.code == 0
    for text in (
        "9 of 29 items  1 failed",
        "bad.png",
        "0.5 items/s; 0:00:40 left",
        "name ig2",
        "type images",
        "least trusted",
        "ago",
    ):
        assert text in result.out, result.out


def test_residuals_are_ranked_where_there_are_some(ig2, folder):
    ig2("run", "photos", *COMMON)
    complete = ig2("status", "store").out
    assert "largest residuals" not in complete and "between 0 and 0)" not in complete
    ig2("run", "photos", *COMMON[:-1], "other", "--rule", "left")
    assert "largest residuals" in ig2("status", "other").out


def test_failures_are_told_apart_by_what_is_wrong(ig2, folder):
    for i in range(3):
        (folder / f"photos/a/empty{i}.png").write_bytes(b"")
    (folder / "photos/b/text.png").write_bytes(b"x")
    ig2("run", "photos", *COMMON)
    lines = [line for line in ig2("status", "store").out.splitlines() if "InputError" in line]
    assert len(lines) == 2
    assert "3, such as a/empty0.png" in lines[0] and "text.png" in lines[1] and "such as" not in lines[1]


def test_items_that_the_source_has_no_more_are_not_counted(ig2, folder):
    ig2("run", "photos", *COMMON)
    (folder / "photos/a/1.png").unlink()
    ig2.photo("photos/b/9.png", (8, 8), seed=5)
    result = ig2("run", "photos", *COMMON)
    assert "8 of 8 items" in result.out and "1 row of items" in result.out
    assert len(library.open("store")) == 9


def test_another_run_into_the_store_is_refused(ig2, folder):
    ig2("run", "photos", *COMMON)
    assert "method.steps is 3 there and 4 here" in ig2.refused("run", "photos", *COMMON, "--steps", 4)
    assert "question.seed" in ig2.refused("run", "photos", *COMMON, "--seed", 1)
    assert "no store" in ig2.refused("status", "photos")


def test_data_sets_strategies_and_pools_by_name(ig2, folder):
    common = ("--model", "mine:net", "--method", "expected-ig", "--steps", 3)
    assert ig2("run", "mine:pixels", *common, "--references", "mine:black", "--out", "one").code == 0
    assert ig2("run", "mine:pixels", *common, "--references", "zeros", "--out", "two").code == 0
    one, two = library.open("one"), library.open("two")
    assert [row["output"] for row in one] == [row["output"] for row in two] and len(one) == 9
    assert ig2("run", "photos/a", *COMMON, "--references", "photos").code == 0
    assert library.open("store").manifest["fingerprint"]["question"]["references"]["type"] == "images"
    assert ig2("run", "photos/a", "--model", "mine:small", "--method", "ig", "--out", "three", "--target", "red").code == 0
    assert {row["target_name"] for row in library.open("three")} == {"red"}


@pytest.mark.parametrize("method", ["kernelshap", "occlusion", "turns"])
def test_methods_of_groups_run_on_a_bare_network(ig2, folder, method):
    typed = ("--model", "mine:net", "--method", method, "--steps", 2, "--out", "one")
    result = ig2("run", "mine:pixels", *typed)
    assert (result.code, result.err) == (0, ""), result.err
    assert len(library.open("one")) == 9


def test_what_is_typed_wrong_is_named(ig2, folder):
    for arguments, code, word in (
        (("nowhere",), 1, "nowhere"),
        (("photos", "--values", "grid:x"), 2, "grid:14"),
        (("photos", "--metrics", "insersion"), 2, "insertion"),
        (("photos", "--method", "expected"), 2, "expected-ig"),
        (("photos", "--rule", "lef"), 2, "rule"),
        (("photos", "--id", "key"), 2, "columns"),
        (("photos", "--engine", "spark"), 2, "engine"),
        (("photos", "--values", "units"), 2, "units"),
        (("mine:pixels", "--model", "mine:net", "--target", "red"), 2, "numbers"),
    ):
        assert word in ig2.refused("run", *arguments, *COMMON[-2:], *(() if "--model" in arguments else COMMON[:2]), code=code)


def test_progress_shows_items_a_second(ig2, folder):
    ig2.on_a_terminal(100)
    result = ig2("run", "photos", *COMMON, "--batch", 1)
    assert "items/s" in result.err


def test_an_interrupted_run_says_that_the_same_command_goes_on(ig2, folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "run", stop)
    result = ig2("run", "photos", *COMMON)
    assert result.code == 130 and "the same command resumes" in result.err
