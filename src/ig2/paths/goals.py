"""Paths to a goal for the output, such as another class: counterfactuals without references."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ig2._utils.checks import is_number
from ig2._utils.settings import COUNT, PART, POSITIVE, Accepted, Settings, instance_of, setting
from ig2.errors import InputError
from ig2.evaluation import Evaluation, OfOutputs
from ig2.model import YES_ABOVE
from ig2.paths.base import GrownPath, Memory, Pairs, Path
from ig2.paths.gradpath import L2, NORM, Norm, take_step, where_free
from ig2.task import Task
from ig2.verdict import ARRIVED


class Goal(Settings, ABC):
    """Base class of goals, half-spaces of the outputs: Σ_c w_c f_c ≤ limit."""

    @abstractmethod
    def count(self, task: Task) -> int:
        """Return the number of goals K of each sample."""

    @abstractmethod
    def find(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return the weights (B, K, classes) of the outputs, and the limits (B, K)."""


@dataclass(frozen=True)
class Rivals(Goal):
    """Other classes that are to win, each on a path of its own: f_A − f_B ≤ −margin for each B.

    The classes B are those of the call's `against`, otherwise the most likely ones other than the
    explained class A.

    Args:
        classes: the number of other classes if the call explains against none; all of them if the
            network has fewer.
        margin: by how much B is to win, in units of the output. By default by as much as A wins
            at x; if B wins there already, by three times as much.
        together: whether the mean output of these classes is to win, on a single path.

    Raises:
        InputError: if classes or margin is not positive.
    """

    classes: int = setting(10, COUNT)
    margin: float | None = setting(None, POSITIVE)
    together: bool = False

    def count(self, task: Task) -> int:
        return 1 if self.together else self._choose(task).shape[1]

    def find(self, task: Task) -> tuple[Tensor, Tensor]:
        rivals, scores = self._choose(task), task.explicand_scores[task.rows]
        weights = scores.new_zeros(*rivals.shape, scores.shape[1])
        weights.scatter_(2, rivals[..., None], -1.0)
        if self.together:
            weights = weights.mean(dim=1, keepdim=True)
        explained = task.target[:, None, None].expand(-1, weights.shape[1], 1)
        weights.scatter_(2, explained, 1.0)
        lead = (weights * scores[:, None]).sum(dim=2)
        if self.margin is None:
            return weights, lead - 2 * lead.abs()
        return weights, torch.full_like(lead, -self.margin)

    def _choose(self, task: Task) -> Tensor:
        """Return the classes that are to win, (B, classes)."""
        if task.against is not None:
            return task.against
        scores = task.explicand_scores[task.rows]
        if scores.shape[1] == 1:
            raise InputError(
                "the network has a single output, so there is no other class that could win: change "
                "the output itself, goal=ig2.paths.Change(by)"
            )
        others = scores.scatter(1, task.target[:, None], -torch.inf)
        order = others.argsort(dim=1, descending=True, stable=True)
        return order[:, : min(self.classes, scores.shape[1] - 1)]


@dataclass(frozen=True)
class Change(Goal):
    """A change of the explained output: f ≤ f(x) + by if it is negative, f ≥ f(x) + by otherwise.

    Args:
        by: the change. By default the output is to end as far on the other side of the value
            above which a label applies: 0 for logits, ½ for probabilities.

    Raises:
        InputError: if by is zero or no number.
    """

    by: float | None = setting(None, Accepted(lambda by: is_number(by) and by != 0, "a number other than 0"))

    def count(self, task: Task) -> int:
        return 1

    def find(self, task: Task) -> tuple[Tensor, Tensor]:
        output = task.output
        change = self._oppose(task) if self.by is None else torch.full_like(output, self.by)
        falls = -change.sign()  # the output, or its negative: what is to fall
        weights = output.new_zeros(len(task), 1, task.explicand_scores.shape[1])
        weights.scatter_(2, task.target[:, None, None], falls[:, None, None])
        return weights, (falls * (output + change))[:, None]

    @staticmethod
    def _oppose(task: Task) -> Tensor:
        """Return the change to the other side of the value above which a label applies, (B,)."""
        model = task.session.model
        if model.target is not None or not isinstance(model.output, str):
            raise InputError(
                "it is not known above which value the explained output says yes: say by how much "
                "it is to change, goal=ig2.paths.Change(by)"
            )
        return 2 * (YES_ABOVE[model.output] - task.output)


class _Excess(OfOutputs):
    """How far the outputs are from a goal, max(0, Σ_c w_c f_c − limit)."""

    def __call__(self, outputs: Tensor, goal: Tensor) -> Tensor:
        return ((outputs * goal[:, :-1]).sum(dim=1) - goal[:, -1]).relu()


@dataclass(frozen=True)
class ToGoal(GrownPath):
    """Gradient descent of the outputs to a goal, such as that another class wins; no reference.

    With D = max(0, Σ_c w_c f_c − limit): p₀ = x, pₜ₊₁ = clip(pₜ − ηₜ·g/‖g‖) with g = ∇D(pₜ), which
    is GradPath with another distance. By default a step is as long as the gradient says is needed
    for a fifth of the way, ηₜ = min(D(pₜ), D(x)/5)/‖g‖ [Polyak 1969]: on a linear network, paths take
    five equal steps and end exactly at the goal. A path ends when it has arrived. The share of D(x)
    that it covered is `Attribution.arrival`: with the default goal, another class wins if it is above
    one half. Several goals give as many paths.

    Args:
        goal: `Rivals()`, `Change()` or another `Goal`. By default `Rivals()` for classes, and
            `Change()` for single outputs and for labels that do not exclude each other, which
            are those of `output="sigmoid"`.
        steps: the maximum number of steps of each path.
        step_size: step length η in the data space; by default ηₜ as above.
        share: the share of the way that a step is to cover, without `step_size`.
        norm: the norm of a step.

    Raises:
        InputError: if an argument has the wrong type, step_size is not positive, or share is not in
            (0, 1].

    >>> import ig2
    >>> net = lambda x: x @ torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> found = ig2.PathMethod(ToGoal(), rule=ig2.rules.blended)(net, torch.tensor([[3.0, 1.0]]))
    >>> found.output, net(found.gradcf[:, 0])  # 9 and 4 at x
    (tensor([9.]), tensor([[ 5.4000, 10.4000]]))
    """

    goal: Goal | None = setting(None, instance_of(Goal, "a Goal such as Rivals()"))
    steps: int = 40
    step_size: float | None = setting(None, POSITIVE)
    share: float = setting(0.2, PART)
    norm: Norm = setting(L2(), NORM)
    uses_reference = False
    ends_in_counterfactual = True

    @property
    def measures(self) -> OfOutputs:
        return _Excess()

    def lines(self, task: Task) -> int:
        return self._choose(task).count(task)

    def prepare(self, task: Task, references: Tensor) -> Path:
        weights, limits = self._choose(task).find(task)
        goals = torch.cat([weights, limits[..., None]], dim=2)
        each = torch.arange(references.shape[1], device=goals.device) % goals.shape[1]
        settings = (self.goal, self.steps, self.step_size, self.share, self.norm)
        return _Aimed(*settings, goals=goals[:, each].flatten(0, 1))

    def _choose(self, task: Task) -> Goal:
        """Return the goal, by default the one that suits the network."""
        if self.goal is not None:
            return self.goal
        exclusive = task.explicand_scores.shape[1] > 1 and task.session.model.output != "sigmoid"
        return Rivals() if exclusive or task.against is not None else Change()

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor:
        assert at.distance is not None
        if step == 0:
            memory["first_distance"] = at.distance
        return at.distance > (1 - ARRIVED) * memory["first_distance"]

    def advance(
        self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory
    ) -> Tensor:  # fmt: skip
        assert at.distance is not None and at.ascent is not None
        ascent = where_free(at.ascent, pairs.bounds)
        direction, scale = self.norm.step(ascent)
        if self.step_size is None:
            slope = scale * (direction * ascent).flatten(1).sum(dim=1)
            wanted = torch.minimum(at.distance, self.share * memory["first_distance"])
            length = wanted / slope.where(slope > 0, torch.inf)
        else:
            length = torch.full_like(scale, self.step_size)
        return take_step(pairs, point, direction, length * scale, memory)


@dataclass(frozen=True, eq=False)
class _Aimed(ToGoal):
    """A path whose goals are known: weights and limit for each pair, (pairs, classes + 1)."""

    goals: Tensor = field(kw_only=True)

    def aim(self, pairs: Pairs) -> Tensor:
        assert pairs.numbers is not None
        return self.goals[pairs.numbers]
