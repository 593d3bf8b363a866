"""Maxima: of two tensors, along axes, and in the windows of a pooling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ig2._engine.slopes.operations import Operation, put_together, replace_slope

POOLING = {f"{kind}max_pool{axes}d": axes for kind in ("", "adaptive_") for axes in (1, 2, 3)}
_Maxima = tuple[Tensor, Tensor]  # along the last axis, and where they are


def _largest(z: Tensor, reference: Tensor, maxima: _Maxima, maxima_reference: _Maxima) -> Tensor:
    """Return maxima over the last axis of z, given those of both.

    Where the maximum grew, the place of the new one gets all of the change, otherwise the place of the old one. The value
    there changed by as much or more, so the multiplier is between 0 and 1.
    """
    (y, place), (y_reference, place_reference) = maxima, maxima_reference
    chosen = torch.where(y >= y_reference, place, place_reference)
    source = z.gather(-1, chosen)
    with torch.no_grad():
        step = source - reference.gather(-1, chosen)
        slope = torch.where(step == 0, 1.0, (y - y_reference) / step)
    return replace_slope(source, y, slope)


def pool(call: Operation, recorded: list[Tensor]) -> Any:
    """Max pooling: the rule for a maximum in each window."""
    (z,), (reference,) = call.variables, recorded
    name = call.name.removesuffix("_with_indices")
    axes, pool = POOLING[name], getattr(nn.functional, f"{name}_with_indices")
    options = {key: value for key, value in call.kwargs.items() if key != "return_indices"}
    with torch.no_grad():
        pooled, pooled_reference = (pool(each, *call.args[1:], **options) for each in (z, reference))
        returns_indices = isinstance(call.at([z[:1]]).result(), tuple)
    lines, lines_reference = (tuple(each.flatten(-axes) for each in both) for both in (pooled, pooled_reference))
    largest = _largest(z.flatten(-axes), reference.flatten(-axes), lines, lines_reference).view_as(pooled[0])
    return (largest, pooled[1]) if returns_indices else largest


def maximum(call: Operation, recorded: list[Tensor]) -> Any:
    """Return the larger or smaller of two tensors, of which one may be constant; or the largest or
    smallest along some axes or all."""
    sign = -1 if "min" in call.name else 1

    def lines(call: Operation) -> Any:
        second = call.argument(1, "other")
        if isinstance(second, Tensor):
            both = torch.broadcast_tensors(call.args[0], second)  # type: ignore[no-untyped-call]
            return put_together(torch.stack, both, dim=-1) * sign
        z, dims = call.args[0], call.argument(1, "dim")
        dims = tuple(range(z.ndim)) if dims in (None, ()) else (dims,) if isinstance(dims, int) else tuple(dims)
        return z.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims)) * sign

    z, reference = lines(call), lines(call.at(recorded))
    largest = _largest(z, reference, _maxima(z), _maxima(reference)) * sign
    result = call.value()
    if isinstance(result, tuple):
        return type(result)((largest.view_as(result[0]), result[1]))
    return largest.view_as(result)


def _maxima(lines: Tensor) -> _Maxima:
    values, places = lines.detach().max(dim=-1, keepdim=True)
    return values, places
