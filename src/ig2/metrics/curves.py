"""Curves of the output as features are inserted into a background, or deleted, by decreasing attribution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ig2._utils.checks import is_count
from ig2._utils.settings import COUNT, Accepted, one_of, setting
from ig2.errors import InputError, describe
from ig2.groups import Groups, Windows
from ig2.methods.masking import run_masked, take_class
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.correlation import order_features
from ig2.metrics.features import FeatureOption, Features, Sign, apply_sign
from ig2.model import OUTPUTS, Model, OutputName
from ig2.references.base import References, as_references, draw_references
from ig2.references.constant import BlurredExplicand, Constant, White
from ig2.references.signals import Interpolated, TimeMean, TimeNoise
from ig2.task import Task

Background = Literal["black", "white", "mean", "blurred", "interpolated", "noise"]
Measure = Literal["accuracy", "output"]
OutputOption = Literal["auto", "model"] | OutputName
TWO_OR_MORE = Accepted(lambda value: is_count(value) and value > 1, "an integer of at least 2")


@dataclass(frozen=True, eq=False)
class PerturbationCurve(Metric):
    """The area under the output as features are inserted or deleted by decreasing attribution [Petsiuk 2018].

    The curve is evaluated at the shares k/thresholds, k = 0 … thresholds, of the M features, each rounded to a whole number of
    features; its area is computed by the trapezoidal rule. Features with equal attributions are replaced in a random order, the
    same for each explicand, so a constant attribution is scored like a random one.

    Features that are `ig2.Fixed`, such as the padding and special tokens of a text adapter, keep their values and are not
    counted among the M: a text's score does not depend on the other texts of a padded batch.

    Args:
        background: the values that features are inserted into or replaced by. "black": the model's lower bound, or 0 if it
            declares none. "white": its upper bound, or 1. "mean": the explicand's mean, over its pixels for each channel, over
            its words, or, for windows, over time for each channel. "blurred": the explicand blurred with a Gaussian of 10
            pixels. For windows also "interpolated", the line across each window, and "noise", with the statistics of the
            series. Or samples (R, ...) or (B, R, ...), a number, or a strategy of `ig2.references`; with several, the curve is
            the mean of theirs.
        thresholds: the number of steps of the curve.
        features: the unit of replacement: "pixel" (all its channels), "word", "element", or "auto", by the number of axes; or
            groups, such as `ig2.Windows(length)` of a signal, or integers that number them.
        sign: "keep" ranks negative attributions last, "positive" treats them as zero, "absolute" ranks by |φ|.
        output: the output shown by the curve. "auto": the probability of the explained class (the softmax; the logistic
            function if the model explains "sigmoid" outputs, or has a single one). "model": the explained output itself, for
            example a regressor's. Or a name that `ig2.wrap` accepts for its output.
    """

    background: Background | Any = "black"
    thresholds: int = setting(50, COUNT)
    features: FeatureOption | Groups | Tensor = "auto"
    sign: Sign = "keep"
    output: OutputOption = "auto"
    adds: ClassVar[bool]  # whether the explicand's features come into the background, or it into the explicand

    def adapt_model(self, model: Model) -> Model:
        return select_output(model, self.output)

    def run(self, case: Case) -> Scores:
        task = case.task
        features = find_features(self.features, task)
        values = apply_sign(features.pool(case.values), self.sign)
        backgrounds = draw_references(as_background(self.background, self.features, task), task, "the background")
        curves = task.x.new_empty(len(task), self.thresholds + 1)
        # fixed features come last, and the count never reaches them
        ranks = torch.full(values.shape, len(features), dtype=torch.int32, device=values.device)
        for rows, movable in features.group_movable(task.session.inputs.moves, values):
            places = _rank(values[rows].gather(1, movable), task.generator())
            ranks[rows] = ranks[rows].scatter(1, movable, places)
            curves[rows] = self._draw_curves(task, rows, backgrounds, ranks, features, movable.shape[1])
        at = torch.arange(self.thresholds + 1, device=task.x.device).to(task.x.dtype) / self.thresholds
        # without bounds, black and white are a guess
        guess = isinstance(self.background, str) and self.background in ("black", "white")
        used = {"background_values": sorted(set(torch.stack(backgrounds[:1].aminmax()).tolist()))} if guess else {}
        return Scores(torch.trapezoid(curves, at), curves=curves, at=at, settings=used)

    def _draw_curves(
        self, task: Task, rows: Tensor, backgrounds: Tensor, ranks: Tensor, features: Features, size: int
    ) -> Tensor:
        """Return the curves, (n, thresholds + 1), of the explicands `rows`, of which `size` features are replaced."""
        steps = self.thresholds
        # in whole numbers, so that halves are not rounded now up and now down
        counts, step = np.unique((2 * np.arange(steps + 1) * size + steps) // (2 * steps), return_inverse=True)
        limits = torch.from_numpy(counts).to(ranks)

        def keep(samples: Tensor, numbers: Tensor) -> Tensor:
            first = features.spread(ranks[samples], samples) < limits[numbers, None]
            first = first.view(len(samples), *features.shape)
            return first if self.adds else ~first

        task.progress.expect(len(rows) * backgrounds.shape[1] * len(limits))
        outputs = run_masked(task, rows, backgrounds, keep, len(limits), self.read).mean(dim=1)
        return outputs.to(task.x)[:, torch.from_numpy(step).to(task.x.device)]

    def read(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the value shown by the curve, (n,), from the outputs of all classes (n, classes)."""
        return take_class(scores, target)


@dataclass(frozen=True, eq=False)
class Insertion(PerturbationCurve):
    """The insertion curve: features are added to the background, the largest attribution first; "SIC AUC-ADD" in [Zhuo 2024].

    The arguments are those of `PerturbationCurve`.

    >>> x = torch.tensor([[3.0, 1.0]])
    >>> Insertion(thresholds=2, output="model")(lambda x: x.sum(dim=1), x, x).curves
    tensor([[0., 3., 4.]])
    """

    name = "SIC AUC-ADD"
    better = "higher"
    adds: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Deletion(PerturbationCurve):
    """The deletion curve: features are replaced by the background, the largest attribution first; "SIC AUC-DEL" in [Zhuo 2024].

    The arguments are those of `PerturbationCurve`.
    """

    name = "SIC AUC-DEL"
    better = "lower"
    adds: ClassVar[bool] = False


@dataclass(frozen=True, eq=False)
class DiffID(PerturbationCurve):
    """How much better a network predicts without the least important features than without the most important [Yang 2023b].

    The mean over shares k/thresholds, 0 < k < thresholds, of A(features with the smallest φ replaced) − A(features with the
    largest φ replaced), from −1 to 1. A is accuracy: 1 if the explained class is predicted, otherwise 0. The effect that
    replacing features has on any image is in both terms, and cancels. Ties are in random order, so a constant attribution
    scores like chance.

    >>> x = torch.tensor([[3.0, 1.0, 0.5, 0.5]])
    >>> net = lambda x: torch.stack([x.sum(dim=1), torch.full((len(x),), 2.5)], dim=1)
    >>> DiffID("black", thresholds=4)(net, x, x).curves
    tensor([[0., 1., 1., 1., 0.]])

    Args:
        background: the values that replace features, as for `PerturbationCurve`.
        thresholds: the number of steps: 10 for shares 0.1, 0.2 … 0.9.
        features: the unit of replacement, as for `PerturbationCurve`.
        sign: as for `PerturbationCurve`.
        output: the output for measure "output", as for `PerturbationCurve`.
        measure: A: "accuracy", or "output", by default the probability of the explained class, which is finer.

    Raises:
        InputError: if the measure is accuracy and the network has a single output, which predicts no class.
    """

    background: Background | Any = "mean"
    thresholds: int = setting(10, TWO_OR_MORE)
    measure: Measure = setting("accuracy", one_of(Measure))
    name = "DiffID"
    better = "higher"
    adds: ClassVar[bool] = False

    def adapt_model(self, model: Model) -> Model:
        return model if self.measure == "accuracy" else super().adapt_model(model)

    def run(self, case: Case) -> Scores:
        if self.measure == "accuracy" and case.task.explicand_scores.shape[1] == 1:
            raise InputError("DiffID: a network with a single output predicts no class, so use measure='output'")
        scores = super().run(case)
        assert scores.curves is not None
        return replace(scores, values=scores.curves[:, 1:-1].mean(dim=1))

    def _draw_curves(
        self, task: Task, rows: Tensor, backgrounds: Tensor, ranks: Tensor, features: Features, size: int
    ) -> Tensor:
        reverse = torch.where(ranks < size, size - 1 - ranks, ranks)
        draw = partial(super()._draw_curves, task, rows, backgrounds)
        return draw(reverse, features, size) - draw(ranks, features, size)

    def read(self, scores: Tensor, target: Tensor) -> Tensor:
        output = super().read(scores, target)
        if self.measure == "output":
            return output
        return torch.where(output.isfinite(), (scores.argmax(dim=1) == target).to(output), output)


def select_output(model: Model, output: OutputOption) -> Model:
    """Return the model with the output shown by a curve."""
    if output == "model":
        return model
    if output != "auto" and output not in OUTPUTS:
        known = ", ".join(map(repr, ["auto", "model", *OUTPUTS]))
        raise InputError(f"output={describe(output)} is unknown: use one of {known}")
    if callable(model.output):
        raise InputError(
            "the model explains a function of what the network returns, which may be a probability or not: wrap the network "
            "with a named output, or use the function's value with output='model' where the metric has that option"
        )
    if output == "auto" and model.returns_probabilities:
        return model
    if output == "auto":
        output = "sigmoid" if model.output == "sigmoid" else "probability"
    return replace(model, output=output)


def _rank(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return the rank of each feature by decreasing value, from 0, (B, M)."""
    order = order_features(values, generator, descending=True)
    places = torch.arange(values.shape[1], dtype=torch.int32, device=values.device).expand_as(order)
    return torch.empty_like(order, dtype=torch.int32).scatter_(1, order, places)


def find_features(option: FeatureOption | Groups | Tensor, task: Task) -> Features:
    """Return the features of a task's samples, from the name of an option or from groups."""
    if isinstance(option, (Groups, Tensor)):
        return Features.grouped(option, task)
    return Features.of(option, task.x.shape[1:])


def as_background(background: Any, features: object, task: Task) -> References:
    """Convert the name of a background, or anything accepted as references, to a strategy, given the metric's `features`."""
    if not isinstance(background, str):
        return as_references(background)
    axes, bounds = task.x.ndim - 1, task.session.model.bounds
    if isinstance(features, Windows):
        fills: dict[str, References] = {
            "mean": TimeMean(features.time_axis),
            "interpolated": Interpolated(features.length, features.time_axis),
            "noise": TimeNoise(1, features.time_axis),
        }
        if background in fills:
            return fills[background]
    elif background in ("interpolated", "noise"):
        raise InputError(f"background={background!r} fills windows of time: give features=ig2.Windows(length)")
    words = isinstance(features, str) and features == "word"
    if background == "mean" and axes == 1:
        raise InputError(
            "background='mean' is the mean of a picture's pixels or a text's words; of a table it would mix its columns. "
            "Pass the mean of your data instead: background=data.mean(dim=0, keepdim=True)"
        )
    if background == "blurred" and (words or axes == 1):
        raise InputError(f"background='blurred' is for images (C, H, W) or (H, W), these samples are {tuple(task.x.shape[1:])}")
    strategies: dict[str, References] = {
        "black": Constant(0.0 if bounds is None else bounds[0]),
        "white": White(),
        "mean": _Mean((-2,) if words else (-2, -1)),
        "blurred": BlurredExplicand(),
    }
    if background not in strategies:
        raise InputError(
            f"background={describe(background)}: use 'black', 'white', 'mean', 'blurred', samples (R, ...) or (B, R, ...), a "
            "number, or a strategy of ig2.references"
        )
    return strategies[background]


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
