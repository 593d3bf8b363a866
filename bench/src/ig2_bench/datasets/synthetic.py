"""Synthetic tables whose distribution is known: what a network is trained on when the truth is to be computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ig2._utils.checks import check_seed, is_count
from ig2.errors import InputError, describe
from ig2.metrics.gaussian import Distribution, Gaussian

Family = Literal["linear", "additive", "piecewise"]
Labels = Literal["binary", "regression"]


def _linear(x: Tensor) -> Tensor:
    weights = torch.arange(x.shape[-1] - 1, -1, -1, dtype=x.dtype, device=x.device)
    return x @ weights


def _additive(x: Tensor) -> Tensor:
    return x[..., 0].sin() + x[..., 1].abs() + x[..., 2].square() + (-x[..., 3]).exp()


def _piecewise(x: Tensor) -> Tensor:
    first = torch.where(x[..., 0] >= 0, 1.0, -1.0)
    edges = torch.tensor([-0.5, 0.0, 0.5], dtype=x.dtype, device=x.device)
    steps = torch.tensor([-2.0, -1.0, 1.0, 2.0], dtype=x.dtype, device=x.device)
    second = steps[torch.bucketize(x[..., 1].contiguous(), edges, right=True)]
    third = (2 * (torch.pi * x[..., 2]).cos()).floor()
    return first + second + third


# the function, and how many features it needs; more than those do not matter to it, except to the linear one
_FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "linear": (_linear, 1),
    "additive": (_additive, 4),
    "piecewise": (_piecewise, 3),
}


@dataclass(frozen=True)
class Data:
    """Samples to train on and others to explain, float64, with their labels."""

    x: Tensor  # (train, d)
    y: Tensor  # (train,)
    new_x: Tensor  # (validation, d)
    new_y: Tensor  # (validation,)


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Features of a known distribution, and labels that are a known function of them, without noise.

    The functions: "linear" (d − 1)·x₁ + (d − 2)·x₂ + … + 0·x_d; "additive" sin x₁ + |x₂| + x₃² + exp(−x₄); "piecewise"
    ψ₁(x₁) + ψ₂(x₂) + ⌊2 cos(πx₃)⌋, where ψ₁ is 1 from 0 on and −1 below, and ψ₂ is −2, −1, 1 and 2 between the edges −0.5,
    0 and 0.5. The mean of the function over the training samples is subtracted; "regression" also divides by its standard
    deviation over them, "binary" is 1 above zero and 0 otherwise.

    Args:
        family: which function.
        labels: "binary" or "regression".
        distribution: of the features; by default five independent standard normal ones.
    """

    family: Family = "piecewise"
    labels: Labels = "binary"
    distribution: Distribution = Gaussian.correlated(5)

    def __post_init__(self) -> None:
        if self.family not in _FUNCTIONS:
            raise InputError(f"family={describe(self.family)}: use {', '.join(map(repr, _FUNCTIONS))}")
        if self.labels not in get_args(Labels):
            raise InputError(f"labels={describe(self.labels)}: use 'binary' or 'regression'")
        if not isinstance(self.distribution, Distribution):
            raise InputError(f"distribution must be a Gaussian or a Mixture, got {describe(self.distribution)}")

    def function(self, x: Tensor) -> Tensor:
        """What the labels are made from, at rows (n, d): (n,)."""
        function, needed = _FUNCTIONS[self.family]
        if x.shape[-1] < needed:
            raise InputError(f"the {self.family} family is a function of {needed} features, x is {describe(x)}")
        return function(x)

    def draw(self, train: int = 1000, validation: int = 100, seed: int = 0) -> Data:
        """That many samples for training and for validation, which depend on the seed alone."""
        check_seed(seed)
        if not (is_count(train) and train > 1 and is_count(validation)):
            raise InputError(f"train={describe(train)}, validation={describe(validation)}: two samples and one at least")
        generator = torch.Generator().manual_seed(seed)
        x, new_x = self.distribution.sample(train, generator), self.distribution.sample(validation, generator)
        values, new_values = self.function(x), self.function(new_x)
        centre, scale = values.mean(), values.std()
        if self.labels == "binary":
            return Data(x, (values > centre).double(), new_x, (new_values > centre).double())
        return Data(x, (values - centre) / scale, new_x, (new_values - centre) / scale)
