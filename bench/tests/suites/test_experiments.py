"""What holds for all the paper's experiments alike, each in a quick run."""

from __future__ import annotations

import math
from functools import cache as remember

import datafiles
import pytest
import torch

import ig2
from ig2.errors import InputError
from ig2_bench import SUITES, Table, run
from ig2_bench.suite import ChoiceError
from ig2_bench.suites.experiment import COUNTERFACTUAL, DATA

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
    may_be_undefined = name == "wafer" or study in ("one-by-one", "leaderboard")
    for row in table.rows:
        count = 1 if table.unit == "batch" or row.metric in ("forwards", "gradients", "seconds") else 2
        assert row.n + row.undefined == count and (may_be_undefined or row.n == count), row
        if row.metric in SUITES[name].studies[study].columns and study != "leaderboard":
            assert row.n == count and row.mean >= 0, row


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


class Counted:
    """A method that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *args, **options):
        self.calls += 1
        return ig2.Gradient()(*args, **options)


@pytest.mark.slow
def test_scales_are_rows_of_one_attribution(tmp_path):
    suite, counted = datafiles.quick("wafer")(samples=3, scales=(1.0, 4.0)), Counted()
    table = run(suite, ["Gradient", "Expected IG", "Expected IG (train data)"], own={"counted": counted}, out=tmp_path)
    assert counted.calls == len(suite.parts()) and table.failures == ()
    assert len(table.methods) == 3 * 4 and "scales" not in table.settings
    for metric in table.metrics:
        for suffix in ("", ", blurred by 1 px", ", blurred by 4 px"):
            own, gradient = (table.row(f"{label}{suffix}", metric).values for label in ("counted", "Gradient"))
            assert own == pytest.approx(gradient, nan_ok=True)
    attribution = ig2.Gradient()(suite.explicands.model, suite.explicands.x, suite.explicands.target).smooth(4.0)
    scores = suite.score_attribution(attribution, slice(0, 3))["ADD"]
    assert table.row("Gradient, blurred by 4 px", "ADD").values == pytest.approx(scores.tolist())
    # references that a method names are those of its scales too
    data, others = (table.row(f"{label}, blurred by 4 px", "ADD") for label in ("Expected IG (train data)", "Expected IG"))
    assert data.values != others.values


def test_texts_have_no_scale():
    with pytest.raises(ChoiceError, match="pixels"):
        run("trec", quick=True, scales=[2])


@pytest.mark.slow
def test_scales_of_a_cost_study_are_timed_one_by_one():
    counted = Counted()
    table = run("mnist", ["gradient"], own={"counted": counted}, quick=True, study="cost", samples=2, scales=[2.0])
    assert counted.calls == 4 and table.row("counted, blurred by 2 px", "seconds").mean > 0


@pytest.mark.slow
def test_each_attribute_of_faces_has_its_scales():
    suite = datafiles.quick("celeba")(samples=3, study="attributes", scales=(2.0,))
    table = run(suite)
    assert table.failures == ()
    raw = [label for label in table.methods if "blurred" not in label]
    assert [table.row(label, "ADD").n for label in raw] == [table.row(f"{label}, blurred by 2 px", "ADD").n for label in raw]
    assert any(table.row(label, "ADD").values != table.row(f"{label}, blurred by 2 px", "ADD").values for label in raw)
