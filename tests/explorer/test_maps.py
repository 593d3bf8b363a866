"""Values as maps, the rows they are read from, and the difference of two."""

from __future__ import annotations

from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow
import pytest

import ig2
from ig2.errors import InputError
from ig2.explorer import Collection
from ig2.explorer.maps import Map, Reader, match, read_map, subtract
from ig2.runs.files import open_part
from ig2.views import Bars, Picture, Words, pool
from networks import refuses
from stores import tiny, write_store


def test_an_image_is_summed_over_channels(photos):
    row = ig2.open(photos.folders[0])["dark/00.png"]
    shown = read_map(row, photos.stores[0].manifest)
    assert isinstance(shown.view, Picture)
    np.testing.assert_allclose(shown.scores, row["values"].astype(float).sum(axis=0), atol=1e-12)


def test_a_superpixel_is_spread_over_its_pixels():
    regions = np.array([[0, 0, 1], [2, 2, 2]])
    shown = read_map({"values": np.array([1.0, 5.0, 6.0]), "regions": regions}, {"kind": "image"})
    np.testing.assert_array_equal(shown.scores, [[0.5, 0.5, 5], [2, 2, 2]])


def test_words_without_names_are_numbered():
    shown = read_map({"values": np.ones((2, 3)), "units": ["one"]}, {"kind": "text"})
    assert isinstance(shown.view, Words)
    assert (shown.view.words, shown.scores.tolist()) == (("1", "2"), [3.0, 3.0])


def test_numbers_that_are_not_finite_are_shown_as_zero():
    assert read_map({"values": np.array([np.nan, np.inf, 1.0])}, {"kind": "table"}).scores.tolist() == [0, 0, 1]


@pytest.mark.parametrize("shape", [(7, 9), (14, 14), (28, 30), (5, 40)])
def test_pooling_keeps_the_sum_and_every_pixel_in_one_field(shape):
    scores = np.random.default_rng(0).normal(size=shape)
    pooled = pool(scores, 5, 7)
    assert pooled.shape == (min(5, shape[0]), min(7, shape[1]))
    rows, columns = pooled.shape
    slow = np.zeros_like(pooled)
    edges = [np.arange(count) * size // count for count, size in zip(pooled.shape, shape, strict=True)]
    for y in range(shape[0]):
        for x in range(shape[1]):
            slow[max(r for r in range(rows) if edges[0][r] <= y), max(c for c in range(columns) if edges[1][c] <= x)] += scores[
                y, x
            ]
    np.testing.assert_allclose(pooled, slow, atol=1e-12)


def test_maps_of_two_sizes_are_compared_on_the_smaller():
    large, small = Map(Picture(), np.arange(16.0).reshape(4, 4)), Map(Picture(), np.eye(2))
    first, second = match([large, small])
    np.testing.assert_array_equal(first.scores, [[10, 18], [42, 50]])
    np.testing.assert_allclose(subtract(first, second), np.array([[10, 18], [42, 50]]) / 120 - np.eye(2) / 2)
    assert match([Map(Words(("a",)), np.ones(1)), Map(Words(("b",)), np.ones(1))]) is None
    assert match([large, Map(Bars(("a",)), np.ones(1))]) is None


def test_two_stores_have_a_difference_of_what_both_explain_and_three_have_none(tmp_path):
    made = [("a", ["x", "y", "z"]), ("b", ["z", "w", "x"]), ("c", ["x", "y", "z"])]
    folders = [tiny(tmp_path / name, ids, [2.0, -1.0, 3.0]) for name, ids in made]
    for count, differ in ((1, ""), (2, "xz"), (3, "")):
        rows = Collection(folders[:count]).describe_rows(np.arange(3))
        assert [row["id"] for row in rows] == ["x", "y", "z"]
        assert [row["difference"] is not None for row in rows] == [row["id"] in differ for row in rows]
        for place in range(1, min(count, 2)):
            assert [row["maps"][place] is not None for row in rows] == [True, False, True]


def test_a_map_less_itself_on_another_scale_is_nothing():
    scores = np.random.default_rng(0).normal(size=5)
    units = tuple("abcde")
    np.testing.assert_allclose(subtract(Map(Bars(units), scores), Map(Bars(units), 7 * scores)), 0, atol=1e-15)


def test_rows_are_read_by_position_whatever_is_kept(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(40, 300)).astype(np.float32)
    folder = write_store(
        tmp_path / "s", {"id": [str(i) for i in range(40)], "values": pyarrow.array(list(numbers))}, kind="table"
    )
    for most in (1, 10**9):
        reader = Reader(ig2.open(folder), most)
        for position in (39, 0, 17, 0):
            np.testing.assert_array_equal(reader[position]["values"], numbers[position])
        assert len(reader._tables) == 1 if most == 1 else reader._bytes > 0
    refuses(InputError, "no row", lambda: reader[40])


def test_rows_are_read_together_and_each_group_once(tmp_path, monkeypatch):
    monkeypatch.setattr("ig2.runs.files.GROUP_BYTES", 12_000)
    numbers = np.random.default_rng(0).normal(size=(40, 300)).astype(np.float32)
    values = [None if i == 7 else row for i, row in enumerate(numbers)]
    folder = write_store(tmp_path / "s", {"id": [str(i) for i in range(40)], "values": pyarrow.array(values)}, kind="table")
    reader = Reader(ig2.open(folder))
    assert len(reader.groups) > 3
    opened = []
    monkeypatch.setattr("ig2.explorer.maps.open_part", lambda path: (opened.append(path), open_part(path))[1])
    positions = [39, 0, 17, 7, 0, 25]
    with ThreadPoolExecutor(8) as threads:  # as a list that is scrolled asks
        several = list(threads.map(lambda _: reader.read(positions), range(8)))
    for rows in several:
        assert [row["id"] for row in rows] == [str(position) for position in positions]
        for position, row in zip(positions, rows, strict=True):
            np.testing.assert_array_equal(row["values"], values[position])
    assert len(opened) == len({bisect_right(reader.starts, position) for position in positions})
    assert reader.read([]) == []
    small = Reader(ig2.open(folder), 1)
    small.read(positions)
    assert len(small._tables) == 1


def test_a_part_that_is_gone_is_an_error_that_names_it(tmp_path):
    reader = Reader(ig2.open(tiny(tmp_path / "s", ["x"], [1.0])))
    next((tmp_path / "s" / "parts").iterdir()).unlink()
    refuses(InputError, "part-0000", lambda: reader[0])
