"""The paper's perceptron for synthetic tables, and its training: as many networks at once as there are tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ig2._utils.checks import check_seed, is_count, is_number
from ig2._utils.training import minimise
from ig2.errors import InputError, describe

WIDTHS = (64, 16)
# what nn.BatchNorm1d does by default
EPSILON, MOMENTUM = 1e-5, 0.1


@dataclass(frozen=True)
class PerceptronSettings:
    """How perceptrons are trained: squared error, AdamW, the learning rate falling to zero along a cosine.

    The paper gives none. These are ordinary settings, and among them those that fit held-out samples well.

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


class Perceptrons(nn.Module):
    """K networks d-64-16-1, tanh after each hidden layer, batch normalisation before the first; side by side.

    All start with the same weights, uniform within one over the root of a layer's inputs.

    Args:
        count: K.
        features: d.
        generator: of the first weights.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, count: int, features: int, generator: torch.Generator) -> None:
        super().__init__()
        weights: list[nn.Parameter] = []
        biases: list[nn.Parameter] = []
        for inputs, outputs in pairwise([features, *WIDTHS, 1]):
            for rows, tensors in ((inputs, weights), (1, biases)):
                draw = torch.rand(rows, outputs, generator=generator, dtype=torch.float64, device="cpu")
                tensors.append(nn.Parameter(((2 * draw - 1) / math.sqrt(inputs)).repeat(count, 1, 1)))
        ones = torch.ones(count, 1, WIDTHS[0], dtype=torch.float64, device="cpu")
        self.weights = nn.ParameterList(weights)  # of the three layers, (K, inputs, outputs)
        self.biases = nn.ParameterList(biases)  # (K, 1, outputs)
        self.scale = nn.Parameter(ones)  # of the normalisation, (K, 1, 64), as those below
        self.shift = nn.Parameter(torch.zeros_like(ones))
        self.register_buffer("mean", torch.zeros_like(ones))
        self.register_buffer("variance", torch.ones_like(ones))

    def __len__(self) -> int:
        return len(self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Each network's output on its own rows (K, n, d), (K, n); in train mode normalised by the batch's own statistics."""
        first = torch.baddbmm(self.biases[0], x, self.weights[0])
        mean, variance = self.mean, self.variance
        if self.training:
            mean = first.mean(dim=1, keepdim=True)
        centred = first - mean
        if self.training:
            variance = centred.square().mean(dim=1, keepdim=True)  # var_mean takes longer than the network
            with torch.no_grad():
                self.mean.lerp_(mean, MOMENTUM)
                self.variance.lerp_(variance * x.shape[1] / (x.shape[1] - 1), MOMENTUM)
        hidden = torch.tanh(torch.addcmul(self.shift, centred, self.scale * (variance + EPSILON).rsqrt()))
        hidden = torch.tanh(torch.baddbmm(self.biases[1], hidden, self.weights[1]))
        return torch.baddbmm(self.biases[2], hidden, self.weights[2])[..., 0]

    def predict(self, x: Tensor) -> Tensor:
        """Each network's output on its own rows (K, n, d), in the dtype of x: (K, n)."""
        with torch.no_grad():
            return self(x.to(self.scale)).to(x)  # type: ignore[no-any-return]

    def network(self, number: int = 0) -> nn.Sequential:
        """One of the networks as a module of its own, in eval mode."""
        sizes = [self.weights[0].shape[1], *WIDTHS, 1]
        with torch.device("meta"):  # no first weights, which would come from global random state
            first, second, last = (nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes))
            norm = nn.BatchNorm1d(WIDTHS[0], eps=EPSILON, momentum=MOMENTUM)
            net = nn.Sequential(first, norm, nn.Tanh(), second, nn.Tanh(), last)
        state = {"1.num_batches_tracked": torch.tensor(0, device="cpu")}
        for place, weight, bias in zip((0, 3, 5), self.weights, self.biases, strict=True):
            state |= {f"{place}.weight": weight[number].detach().T.contiguous(), f"{place}.bias": bias[number, 0].detach()}
        norms = {"weight": self.scale, "bias": self.shift, "running_mean": self.mean, "running_var": self.variance}
        state |= {f"1.{name}": tensor[number, 0].detach() for name, tensor in norms.items()}
        net.load_state_dict(state, assign=True)
        return net.eval().requires_grad_(False)


def train_perceptrons(x: Tensor, y: Tensor, seed: int = 0, settings: PerceptronSettings = PerceptronSettings()) -> Perceptrons:
    """Train a network on each of K tables, all in the same steps.

    The first weights and the order of the samples depend on the seed alone: each network becomes what it would become by
    itself, and networks on tables that differ little differ for no other reason.

    Args:
        x: rows (K, n, d).
        y: what to predict of each, (K, n).
        seed: of the first weights and of the order.
        settings: how they are trained.

    Returns:
        The networks, in eval mode, in float64 on the CPU.

    Raises:
        InputError: where x and y do not have these shapes.
    """
    check_seed(seed)
    if x.ndim != 3 or x.shape[1] < 2 or y.shape != x.shape[:2]:
        raise InputError(f"x is {describe(x)}, y {describe(y)}: expected (K, n, d) and (K, n), two rows at least")
    generator = torch.Generator().manual_seed(seed)
    x, y = (tensor.detach().to(device="cpu", dtype=torch.float64) for tensor in (x, y))
    steps = max(1, x.shape[1] // settings.batch)

    def pace(step: int) -> float:
        return (1 + math.cos(math.pi * ((step // steps + step % steps / steps) / settings.epochs))) / 2

    with torch.inference_mode(False):
        nets = Perceptrons(len(x), x.shape[2], generator)
        # each number has its own step, so networks that share a tensor do not affect each other
        optimizer = torch.optim.AdamW(nets.parameters(), lr=settings.rate, weight_decay=settings.decay, fused=True)
        minimise(
            lambda rows, _: (nets(x[:, rows]) - y[:, rows]).square().mean(dim=1).sum(),
            lambda generator: torch.randperm(x.shape[1], generator=generator, device="cpu").tensor_split(steps),
            optimizer,
            epochs=settings.epochs,
            schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, pace),
            seed=seed,
            generator=generator,
        )
    return nets.eval().requires_grad_(False)
