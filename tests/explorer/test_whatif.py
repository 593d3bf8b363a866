"""Inputs that people make: read as the command reads files, explained as the store was, kept beside it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

import ig2
from ig2 import Question
from ig2._utils.files import FileError
from ig2.errors import InputError
from ig2.explorer import Collection, Request, WhatIf
from ig2.explorer.keeping import make_id
from ig2.explorer.whatif import parse_request
from ig2.modalities.image.reading import Framing
from ig2.modalities.text.editing import join_words
from networks import refuses
from whatifs import SIDE, encode, make_bright, make_patients, make_photos, make_reader, make_whatif


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whatif")
    return {kind: make_whatif(folder / kind, kind) for kind in ("image", "text", "table")}


def ask(whatif, content=None, **options):
    """All events of a question."""
    fields = {"input": content, **options}
    return list(whatif.ask(whatif.parse(json.dumps(fields).encode()), lambda *_: None))


def read_item(whatif, number=0):
    """An item as the page gets it, and as it sends it back."""
    identity = whatif.collection.catalogue.ids[number]
    shown = whatif.show_item(identity)
    return identity, shown.get("picture") or shown.get("text") or shown["cells"]


@pytest.mark.parametrize("kind", ["image", "text", "table"])
@pytest.mark.parametrize("number", [0, 1])
def test_an_item_that_is_not_changed_is_explained_as_in_the_store(models, kind, number):
    whatif = models[kind]
    identity, content = read_item(whatif, number)
    events = ask(whatif, content)
    assert [event["event"] for event in events] == ["prediction", "map", "map", "map", "done"] or kind == "text"
    row, kept = whatif.collection.stores[0][identity], whatif.trials[events[-1]["trial"]][0]
    np.testing.assert_allclose(kept["values"], row["values"], rtol=1e-5, atol=1e-6)
    for name in ("output", "baseline_output", "trust"):
        assert kept[name] == pytest.approx(row[name], rel=1e-5)
    assert (kept["target"], kept["against"]) == (row["target"], row["against"])
    shown = whatif.show_item(identity)["before"]
    for name in ("target", "against", "prediction"):
        assert events[-2][name] == shown[name]
    assert events[0]["prediction"] == row["prediction_name"]


def test_what_is_framed_is_not_framed_again(models):
    """A margin that was cut off once stays off: the picture of the page is what the network sees."""
    whatif = models["image"]
    wide = WhatIf(whatif.collection, replace(whatif.subject, frame=Framing((SIDE, SIDE), cover=(12, 12))), ig2.IG2(6))
    photo = np.random.default_rng(1).integers(0, 255, (30, 40, 3)).astype(np.uint8)
    shown = wide.editor.read_upload(encode(photo), "a.png")["picture"]
    sent = wide.editor.read(wide.parse(json.dumps({"input": shown}).encode()).content)
    np.testing.assert_array_equal(sent.x, wide.subject.read([photo]).x)


def test_the_mean_over_references_is_that_of_one_call(models):
    """The same question through the library."""
    whatif = models["image"]
    _, content = read_item(whatif)
    events = ask(whatif, content, count=4)
    picture = whatif.editor.read(base64.b64decode(content.partition(",")[2]))
    whole = whatif.subject.explain(picture, ig2.IG2(6), count=4)
    np.testing.assert_allclose(whatif.trials[events[-1]["trial"]][0]["values"], whole.values[0], rtol=1e-5, atol=1e-7)
    assert [reference[0] for reference in events[-2]["references"]] == list(whole.names.references[0])


def test_what_is_asked_can_be_chosen(models):
    whatif = models["image"]
    _, content = read_item(whatif)
    usual = ask(whatif, content)[-2]
    other = "dark" if usual["target"] == "light" else "light"
    turned = ask(whatif, content, target=other, against=[usual["target"]])[-2]
    assert (turned["target"], turned["against"]) == (other, [usual["target"]])
    assert turned["output"] == pytest.approx(-usual["output"], rel=1e-5)
    alone = ask(whatif, content, against=[])[-2]
    assert alone["against"] == []
    few = ask(whatif, content, count=2, against=["next"])[-2]
    assert (few["total"], len(few["references"])) == (2, 2)
    assert [event["event"] for event in ask(whatif, content, explain=False)] == ["prediction"]


def test_references_can_be_of_chosen_classes(models):
    whatif = models["image"]
    _, content = read_item(whatif)
    own = ask(whatif, content, explain=False)[0]["prediction"]
    other = "dark" if own == "light" else "light"
    assert whatif.describe()["reference_classes"] == ["dark", "light"]
    events = ask(whatif, content, classes=[other], count=3)
    assert {label for _, label in events[-2]["references"]} == {other}
    refuses(InputError, "contrast", lambda: ask(whatif, content, classes=[own]))
    text = models["text"]
    pool = make_reader().pool().take([2, 0])
    assert pool.names == ("sad bad book", "a bad film") and len(pool.ids) == 2
    assert ask(text, "a good film", classes=["worse"], count=2)[-1]["event"] == "done"


@pytest.mark.parametrize(
    ("kind", "content", "word"),
    [
        ("image", b"no image", "format"),
        ("image", b"", "format"),
        ("image", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "image"),
        ("image", encode(np.random.default_rng(0).integers(0, 255, (9, 9, 3)))[:150], "broken"),
        ("image", b"%!PS-Adobe-3.0\n", "format"),
        ("text", b"\xff\xfe\x00", "UTF-8"),
        ("text", b"a\0b", "null"),
        ("text", b"\n \n", "sentences"),
        ("text", b"x" * 30_000, "characters"),
        ("table", b"", "empty"),
        ("table", b"age,dose\n1,2\n", "lacks"),
        ("table", b"age,dose,ward\n", "rows"),
        ("table", b"age,dose,ward\nnan,1,north\n", "age"),
        ("table", b"age,dose,ward\n1e400,1,north\n", "age"),
        ("table", b"age,dose,ward\n1,1,east\n", "east"),
        ("table", b"{" * 5000, "JSON"),
        ("table", b'{"age": NaN, "dose": 1, "ward": "north"}', "age"),
    ],
)  # fmt: skip
def test_an_upload_that_cannot_be_read_says_why(models, kind, content, word):
    with pytest.raises(InputError, match=word) as error:
        models[kind].editor.read_upload(content, "file")
    assert "/tmp" not in str(error.value)


def test_uploads_are_read_as_the_command_reads_files(models, tmp_path):
    whatif = models["image"]
    wide = np.random.default_rng(0).integers(0, 255, (40, 90, 3)).astype(np.uint8)
    (tmp_path / "wide.jpg").write_bytes(encode(wide, "jpeg"))
    shown = whatif.editor.read_upload((tmp_path / "wide.jpg").read_bytes(), "wide.jpg")["picture"]
    again = whatif.editor.read(base64.b64decode(shown.partition(",")[2]))
    np.testing.assert_array_equal(again.x, whatif.subject.read([tmp_path / "wide.jpg"]).x)
    assert models["text"].editor.read_upload("\ufeffa good film\nmore\n".encode(), "x.txt") == {
        "text": "a good film",
        "skipped": 1,
    }
    cells = {"age": "1.5", "dose": "2", "ward": "south"}
    for content in (b"ward,age,dose,more\nsouth,1.5,2,x\n", b"ward\tage\tdose\nsouth\t1.5\t2\n", json.dumps(cells).encode()):
        assert models["table"].editor.read_upload(content, "") == {"cells": cells}


@pytest.mark.parametrize(
    ("kind", "fields", "word"),
    [
        ("image", {"input": None}, "base64"),
        ("image", {"input": "not base64!"}, "base64"),
        ("image", {"input": base64.b64encode(b"P6\n8 8\n255\n").decode()}, "PNG"),
        ("image", {"input": base64.b64encode(encode(make_photos(1)[0].source)[:150]).decode()}, "broken"),
        ("image", {"input": base64.b64encode(encode(np.zeros((9, 9, 3)))).decode()}, "expected"),
        ("text", {"input": 3}, "text"),
        ("text", {"input": "a\0"}, "null"),
        ("text", {"input": "x" * 20_001}, "characters"),
        ("text", {"input": "   "}, "empty"),
        ("table", {"input": "text"}, "object"),
        ("table", {"input": {"age": "x" * 2000}}, "characters"),
        ("table", {"input": {"age": "nan", "dose": "1", "ward": "north"}}, "age"),
        ("table", {"input": {"age": float("nan"), "dose": 1, "ward": "north"}}, "age"),
        ("table", {"input": {"age": "1", "dose": "1"}}, "ward"),
        ("text", {"input": "a", "count": 0}, "count"),
        ("text", {"input": "a", "count": 51}, "count"),
        ("text", {"input": "a", "count": True}, "count"),
        ("text", {"input": "a", "target": "nothing"}, "class"),
        ("text", {"input": "a", "target": 1}, "texts"),
        ("text", {"input": "a", "against": "worse"}, "list"),
        ("text", {"input": "a", "against": ["worse"] * 51}, "list"),
        ("text", {"input": "a", "classes": [1]}, "list"),
        ("text", {"input": "a", "path": "/etc/passwd"}, "unknown"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_says_why(models, kind, fields, word):
    refuses(InputError, word, lambda: ask(models[kind], fields.pop("input"), **fields))


def test_images_are_read_one_at_a_time(models, monkeypatch):
    monkeypatch.setattr("ig2.modalities.image.editing.READING_SECONDS", 0.01)
    whatif = models["image"]
    with whatif.editor._reading:
        refuses(InputError, "at once", lambda: whatif.editor.read_upload(encode(np.zeros((9, 9, 3))), "a.png"))
    assert whatif.editor.read_upload(encode(np.zeros((9, 9, 3))), "a.png")["picture"]


def test_only_objects_are_questions(models):
    for content in (b"", b"[]", b"nonsense", b"[" * 100_000, b"3"):
        refuses(InputError, "JSON", lambda content=content: models["text"].parse(content))
    assert parse_request({"input": "a  b\nc"}, models["text"].editor) == Request("a b c")


def test_a_model_whose_answer_is_no_number_says_so(tmp_path):
    whatif = make_whatif(tmp_path / "image")
    _, content = read_item(whatif)
    with np.errstate(all="ignore"):
        whatif.subject.model.net[3].bias.data[:] = float("nan")
        refuses(InputError, "finite", lambda: ask(whatif, content, explain=False))


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["image", "text", "table"])
def test_what_is_kept_is_a_store_of_its_own(tmp_path, kind):
    whatif = make_whatif(tmp_path / kind, kind)
    identity, content = read_item(whatif)
    trial = ask(whatif, content, origin=identity)[-1]["trial"]
    first, second = whatif.keep(trial, "../my input"), whatif.keep(trial, "../my input")
    suffix = ".png" if kind == "image" else ""
    assert (first, second) == (f"my-input{suffix}", f"my-input-2{suffix}")
    store = ig2.open(tmp_path / kind / "store-whatif")
    assert store.ids == [first, second] and store[first]["origin"] == identity
    np.testing.assert_array_equal(store[second]["values"], whatif.trials[trial][0]["values"])
    inputs = store.folder / "inputs"
    shown = Collection([store.folder], inputs if kind == "image" else None)
    assert shown.view(first)[0][0].name == first and (shown.originals is None) == (kind != "image")
    if kind == "image":
        sent = base64.b64decode(content.partition(",")[2])
        np.testing.assert_array_equal(whatif.editor.read((inputs / first).read_bytes()).x, whatif.editor.read(sent).x)
    again = WhatIf(whatif.collection, whatif.subject, ig2.IG2(9))  # another method has a store of its own
    again.keep(ask(again, content)[-1]["trial"], "x")
    assert (tmp_path / kind / "store-whatif-2").is_dir()


def test_a_session_cannot_fill_the_disk(tmp_path, monkeypatch):
    whatif = make_whatif(tmp_path / "text", "text")
    trial = ask(whatif, "a good film")[-1]["trial"]
    monkeypatch.setattr("ig2.explorer.keeping.MOST_ITEMS", 3)
    for _ in range(3):
        whatif.keep(trial, "film")
    refuses(InputError, "full", lambda: whatif.keep(trial, "film"))
    monkeypatch.setattr("ig2.explorer.keeping.MOST_ITEMS", 100)
    size = sum(path.stat().st_size for path in (tmp_path / "text" / "store-whatif").rglob("*") if path.is_file())
    monkeypatch.setattr("ig2.explorer.keeping.MOST_BYTES", size)  # what is there fits, one more does not
    refuses(InputError, "full", lambda: whatif.keep(trial, "film"))
    assert len(ig2.open(tmp_path / "text" / "store-whatif")) == 3
    # and what is remembered is not the memory
    monkeypatch.setattr("ig2.explorer.whatif.MOST_TRIALS", 2)
    for _ in range(4):
        ask(whatif, "a good film")
    assert len(whatif.trials) == 2
    refuses(InputError, "remembered", lambda: whatif.keep(trial, "film"))


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    whatif = make_whatif(tmp_path / "text", "text")
    trial = ask(whatif, "a good film")[-1]["trial"]
    (tmp_path / "text" / "store-whatif").write_text("a file")
    refuses((InputError, FileError), "store-whatif", lambda: whatif.keep(trial, "film"))


def test_nothing_is_kept_through_a_link(tmp_path):
    whatif = make_whatif(tmp_path / "image", "image")
    trial = ask(whatif, read_item(whatif)[1])[-1]["trial"]
    (tmp_path / "theirs").mkdir()
    (tmp_path / "image" / "store-whatif").mkdir()
    (tmp_path / "image" / "store-whatif" / "inputs").symlink_to(tmp_path / "theirs")
    refuses((InputError, FileError), "inputs", lambda: whatif.keep(trial, "film"))
    assert not list((tmp_path / "theirs").iterdir())


@pytest.mark.parametrize(
    ("name", "identity"),
    [("/etc/passwd", "etc-passwd.png"), ("..", "input.png"), ("", "input.png"), ("a\0b", "a-b.png"), ("CON.png", "CON.png"),
     ("x" * 500, "x" * 80 + ".png"), ("日本", "日本.png")],
)  # fmt: skip
def test_a_name_is_no_path(name, identity):
    assert make_id(name, [], ".png") == identity


# -- the settings of the store -----------------------------------------------------------------------------------------


def test_another_model_is_noticed(models):
    whatif = models["image"]
    assert whatif.describe()["notes"] == []
    other = make_bright()
    other.model.net[3].weight.data *= 2
    assert "weights" in WhatIf(whatif.collection, other, ig2.IG2(6)).describe()["notes"][0]
    refuses(InputError, "reads", lambda: WhatIf(whatif.collection, make_reader(), ig2.IG2(6)))


def test_the_settings_are_those_of_the_store(tmp_path):
    subject, frame = make_patients()
    frame.head(3).to_csv(tmp_path / "rows.csv", index=False)
    question = Question("ill", None, count=3, seed=7)
    ig2.run(str(tmp_path / "rows.csv"), subject, ig2.ExpectedIG(4), tmp_path / "store", question, device="cpu")
    collection = Collection([tmp_path / "store"])
    plan = WhatIf(collection, subject, ig2.ExpectedIG(4)).plan
    asked = plan.question
    assert (asked.target, asked.against, asked.count, asked.seed, plan.saving.values) == (1, None, 3, 7, "units")
    other = WhatIf(collection, subject, ig2.ExpectedIG(4), Question(0, "next", count=2, seed=1)).plan.question
    assert (other.target, other.against, other.count, other.seed) == (0, "next", 2, 1)


def test_grids_and_superpixels_are_kept_as_in_the_store(tmp_path):
    subject = make_bright()
    for values in (ig2.Grid(4, 4), ig2.Superpixels(5)):
        folder = tmp_path / type(values).__name__
        ig2.run(
            [photo.source for photo in make_photos(3)],
            subject,
            ig2.IG2(4),
            folder,
            saving=ig2.Saving(values=values),
            device="cpu",
        )
        whatif = WhatIf(Collection([folder]), subject, ig2.IG2(4))
        content = base64.b64encode(encode(np.full((SIDE, SIDE, 3), 40))).decode()
        shown = ask(whatif, content)[-2]["map"]["scores"]
        assert shown["shape"] == ([4, 4] if isinstance(values, ig2.Grid) else [SIDE, SIDE])


def test_words_become_a_sentence_again():
    assert join_words(["a", "good", "film", ",", "(", "really", ")", "!"]) == "a good film, (really)!"
