"""The synthetic families, the perceptrons trained side by side, and the suite as a whole."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2.errors import InputError
from ig2.metrics.gaussian import Gaussian, Mixture
from ig2_bench.datasets.synthetic import Synthetic
from ig2_bench.networks.perceptron import Perceptrons, PerceptronSettings, train_perceptrons
from ig2_bench.runner import run
from ig2_bench.suite import BenchOptions, ChoiceError
from ig2_bench.suites.xai_bench import XAIBench
from ig2_bench.table import Table
from networks import data

# -- the families ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ([0.0, -0.51, 0.0, 9.0, 9.0], 1 - 2 + 2),
        ([-1e-9, -0.5, 0.4, 9.0, 9.0], -1 - 1 + 0),  # 2 cos(0.4π) = 0.62
        ([1.0, -1e-9, 0.6, 0.0, 0.0], 1 - 1 - 1),  # 2 cos(0.6π) = −0.62
        ([-1.0, 0.0, 1.0, 0.0, 0.0], -1 + 1 - 2),
        ([-3.0, 0.49, -0.2, 0.0, 0.0], -1 + 1 + 1),  # 2 cos(0.2π) = 1.62
        ([2.0, 0.5, 2.0, 0.0, 0.0], 1 + 2 + 2),
    ],
)
def test_piecewise_values_are_the_papers(row: list[float], value: float) -> None:
    assert float(Synthetic("piecewise").function(torch.tensor([row], dtype=torch.float64))) == value


def test_linear_and_additive_values() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [-0.5, -2.0, 0.0, 1.0, 7.0]], dtype=torch.float64)
    assert Synthetic("linear").function(x).tolist() == [4 + 6 + 6 + 4, -2 - 6 + 0 + 1]
    expected = [math.sin(a) + abs(b) + c**2 + math.exp(-d) for a, b, c, d, _ in x.tolist()]
    assert Synthetic("additive").function(x).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("family", ["linear", "additive", "piecewise"])
def test_labels_are_cut_or_scaled_at_the_mean_of_the_training_samples(family: Any) -> None:
    binary, scaled = Synthetic(family, "binary").draw(seed=3), Synthetic(family, "regression").draw(seed=3)
    assert torch.equal(binary.x, scaled.x) and binary.x.shape == (1000, 5) and binary.new_x.shape == (100, 5)
    values, new_values = Synthetic(family).function(binary.x), Synthetic(family).function(binary.new_x)
    assert torch.equal(binary.y, (values > values.mean()).double())
    assert torch.equal(binary.new_y, (new_values > values.mean()).double())
    assert float(scaled.y.mean()) == pytest.approx(0, abs=1e-12) and float(scaled.y.std()) == pytest.approx(1)
    torch.testing.assert_close(scaled.new_y, (new_values - values.mean()) / values.std())
    assert 0.2 < float(binary.y.mean()) < 0.8


def test_samples_come_from_the_seed_and_the_distribution() -> None:
    one, again, other = (Synthetic(distribution=Gaussian.correlated(5, 0.8)).draw(seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.x, again.x) and not torch.equal(one.x, other.x)
    assert float(torch.corrcoef(one.x.T)[0, 1]) == pytest.approx(0.8, abs=0.05)
    mixed = Synthetic(distribution=Mixture.opposed(5)).draw().x
    assert float((mixed.mean(dim=1).abs() > 0.3).double().mean()) > 0.9  # nearly nothing in the middle


def test_families_that_there_are_not_are_refused() -> None:
    with pytest.raises(InputError, match="family='cubic': use 'linear', 'additive', 'piecewise'"):
        Synthetic("cubic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="labels='three'"):
        Synthetic(labels="three")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Gaussian or a Mixture"):
        Synthetic(distribution="normal")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="additive family is a function of 4 features"):
        Synthetic("additive", distribution=Gaussian.correlated(3)).draw()
    with pytest.raises(InputError, match="train=1"):
        Synthetic().draw(train=1)


# -- the networks ------------------------------------------------------------------------------------------------------

SHORT = PerceptronSettings(epochs=8, batch=50)


def tables(count: int, rows: int = 200) -> tuple[Tensor, Tensor]:
    drawn = [Synthetic().draw(train=rows, seed=seed) for seed in range(count)]
    return torch.stack([one.x for one in drawn]), torch.stack([one.y for one in drawn])


def test_networks_trained_together_are_those_trained_alone() -> None:
    x, y = tables(3)
    together = train_perceptrons(x, y, 4, SHORT).predict(x)
    for number in range(3):
        some = slice(number, number + 1)
        torch.testing.assert_close(
            train_perceptrons(x[some], y[some], 4, SHORT).predict(x[some])[0], together[number], rtol=0, atol=1e-9
        )
    assert not torch.allclose(train_perceptrons(x, y, 5, SHORT).predict(x), together)


def test_training_is_that_of_the_same_module_in_plain_pytorch() -> None:
    x, y = tables(1)
    found = train_perceptrons(x, y, 4, SHORT).network()
    generator = torch.Generator().manual_seed(4)
    net = Perceptrons(1, 5, generator).network().requires_grad_(True).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8 * 4)
    for _ in range(8):
        for some in torch.randperm(200, generator=generator).split(50):
            optimizer.zero_grad()
            (net(x[0, some])[:, 0] - y[0, some]).square().mean().backward()
            optimizer.step()
            schedule.step()
    torch.testing.assert_close(found(x[0]), net.eval()(x[0]), rtol=0, atol=1e-8)
    assert [type(layer) for layer in found] == [nn.Linear, nn.BatchNorm1d, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]
    assert [tuple(layer.weight.shape) for layer in found if isinstance(layer, nn.Linear)] == [(64, 5), (16, 64), (1, 16)]


def test_a_network_taken_out_predicts_what_it_did_beside_the_others() -> None:
    x, y = tables(3)
    nets = train_perceptrons(x, y, 0, SHORT)
    for number in range(3):
        net = nets.network(number)
        assert not net.training and not any(part.requires_grad for part in net.parameters())
        torch.testing.assert_close(net(x[number])[:, 0], nets.predict(x)[number])


def test_training_leaves_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    x, y = tables(1)
    train_perceptrons(x, y, 0, PerceptronSettings(epochs=1)).network()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_recipe_learns_the_papers_labels() -> None:
    drawn = Synthetic().draw(validation=1000, seed=1)
    nets = train_perceptrons(drawn.x[None], drawn.y[None])
    errors = (nets.predict(drawn.new_x[None])[0] - drawn.new_y).square()
    assert float(errors.mean()) < 0.1  # a constant has 0.25


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"batch": 1}, {"rate": 0.0}, {"decay": -1.0}])
def test_settings_that_cannot_train_raise(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        PerceptronSettings(**settings)


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected \(K, n, d\) and \(K, n\)"):
        train_perceptrons(torch.zeros(10, 5), torch.zeros(10))


# -- the suite ---------------------------------------------------------------------------------------------------------


def own(model: Any, x: Tensor, target: Tensor, references: Tensor, *, seed: int) -> Tensor:
    """Someone's own method: a plain tensor."""
    assert references.shape == (len(x), 3, 5) and target.shape == x.shape[:1]
    return (x[:, None] - references).mean(dim=1) * ig2.Gradient()(model, x, target).values


@pytest.fixture(scope="module")
def quick() -> Table:
    return run("xai-bench", quick=True, device="cpu", own={"mine": own})


def test_a_quick_run_scores_every_method_by_every_metric(quick: Table) -> None:
    assert not quick.failures
    assert len(quick.rows) == 13 * 6
    for row in quick.rows:
        assert math.isfinite(row.mean) and row.n == 2 and not row.undefined, row
    assert {row.method for row in quick.rows} == {*XAIBench().methods(), "mine"}


def test_random_attributions_have_nothing_to_do_with_the_truth_and_others_do(quick: Table) -> None:
    assert abs(quick.row("Random", "GT-Shapley").mean) < 0.4
    assert abs(quick.row("Random", "faithfulness").mean) < 0.4
    for method in ("IG", "KernelSHAP", "Expected IG", "IG² (left, as published)"):
        assert quick.row(method, "GT-Shapley").mean > 0.6
        assert quick.row(method, "faithfulness").mean > quick.row("Random", "faithfulness").mean


def test_a_run_depends_on_its_seed_alone(quick: Table) -> None:
    few = ["Random", "Expected IG", "IG² (left, as published)"]
    torch.rand(3)
    again = run("xai-bench", few, quick=True, device="cpu", seeds=1, seed=1)
    for row in again.rows:
        assert row.values[0] == pytest.approx(quick.row(row.method, row.metric).values[1], abs=1e-6)  # its second seed is 1
    assert len({row.values for row in quick.rows if row.metric == "ROAR"}) > 8


SMALL: dict[str, Any] = {
    "quick": True,
    "seeds": 1,
    "train": 100,
    "validation": 10,
    "references": 2,
    "steps": 10,
    "step_size": 0.2,
    "draws": 10,
    "shapley_draws": 20,
    "perturbations": 20,
    "recipe": PerceptronSettings(epochs=10, batch=50),
}


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "linear", "labels": "regression", "rho": 0.5},
        {"family": "additive", "labels": "binary", "rho": -0.2},
        {"family": "piecewise", "labels": "regression", "mixture": Mixture.opposed(5, 0.3)},
    ],
)
def test_other_families_and_distributions_run(settings: dict[str, Any]) -> None:
    suite = XAIBench(**SMALL, **settings)
    table = run(suite, ["Random", "IG", "IG² (left, as published)"])
    assert not table.failures and all(math.isfinite(row.mean) for row in table.rows)
    assert not suite.paper()


def test_the_papers_figures_stand_beside_its_own_family_alone() -> None:
    paper = XAIBench().paper()
    assert paper["IG² (left, as published)"]["faithfulness"] == 0.610
    assert paper["Random"]["monotonicity (as published)"] == 0.458
    assert set(paper) < set(XAIBench().methods())
    assert all(set(figures) < set(XAIBench().metrics()) for figures in paper.values())
    assert not XAIBench(rho=0.1).paper() and not XAIBench(family="linear").paper()


def test_references_are_on_the_other_side_and_never_the_explicand() -> None:
    suite = XAIBench(**SMALL, seed=3)
    prepared = suite.prepare("seed 3")
    output = prepared.model.net(prepared.x)[:, 0] > 0.5
    across = prepared.model.net(prepared.others.flatten(0, 1)).view(output.shape[0], -1) > 0.5
    assert (across != output[:, None]).all()
    assert torch.isin(prepared.others, prepared.data.x).all()
    assert torch.isin(prepared.background, prepared.data.x).all()


def test_draws_are_not_the_training_samples_again() -> None:
    """With one seed for everything, the noise of the metrics would be that of the data, which the network has seen."""
    suite = XAIBench(**SMALL)
    prepared = suite.prepare("seed 0")
    noise = suite.distribution.draw(
        data(1, 5), torch.zeros(1, 5).bool(), 100, torch.Generator().manual_seed(prepared.measuring)
    )
    assert not torch.isin(noise, prepared.data.x).any()
    same = suite.synthetic.draw(100, 10, prepared.measuring).x  # and it would, with that seed
    assert torch.equal(noise[0], same)


def test_a_method_that_answers_in_another_shape_is_named() -> None:
    table = run(XAIBench(**SMALL), ["Random"], own={"wrong": lambda model, x, *_, **__: x[:3]})
    assert "expected (110, 5)" in table.failures[0].said and table.failures[0].method == "wrong"


def test_settings_tell_two_mixtures_apart() -> None:
    near, far = (
        XAIBench(mixture=Mixture(torch.tensor([[m] * 5, [-m] * 5]), torch.stack([torch.eye(5)] * 2))) for m in (1.0, 3.0)
    )
    assert near.settings() != far.settings()
    assert (
        near.settings()["seeds"] == 10 and "seeds" not in near.identity()
    )  # more seeds are no reason to score the first ones again


def test_suites_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match=r"rho=0\.5 is for Gaussian features"):
        XAIBench(mixture=Mixture.opposed(5), rho=0.5)
    with pytest.raises(InputError, match=r"rho=1\.0"):
        XAIBench(rho=1.0)
    with pytest.raises(InputError, match="references must be"):
        XAIBench(references=0)
    with pytest.raises(InputError, match="family='cubic'"):
        XAIBench(family="cubic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="step_size must be"):
        XAIBench(step_size=-1.0)
    with pytest.raises(ChoiceError, match="makes its own data"):
        XAIBench.from_options(BenchOptions(data="here", device="cpu"))  # type: ignore[arg-type]


def test_options_reach_the_suite() -> None:
    full = XAIBench.from_options(BenchOptions(seeds=3, seed=7, device="cpu"))
    assert full.parts() == ["seed 7", "seed 8", "seed 9"] and full.settings()["train"] == 1000
    assert XAIBench.from_options(BenchOptions(device="cpu")).seeds == 10
    small = XAIBench.from_options(BenchOptions(quick=True, device="cpu"))
    assert small.quick and small.seeds == 2 and small.draws < dataclasses.replace(full).draws
