"""The path of Reveal-IG: noisy and blurred copies of the explicand, from a wide distribution to the explicand itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.blur import blur
from ig2._utils.settings import COUNT, NOT_NEGATIVE, setting
from ig2.errors import InputError
from ig2.paths.base import KnownPath, Pairs, Path, PreparedPath, clamp_
from ig2.paths.blur import check_images
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
    samples: int = setting(10, COUNT)
    sigma: float = setting(0.3, NOT_NEGATIVE)
    blur: float = setting(0.0, NOT_NEGATIVE)
    uses_reference = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma == self.blur == 0:
            raise InputError("sigma and blur are both 0, so nothing is revealed: make one of them positive")

    def lines(self, task: Task) -> int:
        return self.samples

    def prepare(self, task: Task, references: Tensor) -> KnownPath:
        if self.blur:
            check_images(task.x, "a revealed path with blur")
        shape = (self.samples, *task.x.shape[1:])
        noise = torch.randn(shape, generator=task.generator(), dtype=torch.float64, device="cpu").to(task.x)

        def draw(pairs: Pairs, numbers: range) -> Tensor:
            assert pairs.numbers is not None
            each, points = noise[pairs.numbers % self.samples], []
            for share in (number / self.steps for number in numbers):
                mean = blur(pairs.explicand, self.blur * share) if self.blur and share else pairs.explicand
                noised = mean + self.sigma * share * each
                points.append(pairs.explicand if share == 0 else clamp_(noised, pairs.bounds))
            return torch.stack(points)

        return PreparedPath(self.steps, draw)
