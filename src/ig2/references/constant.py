"""References that need no data: constants, noise, and what can be made from the explicand itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ig2._engine.task import Task
from ig2._utils.checks import is_count
from ig2.errors import InputError, describe
from ig2.paths.blur import Padding, blur, check_images
from ig2.references.base import References


def _limits(task: Task, low: float | None, high: float | None, purpose: str) -> tuple[Tensor, Tensor]:
    """Smallest and largest values, as given or as the model's bounds, in the shape of a sample."""
    bounds = task.session.model.bounds
    if low is None or high is None:
        if bounds is None:
            raise InputError(f"{purpose} needs to know the data's range: give low and high, or ig2.wrap(net, bounds=(0, 1))")
        low, high = (bounds[0] if low is None else low), (bounds[1] if high is None else high)  # type: ignore[assignment]
    like = task.x[0]

    def filled(limit: float | Tensor | None) -> Tensor:
        return torch.as_tensor(limit, dtype=like.dtype, device=like.device).expand_as(like)

    return filled(low), filled(high)


def check_count(count: object) -> None:
    if not is_count(count):
        raise InputError(f"the number of references must be a positive integer, got {describe(count)}")


@dataclass(frozen=True, eq=False)
class Constant(References):
    """One value everywhere, in the data space; or a tensor that broadcasts to a sample."""

    value: float | Tensor = 0.0

    def draw(self, task: Task) -> Tensor:
        sample = task.x[0]
        try:
            return torch.as_tensor(self.value, dtype=sample.dtype, device=sample.device).expand_as(sample)[None]
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"constant {describe(self.value)} does not fit a sample {tuple(sample.shape)}") from error


@dataclass(frozen=True)
class Zeros(References):
    """All zeros: a black image, an empty embedding; also where the model's bounds leave zero out."""

    inside: ClassVar[bool] = False

    def draw(self, task: Task) -> Tensor:
        return torch.zeros_like(task.x[:1])


@dataclass(frozen=True)
class White(References):
    """The largest value everywhere: the model's upper bound, or 1 if it has none."""

    def draw(self, task: Task) -> Tensor:
        bounds = task.session.model.bounds
        return Constant(1.0 if bounds is None else bounds[1]).draw(task)


@dataclass(frozen=True)
class UniformNoise(References):
    """`count` samples of uniform noise between `low` and `high`, by default the model's bounds."""

    count: int = 1
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        check_count(self.count)

    def draw(self, task: Task) -> Tensor:
        low, high = _limits(task, self.low, self.high, "uniform noise")
        noise = torch.rand(self.count, *low.shape, generator=task.generator(), dtype=torch.float64, device="cpu").to(low)
        return low + (high - low) * noise


@dataclass(frozen=True)
class NoisedExplicand(References):
    """The explicand with Gaussian noise of standard deviation `sigma`, inside the bounds if there are any."""

    sigma: float
    count: int = 1

    def __post_init__(self) -> None:
        check_count(self.count)
        if not self.sigma > 0:
            raise InputError(f"sigma must be positive, got {describe(self.sigma)}")

    def draw(self, task: Task) -> Tensor:
        noise = torch.randn(self.count, *task.x.shape[1:], generator=task.generator(), dtype=torch.float64, device="cpu").to(
            task.x
        )
        noised = task.x[:, None] + self.sigma * noise
        if task.session.model.bounds is not None:
            low, high = _limits(task, None, None, "noise")
            noised = noised.clamp(low, high)
        return noised


@dataclass(frozen=True)
class MaximalDistance(References):
    """Each feature as far from the explicand's as the range allows."""

    low: float | None = None
    high: float | None = None

    def draw(self, task: Task) -> Tensor:
        low, high = _limits(task, self.low, self.high, "maximal distance")
        return torch.where(task.x - low > high - task.x, low, high)[:, None]


@dataclass(frozen=True)
class BlurredExplicand(References):
    """The explicand blurred with a Gaussian of standard deviation `sigma` pixels."""

    sigma: float = 10.0
    padding: Padding = "reflect"
    inside: ClassVar[bool] = False  # zeros beyond the edge may lie outside

    def draw(self, task: Task) -> Tensor:
        check_images(task.x, "a blurred explicand")
        return blur(task.x, self.sigma, self.padding)[:, None]
