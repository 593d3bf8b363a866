"""Methods whose maps are blurred, or summed over regions, while their sum is preserved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ig2._utils.blur import check_free, check_sigma, find_space, smooth
from ig2.errors import InputError, describe
from ig2.groups import Groups, check_numbers, number_groups
from ig2.methods.base import Result
from ig2.methods.wrapper import Wrapper, of_wrapped
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task

Move = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Redistributed(Wrapper):
    """Base class of wrappers that move a method's values between features and leave its other results unchanged."""

    complete = of_wrapped("complete")
    follows_paths = of_wrapped("follows_paths")
    runs_once = of_wrapped("runs_once")
    takes_own_gradients = of_wrapped("takes_own_gradients")

    @abstractmethod
    def prepare_move(self, task: Task) -> Move:
        """Return a function that moves values (B, ...) of the task's explicands and preserves their sums."""

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        move = self.prepare_move(task)  # raises on unsuitable inputs before the method has run
        return self.method.run_checked(task, references, keep).redistribute(move)


@dataclass(frozen=True, eq=False)
class Smoothed(Redistributed):
    """Any method, with its map blurred by a Gaussian that preserves the sum.

    φ′ = G(σ) ∗ φ along each spatial axis, separately for each channel. The map is mirrored at the edges, so that each value is
    distributed among its neighbours and none is lost: the blurred map sums to the same change in the output.
    `attribution.smooth(sigma)` does the same to an existing attribution, without computing it again.

    Residual, trust, arrival and curves are the method's. The attribution of each reference is also blurred; the spread is that
    of the blurred ones with `per_reference=True`, and otherwise None. Several inputs are each blurred.

    Args:
        method: the method whose maps are blurred.
        sigma: σ, the standard deviation in pixels; 0 changes nothing, and one larger than the image leaves only the mean.
        axes: the spatial axes of x; by default the last two of images (B, C, H, W) and the last three of volumes. Required for
            signals (B, C, T), (-1,), and grey images (B, H, W), (-2, -1).

    Raises:
        InputError: on a call with x without spatial axes, such as texts and tables, or with features that are `ig2.Fixed`.

    >>> import ig2
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()
    >>> attribution = Smoothed(ig2.IntegratedGradients(), sigma=2.0)(net, torch.rand(1, 1, 8, 8))
    >>> attribution.verdict
    'sums to the change in the output'
    """

    sigma: float
    axes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sigma(self.sigma)

    def prepare_move(self, task: Task) -> Move:
        inputs = task.session.inputs
        check_free(inputs.held)

        def move(values: Tensor) -> Tensor:
            return inputs.map(values, lambda piece: smooth(piece, self.sigma, find_space(piece, self.axes)))

        for piece in inputs.split(task.x[:1]):
            find_space(piece, self.axes)  # raises if there are no spatial axes
        return move


@dataclass(frozen=True, eq=False)
class Pooled(Redistributed):
    """Any method, with its values averaged over each region.

    φ′ᵢ = Σ_{j ∈ R(i)} φⱼ / |R(i)|, where R(i) is the region of feature i. Sums are preserved; residual, trust, arrival and
    curves are the method's, and the spread is as in `Smoothed`. Features that are `ig2.Fixed` are assigned zero.

    Args:
        method: the method whose maps are averaged.
        regions: `Grid(rows, columns)`, `Superpixels(count)` or another `Groups`; an integer tensor of region numbers that
            broadcasts to a sample, such as (H, W) for an image, or to the batch, such as (B, 1, H, W); or a function of
            x (B, ...) that returns such a tensor. Several inputs count as one row, with their features concatenated.

    Raises:
        InputError: on a call with x that the regions do not fit.

    >>> import ig2
    >>> net = lambda x: x.flatten(1).sum(dim=1)
    >>> x = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
    >>> Pooled(ig2.IntegratedGradients(), ig2.Grid(1, 2))(net, x).values.round(decimals=3)
    tensor([[[[2., 4.],
              [2., 4.]]]])
    """

    regions: Groups | Tensor | Callable[[Tensor], Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.regions, Tensor):
            check_numbers(self.regions, "regions")
        elif not isinstance(self.regions, Groups) and (not callable(self.regions) or isinstance(self.regions, type)):
            raise InputError(
                "regions must be Grid(rows, columns), Superpixels(count), a tensor of integers or a function of x that returns "
                f"one, got {describe(self.regions)}"
            )

    def prepare_move(self, task: Task) -> Move:
        labels = self._number(task).flatten(1)
        moves = task.session.inputs.moves
        free = torch.ones_like(labels, dtype=torch.bool) if moves is None else moves[task.rows].expand(task.x.shape).flatten(1)
        # regions of different samples are distinct
        rows = torch.arange(len(labels), device=labels.device)[:, None].expand_as(labels)
        names, region = torch.unique(torch.stack([rows[free], labels[free]]), dim=1, return_inverse=True)
        sizes = torch.bincount(region, minlength=names.shape[1])

        def move(values: Tensor) -> Tensor:
            sums = values.new_zeros(len(sizes)).index_add(0, region, values.flatten(1)[free])
            moved = torch.zeros_like(values.flatten(1))
            moved[free] = (sums / sizes)[region]
            return moved.view_as(values)

        return move

    def _number(self, task: Task) -> Tensor:
        """Return the region number of each feature, (B, ...)."""
        if isinstance(self.regions, (Groups, Tensor)):
            return number_groups(self.regions, task, "regions")
        labels = torch.as_tensor(self.regions(task.x), device=task.x.device)
        check_numbers(labels, "regions")
        try:
            return labels.expand(task.x.shape)
        except RuntimeError as error:
            raise InputError(
                f"regions(x) returned {describe(labels)}: it does not broadcast to x, {describe(task.x)}"
            ) from error
