"""The gradients a network is explained by: of one sample alone as beside others, and the slope of its output."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2._engine.explicands import Explicands
from ig2._engine.layouts import Layouts
from ig2._engine.session import Session
from networks import Record, randn, seeded, uniform


class Tokens(nn.Module):
    """Channels to tokens, as convolutional transformers do between a norm and a linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


class Image(nn.Module):
    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.sides = height, width

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).unflatten(2, self.sides)


def spread_statistics(net: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.3, 3, generator=generator)
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.affine:
            module.weight.data.normal_(generator=generator)
    return net


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch norm, then tokens": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), Tokens(), nn.Linear(4, 5), nn.Tanh(), nn.Flatten(),
            nn.Linear(180, 3),
        ),
        (3, 6, 6),
    ),
    "tokens, then batch norm": (
        lambda: nn.Sequential(
            nn.Linear(3, 4), Image(4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(4, 3)
        ),
        (12, 3),
    ),
    "instance norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), Tokens(), nn.Linear(4, 5), nn.Tanh(), nn.Flatten(),
            nn.Linear(80, 3),
        ),
        (2, 6, 6),
    ),
    "a width of one": (
        lambda: nn.Sequential(
            nn.Linear(3, 4), Image(12, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), Tokens(), nn.Linear(4, 2), nn.Tanh(),
            nn.Flatten(), nn.Linear(24, 3),
        ),
        (12, 3),
    ),
    "a volume": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 4, 2), nn.BatchNorm3d(4), Tokens(), nn.Linear(4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)
        ),
        (1, 3, 3, 4),
    ),
}  # fmt: skip


def quotients(net: nn.Module, x: Tensor, target: int) -> Tensor:
    """The slopes of a score, by differences."""
    steps = 1e-6 * torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *x.shape[1:])
    with torch.no_grad():
        slopes = [(net(one + steps) - net(one - steps))[:, target] for one in x]
    return torch.stack(slopes).view(x.shape) / 2e-6


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "trainable"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_sample_alone_has_the_gradient_it_has_beside_others(name: str, dtype: torch.dtype, frozen: bool):
    """PyTorch's own is off by 120 to 140 % in these."""
    build, shape = NETWORKS[name]
    exact, x = spread_statistics(seeded(build, 0)), randn(3, *shape)
    expected, within = quotients(exact, x, 1), 1e-7 if dtype == torch.float64 else 1e-4
    net = exact.to(dtype).requires_grad_(not frozen)
    found = [
        torch.cat([ig2.Gradient()(model, x[i : i + 1].to(dtype), 1).values for i in range(3)])
        for model in (net, ig2.wrap(net, prepare=False), lambda x: net(x))
    ]
    # the last batch of some is one sample too
    found += [ig2.Gradient()(net, x.to(dtype), 1, batch_size=size).values for size in (1, 2)]
    for prepares in (True, False):
        with torch.no_grad(), Session(ig2.wrap(net), Explicands.of(x.to(dtype)), prepares=prepares) as session:
            rows = torch.arange(3).split(1)
            found.append(torch.cat([session.evaluate(x.to(dtype)[i], i, torch.ones_like(i)).gradient for i in rows]))
    for values in found:
        torch.testing.assert_close(values.double(), expected, rtol=0, atol=within * float(expected.abs().max()))


@pytest.mark.parametrize("name", NETWORKS)
def test_so_have_secants_and_class_activation_maps(name: str):
    build, shape = NETWORKS[name]
    net, x = spread_statistics(seeded(build, 0)), randn(2, *shape)
    references = randn(1, *shape, seed=1)
    secants = ig2.DeepSHAP()(net, x[:1], 1, references)
    assert secants.residual.abs().max() < 1e-12
    convolutions = [key for key, module in net.named_modules() if isinstance(module, nn.Conv2d)]
    if convolutions:
        alone, beside = (ig2.LayerCAM(convolutions[0])(net, x[:n], 1).values for n in (1, 2))
        torch.testing.assert_close(alone, beside[:1])


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(
    "shape",
    [
        *((1, 4, 6, 5), (2, 4, 1, 5), (2, 4, 5, 1), (1, 4, 1, 5), (2, 1, 4, 5), (2, 4, 1, 1)),
        *((1, 4, 2, 3, 4), (2, 4, 3, 1, 2)),
    ],
    ids=str,
)
def test_no_layout_is_misread(shape: tuple[int, ...], train: bool):
    """Whatever strides an axis of one entry has, in both tensors; without the guard half of these are wrong."""
    x, gradient, norm = randn(*shape), randn(*shape, seed=1), uniform(2, shape[1]) + 0.5
    empty = x.new_empty(0)

    def backward(gradient: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        saved = torch.native_batch_norm(x, norm[0], None, None, None, True, 0.1, 1e-5)[1:] if train else (empty, empty)
        return torch.ops.aten.native_batch_norm_backward(
            gradient, x, norm[0], norm[0], norm[1], *saved, train, 1e-5, [True, True, True]
        )

    def layouts(tensor: Tensor) -> list[Tensor]:
        orders = [tensor.contiguous(), tensor.movedim(1, -1).contiguous().movedim(-1, 1)]
        orders.append(tensor.transpose(2, -1).contiguous().transpose(2, -1))
        return [
            torch.as_strided(t, shape, [stride if side == 1 else own for side, own in zip(shape, t.stride(), strict=True)])
            for t, stride in itertools.product(orders, (1, 4, 1000))
        ]

    expected = backward(gradient, x)
    misread = 0
    for one, other in itertools.product(layouts(gradient), layouts(x)):
        with Layouts():
            found = backward(one, other)
        for value, right in zip(found, expected, strict=True):
            torch.testing.assert_close(value, right)
        misread += not torch.allclose(backward(one, other)[0], expected[0])
    assert bool(misread) is (1 in (shape[0], *shape[2:]) and shape[1] > 1 and shape[2:] != (1, 1))


# -- gradients that are wrong in another way -------------------------------------------------------------------------------


class _Wrong(torch.autograd.Function):
    """Nothing, with a backward pass that is another one where it is told so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, is_wrong: bool) -> Tensor:
        ctx.is_wrong = is_wrong
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return (gradient.flip(1) if ctx.is_wrong else gradient), None


class Faulty(nn.Module):
    """A network with such a fault, in batches of some sizes."""

    def __init__(self, is_wrong: Callable[[int], bool]) -> None:
        super().__init__()
        self.sizes, self.is_wrong = Record(), is_wrong
        self.first, self.norm, self.last = nn.Conv1d(2, 8, 3), nn.GroupNorm(1, 8), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        hidden = _Wrong.apply(self.first(x), self.is_wrong(len(x)))
        return self.last(self.norm(hidden).tanh().flatten(1))


FAULTS = {"alone": lambda n: n == 1, "in a batch": lambda n: n > 1, "nowhere": lambda n: False}
METHODS = {
    "Gradient": (ig2.Gradient(), {}),
    "IntegratedGradients": (ig2.IntegratedGradients(4), {}),
    "IG2": (ig2.IG2(4), {"references": randn(2, 2, 6, seed=2)}),
    "DeepSHAP": (ig2.DeepSHAP(), {"references": randn(1, 2, 6, seed=2)}),
    "LayerCAM": (ig2.LayerCAM("first", relu=False), {}),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("fault", ["alone", "in a batch"])
@pytest.mark.parametrize("name", METHODS)
def test_a_call_goes_on_in_the_way_that_agrees_with_difference_quotients(name: str, fault: str, dtype: torch.dtype):
    method, options = METHODS[name]
    options = {key: value.to(dtype) for key, value in options.items()}
    right, wrong = (seeded(lambda kind=kind: Faulty(FAULTS[kind]), 0).to(dtype) for kind in ("nowhere", fault))
    for count, size in ((1, "auto"), (3, "auto"), (3, 1)):
        x = randn(3, 2, 6)[:count].to(dtype)
        if fault == "in a batch" and (size == 1 or (count == 1 and name in ("Gradient", "LayerCAM"))):
            continue  # there is no batch
        expected = method(right, x, 0, batch_size=size, **options)
        with pytest.warns(ig2.IG2Warning, match="difference quotients agree with the"):
            found = method(wrong, x, 0, batch_size=size, **options)
        torch.testing.assert_close(found.values, expected.values, rtol=1e-4, atol=1e-6)
        assert "is another one" in found.settings["preparation"]["gradients"]
        assert "gradients" not in expected.settings["preparation"]


def test_an_advice_is_given_once_for_all_calls_of_a_kept_network():
    model = ig2.wrap(seeded(lambda: Faulty(FAULTS["in a batch"]), 0))
    with pytest.warns(ig2.IG2Warning, match="difference quotients agree"):
        first = ig2.Gradient()(model, randn(3, 2, 6), 0)
    again = ig2.Gradient()(model, randn(3, 2, 6), 0)
    assert torch.equal(first.values, again.values) and again.settings["preparation"] == first.settings["preparation"]


def test_a_gradient_that_is_not_the_slope_is_reported():
    net = seeded(lambda: Faulty(lambda n: True), 0)
    found = ig2.Gradient()(net, randn(3, 2, 6), 0)
    assert "not the slope" in found.settings["preparation"]["gradients"]


@pytest.mark.parametrize(
    ("net", "x"),
    [
        (nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3)), torch.zeros(2, 6)),
        (nn.Sequential(nn.MaxPool1d(3), nn.Flatten(), nn.Linear(4, 3)), torch.ones(2, 2, 6)),
        (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), torch.ones(2, 6)),
        (nn.Sequential(nn.Hardtanh(), nn.Linear(6, 3)), torch.ones(2, 6)),
        (nn.Sequential(nn.Linear(6, 3), nn.Softmax(1)), 1e3 * torch.ones(2, 6)),
        (nn.Sequential(nn.Linear(6, 3)).bfloat16(), torch.ones(2, 6).bfloat16()),
    ],
    ids=["at a kink", "ties", "kinks around", "at an edge", "saturated", "half precision"],
)
def test_kinks_ties_and_saturation_are_no_fault(net: nn.Module, x: Tensor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for samples in (x, x[:1]):
            found = ig2.Gradient()(net.eval(), samples, 0)
            assert "gradients" not in found.settings["preparation"]


# -- what it costs -----------------------------------------------------------------------------------------------------------


class _Logged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, log: list[str]) -> Tensor:
        ctx.log = log
        log.append(f"{'F' if x.requires_grad else 'f'}{len(x)}")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.log.append(f"B{len(gradient)}")
        return gradient, None


class Logging(nn.Module):
    """Notes the passes of so many points: F with a graph, f without, B backward."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.log = net, Record()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(_Logged.apply(x, self.log))


def test_opening_takes_three_passes_and_one_backward_pass_or_two():
    net = Logging(seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 0)).eval()
    for x, method, passes in (
        (randn(8, 6), ig2.Gradient(), "F1 B1 F1 F2 B2 F8 B8"),
        (randn(1, 6), ig2.Gradient(), "F1 B1 F1 f2 F1 B1"),  # nothing is taken of several points
        (randn(8, 6), ig2.KernelSHAP(), "f1 f1 f2 f8 f512"),
    ):
        net.log.clear()
        method(net, x, 0)
        assert " ".join(net.log) == passes, method
