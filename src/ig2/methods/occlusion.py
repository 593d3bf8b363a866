"""Occlusion: the drop in the output when a part of the explicand is replaced by a reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from ig2._utils.checks import is_count
from ig2._utils.settings import Accepted, setting
from ig2.errors import InputError
from ig2.groups import GROUPS, Groups, Windows, count_groups, find_time, number_groups
from ig2.methods.base import Method, Result
from ig2.methods.masking import run_masked, split_masks
from ig2.paths.blur import check_images
from ig2.references.base import References, draw_references
from ig2.references.constant import Zeros
from ig2.result import Keep
from ig2.task import Task

Size = int | tuple[int, ...]
SIZE = Accepted(
    lambda size: is_count(size) or (isinstance(size, tuple) and size != () and all(map(is_count, size))),
    "a positive integer, or one for each axis",
)


@dataclass(frozen=True, eq=False)
class Occlusion(Method):
    """Occlusion: the drop in the output when a window, or a group of features, is replaced by the reference [Zeiler 2014].

    For each part P, f(x) − f(x with P replaced by that of r) is divided equally among the features of P. A feature covered by
    several windows is assigned their mean; several references are averaged. No gradients are needed: x may hold integers or
    booleans, and the model may be any function. For grey pass `references=0.5`, for blur
    `references=ig2.references.BlurredExplicand()`.

    Args:
        window: the size of a window that slides over images (C, H, W), across all channels, or over a row of features: an
            integer, or one for each axis. By default 8 pixels, or a single feature of a row.
        stride: the step between windows, an integer or one for each axis; by default the window's size, so that windows do
            not overlap. The last window in each direction is cut off at the edge.
        groups: parts to use instead of a window: `ig2.Grid(rows, columns)`, `ig2.Superpixels(count)`, `ig2.Windows(length)`,
            which may overlap, or an integer tensor of group numbers, as in `ig2.KernelSHAP`.

    Raises:
        InputError: if window or stride is not a positive integer, or if they are combined with groups.

    >>> x = torch.tensor([[3.0, 1.0, 2.0]])
    >>> Occlusion()(lambda x: x[:, :1] * x[:, 1:2] + x[:, 2:], x).values
    tensor([[3., 3., 2.]])
    """

    window: Size | None = setting(None, SIZE)
    stride: Size | None = setting(None, SIZE)
    groups: Groups | Tensor | None = setting(None, GROUPS)
    default_references = Zeros()
    takes_weights = False
    needs_gradient = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups is not None and (self.window, self.stride) != (None, None):
            raise InputError("groups do not slide: omit window and stride, or groups")

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        samples = draw_references(self.require_references(references), task)
        covers, count = self._windows(task) if self.groups is None else _regions(self.groups, task)
        task.progress.expect(len(task) * samples.shape[1] * count)
        rows = torch.arange(len(task), device=task.x.device)
        outputs = run_masked(task, rows, samples, lambda of, numbers: ~covers(of, numbers), count).mean(dim=1)
        falls = (task.output.cpu().double()[:, None] - outputs).to(task.x)
        values, times = torch.zeros_like(task.x), torch.zeros_like(task.x)
        for row in rows.tolist():
            for numbers in split_masks(count, task.x):
                covered = covers(torch.full_like(numbers, row), numbers).to(values).expand(-1, *task.x.shape[1:])
                sizes = covered.flatten(1).sum(dim=1).clamp(min=1)
                values[row] += torch.tensordot(falls[row, numbers] / sizes, covered, dims=1)
                times[row] += covered.sum(dim=0)
        return Result(values / times.clamp(min=1))

    def _windows(self, task: Task) -> tuple[Callable[[Tensor, Tensor], Tensor], int]:
        """Return the function from samples (m,) and window numbers (m,) to coverage masks, and the number of windows."""
        device, axes = task.x.device, 1 if task.x.ndim == 2 else 2
        if axes == 2:
            check_images(task.x, "a window (number the parts of other samples: groups=...)")
        size = task.x.shape[-axes:]
        window = _sizes((8 if axes == 2 else 1) if self.window is None else self.window, size, "window")
        stride = window if self.stride is None else _sizes(self.stride, size, "stride")
        starts = [range(0, max(1, n - w + s), s) for n, w, s in zip(size, window, stride, strict=True)]
        corners = torch.tensor(list(product(*starts)), device=device)

        def covers(rows: Tensor, numbers: Tensor) -> Tensor:
            inside = []
            for axis, length in enumerate(size):
                place = torch.arange(length, device=device) - corners[numbers, axis, None]  # in the window
                inside.append((place >= 0) & (place < window[axis]))
            return inside[0] if axes == 1 else inside[0][:, None, :, None] & inside[1][:, None, None]

        return covers, len(corners)


def _regions(groups: Groups | Tensor, task: Task) -> tuple[Callable[[Tensor, Tensor], Tensor], int]:
    """Do as `_windows`, for groups; of samples with fewer groups, the last cover nothing."""
    if isinstance(groups, Windows) and groups.overlap:
        return _overlapping(groups, task.x)
    labels = count_groups(number_groups(groups, task)).view_as(task.x)
    return lambda rows, numbers: labels[rows] == numbers.view(-1, *[1] * (labels.ndim - 1)), int(labels.max()) + 1


def _overlapping(windows: Windows, samples: Tensor) -> tuple[Callable[[Tensor, Tensor], Tensor], int]:
    """Do as `_windows`, for overlapping windows of time; the last ends with the signal."""
    steps = replace(windows, length=1, stride=None).labels(samples)  # one channel's after the other's
    total, stride = samples.shape[find_time(samples, windows.time_axis)], windows.stride or windows.length
    firsts = torch.arange(0, max(1, total - windows.length + stride), stride, device=samples.device)
    channels = torch.arange(0, int(steps.max()) + 1, total, device=samples.device)  # the first step of each
    starts = (channels[:, None] + firsts).flatten()
    ends = torch.minimum(starts + windows.length, (starts // total + 1) * total)

    def covers(rows: Tensor, numbers: Tensor) -> Tensor:
        start, end = (side[numbers].view(-1, *[1] * (samples.ndim - 1)) for side in (starts, ends))
        return (steps >= start) & (steps < end)

    return covers, len(starts)


def _sizes(size: Size, shape: torch.Size, name: str) -> tuple[int, ...]:
    sizes = size if isinstance(size, tuple) else (size,) * len(shape)
    if len(sizes) != len(shape):
        raise InputError(f"{name}={size} has {len(sizes)} sizes, and there are {len(shape)} axes of places {tuple(shape)}")
    return tuple(min(side, length) for side, length in zip(sizes, shape, strict=True)) if name == "window" else sizes
