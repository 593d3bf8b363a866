"""Max-sensitivity: how much an attribution changes near the explicand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, POSITIVE, Accepted, setting
from ig2.methods.base import Method
from ig2.metrics.base import Case, Scores
from ig2.metrics.reattribution import Reattribution, original_seed
from ig2.references.base import as_references
from ig2.result import Keep
from ig2.task import Task


def _is_order(norm: object) -> bool:
    return isinstance(norm, (int, float)) and not isinstance(norm, bool) and norm > 0


@dataclass(frozen=True, eq=False)
class MaxSensitivity(Reattribution):
    """The largest relative change of the attribution near x, max ‖φ(x′) − φ(x)‖ / ‖φ(x)‖ over draws of x′ [Yeh 2019].

    x′ is x with uniform noise of at most `radius` in each feature, inside the model's bounds; the explained class is that of x.
    Every explicand gets the same noise. If φ(x) is zero, the score is not defined.

    Args:
        method: the method that computed the attribution, or a function with the same call,
            method(model, x, target=..., references=..., seed=...), that returns an `Attribution` or a tensor. It gets the seed
            of the attribution, or that of the metric's call if the attribution is a plain tensor.
        references: the references of the attribution.
        radius: the radius of the L∞ ball, in the data space.
        draws: the number of samples from the ball.
        norm: the order of the norm, 2 for the Euclidean one.

    Raises:
        InputError: if the method, applied to the explicands again, does not reproduce the attribution.
    """

    references: Any = None
    radius: float = setting(0.02, POSITIVE)
    draws: int = setting(10, COUNT)
    norm: float = setting(2.0, Accepted(_is_order, "a positive number or infinity"))
    name = "max-sensitivity"
    better = "lower"

    @property
    def needs_gradient(self) -> bool:  # type: ignore[override]
        # a method of this library runs in the metric's own session
        return isinstance(self.method, Method) and self.method.needs_gradient

    def run(self, case: Case) -> Scores:
        self.check_reproduces(case)
        norm = self._norm(case.values)
        largest = self._change(case).amax(dim=1)
        return Scores.where_defined(largest / norm, {"the attribution is zero, and changes are relative to it": norm == 0})

    def _change(self, case: Case) -> Tensor:
        """Return ‖φ(x′) − φ(x)‖ for each draw, (B, draws)."""
        task, noise = case.task, self._noise(case.task)
        changes = torch.zeros(len(task), self.draws, dtype=case.values.dtype, device=task.x.device)

        def move(rows: Tensor, draws: Tensor) -> Tensor:
            x = task.x[rows] + noise[draws.cpu()].to(task.x)
            bounds = task.session.model.bounds
            return x if bounds is None else x.clamp(*(torch.as_tensor(b, dtype=x.dtype, device=x.device) for b in bounds))

        if not isinstance(self.method, Method):
            rows = torch.arange(len(task), device=task.x.device)
            for draw in range(self.draws):
                points = move(rows, torch.full_like(rows, draw))
                values = self.attribute_again(case.model, case, points)
                changes[:, draw] = self._norm(values - case.values)
            return changes
        method = self.method
        references = as_references(self.references) if self.references is not None else method.default_references

        def work(piece: range) -> None:
            number = torch.arange(piece.start, piece.stop, device=task.x.device)
            rows, draws = number // self.draws, number % self.draws
            # in the session that is open, where x′ goes by the number of its explicand: references that are the
            # explicand's own, or never the explicand itself, stay what they are
            moved = replace(task, x=move(rows, draws), rows=task.rows[rows], target=task.target[rows], seed=original_seed(case))
            changes[rows, draws] = self._norm(method.run_checked(moved, references, Keep()).values - case.values[rows])

        task.batch.over(changes.numel(), work)
        return changes

    def _norm(self, values: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(values.flatten(1), self.norm, dim=1)
        return norm

    def _noise(self, task: Task) -> Tensor:
        """Return the noise of each draw, (draws, ...), on the CPU."""
        # from a seed of its own: straight from the task's generator it would be the noise that references are made with
        seed = int(torch.randint(2**62, (), generator=task.generator(), device="cpu"))
        shape = (self.draws, *task.x.shape[1:])
        noise = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, device="cpu")
        return self.radius * (2 * noise - 1)
