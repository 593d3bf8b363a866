"""ROAR: a slow replica, its ends, and one retraining for all."""

import math

import numpy as np
import pytest
import torch

import ig2
from ig2.errors import InputError, ModelError
from ig2.methods.simple import Random
from ig2.metrics.conditional import ConstantFill
from ig2.metrics.gaussian import Gaussian
from ig2.metrics.roar import ROAR, train_one_by_one
from networks import data

GAUSSIAN = Gaussian.correlated(5)
WEIGHTS = torch.tensor([3.0, -1.0, 0.5, 2.0, -0.25], dtype=torch.float64)
CUTOFFS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)


def regression(x, y, seed):
    """K least squares with an intercept, solved at once."""
    inside = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
    solution = torch.linalg.lstsq(inside, y[..., None]).solution
    return lambda some: (torch.cat([some, torch.ones_like(some[..., :1])], dim=-1) @ solution)[..., 0]


def mean(x, y, seed):
    """One model, which knows the mean of its labels."""
    return lambda some: y.mean().expand(len(some))


def samples(count, seed):
    x = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, x @ WEIGHTS


TRAIN, TEST = samples(400, 1), samples(100, 2)


def scored(attribute, metric=None, seed=0):
    return (metric or ROAR(regression, GAUSSIAN))((*TRAIN, attribute(TRAIN[0])), (*TEST, attribute(TEST[0])), seed=seed)


def test_roar_with_constants_is_its_definition():
    value = 0.7
    values, test_values = data(400, 5, seed=3), data(100, 5, seed=4)
    scores = ROAR(regression, ConstantFill(value))((*TRAIN, values), (*TEST, test_values))

    def without(x, phi, count):
        x = x.numpy().copy()
        for row, mine in zip(x, phi.numpy(), strict=True):
            row[np.argsort(-np.abs(mine))[:count]] = value
        return x

    curves = np.zeros((100, 6))
    for place, count in enumerate([0, 0, 1, 2, 3, 4]):
        inside, outside = without(TRAIN[0], values, count), without(TEST[0], test_values, count)
        solution = np.linalg.lstsq(np.c_[inside, np.ones(400)], TRAIN[1].numpy(), rcond=None)[0]
        curves[:, place] = np.abs(np.c_[outside, np.ones(100)] @ solution - TEST[1].numpy())
    assert np.allclose(scores.curves, curves, atol=1e-10)
    assert torch.allclose(scores.at, torch.tensor(CUTOFFS, dtype=torch.float64))
    area = sum((curves[:, k] + curves[:, k + 1]) / 2 * (CUTOFFS[k + 1] - CUTOFFS[k]) for k in range(5))
    assert np.allclose(scores.values, area, atol=1e-10)
    assert scores.better == "higher" and scores.n == 100
    assert scores.settings["retrain"] == "regression" and scores.settings["cutoffs"] == list(CUTOFFS)


def test_removing_what_matters_hurts_more_than_chance_and_that_more_than_the_reverse():
    truth = scored(lambda x: WEIGHTS * x).mean
    chance = scored(lambda x: Random()(lambda x: x @ WEIGHTS, x)).mean
    reverse = scored(lambda x: 1 / (WEIGHTS * x)).mean
    assert truth > 1.2 * chance and chance > 1.2 * reverse


def test_nothing_is_lost_at_cutoff_zero_and_the_error_is_that_of_the_features_lost_after():
    """Of independent features, what a removed one contributed is lost and nothing else is."""
    curves = scored(lambda x: WEIGHTS.expand_as(x)).curves
    assert curves[:, :2].max() < 1e-10
    lost = (TEST[0] * WEIGHTS)[:, [0]].abs().mean()
    assert float(curves[:, 2].mean()) == pytest.approx(float(lost), rel=0.05)


def test_replacements_are_drawn_for_each_sample_and_differ_between_training_and_test():
    seen = {}

    def spy(x, y, seed):
        seen["train"], seen["labels"], seen["seed"] = x, y, seed

        def predict(some):
            seen["test"] = some
            return torch.zeros(some.shape[:2])

        return predict

    scored(lambda x: WEIGHTS.expand_as(x), ROAR(spy, GAUSSIAN), seed=3)
    train, test = seen["train"], seen["test"]
    assert train.shape == (5, 400, 5) and test.shape == (5, 100, 5)  # cutoffs 0 and 0.1 share a model
    assert torch.equal(seen["labels"], TRAIN[1].expand(5, 400)) and seen["seed"] == 3
    order = [0, 3, 1, 2, 4]
    for count in range(5):
        changed = (train[count] != TRAIN[0]).any(dim=0)
        assert changed.nonzero()[:, 0].tolist() == sorted(order[:count])
    drawn, test_drawn = train[1][:, 0], test[1][:, 0]
    assert len(drawn.unique()) == 400
    assert not set(drawn.tolist()) & set(test_drawn.tolist())
    assert abs(float(drawn.mean())) < 0.2 and abs(float(drawn.std()) - 1) < 0.15
    scored(lambda x: WEIGHTS.expand_as(x), ROAR(spy, GAUSSIAN), seed=4)
    assert not torch.equal(seen["train"], train) and not torch.equal(seen["test"], test)


def test_correlated_features_are_drawn_given_those_that_stay():
    strong = Gaussian.correlated(5, 0.95)
    x = strong.sample(400, torch.Generator().manual_seed(0))
    seen = {}

    def spy(x, y, seed):
        seen["train"] = x
        return lambda some: torch.zeros(some.shape[:2])

    values = WEIGHTS.expand_as(x)
    ROAR(spy, strong)((x, x @ WEIGHTS, values), (x, x @ WEIGHTS, values))
    drawn = seen["train"][1][:, 0]
    assert float(torch.corrcoef(torch.stack([drawn, x[:, 1]]))[0, 1]) > 0.85


def test_several_methods_in_one_retraining_score_as_alone():
    calls = []

    def counted(x, y, seed):
        calls.append(len(x))
        return regression(x, y, seed)

    metric = ROAR(counted, GAUSSIAN)
    attributions = {name: (data(400, 5, seed=k), data(100, 5, seed=k + 10)) for k, name in enumerate(["one", "two", "three"])}
    together = metric.compare(
        (*TRAIN, {name: pair[0] for name, pair in attributions.items()}),
        (*TEST, {name: pair[1] for name, pair in reversed(attributions.items())}),
        seed=7,
    )
    assert calls == [15] and list(together) == list(attributions)
    for name, (train, test) in attributions.items():
        alone = metric((*TRAIN, train), (*TEST, test), seed=7)
        assert torch.allclose(together[name].values, alone.values, atol=1e-10)
    assert not torch.allclose(together["one"].values, together["two"].values)


def test_a_function_that_trains_one_model():
    def one(x, y, seed):
        predict = regression(x[None], y[None], seed)
        return lambda some: predict(some[None])[0]

    values = data(400, 5, seed=3), data(100, 5, seed=4)
    alone = ROAR(train_one_by_one(one), GAUSSIAN)((*TRAIN, values[0]), (*TEST, values[1]))
    at_once = ROAR(regression, GAUSSIAN)((*TRAIN, values[0]), (*TEST, values[1]))
    assert torch.allclose(alone.values, at_once.values, atol=1e-10)
    assert alone.settings["retrain"] == "one"
    # a model that knows the mean alone is equally wrong whatever was removed
    level = ROAR(train_one_by_one(mean), GAUSSIAN)((*TRAIN, values[0]), (*TEST, values[1]))
    assert torch.allclose(level.values, 0.9 * (TEST[1] - TRAIN[1].mean()).abs())


def test_attributions_of_a_method_and_labels_of_integers():
    net = lambda x: x @ WEIGHTS  # noqa: E731
    train, test = (ig2.IntegratedGradients(4)(net, x) for x in (TRAIN[0], TEST[0]))
    found = ROAR(regression, GAUSSIAN)((*TRAIN, train), (*TEST, test))
    plain = ROAR(regression, GAUSSIAN)((*TRAIN, train.values), (*TEST, test.values))
    assert torch.allclose(found.values, plain.values, atol=1e-10)
    labels = (TRAIN[1] > 0).long(), (TEST[1] > 0).long()
    binary = ROAR(lambda x, y, seed: regression(x, y.double(), seed), GAUSSIAN)(
        (TRAIN[0], labels[0], train), (TEST[0], labels[1], test)
    )
    assert 0 < binary.mean < 0.9


def test_ties_are_broken_by_the_seed():
    same = [scored(torch.ones_like, seed=seed).mean for seed in (0, 0, 1)]
    assert same[0] == pytest.approx(same[1], rel=1e-12)
    assert same[0] != pytest.approx(same[2], rel=1e-3)


def test_cutoffs_are_not_lost_to_rounding():
    seen = []

    def spy(x, y, seed):
        seen.append([int((x[k] == 9).sum(dim=1)[0]) for k in range(len(x))])
        return lambda some: torch.zeros(some.shape[:2])

    x = data(3, 100)
    ROAR(spy, ConstantFill(9.0), cutoffs=(0.0, 0.29, 0.57, 1.0))((x, x[:, 0], x), (x, x[:, 0], x))
    assert seen == [[0, 29, 57, 100]]


def test_what_cannot_be_used_is_refused():
    values, test_values = data(400, 5, seed=3), data(100, 5, seed=4)
    train, test = (*TRAIN, values), (*TEST, test_values)
    metric = ROAR(regression, GAUSSIAN)
    for wrong in ((0.5,), (0.5, 0.2), (0, 1.5), ("a", "b")):
        with pytest.raises(InputError, match="cutoffs"):
            ROAR(regression, GAUSSIAN, wrong)
    with pytest.raises(InputError, match="retrain"):
        ROAR(None, GAUSSIAN)
    with pytest.raises(InputError, match="conditional"):
        ROAR(regression, TRAIN[0])
    with pytest.raises(InputError, match="train must be"):
        metric(TRAIN, test)
    with pytest.raises(InputError, match="test's labels"):
        metric(train, (TEST[0], TEST[1][:5], test_values))
    with pytest.raises(InputError, match="train's attribution is"):
        metric((*TRAIN, values[:, :2]), test)
    with pytest.raises(InputError, match="NaN"):
        metric((*TRAIN, values * math.nan), test)
    with pytest.raises(InputError, match="tabular"):
        metric((TRAIN[0][:, None], TRAIN[1], values), test)
    with pytest.raises(InputError, match="the same features"):
        metric(train, (TEST[0][:, :4], TEST[1], test_values[:, :4]))
    with pytest.raises(InputError, match="train has attributions of a, test of b"):
        metric.compare((*TRAIN, {"a": values}), (*TEST, {"b": test_values}))
    with pytest.raises(InputError, match="no method"):
        metric.compare((*TRAIN, {}), (*TEST, {}))
    with pytest.raises(InputError, match="by its name"):
        metric.compare(train, test)
    with pytest.raises(InputError, match="seed"):
        metric(train, test, seed="a")
    with pytest.raises(InputError, match=r"expected \(5, 100\).*train_one_by_one"):
        ROAR(lambda x, y, seed: lambda some: torch.zeros(100), GAUSSIAN)(train, test)
    broken = torch.zeros(5, 100)
    broken[2] = math.nan
    with pytest.raises(ModelError, match="without 2 features"):
        ROAR(lambda x, y, seed: lambda some: broken, GAUSSIAN)(train, test)
