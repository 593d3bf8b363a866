"""Reading a picture at places that depend on the input, as deformable attention does."""

from __future__ import annotations

from itertools import product
from math import factorial

import torch
from torch import Tensor

from ig2._engine.slopes.operations import Operation, find_slope, replace_slope


def sample_grid(call: Operation, recorded: list[Tensor]) -> Tensor:
    """f(z, g), linear in the picture z, at places g: with z̄ = ½(z + z′), Δf = ½(f(Δz, g) + f(Δz, g′)) + f(z̄, g) − f(z̄, g′).

    The latter is a function of the two or three coordinates of each place. Each coordinate gets its secant, averaged over where
    the others may be with Shapley's weights, under which the changes sum to the whole.
    """
    (z, grid), (z_far, grid_far) = call.args[:2], call.at(recorded).args[:2]

    def read(picture: Tensor, places: Tensor) -> Tensor:
        return call.func(picture, places, *call.args[2:], **call.kwargs)  # type: ignore[no-any-return]

    source = (read(z, grid.detach()) + read(z, grid_far.detach())) / 2
    if not grid.requires_grad:
        return replace_slope(source, call.value())
    channels, axes = z.shape[1], grid.shape[-1]
    with torch.no_grad():  # each channel alone, since each has a slope of its own
        picture = ((z + z_far) / 2).flatten(0, 1)[:, None]
        ends = [each.repeat_interleave(channels, 0) for each in (grid, grid_far)]

    def change(axis: int, others: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the change at both places of an axis, the others at one end each; and the mean
        derivative."""
        values, derivatives = [], []
        for end in (0, 1):
            chosen = [*others[:axis], end, *others[axis:]]
            places = torch.stack([ends[which][..., number] for number, which in enumerate(chosen)], dim=-1).requires_grad_()
            with torch.enable_grad():
                y = read(picture, places)
                (derivative,) = torch.autograd.grad(y.sum(), places)
            values.append(y.detach())
            derivatives.append(derivative[:, None, ..., axis])
        return values[0], values[1], (derivatives[0] + derivatives[1]) / 2

    def join(channel: Tensor) -> Tensor:
        return channel.reshape(source.shape)

    for axis in range(axes):
        total = [torch.zeros_like(source) for _ in range(3)]
        for others in product((0, 1), repeat=axes - 1):
            weight = factorial(sum(others)) * factorial(axes - 1 - sum(others)) / factorial(axes)
            total = [so_far + weight * join(part) for so_far, part in zip(total, change(axis, others), strict=True)]
        step = (grid - grid_far).detach()[..., axis][:, None]
        source = source + find_slope(step, *total) * grid[..., axis][:, None]
    return replace_slope(source, call.value())
