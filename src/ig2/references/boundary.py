"""The nearest point across the decision boundary found by adversarial attacks: the reference of BIG."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._engine.integrate import integrate
from ig2._utils.settings import NOT_NEGATIVE, setting
from ig2.errors import InputError, describe, warn
from ig2.paths import Path
from ig2.paths.base import per_sample
from ig2.paths.descent import Descent, Sign
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task


@dataclass(frozen=True)
class Boundary(References):
    """The nearest point across the decision boundary found by adversarial attacks, moved up to the boundary [Wang 2021].

    Each attack is a path that ends in a counterfactual. Bisection moves this end back along the line to the explicand, as far
    as another class is predicted; the nearest of the resulting points in ℓ2 is the reference. If no attack crosses the
    boundary, the end of the last one is used, with a warning. The paper uses the nearest of several attacks without bisection;
    the copy of its code that is common in benchmarks always keeps the point of the first attack.

    Args:
        attacks: the paths, for example `Descent()`.
        bisections: the number of bisections of the line; 0 keeps the points where the attacks ended.

    Raises:
        InputError: if an attack is not a path that ends in a counterfactual, or the network has a single output.
    """

    attacks: tuple[Path, ...] = (Descent(100, 0.01, Sign()), Descent(100, 0.1))
    bisections: int = setting(10, NOT_NEGATIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        for attack in self.attacks or (None,):
            if not (isinstance(attack, Path) and attack.ends_in_counterfactual and not attack.uses_reference):
                raise InputError(f"attacks must be paths such as ig2.paths.Descent(), got {describe(attack)}")

    def draw(self, task: Task) -> Tensor:
        if task.explicand_scores.shape[1] == 1:
            raise InputError("the network has a single output, which has no decision boundary: use another reference")
        every = torch.arange(len(task), device=task.x.device)
        predicted = task.scores(task.x, every).argmax(dim=1)

        def crosses(points: Tensor) -> Tensor:
            return task.scores(points, every).argmax(dim=1) != predicted

        nearest = torch.full((len(task),), torch.inf, device=task.x.device)
        best = task.x
        for attack in self.attacks:
            keep = Keep(baselines=True)
            ends = integrate(task, attack, None, attack.stand_ins(task), keep).gradcf
            assert ends is not None
            for end in ends.unbind(dim=1):
                is_across, far = crosses(end), end
                near = task.x
                for _ in range(self.bisections):
                    middle = torch.lerp(near, far, 0.5)
                    beyond = per_sample(crosses(middle) & is_across, task.x)
                    near, far = torch.where(beyond, near, middle), torch.where(beyond, middle, far)
                far = torch.where(per_sample(is_across, task.x), far, end)
                distance = torch.where(is_across, (far - task.x).flatten(1).norm(dim=1), torch.inf)
                better = (distance < nearest) | (nearest.isinf() & ~is_across)
                best = torch.where(per_sample(better, task.x), far, best)
                nearest = torch.minimum(nearest, distance)
        if missed := int(nearest.isinf().sum()):
            warn(f"no attack crossed the decision boundary for {missed} of {len(task)} explicands: allow more or longer steps")
        return best[:, None]
