"""Shapley values: permutations by hand, closed forms, SHAP's exact explainer; and GT-Shapley."""

from itertools import permutations

import numpy as np
import pytest
import shap
import torch

import ig2
from ig2.errors import IG2Warning, InputError
from ig2.methods.random import Random
from ig2.metrics.conditional import ConstantFill, Marginal
from ig2.metrics.gaussian import Gaussian
from ig2.metrics.shapley import GTShapley, coalition_worth, coalitions, conditional_shapley, shapley_values
from networks import data, tanh_mlp

NET = tanh_mlp(4, classes=2)
X = data(6, 4, seed=1, low=-2, high=2)
DATA = data(11, 4, seed=2)
VALUES = data(6, 4, seed=3)
BACKGROUND = Marginal(DATA)
WEIGHTS = torch.tensor([3.0, -1.0, 0.5, 2.0], dtype=torch.float64)


def linear(x):
    return x @ WEIGHTS


def parts(x):
    """What each feature brings to an additive model."""
    return torch.stack([x[:, 0] ** 2, torch.sin(3 * x[:, 1]), -x[:, 2], torch.exp(x[:, 3])], dim=1)


def additive(x):
    return parts(x).sum(dim=1)


def slow_shapley(worth, d):
    """The mean over all orders of what a player adds when it comes."""
    values = np.zeros(d)
    orders = list(permutations(range(d)))
    for order in orders:
        here = 0
        for player in order:
            values[player] += (worth[here | 1 << player] - worth[here]) / len(orders)
            here |= 1 << player
    return values


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_shapley_values_are_means_over_all_orders(d):
    worth = data(3, 2, 2**d, seed=d)
    values = shapley_values(worth)
    assert values.shape == (3, 2, d)
    for i, j in np.ndindex(3, 2):
        assert np.allclose(values[i, j], slow_shapley(worth[i, j].numpy(), d), atol=1e-14)


def test_shapley_values_share_out_the_whole_and_keep_their_digits():
    worth = data(5, 2**8)
    assert torch.allclose(shapley_values(worth).sum(dim=1), worth[:, -1] - worth[:, 0], atol=1e-13)
    digits = (worth * 1024).round() / 1024
    assert torch.allclose(shapley_values(digits + 2.0**40), shapley_values(digits), rtol=0, atol=1e-14)
    assert shapley_values(worth.float()).dtype == torch.float64


def test_a_dummy_gets_nothing_and_twins_the_same():
    assert coalitions(2).tolist() == [[False, False], [True, False], [False, True], [True, True]]  # numbered by their bits
    members = coalitions(4).double()
    worth = members[:, 0] * members[:, 1] * 6 + members[:, 3]
    assert torch.allclose(shapley_values(worth), torch.tensor([3.0, 3.0, 0.0, 1.0], dtype=torch.float64))
    for wrong in (torch.zeros(6), torch.zeros(3, 1), torch.tensor(1.0), [0.0, 1.0]):
        with pytest.raises(InputError, match="coalition of d players"):
            shapley_values(wrong)


def test_conditional_shapley_is_its_definition():
    target = NET(X).argmax(dim=1)
    found = conditional_shapley(NET, X, BACKGROUND, draws=11)
    for row, k, values in zip(X, target, found, strict=True):
        worth = []
        for coalition in range(16):
            total = 0.0
            for other in DATA:
                moved = torch.stack([row[j] if coalition >> j & 1 else other[j] for j in range(4)])
                total += float(NET(moved[None])[0, k].detach()) / len(DATA)
            worth.append(total)
        assert np.allclose(values, slow_shapley(worth, 4), atol=1e-12)
    other = conditional_shapley(NET, X, BACKGROUND, 0, draws=11)
    assert not torch.allclose(other, found)


def test_with_the_whole_background_it_is_shaps_exact_explainer_and_with_a_constant_kernelshap():
    masker = shap.maskers.Independent(DATA.numpy(), max_samples=len(DATA))
    explainer = shap.explainers.Exact(lambda samples: NET(torch.from_numpy(samples)).detach().numpy()[:, 1], masker)
    theirs = explainer(X.numpy()).values
    for draws, same in ((11, True), (22, True), (7, False)):
        found = conditional_shapley(NET, X, BACKGROUND, 1, draws=draws)
        assert np.allclose(found, theirs, atol=1e-8 if same else 1e-3) == same
    found = conditional_shapley(NET, X, ConstantFill(0.3), draws=1)
    assert torch.allclose(found, ig2.KernelSHAP()(NET, X, references=0.3).values, atol=1e-10)


def test_independent_gaussian_features_of_an_additive_model_in_closed_form():
    """Shapley values are gⱼ(xⱼ) − E gⱼ: here 1, 0, 0 and √e are the means."""
    means = torch.tensor([1.0, 0.0, 0.0, np.sqrt(np.e)], dtype=torch.float64)
    found = conditional_shapley(additive, X, Gaussian.correlated(4), draws=20000)
    assert torch.allclose(found, parts(X) - means, atol=0.05)


def test_gaussian_features_of_a_linear_model_in_closed_form():
    distribution = Gaussian.correlated(4, 0.6)
    worth = torch.stack([linear(distribution.expect(X, mask.expand(6, 4))) for mask in coalitions(4)], dim=1)
    found = conditional_shapley(linear, X, distribution, draws=20000)
    assert torch.allclose(found, shapley_values(worth), atol=0.05)
    assert not torch.allclose(found, WEIGHTS * X, atol=0.3)  # what it would be without the correlation
    # noise is shared: without correlation, values are exact but for the mean
    error = conditional_shapley(linear, X, Gaussian.correlated(4), draws=50) - WEIGHTS * X
    assert torch.allclose(error, error[:1].expand(6, 4), atol=1e-12)


def test_it_depends_neither_on_the_batch_nor_on_its_size_but_on_the_seed():
    def values(x, **options):
        return conditional_shapley(NET, x, Gaussian.correlated(4, 0.5), draws=40, **options)

    told = []
    found = values(X, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (6 * 16 * 40,) * 2
    assert torch.allclose(values(X[2:3]), found[2:3], atol=1e-12)
    assert torch.allclose(values(X, batch_size=3), found, atol=1e-12)
    assert not torch.allclose(values(X, seed=1), found, atol=1e-4)


def test_any_function_has_coalitions_worth_something_and_several_inputs_keep_their_structure():
    # a step has no gradient, so it cannot be explained; its coalitions can be tried all the same
    worth = coalition_worth(lambda points, of: (points[:, 0] > 0).double(), X, ConstantFill(-1.0), 1, 0)
    expected = (X > 0).double() * torch.tensor([1.0, 0, 0, 0])
    assert torch.allclose(shapley_values(worth), expected, atol=1e-15) and expected.any()
    net = lambda a, b: NET(torch.cat([a, b], dim=1))  # noqa: E731
    first, second = conditional_shapley(net, (X[:, :1], X[:, 1:]), BACKGROUND, draws=11)
    whole = conditional_shapley(NET, X, BACKGROUND, draws=11)
    assert torch.allclose(first, whole[:, :1]) and torch.allclose(second, whole[:, 1:])


@pytest.mark.parametrize(
    ("x", "conditional", "options", "message"),
    [
        (data(2, 17), ConstantFill(), {}, r"17 features have 2\^17"),
        (data(2, 2, 2), ConstantFill(), {}, "tabular"),
        (X, DATA, {}, "conditional must"),
        (X, BACKGROUND, {"draws": 0}, "draws"),
        (X, BACKGROUND, {"seed": 0.5}, "seed"),
    ],
)
def test_what_cannot_be_computed_is_refused(x, conditional, options, message):
    with pytest.raises(InputError, match=message):
        conditional_shapley(lambda x: x.flatten(1).sum(dim=1), x, conditional, **options)


def test_gt_shapley_is_the_correlation_with_the_truth():
    truth = conditional_shapley(NET, X, BACKGROUND, draws=11)
    expected = [np.corrcoef(phi, true)[0, 1] for phi, true in zip(VALUES.numpy(), truth.numpy(), strict=True)]
    given = GTShapley()(None, VALUES, truth=truth)
    for scores in (given, GTShapley(BACKGROUND, draws=11)(NET, VALUES, X)):
        assert scores.values.tolist() == pytest.approx(expected, rel=1e-10)
    assert given.better == "higher" and given.metric == "GT-Shapley"
    attribution = ig2.KernelSHAP()(NET, X)
    assert GTShapley()(None, attribution, truth=attribution).values.tolist() == pytest.approx([1.0] * 6)


def test_exact_shapley_values_of_an_additive_model_score_one_their_reverse_minus_one_and_chance_nothing():
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    metric, exact, one = GTShapley(ConstantFill(0.0), draws=1), parts(x) - parts(0 * x), torch.ones(300, dtype=torch.float64)
    assert torch.allclose(metric(additive, exact, x).values, one)
    assert torch.allclose(metric(additive, -exact, x).values, -one)
    assert torch.allclose(metric(additive, ig2.KernelSHAP()(additive, x)).values, one)
    chance = metric(additive, Random()(additive, x))
    assert abs(chance.mean) < 4 * chance.standard_error < 0.2
    assert metric(additive, ig2.IntegratedGradients(64)(additive, x)).mean > 0.999
    assert metric(additive, ig2.Gradient()(additive, x)).mean < 0.9


def test_what_is_constant_is_left_out_or_counted_as_published():
    truth = conditional_shapley(NET, X, BACKGROUND, draws=11)
    values = VALUES.clone()
    values[1] = -0.1
    truth[2] = 7.3
    with pytest.warns(IG2Warning, match="1 because all features have the same Shapley value"):
        scores = GTShapley()(None, values, truth=truth)
    assert scores.values.isnan().tolist() == [False, True, True, False, False, False]
    assert len(scores.undefined) == 2
    assert GTShapley(if_constant=0.0)(None, values, truth=truth).values[1:3].tolist() == [0, 0]
    even = lambda x: x.sum(dim=1) * 0 + 0.1  # noqa: E731
    with pytest.warns(IG2Warning, match="6 because all features have the same Shapley value"):
        assert GTShapley(BACKGROUND, draws=3)(even, VALUES, X).n == 0


@pytest.mark.parametrize(
    ("settings", "truth", "message"),
    [
        ({}, None, "truth=the true Shapley values"),
        ({}, torch.zeros(6, 3), "they must be equal"),
        ({}, VALUES / 0, "NaN"),
        ({"conditional": BACKGROUND}, VALUES, "compares with no truth"),
        ({"conditional": DATA}, None, "conditional must"),
        ({"conditional": BACKGROUND, "draws": 2.5}, None, "draws"),
        ({"if_constant": "0"}, None, "if_constant"),
    ],
)
def test_gt_shapley_needs_a_truth_of_the_right_shape(settings, truth, message):
    with pytest.raises(InputError, match=message):
        GTShapley(**settings)(NET, VALUES, X, truth=truth)
    assert GTShapley().runs_model is False and GTShapley(BACKGROUND).runs_model is True
