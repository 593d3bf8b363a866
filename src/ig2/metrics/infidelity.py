"""Infidelity: how badly an attribution predicts what perturbations do to the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, POSITIVE, Settings, function, setting
from ig2.errors import InputError, ModelError, describe
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.conditional import MOST_NUMBERS

Perturbation = Callable[[Tensor, int, torch.Generator], Tensor]
"""A function of samples (n, ...), a number of draws and a generator on the CPU that returns perturbations (n, draws, ...).

Perturbations are subtracted from the samples. Each sample should get the same noise, so that its score does not depend on the
others."""


@dataclass(frozen=True)
class Noise(Settings):
    """Gaussian noise around the sample: r = N(0, scale).

    Args:
        scale: the standard deviation, positive.
    """

    scale: float = setting(0.2, POSITIVE)

    def __call__(self, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(1, draws, *x.shape[1:], generator=generator, dtype=torch.float64, device="cpu").to(x)
        return (self.scale * noise).expand(len(x), draws, *x.shape[1:])


@dataclass(frozen=True)
class NearZero(Noise):
    """XAI-BENCH's perturbation r = clip(N(x, scale), x − 1, x): the point x − r is half-normal noise, at most 1 [Liu 2021].

    Args:
        scale: the standard deviation, positive.
    """

    def __call__(self, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
        return (x[:, None] + super().__call__(x, draws, generator)).clamp(x[:, None] - 1, x[:, None])


@dataclass(frozen=True, eq=False)
class Infidelity(Metric):
    """The error of the attribution's prediction of the effect of perturbations r: E (f(x) − f(x − r) − β Σ rᵢφᵢ)².

    This is the default of XAI-BENCH [Liu 2021]. With `fit=False`, so that β is 1, it is the infidelity of [Yeh 2019], whose
    attributions are slopes, such as a gradient. Points x − r may leave the model's bounds.

    >>> x = torch.tensor([[3.0, 1.0]])
    >>> Infidelity(Noise(0.1), draws=8, fit=False)(lambda x: 2 * x.sum(dim=1), torch.full((1, 2), 2.0), x).values < 1e-9
    tensor([True])

    Args:
        perturbation: r: `NearZero(scale)`, `Noise(scale)`, or a function of samples (n, ...), a number of draws and a
            generator that returns (n, draws, ...).
        draws: the number of perturbations in the mean.
        fit: whether β is chosen for each sample to minimise the error, so that the attribution's scale does not matter; if
            Σ rᵢφᵢ is zero for every draw, β is 0. If False, β is 1.
    """

    perturbation: Perturbation = setting(NearZero(), function("NearZero(scale), Noise(scale) or a function"))
    draws: int = setting(1000, COUNT)
    fit: bool = True
    name = "infidelity"
    better = "lower"

    def run(self, case: Case) -> Scores:
        changes, predicted = self._perturb(case)
        beta = torch.ones_like(changes[:, :1])
        if self.fit:
            squares = predicted.square().mean(dim=1, keepdim=True)
            beta = torch.where(squares > 0, (changes * predicted).mean(dim=1, keepdim=True) / squares, 0.0)
        return Scores((changes - beta * predicted).square().mean(dim=1))

    def _perturb(self, case: Case) -> tuple[Tensor, Tensor]:
        """Return f(x) − f(x − r) and Σ rᵢφᵢ for each draw, (B, draws) in float64 on the CPU."""
        task, size = case.task, case.task.x[0].numel()
        output = case.finite_output()
        changes = torch.zeros(len(task), self.draws, dtype=torch.float64, device="cpu")
        predicted = torch.zeros_like(changes)
        # draws are made in pieces of a size that depends on the sample's alone: so do the numbers drawn
        draws = min(self.draws, max(1, MOST_NUMBERS // size))
        generator = task.generator()
        task.progress.expect(len(task) * self.draws)
        for start in range(0, self.draws, draws):
            count = min(draws, self.draws - start)
            seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
            for rows in torch.split(torch.arange(len(task), device=task.x.device), max(1, MOST_NUMBERS // (draws * size))):
                x = task.x[rows]
                r = self._draw(x, count, torch.Generator().manual_seed(seed))
                outputs = task.outputs((x[:, None] - r).flatten(0, 1), rows.repeat_interleave(count)).cpu().double()
                if not outputs.isfinite().all():
                    row = int(rows[int((~outputs.isfinite()).nonzero()[0]) // count])
                    raise ModelError(f"the output is not finite at explicand {row} perturbed: the network fails there")
                part = rows.cpu(), slice(start, start + count)
                changes[part] = output[rows.cpu(), None] - outputs.view(-1, count)
                predicted[part] = (r * case.values[rows][:, None]).flatten(2).sum(dim=2).cpu().double()
                task.progress.advance(len(rows) * count)
        return changes, predicted

    def _draw(self, x: Tensor, count: int, generator: torch.Generator) -> Tensor:
        r: object = self.perturbation(x, count, generator)
        shape = (len(x), count, *x.shape[1:])
        if not isinstance(r, Tensor) or r.shape != shape or not r.isfinite().all():
            raise InputError(
                f"the perturbation returned {describe(r)}: expected finite numbers {shape} for {count} draws of samples "
                f"{tuple(x.shape)}"
            )
        return r.to(x)
