"""The path of Reveal-IG: noisy and blurred copies of the explicand, from a wide distribution to the explicand itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs, Path, clamp_
from ig2.paths.blur import blur, check_images
from ig2.task import Task


@dataclass(frozen=True)
class Revealed(Path):
    """Sample paths through distributions that narrow to the explicand [Murphy 2026]; needs no reference.

    γₖ(t) = G(t·b) ∗ x + t·σ·εₖ with εₖ ~ N(0, 1) and G(s) a Gaussian kernel of s pixels: the explicand at t = 0, the widest
    distribution at t = 1. The mean of the attributions over k is ∫ ∂E[f(γ(t))]/∂(mean, width) d(mean, width) for each feature,
    and sums to f(x) minus the mean output over the widest distribution. Points are clamped to the bounds. Every explicand gets
    the same noise.

    The distributions are ours; the paper's may differ.

    Args:
        steps: the number of segments of each path.
        samples: the number of paths.
        sigma: σ, the standard deviation of the noise at the wide end, in the data space.
        blur: b, the standard deviation of the blur at the wide end, in pixels; 0 for none.

    Raises:
        InputError: if sigma or blur is negative or both are zero, or if blur is used on samples other than images.
    """

    steps: int = 20
    samples: int = 10
    sigma: float = 0.3
    blur: float = 0.0
    uses_reference = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.samples, "samples")
        for name in ("sigma", "blur"):
            if not (is_number(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"{name} must not be negative, got {describe(getattr(self, name))}")
        if self.sigma == self.blur == 0:
            raise InputError("sigma and blur are both 0, so nothing is revealed: make one of them positive")

    def lines(self, task: Task) -> int:
        return self.samples

    def prepare(self, task: Task, references: Tensor) -> KnownPath:
        if self.blur:
            check_images(task.x, "a revealed path with blur")
        shape = (self.samples, *task.x.shape[1:])
        noise = torch.randn(shape, generator=task.generator(), dtype=torch.float64, device="cpu").to(task.x)
        return _Narrowing(self, noise)


@dataclass(frozen=True, eq=False)
class _Narrowing(KnownPath):
    """The paths of a `Revealed` with their noise, (samples, ...)."""

    path: Revealed
    noise: Tensor

    @property
    def segments(self) -> int:
        return self.path.steps

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        assert pairs.numbers is not None
        noise, explicand = self.noise[pairs.numbers % len(self.noise)], pairs.explicand
        points = []
        for share in (number / self.path.steps for number in numbers):
            mean = blur(explicand, self.path.blur * share) if self.path.blur and share else explicand
            points.append(explicand if share == 0 else clamp_(mean + self.path.sigma * share * noise, pairs.bounds))
        return torch.stack(points)
