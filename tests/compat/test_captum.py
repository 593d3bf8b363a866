"""Our methods under Captum's call, beside Captum's own."""

import contextlib
import inspect
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import captum.attr
import captum.metrics
import captum_conformance
import numpy as np
import pytest
import torch
from torch import nn

import ig2
from ig2 import paths, rules
from ig2.compat import captum as ours
from ig2.compat.captum import CaptumMethod
from ig2.errors import InputError
from ig2.methods.gradient import Gradient
from ig2.methods.smoothgrad import SmoothGrad
from networks import data, refuses, relu_cnn, seeded, tanh_mlp


class Several(nn.Module):
    """Two attributed inputs and, if given, a third that only comes along and a factor that is no tensor."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, a, b, shift=None, factor=1.0):
        hidden = self.one(a) + self.two(b.flatten(1)) * factor
        return self.head(torch.tanh(hidden if shift is None else hidden + shift))


NET = tanh_mlp()
X = data(5, 6, seed=1)
SEVERAL = seeded(Several, 0)
TWO = (data(5, 4, seed=2), data(5, 2, 3, seed=3))


def close(ours, theirs, atol=1e-6):
    assert type(ours) is type(theirs)
    if isinstance(ours, torch.Tensor):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
    else:
        for one, two in zip(ours, theirs, strict=True):
            close(one, two, atol)


@contextlib.contextmanager
def fixed_seed():
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Captum warns that it sets hooks and gradients, and of several inputs
        torch.manual_seed(0)
        yield


def compare(net, inputs, **options):
    """Check that values and deltas are Captum's, and return them."""
    results = CaptumMethod(ig2.IntegratedGradients(), net).attribute(inputs, return_convergence_delta=True, **options)
    close(results, captum.attr.IntegratedGradients(net).attribute(inputs, return_convergence_delta=True, **options))
    return results


# -- the same numbers --------------------------------------------------------------------------------------------------

SEVERAL_AXES = seeded(lambda: nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Unflatten(1, (2, 3, 4))), 0)
ROWS = data(5, 6, seed=9)


@pytest.mark.parametrize(
    ("net", "options"),
    [
        *((NET, {"target": 2, "baselines": baselines}) for baselines in (None, 0, 0.4, data(1, 6, seed=8), ROWS)),
        *((NET, {"target": target}) for target in ([0, 1, 2, 1, 0], torch.tensor([0, 1, 2, 1, 0]))),
        *((NET, {"target": target}) for target in (torch.tensor(1), torch.tensor([1]))),
        *((lambda x, last=last: NET(x)[:, last], {}) for last in (1, slice(1, 2))),  # a single output needs no target
        (SEVERAL_AXES, {"target": (1, 0, 3)}),
        (SEVERAL_AXES, {"target": [(0, 0, 0), (1, 2, 3), (0, 0, 0), (1, 1, 1), (0, 2, 1)]}),
        *(
            (NET, {"target": 2, "baselines": ROWS, "n_steps": steps, "method": method})
            for steps in (2, 7)
            for method in ("gausslegendre", "riemann_left", "riemann_right", "riemann_middle")
        ),
    ],
)
def test_integrated_gradients_are_captums(net, options):
    compare(net, X, **options)


def test_each_input_has_the_baseline_of_its_own_row():
    method = CaptumMethod(ig2.IntegratedGradients(), NET)
    alone = [method.attribute(X[i : i + 1], ROWS[i : i + 1], target=1) for i in range(5)]
    close(method.attribute(X, ROWS, target=1), torch.cat(alone), atol=1e-12)


@pytest.mark.parametrize(
    "baselines", [None, (0.3, data(5, 2, 3, seed=4)), (data(1, 4, seed=5), 0)], ids=["none", "each", "one"]
)
@pytest.mark.parametrize("extra", [None, data(5, 8, seed=6), (data(5, 8, seed=6), 0.5)], ids=["none", "tensor", "tuple"])
def test_several_inputs_and_further_arguments(baselines, extra):
    compare(SEVERAL, TWO, baselines=baselines, target=1, additional_forward_args=extra)


def test_one_input_and_further_arguments():
    values, _ = compare(SEVERAL.forward, TWO[:1], additional_forward_args=(TWO[1],), target=0)
    single, _ = compare(SEVERAL.forward, TWO[0], additional_forward_args=TWO[1], target=0)
    assert isinstance(values, tuple) and torch.equal(values[0], single)


def test_the_trapezoid_is_captums_with_weights_that_sum_to_one():
    options = {"target": 2, "n_steps": 7, "method": "riemann_trapezoid"}
    ours = CaptumMethod(ig2.IntegratedGradients(), NET).attribute(X, **options)
    close(ours, captum.attr.IntegratedGradients(NET).attribute(X, **options) * 7 / 6)


def recording(batches):
    def net(x):
        batches.append(x)
        return NET(x)

    return net


def test_steps_are_those_of_the_method_by_default():
    def points(method, **options):
        batches = []
        CaptumMethod(method, recording(batches), X[:1]).attribute(X[:1], target=0, **options)
        return sum(len(x) * x.requires_grad for x in batches)

    for method in (ig2.IntegratedGradients(30), ig2.IG2(30), ig2.GuidedIG(30)):
        assert points(method, n_steps=40) - points(method) == 40 - 30
    assert points(ig2.IntegratedGradients(30, rules.midpoint), n_steps=40) == points(ig2.IntegratedGradients(40))


def test_a_batch_may_be_smaller_than_the_inputs_which_captum_cannot():
    batches = []
    ours = CaptumMethod(ig2.IntegratedGradients(), recording(batches)).attribute(X, target=1, internal_batch_size=2)
    close(ours, captum.attr.IntegratedGradients(NET).attribute(X, target=1))
    assert max(map(len, batches)) == 2


# -- methods that need references --------------------------------------------------------------------------------------


def test_several_baselines_are_samples_for_methods_with_references_however_many_there_are():
    pool = data(5, 6, seed=11)  # as many as there are inputs
    values, delta = CaptumMethod(ig2.ExpectedIG(), NET).attribute(X, pool, target=1, return_convergence_delta=True)
    one_by_one = [captum.attr.IntegratedGradients(NET).attribute(X, pool[i : i + 1], target=1) for i in range(5)]
    close(values, torch.stack(one_by_one).mean(dim=0))
    close(delta, ig2.ExpectedIG()(NET, X, target=1, references=pool).residual, atol=1e-12)
    each = CaptumMethod(ig2.ExpectedIG(), NET, distribution=False).attribute(X, pool, target=1)
    close(each, captum.attr.IntegratedGradients(NET).attribute(X, pool, target=1))
    assert (each - values).abs().max() > 0.01


BRIGHT = data(2, 2, 8, 8, low=0)
BOUNDED = ig2.wrap(NET, representation="1", bounds=(-1, 1))


@pytest.mark.parametrize(
    ("method", "model", "x", "baselines", "references"),
    [
        (ig2.IG2(20, 0.05), BOUNDED, X, data(3, 6, seed=11), data(3, 6, seed=11)),
        (ig2.IG2(20, 0.05), BOUNDED, X, data(5, 2, 6, seed=12), data(5, 2, 6, seed=12)),
        (ig2.GuidedIG(20), NET, X, ROWS, ROWS[:, None]),
        (ig2.BlurIG(10), relu_cnn(), BRIGHT, None, None),
        (ig2.DeepSHAP(), relu_cnn(), BRIGHT, None, 0),  # zero by default
    ],
    ids=["ig2", "ig2 own pools", "guided", "blur", "deepshap"],
)
def test_a_method_in_captums_call_is_the_method(method, model, x, baselines, references):
    values, delta = CaptumMethod(method, model).attribute(x, baselines, target=1, return_convergence_delta=True)
    expected = method(model, x, target=1, references=references)
    assert torch.equal(values, expected.values) and torch.equal(delta, expected.residual)
    if isinstance(references, torch.Tensor):
        defaults = CaptumMethod(method, model, references=references).attribute(x, target=1)
        assert torch.equal(defaults, expected.values)


def test_steps_of_blur_ig():
    values = CaptumMethod(ig2.BlurIG(10), relu_cnn()).attribute(BRIGHT, target=1, n_steps=5)
    assert torch.equal(values, ig2.BlurIG(5)(relu_cnn(), BRIGHT, target=1).values)


def test_samples_for_several_inputs():
    pools = (data(3, 4, seed=1), data(3, 2, 3, seed=2))
    values = CaptumMethod(ig2.ExpectedIG(), SEVERAL).attribute(TWO, (pools[0], 0.5), target=0)
    expected = ig2.ExpectedIG()(SEVERAL, TWO, target=0, references=(pools[0], torch.full_like(pools[1], 0.5)))
    close(values, expected.values, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_on_a_gpu():
    net = tanh_mlp().cuda()
    found = CaptumMethod(ig2.IntegratedGradients(), net).attribute(X.cuda(), data(5, 6, seed=9), target=2)
    close(found.cpu(), CaptumMethod(ig2.IntegratedGradients(), NET).attribute(X, data(5, 6, seed=9), target=2))


# -- in Captum's own code ----------------------------------------------------------------------------------------------


def test_it_is_an_attribution_to_captum():
    ours = CaptumMethod(ig2.IntegratedGradients(), NET)
    assert isinstance(ours, captum.attr.Attribution) and ours.forward_func is NET
    assert ours.has_convergence_delta() and ours.multiplies_by_inputs
    values, delta = ours.attribute(X, 0.2, target=1, return_convergence_delta=True)
    close(delta, ours.compute_convergence_delta(values, 0.2, X, target=1), atol=1e-9)
    gradient = CaptumMethod(Gradient(), NET)
    assert not gradient.has_convergence_delta() and not gradient.multiplies_by_inputs
    close(
        gradient.attribute(X, target=1),
        captum.attr.Saliency(NET).attribute(X.clone().requires_grad_(), target=1, abs=False),
        atol=1e-12,
    )
    smooth = CaptumMethod(SmoothGrad(Gradient()), NET)
    assert not smooth.has_convergence_delta() and not smooth.multiplies_by_inputs
    assert CaptumMethod(SmoothGrad(ig2.IG2()), NET).has_convergence_delta()
    assert not CaptumMethod(SmoothGrad(ig2.IG2(), squared=True), NET).has_convergence_delta()


@pytest.mark.parametrize("baselines", [0.2, ROWS], ids=["number", "each"])
@pytest.mark.parametrize("kind", ["smoothgrad", "vargrad"])
def test_in_a_noise_tunnel(baselines, kind):
    options = {"nt_type": kind, "nt_samples": 4, "nt_samples_batch_size": 3, "stdevs": 0.1, "baselines": baselines}

    def smooth(method):
        with fixed_seed():
            return captum.attr.NoiseTunnel(method).attribute(X, target=1, return_convergence_delta=True, **options)

    close(smooth(CaptumMethod(ig2.IntegratedGradients(), NET)), smooth(captum.attr.IntegratedGradients(NET)))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (CaptumMethod(ig2.IG2(10, 0.05), NET, references=data(3, 6, seed=11)), {}),
        (ours.Saliency(NET), {}),
        (ours.DeepLift(NET), {"baselines": 0.1}),
        (ours.IntegratedGradients(NET), {"n_steps": 5}),
    ],
    ids=["IG2", "Saliency", "DeepLift", "IntegratedGradients"],
)
def test_a_noise_tunnel_with_hardly_any_noise(method, options):
    with fixed_seed():
        values = captum.attr.NoiseTunnel(method).attribute(X, target=1, nt_samples=3, stdevs=1e-7, **options)
    close(values, method.attribute(X, target=1, **options), atol=1e-4)


def test_in_captums_metrics():
    def perturb(inputs):
        noise = torch.randn_like(inputs) * 0.1
        return noise, inputs - noise

    def score(explain):
        with fixed_seed():
            return (
                captum.metrics.sensitivity_max(explain, X, target=1, baselines=ROWS),
                captum.metrics.infidelity(NET, perturb, X, explain(X, target=1), target=1),
            )

    close(score(CaptumMethod(ig2.IntegratedGradients(), NET).attribute), score(captum.attr.IntegratedGradients(NET).attribute))


def test_a_wrapped_model_is_captums_forward_function():
    model = ig2.wrap(NET, output="probability", preprocess=lambda x: x * 2)
    ours = CaptumMethod(ig2.IntegratedGradients(), model)
    plain = captum.attr.IntegratedGradients(lambda x: NET(x * 2).softmax(dim=1))
    close(ours.attribute(X, target=1), plain.attribute(X, target=1))
    torch.testing.assert_close(ours.forward_func(X), NET(X * 2).softmax(dim=1))
    ours.compute_convergence_delta(ours.attribute(X, target=1), 0, X, target=1)


# -- Captum's classes --------------------------------------------------------------------------------------------------

CNN = relu_cnn()
IMAGES = data(3, 2, 8, 8, seed=4)


class Broad(nn.Module):
    """A number for each sample, in an output (B, 1, 1), from samples of any shape and a factor without an axis."""

    def forward(self, x, factor=1.0):
        return (torch.tanh(x.reshape(len(x), -1)).sum(dim=1) * factor).reshape(-1, 1, 1)


def twins(name, net, *args, build=None, **options):
    """Check that our class of that name returns what Captum's does, and return it."""
    with fixed_seed():
        mine, theirs = (getattr(home, name)(net, **(build or {})).attribute(*args, **options) for home in (ours, captum.attr))
    close(mine, theirs)
    return mine


class Doubled(nn.Module):
    """Samples of one number each, in and out."""

    def __init__(self):
        super().__init__()
        self.tanh = nn.Tanh()

    def forward(self, a, b=0):
        return 2 * self.tanh(a + b)


@pytest.mark.parametrize("name", ["IntegratedGradients", "Saliency", "InputXGradient", "DeepLift"])
def test_samples_of_one_number(name):
    assert twins(name, Doubled(), data(5, seed=1)).shape == (5,)
    twins(name, Doubled(), (data(5, seed=1), data(5, seed=2)))
    twins(name, Doubled(), data(5, seed=1), additional_forward_args=(data(5, seed=2),))


@pytest.mark.parametrize("name", ["IntegratedGradients", "Saliency", "InputXGradient"])
def test_outputs_with_spare_axes_and_arguments_without_any(name):
    for shape in ((5,), (5, 3), (5, 3, 2)):
        twins(name, Broad(), data(*shape, seed=1))
    half, one = torch.tensor([0.5, 1.0], dtype=torch.float64)  # every sample gets the same
    halved = twins(name, Broad(), data(5, 3, seed=1), additional_forward_args=half)
    close(halved * 2, twins(name, Broad(), data(5, 3, seed=1), additional_forward_args=(one,)))


def test_generic_methods_take_samples_of_one_number_and_spare_axes_too():
    x, pool = data(5, seed=1), data(3, seed=2)
    values = CaptumMethod(ig2.ExpectedIG(), Doubled()).attribute(x, pool)
    own = ig2.ExpectedIG()(lambda x: 2 * torch.tanh(x[:, 0]), x[:, None], references=pool[:, None])
    close(values, own.values[:, 0], atol=1e-12)
    values = CaptumMethod(ig2.IntegratedGradients(), Broad()).attribute(data(5, 3, seed=1))
    close(values, captum.attr.IntegratedGradients(Broad()).attribute(data(5, 3, seed=1)))


CLASSES = ("IntegratedGradients", "Saliency", "InputXGradient", "DeepLift", "DeepLiftShap", "GradientShap", "KernelShap")


@pytest.mark.parametrize("method", [*(getattr(ours, name)(NET) for name in CLASSES), CaptumMethod(ig2.IG2(), NET)])
def test_futures_are_not_available(method):
    with pytest.raises(NotImplementedError, match="attribute"):
        method.attribute_future(X, target=1)


@pytest.mark.parametrize("target", [2, torch.tensor(1), [0, 1, 2, 1, 0]], ids=str)
def test_the_target_is_the_second_argument_of_gradients(target):
    for name in ("Saliency", "InputXGradient"):
        twins(name, NET, X, target)
    twins("Saliency", NET, X, target, False)
    for method, name in ((ig2.InputXGradient(), "InputXGradient"), (SmoothGrad(Gradient(), sigma=1e-9), "Saliency")):
        by_place = CaptumMethod(method, NET).attribute(X, target)
        assert torch.equal(by_place, CaptumMethod(method, NET).attribute(X, target=target))
        theirs = getattr(captum.attr, name)(NET).attribute(X.clone().requires_grad_(), target)
        close(by_place.abs() if name == "Saliency" else by_place, theirs)


SMALL_CNN = nn.Sequential(*list(CNN)[:2], nn.Flatten(), nn.Linear(384, 4).double())


@pytest.mark.parametrize("baselines", [None, 0.3, data(1, 2, 8, 8, seed=8), data(3, 2, 8, 8, seed=9)])
@pytest.mark.parametrize("multiply", [True, False])
def test_deep_lift_is_captums(baselines, multiply):
    net = nn.Sequential(*list(CNN)[:2], *list(CNN)[3:5], nn.Flatten(), nn.Linear(512, 4).double())
    values, delta = twins(
        "DeepLift", net, IMAGES, baselines, target=1, return_convergence_delta=True, build={"multiply_by_inputs": multiply}
    )
    assert values.shape == IMAGES.shape and delta.shape == (3,)
    assert bool((delta.abs() < 1e-9).all()) == multiply


@pytest.mark.parametrize("multiply", [True, False])
def test_deep_lift_shap_is_captums_pair_by_pair(multiply):
    options = {"target": [0, 1, 3], "return_convergence_delta": True, "build": {"multiply_by_inputs": multiply}}
    pool = data(2, 2, 8, 8, seed=9)
    for baselines in (pool, lambda: pool, lambda inputs: inputs[:2] / 2):
        _, delta = twins("DeepLiftShap", SMALL_CNN, IMAGES, baselines, **options)
        assert delta.shape == (6,)


@pytest.mark.parametrize("name", ["DeepLift", "DeepLiftShap"])
def test_a_custom_attribution_function(name):
    shapes = []

    def swapped(multipliers, inputs, baselines):
        shapes.append([tuple(t.shape for t in each) for each in (multipliers, inputs, baselines)])
        return tuple(m * (b - 2 * x) for m, x, b in zip(multipliers, inputs, baselines, strict=True))

    twins(name, SMALL_CNN, IMAGES, data(3, 2, 8, 8, seed=9), target=1, custom_attribution_func=swapped)
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("integration", ["gausslegendre", "riemann_left", "riemann_right", "riemann_middle"])
def test_the_mean_gradient_without_the_factor(integration):
    baselines = X.clone()
    baselines[:, ::2] = 0.25  # of the others the mean gradient cannot be had from their contribution, which is zero
    options = {"target": [0, 1, 2, 1, 0], "n_steps": 7, "method": integration, "build": {"multiply_by_inputs": False}}
    twins("IntegratedGradients", NET, X, baselines, **options)
    twins("IntegratedGradients", SEVERAL, TWO, return_convergence_delta=True, additional_forward_args=data(5, 8), **options)
    assert not ours.IntegratedGradients(NET, multiply_by_inputs=False).multiplies_by_inputs


def test_integrated_gradients_have_captums_call_and_delta():
    for options in ({}, {"baselines": 0.2, "n_steps": 9}, {"baselines": data(5, 6, seed=9), "internal_batch_size": 8}):
        values, delta = twins("IntegratedGradients", NET, X, target=1, return_convergence_delta=True, **options)
        method = ours.IntegratedGradients(NET)
        assert torch.equal(delta, method.compute_convergence_delta(values, options.get("baselines"), X, target=1))


@pytest.mark.parametrize("multiply", [True, False])
def test_gradient_shap_goes_to_expected_gradients(multiply):
    pool = data(4, 6, seed=11)
    method = ours.GradientShap(NET, multiply_by_inputs=multiply)
    values, delta = method.attribute(X, pool, n_samples=2000, target=[0, 1, 2, 1, 0], return_convergence_delta=True)
    assert delta.shape == (10000,)
    mean = sum(captum.attr.IntegratedGradients(NET, multiply).attribute(X, one[None], target=[0, 1, 2, 1, 0]) for one in pool)
    close(values, mean / 4, atol=0.01)
    assert torch.equal(values, method.attribute(X, pool, n_samples=2000, target=[0, 1, 2, 1, 0]))
    # of each point: Σ values − (f(noised input) − f(baseline))
    close(values.sum(dim=1) * multiply, (delta.view(5, -1) + _changes(method, pool, 2000)).mean(dim=1) * multiply)


def _changes(method, pool, count):
    generator = torch.Generator().manual_seed(method.seed)
    which = torch.randint(len(pool), (5 * count,), generator=generator)
    target = torch.tensor([0, 1, 2, 1, 0]).repeat_interleave(count)[:, None]
    with torch.no_grad():
        return (NET(X.repeat_interleave(count, 0)) - NET(pool[which])).gather(1, target).view(5, count)


def test_gradient_shap_spreads_its_points_and_noise():
    points = []
    net = lambda x: points.append(x.detach()) or x.sum(dim=1)  # noqa: E731
    ours.GradientShap(net).attribute(torch.ones(1, 1000), torch.zeros(1, 1000), n_samples=50, stdevs=0.1)
    seen = max(points, key=len)  # all of them, beside those of the checks
    share = seen.mean(dim=1).sort().values  # one in each fiftieth of the line, but for the mean of the noise
    torch.testing.assert_close(share, (torch.arange(50) + 0.5) / 50, rtol=0, atol=0.01 + 0.1 / 1000**0.5 * 3)
    spread = (seen / seen.mean(dim=1, keepdim=True)).std(dim=1)  # a share of the noise comes along
    torch.testing.assert_close(spread, torch.full((50,), 0.1), rtol=0, atol=0.02)


@pytest.mark.parametrize(
    "mask", [None, torch.tensor([[0, 0, 1, 2, 1, 3]]), torch.tensor([[0, 0, 1, 1, 2, 2], [3, 2, 1, 0, 0, 0]])]
)
@pytest.mark.parametrize("shaped", [True, False])
def test_kernel_shap_is_captums_where_that_tries_all_coalitions_often_enough(mask, shaped):
    with fixed_seed():
        options = {"target": 1, "feature_mask": mask, "return_input_shape": shaped, "baselines": 0.2}
        theirs = captum.attr.KernelShap(NET).attribute(X[:2], n_samples=2000, perturbations_per_eval=500, **options)
    values = ours.KernelShap(NET).attribute(X[:2], n_samples=64, perturbations_per_eval=64, **options)
    close(values, theirs.to(values), atol=0.02)


def test_kernel_shap_of_several_inputs_shares_groups_between_them():
    masks = (torch.tensor([[5, 6, 6, 7]]), torch.tensor([[[7, 8, 8], [5, 5, 5]]]))
    method = ours.KernelShap(SEVERAL)
    values = method.attribute(TWO, target=1, feature_mask=masks)
    groups = method.attribute(TWO, target=1, feature_mask=masks, return_input_shape=False)
    assert groups.shape == (5, 4)
    for value, mask in zip(values, masks, strict=True):
        assert torch.equal(value, groups[:, (mask[0] - 5).flatten()].view_as(value))
    zero = SEVERAL(*(torch.zeros_like(x) for x in TWO))
    close(groups.sum(dim=1), (SEVERAL(*TWO) - zero)[:, 1].detach(), atol=1e-9)


def test_kernel_shap_of_functions_that_return_a_number_for_all_inputs():
    function = lambda x: float(torch.tanh(x).sum()) * 2  # noqa: E731
    values = ours.KernelShap(function).attribute(X[:2])
    assert values.shape == (1, 6)
    close(values, 2 * torch.tanh(X[:2]).sum(dim=0, keepdim=True), atol=1e-6)
    with pytest.raises(ig2.InputError, match="feature_mask"):
        ours.KernelShap(function).attribute(X[:2], feature_mask=torch.arange(12).view(2, 6))
    single = ours.KernelShap(lambda x: int(x.sum() > 0)).attribute(X[:1].abs())
    assert float(single.sum()) == pytest.approx(1)


def test_inputs_without_features_are_passed_along():
    empty = torch.zeros(5, 0, dtype=torch.float64)
    values = ours.KernelShap(lambda a, b: torch.cat([a, b], dim=1).sum(dim=1)).attribute((X, empty))
    close(values, (X, empty))


def test_tests_of_captum_that_fail_are_listed_with_a_reason():
    page = (Path(__file__).parents[2] / "docs" / "compat.md").read_text()
    counts = Counter(captum_conformance.EXPECTED.values())
    for name, reason in captum_conformance.EXPECTED.items():  # by name, or as one of so many
        assert name.rpartition("::")[2] in page or f"| {counts[reason]} tests of" in page
    assert captum_conformance.TESTS - len(captum_conformance.EXPECTED) >= 185
    assert f"{captum_conformance.TESTS - len(captum_conformance.EXPECTED)} of {captum_conformance.TESTS}" in page


# -- errors ------------------------------------------------------------------------------------------------------------

IG = CaptumMethod(ig2.IntegratedGradients(), NET)


@pytest.mark.parametrize(
    ("method", "options", "keyword"),
    [
        (IG, {"target": None}, "3 outputs"),
        (IG, {"target": (0, 1)}, "does not name one output"),
        (IG, {"target": (7,)}, "outside the network's output"),
        (IG, {"baselines": data(3, 6)}, "distribution=True"),
        (IG, {"baselines": data(5, 7)}, "a baseline"),
        (IG, {"baselines": "zero"}, "a baseline"),
        (IG, {"baselines": (0, 0)}, "2 baselines for 1 inputs"),
        (IG, {"method": "simpson"}, "simpson"),
        (IG, {"n_steps": 0}, "positive"),
        (IG, {"internal_batch_size": 0}, "batch_size"),
        (IG, {"inputs": [X]}, "tuple"),
        (CaptumMethod(ig2.IG2(), NET), {}, "baselines"),
        (CaptumMethod(ig2.IG2(), NET), {"baselines": X, "method": "gausslegendre"}, "rule"),
        (CaptumMethod(ig2.PathMethod(paths.Polyline(X)), NET), {"n_steps": 3}, "has no steps"),
        (CaptumMethod(Gradient(), NET), {"n_steps": 3}, "has no steps"),
        (CaptumMethod(Gradient(), NET), {"return_convergence_delta": True}, "convergence delta"),
        (CaptumMethod(ig2.InputXGradient(), NET), {"baselines": 0}, "no baseline"),
        (CaptumMethod(ig2.ExpectedIG(), SEVERAL), {"inputs": TWO, "baselines": (data(3, 4), data(2, 2, 3))}, "in number"),
        (ours.KernelShap(NET), {"feature_mask": torch.zeros(1, 5).long()}, "feature_mask"),
        (ours.KernelShap(NET), {"feature_mask": torch.zeros(2, 6).long()}, "feature_mask"),
        (ours.KernelShap(NET), {"feature_mask": torch.zeros(1, 6)}, "feature_mask"),
        (ours.KernelShap(NET), {"feature_mask": (torch.zeros(1, 6).long(),) * 2}, "feature_mask"),
        (ours.GradientShap(NET), {"baselines": X, "n_samples": 0}, "n_samples"),
        (ours.GradientShap(NET), {"baselines": X, "stdevs": (0.1, 0.2)}, "stdevs"),
        (ours.GradientShap(NET), {"inputs": X.long(), "baselines": X}, "floating-point"),
        (ours.IntegratedGradients(NET, False), {"inputs": X.long()}, "floating-point"),
        (ours.DeepLiftShap(CNN), {"inputs": IMAGES, "baselines": data(3, 2, 2, 8, 8)}, "the same for every input"),
    ],
)
def test_arguments_that_do_not_fit_are_quoted(method, options, keyword):
    with pytest.raises(ig2.InputError, match=keyword):
        method.attribute(**({"inputs": X, "target": 1} | options))


def test_something_that_is_not_a_method():
    with pytest.raises(ig2.InputError, match="method"):
        CaptumMethod(captum.attr.IntegratedGradients(NET), NET)


# -- layers ------------------------------------------------------------------------------------------------------------


def layered() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)),
    )


@pytest.mark.parametrize("to_input", [False, True])
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("LayerIntegratedGradients", {"baselines": 0.25, "n_steps": 20}),
        ("LayerIntegratedGradients", {"n_steps": 12, "method": "riemann_middle"}),
        ("LayerConductance", {"baselines": 0.25, "n_steps": 20}),
        ("LayerConductance", {"n_steps": 12, "method": "riemann_trapezoid"}),
        ("LayerConductance", {"n_steps": 12, "method": "riemann_left", "internal_batch_size": 16}),
        ("LayerGradientXActivation", {}),
        ("LayerGradCam", {}),
        ("LayerGradCam", {"relu_attributions": True, "attr_dim_summation": False}),
    ],
)
def test_layers_have_captums_numbers(name: str, options: dict[str, Any], layer: int, to_input: bool):
    net, x, target = seeded(layered, 0), data(4, 1, 8, 8), torch.tensor([0, 1, 2, 1])
    options = {**options, "target": target, "attribute_to_layer_input": to_input}
    theirs = getattr(captum.attr, name)(net, net[layer]).attribute(x, **options)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs  # of a layer's input
    got = getattr(ours, name)(net, net[layer]).attribute(x, **options)
    assert got.shape == theirs.shape and torch.allclose(got, theirs, atol=1e-6)


@pytest.mark.parametrize("name", ["LayerDeepLift", "LayerDeepLiftShap"])
@pytest.mark.parametrize("multiply", [True, False])
def test_layers_of_deeplift_and_their_delta_are_captums(name: str, multiply: bool):
    net, x, target = seeded(layered, 0), data(4, 1, 8, 8), torch.tensor([0, 1, 2, 1])
    baselines = data(4, 1, 8, 8, seed=7) if name == "LayerDeepLift" else data(3, 1, 8, 8, seed=7)
    for layer, to_input in ((0, False), (2, False), (2, True)):
        options = {"target": target, "return_convergence_delta": True, "attribute_to_layer_input": to_input}
        with fixed_seed():
            theirs, their_delta = getattr(captum.attr, name)(net, net[layer], multiply).attribute(x, baselines, **options)
        got, delta = getattr(ours, name)(net, net[layer], multiply).attribute(x, baselines, **options)
        close(got, theirs[0] if isinstance(theirs, tuple) else theirs)
        close(delta, their_delta, 1e-5)
        assert not multiply or float(delta.abs().max()) < 1e-5


def test_a_custom_function_of_deeplift_gets_the_layers_values():
    net, x = seeded(layered, 0), data(4, 1, 8, 8)
    options = {"target": 1, "custom_attribution_func": lambda multipliers, inputs, bases: (multipliers[0] * bases[0],)}
    with fixed_seed():
        theirs = captum.attr.LayerDeepLift(net, net[2]).attribute(x, 0.25, **options)
    close(ours.LayerDeepLift(net, net[2]).attribute(x, 0.25, **options), theirs)


def test_conductance_has_captums_delta():
    net, x = seeded(layered, 0), data(4, 1, 8, 8)
    options = {"target": 1, "n_steps": 5, "return_convergence_delta": True}
    close(
        ours.LayerConductance(net, net[0]).attribute(x, 0.25, **options),
        captum.attr.LayerConductance(net, net[0]).attribute(x, 0.25, **options),
        1e-5,
    )


@pytest.mark.parametrize("to_input", [False, True])
def test_gradient_shap_at_a_layer_comes_to_captums_mean(to_input: bool):
    net, x, baselines = seeded(layered, 0), data(2, 1, 8, 8), data(3, 1, 8, 8, seed=7)
    options = {"n_samples": 3000, "target": 1, "attribute_to_layer_input": to_input}
    with fixed_seed():
        np.random.seed(0)  # noqa: NPY002 # which Captum draws from
        theirs = captum.attr.LayerGradientShap(net, net[2]).attribute(x, baselines, **options)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    got, delta = ours.LayerGradientShap(net, net[2]).attribute(x, baselines, **options, return_convergence_delta=True)
    assert float((got - theirs).norm() / theirs.norm()) < 0.05
    assert delta.shape == (6000,)


def test_gradient_shap_of_a_linear_rest_is_exact_and_not_at_another_layer():
    """After the last ReLU the rest is linear: every point has the same gradient, and each pair its whole change."""
    net, x, baselines = seeded(layered, 0), data(2, 1, 8, 8), data(1, 1, 8, 8, seed=7)
    options = {"n_samples": 2, "target": 1, "return_convergence_delta": True}
    with fixed_seed():
        theirs, _ = captum.attr.LayerGradientShap(net, net[3]).attribute(x, baselines.expand(2, 1, 8, 8), **options)
    got, delta = ours.LayerGradientShap(net, net[3]).attribute(x, baselines, **options)
    close(got, theirs)
    assert float(delta.abs().max()) < 1e-5
    _, elsewhere = ours.LayerGradientShap(net, net[0]).attribute(x, baselines, **options)
    assert float(elsewhere.abs().max()) > 1e-3


@pytest.mark.parametrize("to_input", [False, True])
def test_an_activation_is_captums_though_the_next_layer_writes_into_it(to_input: bool):
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), 0)
    x = data(5, 6, seed=1)
    for layer in (0, 1):
        theirs = captum.attr.LayerActivation(net, net[layer]).attribute(x, attribute_to_layer_input=to_input)
        theirs = theirs[0] if isinstance(theirs, tuple) else theirs
        close(ours.LayerActivation(net, net[layer]).attribute(x, attribute_to_layer_input=to_input), theirs)
    assert float(ours.LayerActivation(net, net[0]).attribute(x).min()) < 0
    scaled = ig2.wrap(net, preprocess=lambda x: 2 * x)
    close(ours.LayerActivation(scaled, net[0]).attribute(x), net[0](2 * x).detach())


INSIDE = [name for name in dir(ours) if name.startswith("Layer") and hasattr(captum.attr, name)]


@pytest.mark.parametrize("name", INSIDE)
def test_arguments_are_captums_and_stand_where_captum_has_them(name: str):
    for call in ("__init__", "attribute"):
        theirs, got = (
            list(inspect.signature(inspect.unwrap(getattr(getattr(library, name), call))).parameters)
            for library in (captum.attr, ours)
        )
        assert got[: len(theirs)] == theirs


@pytest.mark.parametrize("name", [*INSIDE, "InputXGradient", "Saliency"])
def test_classes_say_of_themselves_what_captums_do(name: str):
    arguments = (NET,) if name in ("InputXGradient", "Saliency") else (NET, NET[0])
    theirs, got = getattr(captum.attr, name)(*arguments), getattr(ours, name)(*arguments)
    assert got.multiplies_by_inputs == theirs.multiplies_by_inputs
    assert got.has_convergence_delta() == theirs.has_convergence_delta()


def test_what_layers_refuse():
    net, x = seeded(layered, 0), data(4, 1, 8, 8)
    refuses(InputError, "multiply_by_inputs", lambda: ours.LayerIntegratedGradients(net, net[0], multiply_by_inputs=False))
    refuses(InputError, "own output", lambda: ours.LayerActivation(net, "output").attribute(x))
    idle = nn.Linear(2, 2)
    refuses(InputError, "does not run", lambda: ours.LayerActivation(lambda x: net(x), idle).attribute(x))
    refuses(InputError, "n_steps", lambda: ours.LayerConductance(net, net[0]).attribute(x, target=1, n_steps=0))


def test_an_embedding_is_a_layer_as_in_captum():
    embedding, head = seeded(lambda: nn.Embedding(9, 5), 0), seeded(lambda: nn.Linear(5, 2), 0)
    net = lambda ids, scale: head(embedding(ids).tanh().mean(dim=1)) * scale  # noqa: E731
    ids, none = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.zeros(1, 3, dtype=torch.long)
    options = {"baselines": none.expand(2, 3), "target": 1, "additional_forward_args": (torch.tensor([[2.0], [3.0]]).double(),)}
    theirs = captum.attr.LayerIntegratedGradients(net, embedding).attribute(ids, **options)
    assert torch.allclose(ours.LayerIntegratedGradients(net, embedding).attribute(ids, **options), theirs, atol=1e-6)
