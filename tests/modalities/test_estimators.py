"""Estimators of scikit-learn: explained without gradients, opened without pickles."""

from __future__ import annotations

import pickle
from itertools import combinations
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import ig2
from ig2 import modalities
from ig2.errors import InputError
from ig2.metrics import Deletion, Insertion
from ig2.modalities.loading import load_network
from networks import refuses

ROWS = pd.DataFrame(
    {
        "age": [25.0, 40, 61, 33, 52, 47, 29, 70] * 4,
        "ward": [1, 2, 3, 1, 2, 3, 1, 2] * 4,  # a code: its order means nothing
        "town": ["Bath", "York", "Bath", "Ely", "York", "Ely", "Bath", "York"] * 4,
    }
)
ANSWERS = np.where((ROWS["age"] > 45) ^ (ROWS["town"] == "York"), "buys", "stays")


def pipeline(last: Any) -> Any:
    encode = make_column_transformer((OneHotEncoder(), ["ward", "town"]), (StandardScaler(), ["age"]))
    return make_pipeline(encode, last).fit(ROWS, ANSWERS)


@pytest.fixture(scope="module")
def forest() -> Any:
    return pipeline(RandomForestClassifier(15, random_state=0))


def subject_of(estimator: Any) -> modalities.table.estimators.EstimatorSubject:
    return modalities.table.estimators.subject(estimator, ROWS, categories="ward")


def test_a_pipeline_sees_the_rows_it_was_fitted_on(forest):
    subject = subject_of(forest)
    assert subject.classes == ("buys", "stays") and subject.name == "RandomForestClassifier"
    np.testing.assert_allclose(subject.predict(subject.read(ROWS)), forest.predict_proba(ROWS))
    np.testing.assert_allclose(subject.probabilities(subject.predict(subject.read(ROWS))), forest.predict_proba(ROWS))
    assert subject.cells(subject.read(ROWS).x[0]) == ("25", "1", "Bath")


def test_values_are_exact_shapley_values_of_whole_columns(forest):
    """By the definition, with a loop over coalitions of columns, in which a category is one row's or the other's."""
    subject, row = subject_of(forest), ROWS.iloc[[2]]
    found = subject.explain(row, target="buys", against=None, references=subject.read(ROWS.iloc[:4]).x)

    def worth(coalition: tuple[int, ...]) -> float:
        mixed = ROWS.iloc[:4].copy()
        for number in coalition:
            mixed.iloc[:, number] = row.iloc[0, number]
        return float(forest.predict_proba(mixed)[:, 0].mean())

    expected = []
    for column in range(3):
        others = [number for number in range(3) if number != column]
        terms = [
            factorial(size) * factorial(2 - size) / 6 * (worth((*coalition, column)) - worth(coalition))
            for size in range(3)
            for coalition in combinations(others, size)
        ]
        expected.append(sum(terms))
    np.testing.assert_allclose(found.sum_units()[0], expected, atol=1e-9)
    assert found.names.units[0] == ("age", "ward", "town") and found.names.cells[0] == ("61", "3", "Bath")


def test_references_are_rows_of_the_other_class(forest):
    subject = subject_of(forest)
    found = subject.explain(ROWS.iloc[:3], count=4)
    for classes, prediction in zip(found.names.reference_classes, found.names.predictions, strict=True):
        assert prediction not in classes


def test_metrics_take_it_and_show_probabilities_as_they_are(forest):
    subject = subject_of(forest)
    found = subject.explain(ROWS.iloc[:3], ig2.Occlusion(), count=4, against=None)
    background = subject.read(ROWS.iloc[3:5]).x
    for metric in (Insertion(background, thresholds=3), Deletion(background, thresholds=3)):
        curves = metric(subject.model, found).curves
        full = curves[:, -1] if isinstance(metric, Insertion) else curves[:, 0]
        np.testing.assert_allclose(full, forest.predict_proba(ROWS.iloc[:3]).max(axis=1))


def test_a_regressor_explains_its_number():
    regressor = HistGradientBoostingRegressor(max_iter=5).fit(ROWS[["age"]], ROWS["age"] * 2)
    subject = modalities.table.estimators.subject(regressor, ROWS)
    assert subject.outputs == "numbers" and [column.name for column in subject.columns] == ["age"]
    found = subject.explain(ROWS.iloc[:2], references=subject.read(ROWS.iloc[4:6]).x)
    np.testing.assert_allclose(found.output, regressor.predict(ROWS[["age"]].iloc[:2]))
    np.testing.assert_allclose(found.residual, 0, atol=1e-9)


def test_arrays_have_columns_without_categories():
    numbers = ROWS[["age"]].to_numpy()
    model = LogisticRegression().fit(numbers, ANSWERS)
    subject = modalities.table.estimators.subject(model, ROWS[["age"]])
    np.testing.assert_allclose(subject.predict(subject.read(ROWS[["age"]])), model.predict_proba(numbers))
    refuses(InputError, "data frame", lambda: modalities.table.estimators.subject(model, ROWS[["age", "town"]]))


def test_codes_of_a_csv_file_are_numbers_again(forest, tmp_path: Path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    subject = modalities.table.estimators.subject(forest, tmp_path / "rows.csv", categories=["ward"])
    np.testing.assert_allclose(subject.predict(subject.read(tmp_path / "rows.csv")), forest.predict_proba(ROWS))


def test_what_needs_gradients_says_so(forest):
    subject = subject_of(forest)
    for method in (ig2.IG2(), ig2.IntegratedGradients(), ig2.Gradient()):
        refuses(InputError, "KernelSHAP", lambda method=method: subject.explain(ROWS.iloc[:1], method))
    refuses(InputError, "estimator", lambda: modalities.table.estimators.subject(lambda x: x, ROWS))
    refuses(InputError, "ward", lambda: modalities.table.estimators.subject(forest, ROWS.drop(columns="ward")))


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_of_skops_are_opened_and_doubtful_ones_with_trust_alone(forest, tmp_path: Path):
    linear = pipeline(LogisticRegression())
    skops.io.dump(linear, tmp_path / "linear.skops")
    skops.io.dump(forest, tmp_path / "forest.skops")
    np.testing.assert_allclose(load_network(str(tmp_path / "linear.skops")).predict_proba(ROWS), linear.predict_proba(ROWS))
    refuses(InputError, "--trust", lambda: load_network(str(tmp_path / "forest.skops")))
    opened = load_network(str(tmp_path / "forest.skops"), trust=True)
    np.testing.assert_allclose(opened.predict_proba(ROWS), forest.predict_proba(ROWS))


def test_pickles_are_not_opened(forest, tmp_path: Path):
    (tmp_path / "forest.joblib").write_bytes(pickle.dumps(forest))
    for trust in (False, True):
        refuses(InputError, "skops", lambda trust=trust: load_network(str(tmp_path / "forest.joblib"), trust=trust))
    (tmp_path / "broken.skops").write_bytes(b"PK\x05\x06" + bytes(18))
    refuses(InputError, "no model", lambda: load_network(str(tmp_path / "broken.skops")))
    refuses(InputError, "opened", lambda: modalities.table.estimators.load(tmp_path / "broken.skops", trust=True))


# -- the same columns for networks -------------------------------------------------------------------------------------


def test_units_number_the_features_of_columns_and_words():
    subject = ig2.modalities.table.subject(
        torch.nn.Linear(6, 2), ig2.modalities.table.infer_columns(ROWS, categories="ward", leave_out=["age"]), rows=ROWS
    )
    batch = subject.read(ROWS.iloc[:2])
    assert subject.number_units(batch).tolist() == [[0, 0, 0, 1, 1, 1]] * 2
    found = ig2.KernelSHAP(subject.number_units(batch))(subject.model, batch.x, 0, references=subject.read(ROWS.iloc[5:7]).x)
    # a column is exchanged as one: of the six features, those of a column share its number
    assert torch.allclose(found.values[:, :3], found.values[:, :1].expand(-1, 3))
