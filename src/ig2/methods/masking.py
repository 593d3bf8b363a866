"""The network's outputs at explicands partly replaced by a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ig2.errors import ModelError
from ig2.task import Task

# The number of masks summed at once depends only on the sample's size, so that the sums do not depend on batching. Their
# elements are bounded: for a photo of 1,024² pixels, 64 windows at once took 1.1 GiB, and now take 0.15.
BLOCK = 64
MOST_NUMBERS = 1 << 24
# Samples of more numbers are not copied for each of their points: photos took a third longer.
FEW_NUMBERS = 1 << 12


def take_class(scores: Tensor, target: Tensor) -> Tensor:
    """Return the output of the explained class of each point, (n,)."""
    return scores.gather(1, target[:, None])[:, 0]


def split_masks(count: int, samples: Tensor) -> Iterator[Tensor]:
    """Split the numbers of `count` masks for samples (n, ...) into chunks that are summed at once."""
    at_once = max(1, min(BLOCK, MOST_NUMBERS // samples[0].numel()))
    return iter(torch.split(torch.arange(count, device=samples.device), at_once))


def run_masked(
    task: Task,
    indices: Tensor,
    references: Tensor,
    make: Callable[[Tensor, Tensor], Tensor],
    count: int,
    read: Callable[[Tensor, Tensor], Tensor] = take_class,
) -> Tensor:
    """Return the explained output of explicands partly replaced by each reference.

    Args:
        task: the task whose explicands are masked.
        indices: the indices of the explicands to mask, (n,).
        references: the references of all explicands, (B, R, ...), on any device.
        make: a function `make(samples, numbers)` of sample indices and mask numbers below `count`, both (m,), that returns
            masks that broadcast to the samples, (m, ...): true, or 1, keeps the explicand's features; values between 0 and 1
            mix the two.
        count: the number of masks for each explicand.
        read: a function of the outputs of all classes (m, classes) and the explained class of each
            point (m,) that returns the output, (m,).

    Returns:
        The outputs (n, R, count), in float64 on the CPU.

    Raises:
        ModelError: if an output is not finite.
    """
    total, device = references.shape[1], task.x.device
    outputs: list[Tensor] = []

    def work(piece: range) -> None:
        number = torch.arange(piece.start, piece.stop, device=device)
        rows, columns = indices[number // (total * count)], number // count % total
        mask = make(rows, number % count)
        parts = [slice(0, len(piece))]
        if task.x[0].numel() > FEW_NUMBERS:  # one explicand and reference at a time, which broadcast
            edges = range(piece.start // count * count, piece.stop, count)
            parts = [slice(max(0, edge - piece.start), edge + count - piece.start) for edge in edges]
        mixed = task.x.new_empty(len(piece), *task.x.shape[1:])
        for part in parts:
            row, column = (each[part] if len(parts) == 1 else each[part][:1] for each in (rows, columns))
            explicand = task.x[row]
            reference = references[row.to(references.device), column.to(references.device)].to(explicand)
            if mask.dtype == torch.bool:
                torch.where(mask[part], explicand, reference, out=mixed[part])
            else:
                torch.lerp(reference, explicand, mask[part], out=mixed[part])
        output = read(task.session.scores(mixed, task.rows[rows]), task.target[rows])
        if not output.isfinite().all():
            wrong = ~output.isfinite()
            bad = int(wrong.nonzero()[0])
            raise ModelError(
                f"the output is {float(output[bad])} where reference {int(columns[bad])} replaces a part of explicand "
                f"{int(task.rows[rows[bad]])}: the network fails on such mixtures. Use other references, or float32",
                rows=sorted(set(task.rows[rows[wrong]].tolist())),
            )
        outputs.append(output.cpu().double())
        task.progress.advance(len(piece))

    task.batch.over(len(indices) * total * count, work)
    return torch.cat(outputs).view(len(indices), total, count)
