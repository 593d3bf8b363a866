"""VarGrad and NoiseGrad: slow replicas on copies of the network, weights left alone, and what they refuse."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import ig2
from ig2.errors import InputError, ModelError
from ig2.methods.smoothgrad import SmoothGrad
from networks import Record, data, refuses, relu_cnn, seeded, tanh_mlp

X, NET = data(3, 6, seed=1), tanh_mlp()
POOL = data(4, 6, seed=5)


def noised_networks(net, samples, sigma, seed=0):
    """Copies of the network, each weight times a factor of its own, one after the other from one generator."""
    source = torch.Generator().manual_seed(seed)
    _, own = (int(torch.randint(2**62, (), generator=source)) for _ in range(2))
    generator, networks = torch.Generator().manual_seed(own), []
    for _ in range(samples):
        noised = copy.deepcopy(net)
        with torch.no_grad():
            for parameter in noised.parameters():
                parameter *= 1 + sigma * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        networks.append(noised)
    return networks


def noised_copies(x, samples, sigma, seed=0):
    """Copies of each explicand (B, samples, features), with the noise of SmoothGrad."""
    source = torch.Generator().manual_seed(seed)
    generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=source)))
    noise = torch.randn(samples, *x.shape[1:], generator=generator, dtype=torch.float64)
    return torch.stack([row + sigma * (row.max() - row.min()) * noise for row in x])


# -- VarGrad -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.InputXGradient(), ig2.IntegratedGradients(4)])
def test_the_variance_over_copies_one_at_a_time(method):
    target = NET(X).argmax(dim=1)
    expected = []
    for copies, label in zip(noised_copies(X, 7, 0.3), target, strict=True):
        maps = np.stack([method(NET, one[None], int(label)).values[0].numpy() for one in copies])
        expected.append(((maps - maps.mean(axis=0)) ** 2).sum(axis=0) / 7)
    result = ig2.VarGrad(method, 7, 0.3)(NET, X)
    assert np.allclose(result.values.numpy(), np.stack(expected), atol=1e-14)
    assert result.residual is None and result.baseline_outputs is None


def test_a_small_variance_beside_a_large_mean_keeps_its_digits():
    x = torch.tensor([[1.0, 2.0, 4.0]])
    net = ig2.wrap(lambda z: (z + 3e4 * z + z.square() / 2).sum(dim=1))  # gradients of 30,000 with a deviation of 1
    values = ig2.VarGrad(ig2.Gradient(), 30, 1.0, relative=False)(net, x).values
    exact = ig2.VarGrad(ig2.Gradient(), 30, 1.0, relative=False)(net, x.double()).values
    assert torch.allclose(values.double(), exact, rtol=1e-2)


def test_variance_is_the_mean_square_less_the_square_of_the_mean():
    one = {"samples": 5, "sigma": 0.2}
    mean, squares = (
        SmoothGrad(ig2.Gradient(), **one)(NET, X).values,
        SmoothGrad(ig2.Gradient(), **one, squared=True)(NET, X).values,
    )
    assert torch.allclose(ig2.VarGrad(ig2.Gradient(), **one)(NET, X).values, squares - mean.square(), atol=1e-14)


# -- NoiseGrad ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "references"),
    [(ig2.Gradient(), None), (ig2.IntegratedGradients(4), None), (ig2.IG2(3), POOL), (ig2.DeepSHAP(), POOL)],
)
def test_the_mean_over_networks_one_at_a_time(method, references):
    target = NET(X).argmax(dim=1)
    results = [method(net, X, target, references, seed=2) for net in noised_networks(NET, 4, 0.3, seed=2)]
    result = ig2.NoiseGrad(method, 4, 0.3)(NET, X, references=references, seed=2)
    assert torch.allclose(result.values, torch.stack([one.values for one in results]).mean(dim=0), atol=1e-12)
    assert not torch.allclose(result.values, method(NET, X, references=references, seed=2).values, atol=1e-3)
    assert torch.equal(result.output, NET(X).detach().amax(dim=1))
    if results[0].baseline_outputs is not None:
        outputs = torch.stack([one.baseline_outputs for one in results]).mean(dim=0)
        assert torch.allclose(result.baseline_outputs, outputs, atol=1e-12)


def test_factors_are_around_one_with_the_deviation_asked_for():
    net = nn.Linear(5000, 1, bias=False).double().eval()
    nn.init.ones_(net.weight)
    record = Record()
    net.register_forward_hook(Note(record))
    ig2.NoiseGrad(ig2.Gradient(), 1, 0.1)(net, torch.zeros(1, 5000, dtype=torch.float64))
    factors = record[-1]
    assert float(factors.mean()) == pytest.approx(1, abs=0.01) and float(factors.std()) == pytest.approx(0.1, rel=0.05)


class Note:
    """A hook that keeps the weights of each forward pass."""

    def __init__(self, record):
        self.record = record

    def __call__(self, module, args, output):
        self.record.append(module.weight.detach().clone())


class Failing(ig2.Method):
    """Fails on its second run."""

    def __init__(self):
        object.__setattr__(self, "runs", [])

    def run(self, task, references, keep):
        self.runs.append(task)
        if len(self.runs) == 2:
            raise RuntimeError("in the middle")
        return ig2.methods.Result(torch.zeros_like(task.x))


@pytest.mark.parametrize("method", [ig2.Gradient(), Failing()])
def test_the_users_weights_are_never_written(method):
    net = relu_cnn()
    weights = dict(net.named_parameters())
    before = {name: (p.detach().clone(), p.data_ptr(), p._version, p.requires_grad) for name, p in weights.items()}
    call = lambda: ig2.NoiseGrad(method, 3)(net, data(2, 2, 8, 8))  # noqa: E731
    if isinstance(method, Failing):
        refuses(RuntimeError, "in the middle", call)
    else:
        call()
    for name, parameter in net.named_parameters():
        value, place, version, gradient = before[name]
        assert parameter is weights[name] and torch.equal(parameter, value)
        assert (parameter.data_ptr(), parameter._version, parameter.requires_grad) == (place, version, gradient)
        assert parameter.grad is None


def test_shared_weights_and_batch_norm_are_noised_once():
    """A weight in two places is one weight, and running statistics stay."""
    shared = nn.Linear(6, 6)
    net = seeded(lambda: nn.Sequential(shared, nn.BatchNorm1d(6), nn.Tanh(), shared, nn.Linear(6, 2)), 3)
    net[1].running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    results = [ig2.Gradient()(one, X, 0).values for one in noised_networks(net, 3, 0.2)]
    result = ig2.NoiseGrad(ig2.Gradient(), 3)(ig2.wrap(net, prepare=ig2.Preparation()), X, 0)
    assert torch.allclose(result.values, torch.stack(results).mean(dim=0), atol=1e-12)


def test_a_precision_asked_for_gives_way_to_the_weights():
    net = relu_cnn().float()
    half = ig2.wrap(net, prepare=ig2.Preparation(precision="bfloat16"))
    x = data(2, 2, 8, 8).float()
    plain, prepared = (ig2.NoiseGrad(ig2.Gradient(), 3)(model, x, 1) for model in (net, half))
    assert torch.equal(plain.values, prepared.values) and "noised" in prepared.settings["preparation"]["left as it is"]


@pytest.mark.parametrize(
    "method",
    [
        ig2.NoiseGrad(ig2.IntegratedGradients(4), 3),
        ig2.NoiseGrad(SmoothGrad(ig2.Gradient(), 3), 2),
        ig2.VarGrad(ig2.Gradient(), 4),
    ],
)
def test_neither_the_batch_nor_its_size_matters_but_the_seed_does(method):
    state = torch.get_rng_state()
    together = method(NET, X, seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    for size in (1, 5):
        assert torch.allclose(method(NET, X, seed=2, batch_size=size).values, together.values, atol=1e-13)
    assert torch.allclose(method(NET, X[1:2], seed=2).values[0], together.values[1], atol=1e-13)
    assert torch.equal(method(NET, X, seed=2).values, together.values)
    assert not torch.allclose(method(NET, X, seed=3).values, together.values)


def test_noise_on_both_is_a_double_mean():
    copies = noised_copies(X, 3, 0.2)
    target = NET(X).argmax(dim=1)
    networks = noised_networks(NET, 4, 0.1)
    expected = torch.zeros_like(X)
    for net in networks:
        for row, label in enumerate(target.tolist()):
            for one in copies[row]:
                expected[row] += ig2.Gradient()(net, one[None], label).values[0] / 12
    result = ig2.NoiseGrad(SmoothGrad(ig2.Gradient(), 3, 0.2), 4, 0.1)(NET, X)
    assert torch.allclose(result.values, expected, atol=1e-14)


def test_the_noise_of_the_weights_is_not_that_of_the_copies():
    """From the same numbers, the first weights would move with the explicand."""
    net = nn.Linear(6, 1, bias=False).double().eval()
    nn.init.ones_(net.weight)
    x = torch.zeros(1, 6, dtype=torch.float64)
    factors = ig2.NoiseGrad(ig2.Gradient(), 1, 1.0)(net, x).values - 1
    copied = SmoothGrad(ig2.InputXGradient(), 1, 1.0, relative=False)(net, x).values
    assert not torch.allclose(factors, copied, atol=1e-3)


def test_without_weights_it_is_refused():
    for model in (lambda x: x.sum(dim=1), lambda x: NET(x), ig2.wrap(lambda x: NET(x) * 2), nn.Flatten().eval()):
        for method in (ig2.NoiseGrad(ig2.Gradient()), ig2.NoiseGrad(SmoothGrad(ig2.Gradient()))):
            refuses(ModelError, "weights", lambda model=model, method=method: method(model, X, 0))


def test_wrong_settings_are_refused():
    for make, keyword in (
        (lambda: ig2.NoiseGrad("gradient"), "goes around a method"),
        (lambda: ig2.NoiseGrad(ig2.Gradient(), 0), "samples"),
        (lambda: ig2.NoiseGrad(ig2.Gradient(), sigma=0), "sigma"),
        (lambda: ig2.VarGrad(ig2.Gradient(), sigma="wide"), "sigma"),
    ):
        refuses(InputError, keyword, make)
