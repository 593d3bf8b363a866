"""What an attribution owes to the network it explains, by the axioms it was built on: each score is how far it is off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._engine.inputs import Inputs
from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2._engine.task import scores as scores_of
from ig2._utils.checks import is_count, is_number
from ig2.attribution import Attribution
from ig2.errors import InputError, ModelError, describe
from ig2.methods.simple import Gradient
from ig2.metrics.again import MethodLike, as_given, check_method, check_repeats, explained
from ig2.metrics.base import Better, Case, Metric, Result, Scores
from ig2.model import Model, wrap
from ig2.references.base import Given, as_references, drawn
from ig2.references.constant import Zeros

Index = int | tuple[int, ...]


def fulfilled(scores: Scores, tolerance: float = 0.01) -> bool | None:
    """Whether an axiom holds for every explicand it says something of; None if it says something of none.

    >>> import ig2
    >>> product = ig2.IntegratedGradients()(lambda x: x[:, 0] * x[:, 1], torch.ones(1, 2))
    >>> fulfilled(Completeness()(None, product))
    True

    Args:
        scores: what a metric of this module returned.
        tolerance: the largest score that counts as rounding, or as the error of a sum that stands for an integral.
    """
    if scores.metric not in (axiom.name for axiom in (Completeness, Dummy, Symmetry, ImplementationInvariance)):
        raise InputError(f"{scores.metric} is no axiom, so there is nothing to fulfil: read its mean")
    return bool((scores.defined <= tolerance).all()) if scores.n else None


@dataclass(frozen=True, eq=False)
class Completeness(Metric):
    """|Σφ − (f(x) − f(baseline))| relative to |f(x) − f(baseline)|: what of the change in the output is not accounted for.

    Rounding counts as 0. Where the two outputs are equal there is no change to relate to, and it is |Σφ| relative to Σ|φ|.

    Args:
        baseline: where the attribution starts from: samples (R, ...) or (B, R, ...), a number, or a strategy of
            `ig2.references`; with several, f(baseline) is their mean. By default what the `Attribution` says, and the network
            is not run; of methods without a baseline the score is then not defined. A plain tensor needs it.
    """

    name: ClassVar[str] = "completeness"
    better: ClassVar[Better] = "lower"
    runs_once: ClassVar[bool] = True

    baseline: Any = None

    @property
    def runs_model(self) -> bool:  # type: ignore[override]
        return self.baseline is not None

    def run(self, case: Case) -> Result:
        whole = case.attribution if self.baseline is None else self._from(case)
        if whole is None:
            raise InputError(
                "a plain tensor does not say where it starts from: give Completeness(baseline=...), samples (R, ...), a number "
                "or a strategy of ig2.references; or score the Attribution a method returned"
            )
        relative = whole.relative_residual
        if relative is None:
            count = len(case.values)
            undefined = torch.full((count,), torch.nan, device=case.values.device)
            return Result(undefined, {"the method has no baseline, so its sum stands for nothing": count})
        size = case.values.flatten(1).abs().sum(dim=1).to(relative)
        return Result(torch.where(relative.isinf(), whole.total.abs() / size, relative))

    def _from(self, case: Case) -> Attribution:
        """The attribution with the outputs at both ends."""
        task = case.task
        ends = drawn(as_references(self.baseline), task).to(task.x)
        rows = torch.arange(len(task), device=task.x.device)
        output = case.output
        assert output is not None
        below = torch.stack([task.outputs(end, rows) for end in ends.unbind(1)]).mean(dim=0)
        if not (output.isfinite() & below.isfinite()).all():
            row = int((~(output.isfinite() & below.isfinite())).nonzero()[0])
            raise ModelError(
                f"the output is {float(output[row])} at explicand {row} and {float(below[row])} at its baseline: the network "
                "fails there"
            )
        return Attribution(case.values, below[:, None], explicand=task.x, target=task.target, output=output)


@dataclass(frozen=True, eq=False)
class Dummy(Metric):
    """The share of Σ|φ| that falls on features the network does not look at; 0 where φ is zero everywhere.

    `truth` says which those are: booleans in a sample's shape, or (B, ...), True where a feature does not matter. Without it
    they are found: the gradient vanishes there at the explicands and at points on the way to other samples, and outputs stay
    as they are when values of other samples take their place. That is evidence and no proof: a feature that matters only
    where none of these points lies counts as a dummy. Where every feature matters, the score is not defined.

    Args:
        data: samples (N, ...) whose values take the place of the explicands'; by default those of the explicands' batch.
        draws: how many of them each explicand meets, at most.
        tolerance: up to what share of the largest gradient a gradient, and of the largest output a change, counts as none.
    """

    name: ClassVar[str] = "dummy"
    better: ClassVar[Better] = "lower"
    truth: ClassVar[str | None] = "booleans in a sample's shape, or (B, ...): True for the features that do not matter"
    truth_optional: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = True

    data: Any = None
    draws: int = 8
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        _check_draws(self.draws, self.tolerance)

    def run(self, case: Case) -> Result:
        inputs = case.task.session.inputs
        dummy = self._found(case.task) if case.truth is None else _mask(case.truth, inputs)
        size = case.values.abs()
        on_dummies, total = ((part.flatten(1).sum(dim=1)) for part in (size * dummy, size))
        there_are = dummy.expand_as(size).flatten(1).any(dim=1)
        share = torch.where(total > 0, on_dummies / total, 0.0).masked_fill(~there_are, torch.nan)
        none = int((~there_are).sum())
        return Result(
            share,
            {"every feature matters to the network": none} if none else {},
            settings={"dummies": int(dummy.flatten(1).sum(dim=1).max())},
        )

    def _found(self, task: Task) -> Tensor:
        """Which features do not matter to any of the outputs explained, (1, ...)."""
        steepest, largest = torch.zeros_like(task.x[:1]), torch.zeros((), device=task.x.device)
        rows = torch.arange(len(task), device=task.x.device)
        before = task.outputs(task.x, rows)
        others = list(self._others(task))
        shares = torch.rand(len(others) + 1, generator=task.generator(), device="cpu").tolist()
        for share, other in zip(shares, [task.x, *others], strict=True):
            points = torch.lerp(task.x, other, share)
            slopes = Gradient().run(replace(task, x=points), None, Keep()).values.abs()
            steepest = torch.maximum(steepest, slopes.amax(dim=0, keepdim=True))
            largest = torch.maximum(largest, task.outputs(other, rows).abs().max())

        def changes(group: Tensor) -> bool:
            chosen = torch.zeros_like(steepest, dtype=torch.bool)
            chosen.view(-1)[group] = True
            return any(
                bool((task.outputs(torch.where(chosen, other, task.x), rows) - before).abs().max() > self.tolerance * largest)
                for other in others
            )

        def unchanging(group: Tensor) -> list[Tensor]:
            """The features of a group that change no output, tried together as far as that goes."""
            if not changes(group):
                return [group]
            half = len(group) // 2
            return [*unchanging(group[:half]), *unchanging(group[half:])] if half else []

        flat = (steepest <= self.tolerance * steepest.max()).flatten().nonzero()[:, 0]
        found = torch.zeros_like(steepest, dtype=torch.bool)
        for group in unchanging(flat) if len(flat) else []:
            found.view(-1)[group] = True
        return found

    def _others(self, task: Task) -> Iterator[Tensor]:
        """For each explicand another sample, (B, ...), `draws` times."""
        if self.data is not None:
            pool = drawn(Given(self.data), task).to(task.x)
            for chosen in torch.randperm(pool.shape[1], generator=task.generator(), device="cpu")[: self.draws].tolist():
                yield pool[:, chosen]
        elif len(task) == 1:
            raise InputError(
                "one explicand has no others whose values could take its features' places: give Dummy(data=samples), or say "
                "which features do not matter, truth=..."
            )
        else:
            for shift in torch.randperm(len(task) - 1, generator=task.generator(), device="cpu")[: self.draws].tolist():
                yield task.x.roll(shift + 1, dims=0)


@dataclass(frozen=True, eq=False)
class Symmetry(Metric):
    """The largest |φᵢ − φⱼ| relative to max|φ|, over pairs of features the network treats alike and the explicand has equal.

    That the network does is tried: its output must stay as it is when two values change places. The axiom also wants the two
    equal in the reference: with references in which they differ, a difference says nothing about the method. Where φ is zero
    everywhere the score is 0; where no pair is equal in the explicand it is not defined.

    Args:
        pairs: of positions, numbers into the flattened sample or tuples such as (channel, row, column).
        draws: how many pairs of values change places in each explicand, for each pair of features.
        tolerance: up to what share of the largest output a change counts as none.
    """

    name: ClassVar[str] = "symmetry"
    better: ClassVar[Better] = "lower"

    pairs: Sequence[tuple[Index, Index]]
    draws: int = 8
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        _check_draws(self.draws, self.tolerance)
        if not isinstance(self.pairs, (list, tuple)) or not self.pairs:
            raise InputError(f"pairs must list pairs of features, for example [(0, 3)]; got {describe(self.pairs)}")
        for pair in self.pairs:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise InputError(f"pairs must list pairs of features, for example [(0, 3)]; one is {describe(pair)}")
        object.__setattr__(self, "pairs", tuple(tuple(pair) for pair in self.pairs))

    def run(self, case: Case) -> Result:
        places = [tuple(_position(index, case.values.shape[1:]) for index in pair) for pair in self.pairs]
        self._check_symmetric(case.task, places)
        one, other = (torch.tensor(side, device=case.values.device) for side in zip(*places, strict=True))
        values, x = case.values.flatten(1), case.task.x.flatten(1)
        apart = (values[:, one] - values[:, other]).abs()
        equal = x[:, one] == x[:, other]
        worst, largest = torch.where(equal, apart, 0).amax(dim=1), values.abs().amax(dim=1)
        score = torch.where(largest > 0, worst / largest, 0.0).masked_fill(~equal.any(dim=1), torch.nan)
        none = int(score.isnan().sum())
        return Result(score, {"no two features of a pair are equal in the explicand": none} if none else {})

    def _check_symmetric(self, task: Task, places: Sequence[tuple[int, ...]]) -> None:
        rows = torch.arange(len(task), device=task.x.device)
        low, high = float(task.x.min()), float(task.x.max())
        generator = task.generator()
        for pair, (one, other) in zip(self.pairs, places, strict=True):
            for _ in range(self.draws):
                # anywhere in the data's range: where the explicand has them equal, changing places would change nothing
                values = torch.rand(2, generator=generator, dtype=torch.float64, device="cpu").to(task.x)
                values = values * ((high - low) or 1.0) + low
                points = task.x.flatten(1).clone()
                points[:, [one, other]] = values
                swapped = points.clone()
                swapped[:, [other, one]] = values
                before, after = (task.outputs(each.view_as(task.x), rows) for each in (points, swapped))
                change = (after - before).abs()
                if not (change <= self.tolerance * torch.maximum(before.abs(), after.abs()).max()).all():
                    row = int(change.argmax())
                    raise InputError(
                        f"the network is not symmetric in features {pair[0]} and {pair[1]}: with {float(values[0]):.4g} and "
                        f"{float(values[1]):.4g} there, explicand {row} gives {float(before[row]):.6g}, with the two the other "
                        f"way round {float(after[row]):.6g}. Name pairs it treats alike"
                    )


@dataclass(frozen=True, eq=False)
class ImplementationInvariance(Metric):
    """‖φ − φ′‖ relative to the larger of ‖φ‖ and ‖φ′‖, where φ′ explains a network that computes the same function.

    That it does is tried on the explicands and on points between them and the references. Where φ and φ′ are both zero the
    score is 0. Methods that ask for gradients of the output alone are invariant. GradPath (`IG2`, `GradCFE`, and GradCF as a
    reference) also asks for the representation, which is not given by the function: it is invariant between networks that
    share the representation, and need not be between others.

    Args:
        method: what made the attribution: a method, or a function called as `method(model, x, target, references, seed=...)`.
        twin: the other network: what `ig2.wrap` returned, or a network, which is then wrapped with the model's output, bounds
            and preprocessing.
        references: those the attribution was made with.
    """

    name: ClassVar[str] = "implementation invariance"
    better: ClassVar[Better] = "lower"

    method: MethodLike
    twin: Any
    references: Any = None

    def __post_init__(self) -> None:
        check_method(self.method)

    def run(self, case: Case) -> Result:
        model = case.model
        twin = self.twin
        if not isinstance(twin, Model):
            twin = wrap(twin, output=model.output, bounds=model.bounds, preprocess=model.preprocess)  # type: ignore[arg-type]
        self._check_same(model, twin, case.task)
        check_repeats(self.method, self.references, case)
        values = case.values.flatten(1)
        others = explained(self.method, self.references, twin, case).flatten(1)
        size = torch.maximum(values.norm(dim=1), others.norm(dim=1))
        return Result(torch.where(size > 0, (values - others).norm(dim=1) / size, 0.0))

    def _check_same(self, model: Model, twin: Model, task: Task) -> None:
        inputs = task.session.inputs
        ends = drawn(Zeros() if self.references is None else as_references(self.references), task).to(task.x)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            points = as_given(inputs, torch.lerp(task.x, ends[:, 0], share))
            ours, theirs = scores_of(model, points), scores_of(twin, points)
            if ours.shape != theirs.shape:
                raise InputError(
                    f"the twin gives scores {tuple(theirs.shape)}, the model {tuple(ours.shape)}: they are no twins"
                )
            apart = (ours - theirs.to(ours)).abs()
            if not (apart <= 1e-4 * ours.abs().max()).all():
                row, label = divmod(int(apart.argmax()), apart.shape[1])
                raise InputError(
                    f"the twin computes another function: {share:.0%} of the way from explicand {row} to its reference class "
                    f"{label} gets {float(theirs[row, label]):.6g}, the model {float(ours[row, label]):.6g}"
                )


def _check_draws(draws: object, tolerance: object) -> None:
    if not is_count(draws):
        raise InputError(f"draws must be a whole number from 1 on, got {describe(draws)}")
    if not is_number(tolerance) or tolerance < 0:  # type: ignore[operator]
        raise InputError(f"tolerance must be a number from 0 on, got {describe(tolerance)}")


def _mask(truth: Any, inputs: Inputs) -> Tensor:
    """Booleans (B, ...) in the engine's layout from those a user gave for each input, or for each sample of it."""
    parts = truth if isinstance(truth, dict) else dict(enumerate(truth)) if isinstance(truth, (tuple, list)) else None
    if parts is None:
        parts = {inputs.attributed[0][0]: truth}
    whole: dict[int | str, Tensor] = {}
    for key, shape, _ in inputs.attributed:
        mask = parts.get(key)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape not in (shape, (len(inputs), *shape)):
            raise InputError(
                f"truth must be booleans {tuple(shape)} or {(len(inputs), *shape)}, True for the features that do not matter; "
                f"got {describe(mask)}"
            )
        whole[key] = mask.to(inputs.data).expand(len(inputs), *shape)
    return inputs.pack(whole, "truth").bool()


def _position(index: Any, sample: torch.Size) -> int:
    """A position in the flattened sample, from a number or from one along each axis."""
    axes = (sample.numel(),) if isinstance(index, int) else sample
    along = (index,) if isinstance(index, int) else index
    if (
        not isinstance(along, tuple)
        or len(along) != len(axes)
        or not all(isinstance(at, int) and -size <= at < size for at, size in zip(along, axes, strict=True))
    ):
        raise InputError(
            f"feature {describe(index)} is no position in a sample {tuple(sample)}: give a number below {sample.numel()}, or "
            "one along each axis"
        )
    return int(torch.arange(sample.numel(), device="cpu").view(axes)[along])
