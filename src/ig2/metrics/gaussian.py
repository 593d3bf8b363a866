"""Gaussians and mixtures of them: distributions of which every conditional is known exactly."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ig2._utils.checks import is_count, is_number
from ig2.errors import InputError, describe
from ig2.metrics.conditional import Conditional

# A covariance whose smallest eigenvalue is below this share of its largest leaves too few digits to divide by it.
SMALLEST_EIGENVALUE = 1e-10


class Distribution(Conditional):
    """A distribution that can also be sampled, and whose conditional means are exact. All is reckoned on the CPU in float64."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` independent samples, float64 (count, d)."""

    @abstractmethod
    def expect(self, x: Tensor, known: Tensor) -> Tensor:
        """The conditional mean of each row given its known features, (n, d): x where it is known."""


@dataclass(frozen=True, eq=False)
class Gaussian(Distribution):
    """A multivariate normal distribution.

    Args:
        mean: (d,).
        covariance: (d, d), symmetric and positive definite.

    >>> Gaussian.correlated(2, 0.5).expect(torch.tensor([[2.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([[2., 1.]])
    """

    mean: Tensor
    covariance: Tensor

    def __post_init__(self) -> None:
        mean, covariance = _double(self.mean, "mean", 1), _double(self.covariance, "covariance", 2)
        if covariance.shape != (len(mean), len(mean)):
            raise InputError(
                f"covariance is {describe(self.covariance)}, the mean has {len(mean)} features: expected {(len(mean),) * 2}"
            )
        if not torch.allclose(covariance, covariance.T, rtol=1e-9, atol=0):
            raise InputError("covariance must be symmetric, and its two halves differ")
        values = torch.linalg.eigvalsh(covariance)
        if not values[0] > SMALLEST_EIGENVALUE * values[-1]:
            raise InputError(
                f"covariance must be positive definite: its eigenvalues reach from {float(values[0]):.3g} to "
                f"{float(values[-1]):.3g}, so some features decide others. Leave those out, or correlate them less"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    @classmethod
    def correlated(cls, features: int, rho: float = 0.0, mean: float = 0.0) -> Gaussian:
        """Variance one, and correlation `rho` between any two features.

        Args:
            features: how many.
            rho: between −1/(d − 1) and 1, neither included: there, some features decide the others.
            mean: of each feature.
        """
        if not is_count(features):
            raise InputError(f"the number of features must be a positive integer, got {describe(features)}")
        least = -1 / (features - 1) if features > 1 else -1.0
        if not (is_number(rho) and least < rho < 1):
            raise InputError(
                f"rho={describe(rho)}: {features} features can be correlated by more than {least:.4g}, less than 1"
            )
        covariance = torch.full((features, features), float(rho), dtype=torch.float64, device="cpu").fill_diagonal_(1.0)
        return cls(torch.full((features,), float(mean), dtype=torch.float64, device="cpu"), covariance)

    @cached_property
    def _factor(self) -> Tensor:
        factor: Tensor = torch.linalg.cholesky(self.covariance)
        return factor

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.placed(_normal(count, len(self.mean), generator))

    def placed(self, noise: Tensor) -> Tensor:
        """Standard normal noise (count, d) as samples of this distribution."""
        return self.mean + noise @ self._factor.T

    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        rows = _rows(x, known, len(self.mean))
        return _beside(self.conditioned(self.sample(count, generator), rows, known.cpu()), x, known)

    def expect(self, x: Tensor, known: Tensor) -> Tensor:
        rows = _rows(x, known, len(self.mean))
        return _beside(self.conditioned(self.mean[None], rows, known.cpu()), x, known)[:, 0]

    def conditioned(self, samples: Tensor, x: Tensor, known: Tensor) -> Tensor:
        """Samples (count, d) of this distribution, made samples given the known features of each row of x, (n, count, d).

        What a sample has to move in its known features to meet x, the others follow by their regression on them. So one
        sample serves every row, whatever is known of it.
        """
        masks, which = torch.unique(known, dim=0, return_inverse=True)
        pull = self._pull(masks)
        left = samples - samples @ pull  # (masks, count, d)
        return left[which] + (x[:, None] @ pull[which])

    def log_density(self, x: Tensor, known: Tensor) -> Tensor:
        """Of the known features of each row, (n,), up to a term that depends on their number alone."""
        apart = (x - self.mean) * known
        block = self._block(known)
        squared = (apart * torch.linalg.solve(block, apart)).sum(dim=1)
        density: Tensor = -0.5 * (squared + torch.linalg.slogdet(block).logabsdet)
        return density

    def _block(self, known: Tensor) -> Tensor:
        """The covariance of the known features, with the unknown ones cut off: a one on the diagonal, (n, d, d)."""
        both = known[:, :, None] & known[:, None, :]
        return torch.where(both, self.covariance, torch.diag_embed((~known).double()))

    def _pull(self, known: Tensor) -> Tensor:
        """The regression of all features on the known ones, (n, d, d), to be multiplied from the right."""
        known_rows = known[:, :, None]
        pull: Tensor = torch.linalg.solve(self._block(known), known_rows * self.covariance)
        return pull * known_rows


@dataclass(frozen=True, eq=False)
class Mixture(Distribution):
    """A mixture of Gaussians.

    Args:
        means: (k, d).
        covariances: (k, d, d), each symmetric and positive definite.
        weights: (k,), positive; they are scaled to sum to one. By default equal.
    """

    means: Tensor
    covariances: Tensor
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        means, covariances = _double(self.means, "means", 2), _double(self.covariances, "covariances", 3)
        if len(means) != len(covariances):
            raise InputError(f"there are {len(means)} means and {len(covariances)} covariances: give one for each component")
        weights = torch.ones(len(means), dtype=torch.float64, device="cpu") if self.weights is None else self.weights
        weights = _double(weights, "weights", 1)
        if weights.shape != means.shape[:1] or not (weights > 0).all():
            raise InputError(
                f"weights must be {len(means)} positive numbers, one for each component, got {describe(weights.tolist())}"
            )
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "covariances", covariances)
        object.__setattr__(self, "weights", weights / weights.sum())
        _checked = self.components  # each looks at its own covariance

    @classmethod
    def opposed(cls, features: int, rho: float = 0.0) -> Mixture:
        """Two equally likely Gaussians, all features of mean 1 in one and −1 in the other, correlated by `rho` in each."""
        sides = [Gaussian.correlated(features, rho, mean) for mean in (1.0, -1.0)]
        return cls(torch.stack([side.mean for side in sides]), torch.stack([side.covariance for side in sides]))

    @cached_property
    def components(self) -> tuple[Gaussian, ...]:
        """The Gaussians it is made of."""
        return tuple(Gaussian(*parts) for parts in zip(self.means, self.covariances, strict=True))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        nothing = torch.zeros(1, self.means.shape[1], dtype=torch.float64, device="cpu")
        return self.draw(nothing, nothing.bool(), count, generator)[0]

    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        rows, where = _rows(x, known, self.means.shape[1]), known.cpu()
        chance = torch.rand(count, generator=generator, dtype=torch.float64, device="cpu")
        noise = _normal(count, rows.shape[1], generator)
        edges = self.posterior(x, known).cumsum(dim=1)[:, :-1]
        chosen = (chance[None, :, None] >= edges[:, None]).sum(dim=-1)  # (n, count)
        drawn = torch.zeros(len(rows), count, rows.shape[1], dtype=torch.float64, device="cpu")
        for number, component in enumerate(self.components):
            given = component.conditioned(component.placed(noise), rows, where)
            drawn = torch.where((chosen == number)[..., None], given, drawn)
        return _beside(drawn, x, known)

    def expect(self, x: Tensor, known: Tensor) -> Tensor:
        rows, where = _rows(x, known, self.means.shape[1]), known.cpu()
        each = torch.cat([c.conditioned(c.mean[None], rows, where) for c in self.components], dim=1)  # (n, k, d)
        return _beside((self.posterior(x, known)[:, None] @ each), x, known)[:, 0]

    def posterior(self, x: Tensor, known: Tensor) -> Tensor:
        """How likely each component is given the known features of each row, (n, k)."""
        rows, where = _rows(x, known, self.means.shape[1]), known.cpu()
        assert self.weights is not None
        odds = torch.stack([component.log_density(rows, where) for component in self.components], dim=1)
        return (odds + self.weights.log()).softmax(dim=1)


def _double(values: object, name: str, axes: int) -> Tensor:
    try:
        tensor = torch.as_tensor(values).detach().to(device="cpu", dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers with {axes} axes, got {describe(values)}") from error
    if tensor.ndim != axes or tensor.numel() == 0 or not tensor.isfinite().all():
        raise InputError(f"{name} must be finite numbers with {axes} axes, got {describe(values)}")
    return tensor


def _normal(count: int, features: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, features, generator=generator, dtype=torch.float64, device="cpu")


def _rows(x: Tensor, known: Tensor, features: int) -> Tensor:
    """The rows in float64 on the CPU."""
    if x.ndim != 2 or x.shape[1] != features or known.shape != x.shape or known.dtype != torch.bool:
        raise InputError(
            f"x is {describe(x)} and known {describe(known)}: the distribution takes rows (n, {features}) and booleans in "
            "their shape"
        )
    return x.detach().to(device="cpu", dtype=torch.float64)


def _beside(drawn: Tensor, x: Tensor, known: Tensor) -> Tensor:
    """What was drawn (n, count, d), like x and exactly x where it is known."""
    return torch.where(known[:, None], x[:, None], drawn.to(x))
