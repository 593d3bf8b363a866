"""Explicands of which a part is a reference's, and what the network makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ig2._engine.task import Task
from ig2.errors import ModelError

# Masks that are summed at once: a number that depends on the sample's size alone, so that the sums do not depend on how points
# were batched. Their numbers are bounded: of a photo of 1,024² pixels, 64 windows at once took 1.1 GiB and take 0.15.
BLOCK = 64
MOST_NUMBERS = 1 << 24


def split_masks(count: int, samples: Tensor) -> Iterator[Tensor]:
    """The numbers of `count` masks of samples (n, ...), in pieces that are summed at once."""
    at_once = max(1, min(BLOCK, MOST_NUMBERS // samples[0].numel()))
    return iter(torch.split(torch.arange(count, device=samples.device), at_once))


def run_masked(task: Task, indices: Tensor, references: Tensor, make: Callable[[Tensor, Tensor], Tensor], count: int) -> Tensor:
    """The explained output of explicands of which a part is a reference's.

    Args:
        task: whose samples are masked.
        indices: which of them, (n,).
        references: of all of them, (B, R, ...), on any device.
        make: makes masks as `make(samples, numbers)`, both (m,), with mask numbers below `count`. A mask broadcasts to the
            samples, (m, ...): true, or 1, where the sample's own features stay; between 0 and 1 it mixes the two.
        count: how many masks there are for each.

    Returns:
        The outputs (n, R, count), in float64 on the CPU.

    Raises:
        ModelError: where an output is not finite.
    """
    each, device = references.shape[1], task.x.device
    outputs: list[Tensor] = []

    def work(piece: range) -> None:
        number = torch.arange(piece.start, piece.stop, device=device)
        rows, columns = indices[number // (each * count)], number // count % each
        explicand = task.x[rows]
        reference = references[rows.to(references.device), columns.to(references.device)].to(explicand)
        mask = make(rows, number % count)
        mixed = torch.where(mask, explicand, reference) if mask.dtype == torch.bool else torch.lerp(reference, explicand, mask)
        output = task.session.evaluate(mixed, task.rows[rows], task.target[rows], gradient=False).output
        if not output.isfinite().all():
            bad = int((~output.isfinite()).nonzero()[0])
            raise ModelError(
                f"the output is {float(output[bad])} where reference {int(columns[bad])} replaces a part of explicand "
                f"{int(task.rows[rows[bad]])}: the network fails on such mixtures. Use other references, or float32"
            )
        outputs.append(output.cpu().double())
        task.progress.advance(len(piece))

    task.batch.over(len(indices) * each * count, work)
    return torch.cat(outputs).view(len(indices), each, count)
