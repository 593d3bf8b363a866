"""Axioms that attributions should satisfy: each score measures the violation of one axiom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ig2._engine.explicands import Explicands
from ig2._utils.checks import require
from ig2._utils.settings import COUNT, NOT_NEGATIVE, setting
from ig2.attribution import Attribution
from ig2.errors import InputError, ModelError, describe
from ig2.methods.gradient import Gradient
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.reattribution import Reattribution, rebuild_x
from ig2.model import Model, wrap
from ig2.references.base import Given, as_references, draw_references
from ig2.references.constant import Zeros
from ig2.result import Keep
from ig2.task import Task
from ig2.task import scores as scores_of

Index = int | tuple[int, ...]


def is_satisfied(scores: Scores, tolerance: float = 0.01) -> bool | None:
    """Return whether an axiom holds for every explicand it applies to.

    >>> import ig2
    >>> product = ig2.IntegratedGradients()(lambda x: x[:, 0] * x[:, 1], torch.ones(1, 2))
    >>> is_satisfied(Completeness()(None, product))
    True

    Args:
        scores: the result of a metric of this module.
        tolerance: the largest score attributed to rounding, or to the error of a sum that approximates an integral.

    Returns:
        True or False, or None if the axiom applies to no explicand.

    Raises:
        InputError: if the scores are not those of an axiom.
    """
    if scores.metric not in (axiom.name for axiom in (Completeness, Dummy, Symmetry, ImplementationInvariance)):
        raise InputError(f"{scores.metric} is no axiom, so there is nothing to satisfy: read its mean")
    return bool((scores.defined <= tolerance).all()) if scores.n else None


@dataclass(frozen=True, eq=False)
class Completeness(Metric):
    """|Σφ − (f(x) − f(baseline))| / |f(x) − f(baseline)|: the unexplained share of the output's change [Sundararajan 2017].

    Rounding error counts as 0. If both outputs are equal, there is no change to relate to, and the score is |Σφ| / Σ|φ|.

    Args:
        baseline: the baseline of the attribution: samples (R, ...) or (B, R, ...), a number, or a strategy of
            `ig2.references`; with several, f(baseline) is their mean. By default the one recorded in the `Attribution`, and the
            network is not run; for methods without a baseline, the score is then not defined. Required for a plain tensor.
    """

    baseline: Any = None
    name = "completeness"
    better = "lower"
    runs_once = True

    @property
    def runs_model(self) -> bool:  # type: ignore[override]
        return self.baseline is not None

    def run(self, case: Case) -> Scores:
        attribution = case.attribution if self.baseline is None else self._measure_ends(case)
        if attribution is None:
            raise InputError(
                "a plain tensor does not say where it starts from: use Completeness(baseline=...), samples (R, ...), a number "
                "or a strategy of ig2.references; or score the Attribution a method returned"
            )
        relative, size = attribution.relative_residual, case.values.flatten(1).abs().sum(dim=1)
        if relative is None:
            reason = "the method has no baseline, so its sum stands for nothing"
            return Scores.where_defined(size, {reason: torch.ones_like(size, dtype=torch.bool)})
        return Scores(torch.where(relative.isinf(), attribution.total.abs() / size.to(relative), relative))

    def _measure_ends(self, case: Case) -> Attribution:
        """Return the attribution with the outputs at both ends."""
        task, output = case.task, case.output
        baselines = draw_references(as_references(self.baseline), task).to(task.x)
        rows = torch.arange(len(task), device=task.x.device)
        below = torch.stack([task.outputs(baseline, rows) for baseline in baselines.unbind(1)]).mean(dim=0)
        finite = output.isfinite() & below.isfinite()
        if not finite.all():
            row = int((~finite).nonzero()[0])
            raise ModelError(
                f"the output is {float(output[row])} at explicand {row} and {float(below[row])} at its baseline: the network "
                "fails there"
            )
        return Attribution(case.values, below[:, None], explicand=task.x, target=task.target, output=output)


@dataclass(frozen=True, eq=False)
class Dummy(Metric):
    """The share of Σ|φ| on features that the network ignores [Sundararajan 2017]; 0 if φ is zero everywhere.

    `truth` marks these features: booleans in a sample's shape, or (B, ...), True for a feature that does not matter. Without
    it, they are searched for: features whose gradient vanishes at the explicands and at points between them and other samples,
    and whose values can be replaced by those of other samples without changing the output. This is evidence, not proof: a
    feature that matters only away from these points counts as a dummy. If every feature matters, the score is not defined.

    Args:
        data: samples (N, ...) whose values replace the explicands'; by default the other explicands of the batch.
        draws: the maximum number of such samples for each explicand.
        tolerance: the share of the largest gradient up to which a gradient counts as zero, and of the largest output up to
            which a change does.
    """

    data: Any = None
    draws: int = setting(8, COUNT)
    tolerance: float = setting(1e-5, NOT_NEGATIVE)
    name = "dummy"
    better = "lower"
    truth = "booleans in a sample's shape, or (B, ...): True for the features that do not matter"
    truth_optional = True
    needs_gradient = True

    def run(self, case: Case) -> Scores:
        dummy = self._find(case.task) if case.truth is None else _read_mask(case.truth, case.task.session.inputs)
        size = case.values.abs()
        on_dummies, total = (part.flatten(1).sum(dim=1) for part in (size * dummy, size))
        share = torch.where(total > 0, on_dummies / total, 0.0)
        none = ~dummy.expand_as(size).flatten(1).any(dim=1)
        count = int(dummy.flatten(1).sum(dim=1).max())
        return Scores.where_defined(share, {"every feature matters to the network": none}, settings={"dummies": count})

    def _find(self, task: Task) -> Tensor:
        """Return which features do not matter to any of the explained outputs, (1, ...)."""
        steepest, largest = torch.zeros_like(task.x[:1]), torch.zeros((), device=task.x.device)
        rows = torch.arange(len(task), device=task.x.device)
        before = task.outputs(task.x, rows)
        others = list(self._others(task))
        shares = torch.rand(len(others) + 1, generator=task.generator(), device="cpu").tolist()
        for share, other in zip(shares, [task.x, *others], strict=True):
            slopes = Gradient().run(replace(task, x=torch.lerp(task.x, other, share)), None, Keep()).values.abs()
            steepest = torch.maximum(steepest, slopes.amax(dim=0, keepdim=True))
            largest = torch.maximum(largest, task.outputs(other, rows).abs().max())

        def select(group: Tensor) -> Tensor:
            mask = torch.zeros_like(steepest, dtype=torch.bool)
            mask.view(-1)[group] = True
            return mask

        def find_dummies(group: Tensor) -> list[Tensor]:
            """Return the features of a group that change no output, tested together as far as possible."""
            mask = select(group)
            changes = (task.outputs(torch.where(mask, other, task.x), rows) - before for other in others)
            if not any(bool(change.abs().max() > self.tolerance * largest) for change in changes):
                return [group]
            half = len(group) // 2
            return [*find_dummies(group[:half]), *find_dummies(group[half:])] if half else []

        flat = (steepest <= self.tolerance * steepest.max()).flatten().nonzero()[:, 0]
        return select(torch.cat(find_dummies(flat) or [flat[:0]]) if len(flat) else flat)

    def _others(self, task: Task) -> Iterator[Tensor]:
        """Yield another sample for each explicand, (B, ...), `draws` times."""
        if self.data is None and len(task) == 1:
            raise InputError(
                "one explicand has no others whose values could take its features' places: use Dummy(data=samples), or say "
                "which features do not matter, truth=..."
            )
        pool = None if self.data is None else draw_references(Given(self.data), task).to(task.x)
        count = len(task) - 1 if pool is None else pool.shape[1]
        for index in torch.randperm(count, generator=task.generator(), device="cpu")[: self.draws].tolist():
            yield task.x.roll(index + 1, dims=0) if pool is None else pool[:, index]


@dataclass(frozen=True, eq=False)
class Symmetry(Metric):
    """The largest |φᵢ − φⱼ| / max|φ| over pairs of features that the network treats alike [Sundararajan 2017].

    Only pairs with equal values in the explicand count. Whether the network treats them alike is tested: its output must not
    change when the two values are swapped. The axiom also requires equal values in the reference: if they differ there, a
    difference in φ is no evidence against the method. If φ is zero everywhere, the score is 0; if no pair is equal in the
    explicand, it is not defined.

    Args:
        pairs: pairs of positions, as indices into the flattened sample or tuples such as (channel, row, column).
        draws: the number of pairs of values swapped in each explicand, for each pair of features.
        tolerance: the share of the largest output up to which a change counts as zero.

    Raises:
        InputError: if the network does not treat a pair alike.
    """

    pairs: Sequence[tuple[Index, Index]]
    draws: int = setting(8, COUNT)
    tolerance: float = setting(1e-5, NOT_NEGATIVE)
    name = "symmetry"
    better = "lower"

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = isinstance(self.pairs, (list, tuple)) and len(self.pairs) > 0
        valid = valid and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in self.pairs)
        require(valid, "pairs", self.pairs, "a list of pairs of features, for example [(0, 3)]")

    def run(self, case: Case) -> Scores:
        positions = [tuple(_position(index, case.values.shape[1:]) for index in pair) for pair in self.pairs]
        self._check_symmetric(case.task, positions)
        first, second = torch.tensor(positions, device=case.values.device).T
        values, x = case.values.flatten(1), case.task.x.flatten(1)
        difference, equal = (values[:, first] - values[:, second]).abs(), x[:, first] == x[:, second]
        worst, largest = torch.where(equal, difference, 0).amax(dim=1), values.abs().amax(dim=1)
        reason = "no two features of a pair are equal in the explicand"
        return Scores.where_defined(torch.where(largest > 0, worst / largest, 0.0), {reason: ~equal.any(dim=1)})

    def _check_symmetric(self, task: Task, positions: Sequence[tuple[int, ...]]) -> None:
        rows = torch.arange(len(task), device=task.x.device)
        low, high = float(task.x.min()), float(task.x.max())
        generator = task.generator()
        for pair, (first, second) in zip(self.pairs, positions, strict=True):
            for _ in range(self.draws):
                # anywhere in the data's range: where the explicand has them equal, changing places would change nothing
                values = torch.rand(2, generator=generator, dtype=torch.float64, device="cpu").to(task.x)
                values = values * ((high - low) or 1.0) + low
                points, swapped = task.x.flatten(1).clone(), task.x.flatten(1).clone()
                points[:, [first, second]] = values
                swapped[:, [second, first]] = values
                before, after = (task.outputs(samples.view_as(task.x), rows) for samples in (points, swapped))
                change = (after - before).abs()
                if not (change <= self.tolerance * torch.maximum(before.abs(), after.abs()).max()).all():
                    row = int(change.argmax())
                    raise InputError(
                        f"the network is not symmetric in features {pair[0]} and {pair[1]}: with {float(values[0]):.4g} and "
                        f"{float(values[1]):.4g} there, explicand {row} scores {float(before[row]):.6g}, with the two the "
                        f"other way round {float(after[row]):.6g}. Name pairs it treats alike"
                    )


@dataclass(frozen=True, eq=False)
class ImplementationInvariance(Reattribution):
    """The relative change ‖φ − φ′‖ / max(‖φ‖, ‖φ′‖), where φ′ explains another network that computes the same function
    [Sundararajan 2017].

    Whether it does is tested on the explicands and on points between them and the references. If φ and φ′ are both zero, the
    score is 0. Methods that use only gradients of the output are invariant. GradPath (`IG2`, `GradCFE`, and GradCF as a
    reference) also uses the representation, which the function does not determine: it is invariant between networks that share
    the representation, and need not be between others.

    Args:
        method: the method that computed the attribution, or a function called as
            `method(model, x, target, references, seed=...)`.
        twin: the other network: the result of `ig2.wrap`, or a network, which is then wrapped with the model's output, bounds
            and preprocessing.
        references: the references of the attribution.

    Raises:
        InputError: if the twin computes another function, or the method does not reproduce the attribution.
    """

    twin: Any  # type: ignore[misc]  # `method` has no default either
    references: Any = None
    name = "implementation invariance"
    better = "lower"

    def run(self, case: Case) -> Scores:
        model, twin = case.model, self.twin
        if not isinstance(twin, Model):
            twin = wrap(twin, output=model.output, bounds=model.bounds, preprocess=model.preprocess)  # type: ignore[arg-type]
        self._check_twin(model, twin, case.task)
        self.check_reproduces(case)
        values = case.values.flatten(1)
        others = self.attribute_again(twin, case).flatten(1)
        norm = torch.maximum(values.norm(dim=1), others.norm(dim=1))
        return Scores(torch.where(norm > 0, (values - others).norm(dim=1) / norm, 0.0))

    def _check_twin(self, model: Model, twin: Model, task: Task) -> None:
        ends = draw_references(Zeros() if self.references is None else as_references(self.references), task).to(task.x)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            points = rebuild_x(task.session.inputs, torch.lerp(task.x, ends[:, 0], share))
            ours, theirs = scores_of(model, points), scores_of(twin, points)
            if ours.shape != theirs.shape:
                raise InputError(
                    f"the twin returns scores {tuple(theirs.shape)}, the model {tuple(ours.shape)}: they are no twins"
                )
            difference = (ours - theirs.to(ours)).abs()
            if not (difference <= 1e-4 * ours.abs().max()).all():
                row, label = divmod(int(difference.argmax()), difference.shape[1])
                raise InputError(
                    f"the twin computes another function: {share:.0%} of the way from explicand {row} to its reference class "
                    f"{label} gets {float(theirs[row, label]):.6g}, the model {float(ours[row, label]):.6g}"
                )


def _read_mask(truth: Any, inputs: Explicands) -> Tensor:
    """Return booleans (B, ...) in the engine's layout from the user's masks for each input, or for each sample of it."""
    parts = truth if isinstance(truth, dict) else dict(enumerate(truth)) if isinstance(truth, (tuple, list)) else None

    def expand(mask: Any, shape: torch.Size) -> Tensor:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape not in (shape, (len(inputs), *shape)):
            raise InputError(
                f"truth must be booleans {tuple(shape)} or {(len(inputs), *shape)}, True for the features that do not matter; "
                f"got {describe(mask)}"
            )
        return mask.expand(len(inputs), *shape)

    masks = {key: expand(truth if parts is None else parts.get(key), shape) for key, shape, _ in inputs.attributed}
    return inputs.pack(masks, "truth").bool()


def _position(index: Any, sample: torch.Size) -> int:
    """Return a position in the flattened sample, from an index into it or from one along each axis."""
    axes, along = ((sample.numel(),), (index,)) if isinstance(index, int) else (tuple(sample), index)
    valid = isinstance(along, tuple) and len(along) == len(axes)
    if not valid or not all(isinstance(at, int) and -size <= at < size for at, size in zip(along, axes, strict=True)):
        raise InputError(
            f"feature {describe(index)} is no position in a sample {tuple(sample)}: pass a number below {sample.numel()}, or "
            "one along each axis"
        )
    return int(torch.arange(sample.numel(), device="cpu").view(axes)[along])
