"""SmoothGrad and VarGrad: the mean and the variance of a method over noisy copies of the explicand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, POSITIVE, setting
from ig2.methods.average import Average, Statistic
from ig2.methods.base import Result
from ig2.methods.wrapper import Wrapper
from ig2.paths.base import clamp_
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task


def open_generator(task: Task, number: int = 0) -> torch.Generator:
    """Return the random generator for one kind of noise.

    It has a separate seed: the task's generator itself would repeat the noise that references are drawn with.
    """
    source = task.generator()
    seeds = [int(torch.randint(2**62, (), generator=source, device="cpu")) for _ in range(number + 1)]
    return torch.Generator().manual_seed(seeds[number])


@dataclass(frozen=True, eq=False)
class NoisedCopies(Wrapper):
    """Base class of statistics of a method over copies of the explicand with Gaussian noise; subclasses set `statistic`."""

    samples: int = setting(20, COUNT)
    sigma: float = setting(0.15, POSITIVE)
    relative: bool = True

    statistic: ClassVar[Statistic] = "mean"

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        shape = (self.samples, *task.x.shape[1:])
        noise = torch.randn(shape, generator=open_generator(task), dtype=torch.float64, device="cpu")
        deviation = self._deviation(task)
        average = Average(task, self.samples, self.statistic)

        def work(piece: range) -> None:
            number = torch.arange(piece.start, piece.stop, device=task.x.device)
            rows, copies = number // self.samples, number % self.samples
            x = clamp_(task.x[rows] + deviation[rows] * noise[copies.cpu()].to(task.x), task.session.model.bounds)
            copied = replace(task, x=x, rows=task.rows[rows], target=task.target[rows])
            average.add(self.method.run_checked(copied, references, Keep()), rows)

        task.batch.over(len(task) * self.samples, work)
        return average.result()

    def _deviation(self, task: Task) -> Tensor:
        """Return the standard deviation of the noise at each feature, (B, ...)."""
        if not self.relative:
            return torch.full_like(task.x, self.sigma)
        parts = torch.split(task.x.flatten(1), [shape.numel() for _, shape, _ in task.session.inputs.attributed], dim=1)
        ranges = [(p.amax(dim=1, keepdim=True) - p.amin(dim=1, keepdim=True)).expand_as(p) for p in parts]
        return self.sigma * torch.cat(ranges, dim=1).view_as(task.x)


@dataclass(frozen=True, eq=False)
class SmoothGrad(NoisedCopies):
    """SmoothGrad: any method, averaged over n copies of the explicand with Gaussian noise [Smilkov 2017].

    (1/n) Σₖ φ(x + εₖ) with εₖ ~ N(0, σ²). Copies are clamped to the model's bounds. Every explicand gets the same noise, and
    its copies share its references. The residual is relative to the output of the explicand without noise.

    Args:
        method: the method to average, for example `Gradient()` or `IG2()`.
        samples: the number n of copies.
        sigma: the standard deviation of the noise, as a share of the range from each explicand's smallest to its largest
            value (separately for each tensor if x has several). A constant explicand therefore gets no noise.
        relative: whether sigma is such a share; if False, it is in the data space.
        squared: whether to return the mean of squares, SmoothGrad² [Hooker 2019], without sign, baseline or residual.

    Raises:
        InputError: if samples or sigma is not positive.
    """

    squared: bool = False

    @property
    def statistic(self) -> Statistic:  # type: ignore[override]
        return "squares" if self.squared else "mean"


@dataclass(frozen=True, eq=False)
class VarGrad(NoisedCopies):
    """VarGrad: the variance of any method over n copies of the explicand with Gaussian noise [Hooker 2019].

    (1/n) Σₖ (φ(x + εₖ) − φ̄)² with φ̄ the mean over the copies and εₖ ~ N(0, σ²), the noise of `SmoothGrad`. It has no sign,
    baseline or residual: it shows where the method responds to noise, not which features matter.

    Args:
        method: the method whose variance is computed, for example `Gradient()`.
        samples: the number n of copies.
        sigma: the standard deviation of the noise, as in `SmoothGrad`.
        relative: whether sigma is a share of the explicand's range; if False, it is in the data space.

    Raises:
        InputError: if samples or sigma is not positive.

    >>> import ig2
    >>> line = lambda x: x @ torch.tensor([[2.0], [-1.0]])  # a gradient that does not move has no variance
    >>> VarGrad(ig2.Gradient())(line, torch.tensor([[3.0, 4.0]])).values
    tensor([[0., 0.]])
    """

    statistic: ClassVar[Statistic] = "variance"
