"""References for time series and sound computed from the explicand: replacements for removed windows, and surrogates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._utils.checks import check_count
from ig2.errors import InputError, describe
from ig2.groups import find_time
from ig2.paths.base import clamp_
from ig2.references.base import References
from ig2.task import Task


@dataclass(frozen=True)
class TimeMean(References):
    """The mean of each channel over time, at every time step.

    Args:
        time_axis: the time axis of x: −1 for signals (B, C, T) and (B, T), 1 for series (B, T, C).
    """

    time_axis: int = -1

    def draw(self, task: Task) -> Tensor:
        axis = find_time(task.x, self.time_axis)
        return task.x.mean(dim=axis, keepdim=True).expand_as(task.x)[:, None]


@dataclass(frozen=True)
class TimeNoise(References):
    """`count` series of Gaussian noise with the mean and standard deviation of each channel, clipped to the model's bounds.

    Args:
        count: the number of references.
        time_axis: as for `TimeMean`.
    """

    count: int = 1
    time_axis: int = -1

    def __post_init__(self) -> None:
        check_count(self.count)

    def draw(self, task: Task) -> Tensor:
        axis = find_time(task.x, self.time_axis)
        series = task.x.movedim(axis, -1)[:, None]
        mean, std = series.mean(dim=-1, keepdim=True), series.std(dim=-1, keepdim=True, correction=0)
        shape = (self.count, *series.shape[2:])
        noise = torch.randn(shape, generator=task.generator(), dtype=torch.float64, device="cpu").to(series)
        return clamp_((mean + std * noise).movedim(-1, axis + 1), task.session.model.bounds)


@dataclass(frozen=True)
class Interpolated(References):
    """Windows filled by the straight line from the value before to the value after, or by the only neighbour at an end.

    Replacing one window of the explicand creates no jump: it removes the shape of the window, not its level. The windows are
    those of `ig2.Windows(length)`; a single window over the whole series becomes its mean.

    Args:
        length: window length, in time steps.
        time_axis: as for `TimeMean`.

    Raises:
        InputError: if length is not a positive integer.
    """

    length: int
    time_axis: int = -1

    def __post_init__(self) -> None:
        check_count(self.length, "length")

    def draw(self, task: Task) -> Tensor:
        axis = find_time(task.x, self.time_axis)
        series = task.x.movedim(axis, -1)
        steps = series.shape[-1]
        if self.length >= steps:
            return TimeMean(self.time_axis).draw(task)
        time = torch.arange(steps, device=series.device)
        before = time // self.length * self.length - 1
        after = before + 1 + self.length
        share = ((time - before).to(series) / (after.clamp(max=steps) - before).to(series)).clone()
        share[before < 0], share[after >= steps] = 1.0, 0.0  # the only neighbour there is
        filled = torch.lerp(series[..., before.clamp(min=0)], series[..., after.clamp(max=steps - 1)], share)
        return filled.movedim(-1, axis)[:, None]


@dataclass(frozen=True)
class Shifted(References):
    """The explicand shifted circularly in time by `count` random amounts.

    Everything but the timing is kept, so an attribution shows what depends on its position in time. All channels and all
    explicands are shifted by the same amounts.

    Args:
        count: the number of references.
        least: the smallest shift in either direction, in time steps.
        time_axis: as for `TimeMean`.

    Raises:
        InputError: if count or least is not a positive integer, or least is more than half the length of the series.
    """

    count: int = 1
    least: int = 1
    time_axis: int = -1

    def __post_init__(self) -> None:
        check_count(self.count)
        check_count(self.least, "least")

    def draw(self, task: Task) -> Tensor:
        axis = find_time(task.x, self.time_axis)
        steps = task.x.shape[axis]
        if 2 * self.least > steps:
            raise InputError(
                f"least={self.least} is more than half of the {steps} steps of {describe(task.x)}: make it smaller"
            )
        shifts = torch.randint(self.least, steps - self.least + 1, (self.count,), generator=task.generator(), device="cpu")
        return torch.stack([task.x.roll(shift, dims=axis) for shift in shifts.tolist()], dim=1)


@dataclass(frozen=True)
class PhaseRandomised(References):
    """`count` surrogates with the explicand's spectrum and random phases, clipped to the model's bounds [Theiler 1992].

    X′(ω) = X(ω)·exp(iθ(ω)) with uniform θ; the mean is kept and, at an even length, the highest frequency. Everything beyond
    the power spectrum is lost: shapes, timing, order. All channels share the same θ, which preserves the relations between them
    [Prichard 1994], and so do all explicands.

    Args:
        count: the number of references.
        time_axis: as for `TimeMean`.

    Raises:
        InputError: if count is not a positive integer.
    """

    count: int = 1
    time_axis: int = -1

    def __post_init__(self) -> None:
        check_count(self.count)

    def draw(self, task: Task) -> Tensor:
        axis = find_time(task.x, self.time_axis)
        series = task.x.movedim(axis, -1)
        steps = series.shape[-1]
        spectrum = torch.fft.rfft(series)
        draws = torch.rand(self.count, spectrum.shape[-1], generator=task.generator(), dtype=torch.float64, device="cpu")
        angles = 2 * torch.pi * draws
        angles[:, 0] = 0.0
        if steps % 2 == 0:
            angles[:, -1] = 0.0
        turned = torch.polar(torch.ones_like(angles), angles).to(spectrum)
        surrogates = [torch.fft.irfft(spectrum * turn, n=steps).movedim(-1, axis) for turn in turned]
        return clamp_(torch.stack(surrogates, dim=1), task.session.model.bounds)
