"""What a network picks and orders by value, as the experts of a token by top-k, and what a change of it is worth.

Operation by operation, an expert's output at one end of a segment would meet that of another expert at the other end. So where
the ends choose differently, the far end runs once more with the choices of the near one: then each value meets what it was
itself, and the secants account for f(near) − f̃(far). What is left, f̃(far) − f(far), is what the choices did. It goes to the
values they were made by, of which the margin is linear: the sum of those chosen at the near end less those chosen at the far
one. The margin is positive at the near end and negative at the far one, since a choice is of the largest; so it changes
wherever the choices do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ig2._engine.slopes import Operation

# By name, the position of `dim` and of `largest` or `descending`, and its default.
CHOICES = {
    "topk": (2, (3, "largest"), True), "sort": (1, (2, "descending"), False), "argsort": (1, (2, "descending"), False),
    "argmax": (1, None, True), "argmin": (1, None, False), "max": (1, None, True), "min": (1, None, False),
}  # fmt: skip
MAXIMA = ("max", "min")  # of which most are not read for the place
# What an order counts in which the same are chosen: it decides only where nothing else changed.
OF_ORDER = 1e-3


class Choices:
    """The choices of one pass: its own, or those of another pass, which it makes again.

    Args:
        given: what to choose, call by call; by default the pass chooses itself.
        others: what another pass chose by itself, to see where it differs, or by how much the values that decided moved.
    """

    def __init__(self, given: Sequence[Tensor] = (), others: Sequence[Tensor] = ()) -> None:
        self.given, self.others = given, others
        self.own: list[Tensor] = []
        self.margin: Tensor | None = None  # the sum over all choices, with autograd's graph
        self.differ = False  # whether it chose other than the other pass
        self._unread: dict[int, Tensor] = {}  # places of maxima that differ, which matter once they are read

    def make(self, call: Operation) -> Tensor | None:
        """Return the places that a call chooses: those given, or its own; None if it is no
        choice."""
        if self._unread and any(self._unread.get(id(arg)) is arg for arg in call.tensors):
            self.differ = True
        if call.name not in CHOICES or (call.name in MAXIMA and not isinstance(call.argument(1, "dim"), int)):
            return None
        number, result = len(self.own), call.value()
        own = result if isinstance(result, Tensor) else result[1]
        self.own.append(own)
        other = self.others[number] if number < len(self.others) else None
        chosen = self.given[number] if self.given else own
        if other is None or (other.shape == chosen.shape and torch.equal(chosen, other)):
            return chosen
        if self.given:
            self._measure(call, chosen, other)
        elif call.name in MAXIMA:
            self._unread[id(own)] = own
        else:
            self.differ = True
        return chosen

    @torch.enable_grad()  # routers choose without
    def _measure(self, call: Operation, chosen: Tensor, other: Tensor) -> None:
        """Add the margin of one choice to their sum."""
        z, dim = call.args[0], _dim(call)
        if not z.requires_grad:
            return
        if dim is None:
            z, dim = z.flatten(), 0
        if chosen.ndim < z.ndim:  # without keepdim
            chosen, other = chosen.unsqueeze(dim), other.unsqueeze(dim)
        lines, chosen, other = (each.reshape(-1) if z.ndim == 1 else each.movedim(dim, -1) for each in (z, chosen, other))
        # of sums with weights that fall, that is the largest in which the largest comes first [the rearrangement inequality]
        in_order = call.name != "topk" or call.argument(4, "sorted") is not False
        fall = torch.linspace(OF_ORDER if in_order else 0.0, 0.0, chosen.shape[-1], dtype=z.dtype, device=z.device)
        margin = ((lines.gather(-1, chosen) - lines.gather(-1, other)) * (1 + fall)).sum()
        margin = margin if _takes_largest(call) else -margin
        self.margin = margin if self.margin is None else self.margin + margin


def choose(call: Operation, places: Tensor) -> Any:
    """Return what a choice, other than a maximum, returns if it chooses these places."""
    if call.name.startswith("arg"):
        return places
    return type(call.value())((call.args[0].gather(_dim(call), places), places))


def _dim(call: Operation) -> int | None:
    position, _, _ = CHOICES[call.name]
    dim: int | None = call.argument(position, "dim")
    return -1 if dim is None and call.name not in ("argmax", "argmin") else dim


def _takes_largest(call: Operation) -> bool:
    _, option, default = CHOICES[call.name]
    given = None if option is None else call.argument(*option)
    return default if given is None else bool(given)
