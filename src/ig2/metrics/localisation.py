"""Localisation metrics, which compare attributions with annotated masks and never run the network."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ig2._utils.checks import is_count
from ig2._utils.settings import Accepted, setting
from ig2.errors import InputError, describe
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.correlation import midranks
from ig2.metrics.features import FeatureOption, Features, Sign, apply_sign


@dataclass(frozen=True, eq=False)
class Localisation(Metric):
    """Base class of metrics that compare attributions with an annotated mask. Subclasses implement `score`.

    The mask is 1 on the features that matter, 0 on the others, and −1 on those to ignore, such as an uncertain border or padded
    words. If a mask has no 1, or no 0, the score is not defined.

    Args:
        features: the unit that is ranked: "pixel" (channels are summed), "word", "element", or "auto", by the number of axes.
        sign: "keep", "positive" (negative attributions count as zero), or "absolute".
    """

    features: FeatureOption = "auto"
    sign: Sign = "positive"
    better = "higher"
    runs_model = False
    truth = "the mask: 1 on what matters, 0 elsewhere, −1 on what does not count; one entry a feature"
    undefined_because: ClassVar[str] = ""  # why a score may be NaN although the mask would allow it

    @abstractmethod
    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        """Return the scores (B,) of attributions (B, M), NaN where they are not defined.

        Args:
            values: attributions (B, M).
            mask: where the truth is 1, booleans (B, M).
            counted: where the truth is not −1, booleans (B, M).
            features: the M features.
        """

    def run(self, case: Case) -> Scores:
        features = Features.of(self.features, case.values.shape[1:])
        values = apply_sign(features.pool(case.values), self.sign)
        truth = read_masks(case.truth, features, values)
        mask, counted = truth == 1, truth != -1
        scores = self.score(values, mask, counted, features)
        return Scores.where_defined(
            scores,
            {
                "the mask is empty": ~mask.any(dim=1),
                "the mask holds everything": (mask | ~counted).all(dim=1),
                self.undefined_because: scores.isnan(),
            },
        )


def read_masks(truth: Any, features: Features, values: Tensor) -> Tensor:
    """Return the masks passed to the call, as 1, 0 and −1 for each feature (B, M), on the device of the values."""
    shape = (len(values), *features.shape)
    short = (len(values), *(size for size in features.shape if size != 1))
    expected = f"{shape}" if short == shape else f"{shape} or {short}"
    try:
        if isinstance(truth, (tuple, list)) and all(isinstance(part, Tensor) for part in truth):
            truth = torch.cat([part.flatten(1) for part in truth], dim=1)
        masks = torch.as_tensor(truth, device=values.device)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise InputError(f"truth must be a mask {expected}, got {describe(truth)}") from error
    if masks.ndim == 0 or (len(masks), *(size for size in masks.shape[1:] if size != 1)) != short:
        raise InputError(f"truth is {describe(truth)}: expected {expected}, one entry for each feature of each attribution")
    if not ((masks == 0) | (masks == 1) | (masks == -1)).all():
        raise InputError(
            f"truth holds values from {float(masks.min()):.6g} to {float(masks.max()):.6g}, expected 1 on what matters, 0 "
            "elsewhere and −1 on what does not count: choose a threshold, for example truth=mask > 0.5"
        )
    return masks.reshape(len(values), -1).to(torch.int8)


@dataclass(frozen=True, eq=False)
class GTAUC(Localisation):
    """The area under the ROC curve of the attribution as a classifier of the mask, GT-AUC in [Zhuo 2024].

    P(φᵢ > φⱼ) + ½ P(φᵢ = φⱼ) for a feature i on the mask and j off it: a constant attribution scores exactly one half. The
    arguments are those of `Localisation`.

    >>> GTAUC()(None, torch.tensor([[0.9, 0.1, 0.5, 0.1]]), truth=torch.tensor([[1, 0, 0, 1]])).values
    tensor([0.6250])
    """

    name = "GT-AUC"

    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        # above all others, what does not count moves no rank of what does
        ranks = midranks(values.masked_fill(~counted, torch.inf))
        on = mask.sum(dim=1)
        beside = counted.sum(dim=1) - on
        # twice the Mann-Whitney statistic: twice the ranks are integers, so that the sums are exact
        above = (ranks * mask).sum(dim=1) - on * (on + 1)
        return above.to(values.dtype) / (2 * on * beside).to(values.dtype)


@dataclass(frozen=True, eq=False)
class GTSum(Localisation):
    """The share of the attribution on the mask, Σ_mask φ / Σ φ: GT-SUM in [Zhuo 2024], after [Arras 2022].

    With `sign="keep"`, negative attributions are subtracted from both sums, and the share may leave [0, 1]. The arguments are
    those of `Localisation`.

    >>> GTSum()(None, torch.tensor([[1.0, 2.0, 1.0]]), truth=torch.tensor([[0, 1, 0]])).values
    tensor([0.5000])
    """

    name = "GT-SUM"
    undefined_because: ClassVar[str] = "the attribution sums to zero, so that nothing has a share of it"

    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        values = values * counted
        largest = values.abs().amax(dim=1, keepdim=True)
        values = values / torch.where(largest > 0, largest, 1.0)  # the sum of huge numbers would be infinite
        total = values.sum(dim=1)
        # what remains of a sum of both signs by rounding is a zero too
        nothing = total.abs() <= 8 * torch.finfo(values.dtype).eps * values.abs().sum(dim=1)
        return torch.where(nothing, torch.nan, (values * mask).sum(dim=1) / total)


@dataclass(frozen=True, eq=False)
class PointingGame(Localisation):
    """The pointing game: 1 if the largest attribution lies on the mask, else 0; for ties, the share that does [Zhang 2018].

    Args:
        features: "pixel" (channels are summed), "word", "element", or "auto", by the number of axes.
        sign: "keep", "positive" (negative attributions count as zero), or "absolute".
        tolerance: the largest Euclidean distance from the mask, in pixels, that counts as a hit; 15 as published.

    Raises:
        InputError: if tolerance is not a non-negative integer, or is positive for features that are not pixels.
    """

    tolerance: int = setting(0, Accepted(lambda value: value == 0 or is_count(value), "a number of pixels, 0 or more"))
    name = "pointing game"

    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        values = values.masked_fill(~counted, -torch.inf)
        largest = values == values.amax(dim=1, keepdim=True)
        hits = largest & (dilate(mask, features, self.tolerance) if self.tolerance else mask)
        return hits.sum(dim=1).to(values.dtype) / largest.sum(dim=1).to(values.dtype)


def dilate(mask: Tensor, features: Features, radius: int) -> Tensor:
    """Return masks of pixels (B, M) extended to everything at most `radius` pixels away."""
    if len(features.shape) != 3 or features.shape[0] != 1:
        raise InputError(
            f"tolerance={radius} counts pixels, and these features {features.shape} are none: pass images (B, C, H, W), heat "
            "maps as (B, 1, H, W), or tolerance=0"
        )
    line = torch.arange(-radius, radius + 1, device=mask.device)
    disc = (line[:, None] ** 2 + line**2 <= radius**2).float()
    image = mask.view(-1, *features.shape).float()
    return functional.conv2d(image, disc[None, None], padding=radius).flatten(1) > 0.5
