"""How well attributions find what people marked: metrics that compare with a mask and never run the network."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ig2.errors import InputError, describe
from ig2.metrics.base import Better, Case, Metric, Result
from ig2.metrics.features import FeatureOption, Features, Sign, signed


@dataclass(frozen=True, eq=False)
class Localisation(Metric):
    """A metric of attributions beside an annotated mask. Subclasses write `score`.

    The mask is 1 on the features that matter, 0 on the others, and −1 on those left out of the score, such as an unsure
    border or padded words. A mask without a 1, or without a 0, says nothing of an attribution: the score is not defined.
    """

    features: FeatureOption = "auto"
    sign: Sign = "positive"
    better: ClassVar[Better] = "higher"
    runs_model: ClassVar[bool] = False
    truth: ClassVar[str | None] = "the mask: 1 on what matters, 0 elsewhere, −1 on what is left out; one entry a feature"

    unscored: ClassVar[str] = ""  # why a score may not be defined although the mask would allow it

    @abstractmethod
    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        """Scores (B,) of attributions (B, M), NaN where `unscored` holds.

        `mask` is where the truth is 1, `counted` where it is not −1.
        """

    def run(self, case: Case) -> Result:
        features = Features.of(self.features, case.values.shape[1:])
        values = signed(features.pool(case.values), self.sign)
        truth = masks(case.truth, features, values)
        mask, counted = truth == 1, truth != -1
        empty = ~mask.any(dim=1)
        full = (mask | ~counted).all(dim=1) & ~empty
        scores = self.score(values, mask, counted, features).masked_fill(empty | full, torch.nan)
        reasons = {
            "the mask is empty": empty,
            "the mask holds everything": full,
            self.unscored: scores.isnan() & ~empty & ~full,
        }
        return Result(scores, {why: int(rows.sum()) for why, rows in reasons.items() if rows.any()})


def masks(truth: Any, features: Features, values: Tensor) -> Tensor:
    """The masks the caller gave, as 1, 0 and −1 for each feature (B, M), on the device of the values."""
    shape = (len(values), *features.shape)
    short = (len(values), *(size for size in features.shape if size != 1))
    expected = f"{shape}" if short == shape else f"{shape} or {short}"
    try:
        if isinstance(truth, (tuple, list)) and all(isinstance(part, Tensor) for part in truth):
            truth = torch.cat([part.flatten(1) for part in truth], dim=1)
        given = torch.as_tensor(truth, device=values.device)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise InputError(f"truth must be a mask {expected}, got {describe(truth)}") from error
    if given.ndim == 0 or (len(given), *(size for size in given.shape[1:] if size != 1)) != short:
        raise InputError(f"truth is {describe(truth)}: expected {expected}, one entry for each feature of each attribution")
    if not ((given == 0) | (given == 1) | (given == -1)).all():
        raise InputError(
            f"truth holds values from {float(given.min()):.6g} to {float(given.max()):.6g}, expected 1 on what matters, 0 "
            "elsewhere and −1 on what is left out: choose where it begins, for example truth=mask > 0.5"
        )
    return given.reshape(len(values), -1).to(torch.int8)


@dataclass(frozen=True, eq=False)
class GTAUC(Localisation):
    """The area under the ROC curve of the attribution as a score of the mask, by ranks.

    The chance that a feature on the mask has a larger attribution than one beside it, where equal ones count half: a constant
    attribution scores exactly one half.

    Args:
        features: what is ranked: "pixel" (channels are summed), "word", "element", or "auto", by the number of axes.
        sign: "keep", "positive" (negative attributions count as zero), or "absolute".
    """

    name: ClassVar[str] = "GT-AUC"

    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        # above all others, what is left out moves no rank of those that count
        values = values.masked_fill(~counted, torch.inf)
        ordered, order = values.sort(dim=1)
        marked = mask.gather(1, order)
        # equal values share their rank: of each, where its group begins and ends
        place = torch.arange(values.shape[1], device=values.device)
        changes = ordered[:, 1:] != ordered[:, :-1]
        edge = torch.ones_like(marked[:, :1])
        first = torch.where(torch.cat([edge, changes], dim=1), place, 0).cummax(dim=1).values
        last = torch.where(torch.cat([changes, edge], dim=1), place, len(place)).flip(1).cummin(dim=1).values.flip(1)
        # twice the rank, an integer also for those that share theirs, so that the sums are exact
        twice = (first + last + 2) * marked
        on = mask.sum(dim=1)
        beside = counted.sum(dim=1) - on
        above = twice.sum(dim=1) - on * (on + 1)
        return above.to(values.dtype) / (2 * on * beside).to(values.dtype)


@dataclass(frozen=True, eq=False)
class GTSum(Localisation):
    """The share of the attribution that falls on the mask.

    With `sign="keep"` negative attributions take away, on the mask and from the whole, and the share may leave [0, 1].

    Args:
        features: "pixel" (channels are summed), "word", "element", or "auto", by the number of axes.
        sign: "keep", "positive" (negative attributions count as zero), or "absolute".
    """

    name: ClassVar[str] = "GT-SUM"
    unscored: ClassVar[str] = "the attribution sums to zero, so that nothing has a share of it"

    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        values = values * counted
        largest = values.abs().amax(dim=1, keepdim=True)
        values = values / torch.where(largest > 0, largest, 1.0)  # the sum of huge numbers would be infinite
        total = values.sum(dim=1)
        # what is left of a sum of both signs by rounding is a zero too
        nothing = total.abs() <= 8 * torch.finfo(values.dtype).eps * values.abs().sum(dim=1)
        return torch.where(nothing, torch.nan, (values * mask).sum(dim=1) / total)


@dataclass(frozen=True, eq=False)
class PointingGame(Localisation):
    """1 where the largest attribution lies on the mask, 0 where it does not; among equal ones, the share of them that does.

    Args:
        features: "pixel" (channels are summed), "word", "element", or "auto", by the number of axes.
        sign: "keep", "positive" (negative attributions count as zero), or "absolute".
        tolerance: how many pixels beside the mask still count as a hit, measured straight; 15 in the published game.
    """

    tolerance: int = 0
    name: ClassVar[str] = "pointing game"

    def __post_init__(self) -> None:
        if not isinstance(self.tolerance, int) or isinstance(self.tolerance, bool) or self.tolerance < 0:
            raise InputError(f"tolerance must be a number of pixels, 0 or more, got {describe(self.tolerance)}")

    def score(self, values: Tensor, mask: Tensor, counted: Tensor, features: Features) -> Tensor:
        values = values.masked_fill(~counted, -torch.inf)
        largest = values == values.amax(dim=1, keepdim=True)
        hits = largest & (grown(mask, features, self.tolerance) if self.tolerance else mask)
        return hits.sum(dim=1).to(values.dtype) / largest.sum(dim=1).to(values.dtype)


def grown(mask: Tensor, features: Features, radius: int) -> Tensor:
    """Masks of pixels (B, M) with everything that is at most `radius` pixels away."""
    if len(features.shape) != 3 or features.shape[0] != 1:
        raise InputError(
            f"tolerance={radius} counts pixels, and these features {features.shape} are none: give images (B, C, H, W), heat "
            "maps as (B, 1, H, W), or tolerance=0"
        )
    line = torch.arange(-radius, radius + 1, device=mask.device)
    disc = (line[:, None] ** 2 + line**2 <= radius**2).float()
    image = mask.view(-1, *features.shape).float()
    return functional.conv2d(image, disc[None, None], padding=radius).flatten(1) > 0.5
