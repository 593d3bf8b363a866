"""RISE: the mean of random masks, weighted by the output at the explicand masked by each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ig2._utils.settings import COUNT, INSIDE, setting
from ig2.methods.base import Method, Result
from ig2.methods.masking import run_masked, split_masks
from ig2.paths.blur import check_images
from ig2.references.base import References, draw_references
from ig2.references.constant import Zeros
from ig2.result import Keep
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class RISE(Method):
    """RISE: the mean output over random masks that keep a pixel [Petsiuk 2018].

    φ(p) = (1 / (N·probability)) Σₙ f(x ⊙ Mₙ + r ⊙ (1 − Mₙ))·Mₙ(p). A mask M is a grid of zeros and ones, enlarged by linear
    interpolation and shifted at random by less than one cell. All explicands share the same masks. The map is divided equally
    among x's channels. No gradients are needed. The values are outputs, not changes in the output: a pixel without influence
    is assigned the mean output, and the sum has no meaning. The paper uses r = 0; several references are averaged.

    Args:
        masks: the number N of masks. The noise of the map is proportional to 1/√N.
        cells: the number of grid cells on each side.
        probability: the probability that a cell is kept.
        centred: whether to subtract the mean output over the masks first, so that pixels without influence have a value of
            zero up to noise. The paper does not.

    Raises:
        InputError: if probability is not between 0 and 1, or on a call with x other than images.

    >>> x = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])
    >>> RISE(masks=2000, cells=2)(lambda x: x[:, 0, 0, :1], x).values.flatten().argmax()
    tensor(0)
    """

    masks: int = setting(4000, COUNT)
    cells: int = setting(7, COUNT)
    probability: float = setting(0.5, INSIDE)
    centred: bool = False
    default_references = Zeros()
    takes_weights = False
    needs_gradient = False
    needs_places = True

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
    """The grids and shifts of all masks, which are enlarged on demand."""

    grids: Tensor  # (N, cells, cells)
    shifts: Tensor  # of each mask's corner in the enlarged grid, (N, 2)
    cell: tuple[int, int]  # the size of a cell in pixels
    size: tuple[int, int]  # the size of a mask in pixels

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
        """Return the masks with these numbers, (n, H, W)."""
        large = [(self.grids.shape[1] + 1) * length for length in self.cell]
        masks = functional.interpolate(self.grids[numbers, None], large, mode="bilinear", align_corners=False)[:, 0]
        down, across = (
            corner[:, None] + torch.arange(length, device=numbers.device)
            for corner, length in zip(self.shifts[numbers].T, self.size, strict=True)
        )
        return masks[torch.arange(len(numbers), device=numbers.device)[:, None, None], down[:, :, None], across[:, None]]
