"""Whether secants account for the change in the output, and what to say where they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from ig2.errors import warn
from ig2.task import Task

# A sum further than this share from the change in the output is worth a warning.
ADDITIVE_WITHIN = 0.01
# How many explicands that are off are run again, the worst first, before none is worth a warning.
MOST_SUSPECTS = 8
# So many roundings of the values and outputs are no miss: in float32 deep networks 40 were seen where float64 is exact.
ROUNDINGS = 64
# Integrated Gradients is tried in so many steps on the pair that is off.
STEPS, STEPS_AT_ONCE = 64, 8


def check_additivity(
    task: Task, missing: Tensor, change: Tensor, size: Tensor, find_segments: Callable[[Tensor, Tensor], Tensor]
) -> bool:
    """Return whether all sums match the change in the output to rounding; warn where an operation
    without a secant is why not.

    Args:
        task: whose explicands were attributed.
        missing: the sum of each pair's values less the change in its output, (B, R).
        change: that change, (B, R).
        size: of what was summed and subtracted, (B, R).
        find_segments: draws the path of a pair, given its explicand and its reference as (1,) each: the near and the far ends
            of its segments, (2, T, ...).
    """
    off, change, size = missing.mean(dim=1).abs(), change.mean(dim=1).abs(), size.mean(dim=1)
    # of the coarsest type that is computed in: a bfloat16 network on float32 inputs was "off by 4.5%"
    types = set(task.session.precisions)
    if torch.is_autocast_enabled(task.x.device.type):
        types.add(torch.get_autocast_dtype(task.x.device.type))
    precision = max((torch.finfo(dtype) for dtype in types), key=lambda info: info.eps)
    # and the smallest steps there are: float16 has none below 6e-8
    rounding = ROUNDINGS * precision.eps * (size + change + precision.smallest_normal)
    wrong = off > ADDITIVE_WITHIN * change + rounding
    # what cancels inside the network is rounded by more than the output shows
    suspects = torch.where(wrong, off / (change + rounding), -1.0).argsort(descending=True)[: int(wrong.sum())]
    for worst in suspects[:MOST_SUSPECTS].tolist():
        row = torch.tensor([worst], device=off.device)
        near, far = find_segments(row, missing[worst].abs().argmax()[None])
        culprits = _find_culprits(task, near, far, row, precision.eps)
        if culprits is None:
            continue
        share = f", {float(off[worst] / change[worst]):.1%} of its change" if change[worst] > 0 else " of no change at all"
        named = ", ".join(name if number == 1 else f"{name} ({number} times)" for name, number in sorted(culprits.items()))
        cause = (
            f"The network has operations without a secant: {named}"
            if named
            else "No single operation is at fault: look for rounding"
        )
        advice = _advise(task, near[0], far[-1], row)
        warn(
            f"the secants do not account for the change in the output of {int(wrong.sum())} of {len(task)} explicands: "
            f"explicand {int(task.rows[worst])} is off by {float(off[worst]):.3g}{share}. {cause}. {advice}"
        )
        break
    return not wrong.any()


def _advise(task: Task, near: Tensor, far: Tensor, row: Tensor) -> str:
    """Return what to do instead, as measured between both ends: where the output jumps, gradients
    miss it too."""
    shares = (torch.arange(STEPS, device=near.device, dtype=near.dtype) + 0.5) / STEPS
    total = torch.zeros_like(near, dtype=torch.float64)
    for some in torch.split(shares, STEPS_AT_ONCE):
        points = torch.lerp(far, near, some.view(-1, *[1] * near.ndim))
        rows, target = (each[row].expand(len(points)) for each in (task.rows, task.target))
        gradient = task.session.evaluate(points, rows, target).gradient
        assert gradient is not None
        total += gradient.double().sum(dim=0) / STEPS
    ends = task.session.evaluate(
        torch.stack([near, far]), *(each[row].expand(2) for each in (task.rows, task.target)), gradient=False
    )
    change = float(ends.output[0] - ends.output[1])
    off = abs(float((total * (near - far)).sum()) - change) / abs(change) if change else 1.0
    measured = f"ig2.ExpectedIG({STEPS}) is off by {off:.1%} of the change there"
    if off <= ADDITIVE_WITHIN:
        return f"{measured}: use it instead, or another rule (ig2.rules.blended)"
    return (
        f"{measured}, too: use a rule whose values sum to the change whatever the network does, ig2.rules.blended or "
        "ig2.rules.scaled(ig2.rules.secant), or read the values as a ranking"
    )


def _find_culprits(task: Task, near: Tensor, far: Tensor, row: Tensor, precision: float) -> Counter[str] | None:
    """Return the operations that have no secant on a path of T segments, (T, ...) each end; None
    where rounding is all that is off."""
    rows, target = task.rows[row], task.target[row]

    def miss(near: Tensor, far: Tensor) -> float:
        multipliers, output, far_output = task.session.find_secants(near[None], far[None], rows, target)
        return float((multipliers * (near - far)).sum() - (output - far_output).sum())

    worst = max(range(len(near)), key=lambda segment: abs(miss(near[segment], far[segment])))
    start, end = near[worst], far[worst]
    # What a rule is missing for stays when the near end moves a little; what rounding leaves of a sum that cancels is another
    # number each time. Moved by some last bits alone it was the same one in 2 of 100 networks.
    misses = [miss(start * (1 + step * precision**0.5), end) for step in range(5)]
    if not all(abs(each - misses[0]) < 0.5 * abs(misses[0]) for each in misses[1:]):
        return None
    return task.session.find_misses(start[None], end[None], rows)
