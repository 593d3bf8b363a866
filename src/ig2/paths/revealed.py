"""The path of Reveal-IG: noisy and blurred copies of the explicand, from a wide distribution to the explicand itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._engine.task import Task
from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs, Path, clamp_
from ig2.paths.blur import blur, check_images


@dataclass(frozen=True)
class Revealed(Path):
    """Distributions around the explicand that narrow to it, by `samples` paths through them [Murphy 2026]; needs no reference.

    γₖ(t) = G(t·b) ∗ x + t·σ·εₖ with εₖ ~ N(0, 1) and G(s) a Gaussian kernel of s pixels: at t = 1 the wide probe, at t = 0
    the explicand. The mean of the attributions over k is ∫ ∂E[f(γ(t))]/∂(mean, width) d(mean, width), feature by feature: it
    accounts for f(x) less the mean output over the widest probe. Points are clamped to the bounds. Every explicand gets the
    same noise.

    The distributions are ours; the paper's own may differ.

    Args:
        steps: the number of segments of each path.
        samples: how many paths.
        sigma: σ of the noise at the wide end, in the data space.
        blur: b, of the blur at the wide end, in pixels; 0, the default, for none.

    Raises:
        InputError: if sigma or blur is negative or both are zero, or blur is asked of samples that are no images.
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
