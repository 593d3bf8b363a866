"""The catalogue of what a random network is made of, as data: layers, operations, norms, and the wrappers around them.

A layer knows which kinds of samples it takes; what shape comes out is found by running it. Kinds: v a vector (F), s a series
(C, L), t tokens (T, F), i an image (C, H, W), w a volume (C, D, H, W).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

Shape = tuple[int, ...]


class Op(nn.Module):
    """A function as a layer, shown by its name."""

    def __init__(self, name: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, y: Tensor) -> Tensor:
        return self.function(y)

    def extra_repr(self) -> str:
        return self.name


# -- operations without weights ------------------------------------------------------------------------------------------


def _write_view(y: Tensor) -> Tensor:
    z = y * 1.5
    z.view(len(z), -1)[:, ::2].mul_(0.5)
    return z


def _write_slice(y: Tensor) -> Tensor:
    z = y.clone()
    z[:, :1] = z[:, :1].tanh()
    return z


def _spectrum(y: Tensor) -> Tensor:
    full = y if y.dtype in (torch.float32, torch.float64) else y.float()
    return torch.fft.irfft(torch.fft.rfft(full, dim=-1).mul_(0.5), n=y.shape[-1], dim=-1).to(y.dtype)


def _sort(y: Tensor) -> Tensor:
    return y + 0.1 * y.flatten(1).sort(dim=1).values.view_as(y)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "y * sigmoid(y)": lambda y: y * y.sigmoid(),
    "where(y > 0, y, y / 2)": lambda y: torch.where(y > 0, y, y / 2),
    "maximum(y, -y / 3)": lambda y: torch.maximum(y, -y / 3),
    "y.clamp(-1, 1)": lambda y: y.clamp(-1, 1),
    "y / (1 + |y|)": lambda y: y / (1 + y.abs()),
    "sqrt(y² + 0.01)": lambda y: (y.square() + 0.01).sqrt(),
    "normalise": lambda y: F.normalize(y, dim=1),
    "softmax": lambda y: y.softmax(dim=1),
    "y - mean(y)": lambda y: y - y.mean(dim=1, keepdim=True),
    "cumsum": lambda y: y.cumsum(dim=-1) / y.shape[-1],
    "flip": lambda y: y.flip(-1),
    "sort": _sort,
    "spectrum, written in place": _spectrum,
    # in place
    "relu_": lambda y: F.relu(y, inplace=True),
    "hardtanh_": lambda y: F.hardtanh(y, -1.5, 1.5, inplace=True),
    "hardswish_": lambda y: F.hardswish(y, inplace=True),
    "leaky_relu_": lambda y: F.leaky_relu_(y, 0.2),
    "mul_": lambda y: y.mul_(1.3),
    "add_": lambda y: y.add_(0.2),
    "clamp_": lambda y: y.clamp_(-2, 2),
    "y.add_(y.tanh())": lambda y: y.add_(y.tanh()),
    "write into a view": _write_view,
    "write into a slice": _write_slice,
    "view, then mul_": lambda y: y.view(y.shape).mul_(0.7),
    "transposed, then relu_": lambda y: y.transpose(1, -1).relu_().transpose(1, -1),
    "masked_fill_": lambda y: y.masked_fill_(y < -1, -1.0),
}


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU,
    "ReLU in place": lambda: nn.ReLU(inplace=True),
    "ReLU6 in place": lambda: nn.ReLU6(inplace=True),
    "Hardtanh": nn.Hardtanh,
    "Hardtanh in place": lambda: nn.Hardtanh(-3, 3, inplace=True),
    "ELU": nn.ELU,
    "ELU in place": lambda: nn.ELU(inplace=True),
    "SELU": nn.SELU,
    "CELU": nn.CELU,
    "GELU": nn.GELU,
    "GELU tanh": lambda: nn.GELU(approximate="tanh"),
    "SiLU": nn.SiLU,
    "SiLU in place": lambda: nn.SiLU(inplace=True),
    "Mish": nn.Mish,
    "Tanh": nn.Tanh,
    "Sigmoid": nn.Sigmoid,
    "Softplus": nn.Softplus,
    "Softsign": nn.Softsign,
    "Hardswish": nn.Hardswish,
    "Hardswish in place": lambda: nn.Hardswish(inplace=True),
    "Hardsigmoid": nn.Hardsigmoid,
    "LeakyReLU in place": lambda: nn.LeakyReLU(0.1, inplace=True),
    "PReLU": nn.PReLU,
    "RReLU": nn.RReLU,
    "Softshrink": nn.Softshrink,
    "Hardshrink": nn.Hardshrink,
    "Tanhshrink": nn.Tanhshrink,
    "LogSigmoid": nn.LogSigmoid,
    "Threshold in place": lambda: nn.Threshold(0.1, 0.0, inplace=True),
    "Dropout": lambda: nn.Dropout(0.5),
    "Dropout in place": lambda: nn.Dropout(0.5, inplace=True),
    "AlphaDropout": nn.AlphaDropout,
    "Identity": nn.Identity,
}


# -- layers with weights ---------------------------------------------------------------------------------------------------


def _linear(rng: Random, shape: Shape) -> nn.Module:
    return nn.Linear(shape[-1], rng.randint(2, 8), bias=rng.random() < 0.8)


def _square(rng: Random, shape: Shape) -> nn.Module:
    """A linear layer that keeps the shape, as residual branches need."""
    return nn.Linear(shape[-1], shape[-1])


def _normed_linear(rng: Random, shape: Shape) -> nn.Module:
    linear = _linear(rng, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older weight norm is deprecated, and still met
        wrap = rng.choice([parametrizations.weight_norm, nn.utils.weight_norm, _spectral, nn.utils.spectral_norm])
        return wrap(linear)


def _spectral(layer: nn.Module) -> nn.Module:
    return parametrizations.spectral_norm(layer)


def _convolution(rng: Random, shape: Shape) -> nn.Module:
    dims = len(shape) - 1
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    groups = rng.choice([g for g in (1, 1, 2, shape[0]) if shape[0] % g == 0])
    mode = rng.choice(["zeros", "zeros", "reflect", "replicate", "circular"])
    if mode == "reflect" and dims == 3 and rng.random() < 0.5:
        mode = "zeros"
    conv = kind(
        shape[0], groups * rng.randint(1, 4), rng.randint(1, 3), stride=rng.choice([1, 1, 2]), padding=rng.randint(0, 1),
        dilation=rng.choice([1, 1, 2]), groups=groups, bias=rng.random() < 0.7, padding_mode=mode,
    )  # fmt: skip
    return parametrizations.weight_norm(conv) if rng.random() < 0.08 else conv


def _normed_block(rng: Random, shape: Shape) -> nn.Module:
    """A linear map, now and then something that writes into its output, a batch norm, an activation."""
    first = _convolution(rng, shape) if len(shape) > 1 else _linear(rng, shape)
    between = [_op(rng, shape)] if rng.random() < 0.3 else [_activation(rng, shape)] if rng.random() < 0.3 else []
    with torch.no_grad():
        made = tuple(first.eval()(torch.zeros(2, *shape)).shape[1:])
    return nn.Sequential(first, *between, _batch_norm(rng, made), _activation(rng, made))


def _transposed(rng: Random, shape: Shape) -> nn.Module:
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[len(shape) - 2]
    return kind(shape[0], rng.randint(1, 3), 2, stride=rng.choice([1, 2]))


def _batch_norm(rng: Random, shape: Shape) -> nn.Module:
    kind = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[len(shape) - 1]
    norm = kind(shape[0], affine=rng.random() < 0.7, eps=rng.choice([1e-5, 1e-3]))
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.05, 3)
        if norm.affine:
            norm.weight.normal_(0.5, 1)
            norm.bias.normal_()
    return norm


def _mixing_norm(rng: Random, shape: Shape) -> nn.Module:
    """A batch norm without statistics of its own: samples of a batch mix."""
    kind = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[len(shape) - 1]
    return kind(shape[0], track_running_stats=False)


def _instance_norm(rng: Random, shape: Shape) -> nn.Module:
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[len(shape) - 2]
    norm = kind(shape[0], affine=rng.random() < 0.5, track_running_stats=rng.random() < 0.4)
    with torch.no_grad():
        if norm.track_running_stats:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.05, 3)
    return norm


def _group_norm(rng: Random, shape: Shape) -> nn.Module:
    return nn.GroupNorm(rng.choice([g for g in range(1, shape[0] + 1) if shape[0] % g == 0]), shape[0])


def _layer_norm(rng: Random, shape: Shape) -> nn.Module:
    if shape[-1] < 3:
        raise ValueError("of two features it is their sign, whose gradient is rounding alone")
    return nn.LayerNorm(shape[-1] if rng.random() < 0.5 else shape, elementwise_affine=rng.random() < 0.7)


def _pool(rng: Random, shape: Shape) -> nn.Module:
    kinds = [
        (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveMaxPool1d, nn.AdaptiveAvgPool1d),
        (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d),
        (nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveMaxPool3d, nn.AdaptiveAvgPool3d),
    ]
    return rng.choice(kinds[len(shape) - 2])(2)


class Recurrent(nn.Module):
    """A recurrent layer; of its states in time all, the last, their mean or their maximum."""

    def __init__(self, kind: type[nn.RNNBase], features: int, hidden: int, layers: int, both_ways: bool, take: str) -> None:
        super().__init__()
        self.rnn = kind(features, hidden, layers, batch_first=True, bidirectional=both_ways)
        self.take = take

    def forward(self, y: Tensor) -> Tensor:
        states = self.rnn(y)[0]
        if self.take == "all":
            return states
        return {"last": states[:, -1], "mean": states.mean(dim=1), "max": states.amax(dim=1)}[self.take]

    def extra_repr(self) -> str:
        return self.take


def _recurrent(rng: Random, shape: Shape, take: str = "all") -> nn.Module:
    kind = rng.choice([nn.RNN, nn.LSTM, nn.GRU])
    return Recurrent(kind, shape[-1], rng.randint(2, 4), rng.choice([1, 1, 2]), rng.random() < 0.5, take)


class SelfAttention(nn.Module):
    """`nn.MultiheadAttention` of tokens to themselves."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(features, heads, batch_first=True)

    def forward(self, y: Tensor) -> Tensor:
        return self.attention(y, y, y, need_weights=False)[0]


class HandmadeAttention(nn.Module):
    """Queries, keys and values from one projection, and `scaled_dot_product_attention` or the formula itself."""

    def __init__(self, features: int, causal: bool, fused: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.causal, self.fused = causal, fused

    def forward(self, y: Tensor) -> Tensor:
        q, k, v = self.qkv(y).chunk(3, dim=-1)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(dim=-1) @ v


def _heads(rng: Random, features: int) -> int:
    return rng.choice([h for h in (1, 2, 4) if features % h == 0])


def _encoder(rng: Random, shape: Shape) -> nn.Module:
    if shape[-1] < 3:
        raise ValueError("see the layer norm")
    return nn.TransformerEncoderLayer(
        shape[-1], _heads(rng, shape[-1]), 8, batch_first=True, norm_first=rng.random() < 0.5,
        activation=rng.choice(["relu", "gelu"]),
    )  # fmt: skip


class Tied(nn.Module):
    """y → act(y W) Wᵀ: one weight, used twice, by functional calls."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, features) / features**0.5)

    def forward(self, y: Tensor) -> Tensor:
        return F.linear(F.linear(y, self.weight).tanh(), self.weight.T)


class Counting(nn.Module):
    """Counts its calls in a buffer, and keeps what it saw last in another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, y: Tensor) -> Tensor:
        self.calls += 1
        self.seen = y.detach().mean()
        return y


# -- wrappers around other layers ------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, branch: nn.Module, in_place: bool) -> None:
        super().__init__()
        self.branch, self.in_place = branch, in_place

    def forward(self, y: Tensor) -> Tensor:
        return self.branch(y).add_(y) if self.in_place else y + self.branch(y)


class Gate(nn.Module):
    """The branch where y is positive, and y itself elsewhere."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, y: Tensor) -> Tensor:
        return torch.where(y > 0, self.branch(y), y)


class Twice(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, y: Tensor) -> Tensor:
        return self.branch(self.branch(y))


class Side(nn.Module):
    """What the first layer returns goes to the second, and beside it to the output."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, y: Tensor) -> Tensor:
        y = self.first(y)
        return y + self.second(y)


class Fork(nn.Module):
    """Two branches side by side, joined along the channels."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(self, y: Tensor) -> Tensor:
        return torch.cat([self.left(y), self.right(y)], dim=1)


class Checkpointed(nn.Module):
    def __init__(self, branch: nn.Module, re_entrant: bool) -> None:
        super().__init__()
        self.branch, self.re_entrant = branch, re_entrant

    def forward(self, y: Tensor) -> Tensor:
        return checkpoint(self.branch, y, use_reentrant=self.re_entrant)

    def extra_repr(self) -> str:
        return f"use_reentrant={self.re_entrant}"


class Autocast(nn.Module):
    """The branch under autocast; `off` for the float64 twin."""

    def __init__(self, branch: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.branch, self.dtype, self.off = branch, dtype, False

    def forward(self, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype, enabled=not self.off):
            return self.branch(y).to(y.dtype)

    def extra_repr(self) -> str:
        return f"{self.dtype}"


class Hooked(nn.Module):
    """A branch with a hook of the user's own: it changes what comes out or what goes in, or only looks."""

    def __init__(self, branch: nn.Module, kind: str) -> None:
        super().__init__()
        self.branch, self.kind = branch, kind
        if kind == "output":
            branch.register_forward_hook(lambda _module, _args, result: result * 1.1)
        elif kind == "input":
            branch.register_forward_pre_hook(lambda _module, args: (args[0] * 0.9,))
        elif kind == "look":
            branch.register_forward_hook(lambda _module, _args, _result: None)
        else:
            branch.register_full_backward_hook(lambda _module, _inputs, _outputs: None)

    def forward(self, y: Tensor) -> Tensor:
        return self.branch(y)

    def extra_repr(self) -> str:
        return self.kind


# -- the catalogue -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    kinds: str
    make: Callable[[Random, Shape], nn.Module]
    to: str | None = None  # the kind that comes out, if another
    weight: float = 1.0


def _op(rng: Random, shape: Shape) -> nn.Module:
    name = rng.choice(list(FUNCTIONS))
    return Op(name, FUNCTIONS[name])


def _activation(rng: Random, shape: Shape) -> nn.Module:
    return ACTIVATIONS[rng.choice(list(ACTIVATIONS))]()


def _to_vector(rng: Random, shape: Shape) -> nn.Module:
    spatial = tuple(range(2, len(shape) + 1)) or (1,)
    time = 1 if len(shape) == 2 and rng.random() < 0.3 else spatial
    return rng.choice(
        [
            nn.Flatten(),
            Op(f"mean{time}", lambda y: y.mean(dim=time)),
            Op(f"amax{spatial}", lambda y: y.amax(dim=spatial)),
            Op("max over the last axis, then flatten", lambda y: y.max(dim=-1).values.flatten(1)),
            Op("view", lambda y: y.reshape(len(y), -1)),
        ]
    )


LAYERS: dict[str, Layer] = {
    "linear": Layer("vt", _linear, weight=3),
    "square linear": Layer("vt", _square),
    "normed linear": Layer("vt", _normed_linear, weight=0.6),
    "convolution": Layer("siw", _convolution, weight=4),
    "normed block": Layer("vsiw", _normed_block, weight=2.5),
    "transposed convolution": Layer("siw", _transposed, weight=0.4),
    "batch norm": Layer("vsiw", _batch_norm, weight=3),
    "mixing norm": Layer("vsiw", _mixing_norm, weight=0.1),
    "instance norm": Layer("siw", _instance_norm, weight=1.2),
    "group norm": Layer("siw", _group_norm, weight=0.7),
    "layer norm": Layer("vstiw", _layer_norm, weight=0.7),
    "RMS norm": Layer("vt", lambda rng, shape: nn.RMSNorm(shape[-1]), weight=0.4),
    "local response norm": Layer("siw", lambda rng, shape: nn.LocalResponseNorm(2), weight=0.4),
    "pool": Layer("siw", _pool, weight=0.6),
    "upsample": Layer("siw", lambda rng, shape: nn.Upsample(scale_factor=2), weight=0.2),
    "activation": Layer("vstiw", _activation, weight=4),
    "operation": Layer("vstiw", _op, weight=3),
    "tied": Layer("vt", lambda rng, shape: Tied(shape[-1], rng.randint(2, 5)), weight=0.3),
    "counting": Layer("vstiw", lambda rng, shape: Counting(), weight=0.15),
    "recurrent": Layer("t", _recurrent, weight=1.5),
    "recurrent, last": Layer("t", lambda rng, shape: _recurrent(rng, shape, "last"), "v", 0.5),
    "recurrent, mean": Layer("t", lambda rng, shape: _recurrent(rng, shape, "mean"), "v", 0.5),
    "recurrent, max": Layer("t", lambda rng, shape: _recurrent(rng, shape, "max"), "v", 0.5),
    "attention": Layer("t", lambda rng, shape: SelfAttention(shape[-1], _heads(rng, shape[-1]))),
    "attention by hand": Layer("t", lambda rng, shape: HandmadeAttention(shape[-1], rng.random() < 0.3, rng.random() < 0.7)),
    "transformer": Layer("t", _encoder),
    "tokens to series": Layer("t", lambda rng, shape: Op("transpose", lambda y: y.transpose(1, 2)), "s", 0.3),
    "series to tokens": Layer("s", lambda rng, shape: Op("transpose", lambda y: y.transpose(1, 2)), "t", 0.3),
    "to vector": Layer("stiw", _to_vector, "v", 0.6),
}
