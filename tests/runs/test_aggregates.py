"""Aggregates of a store against the same from all rows at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

import ig2
from ig2.runs import Store
from ig2.runs.aggregates import EXTREMES, pool_values
from networks import data

TEXTS = ("id", "error")


def rows(count: int = 200) -> list[dict[str, Any]]:
    numbers = np.random.default_rng(3)
    return [
        {
            "id": f"item {i}", "error": None, "target": i % 3, "output": numbers.normal(), "trust": numbers.uniform(),
            "relative_residual": numbers.uniform(), "insertion": numbers.normal(), "insertion_curve": numbers.normal(size=4),
            "values": numbers.normal(size=(2, 6, 5)).astype(np.float32),
        }
        for i in range(count)
    ]  # fmt: skip


def store_of(content: list[dict[str, Any]], folder: Path, parts: int = 2) -> Store:
    """A store of these rows, in several parts."""
    names = dict.fromkeys(name for row in content for name in row)
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in content] for name in names}
    if "values" in columns:
        columns["values_shape"] = [None if cell is None else list(cell.shape) for cell in columns["values"]]
        columns["values"] = [None if cell is None else cell.ravel() for cell in columns["values"]]
    texts = {name: pyarrow.string() for name in TEXTS if name in columns}
    table = pyarrow.table({name: pyarrow.array(cells, texts.get(name)) for name, cells in columns.items()})
    files = [folder / f"{number}.parquet" for number in range(parts)]
    for file, at in zip(files, np.array_split(np.arange(len(table)), parts), strict=True):
        pyarrow.parquet.write_table(table.take(at), file)
    return Store(folder, {}, tuple(files))


def test_means_quantiles_extremes_and_curves_are_those_of_all_rows(tmp_path: Path) -> None:
    content = rows()
    content[7] = {"id": "item 7", "error": "broken"}
    aggregates = store_of(content, tmp_path).aggregates
    sound = [row for row in content if row["error"] is None]
    assert aggregates.rows == 199
    for target in (None, 2):
        chosen = [row for row in sound if target in (None, row["target"])]
        for name in ("output", "trust", "insertion"):
            numbers = [row[name] for row in chosen]
            assert aggregates.mean(name, target) == pytest.approx(np.mean(numbers), rel=1e-12)
            for share in (0.0, 0.3, 1.0):
                assert aggregates.quantile(name, share, target) == pytest.approx(np.quantile(numbers, share), rel=1e-12)
        curve = np.mean([row["insertion_curve"] for row in chosen], axis=0)
        np.testing.assert_allclose(aggregates.curve("insertion", target), curve, rtol=1e-12)
        means = np.mean([row["values"].astype(float).sum(axis=0).ravel() for row in chosen], axis=0)
        np.testing.assert_allclose(aggregates.feature_means(target), means, rtol=1e-12, atol=1e-15)
    least = sorted((row["trust"], row["id"]) for row in sound)[:EXTREMES]
    assert aggregates.extremes["least_trusted"] == least
    most = sorted(((row["trust"], row["id"]) for row in sound), key=lambda pair: -pair[0])[:EXTREMES]
    assert aggregates.extremes["most_trusted"] == most


def test_what_a_store_lacks_is_nothing(tmp_path: Path) -> None:
    aggregates = store_of([{"id": "1", "error": None, "target": 0, "output": np.inf}], tmp_path, 1).aggregates
    assert np.isnan([aggregates.mean("trust"), aggregates.quantile("output", 0.5), aggregates.mean("output", 7)]).all()
    assert aggregates.extremes == aggregates.words == {}
    assert not len(aggregates.curve("insertion")) and not len(aggregates.feature_means())


def test_a_part_of_a_store_has_aggregates_of_its_own(tmp_path: Path) -> None:
    content = rows(60)
    chosen = [row["output"] for row in content if row["trust"] < 0.5]
    aggregates = store_of(content, tmp_path).where("trust < 0.5").aggregates
    assert (aggregates.rows, aggregates.mean("output")) == (len(chosen), pytest.approx(np.mean(chosen)))


@pytest.mark.parametrize("seed", range(3))
def test_extremes_do_not_depend_on_the_order_of_the_rows(seed: int, tmp_path: Path) -> None:
    """Of equal numbers those with the first ids are kept, and listed by them."""
    numbers = np.random.default_rng(seed)
    trust, residual = ({f"item {i:02d}": float(numbers.integers(0, 3)) for i in range(4 * EXTREMES)} for _ in range(2))
    content = [
        {"id": str(key), "error": None, "target": 0, "trust": trust[key], "relative_residual": residual[key]}
        for key in numbers.permutation([*trust])
    ]
    extremes = store_of(content, tmp_path).aggregates.extremes
    lists = (("least_trusted", trust, 1), ("most_trusted", trust, -1), ("largest_residuals", residual, -1))
    assert extremes.keys() == {name for name, *_ in lists}
    for name, values, sign in lists:
        ordered = sorted(values.items(), key=lambda item, sign=sign: (sign * item[1], item[0]))
        assert extremes[name] == [(value, key) for key, value in ordered[:EXTREMES]]


def test_rows_without_a_number_are_in_no_list_of_extremes(tmp_path: Path) -> None:
    content = [{"id": "a", "error": None, "target": 0, "trust": 0.5}]
    assert store_of(content, tmp_path).aggregates.extremes.keys() == {"least_trusted", "most_trusted"}


def test_words_are_counted_whatever_their_case(tmp_path: Path) -> None:
    content = [
        {"id": str(number), "error": None, "target": 0, "units": words, "values": np.array(values)}
        for number, (words, values) in enumerate(
            ((["The", "cat"], [1.0, 2.0]), (["the", "dog"], [3.0, -1.0]), (["the"], [7.0, 8.0]))  # the last is of tokens
        )
    ]
    assert store_of(content, tmp_path).aggregates.words == {"the": 2.0, "cat": 2.0, "dog": -1.0}


def test_images_are_pooled_by_the_grid() -> None:
    values = data(3, 30, 45, seed=2).double()
    label = ig2.Grid(14, 14).labels(values[None])[0, 0]
    expected = torch.zeros(196, dtype=torch.float64).index_add(0, label.reshape(-1), values.sum(0).reshape(-1))
    np.testing.assert_allclose(pool_values(values.numpy()[None])[0], expected.numpy(), rtol=1e-12, atol=1e-12)
