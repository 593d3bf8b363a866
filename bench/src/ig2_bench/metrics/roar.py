"""ROAR: remove the features with large attributions, retrain, and measure how much worse the new model is."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._engine.explicands import check_numeric
from ig2._utils.checks import check_seed, is_number, require
from ig2._utils.settings import Accepted, Settings, required
from ig2.attribution import Attribution
from ig2.errors import InputError, ModelError, describe
from ig2.methods.base import summary
from ig2.metrics.base import Better, Scores
from ig2.metrics.conditional import CONDITIONAL, Conditional, check_tabular
from ig2.metrics.correlation import order_features

# Rows that get noise of their own together: of their draws, one in so many is kept.
ROWS_AT_ONCE = 64

Predict = Callable[[Tensor], Tensor]
Retrain = Callable[[Tensor, Tensor, int], Predict]
"""A function of K training sets, samples (K, n, d) and labels (K, n), and a seed that trains K models. It returns a function
from samples (K, m, d), m for each model, to predictions (K, m). No model may depend on the training sets of the others."""


def train_one_by_one(retrain: Retrain) -> Retrain:
    """Turn a function that trains one model into one that trains K, one after the other.

    Args:
        retrain: a function of samples (n, d), labels (n,) and a seed that returns a function from samples (m, d) to
            predictions (m,).

    Returns:
        The function that trains K models, for `ROAR`.
    """

    @functools.wraps(retrain)
    def train(x: Tensor, y: Tensor, seed: int) -> Predict:
        models = [retrain(samples, labels, seed) for samples, labels in zip(x, y, strict=True)]
        return lambda batches: torch.stack([model(samples) for model, samples in zip(models, batches, strict=True)])

    return train


@dataclass(frozen=True, eq=False)
class ROAR(Settings):
    """Remove and retrain: the error of models trained without the features with the largest attributions [Hooker 2019].

    For each cutoff c, the ⌊c·d⌋ features of each sample with the largest |φ| are replaced by one draw given the others, in the
    training and in the test samples; a new model is trained, and its |error| on each test sample is one point of that sample's
    curve. The score is the area under the curve over the cutoffs (trapezoids). The better an attribution finds what matters,
    the larger it is. Ties are in a random order determined by the seed. Cutoffs that remove equally many features share one
    model.

    XAI-BENCH's first code [Liu 2021] removes features only in the validation points and splits these, 80 for training and 20
    for testing; its later code, like this one, trains on the training points and tests on the validation points.

    Args:
        retrain: trains K models at once: retrain(x (K, n, d), y (K, n), seed) returns a function from samples (K, m, d) to
            predictions (K, m). `train_one_by_one(...)` converts a function that trains a single model.
        conditional: the distribution of the removed features given the others.
        cutoffs: the shares of the features to remove, increasing.
    """

    retrain: Retrain = required(Accepted(callable, "a function of (x, y, seed)"))
    conditional: Conditional = required(CONDITIONAL)
    cutoffs: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
    name: ClassVar[str] = "ROAR"
    better: ClassVar[Better] = "higher"

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = len(self.cutoffs) > 1 and all(is_number(cutoff) and 0 <= cutoff <= 1 for cutoff in self.cutoffs)
        valid = valid and all(low < high for low, high in pairwise(self.cutoffs))
        require(valid, "cutoffs", self.cutoffs, "at least two increasing shares from 0 to 1")

    def __call__(self, train: tuple[Any, Any, Any], test: tuple[Any, Any, Any], *, seed: int = 0) -> Scores:
        """Score the attributions of one method.

        Args:
            train: samples (n, d), labels (n,), and their attribution: the result of a method, or a tensor.
            test: the same for samples outside the training set.
            seed: the seed for all random draws, also passed to `retrain`.

        Returns:
            One score for each test sample.

        Raises:
            InputError: if samples, labels and attributions do not match.
            ModelError: if a retrained model predicts NaN or infinity.
        """
        (x, y, attribution), (test_x, test_y, test_attribution) = _split(train, "train"), _split(test, "test")
        return self.compare((x, y, {"": attribution}), (test_x, test_y, {"": test_attribution}), seed=seed)[""]

    def compare(
        self, train: tuple[Any, Any, Mapping[str, Any]], test: tuple[Any, Any, Mapping[str, Any]], *, seed: int = 0
    ) -> dict[str, Scores]:
        """Score several methods, whose models are all trained in one call of `retrain`.

        Args:
            train: samples (n, d), labels (n,), and the attribution of each method by name.
            test: the same for samples outside the training set.
            seed: the seed for all random draws, also passed to `retrain`.

        Returns:
            The scores of each method by name, one for each test sample.

        Raises:
            InputError: if samples, labels and attributions do not match, or `train` and `test` have different methods.
            ModelError: if a retrained model predicts NaN or infinity.
        """
        check_seed(seed)
        x, y, attributions = _check_data(train, "train")
        test_x, test_y, test_attributions = _check_data(test, "test")
        if attributions.keys() != test_attributions.keys() or not attributions:
            raise InputError(
                f"train has attributions of {', '.join(attributions) or 'no method'}, test of "
                f"{', '.join(test_attributions) or 'no method'}: pass those of the same methods"
            )
        if x.shape[1] != test_x.shape[1]:
            raise InputError(f"train's samples are {tuple(x.shape)}, test's {tuple(test_x.shape)}: they need the same features")
        # 1e-9: 0.29 · 100 is a hair less than 29
        removed = [math.floor(cutoff * x.shape[1] + 1e-9) for cutoff in self.cutoffs]
        counts = sorted(set(removed))
        # test samples get other noise than training samples, or a model could learn it by heart
        test_seed = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed), device="cpu"))
        samples = torch.cat([self._remove(x, values, counts, seed) for values in attributions.values()])
        test_samples = torch.cat([self._remove(test_x, test_attributions[name], counts, test_seed) for name in attributions])
        predicted = self.retrain(samples, y.expand(len(samples), -1), int(seed))(test_samples)
        if not isinstance(predicted, Tensor) or predicted.shape != test_samples.shape[:2]:
            raise InputError(
                f"the retrained models predict {describe(predicted)}, expected {tuple(test_samples.shape[:2])}: a number for "
                f"each test sample of each of {len(samples)} models. Wrap a function that trains one model in "
                "train_one_by_one(...)"
            )
        errors = (predicted.detach().double() - test_y.to(predicted.device).double()).abs()
        if not errors.isfinite().all():
            method, model = divmod(int((~errors.isfinite()).nonzero()[0, 0]), len(counts))
            by = f" by {name}" if (name := list(attributions)[method]) else ""
            raise ModelError(
                f"the model retrained without {counts[model]} features{by} predicts NaN or infinity: its training failed"
            )
        place = torch.tensor([counts.index(count) for count in removed], device=errors.device)
        curves = errors.view(len(attributions), len(counts), -1)[:, place].transpose(1, 2)  # (methods, m, cutoffs)
        at = torch.tensor(self.cutoffs, dtype=torch.float64, device=errors.device)
        settings = {**summary(self), "seed": int(seed)}
        return {
            name: Scores(torch.trapezoid(curve, at, dim=1), self.name, self.better, curves=curve, at=at, settings=settings)
            for name, curve in zip(attributions, curves, strict=True)
        }

    def _remove(self, x: Tensor, values: Tensor, counts: list[int], seed: int) -> Tensor:
        """Return the samples without their most important features, (K, n, d)."""
        rank = order_features(values.abs(), torch.Generator().manual_seed(seed)).argsort(dim=1)
        # the same noise at every cutoff: what differs between two of them is what was removed
        known = [rank < x.shape[1] - count for count in counts]
        return torch.stack([replace_unknown(x, k, self.conditional, torch.Generator().manual_seed(seed)) for k in known])


def _split(data: object, name: str) -> tuple[Any, Any, Any]:
    if not isinstance(data, (tuple, list)) or len(data) != 3:
        raise InputError(f"{name} must be (samples, labels, attribution), got {describe(data)}")
    return data[0], data[1], data[2]


def _check_data(data: object, name: str) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Return samples (n, d), labels (n,) and attributions (n, d) by method."""
    x, y, attributions = _split(data, name)
    samples = check_numeric(x, f"{name}'s samples")
    check_tabular(samples, "ROAR")
    if not isinstance(y, Tensor) or y.shape != samples.shape[:1]:
        raise InputError(f"{name}'s labels are {describe(y)}, expected a tensor ({len(samples)},), one for each sample")
    if not isinstance(attributions, Mapping):
        raise InputError(f"{name} needs the attribution of each method by its name, got {describe(attributions)}")
    checked = {}
    for method, attribution in attributions.items():
        values = attribution.values if isinstance(attribution, Attribution) else attribution
        values = check_numeric(values, f"{name}'s attribution")
        if values.shape != samples.shape:
            raise InputError(f"{name}'s attribution is {describe(values)}, expected {tuple(samples.shape)}, as the samples")
        checked[method] = values.to(samples.device)
    return samples, y, checked


def replace_unknown(x: Tensor, known: Tensor, conditional: Conditional, generator: torch.Generator) -> Tensor:
    """Replace the unknown features of each row (n, d) by one draw, with noise of its own; known features keep their values."""
    pieces = []
    for rows, mask in zip(torch.split(x, ROWS_AT_ONCE), torch.split(known, ROWS_AT_ONCE), strict=True):
        # a distribution gives all rows the same noise, so each row takes another of as many draws as there are rows
        index = torch.arange(len(rows), device=x.device)
        pieces.append(conditional.draw(rows, mask, len(rows), generator)[index, index].to(x))
    return torch.cat(pieces)
