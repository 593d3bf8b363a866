"""XAI-Units: the truths follow from the axioms, right methods score well, wrong ones badly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ig2
from ig2.errors import InputError
from ig2_bench import BenchOptions, run
from ig2_bench.suite import ChoiceError, find_suite
from ig2_bench.suites.xai_units import FEATURES, UNITS, XAIUnits
from networks import refuses


def problem(unit: str, count: int = 12, seed: int = 3):
    return UNITS[unit](count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("unit", UNITS)
def test_the_truth_is_complete_and_that_of_shapley(unit):
    """Shapley values against one reference satisfy the axioms the truths are derived from; there is no other way here."""
    drawn = problem(unit)
    exact = ig2.KernelSHAP(samples=2**FEATURES)(drawn.model, drawn.x, 0, drawn.reference)
    assert torch.allclose(exact.values, drawn.truth, atol=1e-9)
    change = ig2.scores(drawn.model, drawn.x)[:, 0] - ig2.scores(drawn.model, drawn.reference)[:, 0]
    assert torch.allclose(drawn.truth.sum(dim=1), change, atol=1e-12)
    assert (drawn.truth.abs().sum(dim=1) > 0.01).all()


@pytest.mark.parametrize("unit", UNITS)
def test_the_integral_of_gradients_tends_to_the_truth(unit):
    drawn = problem(unit)
    path = ig2.IntegratedGradients(320, rule=ig2.rules.midpoint)(drawn.model, drawn.x, 0, drawn.reference)
    assert torch.allclose(path.values, drawn.truth, atol=0.02)


def test_each_unit_does_what_its_formula_says():
    x = problem("zigzag").x
    assert float(x.min()) >= 0 and float(x.max()) <= 1
    slope = ig2.Gradient()(problem("zigzag").model, x, 0).values
    trend = ig2.IntegratedGradients(320, rule=ig2.rules.midpoint)(
        problem("zigzag").model, torch.ones(1, FEATURES, dtype=torch.float64), 0
    ).values
    assert ((slope * trend) < 0).double().mean() > 0.35  # gradients of the wrong sign
    assert (ig2.Gradient()(problem("or").model, torch.ones(1, FEATURES, dtype=torch.float64), 0).values == 0).all()
    shared = problem("uncertain")
    moved = shared.x + torch.tensor([0.0, *[1.0] * (FEATURES - 1)])
    assert torch.allclose(ig2.scores(shared.model, moved), ig2.scores(shared.model, shared.x), atol=1e-12)
    assert not torch.allclose(shared.model.net(moved), shared.model.net(shared.x))


def truthful(model, x, target=None, references=None, *, seed=0) -> Tensor:
    return ig2.KernelSHAP(samples=2**FEATURES)(model, x, target, references[:1]).values


def test_the_right_method_is_first_and_wrong_ones_are_last():
    table = run(XAIUnits(samples=30), ["random", "input-gradient"], own={"right": truthful, "reverse": reverse})
    for unit in UNITS:
        assert table.row("right", unit).mean == pytest.approx(1.0), unit
        assert table.row("reverse", unit).mean == pytest.approx(-1.0), unit
        assert abs(table.row("Random", unit).mean) < 0.3
    assert table.row("right", "error").mean < 1e-6 < 1.5 < table.row("reverse", "error").mean
    assert table.row("Input × gradient", "negative").mean == pytest.approx(0.0)
    assert table.row("Input × gradient", "or").mean < 0.7
    assert table.row("Random", "gradients").mean == 0 and table.row("right", "gradients").n == 0
    assert table.row("Input × gradient", "gradients").mean == table.row("Input × gradient", "forwards").mean == 1


def reverse(model, x, target=None, references=None, *, seed=0) -> Tensor:
    return -truthful(model, x, target, references)


def test_a_run_that_was_stopped_gives_the_same_table(tmp_path):
    suite, chosen = XAIUnits(samples=3), ["random", "gradient"]
    whole = run(suite, chosen, out=tmp_path / "whole")

    class StopError(BaseException):
        pass

    def stop(step) -> None:
        if step.done == 7:
            raise StopError

    with pytest.raises(StopError):
        run(suite, chosen, out=tmp_path / "parts", progress=stop)
    resumed = run(suite, chosen, out=tmp_path / "parts")
    for row in whole.rows:
        if row.metric != "seconds":
            assert resumed.row(row.method, row.metric).values == row.values
    again = run(suite, chosen, out=tmp_path / "parts")  # nothing is scored again: the seconds are those of before
    assert [row.values for row in again.rows] == [row.values for row in resumed.rows]


def test_options_and_what_a_method_may_return():
    assert find_suite("xai-units", BenchOptions(quick=True)).samples == 20
    assert find_suite("xai-units", BenchOptions(samples=7, seed=2)).settings() == {"seed": 2, "quick": False, "samples": 7}
    refuses(ChoiceError, "seeds", lambda: find_suite("xai-units", BenchOptions(seeds=2)))
    refuses(InputError, "samples", lambda: XAIUnits(samples=0))
    table = run(XAIUnits(samples=2), [], own={"short": lambda model, x, *_, **__: x[:, :3]})
    assert len(table.failures) == len(UNITS) and "shape of x" in str(table.failures[0].error)
