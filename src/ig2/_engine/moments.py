"""Means and standard deviations over references, with weights or without."""

from __future__ import annotations

import torch
from torch import Tensor


class Moments:
    """Running mean and sum of squared deviations of each explicand over its references (Welford); with weights (West)."""

    def __init__(self, like: Tensor, weights: Tensor | None = None) -> None:
        self.weights = weights
        self.mean = torch.zeros_like(like, memory_format=torch.contiguous_format)
        # in float64: of values around 1e20 the squares leave float32. MPS has none
        self.squares = torch.zeros_like(self.mean, dtype=like.dtype if like.device.type == "mps" else torch.float64)

    def add(self, row: int, count_before: int, value: Tensor) -> None:
        before = value - self.mean[row]
        if self.weights is None:
            self.mean[row] += before / (count_before + 1)
            self.squares[row] += before.to(self.squares.dtype) * (value - self.mean[row])
            return
        weight = self.weights[row, count_before]
        so_far = self.weights[row, : count_before + 1].sum()
        self.mean[row] += before * torch.where(so_far > 0, weight / so_far, 0.0)
        self.squares[row] += weight * before.to(self.squares.dtype) * (value - self.mean[row])

    def deviation(self, count: int) -> Tensor:
        """Return the standard deviation over references, unbiased: of weights wᵣ that sum to one, Σ
        wᵣ (φᵣ − φ)² / (1 − Σ wᵣ²)."""
        if self.weights is None:
            return (self.squares / (count - 1)).sqrt().to(self.mean.dtype)
        free = (1 - self.weights.square().sum(dim=1)).reshape(-1, *[1] * (self.mean.ndim - 1))
        return torch.where(free > 0, self.squares / free.where(free > 0, 1.0), 0.0).sqrt().to(self.mean.dtype)


def average_references(values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the mean of values (B, R, ...) over references with weights (B, R), and the standard
    deviation, if there are several."""
    if weights is None:
        return values.mean(dim=1), values.std(dim=1) if values.shape[1] > 1 else None
    moments = Moments(values[:, 0], weights)
    for row in range(len(values)):
        for reference, value in enumerate(values[row]):
            moments.add(row, reference, value)
    return moments.mean, moments.deviation(values.shape[1]) if values.shape[1] > 1 else None
