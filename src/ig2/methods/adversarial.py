"""Methods based on adversarial attacks: MFABA, AGI, BIG, LA and AttEXplore. None needs references."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ig2 import rules
from ig2._utils.settings import COUNT, NOT_NEGATIVE, POSITIVE, setting
from ig2.methods.base import Method, Result
from ig2.methods.integrated import IntegratedGradients, draw_line
from ig2.methods.path import PathMethod
from ig2.paths import L2, Descent, Norm, Path, Sign, TowardClasses
from ig2.paths.base import clamp_, per_sample
from ig2.paths.descent import climb, draw_classes
from ig2.references.base import References
from ig2.references.boundary import Boundary
from ig2.result import Keep
from ig2.rules import Rule
from ig2.task import Task


class MFABA(PathMethod):
    """MFABA: gradients along a descent of the output until another class is predicted [Zhu 2024a]; without references.

    φ = Σₜ ∇f(pₜ) ⊙ (pₜ − pₜ₊₁) on `ig2.paths.Descent`. With the rule `left` this is the published sum, whose residual
    decreases with the step length; with a complete rule the values sum to f(x) − f(end). The published code explains the
    probability, `output="probability"`, with steps of 0.1 in ℓ2 ("sharp") or of 0.001 in each feature ("smooth", inside a
    ball of radius 0.3).

    Args:
        steps: the maximum number of steps.
        step_size: step length in the data space.
        norm: the norm of a step: `L2()` for "sharp", `Sign()` for "smooth".
        rule: the rule that turns gradients on the path into attributions.
    """

    needs_classes = True

    def __init__(self, steps: int = 50, step_size: float = 0.1, norm: Norm = L2(), rule: Rule = rules.left) -> None:
        super().__init__(Descent(steps, step_size, norm), None, rule)


class AGI(PathMethod):
    """Adversarial Gradient Integration as published in the paper: paths towards other classes, without references [Pan 2021].

    φ = mean over classes c of Σₜ ∇f_y(pₜ) ⊙ (pₜ − pₜ₊₁) on `ig2.paths.TowardClasses`, which is the paper's sum over classes
    divided by their number. The published code restarts every step at the image and so follows no path, and it uses classes at
    fixed positions of ImageNet's list, where ours are drawn by the seed. In both f is the probability, and here too, also of
    a model whose output is the logit: that is explained by `ig2.PathMethod(ig2.paths.TowardClasses())`.

    Args:
        steps: the maximum number of steps towards each class.
        step_size: how far each feature moves in a step, in the data space.
        classes: the number of other classes; all of them if the network has fewer.
        rule: the rule that turns gradients on the paths into attributions.
    """

    needs_classes = True
    explains_probability = True

    def __init__(self, steps: int = 15, step_size: float = 0.05, classes: int = 15, rule: Rule = rules.left) -> None:
        super().__init__(TowardClasses(steps, step_size, Sign(), classes), None, rule)


class BIG(IntegratedGradients):
    """Boundary-based IG: Integrated Gradients from the nearest point across the decision boundary [Wang 2021].

    φ = (x − x′) ⊙ ∫₀¹ ∇f(x′ + t·(x − x′)) dt with x′ from `ig2.references.Boundary`. References passed to the call replace it.

    Args:
        steps: the number of gradients.
        attacks: the paths that search for the boundary.
        rule: as for `ig2.IntegratedGradients`.
    """

    default_references = None
    needs_classes = True

    def __init__(
        self, steps: int = 50, attacks: tuple[Path, ...] = Boundary().attacks, rule: Rule | None = None,
    ) -> None:  # fmt: skip
        path, rule = draw_line(steps, rule)
        PathMethod.__init__(self, path, Boundary(attacks), rule)


@dataclass(frozen=True, eq=False)
class LA(Method):
    """Local Attribution: steps proportional to each feature's value, always from the image [Zhu 2024c]; without references.

    For each of `classes` − 1 other classes c: q₀ = x, qₜ₊₁ = clip(x + x/s ⊙ sign ∇f_c(qₜ)), and once more down f_y itself;
    φ = mean over these of Σₜ ∇f_y(qₜ) ⊙ (x − qₜ₊₁), with the probability as f. Every step starts at x again, so there is no
    path and no baseline, and the sum has no meaning. The published code sums the probabilities over the batch, so that its
    result for a sample depends on the other samples.

    Args:
        steps: the number of steps for each class.
        step_size: 1/s.
        classes: the number of classes, including the explained one; the others are drawn by the call's seed.

    Raises:
        InputError: if a setting is not positive, or if the network has a single output.
    """

    steps: int = setting(30, COUNT)
    step_size: float = setting(0.1, POSITIVE)
    classes: int = setting(20, COUNT)
    needs_classes = True
    takes_own_gradients = True
    explains_probability = True

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        others = draw_classes(task, task.target, self.classes)[:, : self.classes - 1]
        goals = torch.cat([others, task.target[:, None]], dim=1)
        lines = goals.shape[1]
        values = torch.zeros_like(task.x)
        task.progress.expect(len(task) * lines * self.steps)

        def work(piece: range) -> None:
            number = torch.arange(piece.start, piece.stop, device=task.x.device)
            row, goal = number // lines, goals.flatten()[piece.start : piece.stop]
            x, rows, target = task.x[row], task.rows[row], task.target[row]
            point, sums = x, torch.zeros_like(x)
            for _ in range(self.steps):
                _, slope = climb(task, point, rows, goal)
                # ascending the explained class leads nowhere: its line descends
                slope = torch.where(per_sample(goal == target, slope), -slope, slope)
                gradient = task.session.evaluate(point, rows, target).gradient
                assert gradient is not None
                point = clamp_(x + self.step_size * x * slope.sign(), task.session.model.bounds)
                sums += gradient * (x - point)
            for place, value in zip(row.tolist(), sums, strict=True):
                values[place] += value / lines  # in a fixed order: the mean does not depend on how lines were batched
            task.progress.advance(len(row) * self.steps)

        task.batch.over(len(task) * lines, work)
        return Result(values)


@dataclass(frozen=True, eq=False)
class AttEXplore(Method):
    """AttEXplore: descent of a gradient averaged over noisy, frequency-altered copies [Zhu 2024b]; without references.

    ĝₜ = mean over n copies of ∇f(C⁻¹(C(pₜ + ε) ⊙ M)) with C the cosine transform, ε ~ N(0, σ²) and M ~ U(1 − ρ, 1 + ρ); mₜ =
    mₜ₋₁ + ĝₜ / mean|ĝₜ|, pₜ₊₁ = clip(pₜ − η·sign mₜ), and φ = Σₜ mₜ ⊙ (pₜ − pₜ₊₁). As mₜ has no scale, the sum of the values
    has no meaning.

    The published code descends the cross-entropy, which leads towards the class and not away from it, resizes the copies at
    random and blurs ĝₜ by 7 pixels; ours does none of the three. As in the published code, copies are not clamped to the
    bounds.

    Args:
        steps: the number of steps.
        step_size: η, in the data space.
        copies: the number n of copies for each step.
        sigma: σ, the standard deviation of the noise, in the data space.
        rho: ρ, the largest relative change of a frequency.

    Raises:
        InputError: if step_size, sigma or rho is negative.
    """

    steps: int = setting(10, COUNT)
    step_size: float = setting(0.0063, NOT_NEGATIVE)
    copies: int = setting(20, COUNT)
    sigma: float = setting(0.063, NOT_NEGATIVE)
    rho: float = setting(0.5, NOT_NEGATIVE)
    needs_places = True  # neighbours, whose frequencies mean something

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        values = torch.zeros_like(task.x)
        task.progress.expect(len(task) * self.steps)

        def work(piece: range) -> None:
            part = slice(piece.start, piece.stop)
            point, rows, target = task.x[part], task.rows[part], task.target[part]
            generator = task.generator()  # the same copies for every explicand
            momentum, sums = torch.zeros_like(point), torch.zeros_like(point)
            for _ in range(self.steps):
                mean = torch.zeros_like(point)
                for _ in range(self.copies):
                    shape = point.shape[1:]
                    noise = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").to(point)
                    mask = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu").to(point)
                    frequencies = transform(point + self.sigma * noise) * (1 + self.rho * (2 * mask - 1))
                    copy = transform(frequencies, inverse=True)
                    gradient = task.session.evaluate(copy, rows, target).gradient
                    assert gradient is not None
                    mean += gradient / self.copies
                size = mean.flatten(1).abs().mean(dim=1)
                momentum = momentum + mean / per_sample(size.where(size > 0, 1.0), mean)
                reached = clamp_(point - self.step_size * momentum.sign(), task.session.model.bounds)
                sums += momentum * (point - reached)
                point = reached
            values[part] = sums
            task.progress.advance(len(piece) * self.steps)

        task.batch.over(len(task), work)
        return Result(values)


def transform(samples: Tensor, inverse: bool = False) -> Tensor:
    """Return the orthonormal cosine transform (DCT-II) of samples (n, ...) over their last two axes, or their only one."""
    for axis in range(max(1, samples.ndim - 2), samples.ndim):
        size = samples.shape[axis]
        line = torch.arange(size, dtype=torch.float64, device="cpu")
        matrix = torch.cos(math.pi / size * (line + 0.5) * line[:, None]) * math.sqrt(2 / size)
        matrix[0] /= math.sqrt(2)
        matrix = matrix.to(samples)
        samples = (samples.movedim(axis, -1) @ (matrix if inverse else matrix.T)).movedim(-1, axis)
    return samples
