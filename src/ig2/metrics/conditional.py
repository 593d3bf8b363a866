"""Distributions of unknown features given the known ones, from which the values of removed features are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ig2._engine.explicands import check_numeric
from ig2._utils.checks import is_number, require
from ig2._utils.progress import Progress
from ig2._utils.settings import Settings, instance_of
from ig2.errors import InputError, ModelError, describe

# How many numbers of drawn samples are held at once.
MOST_NUMBERS = 1 << 23


class Conditional(Settings, ABC):
    """Base class of distributions of tabular samples (d,) given some of their features. Subclasses implement `draw`."""

    @abstractmethod
    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw samples of p(X | the known features of x): known features keep the values of x, the others are drawn given them.

        Args:
            x: rows (n, d), on any device.
            known: the known features of each row, booleans (n, d).
            count: the number of samples for each row.
            generator: a generator on the CPU. The numbers drawn must not depend on n: each row gets the same noise, so that a
                sample's score does not depend on the other samples of its batch.

        Returns:
            Samples (n, count, d).
        """


CONDITIONAL = instance_of(
    Conditional, "what unknown features may be: Gaussian(...), Mixture(...), Marginal(data) or ConstantFill(value)"
)


@dataclass(frozen=True, eq=False)
class Marginal(Conditional):
    """The marginal distribution: unknown features come from samples of the data, whatever the known ones ("interventional")
    [Lundberg 2017].

    Samples are drawn without replacement, starting over when all have been drawn: if the number of draws is the number of
    samples, or a multiple of it, the mean over the draws is the exact mean over the data.

    Args:
        data: samples (N, d).
    """

    data: Tensor = field(repr=False)

    def __post_init__(self) -> None:
        data = check_numeric(self.data, "data")
        require(data.ndim == 2 and len(data) > 0, "data", data, "samples (N, d)")

    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        _check_width(x, self.data.shape[1], "the data")
        rounds = -(-count // len(self.data))
        order = torch.cat([torch.randperm(len(self.data), generator=generator, device="cpu") for _ in range(rounds)])
        return torch.where(known[:, None], x[:, None], self.data[order[:count].to(self.data.device)].to(x))


@dataclass(frozen=True, eq=False)
class ConstantFill(Conditional):
    """A fixed value for unknown features. Since nothing is random, `draws=1` is enough for the metrics.

    Args:
        value: one number for all features, or one for each, (d,).
    """

    value: float | Tensor = 0.0

    def __post_init__(self) -> None:
        valid = check_numeric(self.value, "value").ndim < 2 if isinstance(self.value, Tensor) else is_number(self.value)
        require(valid, "value", self.value, "a number, or one for each feature (d,)")

    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        value = torch.as_tensor(self.value, dtype=x.dtype, device=x.device)
        if value.ndim == 1:
            _check_width(x, len(value), "the value")
        return torch.where(known, x, value)[:, None].expand(-1, count, -1)


def _check_width(x: Tensor, width: int, what: str) -> None:
    if x.shape[1] != width:
        raise InputError(f"x has {x.shape[1]} features and {what} {width}: they must be the same features")


def check_tabular(x: Tensor, name: str) -> None:
    """Raise an `InputError` unless samples are tabular, (B, d), as conditional distributions require."""
    if x.ndim != 2:
        raise InputError(f"{name} is for tabular samples (B, d), x is {describe(x)}")


def average_outputs(
    outputs: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    known: Tensor,
    conditional: Conditional,
    draws: int,
    seed: int,
    progress: Progress | None = None,
) -> Tensor:
    """Return E f(X | the known features of x) for each explicand and each of m sets of known features.

    All explicands and sets share the same noise, so that differences are due to the function and not to the draws.

    Args:
        outputs: f, a function of points (n, d) and the indices (n,) of the explicands that they are variants of.
        x: explicands (B, d).
        known: the sets of known features, booleans (m, d) for all explicands, or (B, m, d).
        conditional: the distribution of the unknown features.
        draws: the number of samples in each mean.
        seed: the seed of the draws.
        progress: counts the points evaluated.

    Returns:
        The means, (B, m) in float64 on the CPU.

    Raises:
        InputError: if the distribution draws samples of the wrong shape.
        ModelError: if the network's output on a drawn sample is not finite.
    """
    known = known.to(x.device).expand(len(x), *known.shape[-2:])
    choices, d = known.shape[1:]
    means = []
    if progress is not None:
        progress.expect(len(x) * choices * draws)
    for number in torch.split(torch.arange(len(x) * choices, device=x.device), max(1, MOST_NUMBERS // (draws * d))):
        row, choice = number // choices, number % choices
        points = conditional.draw(x[row], known[row, choice], draws, torch.Generator().manual_seed(seed))
        if points.shape != (len(number), draws, d):
            raise InputError(f"{describe(conditional)} drew {describe(points)}, expected {(len(number), draws, d)}")
        scores = outputs(points.to(x).flatten(0, 1), row.repeat_interleave(draws)).cpu().double()
        if not scores.isfinite().all():
            bad = int(row[int((~scores.isfinite()).nonzero()[0]) // draws])
            raise ModelError(
                f"the output is not finite where features of explicand {bad} are replaced: the network fails on samples that "
                f"{type(conditional).__name__} draws"
            )
        means.append(scores.view(-1, draws).mean(dim=1))
        if progress is not None:
            progress.advance(len(points) * draws)
    return torch.cat(means).view(len(x), choices)
