"""Our methods in real Quantus metrics, on a small network trained to find a bright patch."""

import copy

import captum.attr
import numpy as np
import pytest
import quantus
import torch
from torch import nn

import ig2
from ig2.compat.quantus import explain_func
from ig2.methods.gradient import InputXGradient
from ig2.methods.random import Random
from networks import data, relu_mlp

SIZE, PATCH = 12, 4
QUIET = {"disable_warnings": True, "display_progressbar": False}


def scenes(count, seed):
    """Noise, every second time with a bright patch somewhere; the class is whether there is one, the mask where."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(0, 0.3, (count, 3, SIZE, SIZE)).astype(np.float32)
    y = np.arange(count) % 2
    mask = np.zeros((count, 1, SIZE, SIZE), dtype=bool)
    for i in np.flatnonzero(y):
        row, column = generator.integers(0, SIZE - PATCH + 1, 2)
        x[i, :, row : row + PATCH, column : column + PATCH] += 0.7
        mask[i, 0, row : row + PATCH, column : column + PATCH] = True
    return x, y, mask


@pytest.fixture(scope="module")
def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        features = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
        network = nn.Sequential(*features, nn.Linear(8 * (SIZE // 2) ** 2, 16), nn.ReLU(), nn.Linear(16, 2))
        x, y = (torch.from_numpy(part) for part in scenes(128, seed=1)[:2])
        optimizer = torch.optim.Adam(network.parameters(), 3e-3)
        for _ in range(60):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()
        assert float((network(x).argmax(1) == y).double().mean()) > 0.95
    return network.eval()


X, Y, MASK = (part[1::2] for part in scenes(12, seed=2))  # those with a patch
POOL = scenes(8, seed=3)[0][::2]  # and some without


IG, IG2 = explain_func(ig2.IntegratedGradients(20)), explain_func(ig2.IG2(20, rule=ig2.rules.shared), POOL, bounds=(0, 1))
every = pytest.mark.parametrize("explain", [IG, IG2], ids=["IG", "IG2"])


def test_values_are_the_methods_with_channels_summed_as_quantus_does(net):
    values = IG(net, X, Y)
    theirs = captum.attr.IntegratedGradients(net).attribute(torch.from_numpy(X), target=torch.from_numpy(Y), n_steps=20)
    np.testing.assert_allclose(values, theirs.sum(1, keepdim=True).numpy(), atol=1e-5)
    np.testing.assert_array_equal(IG(net, X, Y, keepdims=False), values[:, 0])
    channels = IG(net, X, Y, reduce_axes=())
    assert channels.shape == X.shape
    np.testing.assert_allclose(channels.sum(axis=1, keepdims=True), values, atol=1e-6)
    theirs = quantus.explain(net, X, Y, method="InputXGradient", device="cpu")
    np.testing.assert_allclose(explain_func(InputXGradient())(net, X, Y, device="cpu"), theirs, atol=1e-6)
    assert IG(relu_mlp(), data(4, 6).numpy(), np.array([0, 1, 2, 0])).shape == (4, 6)  # tables keep their columns


@every
def test_localisation(net, explain):
    options = {"model": net, "x_batch": X, "y_batch": Y, "s_batch": MASK, "explain_func": explain, "device": "cpu"}
    metric = quantus.RelevanceMassAccuracy(abs=True, normalise=True, **QUIET)
    mass, hits = np.mean(metric(**options)), np.mean(quantus.PointingGame(**QUIET)(**options))
    assert mass > 2 * PATCH**2 / SIZE**2 and hits > 0.8
    assert np.mean(metric(**(options | {"s_batch": np.roll(MASK, SIZE // 2, axis=-1)}))) < 0.5 * mass


@every
def test_faithfulness(net, explain):
    options = {"model": net, "x_batch": X, "y_batch": Y, "explain_func": explain}
    flipping = quantus.PixelFlipping(features_in_step=12, perturb_baseline="black", **QUIET)
    noise = explain_func(Random())
    assert np.mean(flipping(**options)) < np.mean(flipping(**(options | {"explain_func": noise})))
    correlation = quantus.FaithfulnessCorrelation(nr_runs=20, subset_size=36, perturb_baseline="black", **QUIET)(**options)
    assert np.isfinite(correlation).all()


@every
def test_robustness_explains_perturbed_inputs_also_beyond_the_bounds(net, explain):
    metric = quantus.MaxSensitivity(nr_samples=3, lower_bound=0.2, **QUIET)
    scores = metric(model=net, x_batch=X[:2], y_batch=Y[:2], explain_func=explain, explain_func_kwargs={"seed": 3})
    assert np.isfinite(scores).all() and np.min(scores) > 0


def test_randomised_networks_are_explained_anew(net):
    metric = quantus.MPRT(similarity_func=quantus.similarity_func.correlation_pearson, return_average_correlation=True, **QUIET)
    scores = metric(model=net, x_batch=X[:2], y_batch=Y[:2], explain_func=IG2)
    assert np.mean(scores) < 0.9


def test_the_entries_of_evaluate(net):
    metrics = {"mass": quantus.RelevanceMassAccuracy(abs=True, **QUIET), "max": quantus.MaxSensitivity(nr_samples=2, **QUIET)}
    batch = {"x_batch": X[:2], "y_batch": Y[:2], "s_batch": MASK[:2], "explain_func_kwargs": {}}
    scores = quantus.evaluate(metrics=metrics, xai_methods={"IG": IG, "IG2": IG2}, model=net, agg_func=np.mean, **batch)
    assert set(scores) == {"IG", "IG2"}
    assert all(np.isfinite(score) for entry in scores.values() for score in entry.values())


def test_references_in_the_keywords(net):
    explain = explain_func(ig2.ExpectedIG(10))
    found = explain(net, X, Y, references=POOL)
    np.testing.assert_allclose(found, explain_func(ig2.ExpectedIG(10), POOL)(net, X, Y), atol=1e-7)
    assert np.abs(found - explain(net, X, Y, references=0)).max() > 0.01


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_network_moves_to_the_device_that_quantus_names(net):
    moved = copy.deepcopy(net)
    found = IG2(moved, X, Y, device="cuda")
    assert next(moved.parameters()).is_cuda
    np.testing.assert_allclose(found, IG2(net, X, Y), atol=1e-3)


@pytest.mark.parametrize(
    ("call", "keyword"),
    [
        (lambda net: IG(net, X, Y, softmax=True), "softmax"),
        (lambda net: explain_func(ig2.IG2())(net, X, Y), "references"),
        (lambda net: explain_func("IntegratedGradients"), "method"),
        (lambda net: IG(net, np.array([["a"]]), Y), "array of numbers"),
    ],
)
def test_arguments_that_do_not_fit_are_quoted(net, call, keyword):
    with pytest.raises(ig2.InputError, match=keyword):
        call(net)
