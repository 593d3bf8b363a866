"""Metrics that perturb features and observe the output: faithfulness, monotonicity, infidelity, max-sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._utils.checks import check_count, is_number, require
from ig2.errors import InputError, ModelError, describe
from ig2.methods.base import Method
from ig2.metrics.base import Better, Case, Metric, Scores
from ig2.metrics.conditional import MOST_NUMBERS, Conditional, average_outputs, check_conditional, check_tabular
from ig2.metrics.correlation import correlate, order_features, rounding_error
from ig2.metrics.reattribution import MethodLike, attribute_again, check_method, check_reproduces, original_seed
from ig2.references.base import as_references
from ig2.result import Keep
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class ConditionalMetric(Metric):
    """Base class of metrics of tabular samples that average outputs over the distribution of unknown features.

    Args:
        conditional: the distribution of the unknown features given the known ones.
        draws: the number of samples in each mean.
    """

    conditional: Conditional
    draws: int = 100
    better: ClassVar[Better] = "higher"

    def __post_init__(self) -> None:
        check_conditional(self.conditional)
        check_count(self.draws, "draws")

    def average(self, task: Task, known: Tensor) -> Tensor:
        """Return E f(X | the known features of x) for m sets of them.

        Args:
            task: the call, with the explicands.
            known: the sets of known features, booleans (m, d) for all explicands, or (B, m, d).

        Returns:
            The means, (B, m) in float64 on the CPU.
        """
        check_tabular(task.x, self.name)
        return average_outputs(task.outputs, task.x, known, self.conditional, self.draws, task.seed, task.progress)


@dataclass(frozen=True, eq=False)
class Faithfulness(ConditionalMetric):
    """Correlation of attributions with the effect of removing each feature [Alvarez-Melis 2018], [Liu 2021].

    Pearson's correlation, over the features, of |φⱼ| with |f(x) − E f(X | all features of x but j)|. If either is the same for
    all features up to rounding, there is no correlation, and the score is not defined.

    >>> from ig2.metrics import ConstantFill
    >>> x = torch.tensor([[3.0, 1.0, 2.0]])
    >>> Faithfulness(ConstantFill(0.0), draws=1)(lambda x: x.sum(dim=1), x, x).values.float()
    tensor([1.])

    Args:
        conditional: the distribution of a feature given the others.
        draws: the number of samples in each mean.
        if_constant: the score if there is no correlation; by default not defined. XAI-BENCH counts 0.
    """

    if_constant: float | None = None
    name: ClassVar[str] = "faithfulness"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_if_constant(self.if_constant)

    def run(self, case: Case) -> Scores:
        x, output = case.task.x, case.finite_output()[:, None]
        without = self.average(case.task, ~torch.eye(x[0].numel(), dtype=torch.bool, device=x.device))
        rounding = rounding_error(torch.cat([output, without], dim=1), x.dtype)
        reason = "no feature's loss changes more than others"
        return correlate(case.values.abs(), (output - without).abs(), rounding, self.if_constant, reason)


def check_if_constant(score: object) -> None:
    """Raise an `InputError` unless the value is a number, the score if there is no correlation, or None."""
    require(score is None or is_number(score), "if_constant", score, "a number, or None for not defined")


@dataclass(frozen=True, eq=False)
class Monotonicity(ConditionalMetric):
    """Whether the output changes more and more as features become known by increasing |φ| [Luss 2021], [Liu 2021].

    With f₀ = E f(X) and fₖ = E f(X | the k features with the smallest |φ|), the share of the d − 1 steps from one increment
    |fₖ₊₁ − fₖ| to the next that do not shrink; a decrease within rounding error does not count. Ties are in a random order
    determined by the seed. With a single feature there is no step, and the score is not defined. The arguments are those of
    `ConditionalMetric`.
    """

    name: ClassVar[str] = "monotonicity"

    def run(self, case: Case) -> Scores:
        count, d = len(case.values), case.values[0].numel()
        if d == 1:
            return Scores(torch.full((count,), torch.nan, device="cpu"), undefined={"a single feature has no order": count})
        order = order_features(case.values.abs().flatten(1), torch.Generator().manual_seed(case.seed))
        known = order.argsort(dim=1)[:, None] < torch.arange(d + 1, device=order.device)[:, None]
        curves, rounding = self.arrange(self.average(case.task, known), order.cpu(), case)
        increments = curves.diff(dim=1).abs()
        shares = (increments.diff(dim=1) >= -rounding[:, None]).double().mean(dim=1)
        return Scores(shares, curves=curves, at=torch.arange(d + 1, device="cpu"))

    def arrange(self, outputs: Tensor, order: Tensor, case: Case) -> tuple[Tensor, Tensor]:
        """Return the curves (B, d + 1) from the outputs f₀ … f_d, and the rounding error of their differences, (B,)."""
        return outputs, rounding_error(outputs, case.task.x.dtype)


@dataclass(frozen=True, eq=False)
class PublishedMonotonicity(Monotonicity):
    """Monotonicity as computed by the published code of XAI-BENCH [Liu 2021], for comparison with its figures.

    It differs from `Monotonicity` in three ways. The output after feature j became known is stored at position j + 1 of the
    curve, not at that of its rank, so that the increments are between features that are neighbours in the table. The curve
    starts at the mean output over the explicands, so that a score depends on its batch. And decreases within rounding error
    count. The arguments are those of `ConditionalMetric`.
    """

    name: ClassVar[str] = "monotonicity (as published)"

    def arrange(self, outputs: Tensor, order: Tensor, case: Case) -> tuple[Tensor, Tensor]:
        start = case.finite_output().mean().expand(len(outputs), 1)
        stored = torch.empty_like(outputs[:, 1:]).scatter_(1, order, outputs[:, 1:])
        return torch.cat([start, stored], dim=1), torch.zeros(len(outputs), device="cpu")


Perturbation = Callable[[Tensor, int, torch.Generator], Tensor]
"""A function of samples (n, ...), a number of draws and a generator on the CPU that returns perturbations (n, draws, ...).

Perturbations are subtracted from the samples. Each sample should get the same noise, so that its score does not depend on the
others."""


@dataclass(frozen=True)
class Noise:
    """Gaussian noise around the sample: r = N(0, scale).

    Args:
        scale: the standard deviation, positive.
    """

    scale: float = 0.2

    def __post_init__(self) -> None:
        require(is_number(self.scale) and self.scale > 0, "scale", self.scale, "a positive number")

    def __call__(self, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(1, draws, *x.shape[1:], generator=generator, dtype=torch.float64, device="cpu").to(x)
        return (self.scale * noise).expand(len(x), draws, *x.shape[1:])


@dataclass(frozen=True)
class NearZero(Noise):
    """XAI-BENCH's perturbation r = clip(N(x, scale), x − 1, x): the point x − r is half-normal noise, at most 1 [Liu 2021].

    Args:
        scale: the standard deviation, positive.
    """

    def __call__(self, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
        return (x[:, None] + super().__call__(x, draws, generator)).clamp(x[:, None] - 1, x[:, None])


@dataclass(frozen=True, eq=False)
class Infidelity(Metric):
    """The error of the attribution's prediction of the effect of perturbations r: E (f(x) − f(x − r) − β Σ rᵢφᵢ)².

    This is the default of XAI-BENCH [Liu 2021]. With `fit=False`, so that β is 1, it is the infidelity of [Yeh 2019], whose
    attributions are slopes, such as a gradient. Points x − r may leave the model's bounds.

    >>> x = torch.tensor([[3.0, 1.0]])
    >>> Infidelity(Noise(0.1), draws=8, fit=False)(lambda x: 2 * x.sum(dim=1), torch.full((1, 2), 2.0), x).values < 1e-9
    tensor([True])

    Args:
        perturbation: r: `NearZero(scale)`, `Noise(scale)`, or a function of samples (n, ...), a number of draws and a
            generator that returns (n, draws, ...).
        draws: the number of perturbations in the mean.
        fit: whether β is chosen for each sample to minimise the error, so that the attribution's scale does not matter; if
            Σ rᵢφᵢ is zero for every draw, β is 0. If False, β is 1.
    """

    perturbation: Perturbation = NearZero()
    draws: int = 1000
    fit: bool = True
    name: ClassVar[str] = "infidelity"
    better: ClassVar[Better] = "lower"

    def __post_init__(self) -> None:
        check_count(self.draws, "draws")
        valid = callable(self.perturbation) and not isinstance(self.perturbation, type)
        require(valid, "perturbation", self.perturbation, "NearZero(scale), Noise(scale) or a function")

    def run(self, case: Case) -> Scores:
        changes, predicted = self._perturb(case)
        beta = torch.ones_like(changes[:, :1])
        if self.fit:
            squares = predicted.square().mean(dim=1, keepdim=True)
            beta = torch.where(squares > 0, (changes * predicted).mean(dim=1, keepdim=True) / squares, 0.0)
        return Scores((changes - beta * predicted).square().mean(dim=1))

    def _perturb(self, case: Case) -> tuple[Tensor, Tensor]:
        """Return f(x) − f(x − r) and Σ rᵢφᵢ for each draw, (B, draws) in float64 on the CPU."""
        task, size = case.task, case.task.x[0].numel()
        output = case.finite_output()
        changes = torch.zeros(len(task), self.draws, dtype=torch.float64, device="cpu")
        predicted = torch.zeros_like(changes)
        # draws are made in pieces of a size that depends on the sample's alone: so do the numbers drawn
        draws = min(self.draws, max(1, MOST_NUMBERS // size))
        generator = task.generator()
        task.progress.expect(len(task) * self.draws)
        for start in range(0, self.draws, draws):
            count = min(draws, self.draws - start)
            seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
            for rows in torch.split(torch.arange(len(task), device=task.x.device), max(1, MOST_NUMBERS // (draws * size))):
                x = task.x[rows]
                r = self._draw(x, count, torch.Generator().manual_seed(seed))
                outputs = task.outputs((x[:, None] - r).flatten(0, 1), rows.repeat_interleave(count)).cpu().double()
                if not outputs.isfinite().all():
                    row = int(rows[int((~outputs.isfinite()).nonzero()[0]) // count])
                    raise ModelError(f"the output is not finite at explicand {row} perturbed: the network fails there")
                part = rows.cpu(), slice(start, start + count)
                changes[part] = output[rows.cpu(), None] - outputs.view(-1, count)
                predicted[part] = (r * case.values[rows][:, None]).flatten(2).sum(dim=2).cpu().double()
                task.progress.advance(len(rows) * count)
        return changes, predicted

    def _draw(self, x: Tensor, count: int, generator: torch.Generator) -> Tensor:
        r: object = self.perturbation(x, count, generator)
        shape = (len(x), count, *x.shape[1:])
        if not isinstance(r, Tensor) or r.shape != shape or not r.isfinite().all():
            raise InputError(
                f"the perturbation returned {describe(r)}: expected finite numbers {shape} for {count} draws of samples "
                f"{tuple(x.shape)}"
            )
        return r.to(x)


@dataclass(frozen=True, eq=False)
class MaxSensitivity(Metric):
    """The largest relative change of the attribution near x, max ‖φ(x′) − φ(x)‖ / ‖φ(x)‖ over draws of x′ [Yeh 2019].

    x′ is x with uniform noise of at most `radius` in each feature, inside the model's bounds; the explained class is that of x.
    Every explicand gets the same noise. If φ(x) is zero, the score is not defined.

    Args:
        method: the method that computed the attribution, or a function with the same call,
            method(model, x, target=..., references=..., seed=...), that returns an `Attribution` or a tensor. It gets the seed
            of the attribution, or that of the metric's call if the attribution is a plain tensor.
        references: the references of the attribution.
        radius: the radius of the L∞ ball, in the data space.
        draws: the number of samples from the ball.
        norm: the order of the norm, 2 for the Euclidean one.

    Raises:
        InputError: if the method, applied to the explicands again, does not reproduce the attribution.
    """

    method: Method | MethodLike
    references: Any = None
    radius: float = 0.02
    draws: int = 10
    norm: float = 2.0
    name: ClassVar[str] = "max-sensitivity"
    better: ClassVar[Better] = "lower"

    def __post_init__(self) -> None:
        check_count(self.draws, "draws")
        check_method(self.method)
        require(is_number(self.radius) and self.radius > 0, "radius", self.radius, "a positive number")
        valid = isinstance(self.norm, (int, float)) and not isinstance(self.norm, bool) and self.norm > 0
        require(valid, "norm", self.norm, "a positive number or infinity")

    @property
    def needs_gradient(self) -> bool:  # type: ignore[override]
        # a method of this library runs in the metric's own session
        return isinstance(self.method, Method) and self.method.needs_gradient

    def run(self, case: Case) -> Scores:
        check_reproduces(self.method, self.references, case)
        norm = self._norm(case.values)
        largest = self._change(case).amax(dim=1)
        return Scores.where_defined(largest / norm, {"the attribution is zero, and changes are relative to it": norm == 0})

    def _change(self, case: Case) -> Tensor:
        """Return ‖φ(x′) − φ(x)‖ for each draw, (B, draws)."""
        task, noise = case.task, self._noise(case.task)
        changes = torch.zeros(len(task), self.draws, dtype=case.values.dtype, device=task.x.device)

        def move(rows: Tensor, draws: Tensor) -> Tensor:
            x = task.x[rows] + noise[draws.cpu()].to(task.x)
            bounds = task.session.model.bounds
            return x if bounds is None else x.clamp(*(torch.as_tensor(b, dtype=x.dtype, device=x.device) for b in bounds))

        if not isinstance(self.method, Method):
            rows = torch.arange(len(task), device=task.x.device)
            for draw in range(self.draws):
                points = move(rows, torch.full_like(rows, draw))
                values = attribute_again(self.method, self.references, case.model, case, points)
                changes[:, draw] = self._norm(values - case.values)
            return changes
        method = self.method
        references = as_references(self.references) if self.references is not None else method.default_references

        def work(piece: range) -> None:
            number = torch.arange(piece.start, piece.stop, device=task.x.device)
            rows, draws = number // self.draws, number % self.draws
            # in the session that is open, where x′ goes by the number of its explicand: references that are the
            # explicand's own, or never the explicand itself, stay what they are
            moved = replace(task, x=move(rows, draws), rows=task.rows[rows], target=task.target[rows], seed=original_seed(case))
            changes[rows, draws] = self._norm(method.run_checked(moved, references, Keep()).values - case.values[rows])

        task.batch.over(changes.numel(), work)
        return changes

    def _norm(self, values: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(values.flatten(1), self.norm, dim=1)
        return norm

    def _noise(self, task: Task) -> Tensor:
        """Return the noise of each draw, (draws, ...), on the CPU."""
        # from a seed of its own: straight from the task's generator it would be the noise that references are made with
        seed = int(torch.randint(2**62, (), generator=task.generator(), device="cpu"))
        shape = (self.draws, *task.x.shape[1:])
        noise = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, device="cpu")
        return self.radius * (2 * noise - 1)
