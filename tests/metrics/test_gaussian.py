"""Conditional distributions against closed forms, against their own moments, and against SciPy."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from ig2.errors import InputError
from ig2.metrics.gaussian import Distribution, Gaussian, Mixture
from networks import data


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masks(features: int) -> Tensor:
    """Every set of known features, (2ᵈ, d)."""
    return torch.tensor(list(product([False, True], repeat=features)))


def some_gaussian(features: int = 4, seed: int = 0) -> Gaussian:
    root = data(features, features, seed=seed)
    return Gaussian(data(features, seed=seed + 1), root @ root.T + 0.3 * torch.eye(features, dtype=torch.float64))


def some_mixture() -> Mixture:
    parts = [some_gaussian(seed=seed) for seed in (0, 5, 9)]
    means, covariances = torch.stack([part.mean for part in parts]), torch.stack([part.covariance for part in parts])
    return Mixture(means, covariances, torch.tensor([1.0, 2.0, 3.0]))


def test_two_features_follow_their_regression() -> None:
    """Given x₁, x₂ is normal with mean μ₂ + c/v₁·(x₁ − μ₁) and variance v₂ − c²/v₁."""
    mean, covariance = torch.tensor([1.0, -2.0]), torch.tensor([[4.0, 1.5], [1.5, 2.0]])
    both = Gaussian(mean, covariance)
    x, known = torch.tensor([[3.0, 99.0]], dtype=torch.float64), torch.tensor([[True, False]])
    expected = -2.0 + 1.5 / 4.0 * (3.0 - 1.0)
    assert both.expect(x, known)[0].tolist() == pytest.approx([3.0, expected], abs=1e-12)
    drawn = both.draw(x, known, 200_000, generator())[0]
    assert (drawn[:, 0] == 3.0).all()
    assert float(drawn[:, 1].mean()) == pytest.approx(expected, abs=0.02)
    assert float(drawn[:, 1].var()) == pytest.approx(2.0 - 1.5**2 / 4.0, rel=0.02)


def by_blocks(whole: Gaussian, x: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Conditional mean and covariance of the unknown features of one row, block by block."""
    given, free = known.nonzero()[:, 0], (~known).nonzero()[:, 0]
    across = whole.covariance[free][:, given] @ torch.linalg.inv(whole.covariance[given][:, given])
    mean = whole.mean[free] + across @ (x[given] - whole.mean[given])
    return mean, whole.covariance[free][:, free] - across @ whole.covariance[given][:, free]


def test_every_mask_in_one_call_has_the_moments_of_its_own_blocks() -> None:
    whole = some_gaussian()
    known = masks(4)
    x = data(len(known), 4, seed=3)
    means, drawn = whole.expect(x, known), whole.draw(x, known, 100_000, generator())
    for row in range(len(known)):
        free = ~known[row]
        assert torch.equal(drawn[row][:, known[row]], x[row, known[row]].expand(100_000, -1))
        mean, covariance = by_blocks(whole, x[row], known[row])
        torch.testing.assert_close(means[row, free], mean)
        if free.any():
            torch.testing.assert_close(drawn[row][:, free].mean(dim=0), mean, rtol=0, atol=0.02)
            found = torch.cov(drawn[row][:, free].T).reshape(covariance.shape)
            torch.testing.assert_close(found, covariance, rtol=0, atol=0.03)


def test_posterior_weights_of_a_mixture_are_those_of_scipy() -> None:
    mixture = some_mixture()
    known = masks(4)
    x = data(len(known), 4, seed=2, low=-2, high=2)
    found = mixture.posterior(x, known)
    for row in range(len(known)):
        given = known[row].nonzero()[:, 0]
        weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) / 6
        if len(given):
            for k, part in enumerate(mixture.components):
                weights[k] *= multivariate_normal(part.mean[given], part.covariance[given][:, given]).pdf(x[row, given])
        torch.testing.assert_close(found[row], weights / weights.sum())


def test_draws_of_a_mixture_have_the_conditional_mean_and_the_posterior_shares() -> None:
    mixture = Mixture(torch.tensor([[4.0, 4.0], [-4.0, -4.0]]), torch.stack([torch.eye(2) * 0.5] * 2), torch.tensor([1.0, 3.0]))
    x, known = torch.tensor([[0.1, 0.0]], dtype=torch.float64), torch.tensor([[True, False]])
    share = float(mixture.posterior(x, known)[0, 0])
    odds = math.exp(-((0.1 - 4) ** 2 - (0.1 + 4) ** 2)) / 3
    assert share == pytest.approx(odds / (1 + odds), rel=1e-9)
    drawn = mixture.draw(x, known, 100_000, generator())[0]
    assert float((drawn[:, 1] > 0).double().mean()) == pytest.approx(share, abs=0.005)
    assert float(drawn[:, 1].mean()) == pytest.approx(float(mixture.expect(x, known)[0, 1]), abs=0.05)


def test_a_mixture_of_one_is_its_gaussian() -> None:
    alone, x, known = some_gaussian(), data(16, 4, seed=3), masks(4)
    torch.testing.assert_close(Mixture(alone.mean[None], alone.covariance[None]).expect(x, known), alone.expect(x, known))


@pytest.mark.parametrize("distribution", [some_gaussian(), some_mixture()], ids=["gaussian", "mixture"])
def test_a_row_draws_the_same_whatever_stands_beside_it(distribution: Distribution) -> None:
    x, known = data(16, 4, seed=3), masks(4)
    together = distribution.draw(x, known, 5, generator(7))
    alone = torch.cat([distribution.draw(x[i : i + 1], known[i : i + 1], 5, generator(7)) for i in range(16)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(together, distribution.draw(x, known, 5, generator(8)))
    nothing = torch.zeros(1, 4, dtype=torch.float64)
    samples = distribution.sample(50_000, generator())  # what is drawn where nothing is known
    assert torch.equal(samples, distribution.draw(nothing, nothing.bool(), 50_000, generator())[0])
    torch.testing.assert_close(samples.mean(dim=0), distribution.expect(nothing, nothing.bool())[0], rtol=0, atol=0.03)


def test_independent_features_do_not_answer_to_each_other() -> None:
    plain, x, known = Gaussian.correlated(5), data(32, 5), masks(5)
    free = plain.sample(3, generator())
    torch.testing.assert_close(plain.draw(x, known, 3, generator()), torch.where(known[:, None], x[:, None], free))


def test_what_is_drawn_is_like_the_rows() -> None:
    x = data(3, 5).float()
    known = torch.tensor([[True, False, True, False, True]] * 3)
    for distribution in (Gaussian.correlated(5, 0.3), Mixture.opposed(5)):
        drawn = distribution.draw(x, known, 2, generator())
        assert drawn.dtype == torch.float32 and drawn.shape == (3, 2, 5)
        assert torch.equal(drawn[:, 0][known], x[known])


def test_correlated_features_have_that_correlation() -> None:
    assert Gaussian.correlated(3, -0.4).covariance.tolist() == [[1, -0.4, -0.4], [-0.4, 1, -0.4], [-0.4, -0.4, 1]]
    assert Gaussian.correlated(1).covariance.tolist() == [[1.0]]
    strong = Gaussian.correlated(5, 0.7)
    torch.testing.assert_close(torch.corrcoef(strong.sample(50_000, generator()).T), strong.covariance, rtol=0, atol=0.02)
    for rho in (1.0, 1.2, -0.25, -0.5, math.nan, "much", True):
        with pytest.raises(InputError, match=r"rho=.* 5 features can be correlated by more than -0.25, less than 1"):
            Gaussian.correlated(5, rho)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((torch.zeros(2), torch.ones(2, 2)), r"positive definite: its eigenvalues range from .* to 2"),
        ((torch.zeros(2), -torch.ones(2, 2)), "positive definite"),
        ((torch.zeros(2), torch.tensor([[1.0, 0.5], [0.0, 1.0]])), "symmetric"),
        ((torch.zeros(3), torch.eye(2)), r"expected \(3, 3\)"),
        ((torch.tensor([0.0, math.nan]), torch.eye(2)), "finite"),
        (("zero", torch.eye(2)), "mean must be"),
        ((torch.zeros(2, 2), torch.stack([torch.eye(2), torch.ones(2, 2)])), "positive definite"),
        ((torch.zeros(2, 2), torch.eye(2)[None]), "2 means and 1 covariances"),
        ((torch.zeros(2, 2), torch.stack([torch.eye(2)] * 2), torch.tensor([1.0, -1.0])), "2 positive numbers"),
    ],
)
def test_parts_that_make_no_distribution_are_refused(parts: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        (Mixture if isinstance(parts[0], Tensor) and parts[0].ndim == 2 else Gaussian)(*parts)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(InputError, match=r"rows \(n, 5\)"):
        Gaussian.correlated(5).draw(torch.zeros(2, 4), torch.zeros(2, 4).bool(), 1, generator())
    with pytest.raises(InputError, match="booleans"):
        Mixture.opposed(5).expect(torch.zeros(2, 5), torch.zeros(2, 5))
