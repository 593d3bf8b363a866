"""The gradient, and the gradient times the input."""

from __future__ import annotations

import torch

from ig2.methods.base import Method, Result
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task


class Gradient(Method):
    """The gradient ∂f/∂x, the output's response to a small change [Simonyan 2014]; without a baseline or a meaningful sum.

    >>> Gradient()(lambda x: x @ torch.tensor([[2.0], [-1.0]]), torch.ones(1, 2)).values
    tensor([[ 2., -1.]])
    """

    runs_once = True

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        values = torch.empty_like(task.x)
        task.progress.expect(len(task))

        def work(piece: range) -> None:
            rows = slice(piece.start, piece.stop)
            if task.graph is not None and len(piece) == len(task):
                points, scores = task.graph
                with torch.enable_grad():
                    output = scores.gather(1, task.target[:, None])
                values[rows] = task.session.differentiate(output, points, task.rows)
            else:
                gradient = task.session.evaluate(task.x[rows], task.rows[rows], task.target[rows]).gradient
                assert gradient is not None
                values[rows] = gradient
            task.progress.advance(len(piece))

        task.batch.over(len(task), work)
        return Result(values)


class InputXGradient(Gradient):
    """x ⊙ ∂f/∂x, in the data space [Shrikumar 2016]. For a linear output without bias this is each feature's contribution.

    >>> InputXGradient()(lambda x: x @ torch.tensor([[2.0], [-1.0]]), torch.tensor([[3.0, 4.0]])).values
    tensor([[ 6., -4.]])
    """

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        return Result(task.x * super().run(task, references, keep).values)
