"""Gaussians and mixtures of them, whose conditional distributions are known exactly."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, describe
from ig2.metrics.conditional import Conditional

# A covariance whose smallest eigenvalue is below this share of its largest leaves too few digits to divide by it.
SMALLEST_EIGENVALUE = 1e-10


class Distribution(Conditional):
    """Base class of distributions that can be sampled and have exact conditional means, in float64 on the CPU."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count` independent samples, float64 (count, d)."""

    @abstractmethod
    def expect(self, x: Tensor, known: Tensor) -> Tensor:
        """Return E[X | the known features of x] for each row, (n, d); known features keep the values of x.

        Args:
            x: rows (n, d).
            known: the known features of each row, booleans (n, d).
        """


@dataclass(eq=False)
class Gaussian(Distribution):
    """The multivariate normal distribution N(μ, Σ).

    Given features K, the others are normal with mean μ_U + Σ_UK Σ_KK⁻¹ (x_K − μ_K), their regression on the known ones.

    >>> Gaussian.correlated(2, 0.5).expect(torch.tensor([[2.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([[2., 1.]])

    Args:
        mean: μ, (d,).
        covariance: Σ, (d, d), symmetric and positive definite.

    Raises:
        InputError: if the shapes differ, or the covariance is not symmetric and positive definite.
    """

    mean: Tensor
    covariance: Tensor

    def __post_init__(self) -> None:
        self.mean, self.covariance = _double(self.mean, "mean", 1), _double(self.covariance, "covariance", 2)
        shape, size = tuple(self.covariance.shape), len(self.mean)
        if shape != (size, size):
            raise InputError(f"covariance is {shape}, the mean has {size} features: expected {(size, size)}")
        if not torch.allclose(self.covariance, self.covariance.T, rtol=1e-9, atol=0):
            raise InputError("covariance must be symmetric, and its two halves differ")
        eigenvalues = torch.linalg.eigvalsh(self.covariance)
        least, most = float(eigenvalues[0]), float(eigenvalues[-1])
        if not least > SMALLEST_EIGENVALUE * most:
            raise InputError(
                f"covariance must be positive definite: its eigenvalues range from {least:.3g} to {most:.3g}, so some features "
                "determine others. Remove those, or correlate them less"
            )

    @classmethod
    def correlated(cls, features: int, rho: float = 0.0, mean: float = 0.0) -> Gaussian:
        """Return a Gaussian with variance one and correlation `rho` between any two features.

        Args:
            features: the number of features, d.
            rho: the correlation, strictly between −1/(d − 1) and 1; at these limits, some features determine the others.
            mean: the mean of each feature.
        """
        check_count(features, "the number of features")
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
        return self.transform(_normal(count, len(self.mean), generator))

    def transform(self, noise: Tensor) -> Tensor:
        """Transform standard normal noise (count, d) to samples of this distribution."""
        return self.mean + noise @ self._factor.T

    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        rows, mask = _check_rows(x, known, len(self.mean))
        return _keep_known(self.condition(self.sample(count, generator), rows, mask), x, known)

    def expect(self, x: Tensor, known: Tensor) -> Tensor:
        rows, mask = _check_rows(x, known, len(self.mean))
        return _keep_known(self.condition(self.mean[None], rows, mask), x, known)[:, 0]

    def condition(self, samples: Tensor, x: Tensor, known: Tensor) -> Tensor:
        """Condition samples (count, d) of this distribution on the known features of each row of x, (n, count, d).

        The known features of a sample move to the values of x, and the others follow by their regression on them. One sample
        thus serves every row, whichever features are known.
        """
        masks, index = torch.unique(known, dim=0, return_inverse=True)
        known_rows = masks[:, :, None]
        regression: Tensor = torch.linalg.solve(self._block(masks), known_rows * self.covariance) * known_rows
        residual = samples - samples @ regression  # (masks, count, d)
        return residual[index] + (x[:, None] @ regression[index])

    def log_density(self, x: Tensor, known: Tensor) -> Tensor:
        """Return the log density of the known features of each row, (n,), up to a term that depends only on their number."""
        centred, block = (x - self.mean) * known, self._block(known)
        squared = (centred * torch.linalg.solve(block, centred)).sum(dim=1)
        density: Tensor = -0.5 * (squared + torch.linalg.slogdet(block).logabsdet)
        return density

    def _block(self, known: Tensor) -> Tensor:
        """Return the covariance of the known features, with ones on the diagonal for the unknown ones, (n, d, d)."""
        both = known[:, :, None] & known[:, None, :]
        return torch.where(both, self.covariance, torch.diag_embed((~known).double()))


@dataclass(eq=False)
class Mixture(Distribution):
    """A mixture of Gaussians, Σₖ wₖ N(μₖ, Σₖ).

    Args:
        means: μₖ, (k, d).
        covariances: Σₖ, (k, d, d), each symmetric and positive definite.
        weights: wₖ, (k,), positive; they are scaled to sum to one. By default equal.

    Raises:
        InputError: if the shapes differ, a weight is not positive, or a covariance is not symmetric and positive definite.
    """

    means: Tensor
    covariances: Tensor
    weights: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.means, self.covariances = _double(self.means, "means", 2), _double(self.covariances, "covariances", 3)
        count = len(self.means)
        if count != len(self.covariances):
            raise InputError(f"there are {count} means and {len(self.covariances)} covariances: pass one for each component")
        weights = _double(torch.ones(count, device="cpu") if self.weights is None else self.weights, "weights", 1)
        if len(weights) != count or not (weights > 0).all():
            raise InputError(f"weights must be {count} positive numbers, one for each component, got {weights.tolist()}")
        self.weights = weights / weights.sum()
        self.components = tuple(Gaussian(*parts) for parts in zip(self.means, self.covariances, strict=True))

    @classmethod
    def opposed(cls, features: int, rho: float = 0.0) -> Mixture:
        """Return two equally likely Gaussians, with all means 1 in one and −1 in the other, and correlation `rho` in each."""
        sides = [Gaussian.correlated(features, rho, mean) for mean in (1.0, -1.0)]
        return cls(torch.stack([side.mean for side in sides]), torch.stack([side.covariance for side in sides]))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        nothing = torch.zeros(1, self.means.shape[1], dtype=torch.float64, device="cpu")
        return self.draw(nothing, nothing.bool(), count, generator)[0]

    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        rows, mask = _check_rows(x, known, self.means.shape[1])
        chance = torch.rand(count, generator=generator, dtype=torch.float64, device="cpu")
        noise = _normal(count, rows.shape[1], generator)
        edges = self.posterior(x, known).cumsum(dim=1)[:, :-1]
        chosen = (chance[None, :, None] >= edges[:, None]).sum(dim=-1)  # (n, count)
        samples = torch.zeros(len(rows), count, rows.shape[1], dtype=torch.float64, device="cpu")
        for number, component in enumerate(self.components):
            drawn = component.condition(component.transform(noise), rows, mask)
            samples = torch.where((chosen == number)[..., None], drawn, samples)
        return _keep_known(samples, x, known)

    def expect(self, x: Tensor, known: Tensor) -> Tensor:
        rows, mask = _check_rows(x, known, self.means.shape[1])
        means = torch.cat([c.condition(c.mean[None], rows, mask) for c in self.components], dim=1)  # (n, k, d)
        return _keep_known(self.posterior(x, known)[:, None] @ means, x, known)[:, 0]

    def posterior(self, x: Tensor, known: Tensor) -> Tensor:
        """Return the probability of each component given the known features of each row, (n, k)."""
        rows, mask = _check_rows(x, known, self.means.shape[1])
        log_odds = torch.stack([component.log_density(rows, mask) for component in self.components], dim=1)
        return (log_odds + self.weights.log()).softmax(dim=1)


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


def _check_rows(x: Tensor, known: Tensor, features: int) -> tuple[Tensor, Tensor]:
    """Return the rows in float64, and their known features, on the CPU."""
    if x.ndim != 2 or x.shape[1] != features or known.shape != x.shape or known.dtype != torch.bool:
        raise InputError(
            f"x is {describe(x)} and known {describe(known)}: the distribution takes rows (n, {features}) and booleans in "
            "their shape"
        )
    return x.detach().to(device="cpu", dtype=torch.float64), known.cpu()


def _keep_known(samples: Tensor, x: Tensor, known: Tensor) -> Tensor:
    """Return samples (n, count, d) in the precision of x, and exactly x where it is known."""
    return torch.where(known[:, None], x[:, None], samples.to(x))
