"""The map of all items and the clusters, beside slow replicas and closed forms."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest

import ig2
from ig2.errors import MissingExtraError
from ig2.explorer import Collection, export_site
from ig2.explorer.projection import (
    FILE,
    FOLDER,
    find_clusters,
    make_projection,
    open_projection,
    open_umap,
    read_umap,
    reduce_dimensions,
)
from networks import refuses
from stores import read_script, tiny, write_store


def grouped(folder, side=6, count=30):
    """Maps that are strong in one of two corners, with any scale and sign."""
    numbers = np.random.default_rng(0)
    values = numbers.normal(size=(count, side, side)) * 0.01
    for i in range(count):
        corner = np.s_[i, :2, :2] if i % 3 else np.s_[i, -2:, -2:]
        values[corner] += 1.0
    values *= np.exp(numbers.normal(size=(count, 1, 1)) * 2) * numbers.choice([-1, 1], size=(count, 1, 1))
    tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(values.astype(np.float32))
    return write_store(folder, {"id": [str(i) for i in range(count)], "values": tensors}, kind="image")


def test_components_are_those_of_the_singular_values():
    features = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32) * np.arange(1, 8, dtype=np.float32)
    scores, explained = reduce_dimensions(features, 3)
    centred = features.astype(float) - features.astype(float).mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(scores), np.abs(left * sizes)[:, :3], atol=1e-4)
    assert explained == pytest.approx((sizes[:2] ** 2).sum() / (sizes**2).sum(), rel=1e-6)


def test_one_column_has_one_direction():
    scores, explained = reduce_dimensions(np.arange(4, dtype=np.float32)[:, None], 16)
    np.testing.assert_allclose(scores, np.stack([np.arange(4) - 1.5, np.zeros(4)], axis=1))
    assert explained == 1.0


def test_clusters_that_lie_apart_are_found_and_numbered_by_size():
    numbers = np.random.default_rng(0)
    centres = np.array([[0.0, 0], [10, 0], [0, 10]])
    truth = np.repeat([2, 0, 1], [50, 30, 20])
    members, means = find_clusters(centres[truth] + numbers.normal(size=(100, 2)) * 0.1, 3, seed=1)
    np.testing.assert_array_equal(members, np.repeat([0, 1, 2], [50, 30, 20]))
    np.testing.assert_allclose(means, centres[[2, 0, 1]], atol=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_clusters_have_the_centres_and_numbers_of_their_members(seed):
    numbers = np.random.default_rng(seed)
    truth = np.repeat(range(5), [5, 25, 10, 20, 15])
    points = 20 * numbers.normal(size=(5, 3))[truth] + numbers.normal(size=(75, 3))
    members, centres = find_clusters(points, 5, seed=seed)
    sizes = np.bincount(members, minlength=5)
    assert (np.diff(sizes) <= 0).all()
    np.testing.assert_allclose(centres, [points[members == number].mean(axis=0) for number in range(5)])


def test_points_that_are_all_alike_make_no_trouble():
    members, _ = find_clusters(np.zeros((5, 2)), 3)
    assert set(members) == {0}


def test_explanations_are_grouped_by_where_they_are_strong_not_how(tmp_path):
    store = ig2.open(grouped(tmp_path / "s"))
    shown = make_projection(store)
    truth = np.arange(30) % 3 == 0
    groups = [set(shown.clusters[truth]), set(shown.clusters[~truth])]
    assert not groups[0] & groups[1]
    for members in groups:
        for number in members:
            mean = shown.means[number].reshape(shown.shape)
            corner = mean[-2:, -2:] if members is groups[0] else mean[:2, :2]
            assert corner.sum() > 0.8 and mean.sum() == pytest.approx(1, abs=1e-5)
    for number, typical in enumerate(shown.typical):
        assert all(shown.clusters[place] == number for place in typical if place >= 0)
    assert np.nanmin(shown.points) == 0 and np.nanmax(shown.points) == 1


def test_items_without_values_have_no_place(photos):
    shown = photos.project()
    failed = photos.locate("light/broken.png")
    assert np.isnan(shown.points[failed]).all() and shown.clusters[failed] == -1
    assert np.isfinite(np.delete(shown.points, failed, axis=0)).all()


def test_positions_are_those_in_the_store_beside_items_without_values(tmp_path):
    numbers = np.random.default_rng(0)
    values = [row / row.sum() for row in numbers.random((40, 5)) ** 8]
    values = [None if place % 3 == 0 else row.astype(np.float32) for place, row in enumerate(values)]
    columns = {"id": [str(i) for i in range(40)], "values": pyarrow.array(values)}
    shown = make_projection(ig2.open(write_store(tmp_path / "s", columns, kind="table", units=list("abcde"))))
    for number, (mean, typical) in enumerate(zip(shown.means, shown.typical, strict=True)):
        inside = [place for place, row in enumerate(values) if row is not None and shown.clusters[place] == number]
        np.testing.assert_allclose(mean, np.mean([values[place] for place in inside], axis=0), atol=1e-6)
        nearest = sorted(inside, key=lambda place, mean=mean: float(((values[place] - mean) ** 2).sum()))
        assert [place for place in typical if place >= 0] == nearest[: len(typical)]
    assert set(shown.clusters[::3]) == {-1} and np.isnan(shown.points[::3]).all()


def test_it_is_made_once_and_again_when_the_rows_are_others(tmp_path, monkeypatch):
    store = ig2.open(grouped(tmp_path / "s"))
    first = open_projection(store)
    monkeypatch.setattr("ig2.explorer.projection.make_projection", lambda *_: pytest.fail("made twice"))
    second = open_projection(ig2.open(tmp_path / "s"))
    for name in ("points", "clusters", "means", "typical"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert (first.names, first.shape, first.explained) == (
        second.names,
        second.shape,
        second.explained,
    )
    part = store.files[0]
    part.rename(part.with_name("part-00000000-00000001.parquet"))
    monkeypatch.setattr("ig2.explorer.projection.make_projection", lambda *_: None)
    assert open_projection(ig2.open(tmp_path / "s")) is None


@pytest.mark.parametrize("content", [b"", b"no file of ours", b"PK\x03\x04 broken"])
def test_a_file_that_is_not_ours_is_made_anew(tmp_path, content):
    store = ig2.open(grouped(tmp_path / "s"))
    (store.folder / FOLDER).mkdir()
    (store.folder / FOLDER / FILE).write_bytes(content)
    assert len(open_projection(store).points) == 30
    assert (store.folder / FOLDER / FILE).stat().st_size > 100


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_a_pickle_in_the_file_is_not_opened(tmp_path):
    store = ig2.open(grouped(tmp_path / "s"))
    (store.folder / FOLDER).mkdir()
    np.savez(store.folder / FOLDER / FILE, about=np.array([Trap(tmp_path / "sprung")], dtype=object))
    assert len(open_projection(store).points) == 30
    assert not (tmp_path / "sprung").exists()


def test_texts_are_described_by_their_words(folder):
    shown = make_projection(ig2.open(folder / "texts"))
    assert {"film", "good"} <= set(shown.names)
    np.testing.assert_allclose(shown.means.sum(axis=1)[np.isin(range(len(shown.means)), shown.clusters)], 1, rtol=1e-5)


def test_two_items_have_no_map(tmp_path):
    assert open_projection(ig2.open(tiny(tmp_path / "s", ["x", "y"], [1.0, 2.0]))) is None


class Halves:
    """In the place of UMAP, which compiles for half a minute: the first two components, halved."""

    def __init__(self, **settings):
        self.settings = settings

    def fit_transform(self, scores):
        assert self.settings["n_neighbors"] == min(15, len(scores) - 1)
        return scores[:, :2] / 2


def grouped_rows(folder, size=30):
    groups = np.repeat(np.arange(3), size)
    values = np.eye(3)[groups] + 0.05 * np.random.default_rng(0).random((len(groups), 3))
    columns = {"id": [str(i) for i in range(len(groups) + 1)], "values": [row.astype(np.float32) for row in values] + [None]}
    return ig2.open(write_store(folder, columns, kind="table", units=["a", "b", "c"])), groups


def test_umap_is_made_once_and_scaled(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Halves, __spec__="of a package"))
    store, _ = grouped_rows(tmp_path / "store")
    points = open_umap(store)
    assert np.isnan(points[90]).all()
    np.testing.assert_allclose(points, make_projection(store).points, atol=1e-6)  # the scale goes away
    monkeypatch.setitem(sys.modules, "umap", None)  # from here on it is not installed
    monkeypatch.setattr("ig2.explorer.projection.find_spec", lambda name: None)
    np.testing.assert_array_equal(open_umap(store), points)
    assert Collection([store.folder]).describe()["layouts"] == ["pca", "umap"]
    (store.folder / "explorer" / "umap.npz").write_bytes(b"no file of ours")
    assert read_umap(store) is None
    assert Collection([store.folder]).describe()["layouts"] == ["pca"]
    refuses(MissingExtraError, "ig2.umap", lambda: open_umap(store))


def test_a_map_by_umap_is_exported_if_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Halves, __spec__="of a package"))
    store, _ = grouped_rows(tmp_path / "store", 4)
    for layouts in (["pca"], ["pca", "umap"]):
        export_site(Collection([store.folder]), tmp_path / "site")
        assert read_script(tmp_path / "site/data/stores.js")["layouts"] == layouts
        assert (tmp_path / "site/data/map-umap.js").exists() == ("umap" in layouts)
        open_umap(store)


def test_umap_of_two_items_is_none(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Halves, __spec__="of a package"))
    assert open_umap(ig2.open(tiny(tmp_path / "store", ["a", "b"], [1.0, 2.0]))) is None


@pytest.mark.slow
@pytest.mark.skipif("IG2_TEST_UMAP" not in os.environ, reason="UMAP compiles for half a minute: IG2_TEST_UMAP=1 runs it")
@pytest.mark.parametrize("size", [2, 30])
def test_umap_keeps_neighbours_together(tmp_path, size):
    pytest.importorskip("umap")
    store, groups = grouped_rows(tmp_path / "store", size)
    points = open_umap(store)[:-1]
    assert (points.min(), points.max()) == (0, 1)
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1:6]
    assert size == 2 or (groups[nearest] == groups[:, None]).mean() > 0.95
