"""Methods for texts, in which one word moves at a time, or from word to word: SIG, UDIG and DIG."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ig2 import rules
from ig2.methods.integrated import IntegratedGradients
from ig2.methods.path import PathMethod
from ig2.paths import NeighbouringWords, UniformWords
from ig2.references.base import References
from ig2.references.constant import Zeros
from ig2.references.positions import OneAtATime
from ig2.rules import Rule
from ig2.task import Task


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

    default_references = Zeros()

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

    default_references = Zeros()

    def __init__(self, embeddings: Tensor, steps: int = 30, neighbours: int = 500, rule: Rule = rules.right) -> None:
        super().__init__(NeighbouringWords(embeddings, steps, neighbours), None, rule)
