"""Metrics that change features and watch the output: faithfulness, monotonicity, infidelity, max-sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2._utils.checks import is_count, is_number
from ig2.attribution import Attribution
from ig2.errors import InputError, ModelError, describe
from ig2.methods.base import Method
from ig2.metrics.again import MethodLike, as_given, check_method, check_repeats
from ig2.metrics.base import Better, Case, Metric, Result
from ig2.metrics.conditional import MOST_NUMBERS, Conditional, check_conditional, check_tabular, expected
from ig2.references.base import as_references

# How much of the largest number two results may differ by when only the order of the sums was another one.
ROUNDING = 8


def _check_draws(draws: object) -> None:
    if not is_count(draws):
        raise InputError(f"draws must be a positive integer, got {describe(draws)}")


def _check_scale(scale: object) -> None:
    if not is_number(scale) or not float(scale) > 0:  # type: ignore[arg-type]
        raise InputError(f"scale must be a positive number, got {describe(scale)}")


def check_if_constant(score: object) -> None:
    """A score for what has no correlation, or None to leave it out."""
    if score is not None and not is_number(score):
        raise InputError(f"if_constant must be a number, or None to leave constant attributions out, got {describe(score)}")


@dataclass(frozen=True, eq=False)
class Faithfulness(Metric):
    """Are the features with large attributions those whose loss changes the output? Samples are tabular.

    The correlation (Pearson, over the features) of |φⱼ| with |f(x) − E f(X | all features of x but j)|.

    Where the attribution or the changes are the same for all features up to rounding, there is no correlation: the score is
    NaN, and left out of the mean.

    Args:
        conditional: what a feature may be when the others are known.
        draws: how many samples are averaged.
        if_constant: the score where there is no correlation. XAI-BENCH counts 0.
    """

    conditional: Conditional
    draws: int = 100
    if_constant: float | None = None

    name: ClassVar[str] = "faithfulness"
    better: ClassVar[Better] = "higher"

    def __post_init__(self) -> None:
        check_conditional(self.conditional)
        _check_draws(self.draws)
        check_if_constant(self.if_constant)

    def run(self, case: Case) -> Result:
        task = case.task
        check_tabular(task.x, self.name)
        output = _at_explicands(case)
        but_one = ~torch.eye(task.x.shape[1], dtype=torch.bool, device=task.x.device)
        without = expected(task.outputs, task.x, but_one, self.conditional, self.draws, task.seed, task.progress)
        changes = (output[:, None] - without).abs()
        rounding = ROUNDING * torch.finfo(task.x.dtype).eps * torch.maximum(output.abs(), without.abs().amax(dim=1))
        return correlated(case.values.abs(), changes, rounding, self.if_constant, "no feature's loss changes more than others")


@dataclass(frozen=True, eq=False)
class Monotonicity(Metric):
    """Does the output change more and more as features become known by increasing |φ|? Samples are tabular.

    With f₀ = E f(X) and fₖ = E f(X | the k features with the smallest |φ|), the share of the d − 1 steps from one increment
    |fₖ₊₁ − fₖ| to the next that do not shrink; a difference of rounding is none. Ties are broken in a random order, which
    the seed decides. With a single feature there is no step, and the score is NaN.

    Args:
        conditional: what the other features may be when some are known.
        draws: how many samples are averaged.
    """

    conditional: Conditional
    draws: int = 100

    name: ClassVar[str] = "monotonicity"
    better: ClassVar[Better] = "higher"

    def __post_init__(self) -> None:
        check_conditional(self.conditional)
        _check_draws(self.draws)

    def run(self, case: Case) -> Result:
        if (undefined := _single_feature(case)) is not None:
            return undefined
        _, outputs = _as_features_become_known(case, self.conditional, self.draws)
        rounding = ROUNDING * torch.finfo(case.task.x.dtype).eps * outputs.abs().amax(dim=1, keepdim=True)
        return Result(_share_that_grows(outputs, rounding), curves=outputs, at=torch.arange(outputs.shape[1], device="cpu"))


@dataclass(frozen=True, eq=False)
class PublishedMonotonicity(Metric):
    """Monotonicity as XAI-BENCH's published code computes it, for comparing with figures made by it.

    It differs from `Monotonicity` in two ways. The output after feature j became known is stored in place j + 1 of the
    curve, not in the place of its rank, so that the increments are between features that are neighbours in the table. And
    the curve starts at the mean output over the explicands, so that a score depends on the batch it is computed in.

    Args:
        conditional: what the other features may be when some are known.
        draws: how many samples are averaged.
    """

    conditional: Conditional
    draws: int = 100

    name: ClassVar[str] = "monotonicity (as published)"
    better: ClassVar[Better] = "higher"

    def __post_init__(self) -> None:
        check_conditional(self.conditional)
        _check_draws(self.draws)

    def run(self, case: Case) -> Result:
        if (undefined := _single_feature(case)) is not None:
            return undefined
        order, outputs = _as_features_become_known(case, self.conditional, self.draws)
        start = _at_explicands(case).mean().expand(len(outputs), 1)
        stored = torch.cat([start, torch.empty_like(outputs[:, 1:]).scatter_(1, order, outputs[:, 1:])], dim=1)
        return Result(_share_that_grows(stored, 0.0), curves=stored, at=torch.arange(stored.shape[1], device="cpu"))


Perturbation = Callable[[Tensor, int, torch.Generator], Tensor]
"""From samples (n, ...), a number of draws and a generator on the CPU to what is taken away from them, (n, draws, ...).

Each sample should get the same noise, so that its score does not depend on the others.
"""


@dataclass(frozen=True)
class NearZero:
    """XAI-BENCH's perturbation r = clip(N(x, scale), x − 1, x): what is left, x − r, is half-normal noise, at most 1."""

    scale: float = 0.2

    def __post_init__(self) -> None:
        _check_scale(self.scale)

    def __call__(self, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
        around = x[:, None] + self.scale * _normal(x, draws, generator)
        return around.clamp(x[:, None] - 1, x[:, None])


@dataclass(frozen=True)
class Noise:
    """Gaussian noise around the sample: r = N(0, scale)."""

    scale: float = 0.2

    def __post_init__(self) -> None:
        _check_scale(self.scale)

    def __call__(self, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
        return (self.scale * _normal(x, draws, generator)).expand(len(x), draws, *x.shape[1:])


@dataclass(frozen=True, eq=False)
class Infidelity(Metric):
    """How far the attribution is from predicting what a perturbation r does: E (f(x) − f(x − r) − β Σ rᵢφᵢ)².

    As XAI-BENCH has it by default. With `fit=False` it is the infidelity of Yeh et al., whose attributions are slopes, such
    as a gradient: β is then 1. Points x − r may leave the model's bounds.

    Args:
        perturbation: r: `NearZero(scale)`, `Noise(scale)`, or a function of samples (n, ...), a number of draws and a
            generator that returns (n, draws, ...).
        draws: how many perturbations are averaged.
        fit: choose β for each sample, the one with the smallest error: the attribution's scale then does not matter. Where
            Σ rᵢφᵢ is zero for every draw, β is 0.
    """

    perturbation: Perturbation = NearZero()
    draws: int = 1000
    fit: bool = True

    name: ClassVar[str] = "infidelity"
    better: ClassVar[Better] = "lower"

    def __post_init__(self) -> None:
        _check_draws(self.draws)
        if not callable(self.perturbation) or isinstance(self.perturbation, type):
            raise InputError(
                f"perturbation must be NearZero(scale), Noise(scale) or a function, got {describe(self.perturbation)}"
            )

    def run(self, case: Case) -> Result:
        changes, predicted = self._measured(case)
        beta = torch.ones_like(changes[:, :1])
        if self.fit:
            squares = predicted.square().mean(dim=1, keepdim=True)
            beta = torch.where(squares > 0, (changes * predicted).mean(dim=1, keepdim=True) / squares, 0.0)
        return Result((changes - beta * predicted).square().mean(dim=1))

    def _measured(self, case: Case) -> tuple[Tensor, Tensor]:
        """f(x) − f(x − r) and Σ rᵢφᵢ for each draw, (B, draws) in float64 on the CPU."""
        task, size = case.task, case.task.x[0].numel()
        output = _at_explicands(case)
        changes = torch.zeros(len(task), self.draws, dtype=torch.float64, device="cpu")
        predicted = torch.zeros_like(changes)
        # draws are made in pieces of a size that depends on the sample's alone: so do the numbers drawn
        draws = min(self.draws, max(1, MOST_NUMBERS // size))
        rows = max(1, MOST_NUMBERS // (draws * size))
        generator = task.generator()
        task.progress.expect(len(task) * self.draws)
        for start in range(0, self.draws, draws):
            count = min(draws, self.draws - start)
            seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
            for of in torch.split(torch.arange(len(task), device=task.x.device), rows):
                x = task.x[of]
                made: object = self.perturbation(x, count, torch.Generator().manual_seed(seed))
                shape = (len(of), count, *x.shape[1:])
                if not isinstance(made, Tensor) or made.shape != shape or not made.isfinite().all():
                    raise InputError(
                        f"the perturbation gave {describe(made)}: expected finite numbers {shape} for {count} draws of "
                        f"samples {tuple(x.shape)}"
                    )
                r = made.to(x)
                left = task.outputs((x[:, None] - r).flatten(0, 1), of.repeat_interleave(count)).cpu().double()
                if not left.isfinite().all():
                    row = int(of[int((~left.isfinite()).nonzero()[0]) // count])
                    raise ModelError(f"the output is not finite at explicand {row} perturbed: the network fails there")
                where = of.cpu()
                changes[where, start : start + count] = output[where, None] - left.view(-1, count)
                dots = (r * case.values[of][:, None]).flatten(2).sum(dim=2)
                predicted[where, start : start + count] = dots.cpu().double()
                task.progress.advance(len(of) * count)
        return changes, predicted


@dataclass(frozen=True, eq=False)
class MaxSensitivity(Metric):
    """How much the attribution can change when the sample hardly does: the largest ‖φ(x′) − φ(x)‖ / ‖φ(x)‖ of some draws.

    x′ is x with uniform noise, at most `radius` for each feature, inside the model's bounds; the class explained is that of
    x. Every explicand gets the same noise. The sample itself is explained once more too: a method that does not give the
    attribution it is said to have made is an error. Where φ(x) is zero the score is NaN, and left out of the mean.

    Args:
        method: what made the attribution: a method of this library, or a function with the same call,
            method(model, x, target=..., references=..., seed=...), which returns an `Attribution` or a tensor. It gets the
            seed the attribution was made with, or that of the metric's call where the attribution is a plain tensor.
        references: as the method was given them.
        radius: of the L∞ ball, in the data space.
        draws: how many samples of it.
        norm: the order of the norm, 2 for the Euclidean one.
    """

    method: Method | MethodLike
    references: Any = None
    radius: float = 0.02
    draws: int = 10
    norm: float = 2.0

    name: ClassVar[str] = "max-sensitivity"
    better: ClassVar[Better] = "lower"

    def __post_init__(self) -> None:
        _check_draws(self.draws)
        check_method(self.method)
        if not is_number(self.radius) or self.radius <= 0:
            raise InputError(f"radius must be a positive number, got {describe(self.radius)}")
        if not isinstance(self.norm, (int, float)) or isinstance(self.norm, bool) or not self.norm > 0:
            raise InputError(f"norm must be a positive number or infinity, got {describe(self.norm)}")
        # a method of this library runs in the metric's own session
        object.__setattr__(self, "needs_gradient", isinstance(self.method, Method) and self.method.needs_gradient)

    def run(self, case: Case) -> Result:
        check_repeats(self.method, self.references, case)
        noise = self._noise(case.task)
        size = self._size(case.values)
        largest = self._changes(case, noise).amax(dim=1)
        zero = size == 0
        undefined = {"the attribution is zero, and changes are measured by it": int(zero.sum())} if zero.any() else {}
        return Result(torch.where(zero, math.nan, largest / size), undefined)

    def _changes(self, case: Case, noise: Tensor) -> Tensor:
        """‖φ(x′) − φ(x)‖ for each draw, (B, draws)."""
        task = case.task
        made_with = case.attribution.settings.get("seed") if case.attribution is not None else None
        seed = made_with if isinstance(made_with, int) else case.seed
        changes = torch.zeros(len(task), self.draws, dtype=case.values.dtype, device=task.x.device)

        def moved(of: Tensor, which: Tensor) -> Tensor:
            x = task.x[of] + noise[which.cpu()].to(task.x)
            if task.session.model.bounds is None:
                return x
            low, high = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in task.session.model.bounds)
            return x.clamp(low, high)

        if isinstance(self.method, Method):
            method = self.method
            references = as_references(self.references) if self.references is not None else method.default_references

            def work(piece: range) -> None:
                number = torch.arange(piece.start, piece.stop, device=task.x.device)
                of, which = number // self.draws, number % self.draws
                # in the session that is open, where x′ goes by the number of its explicand: references that are the
                # explicand's own, or never the explicand itself, stay what they are
                some = replace(task, x=moved(of, which), rows=task.rows[of], target=task.target[of], seed=seed)
                changes[of, which] = self._size(method.run(some, references, Keep()).values - case.values[of])

            task.batch.over(changes.numel(), work)
            return changes
        inputs, every = task.session.inputs, torch.arange(len(task), device=task.x.device)
        for draw in range(self.draws):
            x = as_given(inputs, moved(every, torch.full_like(every, draw)))
            with torch.enable_grad():  # a function of the user's may take gradients as it is used to
                found = self.method(case.model, x, target=task.target, references=self.references, seed=seed)
            values = inputs.pack(found.values if isinstance(found, Attribution) else found, "what the method returned")
            changes[:, draw] = self._size(values.detach() - case.values)
        return changes

    def _size(self, values: Tensor) -> Tensor:
        size: Tensor = torch.linalg.vector_norm(values.flatten(1), self.norm, dim=1)
        return size

    def _noise(self, task: Task) -> Tensor:
        """What is added for each draw, (draws, ...), on the CPU."""
        # from a seed of its own: straight from the task's generator it would be the noise that references are made with
        seed = int(torch.randint(2**62, (), generator=task.generator(), device="cpu"))
        shape = (self.draws, *task.x.shape[1:])
        noise = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, device="cpu")
        return self.radius * (2 * noise - 1)


def correlated(
    values: Tensor, truth: Tensor, rounding: Tensor | float, if_constant: float | None, if_truth_is_constant: str
) -> Result:
    """Pearson's correlation of each row of values (B, d) with one of truth (B, d), where neither is constant.

    Args:
        values: attributions. They count as constant where they are up to the rounding of their own precision.
        truth: what they should go with.
        rounding: how much of the differences of a row of truth, (B,), is rounding.
        if_constant: the score of constant rows; None for NaN.
        if_truth_is_constant: the reason to give.
    """
    rows = [tensor.cpu().double() for tensor in (values, truth)]
    spread = [row - row.mean(dim=1, keepdim=True) for row in rows]
    flat = spread[0].abs().amax(dim=1) <= ROUNDING * torch.finfo(values.dtype).eps * rows[0].abs().amax(dim=1)
    flat_truth = ~flat & (spread[1].abs().amax(dim=1) <= rounding)
    unit = [row / torch.linalg.vector_norm(row, dim=1, keepdim=True) for row in spread]
    scores = (unit[0] * unit[1]).sum(dim=1).clamp(-1, 1)
    scores[flat | flat_truth] = math.nan if if_constant is None else if_constant
    reasons = {"the attribution is the same for all features": flat, if_truth_is_constant: flat_truth}
    if if_constant is not None:
        return Result(scores)
    return Result(scores, {why: int(which.sum()) for why, which in reasons.items() if which.any()})


def by_size(values: Tensor, seed: int) -> Tensor:
    """The features of each row (B, d) by increasing |value|, as numbers (B, d); ties in an order that the seed decides."""
    shuffled = torch.randperm(values.shape[1], generator=torch.Generator().manual_seed(seed), device="cpu").to(values.device)
    return shuffled[values.abs()[:, shuffled].argsort(dim=1, stable=True)]


def _as_features_become_known(case: Case, conditional: Conditional, draws: int) -> tuple[Tensor, Tensor]:
    """The features by increasing |φ|, (B, d), and E f(X | the k first of them) for k from 0, (B, d + 1); on the CPU."""
    task = case.task
    order = by_size(case.values, case.seed)
    rank = order.argsort(dim=1)
    steps = torch.arange(order.shape[1] + 1, device=order.device)
    known = rank[:, None] < steps[:, None]
    return order.cpu(), expected(task.outputs, task.x, known, conditional, draws, task.seed, task.progress)


def _share_that_grows(outputs: Tensor, rounding: Tensor | float) -> Tensor:
    """Of the increments along each curve (B, d + 1), the share of the d − 1 steps to the next one that do not shrink."""
    increments = outputs.diff(dim=1).abs()
    return (increments.diff(dim=1) >= -rounding).double().mean(dim=1)


def _single_feature(case: Case) -> Result | None:
    check_tabular(case.task.x, "monotonicity")
    if case.task.x.shape[1] > 1:
        return None
    return Result(torch.full((len(case.values),), math.nan, device="cpu"), {"a single feature has no order": len(case.values)})


def _at_explicands(case: Case) -> Tensor:
    """f(x), (B,), in float64 on the CPU."""
    assert case.output is not None
    output = case.output.cpu().double()
    if not output.isfinite().all():
        row = int((~output.isfinite()).nonzero()[0])
        raise ModelError(f"the output of explicand {row} is {float(output[row])}: the network fails on it")
    return output


def _normal(x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Standard normal noise, (1, draws, ...): the same for each of the samples x."""
    return torch.randn(1, draws, *x.shape[1:], generator=generator, dtype=torch.float64, device="cpu").to(x)
