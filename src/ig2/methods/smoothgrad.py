"""SmoothGrad: the mean of a method over noised copies of the explicand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2.errors import InputError, ModelError, describe
from ig2.methods.base import Method, Result
from ig2.references.base import References


@dataclass(frozen=True, eq=False)
class SmoothGrad(Method):
    """Any method, averaged over copies of the explicand with Gaussian noise, which stay inside the model's bounds.

    Every explicand gets the same noise, and its copies are contrasted with the references that are its own. The residual
    is against the output of the explicand itself, without noise.

    Args:
        method: what is averaged, for example `Gradient()` or `IG2()`.
        samples: how many copies.
        sigma: the standard deviation of the noise, as a share of each explicand's range from its smallest value to its
            largest (of each tensor, where x is several). An explicand that is constant therefore gets none.
        relative: False takes sigma as it is, in the data space.
        squared: the mean of squares, SmoothGrad². It has no sign, no baseline and no residual.
    """

    method: Method
    samples: int = 20
    sigma: float = 0.15
    relative: bool = True
    squared: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise InputError(
                f"SmoothGrad goes around a method, for example SmoothGrad(Gradient()), got {describe(self.method)}"
            )
        if not isinstance(self.samples, int) or isinstance(self.samples, bool) or self.samples < 1:
            raise InputError(f"samples must be a positive integer, got {describe(self.samples)}")
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"sigma must be a positive number, got {describe(self.sigma)}")
        # the call takes them for this method's own
        object.__setattr__(self, "default_references", self.method.default_references)
        object.__setattr__(self, "needs_gradient", self.method.needs_gradient)

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        noise, size = self._noise(task), self._size(task)
        values = torch.zeros_like(task.x)
        baseline_outputs: Tensor | None = None

        def work(piece: range) -> None:
            nonlocal baseline_outputs
            number = torch.arange(piece.start, piece.stop, device=task.x.device)
            of, which = number // self.samples, number % self.samples
            copies = task.x[of] + size[of] * noise[which.cpu()].to(task.x)
            if task.session.model.bounds is not None:
                low, high = (
                    torch.as_tensor(bound, dtype=copies.dtype, device=copies.device) for bound in task.session.model.bounds
                )
                copies = copies.clamp(low, high)
            found = self.method.run(replace(task, x=copies, rows=task.rows[of], target=task.target[of]), references, Keep())
            if found.baseline_outputs is not None and baseline_outputs is None:
                baseline_outputs = found.baseline_outputs.new_zeros(len(task), found.baseline_outputs.shape[1])
            for i, row in enumerate(of.tolist()):
                # one copy after the other in a fixed order: the mean does not depend on how copies were batched
                values[row] += (found.values[i].square() if self.squared else found.values[i]) / self.samples
                if found.baseline_outputs is not None and baseline_outputs is not None:
                    baseline_outputs[row] += found.baseline_outputs[i] / self.samples

        task.batch.over(len(task) * self.samples, work)
        sound = values.flatten(1).isfinite().all(dim=1)
        if not sound.all():
            raise ModelError(
                f"the values of explicand {int(task.rows[~sound][0])} are too large for their type: explain an output that is "
                "scaled down, or use squared=False",
                rows=task.rows[~sound].tolist(),
            )
        return Result(values, None if self.squared else baseline_outputs)

    def _noise(self, task: Task) -> Tensor:
        """Standard normal noise for each copy, (samples, ...), on the CPU."""
        # from a seed of its own: straight from the task's generator it would be the noise that references are made with
        seed = int(torch.randint(2**62, (), generator=task.generator(), device="cpu"))
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(self.samples, *task.x.shape[1:], generator=generator, dtype=torch.float64, device="cpu")

    def _size(self, task: Task) -> Tensor:
        """The standard deviation of the noise at each feature, (B, ...)."""
        if not self.relative:
            return torch.full_like(task.x, self.sigma)
        flat = task.x.flatten(1)
        pieces = torch.split(flat, [shape.numel() for _, shape, _ in task.session.inputs.attributed], dim=1)
        ranges = [(p.amax(dim=1, keepdim=True) - p.amin(dim=1, keepdim=True)).expand_as(p) for p in pieces]
        return self.sigma * torch.cat(ranges, dim=1).view_as(task.x)
