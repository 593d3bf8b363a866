"""Networks on signals: time series and sound in, an attribution over time out.

A signal has a time axis and usually a channel axis, in either order: (T, C) for recurrent networks, (C, T) for convolutions. A
subject combines the layout with the sampling rate, the channels' names and the windows that are read as units: a single time
step of a sound has no meaning to a person, and hardly any effect on a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._utils.checks import check_count, is_number
from ig2.errors import InputError, describe, warn
from ig2.groups import Windows
from ig2.modalities.base import Batch, Outputs, Subject, make_model
from ig2.modalities.modality import Modality
from ig2.modalities.samples import Sample
from ig2.modalities.signal.modality import SIGNALS, order_channels
from ig2.modalities.signal.sound import read_sound
from ig2.names import Names
from ig2.views import Curve, sum_bins

Layout = Literal["CT", "TC", "T"]
LAYOUTS: dict[str, int] = {"CT": 2, "TC": 1, "T": 1}  # the axis of x that is time
WINDOWS = 50  # that a signal is divided into, unless a length is given


@dataclass(frozen=True, eq=False, repr=False)
class SignalSubject(Subject):
    """A network on signals, with their layout, rate, channels and windows."""

    layout: Layout
    steps: int
    """The number of time steps that the network takes."""
    rate: float | None = None
    """The sampling rate, in time steps per second."""
    channels: tuple[str, ...] = ("signal",)
    window: int = 1
    """The number of time steps in a window, which is one unit."""
    modality: ClassVar[Modality] = SIGNALS

    @property
    def time_axis(self) -> int:
        """The axis of x that is time."""
        return LAYOUTS[self.layout]

    @property
    def windows(self) -> Windows:
        """The windows as groups for `ig2.KernelSHAP` and other methods, and as features for metrics."""
        return Windows(self.window, self.time_axis)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _list(self, sources: Any) -> Sequence[Any]:
        """Return the samples of a list, or of an array with one more axis than a signal."""
        if isinstance(sources, (list, tuple)):
            return sources
        axes = getattr(sources, "ndim", None)
        return sources if axes == len(self.layout) + 1 else [sources]

    def read_sample(self, sample: Sample) -> Tensor:
        """Return a signal in the subject's layout.

        Args:
            sample: a WAV file (FLAC and OGG with the extra `sound`), or an array or tensor in the
                layout. One that is longer than the network takes is truncated, with a warning.

        Raises:
            InputError: if it cannot be read, is too short, or has another rate or other channels than the network.
        """
        name, source = sample.name, sample.source
        if isinstance(source, (str, PathLike)):
            signal, rate = read_sound(source)
            if self.rate is not None and rate != self.rate:
                raise InputError(f"{name} has {rate:g} steps a second, and {self.name} takes {self.rate:g}: resample it")
            if len(self.channels) == 1:
                signal = signal.mean(axis=1, keepdims=True)
            tensor = torch.from_numpy(signal)
            tensor = tensor[:, 0] if self.layout == "T" else tensor if self.layout == "TC" else tensor.T
        else:
            try:
                tensor = torch.as_tensor(source)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InputError(f"{name} is {describe(source)}: expected a file of sound, an array or a tensor") from error
        tensor = tensor if tensor.is_floating_point() else tensor.float()
        axis = self.time_axis - 1
        count = 1 if self.layout == "T" else tensor.shape[1 - axis] if tensor.ndim == 2 else 0
        if tensor.ndim != len(self.layout) or count != len(self.channels):
            expected = {"T": "(T,)", "TC": f"(T, {len(self.channels)})", "CT": f"({len(self.channels)}, T)"}[self.layout]
            raise InputError(f"{name} is {describe(tensor)}: {self.name} takes signals {expected}, T steps of time")
        if not tensor.isfinite().all():
            raise InputError(f"{name} has NaN or infinite values")
        if tensor.shape[axis] < self.steps:
            raise InputError(f"{name} has {tensor.shape[axis]} steps of time, and {self.name} takes {self.steps}: pad it")
        if tensor.shape[axis] > self.steps:
            unit = "steps" if self.rate is None else "s"
            warn(f"{name} is longer than {self.name} takes: its first {self._format_time(self.steps)} {unit} are explained")
        return tensor.narrow(axis, 0, self.steps).contiguous()

    # -- windows -------------------------------------------------------------------------------------------------------

    def _format_time(self, step: int) -> str:
        return str(step) if self.rate is None else f"{step / self.rate:.4g}"

    @property
    def units(self) -> tuple[str, ...]:
        """The windows, by when they begin and end."""
        unit = " s" if self.rate is not None else ""
        starts = range(0, self.steps, self.window)
        ends = [min(start + self.window, self.steps) for start in starts]
        pairs = zip(starts, ends, strict=True)
        return tuple(f"{self._format_time(start)}–{self._format_time(end)}{unit}" for start, end in pairs)

    def groups(self, batch: Batch) -> tuple[tuple[int, ...], ...]:
        """Return the window of each time step."""
        return (tuple(step // self.window for step in range(self.steps)),) * len(batch)

    def number_units(self, batch: Batch) -> Tensor:
        return self.windows.labels(batch.attributed)[0]

    def names(self, batch: Batch) -> Names:
        return replace(super().names(batch), time_axis=self.time_axis, rate=self.rate, channels=self.channels)

    # -- views ---------------------------------------------------------------------------------------------------------

    def view_sample(self, sample: Tensor) -> Curve:
        return Curve.bin(self._order(sample.detach().cpu().double()).numpy(), self.channels, self.rate)

    def describe_view(self) -> dict[str, Any]:
        return {
            **super().describe_view(),
            **{name: getattr(self, name) for name in ("layout", "steps", "rate", "channels", "window")},
        }

    def fold(self, batch: Batch, values: Tensor) -> list[NDArray[np.float64]]:
        """Return each signal's attribution as its curve shows it: sums over intervals of time, (channels, intervals).

        `attribution.sum_units()` returns a number for each window.
        """
        return [sum_bins(self._order(sample).numpy()) for sample in values]

    def _order(self, sample: Tensor) -> Tensor:
        """Return one sample as (channels, T)."""
        ordered: Tensor = order_channels(sample, self.layout)
        return ordered


# -- networks ----------------------------------------------------------------------------------------------------------


def subject(
    net: Any,
    steps: int,
    layout: Layout = "CT",
    classes: Sequence[str] | None = None,
    *,
    rate: float | None = None,
    channels: Mapping[str, str] | Sequence[str] | int = 1,
    window: float | None = None,
    name: str | None = None,
    outputs: Outputs = "classes",
    clips: Any = None,
) -> SignalSubject:
    """Create a subject from any network that takes signals of one length.

    Args:
        net: a network of x, (B, C, T), (B, T, C) or (B, T); or what `ig2.wrap` made of it, with bounds, another
            representation or output. Sound is from −1 to 1.
        steps: T, the number of time steps it takes.
        layout: the layout of x: `"CT"`, `"TC"` or `"T"`.
        classes: names of the outputs.
        rate: time steps per second; sound files must have this rate, and times are then shown in seconds.
        channels: names of the channels, with the units of their values if known, such as
            `{"lead I": "mV"}`; or their number.
        window: the length of a window, in seconds with a rate, otherwise in time steps. By default about a fiftieth of T.
        name: the name to show; by default the network's class.
        outputs: the kind of outputs: mutually exclusive `"classes"`, independent `"labels"`, or plain `"numbers"`.
        clips: the default signals to choose references from, in any form that `read` accepts, or a function returning them.

    Returns:
        A subject.

    Raises:
        InputError: if an argument is not valid, or inconsistent with the others.

    >>> import ig2
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv1d(2, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 96, 2)).eval()
    >>> heart = subject(net, 100, "CT", ["calm", "racing"], rate=50, channels=["lead I", "lead II"], window=0.2)
    >>> attribution = heart.explain(torch.rand(3, 2, 100), references=ig2.references.PhaseRandomised(2))
    >>> attribution.units[0][:2], attribution.values.shape
    (('0–0.2 s', '0.2–0.4 s'), torch.Size([3, 2, 100]))
    """
    check_count(steps, "steps")
    if layout not in LAYOUTS:
        raise InputError(f"layout={describe(layout)} is unknown: use 'CT' for (B, C, T), 'TC' for (B, T, C) or 'T' for (B, T)")
    if rate is not None and not (is_number(rate) and rate > 0):
        raise InputError(f"rate must be a positive number of steps in a second, got {describe(rate)}")
    if isinstance(channels, int):
        check_count(channels, "channels")
        channels = ["signal"] if channels == 1 else [f"channel {number}" for number in range(channels)]
    if isinstance(channels, Mapping):
        channels = [f"{channel} ({unit})" if unit else channel for channel, unit in channels.items()]
    if isinstance(channels, str) or not channels or (layout == "T" and len(channels) > 1):
        raise InputError(f"channels must be names, one of each; layout 'T' has a single one; got {describe(channels)}")
    length = max(1, steps // WINDOWS) if window is None else round(window * (rate or 1))
    if not 1 <= length <= steps:
        raise InputError(f"window={describe(window)} is {length} of {steps} steps of time: make it between one and all")
    model = make_model(net)
    return SignalSubject(
        name or type(model.net).__name__,
        model,
        classes,
        layout,
        steps,
        rate,
        tuple(map(str, channels)),
        length,
        outputs=outputs,
        samples=clips,
    )
