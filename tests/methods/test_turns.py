"""Turns beside a replica, its limits, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2._engine.integrate import integrate
from ig2.errors import InputError
from ig2.paths.inturn import GivenTurns
from ig2.references import Weighted
from ig2.task import open_task
from networks import data, refuses


def tanh_net(features: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()


X, REFERENCES, TARGET = data(3, 6), data(2, 6, seed=1), [1, 2, 0]


def contribute(net: nn.Sequential, near: np.ndarray, far: np.ndarray, target: int) -> np.ndarray:
    """The secant multipliers of one segment times how far each feature moved, with the slopes of tanh written out."""
    inner, outer = net[0].weight.detach().numpy(), net[2].weight.detach().numpy()
    bias = net[0].bias.detach().numpy()
    a, b = inner @ near + bias, inner @ far + bias
    slope = np.where(a == b, 1 - np.tanh(a) ** 2, (np.tanh(a) - np.tanh(b)) / np.where(a == b, 1, a - b))
    return (outer[target] * slope) @ inner * (near - far)


def replicate(net: nn.Sequential, row: int, labels: list[int], turns: int, orders: int, weights: list[float]) -> np.ndarray:
    """The definition, path after path."""
    x, count = X[row].numpy(), max(labels) + 1
    pairs = max(orders // 2, len(REFERENCES))
    drawn = -(-pairs // 2)
    with open_task(ig2.wrap(net), X, label="Turns") as task:
        keys = torch.rand(count, drawn, generator=task.generator(), dtype=torch.float64).T.numpy()
    found, shares = [], []
    for pair in range(pairs):
        if pair < drawn:
            key = keys[pair]
        else:
            mean = np.average(found, axis=0, weights=shares)
            key = np.array([sum(v for v, label in zip(mean, labels, strict=True) if label == g) for g in range(count)])
        order = sorted(range(count), key=lambda group: key[group])
        for ordered in (order, order[::-1]):
            block = {group: turns * rank // count for rank, group in enumerate(ordered)}
            point, values = x.copy(), np.zeros_like(x)
            for turn in range(turns):
                after = point.copy()
                for i, label in enumerate(labels):
                    if block[label] == turn:
                        after[i] = REFERENCES[pair % len(REFERENCES)][i]
                values += contribute(net, point, after, TARGET[row])
                point = after
            found.append(values)
            taken = sum(other % len(REFERENCES) == pair % len(REFERENCES) for other in range(pairs))
            shares.append(weights[pair % len(REFERENCES)] / taken)
    return np.average(found, axis=0, weights=shares)


@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.2, 0.8], [1.0, 0.0]])
@pytest.mark.parametrize(("labels", "turns", "orders"), [([0, 1, 2, 3, 4, 5], 4, 10), ([0, 0, 1, 2, 2, 2], 2, 8)])
def test_turns_are_those_of_the_definition(labels: list[int], turns: int, orders: int, weights: list[float]) -> None:
    net = tanh_net()
    references = REFERENCES if weights == [1.0, 1.0] else Weighted(REFERENCES, torch.tensor([weights] * 3))
    method = ig2.Turns(turns, orders, torch.tensor(labels))
    attribution = method(net, X, TARGET, references)
    for row in range(3):
        np.testing.assert_allclose(attribution.values[row], replicate(net, row, labels, turns, orders, weights), atol=1e-11)
    assert float(attribution.relative_residual.max()) < 1e-10
    assert attribution.settings["complete"]


THREE = data(3, 6, seed=2)


@pytest.mark.parametrize("orders", [4, 8, 20])  # 2, 4 and 10 pairs, which three references cannot share evenly
@pytest.mark.parametrize("references", [REFERENCES, THREE, Weighted(THREE, [0.5, 0.3, 0.2])])
def test_one_turn_is_deepshap(references: Tensor | Weighted, orders: int) -> None:
    one, shap = (method(tanh_net(), X, TARGET, references) for method in (ig2.Turns(1, orders), ig2.DeepSHAP()))
    torch.testing.assert_close(one.values, shap.values)
    torch.testing.assert_close(one.baseline_output, shap.baseline_output)


@pytest.mark.parametrize("references", [THREE, Weighted(THREE, [0.5, 0.3, 0.2]), Weighted(THREE, [0.0, 0.0, 1.0])])
def test_several_turns_go_to_the_same_mean_of_references(references: Tensor | Weighted) -> None:
    several, shap = (method(tanh_net(), X, TARGET, references) for method in (ig2.Turns(3, 8), ig2.DeepSHAP()))
    torch.testing.assert_close(several.values.sum(dim=1), shap.values.sum(dim=1))


def test_the_mean_over_all_orders_is_the_shapley_value() -> None:
    net, x, orders = tanh_net(3), X[:1, :3], list(permutations(range(3)))

    def output(members: set[int]) -> float:
        point = torch.tensor([[x[0, i] if i in members else 0.0 for i in range(3)]], dtype=torch.float64)
        return float(net(point)[0, 1].detach())

    shapley = np.zeros(3)
    for order in orders:
        for place, feature in enumerate(order):
            before = set(order[:place])
            shapley[feature] += (output(before | {feature}) - output(before)) / 6
    with open_task(ig2.wrap(net), x, 1, label="orders") as task:
        path = GivenTurns(torch.arange(3)[None], torch.tensor([orders]), 3)
        every = integrate(task, path, ig2.rules.secant, torch.zeros(1, len(orders), 3, dtype=torch.float64))
    np.testing.assert_allclose(every.values[0], shapley, atol=1e-12)
    near = ig2.Turns(3, 2000)(net, x, 1, seed=1).values[0].numpy()  # half of its orders are chosen
    assert np.abs(near - shapley).max() < 0.05 * np.abs(shapley).max()


def test_chosen_orders_lead_away_from_the_shapley_value() -> None:
    """As the docs say: three factors do the same, and one of them gets more."""
    for orders, shares in ((20, [6, 6, 12]), (2000, [7, 7, 10])):
        values = ig2.Turns(3, orders)(lambda x: x.prod(dim=1), torch.tensor([[2.0, 3.0, 4.0]])).values
        assert values[0].sort().values.round().tolist() == shares


def test_fewer_groups_than_turns_take_one_each() -> None:
    few = ig2.Turns(50, 4)(tanh_net(), X, TARGET, REFERENCES)
    torch.testing.assert_close(few.values, ig2.Turns(6, 4)(tanh_net(), X, TARGET, REFERENCES).values)


def test_explicands_with_fewer_groups_are_explained_as_if_alone() -> None:
    groups = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0]])
    together = ig2.Turns(6, 8, groups)(tanh_net(), X, TARGET, REFERENCES)
    assert float(together.relative_residual.max()) < 1e-10
    torch.testing.assert_close(together.values[1:2], ig2.Turns(6, 8)(tanh_net(), X[1:2], TARGET[1], REFERENCES).values)


def test_an_estimate_is_of_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = ig2.PathMethod(ig2.paths.Straight(4), 0, ig2.rules.secant).estimate(tanh_net(), X)
    monkeypatch.setattr(ig2.PathMethod, "estimate", lambda self, *_, **__: replace(cost, seconds=float(self.path.segments)))
    assert ig2.Turns(4, 10).estimate(tanh_net(), X, target=1).seconds == 40


def test_padding_has_no_turn() -> None:
    """A sentence that is filled up beside a longer one is explained as if alone."""
    words = torch.tensor([[0, 0, 1, 2, -1, -1], [0, 1, 2, 3, 4, 5]])
    x, reference = X[:2].clone(), REFERENCES[:1].clone()
    x[0, 4:] = reference[:, 4:] = 0
    for turns in (2, 6):
        padded = ig2.Turns(turns, 8, words)(tanh_net(), x, TARGET[:2], reference)
        alone = ig2.Turns(turns, 8, torch.tensor([0, 0, 1, 2, 2, 2]))(tanh_net(), x[:1], TARGET[0], reference)
        torch.testing.assert_close(padded.values[:1], alone.values)


@pytest.mark.parametrize("groups", [[-1, -1, 0, 0, 1, 2], [-1, -2, 0, 0, 0, 0], [-1] * 6])
def test_what_is_in_no_group_is_accounted_for(groups: list[int]) -> None:
    attribution = ig2.Turns(6, 8, torch.tensor(groups))(tanh_net(), X, TARGET, REFERENCES)
    assert float(attribution.relative_residual.max()) < 1e-10
    assert (attribution.values != 0).all()


def test_batches_change_nothing() -> None:
    whole = ig2.Turns(4, 8)(tanh_net(), X, TARGET, REFERENCES).values
    torch.testing.assert_close(whole, ig2.Turns(4, 8)(tanh_net(), X, TARGET, REFERENCES, batch_size=3).values)
    torch.testing.assert_close(whole[2:], ig2.Turns(4, 8)(tanh_net(), X[2:], TARGET[2], REFERENCES).values)


def test_places_of_a_picture_move_with_their_channels() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 30 * 30, 2)).double().eval()
    x = data(1, 2, 32, 32)
    by_default = ig2.Turns(3, 4)(net, x, 0)
    torch.testing.assert_close(by_default.values, ig2.Turns(3, 4, ig2.Grid(28, 28))(net, x, 0).values)
    assert float(by_default.relative_residual) < 1e-9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"turns": 0}, "turns"),
        ({"orders": 5}, "got 5, give 6"),
        ({"groups": "words"}, "groups must be"),
    ],
)
def test_what_it_refuses(settings: dict[str, object], message: str) -> None:
    refuses(InputError, message, lambda: ig2.Turns(**settings))  # type: ignore[arg-type]


def test_the_path_between_two_blocks_is_a_vertex() -> None:
    """The network sees the features that have moved as the reference has them, the others untouched."""
    seen: list[Tensor] = []

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach())
            return x.sum(dim=1)

    ig2.Turns(2, 2)(Watched(), X, references=REFERENCES[:1])
    for points in seen:  # when the network is opened, one is a step of 1e-8 away from the first
        untouched = points[:, None].isclose(X[None]) | (points[:, None] == REFERENCES[:1])
        assert untouched.all(dim=2).any(dim=1).all()
