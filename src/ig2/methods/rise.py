"""RISE: the mean output over random masks, weighted by what each lets through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, describe
from ig2.methods.base import Method, Result
from ig2.methods.masking import run_masked, split_masks
from ig2.paths.blur import check_images
from ig2.references.base import References, draw_references
from ig2.references.constant import Zeros


@dataclass(frozen=True, eq=False)
class RISE(Method):
    """RISE: how large the output is, in the mean over random masks, where a place is let through [Petsiuk 2018].

    φ(p) = (1 / (N·probability)) Σₙ f(x ⊙ Mₙ + r ⊙ (1 − Mₙ))·Mₙ(p). A mask M is a grid of zeros and ones, enlarged linearly
    by whole cells and shifted at random by less than one. All explicands have the same masks. The map is divided equally among
    x's channels. No gradients are needed. The values are outputs, not changes of it: what has no influence has the mean
    output, and their sum means nothing. Published is r = 0; with several references the map is the mean.

    Args:
        masks: their number N. The noise of the map falls with its square root.
        cells: of the grid on each side.
        probability: that a cell is let through.
        centred: whether the mean output over the masks is subtracted before they are summed, so that what has no influence
            has a value of zero up to noise. Published is False.

    >>> x = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])
    >>> RISE(masks=2000, cells=2)(lambda x: x[:, 0, 0, :1], x).values.flatten().argmax()
    tensor(0)
    """

    masks: int = 4000
    cells: int = 7
    probability: float = 0.5
    centred: bool = False
    default_references: ClassVar[References | None] = Zeros()
    needs_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count(self.masks, "masks")
        check_count(self.cells, "cells")
        if not (is_number(self.probability) and 0 < self.probability < 1):
            raise InputError(f"probability must lie between 0 and 1, got {describe(self.probability)}")

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        check_images(task.x, "RISE (other samples are for ig2.Occlusion or ig2.KernelSHAP)")
        samples = draw_references(self.require_references(references), task)
        task.progress.expect(len(task) * samples.shape[1] * self.masks)
        masks = _Masks.draw(self, task)
        rows = torch.arange(len(task), device=task.x.device)
        outputs = run_masked(task, rows, samples, lambda _, numbers: masks.make(numbers)[:, None], self.masks).mean(dim=1)
        if self.centred:
            outputs = outputs - outputs.mean(dim=1, keepdim=True)
        maps = task.x.new_zeros(len(task), *task.x.shape[-2:])
        for numbers in split_masks(self.masks, task.x):
            maps += torch.einsum("bn,nhw->bhw", outputs[:, numbers.cpu()].to(task.x), masks.make(numbers))
        maps /= self.masks * self.probability * task.x.shape[1]
        return Result(maps[:, None].expand_as(task.x).clone())


@dataclass(frozen=True)
class _Masks:
    """The grids and shifts of all masks, which are enlarged when they are needed."""

    grids: Tensor  # (N, cells, cells)
    shifts: Tensor  # of each mask's corner in the enlarged grid, (N, 2)
    cell: tuple[int, int]  # its size
    size: tuple[int, int]  # of a mask

    @classmethod
    def draw(cls, rise: RISE, task: Task) -> _Masks:
        generator, (height, width) = task.generator(), task.x.shape[-2:]
        cell = -(-height // rise.cells), -(-width // rise.cells)
        grids = torch.rand(rise.masks, rise.cells, rise.cells, generator=generator, dtype=torch.float64, device="cpu")
        shifts = torch.rand(rise.masks, 2, generator=generator, dtype=torch.float64, device="cpu") * torch.tensor(
            cell, device="cpu"
        )
        return cls((grids < rise.probability).to(task.x), shifts.long().to(task.x.device), cell, (height, width))

    def make(self, numbers: Tensor) -> Tensor:
        """The masks of these numbers, (n, H, W)."""
        large = [(self.grids.shape[1] + 1) * length for length in self.cell]
        masks = functional.interpolate(self.grids[numbers, None], large, mode="bilinear", align_corners=False)[:, 0]
        down, across = (
            corner[:, None] + torch.arange(length, device=numbers.device)
            for corner, length in zip(self.shifts[numbers].T, self.size, strict=True)
        )
        return masks[torch.arange(len(numbers), device=numbers.device)[:, None, None], down[:, :, None], across[:, None]]
