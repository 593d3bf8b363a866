"""`ig2 explain` and `ig2 run` of sounds."""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path

import numpy as np
import pytest

import ig2 as library
from ig2.cli import explain
from ig2.explorer import Collection
from ig2.views import Curve

MODULE = """
import torch
from torch import nn
import ig2
from ig2 import modalities

def net():
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(40, 8), nn.Tanh(), nn.Linear(8, 2)).eval()

def build():
    noise = torch.rand(30, 40, generator=torch.Generator().manual_seed(1)) * 2 - 1
    model = ig2.wrap(net(), bounds=(-1, 1))
    return modalities.signal.subject(model, 40, "T", ["quiet", "loud"], rate=100, window=0.1, clips=noise)
"""


@pytest.fixture
def sounds(ig2) -> None:
    Path("hearing.py").write_text(MODULE)
    for number in range(2):
        write_sound(Path(f"in/{number}.wav"), number)


def write_sound(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(seed).integers(-20_000, 20_000, 40).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(100)
        file.writeframes(samples.tobytes())


@pytest.mark.slow
def test_sounds_are_explained_into_pictures_numbers_and_a_report(ig2, sounds):
    result = ig2(
        "explain", "in/0.wav", "in/1.wav", "--model", "hearing:build", "--compare", "occlusion,kernelshap", "--steps", 5, "-q"
    )
    assert result.code == 0, result.err
    summary = json.loads(Path("ig2-out/summary.json").read_text())
    assert [entry["name"] for entry in summary["inputs"]] == ["0.wav", "1.wav"]
    for name in ("0.png", "1.png", "ig2.safetensors", "occlusion.safetensors", "report.html"):
        assert Path("ig2-out", name).stat().st_size > 500


@pytest.mark.slow
def test_a_folder_is_run_and_references_are_chosen_from_one(ig2, sounds):
    assert ig2("run", "in", "--model", "hearing:build", "--method", "expected-ig", "--out", "store", "-q").code == 0
    others = ("--model", "hearing:build", "--references", "in", "--target", "quiet")  # both are loud
    named = ig2("explain", "in/0.wav", *others, "-q", "--method", "occlusion")
    assert named.code == 0, named.err


def test_a_folder_of_sounds_is_explained_few_or_many(ig2, sounds, monkeypatch):
    command = ("explain", "in", "--model", "hearing:build", "--method", "gradient", "--compare", "ig", "-q")
    Path("in/notes.doc").write_text("no sound")
    assert ig2(*command).code == 0
    assert [entry["name"] for entry in json.loads(Path("ig2-out/summary.json").read_text())["inputs"]] == ["0.wav", "1.wav"]
    for number in range(2, 7):
        write_sound(Path(f"in/deep/{number}.wav"), number)
    Path("in/deep/8.wav").write_bytes(b"RIFF")
    monkeypatch.setattr(explain, "MANY", 4)
    said = ig2(*command)
    assert said.code == 0 and re.search(r"^7 inputs, 1 skipped$", said.out, re.MULTILINE)
    store = library.open("ig2-out/store")
    assert store.manifest["view"]["name"] == "curve" and store["3.wav"]["values"].shape == (40,)
    assert store.where("error is not None").ids == ["8.wav"]
    view = Collection(["ig2-out/store"], "in").view("0.wav")[0][0]
    assert isinstance(view.view, Curve) and view.view.lowest is not None and view.view.seconds == 0.4


@pytest.mark.parametrize(
    ("arguments", "keyword"),
    [
        (("explain", "in/0.wav"), r"signal\.subject"),
        (("explain", "in/0.wav", "--model", "hearing:net"), r"signal\.subject"),
        (("explain", "in/0.wav", "--model", "hearing:build", "--rows", "1"), "--rows"),
        (("explain", "in/0.wav", "--model", "hearing:build", "--method", "gradcam"), "images"),
        (("explain", "in/0.wav", "--model", "hearing:build", "--scale", "3"), "--scale"),
        (("explain", "in/none.wav", "--model", "hearing:build"), "does not exist"),
        (("explain", "in/0.wav", "--model", "hearing:build", "--references", "hearing.py"), "no items: .*signals"),
    ],
)
def test_what_does_not_fit_is_one_line(ig2, sounds, arguments, keyword):
    result = ig2(*arguments, "-q")
    assert result.code in (1, 2) and re.search(keyword, result.error)
