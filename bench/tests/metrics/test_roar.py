"""ROAR: a slow replica, its ends, and one retraining for all."""

import math

import numpy as np
import pytest
import torch

import ig2
from ig2.errors import InputError, ModelError
from ig2.methods.random import Random
from ig2.metrics.conditional import ConstantFill, Marginal
from ig2.metrics.gaussian import Gaussian
from ig2_bench.metrics.roar import ROAR, replace_unknown, train_one_by_one
from networks import data

GAUSSIAN = Gaussian.correlated(5)
WEIGHTS = torch.tensor([3.0, -1.0, 0.5, 2.0, -0.25], dtype=torch.float64)
CUTOFFS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)


def regression(x, y, seed):
    """K least squares with an intercept, solved at once."""
    inside = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
    solution = torch.linalg.lstsq(inside, y[..., None]).solution
    return lambda some: (torch.cat([some, torch.ones_like(some[..., :1])], dim=-1) @ solution)[..., 0]


def samples(count, seed):
    x = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, x @ WEIGHTS


TRAIN, TEST = samples(400, 1), samples(100, 2)


def scored(attribute, metric=None, seed=0):
    return (metric or ROAR(regression, GAUSSIAN))((*TRAIN, attribute(TRAIN[0])), (*TEST, attribute(TEST[0])), seed=seed)


VALUES, TEST_VALUES = data(400, 5, seed=3), data(100, 5, seed=4)


class Spy:
    """Remembers what it was trained and tested on, and predicts nothing."""

    def __call__(self, x, y, seed):
        self.train, self.labels, self.seed = x, y, seed
        return self.predict

    def predict(self, samples):
        self.test = samples
        return torch.zeros(samples.shape[:2])


def test_roar_with_constants_is_its_definition():
    scores = ROAR(regression, ConstantFill(0.7))((*TRAIN, VALUES), (*TEST, TEST_VALUES))

    def without(x, phi, count):
        x = x.numpy().copy()
        for row, mine in zip(x, phi.numpy(), strict=True):
            row[np.argsort(-np.abs(mine))[:count]] = 0.7
        return x

    curves = np.zeros((100, 6))
    for place, count in enumerate([0, 0, 1, 2, 3, 4]):
        inside, outside = without(TRAIN[0], VALUES, count), without(TEST[0], TEST_VALUES, count)
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
    spy, other = Spy(), Spy()
    scored(WEIGHTS.expand_as, ROAR(spy, GAUSSIAN), seed=3)
    assert spy.train.shape == (5, 400, 5) and spy.test.shape == (5, 100, 5)  # cutoffs 0 and 0.1 share a model
    assert torch.equal(spy.labels, TRAIN[1].expand(5, 400)) and spy.seed == 3
    for count in range(5):
        changed = (spy.train[count] != TRAIN[0]).any(dim=0)
        assert changed.nonzero()[:, 0].tolist() == sorted([0, 3, 1, 2, 4][:count])
    drawn, test_drawn = spy.train[1][:, 0], spy.test[1][:, 0]
    assert len(drawn.unique()) == 400
    assert not set(drawn.tolist()) & set(test_drawn.tolist())
    assert abs(float(drawn.mean())) < 0.2 and abs(float(drawn.std()) - 1) < 0.15
    scored(WEIGHTS.expand_as, ROAR(other, GAUSSIAN), seed=4)
    assert not torch.equal(spy.train, other.train) and not torch.equal(spy.test, other.test)


def test_correlated_features_are_drawn_given_those_that_stay():
    strong, spy = Gaussian.correlated(5, 0.95), Spy()
    x = strong.sample(400, torch.Generator().manual_seed(0))
    ROAR(spy, strong)(*[(x, x @ WEIGHTS, WEIGHTS.expand_as(x))] * 2)
    assert float(torch.corrcoef(torch.stack([spy.train[1][:, 0], x[:, 1]]))[0, 1]) > 0.85


def test_cutoffs_are_not_lost_to_rounding():
    spy, x = Spy(), data(3, 100)
    ROAR(spy, ConstantFill(9.0), cutoffs=[0.0, 0.29, 0.57, 1.0])(*[(x, x[:, 0], x)] * 2)
    assert (spy.train == 9).sum(dim=2)[:, 0].tolist() == [0, 29, 57, 100]


def test_several_methods_in_one_retraining_score_as_alone():
    calls = []

    def counted(x, y, seed):
        calls.append(len(x))
        return regression(x, y, seed)

    metric, names = ROAR(counted, GAUSSIAN), ["one", "two", "three"]
    train, test = ({name: data(n, 5, seed=k + n) for k, name in enumerate(names)} for n in (400, 100))
    together = metric.compare((*TRAIN, train), (*TEST, dict(reversed(test.items()))), seed=7)
    assert calls == [15] and list(together) == names
    for name in names:
        alone = metric((*TRAIN, train[name]), (*TEST, test[name]), seed=7)
        assert torch.allclose(together[name].values, alone.values, atol=1e-10)
    assert not torch.allclose(together["one"].values, together["two"].values)


def test_a_function_that_trains_one_model():
    def one(x, y, seed):
        predict = regression(x[None], y[None], seed)
        return lambda some: predict(some[None])[0]

    def score(retrain):
        return ROAR(retrain, GAUSSIAN)((*TRAIN, VALUES), (*TEST, TEST_VALUES))

    alone = score(train_one_by_one(one))
    assert torch.allclose(alone.values, score(regression).values, atol=1e-10)
    assert alone.settings["retrain"] == "one"
    # a model that knows the mean alone is equally wrong whatever was removed
    level = score(train_one_by_one(lambda x, y, seed: lambda some: y.mean().expand(len(some))))
    assert torch.allclose(level.values, 0.9 * (TEST[1] - TRAIN[1].mean()).abs())


def test_attributions_of_a_method_and_labels_of_integers():
    train, test = (ig2.IntegratedGradients(4)(lambda x: x @ WEIGHTS, x) for x in (TRAIN[0], TEST[0]))
    found = ROAR(regression, GAUSSIAN)((*TRAIN, train), (*TEST, test))
    plain = ROAR(regression, GAUSSIAN)((*TRAIN, train.values), (*TEST, test.values))
    assert torch.allclose(found.values, plain.values, atol=1e-10)
    binary = ROAR(lambda x, y, seed: regression(x, y.double(), seed), GAUSSIAN)
    assert 0 < binary(*((x, (y > 0).long(), a) for (x, y), a in ((TRAIN, train), (TEST, test)))).mean < 0.9


def test_ties_are_broken_by_the_seed():
    first, same, other = (scored(torch.ones_like, seed=seed).mean for seed in (0, 0, 1))
    assert first == pytest.approx(same, rel=1e-12) and first != pytest.approx(other, rel=1e-3)


def test_what_cannot_be_used_is_refused():
    train, test = (*TRAIN, VALUES), (*TEST, TEST_VALUES)
    metric, broken = ROAR(regression, GAUSSIAN), torch.zeros(5, 100)
    broken[2] = math.nan
    for message, call in [
        *[("cutoffs", lambda wrong=wrong: ROAR(regression, GAUSSIAN, wrong)) for wrong in ((0.5,), (0.5, 0.2), (0, 1.5), "ab")],
        ("retrain", lambda: ROAR(None, GAUSSIAN)),
        ("conditional", lambda: ROAR(regression, TRAIN[0])),
        ("train must be", lambda: metric(TRAIN, test)),
        ("test's labels", lambda: metric(train, (TEST[0], TEST[1][:5], TEST_VALUES))),
        ("train's attribution is", lambda: metric((*TRAIN, VALUES[:, :2]), test)),
        ("NaN", lambda: metric((*TRAIN, VALUES * math.nan), test)),
        ("tabular", lambda: metric((TRAIN[0][:, None], TRAIN[1], VALUES), test)),
        ("the same features", lambda: metric(train, (TEST[0][:, :4], TEST[1], TEST_VALUES[:, :4]))),
        ("of a, test of b", lambda: metric.compare((*TRAIN, {"a": VALUES}), (*TEST, {"b": TEST_VALUES}))),
        ("no method", lambda: metric.compare((*TRAIN, {}), (*TEST, {}))),
        ("by its name", lambda: metric.compare(train, test)),
        ("seed", lambda: metric(train, test, seed="a")),
        (r"expected \(5, 100\).*train_one_by_one", lambda: scored(data_like, ROAR(lambda *_: lambda _: broken[0], GAUSSIAN))),
    ]:
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(ModelError, match="without 2 features"):
        scored(data_like, ROAR(lambda *_: lambda _: broken, GAUSSIAN))


def data_like(x):
    return data(*x.shape, seed=3)


def test_replaced_rows_have_noise_of_their_own():
    x, generator = torch.zeros(3000, 2, dtype=torch.float64), torch.Generator()
    known = torch.tensor([True, False]).expand(3000, 2)
    normal = torch.randn(500, 2, generator=generator.manual_seed(5)).double()
    for distribution in (Gaussian.correlated(2, 0.0), Marginal(normal)):
        second = replace_unknown(x, known, distribution, generator.manual_seed(0))[:, 1]
        assert len(second.unique()) > 400
        assert abs(float(second.mean())) < 0.15 and abs(float(second.std()) - 1) < 0.1
