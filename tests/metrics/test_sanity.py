"""New weights must change an attribution, and nothing else: not the network, not the random numbers of others."""

import copy
import functools
import random
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import ig2
from ig2.errors import IG2Warning, InputError, ModelError
from ig2.metrics.correlation import midranks, pearson
from ig2.metrics.sanity import ITSELF, ParameterRandomisation, redraw
from networks import data, made, relu_cnn, tanh_mlp, trained_on_patterns, uniform

X = data(5, 6, seed=1)


def edges(model: Any, x: Any, target: Any = None, references: Any = None, *, seed: int = 0) -> Tensor:
    """A picture's edges: it looks like an explanation and knows nothing of the network."""
    return (x - x.roll(1, dims=-1)).abs()


class Spy:
    """A method that remembers the weights of the networks it was given."""

    def __init__(self) -> None:
        self.weights: list[dict[str, Tensor]] = []

    def __call__(self, model: Any, x: Any, target: Any = None, references: Any = None, *, seed: int = 0) -> Tensor:
        self.weights.append(copy.deepcopy(model.net.state_dict()))
        return edges(model, x)

    def changed(self) -> list[set[str]]:
        """The layers that differ from the network's own, for each stage."""
        own, *stages = self.weights
        return [{name.rpartition(".")[0] for name in own if not torch.equal(own[name], stage[name])} for stage in stages]


def test_a_gradient_goes_with_the_weights_and_an_edge_detector_stays():
    net, x, _ = trained_on_patterns()
    gradient = ParameterRandomisation(ig2.Gradient())(net, ig2.Gradient()(net, x[:8]))
    detector = ParameterRandomisation(edges)(net, edges(net, x[:8]), x[:8])
    assert gradient.better == "lower" and gradient.curves[:, -1].abs().max() < 0.5 and gradient.mean < 0.4
    torch.testing.assert_close(detector.values, torch.ones(8, dtype=torch.float64))
    torch.testing.assert_close(detector.curves, torch.ones(8, 4, dtype=torch.float64))
    assert gradient.settings["randomised"] == detector.settings["randomised"] == ["9", "7", "3", "0"]


def test_the_score_is_the_mean_size_of_the_correlations_and_stands_beside_its_curve():
    scores = ParameterRandomisation(ig2.Gradient(), sign="keep")(tanh_mlp(), ig2.Gradient()(tanh_mlp(), X))
    assert (scores.curves < 0).any() and scores.at.tolist() == [1, 2, 3]
    torch.testing.assert_close(scores.values, scores.curves.abs().mean(dim=1))


@pytest.mark.parametrize("order", ["cascading", "independent"])
@pytest.mark.parametrize("sign", ["absolute", "keep"])
def test_a_stage_is_what_its_replica_gives(order: Any, sign: Any):
    net, x, spy, other = relu_cnn(), uniform(3, 2, 8, 8, seed=2), Spy(), relu_cnn()
    found = ig2.Gradient()(net, x)
    scores = ParameterRandomisation(ig2.Gradient(), order=order, sign=sign)(net, found, seed=4)
    ParameterRandomisation(spy, order=order)(net, edges(net, x), x, seed=4)
    for stage, weights in enumerate(spy.weights[1:]):
        other.load_state_dict(weights)
        maps = [a.values.sum(dim=1).flatten(1) for a in (found, ig2.Gradient()(other, x, found.target))]
        maps = [heat.abs() for heat in maps] if sign == "absolute" else maps
        truth = [stats.spearmanr(*pair).statistic for pair in zip(*maps, strict=True)]
        assert scores.curves[:, stage].tolist() == pytest.approx(truth)


@pytest.mark.parametrize(
    ("order", "stages"),
    [
        ("cascading", [{"8"}, {"8", "6"}, {"8", "6", "3"}, {"8", "6", "3", "0"}]),
        ("independent", [{"8"}, {"6"}, {"3"}, {"0"}]),
    ],
)
def test_layers_are_drawn_anew_from_the_output_back(order: Any, stages: list[set[str]]):
    spy, x = Spy(), uniform(2, 2, 8, 8)
    ParameterRandomisation(spy, order=order)(relu_cnn(), edges(None, x), x)
    assert spy.changed() == stages


def test_a_layer_gets_the_same_weights_at_every_stage_and_in_either_order():
    cascading, independent = Spy(), Spy()
    ParameterRandomisation(cascading)(tanh_mlp(), edges(None, X), X)
    ParameterRandomisation(independent, order="independent")(tanh_mlp(), edges(None, X), X)
    for stage, name in enumerate(["4.weight", "2.weight", "0.weight"], start=1):
        for later in cascading.weights[stage:]:
            assert torch.equal(later[name], independent.weights[stage][name])


def test_named_modules_are_drawn_anew_in_the_order_given_with_all_that_is_in_them():
    net: Any = made(lambda: nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), nn.Linear(6, 2)))
    spy = Spy()
    scores = ParameterRandomisation(spy, layers=["1", "0"])(net, edges(None, X), X)
    assert spy.changed() == [{"1.0", "1.1"}, {"1.0", "1.1", "0"}]
    assert scores.settings["randomised"] == ["1", "0"]


@pytest.mark.parametrize("layers", [None, ["1", "0"]])
def test_layers_of_one_shape_do_not_get_the_same_weights(layers: list[str] | None):
    """Neither two parts of a module, nor two that are drawn anew at different stages."""

    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    net, spy = made(lambda: nn.Sequential(block(), block(), nn.Linear(6, 2))), Spy()
    ParameterRandomisation(spy, layers=layers)(net, edges(None, X), X)
    weights = [spy.weights[-1][f"{name}.weight"] for name in ("0.0", "0.2", "1.0", "1.2")]
    assert len(torch.stack(weights).unique(dim=0)) == 4


def test_the_network_is_taken_as_it_is_and_not_as_it_was_made_fast():
    net: Any = made(lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2)))
    net, x = net.float(), uniform(2, 2, 8, 8).float()
    net[1].weight.data += 1
    spy = Spy()
    scores = ParameterRandomisation(spy)(net, edges(None, x), x)
    assert scores.settings["randomised"] == ["4", "1", "0"]
    assert spy.changed() == [{"4"}, {"4", "1"}, {"4", "1", "0"}]
    assert all(torch.equal(tensor, spy.weights[0][name]) for name, tensor in net.state_dict().items())


class HeadFirst(nn.Module):
    """Registered in another order than it runs, with a parameter of its own and one that is used without a call."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.scales = nn.ParameterList([nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))])
        self.body = nn.Linear(6, 4)
        self.unused = nn.Linear(2, 2)
        self.mean = nn.Parameter(torch.arange(6.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x - self.mean)) * self.scales[0])


def test_the_order_is_that_of_running():
    spy = Spy()
    scores = ParameterRandomisation(spy)(made(HeadFirst), edges(None, X), X)
    assert scores.settings["randomised"] == ["head", "body", ITSELF]
    assert spy.changed() == [{"head"}, {"head", "body"}, {"head", "body", "scales", "unused", ""}]


def test_a_transformer_layer_is_drawn_anew_whole():
    layer = functools.partial(nn.TransformerEncoderLayer, 8, 2, 16, dropout=0, batch_first=True)
    net, spy, x = made(lambda: nn.Sequential(layer(), nn.Flatten(), nn.Linear(8 * 5, 2))), Spy(), uniform(2, 5, 8)
    ParameterRandomisation(spy, features="word")(net, edges(None, x), x)
    assert {"0.self_attn", "0.self_attn.out_proj", "0.linear1", "0.linear2", "2"} <= spy.changed()[-1]
    with pytest.raises(InputError, match="may be words by embedding"):
        ParameterRandomisation(spy)(net, edges(None, x), x)


def test_pixels_are_ranked_by_the_sum_over_their_channels():
    net, found = relu_cnn(), ig2.Gradient()(relu_cnn(), uniform(2, 2, 8, 8))
    pixels, elements = (ParameterRandomisation(ig2.Gradient(), features=option)(net, found) for option in ("auto", "element"))
    assert not torch.equal(pixels.values, elements.values)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = tanh_mlp()

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return self.inner(x * gate)


def test_references_and_fixed_inputs_come_along():
    x, references = {"x": X, "gate": ig2.Fixed((data(5, 6, seed=4) > -0.5).double())}, {"x": data(2, 6, seed=3)}
    net, method = Gated().eval(), ig2.IG2(steps=10, step_size=0.05)
    scores = ParameterRandomisation(method, references)(net, method(net, x, references=references), x)
    assert scores.settings["randomised"] == ["inner.4", "inner.2", "inner.0"] and scores.n == 5


def test_the_network_and_everyones_random_numbers_are_left_as_they_were():
    net: Any = made(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
    net[3].weight.requires_grad_(False)
    before, parameters = copy.deepcopy(net.state_dict()), list(net.parameters())
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index] # noqa: NPY002
    method = ig2.IntegratedGradients()
    ParameterRandomisation(method)(net, method(net, X), X)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(one is other for one, other in zip(parameters, net.parameters(), strict=True))
    assert [p.requires_grad for p in parameters] == [True, True, True, True, False, True]
    assert not any(hooks for m in net.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks))
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()  # type: ignore[index] # noqa: NPY002
    assert states[2] == random.getstate()


def test_scores_follow_the_seed_alone():
    net = tanh_mlp()
    found, metric = ig2.Gradient()(net, X), ParameterRandomisation(ig2.Gradient())
    told: list[tuple[int, int]] = []
    first = metric(net, found, seed=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]  # the layers
    torch.rand(3)
    assert torch.equal(first.curves, metric(net, found, seed=1, batch_size=2).curves)  # type: ignore[arg-type]
    assert not torch.equal(first.curves, metric(net, found, seed=2).curves)  # type: ignore[arg-type]
    torch.testing.assert_close(first.values[3:4], metric(net, found[3], seed=1).values)


def test_constant_attributions_have_no_ranks():
    net = tanh_mlp()

    def method(model: Any, x: Any, target: Any = None, references: Any = None, *, seed: int = 0) -> Tensor:
        values = edges(model, x)
        values[1] = 3.0
        if model.net is not net:
            values[2] = -1.0
        return values

    with pytest.warns(IG2Warning, match="2 of 5") as caught:
        scores = ParameterRandomisation(method)(net, method(ig2.wrap(net), X), X)
    assert scores.values.isnan().tolist() == [False, True, True, False, False] and len(caught) == 1
    assert scores.undefined == {
        "the attribution is constant, and has no ranks": 1,
        "the attribution of a randomised network is constant, and has no ranks": 1,
    }


def test_what_cannot_be_randomised_is_refused():
    net, uncopyable, small = tanh_mlp(), tanh_mlp(), nn.Sequential(nn.Linear(6, 6), nn.Tanh()).double()
    uncopyable.cache = uncopyable(X)  # type: ignore[assignment]
    gradient, found, randomise = ig2.Gradient(), ig2.Gradient()(net, X), ParameterRandomisation
    # a bound method is copied with what it is bound to
    assert randomise(gradient)(net.forward, found).n == 5
    for error, message, call in [
        (ModelError, r"new weights change no output.* Wrap", lambda: randomise(gradient)(lambda x: net(x), found)),
        (ModelError, "no parameters to draw anew", lambda: randomise(edges)(lambda x: x.sum(dim=1), edges(None, X), X)),
        (ModelError, r"it cannot be copied: .*deepcopy", lambda: randomise(edges)(uncopyable, edges(None, X), X)),
        (InputError, "does not return this attribution again", lambda: randomise(ig2.InputXGradient())(net, found)),
        (InputError, "what the method returned", lambda: randomise(lambda *_, **__: torch.zeros(5))(net, X, X)),
        (InputError, "order", lambda: randomise(edges, order="top-down")),  # type: ignore[arg-type]
        (InputError, "layers", lambda: randomise(edges, layers=[])),
        (InputError, "layers", lambda: randomise(edges, layers="fc")),
        (InputError, "layers", lambda: randomise(edges, layers=[3])),  # type: ignore[list-item]
        (InputError, "'fc' names no module .* '0', '1'", lambda: randomise(edges, layers=["fc"])(small, edges(None, X), X)),
        (InputError, r"'1' \(Tanh\) has no param", lambda: randomise(edges, layers=["1"])(small, edges(None, X), X)),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_a_layer_that_cannot_reset_itself_gets_normal_weights_of_its_own_size():
    before = 5 + 0.1 * data(100, 100, seed=5)
    layer, again = (nn.ParameterList([before.clone(), torch.ones(3)]) for _ in range(2))
    redraw(layer, 3)
    redraw(again, 3)
    weight, one = (parameter.detach() for parameter in layer)
    assert not torch.equal(weight, before) and torch.equal(weight, again[0])
    assert float(weight.mean()) == pytest.approx(float(before.mean()), rel=1e-2)
    assert float(weight.std()) == pytest.approx(float(before.std()), rel=0.05)
    assert torch.equal(one, torch.ones(3))


def test_ranks_of_ties_are_their_mean_and_their_correlation_is_spearmans():
    values = torch.tensor([[3.0, 1.0, 3.0, -2.0], [0.0, -0.0, 0.0, 1.0]])
    assert torch.equal(midranks(values) / 2, torch.tensor(stats.rankdata(values.numpy(), axis=1)).float())
    one, other = (data(20, 9, seed=seed).mul(3).round() for seed in (6, 7))
    truth = [stats.spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)]
    torch.testing.assert_close(pearson(midranks(one), midranks(other)), torch.tensor(truth, dtype=torch.float64))
    assert pearson(midranks(torch.full((1, 7), 0.1)), midranks(one[:1, :7])).isnan().all()
