"""Our methods under Captum's call, beside Captum's own."""

import captum.attr
import captum.metrics
import pytest
import torch
from torch import nn

import ig2
from ig2 import paths, rules
from ig2.compat.captum import CaptumMethod
from ig2.methods.simple import Gradient
from ig2.methods.smoothgrad import SmoothGrad
from networks import data, relu_cnn, seeded, tanh_mlp


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
    for one, two in zip((ours,), (theirs,), strict=True) if isinstance(ours, torch.Tensor) else zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=atol)


def both(net, inputs, **options):
    """Values and deltas of ours and of Captum's, and that they are alike."""
    ours = CaptumMethod(ig2.IntegratedGradients(), net).attribute(inputs, return_convergence_delta=True, **options)
    theirs = captum.attr.IntegratedGradients(net).attribute(inputs, return_convergence_delta=True, **options)
    close(ours[0], theirs[0])
    close(ours[1], theirs[1])
    return ours


# -- the same numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "baselines", [None, 0, 0.4, data(1, 6, seed=8), data(5, 6, seed=9)], ids=["none", "zero", "number", "one", "each"]
)
def test_integrated_gradients_are_captums(baselines):
    values, delta = both(NET, X, baselines=baselines, target=2)
    assert values.shape == X.shape and delta.shape == (5,)


def test_each_input_has_the_baseline_of_its_own_row():
    baselines = data(5, 6, seed=9)
    together = CaptumMethod(ig2.IntegratedGradients(), NET).attribute(X, baselines, target=1)
    alone = [
        CaptumMethod(ig2.IntegratedGradients(), NET).attribute(X[i : i + 1], baselines[i : i + 1], target=1) for i in range(5)
    ]
    close(together, torch.cat(alone), atol=1e-12)


@pytest.mark.parametrize(
    "target", [2, [0, 1, 2, 1, 0], torch.tensor([0, 1, 2, 1, 0]), torch.tensor(1), torch.tensor([1])], ids=str
)
def test_targets_in_each_form(target):
    both(NET, X, target=target)


def test_a_network_with_a_single_output_needs_no_target():
    both(lambda x: NET(x)[:, 1], X)
    both(lambda x: NET(x)[:, 1:2], X)


@pytest.mark.parametrize("target", [(1, 0, 3), [(0, 0, 0), (1, 2, 3), (0, 0, 0), (1, 1, 1), (0, 2, 1)]], ids=["one", "each"])
def test_targets_of_outputs_with_several_axes(target):
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Unflatten(1, (2, 3, 4))), 0)
    both(net, X, target=target)


@pytest.mark.parametrize(
    "baselines", [None, (0.3, data(5, 2, 3, seed=4)), (data(1, 4, seed=5), 0)], ids=["none", "each", "one"]
)
@pytest.mark.parametrize("extra", [None, data(5, 8, seed=6), (data(5, 8, seed=6), 0.5)], ids=["none", "tensor", "tuple"])
def test_several_inputs_and_what_comes_along(baselines, extra):
    values, _ = both(SEVERAL, TWO, baselines=baselines, target=1, additional_forward_args=extra)
    assert [value.shape for value in values] == [x.shape for x in TWO]


def test_one_input_and_what_comes_along():
    values, _ = both(SEVERAL.forward, TWO[:1], additional_forward_args=(TWO[1],), target=0)
    single, _ = both(SEVERAL.forward, TWO[0], additional_forward_args=TWO[1], target=0)
    assert isinstance(values, tuple) and torch.equal(values[0], single)


@pytest.mark.parametrize("integration", ["gausslegendre", "riemann_left", "riemann_right", "riemann_middle"])
@pytest.mark.parametrize("steps", [2, 7])
def test_ways_to_integrate(integration, steps):
    both(NET, X, baselines=data(5, 6, seed=9), target=2, n_steps=steps, method=integration)


def test_the_trapezoid_is_captums_with_weights_that_sum_to_one():
    options = {"target": 2, "n_steps": 7, "method": "riemann_trapezoid"}
    ours = CaptumMethod(ig2.IntegratedGradients(), NET).attribute(X, **options)
    theirs = captum.attr.IntegratedGradients(NET).attribute(X, **options)
    close(ours, theirs * 7 / 6)


def test_steps_are_the_methods_own_unless_given():
    def points(method, **options):
        seen = []

        def net(x):
            seen.append(len(x) * x.requires_grad)
            return NET(x)

        CaptumMethod(method, net, X[:1]).attribute(X[:1], target=0, **options)
        return sum(seen)

    for method, own in ((ig2.IntegratedGradients(30), 30), (ig2.IG2(30), 30), (ig2.GuidedIG(30), 30)):
        more = points(method, n_steps=40) - points(method)
        assert more == 40 - own
    assert points(ig2.IntegratedGradients(30, rules.midpoint), n_steps=40) == points(ig2.IntegratedGradients(40))


def test_a_batch_may_be_smaller_than_the_inputs_which_captum_cannot():
    sizes = []

    def net(x):
        sizes.append(len(x))
        return NET(x)

    ours = CaptumMethod(ig2.IntegratedGradients(), net).attribute(X, target=1, internal_batch_size=2)
    close(ours, captum.attr.IntegratedGradients(NET).attribute(X, target=1))
    assert max(sizes) == 2


# -- methods that contrast with samples --------------------------------------------------------------------------------


def test_several_baselines_are_samples_for_methods_that_contrast_with_them_however_many_there_are():
    pool = data(5, 6, seed=11)  # as many as there are inputs
    values, delta = CaptumMethod(ig2.ExpectedIG(), NET).attribute(X, pool, target=1, return_convergence_delta=True)
    one_by_one = [captum.attr.IntegratedGradients(NET).attribute(X, pool[i : i + 1], target=1) for i in range(5)]
    close(values, torch.stack(one_by_one).mean(dim=0))
    assert delta.shape == (5,)
    own = ig2.ExpectedIG()(NET, X, target=1, references=pool)
    close(delta, own.residual, atol=1e-12)
    each = CaptumMethod(ig2.ExpectedIG(), NET, distribution=False).attribute(X, pool, target=1)
    close(each, captum.attr.IntegratedGradients(NET).attribute(X, pool, target=1))
    assert (each - values).abs().max() > 0.01


def test_ig2_in_captums_call_is_ig2():
    pool, own_pools = data(3, 6, seed=11), data(5, 2, 6, seed=12)
    method = ig2.IG2(steps=20, step_size=0.05)
    model = ig2.wrap(NET, representation="1", bounds=(-1, 1))
    for references in (pool, own_pools):
        found = CaptumMethod(method, model).attribute(X, references, target=1, return_convergence_delta=True)
        own = method(model, X, target=1, references=references)
        assert torch.equal(found[0], own.values) and torch.equal(found[1], own.residual)
    kept = CaptumMethod(method, model, references=pool).attribute(X, target=1)
    assert torch.equal(kept, method(model, X, target=1, references=pool).values)


def test_samples_for_several_inputs():
    pools = (data(3, 4, seed=1), data(3, 2, 3, seed=2))
    found = CaptumMethod(ig2.ExpectedIG(), SEVERAL).attribute(TWO, (pools[0], 0.5), target=0)
    own = ig2.ExpectedIG()(SEVERAL, TWO, target=0, references=(pools[0], torch.full_like(pools[1], 0.5)))
    close(found, own.values, atol=1e-12)


def test_guided_ig_with_a_baseline_for_each():
    baselines = data(5, 6, seed=9)
    found = CaptumMethod(ig2.GuidedIG(20), NET).attribute(X, baselines, target=1)
    own = ig2.GuidedIG(20)(NET, X, target=1, references=baselines[:, None])
    assert torch.equal(found, own.values)


def test_blur_ig_takes_no_baseline():
    net, images = relu_cnn(), data(2, 2, 8, 8, low=0)
    found, delta = CaptumMethod(ig2.BlurIG(10), net).attribute(images, target=1, n_steps=5, return_convergence_delta=True)
    own = ig2.BlurIG(5)(net, images, target=1)
    assert torch.equal(found, own.values) and torch.equal(delta, own.residual)


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


@pytest.mark.parametrize("baselines", [0.2, data(5, 6, seed=9)], ids=["number", "each"])
@pytest.mark.parametrize("kind", ["smoothgrad", "vargrad"])
def test_in_a_noise_tunnel(baselines, kind):
    options = {"nt_type": kind, "nt_samples": 4, "nt_samples_batch_size": 3, "stdevs": 0.1, "baselines": baselines}

    def through(method):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return captum.attr.NoiseTunnel(method).attribute(X, target=1, return_convergence_delta=True, **options)

    ours, theirs = (through(m) for m in (CaptumMethod(ig2.IntegratedGradients(), NET), captum.attr.IntegratedGradients(NET)))
    close(ours[0], theirs[0])
    close(ours[1], theirs[1])


def test_ig2_in_a_noise_tunnel():
    method = CaptumMethod(ig2.IG2(10, 0.05), NET, references=data(3, 6, seed=11))
    with torch.random.fork_rng(devices=[]):
        found = captum.attr.NoiseTunnel(method).attribute(X, target=1, nt_samples=3, stdevs=1e-7)
    close(found, method.attribute(X, target=1), atol=1e-4)


def test_in_captums_metrics():
    ours, theirs = CaptumMethod(ig2.IntegratedGradients(), NET).attribute, captum.attr.IntegratedGradients(NET).attribute

    def sensitivity(explain):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return captum.metrics.sensitivity_max(explain, X, target=1, baselines=data(5, 6, seed=9))

    close(sensitivity(ours), sensitivity(theirs))

    def infidelity(explain):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return captum.metrics.infidelity(NET, perturb, X, explain(X, target=1), target=1)

    def perturb(inputs):
        noise = torch.randn_like(inputs) * 0.1
        return noise, inputs - noise

    close(infidelity(ours), infidelity(theirs))


def test_a_wrapped_model_is_captums_forward_function():
    model = ig2.wrap(NET, output="probability", preprocess=lambda x: x * 2)
    ours = CaptumMethod(ig2.IntegratedGradients(), model)
    plain = captum.attr.IntegratedGradients(lambda x: NET(x * 2).softmax(dim=1))
    close(ours.attribute(X, target=1), plain.attribute(X, target=1))
    torch.testing.assert_close(ours.forward_func(X), NET(X * 2).softmax(dim=1))
    ours.compute_convergence_delta(ours.attribute(X, target=1), 0, X, target=1)


# -- what the user hears -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (ig2.IntegratedGradients(), {"target": None}, "3 outputs: say which"),
        (ig2.IntegratedGradients(), {"target": (0, 1)}, "does not name one output"),
        (ig2.IntegratedGradients(), {"target": (7,)}, "outside the network's output"),
        (ig2.IntegratedGradients(), {"baselines": data(3, 6)}, "distribution=True"),
        (ig2.IntegratedGradients(), {"baselines": data(5, 7)}, "expected a number or such samples"),
        (ig2.IntegratedGradients(), {"baselines": "zero"}, "expected a number or such samples"),
        (ig2.IntegratedGradients(), {"baselines": (0, 0)}, "2 baselines for 1 inputs"),
        (ig2.IntegratedGradients(), {"method": "simpson"}, "unknown"),
        (ig2.IntegratedGradients(), {"n_steps": 0}, "positive"),
        (ig2.IG2(), {}, "give baselines"),
        (ig2.IG2(), {"baselines": X, "method": "gausslegendre"}, "give IG2 its rule"),
        (ig2.PathMethod(paths.Polyline(X)), {"n_steps": 3}, "has no steps"),
        (Gradient(), {"n_steps": 3}, "has no steps"),
        (Gradient(), {"return_convergence_delta": True}, "no convergence delta"),
    ],
)
def test_arguments_that_do_not_fit_are_quoted(method, options, words):
    with pytest.raises(ig2.InputError, match=words):
        CaptumMethod(method, NET).attribute(X, **({"target": 1} | options))


def test_what_is_no_method_and_what_is_no_input():
    with pytest.raises(ig2.InputError, match=r"for example ig2.IG2\(\)"):
        CaptumMethod(captum.attr.IntegratedGradients(NET), NET)
    with pytest.raises(ig2.InputError, match="a tuple of them"):
        CaptumMethod(ig2.IntegratedGradients(), NET).attribute([X], target=1)
    with pytest.raises(ig2.InputError, match="how many"):
        CaptumMethod(ig2.ExpectedIG(), SEVERAL).attribute(TWO, (data(3, 4), data(2, 2, 3)), target=1)
