"""How the output follows when features are added to a background, or deleted, by decreasing attribution."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ig2._engine.task import Task
from ig2._utils.checks import is_count
from ig2.errors import InputError, ModelError, describe
from ig2.metrics.base import Better, Case, Metric, Result
from ig2.metrics.features import FeatureOption, Features, Sign, signed
from ig2.model import OUTPUTS, Model, OutputName
from ig2.references.base import References, as_references, drawn
from ig2.references.constant import BlurredExplicand, Constant, White

Background = Literal["black", "white", "mean", "blurred"]
OutputOption = Literal["auto", "model"] | OutputName


@dataclass(frozen=True, eq=False)
class Perturbation(Metric):
    """The area under the output as features go over from one sample to another, by decreasing attribution.

    The curve is taken at the shares k/thresholds, k = 0 … thresholds, of the M features: of each share, rounded to a whole
    number of features. Its area is the trapezoid's. Features with equal attributions go in a random order, the same for each
    explicand; a constant attribution is thus scored as a random one.

    Features that are `ig2.Fixed`, such as padding and special tokens of a text adapter's, stay where they are and are not
    counted among the M: a text's score does not depend on the texts it is padded beside.

    Args:
        background: what features are added to or replaced by. "black": the model's lower bound, or 0 if it declares none.
            "white": its upper bound, or 1. "mean": of the explicand itself, over its pixels for each channel, or over its
            words. "blurred": the explicand blurred with a Gaussian of 10 pixels. Or samples (R, ...) or (B, R, ...), a number,
            or a strategy of `ig2.references`; with several, the curve is the mean of theirs.
        thresholds: how many steps the curve has.
        features: what goes over as a whole: "pixel" (all channels of it), "word", "element", or "auto", by the number of axes.
        sign: "keep", so that negative attributions come last; "positive", so that they are like zero; or "absolute".
        output: what the curve shows. "auto": the probability of the explained class (the softmax; the logistic function
            where the model explains "sigmoid" outputs, or there is a single one). "model": the output explained, as it is,
            for example a regressor's. Or a name that `ig2.wrap` takes for its output.
    """

    background: Background | Any = "black"
    thresholds: int = 50
    features: FeatureOption = "auto"
    sign: Sign = "keep"
    output: OutputOption = "auto"
    adds: ClassVar[bool]  # whether the explicand's features come into the background, or it into the explicand

    def __post_init__(self) -> None:
        if not is_count(self.thresholds):
            raise InputError(f"thresholds must be a positive integer, got {describe(self.thresholds)}")

    def asked(self, model: Model) -> Model:
        return with_output(model, self.output)

    def run(self, case: Case) -> Result:
        task = case.task
        features = Features.of(self.features, task.x.shape[1:])
        values, moves = signed(features.pool(case.values), self.sign), task.session.inputs.moves
        backgrounds = drawn(as_background(self.background, self.features == "word", task), task, "the background")
        curves = task.x.new_empty(len(task), self.thresholds + 1)
        for rows, which in features.moving(moves, values):
            some, behind = task, backgrounds
            if len(rows) < len(task):
                some = replace(task, x=task.x[rows], rows=task.rows[rows], target=task.target[rows])
                behind = backgrounds[rows.to(backgrounds.device)]
            # fixed features come last, and the count never reaches them
            ranks = torch.full((len(rows), len(features)), len(features), dtype=torch.int32, device=values.device)
            ranks.scatter_(1, which, ranked(values[rows].gather(1, which), task.generator()))
            curves[rows] = self._curves(some, behind, ranks, features, which.shape[1])
        at = torch.arange(self.thresholds + 1, device=task.x.device).to(task.x.dtype) / self.thresholds
        named = isinstance(self.background, str) and self.background in ("black", "white")
        # without bounds they are a guess
        found = {"background_values": sorted(set(torch.stack(backgrounds[:1].aminmax()).tolist()))} if named else {}
        return Result(torch.trapezoid(curves, at), curves=curves, at=at, settings=found)

    def _curves(self, task: Task, backgrounds: Tensor, ranks: Tensor, features: Features, size: int) -> Tensor:
        """The curves, (B, thresholds + 1), of explicands of which `size` features go over."""
        steps = self.thresholds
        # in whole numbers, so that halves are not rounded now up and now down
        counts, step = np.unique((2 * np.arange(steps + 1) * size + steps) // (2 * steps), return_inverse=True)
        points = _Points(task.x, backgrounds, ranks, torch.from_numpy(counts).to(task.x.device), features, self.adds)
        outputs = _outputs(points, task, size).mean(dim=1)
        return outputs[:, torch.from_numpy(step).to(task.x.device)]


@dataclass(frozen=True, eq=False)
class Insertion(Perturbation):
    """Features are added to the background, the most important first. The arguments are those of `Perturbation`."""

    name: ClassVar[str] = "SIC AUC-ADD"
    better: ClassVar[Better] = "higher"
    adds: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Deletion(Perturbation):
    """Features are replaced by the background, the most important first. The arguments are those of `Perturbation`."""

    name: ClassVar[str] = "SIC AUC-DEL"
    better: ClassVar[Better] = "lower"
    adds: ClassVar[bool] = False


@dataclass(frozen=True)
class _Points:
    """Every point of the curves, made when it is asked for: by explicand, then background, then count."""

    x: Tensor  # (B, ...)
    backgrounds: Tensor  # (B, R, ...), on any device
    ranks: Tensor  # of the features, (B, M)
    counts: Tensor  # how many features have gone over, (K,)
    features: Features
    adds: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.x), self.backgrounds.shape[1], len(self.counts)

    def made(self, piece: range) -> Tensor:
        """The points of these numbers, (n, ...)."""
        points = self.x.new_empty(len(piece), *self.x.shape[1:])
        done = 0
        # In blocks of all counts of some pairs of explicand and background, or some counts of one pair: a pair's samples are
        # then broadcast. To gather them for each point took as long again as all the rest.
        while done < len(piece):
            pair, step = divmod(piece.start + done, len(self.counts))
            left = len(piece) - done
            whole = step == 0 and left >= len(self.counts)
            pairs, steps = (left // len(self.counts), len(self.counts)) if whole else (1, min(len(self.counts) - step, left))
            self._make(range(pair, pair + pairs), slice(step, step + steps), points[done : done + pairs * steps])
            done += pairs * steps
        return points

    def _make(self, pairs: range, steps: slice, into: Tensor) -> None:
        number = torch.arange(pairs.start, pairs.stop, device=self.x.device)
        row, which = number // self.backgrounds.shape[1], number % self.backgrounds.shape[1]
        home = self.backgrounds.device
        x, background = self.x[row, None], self.backgrounds[row.to(home), which.to(home), None].to(self.x)
        first = (self.ranks[row, None] < self.counts[steps, None]).view(len(pairs), -1, *self.features.shape)
        new, old = (x, background) if self.adds else (background, x)
        torch.where(first, new, old, out=into.view(len(pairs), -1, *self.x.shape[1:]))


def _outputs(points: _Points, task: Task, size: int) -> Tensor:
    """The explained output at all points, (B, R, K), of explicands with `size` features."""
    total = math.prod(points.shape)
    found = task.x.new_empty(total)
    task.progress.expect(total)

    def work(piece: range) -> None:
        row = torch.arange(piece.start, piece.stop, device=task.x.device) // (total // len(task))
        scores = task.session.scores(points.made(piece), task.rows[row])
        found[piece.start : piece.stop] = scores.gather(1, task.target[row, None])[:, 0]
        task.progress.advance(len(piece))

    task.batch.over(total, work)
    found = found.view(points.shape)
    if not found.isfinite().all():
        row, _, step = (~found.isfinite()).nonzero()[0].tolist()
        raise ModelError(
            f"the output of explicand {int(task.rows[row])} is not a finite number when {int(points.counts[step])} of its "
            f"{size} features have gone over: the network fails between it and its background"
        )
    return found


def with_output(model: Model, output: OutputOption) -> Model:
    """The model with the output a curve shows."""
    if output == "model":
        return model
    if output != "auto" and output not in OUTPUTS:
        known = ", ".join(map(repr, ["auto", "model", *OUTPUTS]))
        raise InputError(f"output={describe(output)} is unknown: use one of {known}")
    if callable(model.output):
        raise InputError(
            "the model explains a function of what the network returns, which may be a probability or not: wrap the network "
            "with a named output, or take the function's as it is with output='model' where the metric has that option"
        )
    if output == "auto" and model.returns_probabilities:
        return model
    if output == "auto":
        output = "sigmoid" if model.output == "sigmoid" else "probability"
    return replace(model, output=output)


def ranked(values: Tensor, generator: torch.Generator) -> Tensor:
    """The place of each feature by decreasing value, from 0, (B, M); ties in a random order that all rows share."""
    shuffled = torch.randperm(values.shape[1], generator=generator, device="cpu").to(values.device)
    order = shuffled[values[:, shuffled].argsort(dim=1, descending=True, stable=True)]
    places = torch.arange(values.shape[1], dtype=torch.int32, device=values.device).expand_as(order)
    return torch.empty_like(order, dtype=torch.int32).scatter_(1, order, places)


def as_background(given: Any, words: bool, task: Task) -> References:
    """A strategy from a background's name, or from anything that references can be given as."""
    if not isinstance(given, str):
        return as_references(given)
    axes = task.x.ndim - 1
    if given == "black":
        bounds = task.session.model.bounds
        return Constant(0.0 if bounds is None else bounds[0])
    if given == "white":
        return White()
    if given == "mean":
        if axes == 1:
            raise InputError(
                "background='mean' is the mean of a picture's pixels or a text's words; of a table it would mix its columns. "
                "Give the mean of your data instead: background=data.mean(dim=0, keepdim=True)"
            )
        return _Mean((-2,) if words else (-2, -1))
    if given == "blurred":
        if words or axes == 1:
            raise InputError(
                f"background='blurred' is for images (C, H, W) or (H, W), these samples are {tuple(task.x.shape[1:])}"
            )
        return BlurredExplicand()
    raise InputError(
        f"background={describe(given)}: use 'black', 'white', 'mean', 'blurred', samples (R, ...) or (B, R, ...), a number, or "
        "a strategy of ig2.references"
    )


@dataclass(frozen=True)
class _Mean(References):
    """The explicand's mean over some axes."""

    axes: tuple[int, ...]

    def draw(self, task: Task) -> Tensor:
        moves = task.session.inputs.moves
        if moves is None:
            mean = task.x.mean(dim=self.axes, keepdim=True)
        else:  # padding is no part of a text
            mean = torch.where(moves, task.x, 0).sum(self.axes, keepdim=True) / moves.sum(self.axes, keepdim=True).clamp(min=1)
        return mean.expand_as(task.x)[:, None]
