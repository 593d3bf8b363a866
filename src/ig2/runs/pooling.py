"""Sums of values over the fields of a grid, or over regions of each image."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2.groups import Groups
from ig2.runs.rows import Cells

POOLED_AT_ONCE = 2**20  # values, as float64: what fits into caches, and memory that is not faulted in anew
GPU_SHARE = 16  # times as many on a GPU, where a launch takes longer than a pass through a cache


def label_planes(groups: Groups, samples: Tensor) -> Tensor:
    """Return the group of each position of images, (B, H, W)."""
    size = samples.shape[-2:]
    return groups.labels(samples.cpu()).expand(len(samples), *[1] * (samples.ndim - 3), *size).reshape(len(samples), *size)


def list_members(labels: Tensor) -> Tensor:
    """Return the positions of each group, (groups, size of the largest), padded with the position after the last.

    >>> list_members(torch.tensor([[0, 1], [2, 1]]))
    tensor([[0, 4],
            [1, 3],
            [2, 4]])
    """
    flat = labels.flatten()
    sizes, order = torch.bincount(flat), flat.argsort(stable=True)
    members = torch.full((len(sizes), int(sizes.max())), len(flat))
    members[flat[order], torch.arange(len(flat)) - (sizes.cumsum(0) - sizes)[flat[order]]] = order
    return members


def pool(members: Tensor, values: Tensor) -> Tensor:
    """Return the sums of values (B, ..., H, W) over channels and over groups shared by all samples, (B, groups).

    Sums are in float64 and in a fixed order: that of `index_add` on a GPU varies between calls.
    """
    step = max(1, POOLED_AT_ONCE * (GPU_SHARE if values.is_cuda else 1) // max(1, values[0].numel()))
    sums = [values.new_zeros((0, len(members)), dtype=torch.float32)]
    for first in range(0, len(values), step):
        part = values[first : first + step]
        plane = part.reshape(len(part), -1, part.shape[-2] * part.shape[-1]).sum(dim=1, dtype=torch.float64)
        padded = torch.nn.functional.pad(plane, (0, 1))  # zero, after the last place
        sums.append(padded[:, members].sum(dim=-1).float())
    return torch.cat(sums)


def pool_each(groups: Groups, samples: Tensor, values: Tensor) -> dict[str, Cells]:
    """Return the sum of the values of each group, and the groups' positions, for images with individual groups."""
    labels = label_planes(groups, samples)
    step, sums = max(1, POOLED_AT_ONCE // max(1, values[0].numel())), list[Any]()
    for first in range(0, len(values), step):
        part, label = values[first : first + step], labels[first : first + step]
        plane = part.reshape(len(part), -1, *part.shape[-2:]).sum(dim=1, dtype=torch.float64)
        sizes = label.flatten(1).amax(dim=1) + 1
        width = int(sizes.max())
        places = label + width * torch.arange(len(part))[:, None, None]
        total = torch.zeros(len(part) * width, dtype=plane.dtype).index_add_(0, places.reshape(-1), plane.reshape(-1))
        rows = total.float().numpy().reshape(len(part), width)
        sums += [row[:size] for row, size in zip(rows, sizes.tolist(), strict=True)]
    return {"values": sums, "regions": labels.numpy().astype(np.uint16)}
