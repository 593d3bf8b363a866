"""The path of Guided IG: from the baseline to the explicand near the straight line, small gradients first."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.settings import FRACTION, setting
from ig2.evaluation import Evaluation
from ig2.paths.base import GrownPath, Memory, Pairs


@dataclass(frozen=True)
class Guided(GrownPath):
    """The path of Guided IG: each step moves the features with the smallest |∂f/∂xᵢ| first [Kapishnikov 2021].

    Step t of k ends when the ℓ1 distance left equals that on the straight line, ‖x − γ‖₁ = (1 − t/k)·‖x − x′‖₁. The path is
    built from the baseline, and each step uses the gradient at its start: the published sum is the rule `right`, whose
    gradient is at the end nearer the baseline.

    Args:
        steps: the number k of segments.
        fraction: the share of features, those with the smallest gradients, that move at a time; from 0 to 1.
        max_dist: how far ahead of or behind the straight line a feature may be, as a share of the line; 0 is the line itself.

    Raises:
        InputError: if fraction or max_dist is not between 0 and 1.
    """

    steps: int = 200
    fraction: float = setting(0.25, FRACTION)
    max_dist: float = setting(0.02, FRACTION)
    from_explicand = False
    wants_gradient = True

    def start(self, pairs: Pairs) -> Tensor:
        return pairs.reference

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        assert at.gradient is not None
        target, baseline = pairs.explicand.flatten(1), pairs.reference.flatten(1)
        # of a gradient that is not finite, which raises in the end, all features move last, and the path is one to the end
        here, slope = point.flatten(1).clone(), at.gradient.flatten(1).abs().nan_to_num(torch.finfo(point.dtype).max)
        total = (target - baseline).abs().sum(dim=1)
        alpha = (step + 1) / self.steps
        behind = baseline + (target - baseline) * max(alpha - self.max_dist, 0.0)
        ahead = baseline + (target - baseline) * min(alpha + self.max_dist, 1.0)
        left = total * (1 - alpha)  # the distance to the explicand after this step
        rank = max(0, math.floor(self.fraction * (here.shape[1] - 1)))  # of the `lower` quantile
        tolerance = 1e-9 if point.dtype == torch.float64 else 1e-6

        active = total > 0
        # every move but a pair's last finishes one feature at least
        for _ in range(here.shape[1] + 1):
            if not active.any():
                break
            # what lags behind the window catches up first
            progress = (here - baseline).abs() < (behind - baseline).abs()
            here = torch.where(progress & active[:, None], behind, here)
            current = (target - here).abs().sum(dim=1)
            active = active & (current - left > tolerance * total)
            pending = torch.where(here == ahead, torch.inf, slope)
            chosen = (pending <= pending.kthvalue(rank + 1, dim=1, keepdim=True).values) & pending.isfinite()
            reach = ((here - ahead).abs() * chosen).sum(dim=1)
            active = active & (reach > 0)
            share = (current - left) / reach.where(reach > 0, 1.0)
            whole = share > 1
            moved = torch.where(whole[:, None], ahead, here + share[:, None] * (ahead - here))
            here = torch.where(chosen & active[:, None], moved, here)
            active = active & whole
        return here.view_as(point)
