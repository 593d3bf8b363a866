"""XRAI: regions of an image, ranked by their mean attribution under another method."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2 import rules
from ig2._utils.settings import COUNT, NOT_NEGATIVE, setting
from ig2.errors import InputError, describe, import_extra
from ig2.methods.base import Method, Result
from ig2.methods.path import PathMethod
from ig2.methods.wrapper import Wrapper
from ig2.model import Bounds
from ig2.paths import Straight
from ig2.paths.blur import check_images
from ig2.references import References, Union, White, Zeros
from ig2.result import Keep
from ig2.task import Task

# Masks as pairs (2, K) of a mask and a cell in it, sorted by mask: there are some hundred masks, each with few cells.
Members = NDArray[np.intp]
# Images are segmented at this many pixels per side, so that scales, sizes and radii have the same meaning for all.
SIDE = 224


@dataclass(frozen=True, eq=False)
class XRAI(Wrapper):
    """XRAI: segments of the image at several scales, selected greedily by the mean attribution of their new pixels
    [Kapishnikov 2019].

    Each pixel is assigned the mean over the pixels selected with it, so the sum of the attribution and the residual are those
    of the underlying method. Attributions are first summed over channels, and a pixel's score is divided equally among its
    channels. The image is segmented at 224 × 224 pixels [Felzenszwalb 2004], to which sizes and radii refer.

    Args:
        method: the method that attributes to pixels; by default Integrated Gradients from black and white.
        scales: the scales of Felzenszwalb's segmentation; larger scales produce larger segments.
        sigma: the standard deviation of the blur before the segmentation.
        min_size: the minimum size of a segment, in pixels.
        dilate: by how many pixels a segment is dilated, so that it contains its edge.
        min_new: the minimum number of new pixels of a segment for it to be selected. The seams that remain between regions at
            the end form one region.

    Raises:
        InputError: if a setting is out of range, or on a call with x other than images.
    """

    method: Method = PathMethod(Straight(1), Union(Zeros(), White()), rules.gauss(50))
    scales: tuple[float, ...] = (50, 100, 150, 250, 500, 1200)
    sigma: float = setting(0.8, NOT_NEGATIVE)
    min_size: int = setting(150, COUNT)
    dilate: int = setting(5, NOT_NEGATIVE)
    min_new: int = setting(50, COUNT)
    needs_places = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scales or not all(scale > 0 for scale in self.scales):
            raise InputError(f"scales must be positive numbers, got {describe(self.scales)}")

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        check_images(task.x, "XRAI")
        segment = import_extra("skimage.segmentation", "image", "XRAI").felzenszwalb
        result = self.method.run_checked(task, references, Keep())
        cells = np.unique(_cell_of(*task.x.shape[-2:]))
        values = torch.empty_like(task.x)
        for row, (image, attribution) in enumerate(zip(task.x, result.values, strict=True)):
            masks = self._masks(segment, _scale(image, task.session.model.bounds), cells)
            ranked = rank_pixels(attribution.sum(dim=0).double().cpu().numpy(), masks, self.min_new)
            values[row] = torch.from_numpy(ranked / len(image)).to(values)
        return replace(result, values=values, spread=None)

    def _masks(self, segment: Any, image: NDArray[np.float64], cells: NDArray[np.intp] | None = None) -> Members:
        """Return the dilated segments of all scales; for a small image, only in the cells that its pixels fall on."""
        masks, count = [], 0
        for scale in self.scales:
            with warnings.catch_warnings():
                # for more than three channels, which work here as well as three
                warnings.filterwarnings("ignore", message="Got image with third dimension")
                labels = segment(image, scale=scale, sigma=self.sigma, min_size=self.min_size, channel_axis=-1)
            masks.append(grow(labels, self.dilate, cells) + np.array([[count], [0]]))
            count += int(labels.max()) + 1
        return np.concatenate(masks, axis=1)


def _scale(image: Tensor, bounds: Bounds | None) -> NDArray[np.float64]:
    """Resize an image (C, H, W) to (SIDE, SIDE, C) between −1 and 1, the range for which the scales were chosen."""
    image = image.double().cpu()
    low, high = (torch.as_tensor(limit).to(image) for limit in bounds or (image.min(), image.max()))
    span = high - low
    image = 2 * (image - low) / span.where(span > 0, 1.0) - 1
    if image.shape[1:] != (SIDE, SIDE):
        image = nn.functional.interpolate(image[None], (SIDE, SIDE), mode="bilinear", antialias=True)[0]
    return image.permute(1, 2, 0).contiguous().numpy()


def grow(labels: NDArray[np.integer[Any]], radius: int, cells: NDArray[np.intp] | None = None) -> Members:
    """Return the masks of a map of labels 0 … M − 1, each dilated by a disc; by default in all cells.

    All masks are dilated at once: a pixel is in the mask of every label found within `radius` of it.
    """
    height, width = labels.shape
    cells = np.arange(height * width) if cells is None else cells
    cell_labels = labels.ravel()[cells]
    masks = np.zeros((int(labels.max()) + 1, len(cells)), dtype=np.bool_)
    masks[cell_labels, np.arange(len(cells))] = True
    # cells beyond the edge have the nearest label inside, which is nearer to the pixel than they are
    padded = np.pad(labels, radius, mode="edge")
    for down in range(-radius, radius + 1):
        reach = math.isqrt(radius**2 - down**2)
        for right in range(-reach, reach + 1):
            moved = padded[radius + down :, radius + right :][:height, :width].ravel()[cells]
            other = np.flatnonzero(moved != cell_labels)  # few, away from the seams
            masks[moved[other], other] = True
    holder, held = np.nonzero(masks)
    return np.stack([holder, cells[held]])


def _cell_of(height: int, width: int) -> NDArray[np.intp]:
    """Return the cell of the segmentation that each pixel of an image falls on, (H·W,)."""
    down, right = (((np.arange(size) + 0.5) * SIDE / size).astype(np.intp) for size in (height, width))
    return (down[:, None] * SIDE + right).ravel()


def rank_pixels(attribution: NDArray[np.float64], masks: Members, min_new: int) -> NDArray[np.float64]:
    """Return for each pixel of a map (H, W) the mean over its region, given masks of SIDE × SIDE cells.

    The mask with the highest mean over the remaining pixels, the first in a tie, repeatedly claims them as a region. The seams
    that remain at the end form one region.
    """
    height, width = attribution.shape
    # Pixels that fall on the same cell of the segmentation are always claimed together, so a cell represents all of them.
    cell_of = _cell_of(height, width)
    least = max(1.0, min_new * attribution.size / SIDE**2)
    region = take_regions(attribution.ravel(), cell_of, masks, least)[cell_of]
    means = np.bincount(region, attribution.ravel()) / np.maximum(np.bincount(region), 1)
    ranked: NDArray[np.float64] = means[region].reshape(height, width)
    return ranked


def take_regions(attribution: NDArray[np.float64], cell_of: NDArray[np.intp], masks: Members, least: float) -> NDArray[np.intp]:
    """Return the number of the region that claimed each cell, (cells,); cells that remain at the end form the last region.

    Args:
        attribution: the attribution of each pixel, (P,).
        cell_of: the cell of each pixel, (P,).
        masks: pairs of a mask and a cell in it, (2, K).
        least: the minimum number of new pixels of a mask.
    """
    # Integer sums are exact: subtracting the pixels of one region at a time leaves the sum of the rest, where floats would
    # leave rounding errors that decide ties.
    scale = 2.0 ** (61 - math.ceil(math.log2(len(attribution))))
    largest = float(np.abs(attribution).max()) or 1.0
    whole = np.rint(attribution / largest * scale).astype(np.int64)

    holder, held = masks
    cells = int(max(held.max(), cell_of.max())) + 1
    value, weight = np.zeros(cells, dtype=np.int64), np.bincount(cell_of, minlength=cells)
    np.add.at(value, cell_of, whole)
    cells_of = np.split(held, np.cumsum(np.bincount(holder))[:-1])
    # the masks that contain cell 0, then cell 1 and so on: those of cell c begin at `first[c]` and number `times[c]`
    holders = holder[np.argsort(held, kind="stable")]
    times = np.bincount(held, minlength=cells)
    first = np.cumsum(times) - times
    total, count = np.zeros(len(cells_of), dtype=np.int64), np.zeros(len(cells_of), dtype=np.int64)
    np.add.at(total, holder, value[held])
    np.add.at(count, holder, weight[held])

    region = np.full(cells, -1, dtype=np.intp)
    regions = 0
    while (count >= least).any():
        best = int(np.where(count >= least, total / np.maximum(count, 1), -np.inf).argmax())
        new = cells_of[best][region[cells_of[best]] < 0]
        region[new] = regions
        regions += 1
        held_by = times[new]
        touched = holders[np.arange(held_by.sum()) + np.repeat(first[new] - np.cumsum(held_by) + held_by, held_by)]
        np.subtract.at(total, touched, np.repeat(value[new], held_by))
        np.subtract.at(count, touched, np.repeat(weight[new], held_by))
    region[region < 0] = regions
    return region
