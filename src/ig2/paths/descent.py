"""Paths of attacks: descent of the explained output, or ascent of another class's, until the prediction changes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, POSITIVE, setting
from ig2.errors import InputError
from ig2.evaluation import Evaluation
from ig2.paths.base import GrownPath, Memory, Pairs, per_sample
from ig2.paths.gradpath import L2, NORM, Norm, take_step, where_free
from ig2.task import Task


@dataclass(frozen=True)
class Sign(Norm):
    """Steps of ℓ∞ length one, sign(g): all features move equally far, as in the fast gradient sign attack [Goodfellow 2015]."""

    def step(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient.sign(), gradient.flatten(1).any(dim=1).to(gradient.dtype)

    def length(self, displacement: Tensor) -> Tensor:
        return displacement.flatten(1).abs().amax(dim=1)


@dataclass(frozen=True)
class _Attack(GrownPath):
    """Steps of constant length inside the bounds, until the prediction changes; needs no reference."""

    steps: int = 50
    step_size: float = setting(0.1, POSITIVE)
    norm: Norm = setting(L2(), NORM)
    uses_reference = False
    ends_in_counterfactual = True

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor | None:
        return None if step == 0 else ~memory["flipped"]

    def _move(self, pairs: Pairs, point: Tensor, ascent: Tensor, memory: Memory) -> Tensor:
        """One step down `ascent`, inside the bounds."""
        direction, scale = self.norm.step(where_free(ascent, pairs.bounds))
        return take_step(pairs, point, direction, self.step_size * scale, memory)


@dataclass(frozen=True)
class Descent(_Attack):
    """Gradient descent of the output until the predicted class changes, the path of MFABA [Zhu 2024a]; needs no reference.

    p₀ = x, pₜ₊₁ = clip(pₜ − η·g/‖g‖) with g = ∇f(pₜ): GradPath, with the output in place of the distance. It ends at the first
    point at which the predicted class differs from the explicand's. With a single-output network, which predicts no class, all
    steps are taken. Each step needs one more forward pass for the prediction.

    Args:
        steps: the maximum number of steps.
        step_size: step length η in the data space.
        norm: the norm of a step: `L2()` (the published "sharp") or `Sign()` ("smooth").
    """

    wants_gradient = True

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        assert at.gradient is not None and pairs.task is not None
        reached = self._move(pairs, point, at.gradient, memory)
        before = pairs.task.explicand_scores[pairs.rows].argmax(dim=1)
        memory["flipped"] = pairs.task.session.scores(reached, pairs.rows).argmax(dim=1) != before
        return reached


@dataclass(frozen=True)
class TowardClasses(_Attack):
    """Gradient ascent of other classes, each until that class is predicted [Pan 2021]; needs no reference.

    For each of `classes` other classes c, drawn by the call's seed: p₀ = x, pₜ₊₁ = clip(pₜ + η·sign ∇f_c(pₜ)). With `against=`
    the ascent is still that of f_c alone.

    Args:
        steps: the maximum number of steps towards each class.
        step_size: step length η in the data space.
        norm: the norm of a step.
        classes: the number of other classes; all of them if the network has fewer.

    Raises:
        InputError: if the network has a single output.
    """

    steps: int = 15
    step_size: float = setting(0.05, POSITIVE)
    norm: Norm = setting(Sign(), NORM)
    classes: int = setting(15, COUNT)

    def lines(self, task: Task) -> int:
        return draw_classes(task, task.target[:1], self.classes).shape[1]

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        assert pairs.task is not None and pairs.numbers is not None
        classes = draw_classes(pairs.task, pairs.target, self.classes)
        goal = classes.gather(1, pairs.numbers[:, None] % classes.shape[1])[:, 0]
        scores, gradient = climb(pairs.task, point, pairs.rows, goal)
        memory["flipped"] = scores.argmax(dim=1) == goal
        # where the class is predicted already the path has ended, and the pair leaves before the next step
        descent = -gradient * per_sample(~memory["flipped"], gradient)
        return self._move(pairs, point, descent, memory)


def draw_classes(task: Task, target: Tensor, count: int) -> Tensor:
    """Return classes other than each target (n,), drawn by the call's seed, (n, count); all of
    them, where there are fewer."""
    classes = task.explicand_scores.shape[1]
    if classes == 1:
        raise InputError(
            "the network has a single output, so there is no other class to go to: use ig2.MFABA, which needs none"
        )
    order = torch.randperm(classes, generator=task.generator(), device="cpu").to(target.device)
    others = order.expand(len(target), -1)[order != target[:, None]].view(len(target), classes - 1)
    return others[:, :count]


def climb(task: Task, points: Tensor, rows: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of all classes at the points, (n, classes), and the gradient of one at
    each, (n, ...); against nothing."""
    against, task.session.against = task.session.against, None
    try:
        points = points.detach().requires_grad_()
        scores = task.session.scores_with_graph(points, rows)
        with torch.enable_grad():
            output = scores.gather(1, classes[:, None])
        return scores.detach(), task.session.differentiate(output, points, rows)
    finally:
        task.session.against = against
