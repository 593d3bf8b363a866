"""The paper's perceptron for tables, and its training: as many networks at once as there are data to train on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ig2._utils.checks import check_seed, is_count, is_number
from ig2.errors import InputError, describe

WIDTHS = (64, 16)
# what nn.BatchNorm1d does by default
EPSILON, MOMENTUM = 1e-5, 0.1


@dataclass(frozen=True)
class Recipe:
    """How perceptrons are trained: squared error, AdamW, the learning rate falling to zero along a cosine.

    The paper gives none. This one takes ordinary settings, and among them what fits held-out samples well.

    Args:
        epochs: how often each sample is seen.
        batch: how many samples a step is made from, about: they are divided evenly.
        rate: the first learning rate.
        decay: of the weights.
    """

    epochs: int = 100
    batch: int = 100
    rate: float = 0.01
    decay: float = 0.01

    def __post_init__(self) -> None:
        if not is_count(self.epochs) or not (is_count(self.batch) and self.batch > 1):
            raise InputError(
                f"epochs must be a positive integer and batch two or more, which a normalisation needs; got "
                f"{describe(self.epochs)} and {describe(self.batch)}"
            )
        if not (is_number(self.rate) and self.rate > 0) or not (is_number(self.decay) and self.decay >= 0):
            raise InputError(f"rate must be positive and decay not negative, got {self.rate!r} and {self.decay!r}")


@dataclass(frozen=True)
class Perceptrons:
    """K networks d-64-16-1, tanh after each hidden layer, batch normalisation before the first; side by side."""

    weights: tuple[Tensor, ...]  # of the three layers, (K, inputs, outputs)
    biases: tuple[Tensor, ...]  # (K, 1, outputs)
    scale: Tensor  # of the normalisation, (K, 1, 64), as those below
    shift: Tensor
    mean: Tensor
    variance: Tensor

    def __len__(self) -> int:
        return len(self.scale)

    def predict(self, x: Tensor) -> Tensor:
        """Each network's output on its own rows (K, n, d), (K, n)."""
        with torch.no_grad():
            return self._rest(self._first(x.to(self.scale)) - self.mean, self.variance).to(x)

    def network(self, number: int = 0) -> nn.Sequential:
        """One of the networks as a module, in eval mode."""
        sizes = [self.weights[0].shape[1], *WIDTHS, 1]
        with torch.device("meta"):  # no first weights, which would come from global random state
            first, second, last = (nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes))
            norm = nn.BatchNorm1d(WIDTHS[0], eps=EPSILON, momentum=MOMENTUM)
            net = nn.Sequential(first, norm, nn.Tanh(), second, nn.Tanh(), last)
        state = {"1.num_batches_tracked": torch.tensor(0, device="cpu")}
        for place, weight, bias in zip((0, 3, 5), self.weights, self.biases, strict=True):
            state |= {f"{place}.weight": weight[number].T.contiguous(), f"{place}.bias": bias[number, 0]}
        norms = {"weight": self.scale, "bias": self.shift, "running_mean": self.mean, "running_var": self.variance}
        state |= {f"1.{name}": tensor[number, 0] for name, tensor in norms.items()}
        net.load_state_dict(state, assign=True)
        return net.eval().requires_grad_(False)

    def _first(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.biases[0], x, self.weights[0])

    def _rest(self, centred: Tensor, variance: Tensor) -> Tensor:
        hidden = torch.tanh(torch.addcmul(self.shift, centred, self.scale * (variance + EPSILON).rsqrt()))
        hidden = torch.tanh(torch.baddbmm(self.biases[1], hidden, self.weights[1]))
        return torch.baddbmm(self.biases[2], hidden, self.weights[2])[..., 0]


def train(x: Tensor, y: Tensor, seed: int = 0, recipe: Recipe = Recipe()) -> Perceptrons:
    """Train a network on each of K tables, all in the same steps.

    The first weights and the order of the samples depend on the seed alone: each network becomes what it would become by
    itself, and networks on tables that differ little differ for no other reason.

    Args:
        x: rows (K, n, d).
        y: what to predict of each, (K, n).
        seed: of the first weights and of the order.
        recipe: the settings.
    """
    check_seed(seed)
    if x.ndim != 3 or x.shape[1] < 2 or y.shape != x.shape[:2]:
        raise InputError(f"x is {describe(x)}, y {describe(y)}: expected (K, n, d) and (K, n), two rows at least")
    generator = torch.Generator().manual_seed(seed)
    x, y = (tensor.detach().to(device="cpu", dtype=torch.float64) for tensor in (x, y))
    with torch.inference_mode(False), torch.enable_grad():
        nets = _new(len(x), x.shape[2], generator)
        learned = [*nets.weights, *nets.biases, nets.scale, nets.shift]
        # each number has its own step, so networks that stand in one tensor do not feel each other
        optimizer = torch.optim.AdamW(
            [tensor.requires_grad_() for tensor in learned], lr=recipe.rate, weight_decay=recipe.decay, fused=True
        )
        pieces = max(1, x.shape[1] // recipe.batch)
        for epoch in range(recipe.epochs):
            order = torch.randperm(x.shape[1], generator=generator, device="cpu")
            for piece, some in enumerate(order.tensor_split(pieces)):
                done = (epoch + piece / pieces) / recipe.epochs
                optimizer.param_groups[0]["lr"] = recipe.rate * (1 + math.cos(math.pi * done)) / 2
                first = nets._first(x[:, some])
                mean = first.mean(dim=1, keepdim=True)
                centred = first - mean
                variance = centred.square().mean(dim=1, keepdim=True)  # var_mean takes longer than the network
                with torch.no_grad():
                    nets.mean.lerp_(mean, MOMENTUM)
                    nets.variance.lerp_(variance * len(some) / (len(some) - 1), MOMENTUM)
                error = (nets._rest(centred, variance) - y[:, some]).square().mean(dim=1).sum()
                optimizer.zero_grad()
                error.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    for tensor in learned:
        tensor.requires_grad_(False).grad = None
    return nets


def _new(count: int, features: int, generator: torch.Generator) -> Perceptrons:
    """Networks with the same first weights, uniform within one over the root of a layer's inputs."""
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    sizes = [features, *WIDTHS, 1]
    for inputs, outputs in pairwise(sizes):
        for rows, found in ((inputs, weights), (1, biases)):
            draw = torch.rand(rows, outputs, generator=generator, dtype=torch.float64, device="cpu")
            found.append(((2 * draw - 1) / math.sqrt(inputs)).repeat(count, 1, 1))
    ones = torch.ones(count, 1, WIDTHS[0], dtype=torch.float64, device="cpu")
    return Perceptrons(tuple(weights), tuple(biases), ones, torch.zeros_like(ones), torch.zeros_like(ones), ones.clone())
