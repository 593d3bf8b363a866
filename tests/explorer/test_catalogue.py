"""Which items a query asks for, and the numbers over them, beside loops over the rows."""

from __future__ import annotations

import base64
import math
import shutil

import numpy as np
import pytest

import ig2
from ig2.errors import InputError
from ig2.explorer import Collection, Query
from ig2.explorer.catalogue import OTHER, Catalogue
from networks import refuses
from stores import tiny, write_store


def ids(collection, **query):
    return [collection.catalogue.ids[position] for position in collection.find(Query(**query))]


def rows(collection):
    return list(ig2.open(collection.folders[0]).iterate(collection.stores[0].scalars))


def test_a_query_chooses_as_a_loop_does(photos):
    every = rows(photos)
    assert len(photos.catalogue) == len(every) == 61
    middle = float(np.median([row["output"] for row in every if row["error"] is None]))
    wanted = [row["id"] for row in every if row["output"] is not None and row["output"] > middle and row["label"] == 1]
    assert wanted and ids(photos, where=f"output > {middle} and label == 1") == wanted
    least, most = sorted(row["output"] for row in every if row["output"] is not None)[20:22]  # each end belongs to it
    inside = [row["id"] for row in every if row["output"] is not None and least <= row["output"] <= most]
    assert len(inside) == 2 and ids(photos, ranges=(("output", least, most),)) == inside
    assert len(ids(photos, ranges=(("output", -math.inf, math.inf),))) == 60
    assert ids(photos, text="DARK/0") == [row["id"] for row in every if row["id"].startswith("dark/0")]
    assert ids(photos, cell=("light", "light"), text="1") == [
        row["id"] for row in every if row["label"] == row["prediction"] == 1 and "1" in row["id"]
    ]


def test_sorting_leaves_what_is_empty_at_the_end(photos):
    numbers = {row["id"]: row["output"] for row in rows(photos)}
    for sort, times in (("output", 1), ("-output", -1)):
        ordered = [numbers[identity] for identity in ids(photos, sort=sort)]
        assert ordered[-1] is None
        assert ordered[:-1] == sorted(ordered[:-1], key=lambda value: times * value)


def test_nothing_but_columns_is_understood(photos):
    for query, word in (
        (Query(where="__import__('os')"), "not allowed"),
        (Query(where="trust <"), "cannot be read"),
        (Query(where="output < 'a'"), "cannot be used"),
        (Query(where="outputt < 1"), "output"),
        (Query(sort="outputt"), "output"),
        (Query(ranges=(("id", 0, 1),)), "numbers"),
        (Query(text="x" * 201), "201"),
    ):
        refuses(InputError, word, lambda query=query: photos.find(query))


def test_the_overview_counts_as_a_loop_does(photos):
    every = rows(photos)
    positions = photos.find(Query(text="light"))
    overview = photos.catalogue.summarise(positions)
    chosen = [row for row in every if "light" in row["id"]]
    known = [row for row in chosen if row["prediction"] is not None]
    assert (overview["total"], overview["selected"], overview["failed"]) == (61, len(chosen), 1)
    assert (overview["labelled"], overview["right"]) == (len(known), sum(row["label"] == row["prediction"] for row in known))
    assert overview["confusion"]["classes"] == sorted({row["prediction_name"] for row in known} | {"light"})
    assert sum(map(sum, overview["confusion"]["counts"])) == len(known)
    (output,) = (item for item in overview["distributions"] if item["name"] == "output")
    assert (sum(output["all"]), sum(output["selected"])) == (60, len(known))
    assert output["least"] == min(row["output"] for row in every if row["output"] is not None)


def test_many_classes_are_counted_together(photos, monkeypatch):
    monkeypatch.setattr("ig2.explorer.catalogue.MOST_CLASSES", 1)
    confusion = photos.catalogue.summarise(photos.find(Query()))["confusion"]
    assert len(confusion["classes"]) == 2 and confusion["others"]
    assert sum(map(sum, confusion["counts"])) == 60


def test_as_many_classes_have_a_colour_as_there_are(photos, monkeypatch):
    photos.project()
    assert photos.encode_points()["classes"] == ["", "dark", "light"]
    names = np.array(["b"] * 20 + ["a"] * 20 + [f"rare {i}" for i in range(21)], dtype=object)
    monkeypatch.setattr(photos.catalogue, "predictions", names)
    monkeypatch.setattr("ig2.explorer.collection.MOST_COLOURS", 3)
    points = photos.encode_points()
    assert points["classes"] == ["a", "b", OTHER]
    codes = np.frombuffer(base64.b64decode(points["class"]), "<u2")
    assert codes.tolist() == [1] * 20 + [0] * 20 + [2] * 21


def test_columns_of_the_second_store_are_beside_those_of_the_first(both):
    first, second = (
        ig2.open(folder).where("error is None").to_pandas(["id", "prediction", "target"]) for folder in both.folders
    )
    assert list(first.id) == list(second.id)
    assert ids(both, where="prediction == prediction_2") == list(first.id)
    assert ids(both, where="prediction_2 is None") == ["light/broken.png"]


def test_a_store_that_lacks_items_is_joined_by_id(tmp_path):
    first, second = tiny(tmp_path / "a", ["x", "y", "z"], [1.0, 2.0, 3.0]), tiny(tmp_path / "b", ["z", "x"], [30.0, 10.0])
    collection = Collection([first, second])
    assert ids(collection, where="output_2 == 10 * output") == ["x", "z"]
    second, third = (row["maps"] for row in collection.describe_rows(np.array([1, 2])))
    assert second[0]["scores"] == [2.0, 0.0] and second[1] is None
    assert third[1]["scores"] == [30.0, 0.0]


def test_a_store_that_grows_is_read_again(tmp_path):
    first, more = tiny(tmp_path / "a", ["x"], [1.0]), tiny(tmp_path / "b", ["y"], [2.0])
    collection = Collection([first])
    assert not collection.refresh()
    shutil.copy(next((more / "parts").iterdir()), first / "parts" / "part-00000001-00000001.parquet")
    assert collection.refresh()
    assert collection.catalogue.ids == ["x", "y"]


@pytest.mark.parametrize("count", [0, 5])
def test_a_collection_has_one_to_four_stores(folder, count):
    refuses(InputError, "stores", lambda: Collection([folder / "photos-ig"] * count))


def test_each_store_has_doubts_of_its_own(tmp_path):
    numbers = {"first": ([0.9, 0.1, 0.9], [0.9, 0.9, 0.9]), "second": ([0.9, 0.9, 0.1], [0.1, 0.9, 0.2])}
    stores = []
    for name, (trust, arrival) in numbers.items():
        columns = {"id": ["a", "b", "c"], "output": [2.0] * 3, "baseline_output": [1.0] * 3, "residual": [0.0] * 3}
        walked = {"strength": [1.0] * 3, "trust": trust, "arrival": arrival, "steps_taken": [5.0] * 3}
        stores.append(ig2.open(write_store(tmp_path / name, columns | walked, kind="table", units=["x"])))
    table = Catalogue(stores).table
    assert table["findings"].to_pylist() == [None, "signless", None]
    assert table["findings_2"].to_pylist() == ["short", None, "signless, short"]
