"""Whether a faster way to run a network gives what the network gives, where rounding may be all that differs.

The gradients of a rough network, an Inception on a GPU for example, are so far off by rounding in
float32 that two right ways to compute them are far apart. Where they are, a few points are computed
in float64 as well: there the copy, made anew, must be the same function, and its float32 must not be
much further off than that of the network itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ig2._engine.acceleration import prepare
from ig2._engine.isolation import isolate
from ig2._engine.network import Network
from ig2._engine.rounding import is_close, tolerance
from ig2.model import Preparation

# What is compared, for a network and arguments: scores and distances (n,), and gradients (n, ...).
Compared = Callable[..., tuple[Tensor, ...]]

# How far, as a share of its length, a gradient of the prepared network may be off; a kernel that is wrong is off by more than
# one. Rounding turns a unit on or off here and there, in half precision many.
GRADIENT_WITHIN = 0.2
GRADIENT_WITHIN_IN_HALF = 0.5
GRADIENT_WITHIN_IF_CAST = 1.2
# In float64, where rounding is no excuse.
EXACT_WITHIN = 1e-3
# How many times as far off as the network itself a copy may be in the network's own precision: of a rough network, two
# points at a time, 4.2 times was seen of a right one; a kernel that loses digits, as GroupNorm's does, is off by 10,000.
ROUGHER = 10


class Agreement:
    """Compares what a faster copy makes of a few points with what the network itself does."""

    def __init__(self, network: Network, wish: Preparation | None, report: dict[str, Any]) -> None:
        self.network, self.wish, self.report = network, wish, report

    def differ(
        self,
        step: Compared,
        args: Sequence[Tensor],
        plain: Sequence[Tensor],
        other: Sequence[Tensor],
        few: Tensor | slice = slice(None),
    ) -> str | None:
        """What of the other's values is not what the network gives: "scores", "gradients" or nothing.

        Args:
            step: computes the values of a network.
            args: what it was called with.
            plain: what the network itself gave.
            other: what the copy gave.
            few: which points are computed in float64 if need be.
        """
        for a, b in zip(plain, other, strict=True):
            if not self._is_same(a, b):
                parts = ([each[few] for each in values] for values in (args, plain, other))
                return None if self._is_rounding(step, *parts) else "gradients" if a.ndim > 1 else "scores"
        return None

    def close(self) -> None:
        """Let go of the networks in float64."""
        for network, _ in self.__dict__.pop("_exact", ()):
            network.close()

    def _is_same(self, plain: Tensor, other: Tensor) -> bool:
        within = tolerance(self.network)
        if plain.ndim == 1:
            if self.wish is not None and self.wish.precision in ("bfloat16", "float16"):
                within = 1e-1
            elif within == 1e-2 and plain.device.type != "cuda":  # on a GPU convolutions may round to TF32
                within = 1e-3
            elif "precision" in self.report:  # to float32, of a network in float64: that rounds by more than 1e-6
                within = max(within, 1e-3)
            return is_close(plain, other, within)
        # a gradient of the network's own that is not finite is named later, where it can be located
        unknown = ~plain.flatten(1).isfinite().all(dim=1)
        return bool((_errors(other, plain) <= self._gradient_within).logical_or(unknown).all())

    @property
    def _gradient_within(self) -> float:
        if "precision" in self.report:
            return GRADIENT_WITHIN_IF_CAST
        return GRADIENT_WITHIN_IN_HALF if tolerance(self.network) > 1e-2 else GRADIENT_WITHIN

    def _is_rounding(self, step: Compared, args: Sequence[Tensor], plain: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
        """Whether the copy is the same function in float64, and by rounding not much further from it than the network."""
        in_double = [arg.double() if arg.is_floating_point() else arg for arg in args]
        try:
            values = [step(self._like_own(network, modules), *in_double) for network, modules in self._exact]
        except Exception:  # such as that of a network that makes tensors of its own type
            return False
        worst = 0.0
        for truth, copied, mine, theirs in zip(values[0], values[-1], plain, other, strict=True) if values else ():
            own = float(_errors(mine, truth).max())
            within = self._gradient_within if truth.ndim > 1 else tolerance(self.network)
            fits = _errors(theirs, truth) <= max(within, ROUGHER * own)
            if not bool((fits & (_errors(copied, truth) <= EXACT_WITHIN)).all()):
                return False
            worst = max(worst, own)
        if values:
            self.report["rounding"] = f"the network's own numbers are off by up to {worst:.0%} of those in float64"
        return bool(values)

    @cached_property
    def _exact(self) -> list[tuple[Network, Mapping[str, nn.Module]]]:
        """The network in float64, with its modules by their names, and a copy prepared of it, if that is another one.

        None of the two where the copy was asked to be in another precision, or float64 is what the network has.
        """
        own, device = self.network, self.network.inputs.data.device
        if self.wish is None or "precision" in self.report or device.type == "mps" or own.precisions == {torch.float64}:
            return []
        model, inputs = isolate(own.model), own.inputs.double()
        for part in (model.net, model.preprocess, model.output):
            if isinstance(part, nn.Module):
                part.double()
        modules: Mapping[str, nn.Module] = dict(model.net.named_modules(remove_duplicate=False))
        exact = [(Network(model, inputs, own.habits), modules)]
        prepared = prepare(model, self.wish, inputs)
        if prepared is not None:
            exact.append((Network(prepared.model, inputs, own.habits), prepared.modules))
        return exact

    def _like_own(self, network: Network, modules: Mapping[str, nn.Module]) -> Network:
        """A network in float64 that explains and reads what the network itself does."""
        network.against = self.network.against
        if network.layer is None:
            network.read_as(self.network, modules)
        return network


def _errors(values: Tensor, truth: Tensor) -> Tensor:
    """How far values are off: scores (n,) as a share of the largest, gradients (n, ...) each of its length."""
    values, truth = values.double(), truth.double()
    if truth.ndim == 1:
        return (values - truth).abs() / truth.abs().amax().clamp(min=1e-6)
    off, length = (values - truth).flatten(1).norm(dim=1), truth.flatten(1).norm(dim=1)
    return torch.where(off == 0, 0.0, off / length)  # of NaN it is NaN, which is within nothing
