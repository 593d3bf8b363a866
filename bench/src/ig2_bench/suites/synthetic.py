"""What the suites without data share: how a method is called, and what it cost."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from ig2._engine.explicands import check_numeric
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.table import Column
from ig2_bench.suite import AtScale, MethodLike, check_returned

COSTS = {
    "forwards": Column("lower", digits=0, about="points the network was run at for each sample", ranked=False),
    "gradients": Column("lower", digits=0, about="taken for each sample; not known of methods from elsewhere", ranked=False),
    "seconds": Column("lower", digits=4, about="for each sample, on this machine", ranked=False),
}


def attribute(
    method: MethodLike, model: Any, x: Tensor, target: Any, references: Tensor, seed: int, last: list[Any] | None = None
) -> tuple[Tensor, dict[str, list[float]]]:
    """Explain x by a method, its own or a user's.

    Args:
        method: what explains.
        model: the network.
        x: the explicands.
        target: their classes.
        references: what to contrast with.
        seed: the random seed.
        last: where the last method and what it returned are kept, so that its scales, which come next, blur that.

    Returns:
        The values, in x's shape and in float64 on the CPU; and the columns `COSTS`, one value each.

    Raises:
        InputError: if the method returned something else than values in x's shape.
    """
    began = time.perf_counter()
    if isinstance(method, AtScale) and last and last[0] is method.method and last[1] is x:
        attribution = method.blur(last[2])
    else:
        # copies: what someone's own method writes into its input must not reach the next one
        attribution = method(model, x.clone(), target, references.clone(), seed=seed)
    if last is not None and not isinstance(method, AtScale):
        last[:] = [method, x, attribution]
    seconds = time.perf_counter() - began
    check_returned(attribution, x)
    values = check_numeric(attribution.values if isinstance(attribution, Attribution) else attribution, "the attribution")
    if values.shape != x.shape:
        raise InputError(f"the attribution is {describe(values)}, expected {tuple(x.shape)}, the shape of x")
    cost = attribution.cost if isinstance(attribution, Attribution) else None
    counts = {name: getattr(cost, name, None) for name in ("forwards", "gradients")}
    costs = {name: [float("nan") if number is None else number / len(x)] for name, number in counts.items()}
    return values.detach().cpu().to(torch.float64), {**costs, "seconds": [seconds / len(x)]}
