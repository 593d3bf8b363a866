"""Groups of features: rectangles and regions of an image, windows of time, or groups numbered by the user."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, POSITIVE, Accepted, Settings, required, setting
from ig2.errors import InputError, describe, import_extra
from ig2.task import Task


class Groups(Settings, ABC):
    """Base class of divisions of a sample into groups of features that are present or absent together."""

    @abstractmethod
    def labels(self, samples: Tensor) -> Tensor:
        """Return the group of each feature, integers (B, ...) or (1, ...) that broadcast to samples (B, ...)."""


@dataclass(frozen=True)
class Grid(Groups):
    """A grid of `rows` × `columns` rectangles of about equal size, each over all channels."""

    rows: int = required(COUNT)
    columns: int = required(COUNT)

    def labels(self, samples: Tensor) -> Tensor:
        _check_plane(samples, "a grid of groups")
        height, width = samples.shape[-2:]
        if self.rows > height or self.columns > width:
            raise InputError(
                f"a grid of {self.rows} × {self.columns} has more cells than an image of {height} × {width} pixels"
            )
        row = torch.arange(height, device=samples.device) * self.rows // height
        column = torch.arange(width, device=samples.device) * self.columns // width
        return (row[:, None] * self.columns + column).expand(1, *[1] * (samples.ndim - 3), height, width)


@dataclass(frozen=True)
class Superpixels(Groups):
    """About `count` regions of similar colour, computed for each image by SLIC [Achanta 2012].

    Args:
        count: the requested number of regions; SLIC may find somewhat fewer.
        compactness: how square the regions are. Higher values give colour less weight.
    """

    count: int = required(COUNT)
    compactness: float = setting(10.0, POSITIVE)

    def labels(self, samples: Tensor) -> Tensor:
        _check_plane(samples, "superpixels")
        slic = import_extra("skimage.segmentation", "image", "superpixels").slic
        images = samples if samples.ndim == 4 else samples[:, None]
        # SLIC brings every image to 0…1, and three channels to Lab, where brightness goes to 100
        compactness = self.compactness if images.shape[1] == 3 else self.compactness / 100
        options = {"n_segments": self.count, "compactness": compactness, "start_label": 0, "channel_axis": -1}
        segments = [slic(image.permute(1, 2, 0).numpy(), **options) for image in images.cpu().double()]
        labels = torch.stack([torch.from_numpy(segment).long() for segment in segments]).to(samples.device)
        return labels if samples.ndim == 3 else labels[:, None]


@dataclass(frozen=True)
class Windows(Groups):
    """Windows of time of `length` steps each, the last of them shorter if the series does not divide evenly.

    Args:
        length: window length, in time steps.
        time_axis: the time axis of x: −1 for signals (B, C, T) and (B, T), 1 for series (B, T, C).
        each_channel: if True, each channel has its own windows; by default a window spans all channels.
        stride: the number of steps from the start of one window to the next; by default `length`. With fewer, windows overlap,
            which only `ig2.Occlusion` supports.

    Raises:
        InputError: if length or stride is not a positive integer, stride is more than length, or windows overlap where each
            time step must be in exactly one.

    >>> Windows(2).labels(torch.zeros(1, 1, 5))
    tensor([[[0, 0, 1, 1, 2]]])
    """

    length: int = required(COUNT)
    time_axis: int = -1
    each_channel: bool = False
    stride: int | None = setting(None, COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride is not None and self.stride > self.length:
            raise InputError(
                f"stride={self.stride} leaves gaps between windows of {self.length} steps: make it {self.length} or less"
            )

    @property
    def overlap(self) -> bool:
        """Whether windows overlap, so that a time step is in several of them."""
        return self.stride is not None and self.stride < self.length

    def labels(self, samples: Tensor) -> Tensor:
        if self.overlap:
            raise InputError(
                f"windows of {self.length} steps with stride={self.stride} overlap, and here each step of time must be in one: "
                "omit stride, or use ig2.Occlusion"
            )
        axis = find_time(samples, self.time_axis)
        window = torch.arange(samples.shape[axis], device=samples.device) // self.length
        shape = [1] * samples.ndim
        shape[axis] = len(window)
        if not self.each_channel:
            return window.view(shape)
        others = [size for number, size in enumerate(samples.shape) if number not in (0, axis)]
        channels = torch.arange(math.prod(others), device=samples.device).view(*others, 1)
        return (channels * (int(window[-1]) + 1) + window).movedim(-1, axis - 1)[None]


def find_time(samples: Tensor, time_axis: int) -> int:
    """Return the time axis of samples (B, ...), counted from the front.

    Raises:
        InputError: if the samples have no such axis.
    """
    axes = [*range(1, samples.ndim), *range(1 - samples.ndim, 0)]
    if isinstance(time_axis, bool) or time_axis not in axes:
        raise InputError(f"time_axis must be an axis of {describe(samples)} but the first, got {describe(time_axis)}")
    return time_axis % samples.ndim


def _is_numbering(labels: Tensor) -> bool:
    return not (labels.is_floating_point() or labels.is_complex() or labels.ndim == 0)


def check_numbers(labels: Tensor, name: str) -> None:
    """Raise an `InputError` unless labels are integers that number the groups."""
    if not _is_numbering(labels):
        raise InputError(f"{name} must be numbered by integers, one for each feature, got {describe(labels)}")


def _numbers_groups(groups: object) -> bool:
    return isinstance(groups, Groups) or (isinstance(groups, Tensor) and _is_numbering(groups))


GROUPS = Accepted(_numbers_groups, "Grid(rows, columns), Superpixels(count), Windows(length) or a tensor of integers")
"""What a setting takes that divides the features into groups."""


def number_groups(groups: Groups | Tensor | None, task: Task, name: str = "groups") -> Tensor:
    """Return the group of each feature as the user numbered them, (B, ...); by default each feature is its own group.

    Args:
        groups: groups, or integers that broadcast to a sample or to all explicands.
        task: the call, with the samples whose features are numbered.
        name: the name of the groups in error messages.

    Raises:
        InputError: if integers broadcast neither to a sample nor to all explicands.
    """
    shape = task.x.shape
    if groups is None:
        return torch.arange(task.x[0].numel(), device=task.x.device).view(shape[1:]).expand(shape)
    if isinstance(groups, Groups):
        return groups.labels(task.x).expand(shape)
    mask = groups.to(device=task.x.device, dtype=torch.long)
    if _broadcasts(mask.shape, shape[1:]):
        return mask.expand(shape)
    if len(mask) == len(task.session.inputs) and _broadcasts(mask.shape[1:], shape[1:]):
        mask = mask[task.rows]
        return mask.view(len(mask), *[1] * (len(shape) - mask.ndim), *mask.shape[1:]).expand(shape)
    raise InputError(
        f"{name} are {describe(groups)}: they fit neither a sample {tuple(shape[1:])} nor all {tuple(shape)} of them"
    )


def count_groups(labels: Tensor) -> Tensor:
    """Renumber the labels (B, ...) of each sample from 0, in their order, with those of no group (−1) last, (B, features)."""
    # last, so that what is random for the others does not depend on whether there is padding
    labels = labels.long()
    rows = torch.where(labels < 0, labels.max() - labels, labels).flatten(1)
    return torch.stack([torch.unique(row, return_inverse=True)[1] for row in rows])


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    sizes = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, wanted) for size, wanted in sizes)


def _check_plane(samples: Tensor, purpose: str) -> None:
    if samples.ndim not in (3, 4):
        raise InputError(f"{purpose} needs images (B, C, H, W) or (B, H, W), got {describe(samples)}")
