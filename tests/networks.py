"""Small float64 networks and data for the tests. All are seeded, and none touches global random state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network in float64 and eval mode, whose weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().double().eval()


def data(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Uniform samples in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64) * (high - low) + low


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal samples, the same in every type."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def spread_weights(net: nn.Module, seed: int = 0) -> nn.Module:
    """The network in float64 and eval mode, with weights that leave no activation saturated or dead by chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.7)
    return net.eval()


def uniform(*shape: int, seed: int = 0) -> Tensor:
    """Samples between 0 and 1."""
    return data(*shape, seed=seed, low=0.0)


def made(build: Callable[[], nn.Module]) -> nn.Module:
    """A network in eval mode, the same at every call."""
    return seeded(build, 0)


def refuses(error: type[Exception], text: str, call: Callable[[], object]) -> None:
    """Assert that a call raises this error, with a message that matches the text."""
    with pytest.raises(error, match=text):
        call()


def small_mlp(features: int = 4, hidden: int = 6, classes: int = 3) -> Any:
    """One hidden layer, the same at every call."""
    return made(lambda: nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes)))


def tanh_mlp(features: int = 6, hidden: int = 9, classes: int = 3, seed: int = 0) -> nn.Module:
    """Smooth everywhere; its representation is the second hidden layer."""

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, classes)
        )

    return seeded(build, seed)


def relu_mlp(features: int = 6, hidden: int = 16, classes: int = 3, seed: int = 0) -> nn.Module:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    return seeded(build, seed)


def relu_cnn(channels: int = 2, size: int = 8, classes: int = 4, seed: int = 0) -> nn.Module:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, 6, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * (size // 2) ** 2, 12),
            nn.ReLU(),
            nn.Linear(12, classes),
        )

    return seeded(build, seed)


def multi_label(features: int = 6, labels: int = 4, seed: int = 0) -> nn.Module:
    """Independent labels: a logistic function on each output, which is what is explained with `output="logit"` too."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(features, 10), nn.SiLU(), nn.Linear(10, labels), nn.Sigmoid())

    return seeded(build, seed)


def two_layer_linear(first: Tensor, second: Tensor) -> nn.Sequential:
    """x ↦ second · first · x, whose representation is first · x."""
    net = nn.Sequential(
        nn.Linear(first.shape[1], first.shape[0], bias=False), nn.Linear(second.shape[1], second.shape[0], bias=False)
    ).double()
    with torch.no_grad():
        net[0].weight.copy_(first)
        net[1].weight.copy_(second)
    return net.eval()


class Toy(nn.Module):
    """The paper's y = max(x₁, x₂ − 1): where the two are equal, the gradient is that of the first."""

    def forward(self, x: Tensor) -> Tensor:
        first, second = x[:, 0], x[:, 1] - 1
        return torch.where(first >= second, first, second)[:, None]


class Polynomial(nn.Module):
    """y = Σ aᵢ xᵢᵈ."""

    def __init__(self, coefficients: Tensor, degree: int) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(coefficients)
        self.degree = degree

    def forward(self, x: Tensor) -> Tensor:
        return (x**self.degree) @ self.coefficients[:, None]


def patterns(count: int, seed: int = 0, size: int = 28) -> tuple[Tensor, Tensor]:
    """Wafer-like maps (n, 3, size, size) in [0, 1]: none, a centre, a ring at the edge, or a scratch; and their classes."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return (torch.rand(count, 1, 1, generator=generator) * (high - low) + low).double()

    labels = torch.arange(count) % 4
    down, across = torch.meshgrid(*[torch.linspace(-1, 1, size, dtype=torch.float64)] * 2, indexing="ij")
    wafer = (down**2 + across**2 <= 1).double()
    middle, radius = (uniform(-0.15, 0.15), uniform(-0.15, 0.15)), uniform(0.25, 0.4)
    centre = (down - middle[0]) ** 2 + (across - middle[1]) ** 2 <= radius**2
    ring = down**2 + across**2 >= uniform(0.75, 0.85) ** 2
    angle, offset = uniform(0, torch.pi), uniform(-0.3, 0.3)
    scratch = (down * angle.cos() + across * angle.sin() - offset).abs() <= 0.08
    failed = torch.stack([torch.zeros_like(centre), centre, ring.expand_as(centre), scratch])[labels, torch.arange(count)]
    chance = torch.where(failed, 0.85, 0.08)
    broken = (torch.rand(count, size, size, generator=generator, dtype=torch.float64) < chance).double()
    # as the wafer maps are coloured: background, sound dies, broken dies
    return torch.stack([0.2 * (1 - wafer).expand_as(broken), wafer * (1 - broken), wafer * broken], dim=1), labels


@functools.cache
def trained_on_patterns() -> tuple[nn.Module, Tensor, Tensor]:
    """A ReLU CNN in the shape of the paper's wafer network, trained for a few seconds, and samples it has not seen."""

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in [(3, 8), (8, 16)]:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 49, 64), nn.ReLU(), nn.Linear(64, 4))

    net = seeded(build, 0).float()
    samples, labels = patterns(512, seed=1)
    samples = samples.float()
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(60):
        some = slice(step % 8 * 64, step % 8 * 64 + 64)
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(samples[some]), labels[some]).backward()
        optimiser.step()
    net.zero_grad(set_to_none=True)
    return net.double(), *patterns(64, seed=2)


class Record(list[Any]):
    """What a spy network saw. It stays one list when the network is copied, as each call does, and is no state of it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Record:
        return self

    def __reduce__(self) -> Any:
        return Record, ()
