"""Correlations of attributions with ground truth, and rankings of features by their attributions."""

from __future__ import annotations

import torch
from torch import Tensor

from ig2.metrics.base import Scores

# How much of the largest number two results may differ by when only the order of the sums was another one.
ROUNDING = 8


def rounding_error(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the possible rounding error of numbers of a precision as large as the largest of each row (B, M), (B,)."""
    return ROUNDING * torch.finfo(dtype).eps * values.abs().amax(dim=1).cpu().double()


def pearson(first: Tensor, second: Tensor) -> Tensor:
    """Return Pearson's correlation of the rows (B, M), in float64, (B,); NaN if a row is constant.

    >>> pearson(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[-1.0, -2.0, -4.0]])).float()
    tensor([-1.])
    """
    first, second = (rows.double() - rows.double().mean(dim=1, keepdim=True) for rows in (first, second))
    first, second = (rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True) for rows in (first, second))
    return (first * second).sum(dim=1).clamp(-1, 1)


def midranks(values: Tensor) -> Tensor:
    """Return twice the rank of each value in its row, (B, M), from 2; equal values share twice their mean rank, an integer.

    >>> midranks(torch.tensor([[0.5, 0.1, 0.5]]))
    tensor([[5, 2, 5]])
    """
    ordered, order = values.sort(dim=1)
    # where the group of equal values begins and ends, for each; two binary searches took twice as long as all of this
    place = torch.arange(values.shape[1], device=values.device)
    changes, edge = ordered[:, 1:] != ordered[:, :-1], torch.ones_like(ordered[:, :1], dtype=torch.bool)
    first = torch.where(torch.cat([edge, changes], dim=1), place, 0).cummax(dim=1).values
    last = torch.where(torch.cat([changes, edge], dim=1), place, len(place)).flip(1).cummin(dim=1).values.flip(1)
    return torch.empty_like(order).scatter_(1, order, first + last + 2)


def order_features(values: Tensor, generator: torch.Generator, descending: bool = False) -> Tensor:
    """Return the features of each row by increasing value, as indices (B, M); ties are in a random order shared by all rows."""
    shuffled = torch.randperm(values.shape[1], generator=generator, device="cpu").to(values.device)
    return shuffled[values[:, shuffled].argsort(dim=1, descending=descending, stable=True)]


def correlate(values: Tensor, truth: Tensor, rounding: Tensor, if_constant: float | None, reason: str) -> Scores:
    """Score attributions by Pearson's correlation with the truth, row by row.

    Args:
        values: attributions (B, d). They count as constant if they differ only by the rounding error of their precision.
        truth: the ground truth, (B, d).
        rounding: the rounding error of the differences in each row of the truth, (B,).
        if_constant: the score if either is constant; None for not defined.
        reason: the meaning of a constant truth.

    Returns:
        The scores, (B,).
    """
    constant, constant_truth = _spread(values) <= rounding_error(values, values.dtype), _spread(truth) <= rounding
    scores = pearson(values.cpu(), truth.cpu())
    if if_constant is not None:
        return Scores(scores.masked_fill(constant | constant_truth, if_constant))
    return Scores.where_defined(scores, {"the attribution is the same for all features": constant, reason: constant_truth})


def _spread(rows: Tensor) -> Tensor:
    """Return the largest distance from the mean of each row, in float64 on the CPU."""
    rows = rows.cpu().double()
    return (rows - rows.mean(dim=1, keepdim=True)).abs().amax(dim=1)
