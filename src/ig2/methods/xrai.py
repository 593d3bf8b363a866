"""XRAI: regions of an image, ranked by what another method attributes to them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2 import rules
from ig2._engine.inputs import check_numeric
from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2.errors import InputError, describe, import_extra
from ig2.methods.base import Method, Result
from ig2.methods.path import PathMethod
from ig2.methods.wrapper import Wrapper
from ig2.model import Bounds
from ig2.paths import Straight
from ig2.paths.blur import check_images
from ig2.references import References, Union, White, Zeros

# Masks as pairs (2, K) of a mask and a cell that it holds, by mask: of some hundred masks each holds a small part.
Members = NDArray[np.intp]
# Images are segmented at this many pixels a side, so that scales, sizes and radii mean the same for all.
SIDE = 224


@dataclass(frozen=True, eq=False)
class XRAI(Wrapper):
    """Regions of segmentations at several scales, taken one after the other by their new pixels' mean [Kapishnikov 2019].

    Each pixel gets the mean over the pixels that were taken with it, so the sum of the attribution is that of the method
    underneath, and so is the residual. Attributions are summed over channels first; a pixel's score is spread equally over
    its channels. The image is segmented at 224 × 224 pixels [Felzenszwalb 2004], to which sizes and radii refer.

    Args:
        method: what attributes to pixels; by default Integrated Gradients over black and white.
        scales: of Felzenszwalb's segmentation; larger ones give larger segments.
        sigma: of the blur before it.
        min_size: of a segment, in pixels.
        dilate: by how many pixels a segment is grown, so that it holds its own edge.
        min_new: how many pixels not yet taken a segment must bring to be taken. The seams between regions that remain in the
            end make one region together.
    """

    method: Method = PathMethod(Straight(1), Union(Zeros(), White()), rules.gauss(50))
    scales: tuple[float, ...] = (50, 100, 150, 250, 500, 1200)
    sigma: float = 0.8
    min_size: int = 150
    dilate: int = 5
    min_new: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scales or not all(scale > 0 for scale in self.scales):
            raise InputError(f"scales must be positive numbers, got {describe(self.scales)}")
        for name, low in (("sigma", 0), ("min_size", 1), ("dilate", 0), ("min_new", 1)):
            if not getattr(self, name) >= low:
                raise InputError(f"{name} must be at least {low}, got {describe(getattr(self, name))}")

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        check_images(task.x, "XRAI")
        segment = import_extra("skimage.segmentation", "image", "XRAI").felzenszwalb
        result = self.method.run(task, references, Keep())
        check_numeric(result.values, f"the attribution by {type(self.method).__name__}")
        cells = np.unique(_cell_of(*task.x.shape[-2:]))
        values = torch.empty_like(task.x)
        for row, (image, attribution) in enumerate(zip(task.x, result.values, strict=True)):
            masks = self._masks(segment, _scale(image, task.session.model.bounds), cells)
            ranked = rank_pixels(attribution.sum(dim=0).double().cpu().numpy(), masks, self.min_new)
            values[row] = torch.from_numpy(ranked / len(image)).to(values)
        return Result(values, result.baseline_outputs, weights=result.weights)

    def _masks(self, segment: Any, image: NDArray[np.float64], cells: NDArray[np.intp] | None = None) -> Members:
        """The segments of all scales, grown; of a small image, only the cells that stand for its pixels matter."""
        masks, count = [], 0
        for scale in self.scales:
            with warnings.catch_warnings():
                # of more than three channels, which are as good here as three
                warnings.filterwarnings("ignore", message="Got image with third dimension")
                labels = segment(image, scale=scale, sigma=self.sigma, min_size=self.min_size, channel_axis=-1)
            masks.append(grow(labels, self.dilate, cells) + np.array([[count], [0]]))
            count += int(labels.max()) + 1
        return np.concatenate(masks, axis=1)


def _scale(image: Tensor, bounds: Bounds | None) -> NDArray[np.float64]:
    """An image (C, H, W) as (SIDE, SIDE, C) between −1 and 1, the range that the scales were chosen for."""
    image = image.double().cpu()
    low, high = (torch.as_tensor(limit).to(image) for limit in bounds or (image.min(), image.max()))
    span = high - low
    image = 2 * (image - low) / span.where(span > 0, 1.0) - 1
    if image.shape[1:] != (SIDE, SIDE):
        image = nn.functional.interpolate(image[None], (SIDE, SIDE), mode="bilinear", antialias=True)[0]
    return image.permute(1, 2, 0).contiguous().numpy()


def grow(labels: NDArray[np.integer[Any]], radius: int, cells: NDArray[np.intp] | None = None) -> Members:
    """The masks of a map of labels 0 … M − 1, each dilated by a disc; by default of all cells.

    All at once: a pixel is in the mask of every label that is found within `radius` of it.
    """
    height, width = labels.shape
    cells = np.arange(height * width) if cells is None else cells
    cell_labels = labels.ravel()[cells]
    masks = np.zeros((int(labels.max()) + 1, len(cells)), dtype=np.bool_)
    masks[cell_labels, np.arange(len(cells))] = True
    # beyond the edge stands the nearest label inside, which is nearer to the pixel than the place that was asked for
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
    """The cell of the segmentation that each pixel of an image falls on, (H·W,)."""
    down, right = (((np.arange(size) + 0.5) * SIDE / size).astype(np.intp) for size in (height, width))
    return (down[:, None] * SIDE + right).ravel()


def rank_pixels(attribution: NDArray[np.float64], masks: Members, min_new: int) -> NDArray[np.float64]:
    """For each pixel of a map (H, W) the mean over the region that took it, given masks of SIDE × SIDE cells.

    Again and again the mask with the highest mean over pixels not yet taken takes them; the first of equals. The seams that
    remain in the end are one region.
    """
    height, width = attribution.shape
    # Pixels that fall on the same cell of the segmentation are always taken together, so a cell stands for all of them.
    cell_of = _cell_of(height, width)
    least = max(1.0, min_new * attribution.size / SIDE**2)
    region = take_regions(attribution.ravel(), cell_of, masks, least)[cell_of]
    means = np.bincount(region, attribution.ravel()) / np.maximum(np.bincount(region), 1)
    ranked: NDArray[np.float64] = means[region].reshape(height, width)
    return ranked


def take_regions(attribution: NDArray[np.float64], cell_of: NDArray[np.intp], masks: Members, least: float) -> NDArray[np.intp]:
    """The number of the region that took each cell, (cells,); what remains in the end comes last.

    Args:
        attribution: of the pixels, (P,).
        cell_of: the cell of each pixel, (P,).
        masks: the cells that each mask holds.
        least: the number of new pixels that a mask must bring.
    """
    # In integers sums are exact: taking pixels away one region at a time leaves what adding up the rest would give, where
    # floats would leave their rounding and decide ties by it.
    scale = 2.0 ** (61 - math.ceil(math.log2(len(attribution))))
    largest = float(np.abs(attribution).max()) or 1.0
    whole = np.rint(attribution / largest * scale).astype(np.int64)

    holder, held = masks
    cells = int(max(held.max(), cell_of.max())) + 1
    value, weight = np.zeros(cells, dtype=np.int64), np.bincount(cell_of, minlength=cells)
    np.add.at(value, cell_of, whole)
    cells_of = np.split(held, np.cumsum(np.bincount(holder))[:-1])
    # the masks that hold cell 0, cell 1 and so on, one after the other: cell c's begin at `first[c]` and are `times[c]`
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
