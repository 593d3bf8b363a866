"""`ig2 bench wafer`, and with it what all experiments share."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import ClassVar

import datafiles
import pytest
import torch
from datafiles import write_wafers
from limits import HANGS

import ig2
from ig2.errors import InputError
from ig2.references import round_robin
from ig2_bench import Table, run
from ig2_bench.datasets.wafer import drawn
from ig2_bench.suite import ChoiceError
from ig2_bench.suites.experiment import COUNTERFACTUAL, DATA, Experiment
from ig2_bench.suites.studies import WithReferences
from ig2_bench.suites.wafer import Wafer

quick = datafiles.quick("wafer")


@pytest.fixture(scope="module")
def table() -> Table:
    return run("wafer", quick=True, device="cpu")


def test_the_table_says_which_data_it_is_from_and_how_good_the_network_is(table):
    page = table.to_markdown()
    assert "Data: wafer maps drawn by ig2" in page and "samples from the test split" in page
    facts = {fact.name: fact.mean for fact in table.facts}
    assert 0.3 < facts["accuracy"] <= 1 and "accuracy of Donut" in facts
    assert f"\naccuracy {facts['accuracy']:.3f}; by class: Center {facts['accuracy of Center']:.3f}, Donut " in page
    assert table.row("IG² (left, as published)", "ADD").paper == 0.898


def test_rules_that_share_out_have_no_residual_and_left_has():
    found = run("wafer", ["left", "gauss", "shared"], quick=True, study="rules")
    assert found.row("shared", "residual").mean < 1e-4 < found.row("left, as published", "residual").mean
    assert "ADD" in found.metrics


def test_cost_is_measured_without_scores():
    found = run("wafer", ["gradient", "ig"], quick=True, study="cost")
    assert list(found.metrics) == ["seconds"] and found.row("Gradient", "seconds").paper == 0.03
    # samples of a batch take as long together, so they are one measurement
    assert found.unit == "batch" and found.row("Gradient", "seconds").n == 1


def test_what_happens_once_is_not_part_of_the_cost():
    """Nor what happens once for batches of a size: a device looks for memory as large as what it is given."""

    class SlowToStart:
        seen: ClassVar = set()

        def __call__(self, model, x, *args, **options):
            found = ig2.Gradient()(model, x, *args, **options)
            once = 0.0 if len(x) in self.seen else HANGS
            self.seen.add(len(x))
            return replace(found, cost=replace(found.cost, seconds=found.cost.seconds + once))

    suite = quick(study="cost", samples=2)
    (each,) = suite.score("samples 1–2", slice(0, 2), SlowToStart())["seconds"]
    assert 2 * each < HANGS


def test_settings_that_the_rows_vary_are_not_settings_of_the_table():
    """So that the table settings were chosen by stays the one that is asked for, whatever was chosen."""
    steps, norms = quick(study="steps").settings(), quick(study="norms").settings()
    assert replace(quick(study="steps"), step_size=7.0).settings() == steps and not {"steps", "step_size"} & set(steps)
    assert norms["steps"] == 3 and "step_size" not in norms
    assert {"steps", "step_size"} < set(quick().settings())


def test_explicands_are_what_the_network_is_right_about_and_no_normal_maps():
    explicands = quick(samples=6).explicands
    with torch.no_grad():
        assert torch.equal(explicands.model.net(explicands.x).argmax(dim=1), explicands.target)
    normal = drawn.CLASSES.index("None")
    assert (explicands.target != normal).all() and len(set(explicands.target.tolist())) > 3
    with torch.no_grad():
        others = explicands.model.net(explicands.references[COUNTERFACTUAL].samples).argmax(dim=1)
    assert (others == normal).all()
    assert explicands.references[COUNTERFACTUAL].select(slice(1, 3)).shape == (2, 2, 3, 28, 28)


def test_more_samples_begin_with_those_of_fewer():
    assert quick(samples=6).explicands.names[:4] == quick(samples=4).explicands.names
    assert round_robin(torch.tensor([0, 0, 0, 1]), 0)[:2] != [0, 1]


def test_more_samples_are_added_to_those_scored_before(tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "per_part", 2)
    scored = []
    run("wafer", ["gradient"], quick=True, samples=2, out=tmp_path, progress=lambda step: scored.append(step.now))
    assert "samples 1–2: Gradient" in scored
    scored.clear()
    found = run("wafer", ["gradient"], quick=True, samples=4, out=tmp_path, progress=lambda step: scored.append(step.now))
    assert "samples 3–4: Gradient" in scored and "samples 1–2: Gradient" not in scored
    assert found.row("Gradient", "ADD").n == 4


def test_expected_ig_gets_samples_whatever_their_class_and_ig2_normal_ones(monkeypatch):
    seen = {}
    suite = quick(samples=2)

    def spy(label):
        def method(model, x, target, references, seed):
            seen[label] = references
            return x

        return method

    run(suite, ["gradient"], own={"plain": spy("plain"), "data": WithReferences(DATA, spy("data"))})
    assert torch.equal(seen["plain"], suite.explicands.references[COUNTERFACTUAL].select(slice(0, 2)))
    assert torch.equal(seen["data"], suite.explicands.references[DATA].select(slice(0, 2)))
    assert not torch.equal(seen["plain"], seen["data"])


def test_what_a_method_writes_into_its_input_reaches_nobody_else():
    def rude(model, x, target, references, seed):
        return x.zero_()

    suite = quick(samples=2)
    before = suite.explicands.x.clone()
    run(suite, ["gradient"], own={"rude": rude})
    assert torch.equal(suite.explicands.x, before)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda x: x.numpy(), r"ndarray float32 \(2, 3, 28, 28\): .* \(2, 3, 28, 28\), as torch\.from_numpy makes one"),
        (lambda x: None, r"None: expected an Attribution, or a tensor like x, \(2, 3, 28, 28\)$"),
        (lambda x: (x,), r"tuple of 1 .*: expected an Attribution, or a tensor like x, \(2, 3, 28, 28\)$"),
    ],
)
def test_what_an_own_method_returns_must_be_an_attribution_or_a_tensor(made, said):
    found = run(quick(samples=2), ["gradient"], own={"own": lambda model, x, target, references, seed: made(x)})
    (failure,) = found.failures
    assert failure.method == "own" and re.match(f"InputError: the method returned {said}", failure.said)


def test_real_maps_are_marked_by_the_rule(tmp_path):
    maps = drawn.draw_maps(12, seed=3, size=64)
    write_wafers(tmp_path, maps)
    suite = quick(data=tmp_path, samples=2)
    assert "WM-811K (wm811k.npz)" in suite.describe_data()
    assert suite.explicands.truth.shape == (2, 28, 28) and set(suite.explicands.truth.unique().tolist()) <= {-1, 0, 1}


def test_what_cannot_be_done_is_said(tmp_path):
    with pytest.raises(ChoiceError, match="wafer has no study 'nothing': choose from rules"):
        quick(study="nothing")
    with pytest.raises(InputError, match="samples must be"):
        Wafer(samples=0)


def test_samples_whose_scores_are_known_are_skipped(monkeypatch):
    monkeypatch.setattr(Experiment, "per_part", 2)
    whole = quick(samples=4)
    rest = whole.skip_samples(2)
    assert rest.parts() == ["samples 3–4"] and rest.identity() == whole.identity() and rest.settings() == whole.settings()
    values, later = (run(suite, ["gradient"]).row("Gradient", "ADD").values for suite in (whole, rest))
    assert later == values[2:]
    assert whole.skip_samples(4) is None


def test_another_network_is_another_one_to_the_last_weight(tmp_path):
    """Scores that were kept of it are not those of this one, whatever the data and the settings."""
    first, second = quick(samples=1), quick(samples=1)
    assert first.digest_network() == second.digest_network()
    run(first, ["gradient"], out=tmp_path)
    with torch.no_grad():
        next(reversed(list(second.explicands.model.net.parameters())))[0] += 1e-3
    assert first.digest_network() != second.digest_network()
    told = []
    table = run(second, ["gradient", "ig"], out=tmp_path, progress=lambda step: told.append(step.now))
    assert "samples 1–1: Gradient" in told and table.environment["network"] == second.digest_network()


def test_a_method_of_one_s_own_stands_in_the_studies_too():
    """It need not know our options, and its time is taken where it does not say it itself."""

    def own(model, x, target, references, seed):
        time.sleep(0.05)
        return x

    def path(model, x, target, references, seed):
        return ig2.ExpectedIG(2)(model, x, target, references, seed=seed)

    found = run(quick(samples=2, study="steps"), ["3 steps of 0.1"], own={"own": own, "path": path})
    assert found.failures == () and found.row("own", "ADD").n == 2
    assert {label: found.row(label, "distance left").n for label in found.methods} == {"3 steps of 0.1": 2, "own": 0, "path": 0}
    found = run(quick(samples=2, study="cost"), ["gradient"], own={"own": own, "path": path})
    assert found.row("own", "seconds").mean >= 0.025 and found.row("path", "seconds").n == 1


@pytest.mark.parametrize("split", ["test", "validation"])
def test_too_little_data_is_reported(tmp_path, split):
    maps = drawn.draw_maps(1, size=28)
    write_wafers(tmp_path, maps)
    with pytest.raises(InputError, match=r"normal maps as normal|samples to explain"):
        run("wafer", ["gradient"], quick=True, data=tmp_path, samples=1, split=split)
    write_wafers(tmp_path, maps[maps.y != maps.classes.index("None")])
    with pytest.raises(InputError, match="0 normal maps as normal"):
        run("wafer", ["gradient"], quick=True, data=tmp_path, samples=1, split=split)
