"""References that need no data: constants, noise, and variants of the explicand, compared in [Sturmfels 2020]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.blur import Padding, blur
from ig2._utils.settings import COUNT, POSITIVE, required, setting
from ig2.errors import InputError, describe
from ig2.paths.base import clamp_
from ig2.paths.blur import check_images
from ig2.references.base import References
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class Constant(References):
    """A constant reference in the data space: one number for all features, or a tensor that broadcasts to a sample."""

    value: float | Tensor = 0.0

    def draw(self, task: Task) -> Tensor:
        sample = task.x[0]
        try:
            return torch.as_tensor(self.value, dtype=sample.dtype, device=sample.device).expand_as(sample)[None]
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"constant {describe(self.value)} does not fit a sample {tuple(sample.shape)}") from error


@dataclass(frozen=True)
class Zeros(References):
    """All zeros, such as a black image or an empty embedding, even if zero lies outside the model's bounds."""

    inside = False

    def draw(self, task: Task) -> Tensor:
        return torch.zeros_like(task.x[:1])


@dataclass(frozen=True)
class White(References):
    """The largest value for every feature: the model's upper bound, or 1 if it has none."""

    def draw(self, task: Task) -> Tensor:
        bounds = task.session.model.bounds
        return Constant(1.0 if bounds is None else bounds[1]).draw(task)


@dataclass(frozen=True)
class UniformNoise(References):
    """`count` samples of uniform noise between `low` and `high`, by default the model's bounds."""

    count: int = setting(1, COUNT)
    low: float | None = None
    high: float | None = None

    def draw(self, task: Task) -> Tensor:
        low, high = _limits(task, self.low, self.high, "uniform noise")
        noise = torch.rand(self.count, *low.shape, generator=task.generator(), dtype=torch.float64, device="cpu").to(low)
        return low + (high - low) * noise


@dataclass(frozen=True)
class NoisedExplicand(References):
    """`count` copies of the explicand with Gaussian noise of standard deviation `sigma`, clipped to the model's bounds."""

    sigma: float = required(POSITIVE)
    count: int = setting(1, COUNT)

    def draw(self, task: Task) -> Tensor:
        shape = (self.count, *task.x.shape[1:])
        noise = torch.randn(shape, generator=task.generator(), dtype=torch.float64, device="cpu").to(task.x)
        return clamp_(task.x[:, None] + self.sigma * noise, task.session.model.bounds)


@dataclass(frozen=True)
class MaximalDistance(References):
    """The value farthest from the explicand's in each feature, either `low` or `high`, by default the model's bounds."""

    low: float | None = None
    high: float | None = None

    def draw(self, task: Task) -> Tensor:
        low, high = _limits(task, self.low, self.high, "maximal distance")
        return torch.where(task.x - low > high - task.x, low, high)[:, None]


@dataclass(frozen=True)
class BlurredExplicand(References):
    """The explicand blurred with a Gaussian of standard deviation `sigma` pixels, with the `padding` of `ig2.paths.Blur`."""

    sigma: float = 10.0
    padding: Padding = "reflect"
    inside = False  # zeros beyond the edge may lie outside

    def draw(self, task: Task) -> Tensor:
        check_images(task.x, "a blurred explicand")
        return blur(task.x, self.sigma, self.padding)[:, None]


def _limits(task: Task, low: float | None, high: float | None, purpose: str) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest values, as given or from the model's bounds, in the shape of a sample."""
    limits: tuple[float | Tensor | None, ...] = (low, high)
    if low is None or high is None:
        if task.session.model.bounds is None:
            raise InputError(f"{purpose} needs to know the data's range: give low and high, or ig2.wrap(net, bounds=(0, 1))")
        limits = tuple(b if limit is None else limit for b, limit in zip(task.session.model.bounds, limits, strict=True))
    sample = task.x[0]
    smallest, largest = (torch.as_tensor(x, dtype=sample.dtype, device=sample.device).expand_as(sample) for x in limits)
    return smallest, largest
