"""Sources yield their items in one order, with stable ids, and read nothing before it is asked for."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError
from ig2.modalities.image import read_image
from ig2.modalities.modality import MODALITIES
from ig2.runs import Files, HuggingFace, Lines, Rows, Samples, find_source
from ig2.runs.sources import split_label
from networks import refuses

FRAME = pandas.DataFrame({"key": ["x", "y", "z"], "age": [1, 2, 3], "kind": ["a", "b", "a"]})


def write(path: Path) -> Path:
    if path.suffix == ".parquet":
        FRAME.to_parquet(path)
    elif path.suffix == ".jsonl":
        FRAME.to_json(path, orient="records", lines=True)
    else:
        FRAME.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def test_photos_have_their_paths_as_ids_and_folders_as_classes(photos: Path) -> None:
    (photos / ".hidden").mkdir()
    for name in (".hidden/9.png", "red/.9.png", "red/notes.doc"):
        (photos / name).write_bytes(b"")
    source = find_source(photos)
    items = list(source)
    assert isinstance(source, Files) and source.kinds == ("image",)
    assert [item.id for item in items] == [f"{name}/{i}.png" for name in ("green", "red") for i in range(6)]
    assert {item.label for item in items} == {"red", "green"}
    assert source.load(items[0].content) == str(photos / "green/0.png")
    assert list(source.ids()) == [item.id for item in items]


def test_a_store_inside_the_source_is_left_aside(photos: Path) -> None:
    (photos / "store").mkdir()
    (photos / "red/0.png").rename(photos / "store/0.png")
    assert len(list(find_source(photos, skip=photos / "store"))) == 11


def test_a_store_inside_a_folder_of_tables_or_photos_is_left_aside(photos: Path, tmp_path: Path) -> None:
    """Its parts are tables too, and come first where its name does: a second run took them for the source."""
    for folder in (photos, tmp_path / "tables"):
        (folder / "a-store/parts").mkdir(parents=True)
        write(folder / "a-store/parts/part.parquet")
    write(tmp_path / "tables/one.csv")
    assert find_source(photos, skip=photos / "a-store").kinds == ("image",)
    assert {item.id for item in find_source(tmp_path / "tables", skip=tmp_path / "tables/a-store")} == {
        "one.csv:1", "one.csv:2", "one.csv:3",
    }  # fmt: skip


def test_a_damaged_table_of_the_user_is_not_to_be_deleted(tmp_path: Path) -> None:
    path = write(tmp_path / "one.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    for read in (lambda: list(find_source(path)), lambda: list(find_source(path).ids())):
        refuses(InputError, "restore", read)


def test_patterns_and_lists_of_photos(photos: Path) -> None:
    assert len(list(find_source(str(photos / "*/1.png")))) == 2
    assert len(list(find_source([photos / "red/0.png", photos / "red/1.png"]))) == 2
    assert [item.id for item in find_source(photos / "red/0.png")] == [str(photos / "red/0.png")]


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl"])
def test_rows_of_a_file_and_of_a_folder(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"one.{ending}")
    source = find_source(tmp_path / f"one.{ending}")
    assert isinstance(source, Rows)
    assert list(source.ids()) == [item.id for item in source] == [f"one.{ending}:{i}" for i in (1, 2, 3)]
    assert {key: str(cell) for key, cell in source.load(list(source)[1].content).items()} == {
        "key": "y",
        "age": "2",
        "kind": "b",
    }
    keyed = find_source(tmp_path / f"one.{ending}", id="key", label="kind")
    assert list(keyed.ids()) == [item.id for item in keyed] == ["x", "y", "z"]
    assert [item.label for item in keyed] == ["a", "b", "a"]
    (tmp_path / "more").mkdir()
    write(tmp_path / f"more/two.{ending}")
    assert [item.id for item in find_source(tmp_path)] == [
        f"{name}.{ending}:{i}" for name in ("one", "more/two") for i in (1, 2, 3)
    ]
    refuses(InputError, "kye", lambda: list(find_source(tmp_path / f"one.{ending}", id="kye")))


def test_broken_lines_are_items_that_fail(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": \n[1]\n{"a": 2}\n', encoding="utf-8")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n1,2,3\n4\n", encoding="utf-8")
    for name, broken in (("rows.jsonl", [1, 2]), ("rows.csv", [1])):
        source = find_source(tmp_path / name)
        items = list(source)
        for i, item in enumerate(items):
            if i in broken:
                refuses(InputError, "line|row", lambda source=source, item=item: source.load(item.content))
            else:
                assert "a" in source.load(item.content)


def test_a_line_without_the_label_is_an_item_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a", "class": 1}\n{"text": "b"}\n{"text": "c", "class": 2}\n', encoding="utf-8")
    source = find_source(path, label="class")
    items = list(source)
    assert [item.label for item in items] == [1, None, 2] and [item.id for item in items] == list(source.ids())
    refuses(InputError, "t.jsonl:2 has no column 'class'", lambda: source.load(items[1].content))


def test_a_pattern_does_not_reach_into_the_store(tmp_path: Path) -> None:
    for name in ("a.parquet", "store/parts/part-00000000-00000000.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pandas.DataFrame({"age": [1, 2]}).to_parquet(tmp_path / name)
    source = find_source(str(tmp_path / "**" / "*.parquet"), skip=tmp_path / "store")
    assert list(source.ids()) == [item.id for item in source] == ["a.parquet:1", "a.parquet:2"]


def test_lines_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeffone\n\n  two \nthree", encoding="utf-8")
    source = find_source(tmp_path / "a.txt")
    assert isinstance(source, Lines)
    assert [(item.id, item.content) for item in source] == [("a.txt:1", "one"), ("a.txt:3", "two"), ("a.txt:4", "three")]
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe")
    refuses(InputError, "UTF-8", lambda: list(find_source(tmp_path / "b.txt")))


def test_a_data_set_by_its_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_data_set.py").write_text(
        "import torch\ndef build():\n    return torch.utils.data.TensorDataset(torch.eye(3), torch.tensor([2, 0, 1]))\n"
        "def fail():\n    raise OSError('no disk')\ndef stream():\n    return iter([])\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    source = find_source("my_data_set:build")
    assert isinstance(source, Samples) and source.describe()["name"] == "my_data_set:build"
    items = list(source)
    assert [item.id for item in items] == ["0", "1", "2"]
    sample = source.load(items[0].content)
    assert split_label(sample) == 2
    assert torch.equal(MODALITIES["image"].extract(sample, None), torch.tensor([1.0, 0, 0]))
    refuses(InputError, "no disk", lambda: find_source("my_data_set:fail"))
    refuses(InputError, "length", lambda: find_source("my_data_set:stream"))
    refuses(ChoiceError, "columns", lambda: find_source("my_data_set:build", id="key"))


@pytest.mark.slow
def test_hugging_face_objects_and_folders(tmp_path: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    image = Image.fromarray(np.zeros((4, 4, 3), np.uint8))
    data = datasets.Dataset.from_dict({"name": ["p", "q"], "picture": [image, image], "kind": [1, 0]}).cast_column(
        "picture", datasets.Image()
    )
    source = find_source(data, id="name", label="kind")
    assert isinstance(source, HuggingFace)
    assert [(item.id, item.label) for item in source] == [("p", 1), ("q", 0)]
    assert MODALITIES["image"].extract(source.load(1), None).size == (4, 4)
    data.save_to_disk(tmp_path / "saved")
    saved = find_source(tmp_path / "saved")
    assert [item.id for item in saved] == ["0", "1"] and saved.describe()["name"] == str(tmp_path / "saved")
    refuses(InputError, "nobody", lambda: list(find_source(data, id="nobody")))
    datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / "splits")
    refuses(InputError, "train", lambda: find_source(tmp_path / "splits"))
    assert len(list(find_source(tmp_path / "splits" / "train"))) == 2


ENDINGS = (".PNG", ".Jpg", ".WAV", ".PARQUET", ".CSV", ".TSV", ".JSONL", ".TXT")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("place", ["folder", "pattern", "file", "list"])
def test_endings_in_capitals_are_known(tmp_path: Path, ending: str, place: str) -> None:
    """Whatever names a source, and whatever a row, a line or a file of it is."""
    lower, path = tmp_path / f"one{ending.lower()}", tmp_path / f"one{ending}"
    if ending in (".PARQUET", ".CSV", ".TSV", ".JSONL"):
        write(lower)
    else:
        lower.write_bytes(b"x\ny\nz\n")
    if place == "list" and type(find_source(lower)) in (Rows, Lines):
        return  # which is of files alone

    def read(file: Path) -> list[tuple[type, str, str]]:
        places = {"folder": tmp_path, "pattern": str(tmp_path / "*"), "file": file, "list": [file]}
        source = find_source(places[place])
        return [(type(source), item.id.lower(), str(item.content).lower()) for item in source]

    items = read(lower)
    lower.rename(path)
    assert items and read(path) == items


def test_what_is_no_source_says_what_is_one(tmp_path: Path) -> None:
    (tmp_path / "notes.doc").write_bytes(b"x")
    for place in (tmp_path, tmp_path / "notes.doc", tmp_path / "nowhere", str(tmp_path / "*.png")):
        refuses(InputError, "folder, file or pattern", lambda place=place: find_source(place))
    os.mkfifo(tmp_path / "pipe.csv")
    refuses(InputError, "pipe", lambda: list(find_source(tmp_path / "pipe.csv")))


def encode(image: Image.Image, kind: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def test_inputs_are_found_in_rows() -> None:
    image = Image.new("RGB", (3, 2))
    content = encode(image, "PNG")
    assert MODALITIES["image"].extract({"picture": content, "n": 1}) == content
    assert MODALITIES["image"].extract({"picture": {"bytes": content, "path": None}}) == content
    assert read_image(content).size == (3, 2)
    assert MODALITIES["text"].extract({"a": "x", "text": "hello"}, None) == "hello"
    assert MODALITIES["text"].extract({"a": "x", "b": "hello"}, "b") == "hello"
    assert MODALITIES["table"].extract(({"a": 1}, 3), None) == {"a": 1}
    bad: list[tuple[Any, Any, Any, str]] = [
        ({"a": "x", "b": "y"}, "text", None, "column"),
        ({"a": "x"}, "text", "c", "column"),
        ({"size": 3, "n": 1}, "image", None, "column"),
        (3, "text", None, "texts"),
        ("x", "table", None, "rows"),
    ]
    for content_, kind, column, word in bad:
        refuses(InputError, word, lambda c=content_, k=kind, n=column: MODALITIES[k].extract(c, n))


def test_a_deep_line_is_an_item_that_fails(tmp_path: Path) -> None:
    (tmp_path / "deep.jsonl").write_text("[" * 100_000 + "\n" + json.dumps({"a": 1}), encoding="utf-8")
    source = find_source(tmp_path / "deep.jsonl")
    first, second = source
    refuses(InputError, "JSON", lambda: source.load(first.content))
    assert source.load(second.content) == {"a": 1}
