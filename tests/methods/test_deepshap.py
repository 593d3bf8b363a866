"""DeepSHAP against DeepLIFT elsewhere, closed forms and its own promise: the values sum to the change in the output."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import ig2
from ig2._engine.slopes import ELEMENTWISE
from ig2._engine.slopes.operations import find_slope
from ig2.methods.deepshap import DeepSHAP
from networks import randn, spread_weights


def captum_values(net, x, references, target):
    attr = pytest.importorskip("captum.attr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # captum warns of the hooks it sets
        return attr.DeepLiftShap(net).attribute(x, references, target=target).detach()


# -- against others ------------------------------------------------------------------------------------------------------


def mlp(activation):
    return nn.Sequential(nn.Linear(6, 9), activation(), nn.Linear(9, 8), activation(), nn.Linear(8, 3))


def cnn(*after):
    """Two convolutions, each with some layers after it and max pooling."""
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), *(make(4) for make in after), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 5, 3, padding=1), *(make(5) for make in after), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(20, 3)),
    )


# no ReLU next to a pooling: there captum's own values do not sum to the change (shap's do, see below)
@pytest.mark.parametrize(
    ("net", "shape"),
    [*((mlp(kind), (6,)) for kind in (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.LeakyReLU)), (cnn(), (2, 8, 8))],
)
def test_equals_captum(net, shape):
    x, references = randn(4, *shape), randn(5, *shape, seed=1)
    found = DeepSHAP()(spread_weights(net), x, target=1, references=references)
    torch.testing.assert_close(found.values, captum_values(net, x, references, 1), rtol=0, atol=1e-10)


@pytest.mark.slow
def test_equals_shap_on_a_convolutional_network_with_relu_and_max_pooling():
    shap = pytest.importorskip("shap")
    net = spread_weights(cnn(nn.BatchNorm2d, lambda _: nn.ReLU()))
    x, references = randn(3, 2, 8, 8), randn(4, 2, 8, 8, seed=1)
    found = DeepSHAP()(net, x, target=1, references=references)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shap.DeepExplainer(net, references).shap_values(x)[..., 1]
    torch.testing.assert_close(found.values, torch.as_tensor(theirs), rtol=0, atol=1e-10)


class Written(nn.Module):
    """The same function, its two non-linearities written in some way."""

    def __init__(self, first, second):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(6, 9), nn.Linear(9, 8), nn.Linear(8, 3)
        self.first, self.second = first, second

    def forward(self, x):
        return self.three(self.second(self.two(self.first(self.one(x)))))


REUSED = nn.ReLU()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (REUSED, REUSED),
        (F.relu, F.relu),
        (nn.ReLU(inplace=True), nn.ReLU(inplace=True)),
        (torch.relu, torch.relu_),
        (lambda z: z.relu(), lambda z: z.relu_()),
        (lambda z: z.clamp(min=0), lambda z: z.clamp_min_(0)),
        (lambda z: torch.maximum(z, torch.zeros(())), lambda z: torch.max(z, torch.zeros_like(z))),
        (torch.ops.aten.relu, torch.ops.aten.relu.default),
        (lambda z: F.threshold(z, 0, 0), lambda z: torch.relu(input=z)),
        (lambda z: F.relu(z.T.contiguous()).T, lambda z: z[:, None].relu()[:, 0]),  # the batch is another axis
        (lambda z: torch.cat([z[:, :4].relu(), z[:, 4:].relu()], dim=1), lambda z: (z.abs() + z) / 2),
    ],
)
def test_however_a_relu_is_written_the_values_are_the_same(first, second):
    x, references = randn(4, 6), randn(5, 6, seed=1)
    net = spread_weights(Written(first, second))
    plain = spread_weights(Written(nn.ReLU(), nn.ReLU()))
    found = DeepSHAP()(net, x, target=0, references=references)
    torch.testing.assert_close(found.values, captum_values(plain, x, references, 0), rtol=0, atol=1e-10)
    assert found.residual.abs().max() < 1e-12


def test_captum_is_silently_wrong_on_functional_relus():
    x, references, net = randn(4, 6), randn(5, 6, seed=1), spread_weights(Written(F.relu, F.relu))
    found = DeepSHAP()(net, x, target=0, references=references)
    change = found.output - found.baseline_output
    assert (captum_values(net, x, references, 0).sum(dim=1) - change).abs().max() > 0.1 * change.abs().max()


# -- closed forms --------------------------------------------------------------------------------------------------------


OPTIONS = {
    "prelu": (torch.tensor(0.3, dtype=torch.float64),), "threshold": (0.5, 0.2), "clamp": (0.3, 0.6), "clip": (0.3, 0.6),
    "clamp_min": (0.5,), "clamp_max": (0.5,), "pow": (3,), "rpow": (3,), "float_power": (3,), "softshrink": (0.4,),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ELEMENTWISE - {"div", "divide", "true_divide", "mul", "multiply", "rdiv", "rtruediv"}))
def test_a_function_of_each_feature_gets_its_own_change(name):
    holders = (torch, F, torch.special, torch._C._nn)
    function = torch.Tensor.__rpow__ if name == "rpow" else next(getattr(h, name) for h in holders if hasattr(h, name))
    options = OPTIONS.get(name, ())
    x = torch.tensor([[0.9, 0.2, 0.55, 0.4]], dtype=torch.float64)
    reference = torch.tensor([[0.1, 0.7, 0.5, 0.4]], dtype=torch.float64)
    if name == "acosh":
        x, reference = x + 1, reference + 1
    if name in ("sign", "round", "floor", "ceil", "trunc", "frac"):
        x, reference = 4 * x - 2, 4 * reference - 2
    weights = torch.tensor([1.0, -2.0, 3.0, 4.0], dtype=torch.float64)
    found = DeepSHAP()(lambda z: function(z, *options) @ weights, x, references=reference)
    expected = (function(x, *options) - function(reference, *options)) * weights
    torch.testing.assert_close(found.values, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z * z,
        lambda z: z**2,
        lambda z: 2**z,
        lambda z: 1 / z,
        lambda z: torch.ones(()) / z,
        lambda z: torch.div(3.0 * torch.ones(4), z),
        lambda z: torch.pow(torch.tensor(2.0), z),
        lambda z: z / 3 + 5 * z,
        lambda z: F.logsigmoid(z),
        lambda z: z.clone().square_(),
        lambda z: torch.pow(z, torch.tensor([1.0, 2.0, 3.0, 4.0])),
        lambda z: z.detach().clone().zero_().clamp_(min=z),
        lambda z: torch.minimum(z, torch.tensor(0.5)),
    ],
)
def test_operators_and_functions_with_constants(function):
    x, reference = torch.tensor([[0.9, 0.2, 0.55, 0.4]]).double(), torch.tensor([[0.1, 0.7, 0.5, 0.4]]).double()
    found = DeepSHAP()(lambda z: function(z).sum(dim=1), x, references=reference)
    torch.testing.assert_close(found.values, (function(x) - function(reference)).double(), rtol=1e-6, atol=1e-12)


def test_a_constant_with_more_axes_widens_the_variable():
    def powers(z):
        return torch.pow(z[:, :, None], torch.tensor([1.0, 2.0, 3.0])).sum(dim=2)

    x, reference = randn(2, 4).abs(), randn(1, 4, seed=1).abs()
    found = DeepSHAP()(lambda z: powers(z).sum(dim=1), x, references=reference)
    torch.testing.assert_close(found.values, powers(x) - powers(reference))


@pytest.mark.parametrize(
    ("net", "x", "reference", "expected"),
    [
        pytest.param(lambda z: torch.maximum(z[:, 0], z[:, 1] - 1), [3, 3], [0, 0], [3, 0], id="the paper's toy"),
        pytest.param(
            lambda z: torch.maximum(z.sum(dim=1), torch.tensor(-3.0)), [1, -1], [-1, 1], [2, -2],
            id="a maximum whose value did not change passes on what cancels",
        ),
        pytest.param(lambda z: z.square().sqrt().sum(dim=1), [2, 0], [0, 0], [2, 0], id="a root at zero gives no NaN"),
        pytest.param(lambda z: (z * 0).relu().sum(dim=1) + 3, [2, 1], [-1, 3], [0, 0], id="constant"),
        pytest.param(lambda z: z.tanh().softmax(dim=1)[:, 0], [2, 1], [2, 1], [0, 0], id="reference equal to the explicand"),
    ],
)  # fmt: skip
def test_closed_forms(net, x, reference, expected):
    x, reference, expected = (torch.tensor([row]).double() for row in (x, reference, expected))
    torch.testing.assert_close(DeepSHAP()(net, x, references=reference).values, expected)


@pytest.mark.parametrize(
    "pool",
    [
        lambda z: F.max_pool1d(z[:, None], 4)[:, 0],
        lambda z: F.max_pool2d(z.view(-1, 1, 2, 2), 2).flatten(1),
        lambda z: F.adaptive_max_pool1d(z[:, None], 1)[:, 0],
        lambda z: nn.AdaptiveMaxPool2d(1)(z.view(-1, 1, 2, 2)).flatten(1),
        lambda z: nn.MaxPool2d(2, return_indices=True)(z.view(-1, 1, 2, 2))[0].flatten(1),
        lambda z: torch.max_pool2d(z.view(-1, 1, 2, 2), 2).flatten(1),
        lambda z: z.max(dim=1, keepdim=True).values,
        lambda z: torch.max(z, 1)[0],
        lambda z: z.view(-1, 2, 2).amax((1, 2)),
        lambda z: -(-z).amin(1),
        lambda z: -torch.min(-z, dim=1)[0],
    ],
)
def test_a_maximum_that_grew_is_the_new_ones_and_one_that_shrank_the_old_ones(pool):
    higher, lower = torch.tensor([[1.0, 9.0, 2.0, 3.0]]).double(), torch.tensor([[0.0, 4.0, 5.0, 1.0]]).double()
    grown = DeepSHAP()(lambda z: pool(z).reshape(-1), higher, references=lower).values
    torch.testing.assert_close(grown, torch.tensor([[0.0, 4.0, 0.0, 0.0]]).double())
    shrunk = DeepSHAP()(lambda z: pool(z).reshape(-1), lower, references=higher).values
    torch.testing.assert_close(shrunk, torch.tensor([[0.0, -4.0, 0.0, 0.0]]).double())


def overlapping(x):
    return F.max_pool2d(F.relu(F.max_pool2d(x, 3, stride=1, padding=1)), 3, stride=2, padding=1).flatten(1).square().sum(1)


def fourier(z):
    """Complex numbers that only go through linear maps."""
    return torch.fft.ifft(torch.fft.fft(z) / 2).real.relu().sum(dim=1)


@pytest.mark.parametrize(("net", "shape"), [(overlapping, (2, 7, 7)), (fourier, (4,))])
def test_overlapping_windows_and_linear_maps_of_complex_numbers_add_up(net, shape):
    assert DeepSHAP()(net, randn(3, *shape), references=randn(4, *shape, seed=1)).residual.abs().max() < 1e-12


@pytest.mark.parametrize("output", ["probability", "log-probability", "sigmoid"])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_probabilities_add_up_however_far_the_logits_are(output, scale):
    net = spread_weights(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)))
    model = ig2.wrap(lambda x: net(x) * scale, output=output)
    found = DeepSHAP()(model, randn(4, 5), target=1, references=randn(5, 5, seed=1))
    assert found.residual.abs().max() < 1e-12 * scale
    if scale == 1:
        assert (found.output - found.baseline_output).abs().max() > 0.05


def test_softmax_with_masked_positions_and_softmax_as_a_layer():
    hidden = torch.tensor([0.0, -torch.inf, 0.0, 0.0], dtype=torch.float64)

    def net(x):
        return torch.logsumexp(x + hidden, dim=1) + (x + hidden).softmax(dim=-1) @ torch.arange(4.0).double()

    found = DeepSHAP()(net, randn(3, 4), references=randn(5, 4, seed=1))
    assert found.residual.abs().max() < 1e-12
    assert (found.values[:, 1] == 0).all()
    assert (found.values[:, 0] != 0).all()


def test_a_step_lost_in_rounding_gets_the_derivative():
    # large contributions that cancel: Δz is 1e-6 beside them, and Δy/Δz would be off by some per cent in float32
    x, reference = torch.tensor([[1.0, -1.0 + 1e-6]]), torch.tensor([[-1.0, 1.0]])
    found = DeepSHAP()(lambda z: (z.sum(dim=1) * 1e-2).sigmoid(), x, references=reference)
    torch.testing.assert_close(found.values, torch.tensor([[0.5e-2, -0.5e-2]]), rtol=1e-5, atol=0)


def test_several_references_give_mean_and_spread():
    net = spread_weights(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)))
    x, references = randn(2, 5), randn(2, 3, 5, seed=1)
    found = DeepSHAP()(net, x, references=references)
    alone = torch.stack(
        [DeepSHAP()(net, x, target=found.target, references=references[:, r : r + 1]).values for r in range(3)], dim=1
    )
    torch.testing.assert_close(found.values, alone.mean(dim=1))
    torch.testing.assert_close(found.spread, alone.std(dim=1))
    assert found.baseline_outputs.shape == (2, 3)


# -- additivity ----------------------------------------------------------------------------------------------------------

ACTIVATIONS = [
    nn.ReLU(), nn.ReLU(inplace=True), F.relu6, nn.LeakyReLU(0.2, inplace=True), nn.ELU(), nn.SELU(), nn.CELU(), F.gelu, F.silu,
    nn.Mish(), torch.sigmoid, torch.tanh, F.softplus, nn.Hardtanh(inplace=True), F.hardswish, F.hardsigmoid, torch.abs,
    F.logsigmoid, lambda z: z * z, lambda z: z.softmax(-1), lambda z: F.max_pool1d(z[:, None], 3, 1, 1)[:, 0], torch.cos_,
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 7), st.sampled_from(range(len(ACTIVATIONS)))), min_size=1, max_size=4),
    st.integers(0, 10_000),
)
def test_random_networks_sum_to_the_change_in_the_output(layers, seed):
    widths = [4, *(width for width, _ in layers), 2]
    linear = spread_weights(nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths)), seed)

    def net(x):
        for layer, (_, activation) in zip(linear[:-1], layers, strict=True):
            x = ACTIVATIONS[activation](layer(x))
        return linear[-1](x)

    found = DeepSHAP()(net, randn(3, 4, seed=seed), references=randn(2, 4, seed=seed + 1))
    size = found.values.abs().sum(dim=1) + found.output.abs() + found.baseline_outputs.abs().amax(dim=1)
    assert (found.residual.abs() <= 1e-11 * (1 + size)).all()


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        sigmoid = torch.from_numpy(1 / (1 + np.exp(-z.detach().numpy())))  # into which nothing can look
        return (z * sigmoid).detach()

    @staticmethod
    def backward(ctx, grad):
        (z,) = ctx.saved_tensors
        return grad * (z.sigmoid() + z * z.sigmoid() * (1 - z.sigmoid()))


class Rows(Swish):
    @staticmethod
    def forward(ctx, z):
        return Swish.forward(ctx, z).cumsum(1)


def test_a_function_outside_of_torch_gets_its_own_change_where_it_maps_each_element():
    x, references = randn(4, 3), randn(2, 3, seed=1)
    for swish in (Swish.apply, lambda z: Swish.apply(z)):
        found = DeepSHAP()(lambda z, f=swish: f(z).sum(dim=1), x, references=references)
        torch.testing.assert_close(found.values, F.silu(x) - F.silu(references).mean(dim=0))


@torch.no_grad()
def without_gradient(z):
    return z.exp()


@pytest.mark.parametrize(
    ("net", "culprit"),
    [
        (lambda x: x.logcumsumexp(dim=1)[:, 3:], "logcumsumexp"),
        (lambda x: torch.fft.ifft(torch.fft.fft(x) / 2).real.logcumsumexp(dim=1)[:, 3:], "secant: logcumsumexp"),
        (lambda x: torch.linalg.det(x[:, :4].view(-1, 2, 2))[:, None].expand(-1, 3), "det"),
        (lambda x: x.cummax(dim=1)[0][:, 3:], "cummax"),
        (lambda x: Rows.apply(x)[:, :3], "Rows"),
        (lambda x: (x * (x > 0))[:, :3], "mul"),
        (lambda x: x[:, :3] * without_gradient(x[:, 3:]), "mul"),
    ],
)
def test_a_network_without_rules_for_all_of_it_is_told_apart(net, culprit):
    if isinstance(net, nn.Module):
        spread_weights(net)
    x, references = randn(4, 6), randn(3, 6, seed=1)
    with pytest.warns(ig2.IG2Warning, match=culprit) as caught:
        found = DeepSHAP()(net, x, target=0, references=references)
    text = str(caught[0].message)
    worst = int(found.relative_residual.argmax())
    assert f"explicand {worst} is off by {float(found.residual[worst].abs()):.3g}" in text
    assert f"{float(found.relative_residual[worst]):.1%}" in text
    assert f"{int((found.relative_residual > 0.01).sum())} of 4 explicands" in text
    assert caught[0].filename == __file__
    assert found.values.isfinite().all()


class Products(nn.Module):
    def forward(self, z):
        return z.logcumsumexp(dim=1)


def test_linear_operations_and_those_with_a_rule_are_not_blamed():
    net = spread_weights(
        nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.MaxPool2d(2),
            nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 8), nn.GLU(), Products(), nn.Linear(4, 2),
        )
    )  # fmt: skip
    with pytest.warns(ig2.IG2Warning, match=r"without a secant: logcumsumexp\. ig2"):
        DeepSHAP()(net, randn(2, 1, 5, 5), references=randn(2, 1, 5, 5, seed=1))


def test_a_transformer_layer_takes_the_same_way_at_both_ends():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    net = spread_weights(nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 2)))
    found = DeepSHAP()(net, randn(2, 3, 8), references=randn(2, 3, 8, seed=1))
    assert found.residual.abs().max() < 1e-12


# -- what users bring ----------------------------------------------------------------------------------------------------


def _inner_gradient(z):
    with torch.enable_grad():
        leaf = z if z.requires_grad else z.detach().requires_grad_()
        return torch.autograd.grad(leaf.tanh().sum(), leaf, create_graph=True)[0].relu().sum(dim=1)


def _inner_backward(z):
    with torch.enable_grad():
        leaf = z.detach().requires_grad_()
        leaf.tanh().sum().backward()
    return (z * leaf.grad).sum(dim=1)


def _inner_jacobian(z):
    return torch.autograd.functional.jacobian(lambda q: q.tanh().sum(dim=0), z, create_graph=True).sum(dim=(0, 2))


CHECKPOINTED = spread_weights(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (lambda x: (x.relu() if x.sum() > 0 else x.tanh()).sum(dim=1), "other operations"),
        (lambda x: (x.relu() if x.sum() < 0 else x).sum(dim=1), "other operations"),
        (lambda x: (1e4 * -x).exp().sum(dim=1), "not finite"),
        (lambda z: torch.fft.fft(z).abs().sum(dim=1), "complex"),
        (lambda z: torch.complex(z, z).exp().real.sum(dim=1), "complex"),
        (lambda z: torch.complex(z, z).square().imag.sum(dim=1), "complex"),
        # a gradient inside would be that of the rescaled network, and the output another one than f(x)
        (_inner_gradient, "gradient inside"),
        (_inner_backward, "gradient inside"),
        (_inner_jacobian, "gradient inside"),
        (lambda z: checkpoint(CHECKPOINTED, z, use_reentrant=False), "checkpoint"),
    ],
)
@pytest.mark.filterwarnings("ignore:the gradient of the network is not the slope")  # of a gradient that is detached
def test_networks_that_cannot_be_followed_are_refused(net, said):
    with pytest.raises(ig2.ModelError, match=said):
        DeepSHAP()(net, torch.ones(1, 3).double(), references=-torch.ones(1, 3).double())
    with pytest.raises(ig2.InputError, match="DeepSHAP needs references"):
        DeepSHAP()(nn.Linear(3, 2), torch.zeros(1, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_comes_close_and_does_not_warn(dtype):
    net = spread_weights(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)))
    x, references = randn(3, 6), randn(4, 6, seed=1)
    exact = DeepSHAP()(net, x, target=1, references=references).values
    found = DeepSHAP()(net.to(dtype), x.to(dtype), target=1, references=references.to(dtype)).values
    assert found.dtype == torch.float32
    scale = exact.abs().max()
    assert (found - exact).abs().max() < 8 * torch.finfo(dtype).eps * scale + 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_softmax_whose_logarithm_is_rounded_away_has_finite_slopes(dtype):
    """Far below the largest, log-softmax is the same at both ends where softmax is not: its secant would be Δy/0."""
    z = (randn(64, 40) * 3).to(dtype)
    reference = z + (randn(64, 40, seed=1) * 0.02).to(dtype)
    same = z.log_softmax(dim=1) == reference.log_softmax(dim=1)
    assert (same & (z.softmax(dim=1) != reference.softmax(dim=1))).any()
    weights = randn(40, seed=2).to(dtype)
    found = DeepSHAP()(lambda v: v.softmax(dim=1) @ weights, z, references=reference[:, None])
    exact = DeepSHAP()(lambda v: v.softmax(dim=1) @ weights.double(), z.double(), references=reference[:, None].double())
    assert (found.values - exact.values).abs().max() < 8 * torch.finfo(dtype).eps * exact.values.abs().max()


def test_a_change_over_no_step_is_rounding():
    ends = torch.tensor([1.0, 1.0]), torch.tensor([1.1, 1.1])
    slope = find_slope(torch.tensor([0.0, -0.2]), *ends, torch.tensor([0.3, 0.3]))
    assert slope.tolist() == pytest.approx([0.3, 0.5])


def test_several_inputs_and_fixed_ones():
    def net(a, b, factor):
        return (a.flatten(1).sum(dim=1) * factor).relu() + b.square().sum(dim=1)

    x = (randn(2, 2, 2), randn(2, 3, seed=1), ig2.Fixed(torch.tensor([1.0, 2.0]).double()))
    references = (randn(4, 2, 2, seed=2), randn(4, 3, seed=3))
    found = DeepSHAP()(net, x, references=references)
    assert [value.shape for value in found.values] == [(2, 2, 2), (2, 3)]
    assert found.residual.abs().max() < 1e-12
    expected = (x[1][:, None].square() - references[1].square()).mean(dim=1)
    torch.testing.assert_close(found.values[1], expected)


def test_results_do_not_depend_on_the_batch():
    net = spread_weights(
        nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(inplace=True), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(8, 3))
    )
    x, references = randn(3, 2, 6), randn(4, 2, 6, seed=1)
    whole = DeepSHAP()(net, x, references=references)
    for size in (1, 5):
        part = DeepSHAP()(net, x, references=references, batch_size=size)
        torch.testing.assert_close(part.values, whole.values, rtol=0, atol=1e-13)
        torch.testing.assert_close(part.spread, whole.spread, rtol=0, atol=1e-13)
    single = DeepSHAP()(net, x[1:2], references=references)
    torch.testing.assert_close(single.values, whole.values[1:2], rtol=0, atol=1e-13)


def test_the_network_is_left_as_it_was_and_progress_reaches_its_end():
    net = spread_weights(nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)))
    before = {key: value.clone() for key, value in net.state_dict().items()}
    told = []
    DeepSHAP()(net, randn(2, 3), references=randn(3, 3, seed=1), batch_size=4, progress=lambda *where: told.append(where))
    assert told[-1] == (6, 6)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in net.parameters())
    assert all((net.state_dict()[key] == value).all() for key, value in before.items())
    assert not any(module._forward_hooks or module._backward_hooks for module in net.modules())


def test_the_tolerance_is_of_use():
    """In float64 the slopes of sigmoid by Δy/Δz alone would be off here by more than one part in a thousand."""
    step = 1e-12
    z = torch.tensor(step / 3, dtype=torch.float64)
    secant = (z.sigmoid() - (z - step).sigmoid()) / step
    assert abs(float(secant) - 0.25) > 1e-5
    x, reference = torch.tensor([[1.0, z - 1.0]]).double(), torch.tensor([[0.0, z - step]]).double()
    found = DeepSHAP()(lambda v: v.sum(dim=1).sigmoid(), x, references=reference).values
    assert math.isclose(float(found[0, 0]), 0.25, rel_tol=1e-9)


def test_rounding_of_half_precision_is_no_alarm():
    # found by the fuzzer: 4.5 % off in bfloat16, where the inputs are float32 and float64 is exact
    net = spread_weights(nn.Sequential(nn.Linear(3, 8), nn.Mish(), nn.Linear(8, 2))).float()
    x, references = randn(20, 3, dtype=torch.float32), randn(1, 3, seed=1, dtype=torch.float32)
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("error")
        DeepSHAP()(net, x, references=references)


@pytest.mark.parametrize("seed", range(12))
def test_rounding_of_what_cancels_raises_no_alarm(seed):
    """The softmax of one logit is 1 whatever that is: the values are what rounding leaves of logits around 1e4."""
    net, x = spread_weights(nn.Linear(6, 1), seed), randn(4, 6, seed=seed) * 1e4
    found = DeepSHAP()(lambda z: net(z).softmax(dim=1), x, references=randn(3, 6, seed=seed + 1))
    assert found.values.abs().max() < 1e-8


def test_an_output_that_does_not_change_and_values_that_do_not_sum_to_zero_are_told():
    x, reference = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([[2.0, 1.0]]).double()
    with pytest.warns(ig2.errors.IG2Warning, match="off by 2 of no change"):
        DeepSHAP()(lambda z: z[:, 0] * without_gradient(z[:, 1].log()), x, references=reference)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda v: v.exp(), lambda h: math.expm1(h) / h),
        (lambda v: _beside_zero(v).logsumexp(dim=1), lambda h: math.log1p(math.expm1(h) / 2) / h),
        (lambda v: _beside_zero(v).log_softmax(dim=1)[:, 0], lambda h: 1 - math.log1p(math.expm1(h) / 2) / h),
        (lambda v: _beside_zero(v).softmax(dim=1)[:, 0], lambda h: math.tanh(h / 2) / (2 * h)),
    ],
    ids=["exp", "logsumexp", "log_softmax", "softmax"],
)
def test_a_step_near_rounding_gets_the_slope_of_its_middle(function, slope, sign):
    """Guards against the slope at one end alone: that is off by half the step, 4e-9, and the mean of both by its square."""
    step = sign * 2.0**-27
    x, reference = torch.tensor([[1.0, step - 1.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    found = DeepSHAP()(lambda v: function(v.sum(dim=1)), x, references=reference).values
    assert math.isclose(float(found[0, 0]), slope(step), rel_tol=1e-12)


def _beside_zero(v):
    return torch.stack([v, 0 * v], dim=1)


@pytest.mark.parametrize("method", [ig2.DeepSHAP(), ig2.IntegratedGradients(3, ig2.rules.secant)], ids=["one", "several"])
def test_contributions_that_cancel_are_off_by_rounding_alone(method: ig2.Method):
    """What is summed is large, of both signs, and comes to next to nothing."""
    net = nn.Sequential(nn.Linear(2000, 1, bias=False)).eval()
    with torch.no_grad():
        net[0].weight.copy_(1e3 * (1 - 2.0 * (torch.arange(2000) % 2)))
    x = randn(4, 1000, seed=1).float().repeat_interleave(2, dim=1)
    x += 1e-6 * randn(4, 2000, seed=2).float()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = method(net, x, references=torch.zeros(1, 2000))
    off = found.values.double().sum(dim=1) - found.output.double()
    assert (off.abs() > 0.01 * found.output.abs()).any() and found.settings["complete"]
