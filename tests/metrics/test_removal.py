"""DiffID, IDSDS and sensitivity-n against loops, with cases in which each must be high, low and not defined."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

import ig2
from ig2.errors import IG2Warning, InputError, ModelError
from ig2.metrics import IDSDS, DiffID, SensitivityN
from networks import data, refuses, relu_cnn, relu_mlp, uniform

NETWORK, X, VALUES = relu_cnn(channels=2), uniform(3, 2, 8, 8), data(3, 2, 8, 8, seed=4)


def fill_mean(image: Tensor) -> Tensor:
    return image.mean(dim=(1, 2), keepdim=True).expand_as(image)


# -- DiffID ------------------------------------------------------------------------------------------------------------


def diffid(net: nn.Module, x: Tensor, values: Tensor, target: int, probability: bool) -> float:
    """Share by share, in one order and the reverse."""
    order = values.sum(dim=0).flatten().argsort(descending=True).tolist()
    total, size = 0.0, len(order)
    for share in range(1, 10):
        count = int(share * size / 10 + 0.5)
        results = []
        for first in (order[::-1][:count], order[:count]):
            changed = x.clone()
            for pixel in first:
                changed[:, pixel // 8, pixel % 8] = fill_mean(x)[:, pixel // 8, pixel % 8]
            scores = net(changed[None])[0]
            results.append(float(scores.softmax(0)[target].detach() if probability else scores.argmax() == target))
        total += results[0] - results[1]
    return total / 9


@pytest.mark.parametrize("probability", [False, True])
def test_diffid_is_the_mean_difference_of_the_two_orders(probability):
    # a network whose decisions change, at the mean of its logits
    net = nn.Sequential(NETWORK, nn.Linear(4, 4, dtype=torch.float64)).eval()
    with torch.no_grad():
        net[1].weight.copy_(200 * torch.eye(4))
        net[1].bias.copy_(-200 * NETWORK(X).mean(dim=0))
    target = net(X).argmax(dim=1)
    measure = "output" if probability else "accuracy"
    scores = DiffID(measure=measure)(net, VALUES, X)
    expected = [diffid(net, X[i], VALUES[i], int(target[i]), probability) for i in range(3)]
    assert np.allclose(scores.values, expected, atol=1e-12) and np.abs(expected).max() > 0.05
    assert torch.allclose(DiffID(measure=measure)(net, -VALUES, X).values, -scores.values, atol=1e-12)


def bright(x: Tensor) -> Tensor:
    """Two classes: the left half is bright, or it is not."""
    left = x[:, :, :, :4].mean(dim=(1, 2, 3))
    return torch.stack([left, torch.full_like(left, 0.6)], dim=1)


def test_diffid_is_one_for_the_right_features_and_minus_one_for_the_wrong():
    x = torch.ones(1, 1, 8, 8, dtype=torch.float64)
    right = torch.zeros_like(x)
    right[..., :4] = 1
    right += torch.linspace(0, 0.1, 64, dtype=torch.float64).view(8, 8)
    metric = DiffID("black", thresholds=2)  # half of the pixels: the left, or the right
    assert metric(bright, right, x).values.tolist() == [1.0]
    assert metric(bright, -right, x).values.tolist() == [-1.0]
    constant = [float(DiffID("black")(bright, torch.ones_like(x), x, seed=seed).values) for seed in range(20)]
    assert abs(np.mean(constant)) < 0.2 and min(constant) < 0 < max(constant)


def test_diffid_refuses_what_has_no_class_and_a_network_that_fails():
    refuses(InputError, "measure='output'", lambda: DiffID("black")(lambda x: x.sum(dim=1), data(2, 4), data(2, 4)))
    refuses(InputError, "thresholds", lambda: DiffID(thresholds=1))
    refuses(InputError, "measure", lambda: DiffID(measure="logit"))

    def fails(x: Tensor) -> Tensor:
        return torch.stack([x.sum(dim=1), x.prod(dim=1).log()], dim=1)

    refuses(ModelError, "explicand 0", lambda: DiffID("black")(fails, uniform(2, 4), uniform(2, 4), 1))


# -- IDSDS -------------------------------------------------------------------------------------------------------------


def test_idsds_is_spearmans_correlation_of_sums_and_falls():
    scores = IDSDS(grid=(4, 2))(NETWORK, VALUES, X, 1)
    for i in range(3):
        sums, falls = [], []
        for row in range(4):
            for column in range(2):
                patch = slice(2 * row, 2 * row + 2), slice(4 * column, 4 * column + 4)
                changed = X[i].clone()
                changed[(slice(None), *patch)] = fill_mean(X[i])[(slice(None), *patch)]
                sums.append(float(VALUES[i][(slice(None), *patch)].sum()))
                falls.append((NETWORK(X[i : i + 1])[0, 1] - NETWORK(changed[None])[0, 1]).item())
        assert float(scores.values[i]) == pytest.approx(scipy.stats.spearmanr(sums, falls).statistic, abs=1e-12)


def test_idsds_of_occlusion_is_one_and_of_its_reverse_minus_one():
    background = X.mean(dim=(2, 3), keepdim=True).expand_as(X)[:, None]
    patches = ig2.Occlusion(groups=ig2.Grid(4, 4))(NETWORK, X, references=background)
    assert IDSDS()(NETWORK, patches).values.tolist() == pytest.approx([1.0] * 3)
    assert IDSDS()(NETWORK, -patches.values, X).values.tolist() == pytest.approx([-1.0] * 3)
    noise = IDSDS()(relu_cnn(), ig2.Random()(relu_cnn(), data(60, 2, 8, 8)))
    assert abs(noise.mean) < 4 * noise.standard_error and noise.standard_error < 0.05


def test_idsds_shares_ranks_of_ties_and_has_none_for_constants():
    x = torch.tensor([3.0, 3.0, 1.0, 0.0]).view(1, 1, 2, 2)
    metric = IDSDS("black", grid=(2, 2))
    values = torch.tensor([5.0, 2.0, 2.0, 0.0]).view(1, 1, 2, 2)
    expected = scipy.stats.spearmanr([5, 2, 2, 0], [3, 3, 1, 0]).statistic
    assert float(metric(lambda x: x.flatten(1).sum(1), values, x).values) == pytest.approx(expected)
    with pytest.warns(IG2Warning, match="same for all features"):
        assert metric(lambda x: x.flatten(1).sum(1), torch.ones_like(x), x).undefined
    with pytest.warns(IG2Warning, match="changes alike"):
        assert metric(lambda x: x.flatten(1).sum(1), values, torch.ones_like(x)).n == 0
    refuses(InputError, "grid", lambda: IDSDS(grid=(1, 1)))
    refuses(InputError, "grid", lambda: IDSDS(grid=4))
    refuses(InputError, "cells", lambda: metric.__class__(grid=(9, 9))(NETWORK, VALUES, X))


# -- sensitivity-n -----------------------------------------------------------------------------------------------------


def test_sensitivity_n_is_the_mean_correlation_over_random_sets():
    net, x, values = relu_mlp(), data(3, 6), data(3, 6, seed=5)
    scores = SensitivityN("black", shares=(0.3, 0.5), draws=15)(net, values, x, 1, seed=8)
    order = torch.rand(15, 6, generator=torch.Generator().manual_seed(8), dtype=torch.float64).argsort(dim=1).tolist()
    for i in range(3):
        curve = []
        for n in (2, 3):
            sums, falls = [], []
            for row in order:
                changed = x[i].clone()
                changed[row[:n]] = 0
                sums.append(float(values[i, row[:n]].sum()))
                falls.append((net(x[i : i + 1])[0, 1] - net(changed[None])[0, 1]).item())
            curve.append(scipy.stats.pearsonr(sums, falls).statistic)
        assert np.allclose(scores.curves[i], curve, atol=1e-12)
        assert float(scores.values[i]) == pytest.approx(np.mean(curve), abs=1e-12)
    assert scores.at.tolist() == [0.3, 0.5]


def test_sensitivity_n_is_one_for_the_terms_of_a_sum_and_minus_one_for_their_reverse():
    x, weights = data(4, 1, 8, 8), data(1, 8, 8, seed=9)
    for features in ("pixel", ig2.Grid(4, 4)):
        metric = SensitivityN(features=features, draws=20)
        assert metric(lambda x: (x * weights).flatten(1).sum(1), x * weights, x).values.tolist() == pytest.approx([1.0] * 4)
        assert metric(lambda x: (x * weights).flatten(1).sum(1), -x * weights, x).values.tolist() == pytest.approx([-1.0] * 4)
    noise = SensitivityN(draws=20)(NETWORK, ig2.Random()(NETWORK, uniform(60, 2, 8, 8)))
    assert abs(noise.mean) < 4 * noise.standard_error and noise.standard_error < 0.05


@pytest.mark.parametrize("count", [2, 3, 5])
def test_sensitivity_n_removes_neither_nothing_nor_everything(count):
    x, removed = data(2, count), set()

    def spy(points):
        removed.update((points == 0).sum(dim=1).tolist())
        return points.sum(dim=1)

    scores = SensitivityN(shares=(0.01, 0.5, 0.99), draws=20)(spy, x, x)
    assert min(removed - {0}) == 1 and max(removed) == count - 1
    assert torch.allclose(scores.curves, torch.ones(2, 3).double())


def test_sensitivity_n_leaves_fixed_features_and_is_not_defined_for_constants():
    x = data(2, 4)
    fixed = ig2.Fixed(x, torch.tensor([[False, False, True, True], [False, False, False, True]]))
    seen = []

    def spy(x: Tensor) -> Tensor:
        seen.append(x.detach().clone())
        return x.sum(dim=1)

    model = ig2.wrap(spy, representation="output")
    scores = SensitivityN(shares=(0.4,), draws=12)(model, x, fixed, 0)
    assert scores.values.tolist() == pytest.approx([1.0, 1.0])
    assert all((point[3] == x[:, 3]).any() for batch in seen for point in batch)
    with pytest.warns(IG2Warning, match="same sum"):
        assert SensitivityN()(NETWORK, torch.ones_like(X), X).n == 0
    with pytest.warns(IG2Warning, match="alike"):
        assert SensitivityN()(lambda x: 0 * x[:, :1], data(2, 4), data(2, 4)).n == 0
    with pytest.warns(IG2Warning, match="same sum"):
        assert SensitivityN()(lambda x: x, data(2, 1), data(2, 1)).n == 0
    for settings in ({"draws": 1}, {"shares": (0.5, 1.0)}, {"shares": ()}, {"shares": 0.5}):
        refuses(InputError, next(iter(settings)), lambda settings=settings: SensitivityN(**settings))
    refuses(InputError, "word", lambda: SensitivityN()(lambda x: x.sum(dim=(1, 2)), data(2, 3, 4), data(2, 3, 4)))


@pytest.mark.parametrize("metric", [DiffID(measure="output"), IDSDS(), SensitivityN(draws=10)], ids=lambda metric: metric.name)
def test_scores_do_not_depend_on_the_batch_and_follow_the_seed_and_the_class_against(metric):
    scores = metric(NETWORK, VALUES, X, 1)
    for i in range(3):
        assert torch.allclose(metric(NETWORK, VALUES[i : i + 1], X[i : i + 1], 1).values, scores.values[i : i + 1], atol=1e-9)
    assert torch.allclose(metric(NETWORK, VALUES, X, 1, batch_size=5).values, scores.values, atol=1e-9)
    assert scores.values.equal(metric(NETWORK, VALUES, X, 1).values)
    if not isinstance(metric, DiffID):
        difference = ig2.wrap(lambda x: NETWORK(x)[:, 1] - NETWORK(x)[:, 2])
        against = metric(NETWORK, VALUES, X, 1, against=2).values
        assert torch.allclose(against, metric(difference, VALUES, X).values, atol=1e-9)
    if isinstance(metric, SensitivityN):
        assert not torch.allclose(metric(NETWORK, VALUES, X, 1, seed=1).values, scores.values)
    single = metric(relu_cnn(channels=2).float(), VALUES.float(), X.float(), 1).values
    assert torch.allclose(single.double(), scores.values.double(), atol=2e-2)
