"""The command that serves the explorer."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

import pandas
import pytest
import torch
from limits import HANGS

import ig2 as library
from ig2.cli.methods import TypedMethod
from ig2.cli.options import ServeOptions
from ig2.cli.serve import find_method, find_model, prepare_whatif
from ig2.errors import InputError
from ig2.explorer import Collection, Request
from networks import refuses
from stores import tiny, write_store
from whatifs import make_patients


def test_without_a_store_it_says_what_to_name(ig2):
    assert "ig2 serve ig2-run" in ig2.refused("serve", code=2)
    assert "no store" in ig2.refused("serve", ".")


def test_a_source_without_images_is_refused(ig2):
    write_store(ig2.folder / "store", {"id": ["x"]}, kind="image")
    (ig2.folder / "rows.csv").write_text("a\n1\n", encoding="utf-8")
    assert "--source" in ig2.refused("serve", "store", "--source", "rows.csv")


@pytest.mark.slow
def test_it_prints_where_it_is_answers_and_ends_when_told(tmp_path):
    tiny(tmp_path / "store", ["x"], [1.0])
    command = [sys.executable, "-m", "ig2", "serve", "store", "--no-open", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        try:
            with urllib.request.urlopen(address + "api/stores", timeout=HANGS) as answer:
                assert b'"items":1' in answer.read()
        finally:
            process.terminate()
        assert process.wait(HANGS) == 143


def test_a_run_notes_what_was_typed_and_what_if_takes_it(ig2):
    ig2.module()
    for i in range(2):
        ig2.photo(f"photos/{i}.png", (8, 8), seed=i)
    ig2("run", "photos", "--model", "mine:small", "--steps", 3, "--references", "zeros", "--out", "store")
    typed = {"model": "mine:small", "method": "ig2", "steps": 3, "rule": None, "references": "zeros"}
    assert library.open("store").manifest["command"] == typed
    assert "--model mine:small" in ig2.refused("serve", "store", "--what-if", code=2)  # code, which a store may not name
    whatif = prepare_whatif(ServeOptions(stores=(ig2.folder / "store",), model="mine:small"))(Collection(["store"]))
    asked = whatif.plan.question
    assert (whatif.plan.method, type(asked.references).__name__) == (TypedMethod("ig2", 3), "Zeros")
    assert whatif.describe()["notes"] == []
    tiny(ig2.folder / "made", ["x"], [1.0])
    assert "--method" in ig2.refused("serve", "made", "--what-if", code=2)
    assert "no method" in ig2.refused("serve", "store", "--model", "mine:small", "--method", "nothing", code=2)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_what_was_typed_is_in_the_store_of_a_run_that_is_interrupted(ig2, monkeypatch, engine):
    ig2.module()
    for i in range(2):
        ig2.photo(f"photos/{i}.png", (8, 8), seed=i)

    def stop(*_):
        raise KeyboardInterrupt

    if engine == "local":
        monkeypatch.setattr("ig2.cli.run.report_rate", lambda watch: stop)
    else:
        pytest.importorskip("ray")
        monkeypatch.setattr("ig2.runs.cluster.explain_on_cluster", stop)
    typed = ("--model", "mine:small", "--steps", 3, "--references", "zeros", "--out", "store")
    assert ig2("run", "photos", *typed, "--engine", engine).code == 130
    assert "--model mine:small" in ig2.refused("serve", "store", "--what-if", code=2)  # it is recorded, and not trusted
    assert library.open("store").manifest["command"]["references"] == "zeros"


def test_what_was_typed_is_added_to_a_store_that_lacks_it(tmp_path):
    net = torch.nn.Linear(2, 2)
    for command in (None, {"model": "one"}, {"model": "another"}):
        store = library.run(torch.eye(2), net, library.Gradient(), tmp_path / "store", saving=library.Saving(command=command))
    assert store.manifest["command"] == {"model": "one"}


def test_the_command_takes_method_and_model_from_the_store(tmp_path):
    subject, frame = make_patients()
    frame.head(3).to_csv(tmp_path / "rows.csv", index=False)
    library.run(str(tmp_path / "rows.csv"), subject, TypedMethod("expected-ig", 8, "gauss"), tmp_path / "store", device="cpu")
    manifest = library.open(tmp_path / "store").manifest
    assert find_method(ServeOptions(stores=(tmp_path / "store",)), manifest) == "expected-ig"
    assert find_method(ServeOptions(method="ig"), manifest) == "ig"
    library.run(str(tmp_path / "rows.csv"), subject, library.ExpectedIG(4), tmp_path / "other", device="cpu")
    refuses(InputError, "--method", lambda: find_method(ServeOptions(), library.open(tmp_path / "other").manifest))
    demo = {"fingerprint": {"method": {"name": "IG²"}}}  # of two models
    refuses(InputError, "does not record", lambda: find_method(ServeOptions(), demo))
    assert find_model(None, {"model": "digits"}) == "digits" and find_model(None, {"model": "torchvision:resnet18"})
    assert find_model(None, {"model": None}) is None and find_model("mine:build", {}) == "mine:build"
    for name in ("mine:build", "weights.pt", "timm:hf-hub:a/b", "transformers:/home/me"):  # code, or files of this machine
        refuses(InputError, "--model", lambda name=name: find_model(None, {"model": name}))
    refuses(InputError, "--model", lambda: find_model(None, {}))


@pytest.mark.slow
def test_the_command_prepares_a_model(tmp_path):
    frame = pandas.DataFrame([[5.1, 3.5, 1.4, 0.2], [6.2, 2.9, 4.3, 1.3]])
    frame.columns = ["sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"]
    frame.to_csv(tmp_path / "iris.csv", index=False)
    library.run(
        str(tmp_path / "iris.csv"),
        "iris",
        TypedMethod("ig2", 6),
        tmp_path / "store",
        question=library.Question(count=4),
        device="cpu",
    )
    options = ServeOptions(stores=(tmp_path / "store",), model="iris", count=2, target="virginica", device="cpu")
    whatif = prepare_whatif(options)(Collection([tmp_path / "store"]))
    asked = whatif.plan.question
    assert (asked.count, asked.target, whatif.plan.method) == (2, 2, TypedMethod("ig2", 6))
    assert (whatif.describe()["method"], whatif.describe()["notes"]) == ("ig2", [])
    *_, last, _ = whatif.ask(Request({name: str(frame[name][0]) for name in frame}), lambda *_: None)
    assert last["target"] == "virginica"
