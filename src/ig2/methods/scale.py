"""The scale of a map: any method's values blurred, or summed over regions, with their sum kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2._utils.blur import check_free, check_sigma, find_space, smooth
from ig2.errors import InputError, describe
from ig2.groups import Groups, check_numbers, number_groups
from ig2.methods.base import Result
from ig2.methods.wrapper import Wrapper
from ig2.references.base import References

Move = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Redistributed(Wrapper):
    """A method whose values are moved between the features afterwards; all else it knows of them stays."""

    @property
    def complete(self) -> bool:
        return self.method.complete

    @property
    def follows_paths(self) -> bool:  # type: ignore[override]
        return self.method.follows_paths

    @property
    def runs_once(self) -> bool:  # type: ignore[override]
        return self.method.runs_once

    @property
    def takes_own_gradients(self) -> bool:  # type: ignore[override]
        return self.method.takes_own_gradients

    @abstractmethod
    def prepare_move(self, task: Task) -> Move:
        """Return what moves values (B, ...) of the task's samples; it keeps their sums."""

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        move = self.prepare_move(task)  # refuses what it cannot move before the method's work is done
        return self.method.run(task, references, keep).redistribute(move)


@dataclass(frozen=True, eq=False)
class Smoothed(Redistributed):
    """Any method on a larger scale: its map blurred by a Gaussian, its sum kept.

    φ′ = G(σ) ∗ φ along each axis that is space, channel by channel. The map is mirrored at the edges, so that each value is
    shared out among its neighbours and none is lost: what the method accounts for, its blurred map accounts for.
    `attribution.smooth(sigma)` does the same to what a method returned, without computing it again.

    Residual, trust, arrival and curves are the method's. Each reference's own attribution is blurred too; the spread is that
    of the blurred ones with `per_reference=True`, and otherwise None. Of several inputs each is blurred.

    Args:
        method: whose maps are blurred.
        sigma: the standard deviation in pixels; 0 changes nothing, and one larger than the image leaves its mean.
        axes: the axes of x that are space; by default the last two of images (B, C, H, W), the last three of volumes. Name
            them for signals (B, C, T), (-1,), and grey images (B, H, W), (-2, -1).

    Raises:
        InputError: when it is called on x without space, such as texts and tables, or with features that are `ig2.Fixed`.

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
            find_space(piece, self.axes)  # refuses what has no space
        return move


@dataclass(frozen=True, eq=False)
class Pooled(Redistributed):
    """Any method on the scale of regions: its values summed over each, and the sum divided equally among its features.

    φ′ᵢ = Σ_{j ∈ R(i)} φⱼ / |R(i)|, where R(i) is the region of feature i. Sums are kept; residual, trust, arrival and curves
    are the method's, and the spread is as in `Smoothed`. Features that are `ig2.Fixed` get nothing.

    Args:
        method: whose maps are summed.
        regions: `Grid(rows, columns)`, `Superpixels(count)`, another `Groups`; integers that number the regions and broadcast
            to a sample, such as (H, W) for an image, or to all of them, such as (B, 1, H, W); or a function of x (B, ...) that
            returns such integers. Several inputs count as one row, their features laid end to end.

    Raises:
        InputError: when it is called on x that the regions do not fit.

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
        # regions of different samples are different ones
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
        """Each feature's region, (B, ...)."""
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
