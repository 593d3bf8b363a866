"""Bootstrap intervals of means, over samples that several scores share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 2000
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % bootstrap interval over samples."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@lru_cache(maxsize=8)  # the same for every pair of methods and every metric of a data set
def resample(count: int, draws: int = DRAWS, seed: int = 0) -> Array:
    """Return the weight of each of `count` samples in each draw with replacement, (draws, count); each row sums to one.

    Their product with scores (count, ...) is the mean of every draw. All scores share the same samples, so draws are paired.
    """
    generator = np.random.default_rng(seed)
    chosen = generator.integers(count, size=(draws, count))
    weights = np.zeros((draws, count))
    np.add.at(weights, (np.arange(draws)[:, None], chosen), 1 / count)
    weights.flags.writeable = False
    return weights


def bootstrap(differences: ArrayLike, seed: int = 0) -> tuple[float, float, float]:
    """Return the mean of differences (n,) with its 95 % interval, from the percentiles of 2000 draws with replacement.

    NaN differences are skipped; with fewer than two others the ends are NaN.

    >>> mean, low, high = bootstrap([1.0, 2.0, 3.0, 2.0])
    >>> mean, low <= mean <= high
    (2.0, True)
    """
    values = np.asarray(differences, dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return float(values.mean()) if len(values) else float("nan"), float("nan"), float("nan")
    low, high = np.percentile(resample(len(values), seed=seed) @ values, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def bootstrap_rows(differences: Array) -> tuple[Array, Array, Array]:
    """Apply `bootstrap` to every row of differences (k, n): means and both ends, each (k,); much faster without NaN.

    >>> mean, low, high = bootstrap_rows(np.array([[1.0, 2.0, 3.0, 2.0]]))
    >>> (float(mean[0]), float(low[0]), float(high[0])) == bootstrap([1.0, 2.0, 3.0, 2.0])
    True
    """
    if differences.shape[1] < 2 or not np.isfinite(differences).all():
        mean, low, high = np.array([bootstrap(row) for row in differences]).reshape(-1, 3).T
        return mean, low, high
    low, high = np.percentile(differences @ resample(differences.shape[1]).T, [2.5, 97.5], axis=1)
    return differences.mean(axis=1), low, high
