"""What holds for all the paper's experiments alike, each in a quick run."""

from __future__ import annotations

import math
from functools import cache as remember

import datafiles
import pytest
import torch

from ig2.benchmarks import SUITES, Table, run
from ig2.errors import InputError
from ig2_paper.suites.experiment import COUNTERFACTUAL, DATA

EXPERIMENTS = ("imagenet", "wafer", "celeba", "mnist", "trec")
TRAINED_ON_CLASSES = ("wafer", "mnist", "trec")
pytestmark = pytest.mark.usefixtures("cache")


@remember
def quick_table(name: str) -> Table:
    return run(name, quick=True, device="cpu")


@remember
def quick_suite(name: str, split: str = "test"):
    return datafiles.quick(name)(samples=6, split=split)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_method_scores_every_metric(name):
    table = quick_table(name)
    assert table.failures == () and table.notes == () and table.suite == name and table.shows == "se"
    marked = [] if name in ("mnist", "trec") else ["GT-AUC", "GT-SUM"]
    assert list(table.metrics) == [*marked, "ADD", "DEL"]
    for row in table.rows:
        assert row.n and row.n + row.undefined == 3, row
        assert name == "wafer" or not row.undefined, row  # of some maps there is nothing to mark
        assert all(0 <= value <= 1 or math.isnan(value) for value in row.values), row
    assert {"Gradient", "IG", "Guided IG", "Expected IG", "DeepSHAP", "KernelSHAP"} <= set(table.methods)


@pytest.mark.parametrize(("name", "study"), [(name, study) for name in TRAINED_ON_CLASSES for study in SUITES[name].studies])
def test_every_study_is_a_table(name, study, tmp_path):
    table = run(name, quick=True, study=study, samples=2, out=tmp_path)
    assert table.failures == () and table.suite == f"{name}-{study}" and (tmp_path / f"{name}-{study}.json").exists()
    assert table.title == f"{SUITES[name].heading}: {SUITES[name].studies[study].about}"
    count = 1 if table.unit == "batch" else 2
    may_be_undefined = name == "wafer" or study == "one-by-one"
    assert all(row.n + row.undefined == count and (may_be_undefined or row.n == count) for row in table.rows)
    for label in SUITES[name].studies[study].columns:
        assert all(row.n == count and row.mean >= 0 for row in table.rows if row.metric == label)


@pytest.mark.parametrize("name", TRAINED_ON_CLASSES)
def test_splits_and_training_samples_are_apart_and_classified_correctly(name):
    test, validation = quick_suite(name), quick_suite(name, "validation")
    train, one, two = (set(names) for names in (test.loaded[0].names, test.explicands.names, validation.explicands.names))
    assert len(one) == len(two) == 6 and not one & two and not (one | two) & train
    assert validation.name == f"{name}-choose" and test.name == name
    with torch.no_grad():
        assert torch.equal(test.explicands.model.net(test.explicands.x).argmax(dim=1), test.explicands.target)


@pytest.mark.parametrize("name", TRAINED_ON_CLASSES)
def test_references_are_of_other_classes_and_classified_as_such(name):
    explicands = quick_suite(name).explicands
    references = explicands.references[COUNTERFACTUAL]
    with torch.no_grad():
        classes = explicands.model.net(references.samples).argmax(dim=1)[references.rows]
    assert classes.shape == (6, 2) and (classes != explicands.target[:, None]).all()
    assert references.select(slice(2, 4)).shape == (2, 2, *explicands.x.shape[1:])
    assert explicands.references[DATA].select(slice(0, 1)).shape == (1, 2, *explicands.x.shape[1:])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_more_samples_than_there_are_raises(name):
    with pytest.raises(InputError, match=r"there are \d+ samples to explain in the test split, asked for are 5000"):
        run(name, ["gradient"], quick=True, samples=5000)


@pytest.mark.parametrize(
    ("name", "file"), [("wafer", "wm811k"), ("mnist", "train-images"), ("trec", "train_5500"), ("celeba", "list_attr_celeba")]
)
def test_a_folder_without_the_data_names_the_missing_file(name, file, tmp_path):
    with pytest.raises(InputError, match=file):
        run(name, quick=True, data=tmp_path)
