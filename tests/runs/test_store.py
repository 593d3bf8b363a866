"""A store is read back as it was written, by us and by others; what is damaged is named."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from torch import nn

import ig2
from ig2 import modalities
from ig2._utils.files import FileError
from ig2.cli.options import ServeOptions
from ig2.cli.run import print_store
from ig2.cli.serve import find_method, find_model
from ig2.errors import InputError
from ig2.explorer import Collection, Query, WhatIf
from ig2.explorer.maps import Reader
from ig2.modalities.image import ImageSubject
from ig2.modalities.modality import MODALITIES
from ig2.runs import Store, files
from ig2.runs import store as stores
from ig2.runs.files import Writer, find_differences, list_parts, write_part
from networks import data, refuses


@pytest.fixture
def store(net: nn.Module, samples: torch.Tensor, method: ig2.Method, tmp_path: Path) -> Store:
    pairs = [(sample, i % 3) for i, sample in enumerate(samples)]
    return ig2.run(pairs, net, method, tmp_path / "store", reading=ig2.Reading(batch=6))


# -- by us -------------------------------------------------------------------------------------------------------------


def test_rows_are_what_the_method_returns(store: Store, net: nn.Module, samples: torch.Tensor, method: ig2.Method) -> None:
    attribution = method(net, samples)
    assert attribution.residual is not None and attribution.baseline_output is not None
    assert len(store) == 20 and store.ids == [str(i) for i in range(20)]
    for i, row in enumerate(store):
        assert row["target"] == row["prediction"] == int(attribution.target[i])
        assert row["label"] == i % 3
        assert row["error"] is None and row["trust"] is None
        assert row["output"] == pytest.approx(float(attribution.output[i]), abs=1e-6)
        assert row["baseline_output"] == pytest.approx(float(attribution.baseline_output[i]), abs=1e-6)
        assert row["residual"] == pytest.approx(float(attribution.residual[i]), abs=1e-6)
        np.testing.assert_allclose(row["values"], attribution.values[i].numpy(), atol=1e-6)


@pytest.mark.parametrize("values", ["float32", ig2.Grid(2, 2), ig2.Superpixels(4)])
def test_each_of_many_rows_has_its_own(values: Any, subject: ImageSubject, tmp_path: Path) -> None:
    """Rows are read in slices of larger arrays, and a tensor of a slice begins elsewhere."""
    x = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 3), dtype=np.uint8)
    saving, reading = ig2.Saving(values, gradcf=True, per_reference=True), ig2.Reading(batch=50)
    store = ig2.run(x, subject, ig2.IG2(1), tmp_path, ig2.Question(count=2), saving, reading)
    assert len(store) > 3 * stores.ROWS_AT_ONCE
    if values == "float32":
        attribution = subject.explain(list(x[140:]), ig2.IG2(1), count=2)
        assert attribution.gradcf is not None
        for i, row in enumerate(list(store)[140:]):
            np.testing.assert_allclose(row["values"], attribution.values[i], atol=1e-6)
            np.testing.assert_allclose(row["gradcf"], attribution.gradcf[i], atol=1e-6)
    rows, reader = list(store), Reader(store)
    names = [name for name in rows[0] if isinstance(rows[0][name], np.ndarray)]
    assert {"values", "gradcf"} <= set(names)
    for number in (0, 63, 64, 65, 130, 199):
        identity = str(number)
        others = [store[number], store[identity], store.find([identity])[identity], reader[number]]
        others.append(list(store.where("id != '3'"))[number - (number > 3)])
        others.append(list(store.iterate(names))[number])
        for name in names:
            for other in others:
                np.testing.assert_array_equal(other[name], rows[number][name])
    for name in ("gradcf", "values"):
        assert len({row[name].tobytes() for row in rows}) == 200


def test_a_row_is_found_by_id_and_by_position(store: Store) -> None:
    every = list(store)
    for which in (0, 7, 19, -1):
        assert store[which]["id"] == every[which]["id"]
        np.testing.assert_array_equal(store[which]["values"], every[which]["values"])
    assert store["7"]["output"] == every[7]["output"]
    assert store.find(["3", "5", "nobody"]).keys() == {"3", "5"}
    refuses(KeyError, "nobody", lambda: store["nobody"])
    refuses(IndexError, "20", lambda: store[20])
    refuses(IndexError, "-21", lambda: store[-21])
    refuses(InputError, "position", lambda: store[True])


def test_each_position_is_that_of_its_row_in_a_store_of_many_parts(
    net: nn.Module, samples: torch.Tensor, method: ig2.Method, tmp_path: Path
) -> None:
    saving, reading = ig2.Saving(part_bytes=1, flush_seconds=0), ig2.Reading(batch=3)
    store = ig2.run(samples, net, method, tmp_path / "store", saving=saving, reading=reading)
    assert len(store.files) > 3
    reader, outputs = Reader(store), [row["output"] for row in store]
    for position in range(-20, 20):
        row = store[position]
        assert (row["id"], row["output"]) == (str(position % 20), outputs[position])
        assert reader[position % 20]["id"] == row["id"]


def test_an_id_that_no_row_can_have_is_not_there(store: Store) -> None:
    """It was taken for a damaged part, to be deleted."""
    with pytest.raises(KeyError):
        store["gr\udcfcn.png"]
    assert list(store.find(["3", "gr\udcfcn.png"])) == ["3"] and store.find([]) == {}


def test_conditions_keep_the_rows_that_fulfil_them(store: Store) -> None:
    wrong = [row["id"] for row in store if row["target"] != row["label"]]
    assert 0 < len(wrong) < 20
    some = store.where("target != label")
    assert some.ids == wrong and len(some) == len(wrong)
    assert some[1]["id"] == wrong[1]
    assert some.where(f"id != '{wrong[0]}'").ids == wrong[1:]
    assert "target != label" in repr(some)
    refuses(InputError, "values", lambda: store.where("values > 0"))


def test_to_pandas_has_arrays_and_integers(store: Store) -> None:
    frame = store.where("target == label").to_pandas(["id", "label", "values"])
    assert list(frame.columns) == ["id", "label", "values"]
    assert frame["label"].dtype == "Int64" and frame["values"].iloc[0].shape == (5,)
    refuses(InputError, "thrust", lambda: store.to_pandas(["thrust"]))


def test_to_shap_has_the_values_and_base_values(store: Store) -> None:
    explanation = store.to_shap()
    np.testing.assert_array_equal(explanation.values[3], store[3]["values"])
    assert explanation.base_values[3] == store[3]["baseline_output"]


def test_two_stores_are_joined_by_id(store: Store, net: nn.Module, samples: torch.Tensor, tmp_path: Path) -> None:
    other = ig2.run(samples[:9], net, ig2.Gradient(), tmp_path / "other")
    joined = store.where("id != '4'").join(other, "_gradient")
    assert joined["id"].to_pylist() == ["0", "1", "2", "3", "5", "6", "7", "8"]
    assert joined["output_gradient"].to_pylist() == pytest.approx(joined["output"].to_pylist(), abs=1e-6)
    values = store.join(other, columns=["values"])
    np.testing.assert_array_equal(values["values_other"].to_pylist()[2], other["2"]["values"])


def test_a_metric_scores_what_is_stored(store: Store, net: nn.Module, samples: torch.Tensor, method: ig2.Method) -> None:
    metric = ig2.metrics.Deletion(thresholds=5)
    expected = metric(net, method(net, samples))
    scores = store.score(metric, samples, net, batch=7)
    torch.testing.assert_close(scores.values, expected.values.double(), atol=1e-5, rtol=1e-5)
    assert scores.better == "lower"
    fewer = store.score(metric, samples[:15], net)
    assert fewer.n == 15 and sum(fewer.undefined.values()) == 5


def test_pooled_values_cannot_be_scored(net: nn.Module, samples: torch.Tensor, method: ig2.Method, tmp_path: Path) -> None:
    store = ig2.run(samples, net, method, tmp_path / "store", saving=ig2.Saving(values="none"))
    refuses(InputError, "float32", lambda: store.score(ig2.metrics.Deletion(), samples, net))


# -- by others ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_duckdb_pandas_polars_and_datasets_read_it(store: Store, tmp_path: Path) -> None:
    import datasets
    import duckdb
    import pandas
    import polars

    parts, expected = store.folder / "parts", store[3]["values"].tolist()
    rows = duckdb.sql(f"SELECT id, values FROM '{parts}/*.parquet' WHERE target != label ORDER BY id").fetchall()
    assert sorted(store.where("target != label").ids) == [name for name, _ in rows]
    assert dict(duckdb.sql(f"SELECT id, values FROM '{parts}/*.parquet'").fetchall())["3"] == expected
    assert pandas.read_parquet(parts)["values"].iloc[3].tolist() == expected
    assert polars.read_parquet(parts / "*.parquet").height == 20
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(
        "parquet", data_dir=str(parts), features=store.features, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded[3]["values"] == expected and loaded[3]["id"] == "3"


def test_tensors_are_arrow_tensors_compressed_by_zstd(store: Store) -> None:
    (path,) = store.files
    metadata = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    assert {metadata.column(i).compression for i in range(metadata.num_columns)} == {"ZSTD"}
    field = pyarrow.parquet.read_schema(path).field("values")
    assert field.type == pyarrow.fixed_shape_tensor(pyarrow.float32(), [5])


# -- files -------------------------------------------------------------------------------------------------------------


def table(*ids: str) -> Any:
    return pyarrow.table({"id": list(ids), "error": pyarrow.array([None] * len(ids), "string")})


def read_ids(folder: Path) -> list[str]:
    return [name for path in list_parts(folder) for name in files.read_part(path)["id"].to_pylist()]


def test_the_journal_becomes_a_part_when_there_is_enough(tmp_path: Path) -> None:
    seen: list[int] = []
    writer = Writer(tmp_path, lambda rows, failed: seen.append(rows), part_bytes=60, flush_seconds=0)
    for i in range(9):
        writer.add(table(f"item number {i}"))
    assert seen == [1] * 9
    assert read_ids(tmp_path) == [f"item number {i}" for i in range(9)]
    parts = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert len(parts) > 1 and parts[0].startswith("part-00000000-")
    writer.add(table("last"))
    writer.close()
    assert not list((tmp_path / "journal").iterdir())
    assert len(read_ids(tmp_path)) == 10
    assert Writer(tmp_path, lambda rows, failed: None).number == writer.number


def test_rows_are_seen_while_the_journal_becomes_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path, lambda rows, failed: None, flush_seconds=0)
    for name in "abc":
        writer.add(table(name))
    lists = files._list_matching
    calls: list[Path] = []

    def list_and_compact(folder: Path, pattern: Any) -> Any:
        found = lists(folder, pattern)
        calls.append(folder)
        if len(calls) == 1:  # the run that writes does so between two looks of who reads
            writer.compact()
        return found

    monkeypatch.setattr(files, "_list_matching", list_and_compact)
    assert read_ids(tmp_path) == ["a", "b", "c"]


def test_a_file_that_a_run_has_joined_since_is_not_to_be_deleted(store: Store) -> None:
    store.files[0].rename(store.files[0].with_name("part-00000000-00000001.parquet"))
    for read in (lambda: len(store), lambda: list(store), lambda: store[0], lambda: store["0"]):
        refuses(InputError, "is gone: open the store again", read)
    assert len(ig2.open(store.folder)) == 20


def test_a_run_killed_between_part_and_journal_has_no_row_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path, lambda rows, failed: None, flush_seconds=0)
    for name in "abc":
        writer.add(table(name))

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", die)
        with pytest.raises(KeyboardInterrupt):
            writer.compact()
    assert len(list((tmp_path / "journal").iterdir())) == 3
    (tmp_path / "parts" / ".0123.part").write_bytes(b"half")
    assert read_ids(tmp_path) == ["a", "b", "c"]
    again = Writer(tmp_path, lambda rows, failed: None, flush_seconds=0)
    assert not list((tmp_path / "journal").iterdir()) and not list((tmp_path / "parts").glob(".*"))
    again.add(table("d"))
    assert read_ids(tmp_path) == ["a", "b", "c", "d"]


def test_a_part_that_cannot_be_written_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    refuses(FileError, "No space left", lambda: write_part(tmp_path / "part.parquet", table("a")))
    assert not list(tmp_path.iterdir())


def test_rows_are_compressed_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP_BYTES", 100)
    seen: list[tuple[int, int]] = []
    writer = Writer(tmp_path, lambda rows, failed: seen.append((rows, failed)))
    broken = pyarrow.table({"id": ["broken"], "error": ["unreadable"]})
    for i in range(12):
        writer.add(table(f"item number {i}"))
        assert sum(waiting.nbytes for waiting in writer.draft._tables) < 100
    writer.add(broken)
    assert not seen
    writer.close()
    assert seen == [(13, 1)]
    (path,) = list_parts(tmp_path)
    assert pyarrow.parquet.ParquetFile(path).num_row_groups > 2
    assert read_ids(tmp_path) == [*(f"item number {i}" for i in range(12)), "broken"]


def test_rows_that_could_not_be_written_are_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    writer = Writer(tmp_path, lambda rows, failed: seen.append(rows), flush_seconds=0)

    def fail(*_: Any) -> None:
        raise FileError(28, "No space left on device", "part")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_file", fail)
        refuses(FileError, "No space left", lambda: writer.add(table("a")))
        refuses(FileError, "No space left", lambda: writer.add(table("b")))
    writer.add(table("c"))
    writer.close()
    assert read_ids(tmp_path) == ["a", "b", "c"] and seen == [3]


def test_differences_are_named() -> None:
    there = {"method": {"steps": 50, "digest": "a"}, "seed": 0, "list": [1, 2]}
    assert find_differences(there, {"method": {"steps": 50, "digest": "a"}, "seed": 0, "list": (1, 2)}) == []
    assert find_differences(there, {**there, "method": {"steps": 20, "digest": "b"}}) == [
        "method.steps is 50 there and 20 here"
    ]
    assert "digest" in find_differences(there, {**there, "method": {"steps": 50, "digest": "b"}})[0]
    assert find_differences(there, {"method": None})[0].startswith("method is dict")


# -- damage ------------------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip_bits(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8:40] = bytes(32)
    path.write_bytes(bytes(content))


def flip_a_value(path: Path) -> None:
    """Change one byte of the values, which nothing but a checksum notices."""
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    (column,) = [group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema.startswith("values.")]
    place = column.data_page_offset + int(0.8 * column.total_compressed_size)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_bits, flip_a_value, empty])
def test_a_damaged_part_is_named(store: Store, damage: Callable[[Path], None]) -> None:
    (path,) = store.files
    damage(path)
    refuses(InputError, "damaged", lambda: list(ig2.open(store.folder)))
    refuses(InputError, path.name, lambda: ig2.open(store.folder)[0])


def test_an_item_of_a_deleted_part_is_explained_again(
    store: Store, net: nn.Module, samples: torch.Tensor, method: ig2.Method
) -> None:
    pairs = [(sample, i % 3) for i, sample in enumerate(samples)]
    (path,) = store.files
    rows = [row["output"] for row in store]
    truncate(path)
    refuses(InputError, "damaged", lambda: ig2.run(pairs, net, method, store.folder, reading=ig2.Reading(batch=6)))
    path.unlink()
    again = ig2.run(pairs, net, method, store.folder, reading=ig2.Reading(batch=6))
    assert [row["output"] for row in again] == rows
    assert again.aggregates.rows == 20  # and not 40


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"format": "other"}', b'{"format": "ig2.run/1"}', b"[" * 100_000, b"\xff\xfe"]
)
def test_a_damaged_manifest_is_named(store: Store, content: bytes) -> None:
    (store.folder / "manifest.json").write_bytes(content)
    refuses(InputError, "manifest.json", lambda: ig2.open(store.folder))


def test_hostile_json_beside_the_manifest_is_refused(store: Store) -> None:
    (store.folder / "progress.json").write_text(json.dumps({"total": "\x1b[31m", "rows": []}), encoding="utf-8")
    refuses(InputError, "damaged", lambda: store.progress)


def test_a_folder_that_is_no_store_says_so(tmp_path: Path) -> None:
    refuses(InputError, "no store", lambda: ig2.open(tmp_path))
    refuses(InputError, "no store", lambda: ig2.open(tmp_path / "nowhere"))


def test_a_store_without_rows_can_be_opened(store: Store) -> None:
    store.files[0].unlink()
    empty_store = ig2.open(store.folder)
    assert len(empty_store) == 0 and list(empty_store) == [] and empty_store.failures == {}


# -- manifests with fields of another type -----------------------------------------------------------------------------

WRONG: list[Any] = [None, True, -1.5, "text", [1], ["text"], {"type": "Grid"}]


def list_fields(content: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The places of all fields of an object, and of the objects in it."""
    inner = [list_fields(value, (*above, key)) for key, value in content.items() if isinstance(value, dict)]
    return [*((*above, key) for key in content), *(place for places in inner for place in places)]


@pytest.fixture
def photo_store(photos: Path, subject: ig2.modalities.image.ImageSubject, tmp_path: Path) -> Store:
    values = ig2.Grid(2, 2)
    store = ig2.run(
        photos,
        subject,
        ig2.IG2(2),
        tmp_path / "seen",
        question=ig2.Question(count=2),
        saving=ig2.Saving(values=values, gradcf=True),
    )
    typed = {"model": None, "method": "ig2", "steps": 2, "rule": None, "references": None}
    made = {**store.manifest["fingerprint"], "method": {"type": "TypedMethod", "name": "ig2", "steps": 2, "rule": None}}
    files.write_json(store.folder / "manifest.json", {**store.manifest, "fingerprint": made, "command": typed})
    return ig2.open(store.folder)


def use_store(folder: Path, photos: Path, subject: ig2.modalities.image.ImageSubject) -> None:
    """Whatever reads a manifest."""
    store = ig2.open(folder)
    assert repr(store) and len(store) == 12
    print_store(store, details=True)
    collection = Collection([folder], photos)
    collection.describe()
    collection.make_report([store.ids[0]], "one")
    collection.catalogue.summarise(collection.find(Query()))
    WhatIf(collection, subject, ig2.IG2(2)).describe()
    options = ServeOptions(stores=(folder,))
    find_method(options, store.manifest)
    find_model(None, store.manifest.get("command") or {})
    refuses(InputError, "table", store.tabulate)


@pytest.mark.slow
def test_a_manifest_with_a_field_of_another_type_is_read_or_named(
    photo_store: Store, photos: Path, subject: ig2.modalities.image.ImageSubject
) -> None:
    folder, manifest = photo_store.folder, photo_store.manifest
    use_store(folder, photos, subject)
    named, broken = set(), list[str]()
    for place in list_fields(manifest):
        for wrong in WRONG:
            changed = copy.deepcopy(manifest)
            *above, last = place
            functools.reduce(dict.__getitem__, above, changed)[last] = wrong
            (folder / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
            try:
                use_store(folder, photos, subject)
            except ig2.IG2Error as error:  # of a store that was made with other things than the command has, too
                if re.search(rf"manifest\.json is damaged: .*\b{last} is .*, expected ", str(error)):
                    named.add(".".join(place))
            except Exception as error:
                broken.append(f"{'.'.join(place)} = {wrong!r}: {error!r}")
    assert not broken, "\n".join(broken)
    known = {".".join(place) for place in list_fields(manifest)}
    assert named == {name for name, *_ in (*files.MANIFEST_FIELDS, *MODALITIES["image"].fields)} & known


def test_the_view_of_signals_with_a_field_of_another_type_is_named(tmp_path: Path) -> None:
    heart = modalities.signal.subject(nn.Sequential(nn.Flatten(), nn.Linear(24, 2)), 12, channels=["left", "right"], rate=4)
    folder = ig2.run(data(3, 2, 12).float(), heart, ig2.Gradient(), tmp_path / "store").folder
    manifest = ig2.open(folder).manifest
    assert Collection([folder]).make_report(["0"], "one")
    for field in manifest["view"]:
        changed = {**manifest, "view": {**manifest["view"], field: {"type": "text"}}}
        (folder / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
        refuses(InputError, rf"view\.{field} is dict", lambda: ig2.open(folder))
