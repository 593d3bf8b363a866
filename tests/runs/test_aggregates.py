"""Running aggregates against the same from all rows at once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import ig2
from ig2.errors import InputError
from ig2.runs import Aggregates, Sketch
from ig2.runs.aggregates import EXTREMES, pool_values
from networks import data, refuses


@pytest.mark.parametrize("draw", ["normal", "lognormal", "ties"])
def test_a_quantile_is_within_one_percent_of_itself(draw: str) -> None:
    numbers = np.random.default_rng(0)
    values = {
        "normal": numbers.normal(size=4001),
        "lognormal": -numbers.lognormal(sigma=4, size=4001),
        "ties": numbers.integers(-2, 3, 4001).astype(float),
    }[draw]
    sketch = Sketch()
    sketch.add(values)
    assert len(sketch) == 4001
    for share in (0.0, 0.1, 0.5, 0.9, 0.999, 1.0):
        exact = np.quantile(values, share, method="lower")
        assert sketch.quantile(share) == pytest.approx(exact, rel=0.0101, abs=1e-12)


def test_a_sketch_is_the_same_in_any_order_and_small() -> None:
    values = np.random.default_rng(0).normal(size=20_000)
    one, other = Sketch(), Sketch()
    one.add(values)
    other.add(values[::-1])
    assert one == other
    assert len(one.buckets) < 1500
    assert np.isnan(Sketch().quantile(0.5))


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


def test_means_extremes_and_curves_are_those_of_all_rows() -> None:
    content, aggregates = rows(), Aggregates()
    content[7] = {"id": "item 7", "error": "broken"}
    aggregates.absorb(content, ["insertion"])
    sound = [row for row in content if row["error"] is None]
    assert aggregates.rows == 199
    for target in (None, 2):
        chosen = [row for row in sound if target in (None, row["target"])]
        for name in ("output", "trust", "insertion"):
            assert aggregates.mean(name, target) == pytest.approx(np.mean([row[name] for row in chosen]), rel=1e-12)
        curve = np.mean([row["insertion_curve"] for row in chosen], axis=0)
        np.testing.assert_allclose(aggregates.curve("insertion", target), curve, rtol=1e-12)
        means = np.mean([row["values"].astype(float).sum(axis=0).ravel() for row in chosen], axis=0)
        np.testing.assert_allclose(aggregates.feature_means(target), means, rtol=1e-12, atol=1e-15)
    least = sorted((row["trust"], row["id"]) for row in sound)[:EXTREMES]
    assert aggregates.extremes["least_trusted"] == least
    most = sorted(((row["trust"], row["id"]) for row in sound), key=lambda pair: -pair[0])[:EXTREMES]
    assert aggregates.extremes["most_trusted"] == most


def test_quantiles_and_means_are_of_the_class_that_is_asked_for() -> None:
    content, aggregates = rows(60), Aggregates()
    for row in content:
        row["output"] += 10 * row["target"]
    aggregates.absorb(content)
    for target in (None, 0, 1, 2):
        outputs = [row["output"] for row in content if target in (None, row["target"])]
        assert aggregates.mean("output", target) == pytest.approx(np.mean(outputs))
        for share in (0.0, 0.3, 1.0):
            exact = np.quantile(outputs, share, method="lower")
            assert aggregates.quantile("output", share, target) == pytest.approx(exact, rel=0.0101)
    assert np.isnan(aggregates.quantile("output", 0.5, 7))


@pytest.mark.parametrize("seed", range(3))
def test_extremes_do_not_depend_on_the_order_of_the_rows(seed: int) -> None:
    """Of equal numbers those with the first ids are kept, and listed by them."""
    numbers = np.random.default_rng(seed)
    trust = {f"item {i:02d}": float(numbers.integers(0, 3)) for i in range(4 * EXTREMES)}
    aggregates = Aggregates()
    for identity in numbers.permutation([*trust]):
        aggregates.absorb([{"id": str(identity), "target": 0, "trust": trust[identity]}])
    for name, sign in (("least_trusted", 1), ("most_trusted", -1)):
        ordered = sorted(trust.items(), key=lambda item, sign=sign: (sign * item[1], item[0]))
        assert aggregates.extremes[name] == [(value, key) for key, value in ordered[:EXTREMES]]
    assert "largest_residuals" not in aggregates.extremes


def test_saved_in_the_middle_they_end_the_same_to_the_last_bit() -> None:
    content = rows()
    whole = Aggregates()
    whole.absorb(content, ["insertion"])
    first = Aggregates()
    first.absorb(content[:77], ["insertion"])
    second = Aggregates.from_json(json.loads(json.dumps(first.to_json())))
    second.absorb(content[77:], ["insertion"])
    assert json.dumps(second.to_json()) == json.dumps(whole.to_json())


def test_words_are_counted_whatever_their_case() -> None:
    aggregates = Aggregates()
    for words, values in ((["The", "cat"], [1.0, 2.0]), (["the", "dog"], [3.0, -1.0])):
        row = {"id": "x", "target": 0, "units": words, "values": np.array(values)}
        aggregates.absorb([row])
    assert {word: mean.value for word, mean in aggregates.words.items()} == {"the": 2.0, "cat": 2.0, "dog": -1.0}


def test_images_are_pooled_by_the_grid() -> None:
    values = data(3, 30, 45, seed=2).double()
    label = ig2.Grid(14, 14).labels(values[None])[0, 0]
    expected = torch.zeros(196, dtype=torch.float64).index_add(0, label.reshape(-1), values.sum(0).reshape(-1))
    np.testing.assert_allclose(pool_values(values.numpy()[None])[0], expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 64, 64), (13, 30, 45), (20, 1, 1), (4,), (2, 3, 17, 15)])
def test_rows_are_absorbed_alike_alone_and_together(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0)
    content = rows(50)
    for i, row in enumerate(content):
        row["values"] = (numbers.normal(size=shape) * 10.0 ** numbers.integers(-6, 6)).astype(np.float32)
        row["trust"] = row["trust"] if i % 5 else None
        row["relative_residual"] = np.inf if i % 7 == 0 else row["relative_residual"]
    together, alone = Aggregates(), Aggregates()
    together.absorb(content, ["insertion"])
    monkeypatch.setattr("ig2.runs.aggregates.ROWS_AT_ONCE", 1)
    alone.absorb(content, ["insertion"])
    assert json.dumps(alone.to_json()) == json.dumps(together.to_json())


@pytest.mark.parametrize("content", [{}, {"rows": "x"}, {"rows": 1, "classes": []}, {"rows": 1, "classes": {"a": {}}}])
def test_damaged_aggregates_are_refused(content: dict[str, Any]) -> None:
    refuses(InputError, "damaged", lambda: Aggregates.from_json(content))
