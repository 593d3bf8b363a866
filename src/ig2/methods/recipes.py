"""Other path methods: LPI, SIG, UDIG, DIG, SAMP, Geodesic IG and Reveal-IG; and WG, which wraps a path method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2 import rules
from ig2._engine.integrate import Keep, average_references
from ig2._engine.task import Task
from ig2._utils.checks import check_count
from ig2.errors import InputError, describe
from ig2.methods.base import Result
from ig2.methods.path import ExpectedIG, IntegratedGradients, PathMethod
from ig2.methods.wrapper import Wrapper
from ig2.paths import Geodesic, Greedy, NeighbouringWords, Revealed, UniformWords
from ig2.references.base import References
from ig2.references.constant import Zeros
from ig2.references.positions import OneAtATime
from ig2.references.weighted import LocalClusters
from ig2.rules import Rule


class LPI(ExpectedIG):
    """Local Path Integration: Expected IG from samples with similar outputs, weighted by their density [Yang 2023b].

    φ = Σᵣ wᵣ (x − xᵣ) ⊙ ∫₀¹ ∇f(xᵣ + t·(x − xᵣ)) dt with references and weights from `ig2.references.LocalClusters`; complete
    up to the accuracy of the integral. The published code averages the already weighted terms over the references, which is
    ours divided by their number.

    Args:
        pool: samples (N, ...) to choose references from.
        clusters: the number of clusters of outputs.
        count: the number of references.
        steps: the number of gradients for each reference.
        rule: as for `ig2.IntegratedGradients`.
    """

    def __init__(self, pool: Any, clusters: int = 9, count: int = 10, steps: int = 50, rule: Rule | None = None) -> None:
        super().__init__(steps, rule)
        object.__setattr__(self, "references", LocalClusters(pool, clusters, count))


@dataclass(frozen=True, eq=False, init=False)
class SIG(IntegratedGradients):
    """Sequential IG: one word, or time step, at a time moves to its baseline while the others stay fixed [Enguehard 2023].

    φᵢ = (xᵢ − x′ᵢ) ⊙ ∫₀¹ ∇ᵢf(x with xᵢ at x′ᵢ + t·(xᵢ − x′ᵢ)) dt / T for position i of T: Integrated Gradients with the
    references of `ig2.references.OneAtATime`. The values sum to f(x) minus the mean output with one position replaced. The
    paper does not divide by T, and normalises the words' sums by their norm at the end.

    Args:
        steps: the number of gradients for each position.
        axis: the axis of a sample along which the positions lie, not counting the batch.
        rule: as for `ig2.IntegratedGradients`.
    """

    axis: int = 0

    def __init__(self, steps: int = 50, axis: int = 0, rule: Rule | None = None) -> None:
        super().__init__(steps, rule)
        object.__setattr__(self, "axis", axis)

    def _samples(self, task: Task, references: References | None) -> tuple[Tensor, Tensor | None]:
        return super()._samples(task, OneAtATime(self.require_references(references), self.axis))


class UDIG(PathMethod):
    """UDIG for texts: Integrated Gradients from word to word near equally spaced points of the straight line [Roy 2024].

    φ = Σₜ ∇f(pₜ) ⊙ (pₜ − pₜ₊₁) on `ig2.paths.UniformWords`. The default baseline is zeros; pass the vector of the mask token
    if there is one.

    Args:
        embeddings: the vector of each word, (words, features).
        steps: the number of segments.
        neighbours: how many words near each point are considered.
        rule: the rule that turns gradients on the path into attributions.
    """

    default_references: ClassVar[References | None] = Zeros()

    def __init__(self, embeddings: Tensor, steps: int = 30, neighbours: int = 30, rule: Rule = rules.left) -> None:
        super().__init__(UniformWords(embeddings, steps, neighbours), None, rule)


class DIG(PathMethod):
    """DIG for texts: Integrated Gradients from word to neighbouring word towards the baseline [Sanyal 2021].

    φ = Σₜ ∇f(pₜ) ⊙ (pₜ − pₜ₊₁) on `ig2.paths.NeighbouringWords`. The published sum evaluates the gradient at the end of the
    segment nearer the baseline, which is the rule `right`.

    Args:
        embeddings: the vector of each word, (words, features).
        steps: the number of segments.
        neighbours: how many nearest words are considered.
        rule: the rule that turns gradients on the path into attributions.
    """

    default_references: ClassVar[References | None] = Zeros()

    def __init__(self, embeddings: Tensor, steps: int = 30, neighbours: int = 500, rule: Rule = rules.right) -> None:
        super().__init__(NeighbouringWords(embeddings, steps, neighbours), None, rule)


class SAMP(PathMethod):
    """SAMP: gradients on the path along which the output falls fastest [Zhang 2024].

    φ = Σₜ ∇f(pₜ) ⊙ (pₜ − pₜ₊₁) on `ig2.paths.Greedy`, which documents how it differs from the paper.

    Args:
        steps: the number of steps of the path.
        momentum: the momentum of the gradients that select the next features.
        rule: the rule that turns gradients on the path into attributions.
    """

    default_references: ClassVar[References | None] = Zeros()

    def __init__(self, steps: int = 100, momentum: float = 0.5, rule: Rule = rules.left) -> None:
        super().__init__(Greedy(steps, momentum), None, rule)


class GeodesicIG(PathMethod):
    """Geodesic IG: the path from sample to sample along which the output's gradient is smallest [Salek 2025].

    φ is the integral of the gradient along `ig2.paths.Geodesic`, complete up to its accuracy.

    Args:
        pool: samples (N, ...) that paths pass through.
        neighbours: the number of nearest samples each sample is connected to.
        rule: the rule that turns gradients on each segment into attributions.
    """

    default_references: ClassVar[References | None] = Zeros()

    def __init__(self, pool: Tensor, neighbours: int = 5, rule: Rule = rules.gauss(5)) -> None:
        super().__init__(Geodesic(pool, neighbours), None, rule)


class RevealIG(PathMethod):
    """Reveal-IG: how the mean output changes as a distribution narrows to the explicand [Murphy 2026]; without references.

    φ = ∫ ∂E[f(γ(t))]/∂(mean, width) d(mean, width) on `ig2.paths.Revealed`; the values sum to f(x) minus the mean output over
    the widest distribution.

    Args:
        steps: the number of segments of each path.
        samples: the number of paths.
        sigma: the standard deviation of the noise at the wide end, in the data space.
        blur: the standard deviation of the blur at the wide end, in pixels.
        rule: the rule that turns gradients on the paths into attributions.
    """

    def __init__(
        self, steps: int = 20, samples: int = 10, sigma: float = 0.3, blur: float = 0.0, rule: Rule = rules.trapezoid
    ) -> None:
        super().__init__(Revealed(steps, samples, sigma, blur), None, rule)


@dataclass(frozen=True, eq=False)
class WG(Wrapper):
    """Weighted IG: the mean over references, each weighted by the deletion score of its attribution [Tran 2025].

    φ = Σᵣ wᵣ φᵣ with wᵣ ∝ max(0, f(x) − dᵣ), where dᵣ is the mean output as the features with the largest φᵣ are replaced, in
    `shares` equal parts, by those of reference r; the weights are equal if no deletion lowers the output. It is complete if
    the wrapped method is: the residual is relative to the weighted mean of the baselines' outputs. The weights are
    returned as `Attribution.weights`. Their formula is ours; the paper's measure of a baseline may differ in details.

    Args:
        method: a path method with references, for example `ExpectedIG()`.
        shares: the number of equal parts in which features are deleted.

    Raises:
        InputError: if method is not a path method with references.
    """

    shares: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.shares, "shares")
        if not (isinstance(self.method, PathMethod) and self.method.path.uses_reference):
            raise InputError(f"WG weighs the references of a path method such as ig2.ExpectedIG(), got {describe(self.method)}")

    @property
    def complete(self) -> bool:
        """Whether the wrapped method is complete."""
        return self.method.complete

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        assert isinstance(self.method, PathMethod)
        samples, sample_weights = self.method._samples(task, references)
        result = self.method.run(task, references, replace(keep, per_reference=True))
        each = result.per_reference
        assert each is not None
        weights = self._weigh(task, samples, each) * (1.0 if sample_weights is None else sample_weights)
        weights = torch.where(weights.sum(dim=1, keepdim=True) > 0, weights, 1.0)
        weights = weights / weights.sum(dim=1, keepdim=True)
        values, spread = average_references(each, weights)
        moved = None if result.gradcf is None else average_references(task.x[:, None] - result.gradcf, weights)[0]
        kept = each if keep.per_reference else None
        return replace(result, values=values, spread=spread, weights=weights, gradcfe=moved, per_reference=kept)

    def _weigh(self, task: Task, samples: Tensor, each: Tensor) -> Tensor:
        """Return how far deletion by each reference's attribution lowers the output, (B, R); zero if it raises it."""
        every, features = torch.arange(len(task), device=task.x.device), task.x[0].numel()
        whole = task.outputs(task.x, every)
        fitness = []
        for sample, values in zip(samples.unbind(dim=1), each.unbind(dim=1), strict=True):
            flat, reference = task.x.flatten(1), sample.to(task.x).flatten(1)
            rank = values.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            outputs = torch.zeros_like(whole)
            for part in range(1, self.shares + 1):
                points = torch.where(rank < features * part / self.shares, reference, flat).view_as(task.x)
                outputs += task.outputs(points, every) / self.shares
            fitness.append((whole - outputs).clamp(min=0))
        return torch.stack(fitness, dim=1)
