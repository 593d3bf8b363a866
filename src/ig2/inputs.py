"""What of a network's inputs is attributed: what is fixed of them, and a layer in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ig2.errors import InputError

Structured = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


@dataclass(frozen=True)
class Fixed:
    """An input handed to the network as it is: never moved along a path, never attributed.

    A tensor has one row for each explicand (an attention mask, categorical columns); anything else is passed through. What
    all explicands share belongs in the network's call: `ig2.wrap(lambda x: net(x, shared))`.

    Args:
        value: the input.
        where: the features that are fixed, where the others of this input are attributed: booleans over its leading axes, for
            example (B, L), True at padding, for embeddings (B, L, E). The network sees the explicand's own values there,
            whatever a path or a reference has in their place; they get an attribution of 0, and metrics do not count them.

    >>> import ig2
    >>> net = lambda x, mask: (x * mask).sum(dim=1)
    >>> ig2.Gradient()(net, (torch.zeros(2, 3), Fixed(torch.ones(2, 3)))).values[0].shape
    torch.Size([2, 3])
    """

    value: Any
    where: Tensor | None = None


def is_fixed(item: object) -> bool:
    """Return whether an input is fixed as a whole."""
    return isinstance(item, Fixed) and item.where is None


def value_of(item: Any) -> Any:
    """Return an input without its mark."""
    return item.value if isinstance(item, Fixed) else item


def take_rows(x: Any, rows: Sequence[int], per_row: Callable[[Any, int | str | None], bool] = lambda *_: True) -> Any:
    """Return some of the explicands of x, or of what belongs to them, in the structure it has.

    Args:
        x: a tensor, or a tuple, list or dict of tensors and `Fixed`.
        rows: which.
        per_row: whether a part, the one of this key, has a row for each explicand; by default every tensor has.
    """

    def take(part: Any, key: int | str | None) -> Any:
        if isinstance(part, Fixed):
            return Fixed(take(part.value, key), None if part.where is None else take(part.where, key))
        return part[list(rows)] if isinstance(part, Tensor) and part.ndim and per_row(part, key) else part

    if isinstance(x, Mapping):
        return {key: take(part, key) for key, part in x.items()}
    if isinstance(x, (tuple, list)):
        return tuple(take(part, key) for key, part in enumerate(x))
    return take(x, None)


@dataclass(frozen=True, eq=False)
class At:
    """Where a method attributes: a layer, or some of its channels, heads or neurons.

    Args:
        layer: a module of the network or its name, which means its output; "name:input" is what it gets.
        index: of one sample's activation, as a tensor is indexed: 3 for a channel, [3, 5] for two, (3, 0, 0) for a neuron. The
            others stay what they are at the explicand, and have values of zero. By default all of it.

    >>> import ig2
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).eval()
    >>> ig2.IntegratedGradients()(net, torch.ones(1, 3), at=ig2.At("1", [0, 2])).values.shape
    torch.Size([1, 4])
    """

    layer: str | nn.Module
    index: Any = None

    def hold(self, activation: Tensor) -> Tensor | Fixed:
        """Return an activation (B, ...), fixed but for what the index names.

        Raises:
            InputError: if the index names nothing of it.
        """
        if self.index is None:
            return activation
        moves = torch.zeros(activation.shape[1:], dtype=torch.bool, device=activation.device)
        try:
            moves[self.index] = True
        except (IndexError, TypeError, RuntimeError) as error:
            raise InputError(f"index {self.index!r} is none of an activation {tuple(moves.shape)}: {error}") from error
        if not moves.any():
            raise InputError(f"index {self.index!r} names nothing of an activation {tuple(moves.shape)}")
        return Fixed(activation, (~moves).expand(activation.shape).clone())
