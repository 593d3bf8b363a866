"""SmoothGrad: the mean of a method over noised copies of the explicand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, ModelError, describe
from ig2.methods.base import Result
from ig2.methods.wrapper import Wrapper
from ig2.paths.base import clamp_
from ig2.references.base import References


@dataclass(frozen=True, eq=False)
class SmoothGrad(Wrapper):
    """Any method, averaged over n copies of the explicand with Gaussian noise, inside the model's bounds [Smilkov 2017].

    (1/n) Σₖ φ(x + εₖ) with εₖ ~ N(0, σ²). Every explicand gets the same noise, and its copies keep its references. The residual
    is against the output of the explicand itself, without noise.

    Args:
        method: what is averaged, for example `Gradient()` or `IG2()`.
        samples: the number of copies n.
        sigma: the standard deviation of the noise, as a share of each explicand's range from its smallest value to its
            largest (of each tensor, where x is several). An explicand that is constant therefore gets none.
        relative: False takes sigma as it is, in the data space.
        squared: the mean of squares, SmoothGrad² [Hooker 2019]. It has no sign, no baseline and no residual.
    """

    samples: int = 20
    sigma: float = 0.15
    relative: bool = True
    squared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.samples, "samples")
        if not (is_number(self.sigma) and self.sigma > 0):
            raise InputError(f"sigma must be a positive number, got {describe(self.sigma)}")

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        # from a seed of its own: straight from the task's generator it would be the noise that references are made with
        seed = int(torch.randint(2**62, (), generator=task.generator(), device="cpu"))
        shape, generator = (self.samples, *task.x.shape[1:]), torch.Generator().manual_seed(seed)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
        deviation = self._deviation(task)
        values = torch.zeros_like(task.x)
        baseline_outputs: Tensor | None = None

        def work(piece: range) -> None:
            nonlocal baseline_outputs
            number = torch.arange(piece.start, piece.stop, device=task.x.device)
            rows, copies = number // self.samples, number % self.samples
            x = clamp_(task.x[rows] + deviation[rows] * noise[copies.cpu()].to(task.x), task.session.model.bounds)
            result = self.method.run(replace(task, x=x, rows=task.rows[rows], target=task.target[rows]), references, Keep())
            if result.weights is not None and result.baseline_outputs is not None:  # each copy may have weights of its own
                mean = (result.weights * result.baseline_outputs).sum(dim=1, keepdim=True)
                result = replace(result, baseline_outputs=mean, weights=None)
            if result.baseline_outputs is not None and baseline_outputs is None:
                baseline_outputs = result.baseline_outputs.new_zeros(len(task), result.baseline_outputs.shape[1])
            for i, row in enumerate(rows.tolist()):
                # one copy after the other in a fixed order: the mean does not depend on how copies were batched
                values[row] += (result.values[i].square() if self.squared else result.values[i]) / self.samples
                if result.baseline_outputs is not None and baseline_outputs is not None:
                    baseline_outputs[row] += result.baseline_outputs[i] / self.samples

        task.batch.over(len(task) * self.samples, work)
        finite = values.flatten(1).isfinite().all(dim=1)
        if not finite.all():
            raise ModelError(
                f"the values of explicand {int(task.rows[~finite][0])} are too large for their type: explain an output that is "
                "scaled down, or use squared=False",
                rows=task.rows[~finite].tolist(),
            )
        return Result(values, None if self.squared else baseline_outputs)

    def _deviation(self, task: Task) -> Tensor:
        """The standard deviation of the noise at each feature, (B, ...)."""
        if not self.relative:
            return torch.full_like(task.x, self.sigma)
        parts = torch.split(task.x.flatten(1), [shape.numel() for _, shape, _ in task.session.inputs.attributed], dim=1)
        ranges = [(p.amax(dim=1, keepdim=True) - p.amin(dim=1, keepdim=True)).expand_as(p) for p in parts]
        return self.sigma * torch.cat(ranges, dim=1).view_as(task.x)
