"""The path of SAMP: the features whose change lowers the output most move to the baseline first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.settings import BELOW_ONE, setting
from ig2.evaluation import Evaluation
from ig2.paths.base import GrownPath, Memory, Pairs


@dataclass(frozen=True)
class Greedy(GrownPath):
    """Each step sets to the baseline the features that the gradient predicts to lower the output most, as in SAMP [Zhang 2024].

    With mₜ = λ·mₜ₋₁ + (1 − λ)·∇f(pₜ), the next D/k of the D features, in descending order of mₜ ⊙ (pₜ − x′), move to x′ at
    once. The output thus falls as fast as possible, and the features that sustain it receive the change. No feature moves
    twice.

    Implemented from the paper's description, as we found no published code. The paper also bounds the step length, which the
    number of steps replaces here; the rule `gauss(n)` computes the exact integral on each segment.

    Args:
        steps: the number k of segments.
        momentum: λ, from 0 (no momentum) to just under 1.

    Raises:
        InputError: if momentum is not in [0, 1).
    """

    steps: int = 100
    momentum: float = setting(0.5, BELOW_ONE)
    wants_gradient = True

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        assert at.gradient is not None
        gradient = at.gradient.flatten(1)
        memory["slope"] = torch.lerp(gradient, memory["slope"], self.momentum) if step else gradient
        moved = memory.get("moved", torch.zeros_like(gradient, dtype=torch.bool))
        here, reference = point.flatten(1), pairs.reference.flatten(1)
        features = here.shape[1]
        count = round(features * (step + 1) / self.steps) - round(features * step / self.steps)
        fall = (memory["slope"] * (here - reference)).masked_fill(moved, -torch.inf)
        memory["moved"] = moved.scatter(1, fall.topk(count, dim=1).indices, True)
        return torch.where(memory["moved"], reference, here).view_as(point)
