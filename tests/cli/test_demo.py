"""`ig2 demo`."""

import os
import re
import shlex
import sys
from pathlib import Path

from commands import page_data

from ig2.cli import demo, files
from ig2.demo import photos as demo_photos
from ig2.explorer import Collection


def test_the_demo_in_small(ig2, capfd):
    demo.run(ig2.folder / "out", steps=1, photos=["coffee.png"], digits=["5"])
    said = capfd.readouterr().out
    assert re.search(r"a cup of coffee  espresso, 9\d%, not \w+", said) and "a handwritten 5  5, >99%, not" in said
    assert f"{ig2.folder}/out/report.html" in said
    assert sorted(os.listdir("out")) == ["digits.png", "photos.png", "pictures", "report.html", "store", "summary.json"]
    shown = page_data(Path("out"))["inputs"]
    assert [view["name"] for view in shown] == ["a cup of coffee", "a handwritten 5"]
    titles = ["IG²", "Gradient", "IG", "Guided IG", "Expected IG"]
    assert all([method["name"] for method in view["methods"]] == titles for view in shown)
    assert [len(view["methods"][0]["references"]) for view in shown] == [4, 8]
    assert shown[0]["methods"][0]["settings"]["parts"]["rule"]["name"] == "blended"
    files.check_replaceable(Path("out"), os.listdir("out"))  # another demo may replace them

    line = next(line for line in said.splitlines() if line.split()[:1] == ["explorer"])
    typed = shlex.split(line.partition("explorer")[2])
    assert typed[0] in ("ig2", sys.executable) and typed[-5] == "serve" and typed[-2] == "--source"
    collection = Collection(typed[-4:-2], typed[-1])  # what the command opens
    assert collection.catalogue.ids == ["a cup of coffee.png", "a handwritten 5.png"]
    assert collection.names == ["ig2", "ig"]
    for identity in collection.catalogue.ids:
        view = collection.view(identity)[0][0]
        assert view.view.pixels is not None and [method.name for method in view.methods] == ["ig2", "ig", "Difference"]
        assert view.prediction in ("espresso", "5")


def test_the_demo_passes_on_what_is_typed(ig2, monkeypatch):
    asked = []
    monkeypatch.setattr(demo, "run", lambda out, **options: asked.append((out, options)))
    assert ig2("demo").code == 0
    assert ig2("demo", "-o", "there", "--steps", 7, "--quiet").code == 0
    assert asked == [(Path("ig2-demo"), {"steps": 20, "quiet": False}), (Path("there"), {"steps": 7, "quiet": True})]


def test_the_demo_leaves_nothing_behind_and_replaces_nothing_of_the_users(ig2, monkeypatch):
    monkeypatch.setattr(demo_photos, "paths", tuple)
    assert "chelsea.png, which comes with scikit-image" in ig2.refused("demo")
    Path("ig2-demo").mkdir()
    Path("ig2-demo/photos.png").write_text("mine")
    assert "ig2-demo/photos.png exists already" in ig2.refused("demo")
