"""Gradients of small smooth networks beside difference quotients in float64, alone and in batches.

Convolutions, recurrent layers and attention, with norms in eval mode at any place and with the
transposes, views and axes of one entry that lie between them: what a layer gets in memory depends
on the size of the batch, and no answer may.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn

import ig2
from ig2._engine.explicands import Explicands
from ig2._engine.session import Session

from .layers import HandmadeAttention, Op, Recurrent, Residual, SelfAttention, Shape

Layer = tuple[nn.Module, str]  # and the kind of what comes out
STEPS = (1e-4, 1e-5)
WITHIN = 1e-6  # of the largest slope, and what difference quotients of both steps are apart
ROWS = 3


def op(name: str, function: Callable[[Tensor], Tensor], kind: str) -> Layer:
    return Op(name, function), kind


def activation(rng: Random) -> nn.Module:
    return rng.choice([nn.Tanh, nn.GELU, nn.SiLU, nn.Softplus, nn.Sigmoid])()


def norm(rng: Random, shape: Shape) -> nn.Module:
    """Of channels, with statistics that are not those of a new layer."""
    dims = len(shape) - 1
    batch = (nn.BatchNorm1d, nn.BatchNorm2d)[dims - 1]
    instance = (nn.InstanceNorm1d, nn.InstanceNorm2d)[dims - 1]
    kinds = [lambda c: batch(c, affine=rng.random() < 0.7)] * 5 + [lambda c: nn.GroupNorm(1, c)]
    if shape[1:].count(1) < dims:
        kinds.append(lambda c: instance(c, affine=True, track_running_stats=rng.random() < 0.5))
    return rng.choice(kinds)(shape[0])


def image(rng: Random, shape: Shape) -> Layer:
    """A layer for images (C, H, W), each place of which may be an axis of one entry."""
    channels, height, width = shape
    groups = rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    kernel = tuple(rng.choice([1, 3]) if side > 1 else 1 for side in (height, width))
    convolution = nn.Conv2d(
        channels,
        groups * rng.randint(1, 3),
        kernel,
        stride=rng.choice([1, 1, 2]),
        padding=tuple(side // 2 for side in kernel),
        groups=groups,
    )
    last = nn.Sequential(
        Op("channels last", lambda y: y.permute(0, 2, 3, 1)),
        rng.choice([nn.LayerNorm(channels), nn.Linear(channels, channels)]),
        Op("channels first", lambda y: y.permute(0, 3, 1, 2)),
    )
    return rng.choice(
        [
            (convolution, "image"),
            (convolution, "image"),
            (norm(rng, shape), "image"),
            (norm(rng, shape), "image"),
            (activation(rng), "image"),
            (last, "image"),
            (Residual(nn.Conv2d(channels, channels, 1), False), "image"),
            op("transposed", lambda y: y.transpose(2, 3), "image"),
            op("contiguous", lambda y: y.contiguous(), "image"),
            op("column", lambda y: y.flatten(2)[..., None], "image"),
            op("row", lambda y: y.flatten(2)[:, :, None], "image"),
            op("mean of columns", lambda y: y.mean(2, keepdim=True), "image"),
            op("tokens", lambda y: y.flatten(2).transpose(1, 2), "tokens"),
            op("tokens", lambda y: y.flatten(2).transpose(1, 2), "tokens"),
            op("tokens by permuting", lambda y: y.permute(0, 2, 3, 1).flatten(1, 2), "tokens"),
            op("tokens by einsum", lambda y: torch.einsum("bchw->bhwc", y).flatten(1, 2), "tokens"),
            op("series", lambda y: y.flatten(2), "series"),
        ]
    )


def series(rng: Random, shape: Shape) -> Layer:
    channels = shape[0]
    return rng.choice(
        [
            (nn.Conv1d(channels, rng.randint(2, 4), rng.choice([1, 3]), padding=1), "series"),
            (norm(rng, shape), "series"),
            (activation(rng), "series"),
            op("tokens", lambda y: y.transpose(1, 2), "tokens"),
            op("image of one row", lambda y: y[:, :, None], "image"),
            op("image of one column", lambda y: y.unsqueeze(-1), "image"),
        ]
    )


def tokens(rng: Random, shape: Shape) -> Layer:
    count, features = shape
    sides = [(side, count // side) for side in range(1, count + 1) if count % side == 0]
    height, width = rng.choice(sides)
    recurrent = Recurrent(rng.choice([nn.RNN, nn.LSTM, nn.GRU]), features, rng.randint(2, 4), 1, rng.random() < 0.3, "all")
    flat = nn.Sequential(
        Op("all tokens", lambda y: y.flatten(0, 1)),
        nn.BatchNorm1d(features, affine=rng.random() < 0.7),
        Op("by sample", lambda y: y.unflatten(0, (-1, count))),
    )
    return rng.choice(
        [
            (nn.Linear(features, rng.randint(2, 5)), "tokens"),
            (nn.Linear(features, rng.randint(2, 5)), "tokens"),
            (nn.LayerNorm(features), "tokens"),
            (activation(rng), "tokens"),
            (recurrent, "tokens"),
            (SelfAttention(features, 1), "tokens"),
            (HandmadeAttention(features, rng.random() < 0.5, rng.random() < 0.5), "tokens"),
            (flat, "tokens"),
            op("series", lambda y: y.transpose(1, 2), "series"),
            op("image", lambda y: y.transpose(1, 2).reshape(len(y), -1, height, width), "image"),
            op("image", lambda y: y.mT.unflatten(2, (height, width)), "image"),
            op(
                "image by permuting",
                lambda y: y.view(len(y), height, width, -1).permute(0, 3, 1, 2),
                "image",
            ),
        ]
    )


KINDS = {"image": image, "series": series, "tokens": tokens}
SHAPES: dict[str, Callable[[Random], Shape]] = {
    "image": lambda rng: (rng.randint(1, 3), rng.randint(2, 5), rng.randint(2, 5)),
    "series": lambda rng: (rng.randint(2, 3), rng.randint(4, 8)),
    "tokens": lambda rng: (rng.randint(3, 8), rng.randint(2, 4)),
}


def build(seed: int) -> tuple[nn.Module, Tensor]:
    """A network in float64 and eval mode, its weights frozen or not, and samples for it."""
    rng = Random(seed)
    torch.manual_seed(seed)
    kind = rng.choice(["image", "image", "image", "series", "tokens"])
    shape = SHAPES[kind](rng)
    x = torch.randn(ROWS, *shape, dtype=torch.float64)
    layers, y = list[nn.Module](), x
    for _ in range(rng.randint(4, 10)):
        at = tuple(y.shape[1:])
        layer, after = KINDS[kind](rng, at)
        if kind == "image" and rng.random() < 0.25:
            layer, after = nn.BatchNorm2d(at[0]), kind
        layer = layer.double().eval()
        for module in layer.modules():
            if getattr(module, "running_mean", None) is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.3, 3)
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.affine:
                nn.init.normal_(module.weight, 1, 0.5)
        with torch.no_grad():
            changed = layer(y)
        layers, y, kind = [*layers, layer], changed, after
    pooled = Op("mean", lambda y: y.flatten(2).mean(2 if kind != "tokens" else 1))
    layers += [rng.choice([nn.Flatten(), pooled])]
    with torch.no_grad():
        features = nn.Sequential(*layers)(x).shape[1]
    net = nn.Sequential(*layers, nn.Linear(features, 3).double()).eval()
    return net.requires_grad_(rng.random() < 0.5), x


def quotients(net: nn.Module, x: Tensor, classes: Tensor, step: float) -> Tensor:
    """The slope of the class's score along each feature of each sample, to the fourth order."""
    steps = step * torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *x.shape[1:])

    def change(one: Tensor, times: int) -> Tensor:
        return net(one + times * steps) - net(one - times * steps)

    with torch.no_grad():
        slopes = [8 * change(one, 1) - change(one, 2) for one in x]
    chosen = [slope[:, c] for slope, c in zip(slopes, classes, strict=True)]
    return torch.stack(chosen).view(x.shape) / (12 * step)


def gradients(net: nn.Module, x: Tensor, classes: Tensor) -> dict[str, Tensor]:
    """Ours, by the way it came about: all that a batch of these samples gives."""
    size = len(x)
    found = {
        f"Gradient of {size}, batch_size={batch}": ig2.Gradient()(net, x, classes, batch_size=batch) for batch in ("auto", 1, 2)
    }
    values = {name: attribution.values for name, attribution in found.items()}
    rows, inputs = torch.arange(size), Explicands.of(x)
    for prepares in (True, False):
        with torch.no_grad(), Session(ig2.wrap(net), inputs, prepares=prepares) as session:
            parts = [session.evaluate(x[at], at, classes[at]).gradient for at in rows.split(2)]
            values[f"session of {size}, prepared {session.is_prepared}"] = torch.cat(parts)
    return values


def check(seed: int) -> list[str]:
    """What is wrong about one network."""
    net, x = build(seed)
    with torch.no_grad():
        classes = net(x).argmax(dim=1)
    coarse, expected = (quotients(net, x, classes, step) for step in STEPS)
    size = max(float(expected.abs().max()), 1e-3)
    within = WITHIN + float((coarse - expected).abs().max()) / size
    wrong = []

    def note(name: str, found: Tensor, right: Tensor, size: float) -> None:
        off = float((found - right).abs().max()) / size
        if not off <= within:
            wrong.append(f"seed {seed}: {name} is off by {off:.2g} of the largest")

    for count in range(1, ROWS + 1):
        for name, found in gradients(net, x[:count], classes[:count]).items():
            note(name, found, expected[:count], size)
    secant = ig2.PathMethod(ig2.paths.Straight(1), rule=ig2.rules.secant)
    together = secant(net, x, classes, x.flip(-1)[:1])
    alone = secant(net, x[:1], classes[:1], x.flip(-1)[:1])
    scale = float(together.values.abs().max()) + 1e-3
    note("a sample's secants alone", alone.values, together.values[:1], scale)
    note("the sum of secants", together.total, together.output - together.baseline_output, scale)
    convolution = [name for name, m in net.named_modules() if isinstance(m, nn.Conv2d)]
    if convolution:
        maps = [ig2.LayerCAM(convolution[-1])(net, x[:n], classes[:n]).values for n in (1, ROWS)]
        note("a sample's LayerCAM alone", maps[0], maps[1][:1], float(maps[1].abs().max()) + 1e-3)
    return wrong


def search(first: int, count: int) -> list[str]:
    """What is wrong about networks from a seed on."""
    wrong = []
    for seed in range(first, first + count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = check(seed)
        wrong += found
        print(*found, sep="\n", end="\n" * bool(found), flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="one network, with a printout")
    parser.add_argument("--count", type=int, default=200, help="how many networks (default 200)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.seed is not None:
        print(build(options.seed)[0])
        return bool(search(options.seed, 1))
    wrong = search(0, options.count)
    seeds = {text.partition(":")[0] for text in wrong}
    print(f"{options.count} networks: {len(seeds)} with gradients that are wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
