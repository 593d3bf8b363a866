"""What the network is called with: the tensors that are attributed, and those that only come along.

The engine moves one tensor of points. Where a network takes several attributed tensors, each sample's features are laid
end to end in one row, so that norms, paths and references see the whole sample, and are cut apart again for the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2.errors import InputError, describe

Structured = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


@dataclass(frozen=True)
class Fixed:
    """An input handed to the network as it is: never moved along a path, never attributed.

    A tensor has one row for each explicand (an attention mask, categorical columns); anything else is passed through. What
    all explicands share belongs in the network's call: `ig2.wrap(lambda x: net(x, shared))`.

    >>> import torch
    >>> inputs = Inputs.of((torch.zeros(2, 3), Fixed(torch.ones(2, 5))))
    >>> inputs.data.shape
    torch.Size([2, 3])
    """

    value: Any


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Paths and sums live in float32 at least: a step of 0.002 is lost beside a bfloat16 value of 1."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_numeric(tensor: object, name: str) -> Tensor:
    """A floating tensor with finite values, or an error that says what to do."""
    if not isinstance(tensor, Tensor):
        raise InputError(
            f"{name} must be a torch tensor, got {describe(tensor)}; torch.as_tensor converts arrays, torch.stack lists"
        )
    if tensor.layout != torch.strided or tensor.is_nested:
        raise InputError(f"{name} is {describe(tensor)} with layout {tensor.layout}: make it dense, or pad it to one size")
    if not tensor.is_floating_point():
        raise InputError(
            f"{name} is {describe(tensor)}: only floating-point inputs have gradients. For token ids explain the "
            "embeddings (feed the embedding layer's output to the rest of the network); for images use .float(), and / 255 "
            "where the network or its bounds go from 0 to 1; for a tensor that is only passed on, wrap it in ig2.Fixed(...)"
        )
    if not torch.isfinite(tensor).all():
        row = int((~torch.isfinite(tensor)).nonzero()[0][0]) if tensor.ndim else 0
        raise InputError(f"{name} holds NaN or infinite values (first in row {row}); remove or fill them before")
    return tensor


def _map_hint(given: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """What to do with a map that all channels of an image share."""
    if len(wanted) != 4 or given not in ((wanted[0], 1, *wanted[2:]), (wanted[0], *wanted[2:])):
        return ""
    axis = "" if len(given) == 4 else "[:, None]"
    return f". A map for all channels goes to each of them by values{axis}.expand_as(x)"


@dataclass(frozen=True)
class Inputs:
    """A batch of explicands, ready for the engine.

    `data` has one row for each explicand, in the working precision. `parts` lists how the network's arguments are made:
    a key (position or name) and either the shape and dtype of an attributed tensor or the fixed value.
    """

    data: Tensor
    keys: tuple[int | str, ...]
    attributed: tuple[tuple[int | str, torch.Size, torch.dtype], ...]
    fixed: dict[int | str, Any]
    home: torch.device  # where the user's first tensor was, and where results go

    @classmethod
    def of(cls, x: object, device: torch.device | None = None, name: str = "x") -> Inputs:
        """Check what the user passed and bring it to one tensor of explicands."""
        items: list[tuple[int | str, Any]]
        if isinstance(x, Mapping):
            items = list(x.items())
        elif isinstance(x, (tuple, list)):
            items = list(enumerate(x))
        else:
            items = [(0, x)]
        single = len(items) == 1 and not isinstance(x, (Mapping, tuple, list))
        moving = [(key, item) for key, item in items if not isinstance(item, Fixed)]
        if not moving:
            raise InputError(f"{name} has no tensor to attribute, got {describe(x)}; leave one out of ig2.Fixed")
        tensors = []
        for key, item in moving:
            label = name if single else f"{name}[{key!r}]"
            tensor = check_numeric(item, label)
            if tensor.ndim < 1 or tensor.numel() == 0:
                raise InputError(f"{label} is {describe(tensor)}: expected a batch (B, ...) with at least one sample")
            if tensor.ndim == 1 and len(moving) == 1:
                raise InputError(
                    f"{label} is {describe(tensor)}, expected a batch (B, ...): a single sample gets its axis by x[None], "
                    "samples of one number each by x[:, None]"
                )
            tensors.append(tensor)
        rows = tensors[0].shape[0]
        fixed = {key: item.value for key, item in items if isinstance(item, Fixed)}
        for key, value in [(key, t) for (key, _), t in zip(moving, tensors, strict=True)] + list(fixed.items()):
            if isinstance(value, Tensor) and (value.ndim == 0 or value.shape[0] != rows):
                raise InputError(
                    f"{name}[{key!r}] is {describe(value)}, the first tensor has {rows} rows: make them equal. What all "
                    "samples share goes into the call: ig2.wrap(lambda x: net(x, shared))"
                )
            if isinstance(value, np.ndarray):
                raise InputError(
                    f"{name}[{key!r}] is {describe(value)}: make it a tensor, so that each sample gets its own row"
                )
        fixed = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in fixed.items()}
        attributed = tuple((key, t.shape[1:], t.dtype) for (key, _), t in zip(moving, tensors, strict=True))
        dtype = working_dtype(torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32)
        with torch.inference_mode(False):
            # clone: a tensor made in inference mode may take no part in autograd, its copy may
            ready = [t.detach().to(device=device, dtype=dtype).clone() for t in tensors]
            data = ready[0] if len(ready) == 1 else torch.cat([t.reshape(rows, -1) for t in ready], dim=1)
        return cls(data, tuple(key for key, _ in items) if not single else (), attributed, fixed, tensors[0].device)

    def __len__(self) -> int:
        return self.data.shape[0]

    def split(self, points: Tensor) -> list[Tensor]:
        """Points (n, ...) as the attributed tensors, each in its own shape and dtype."""
        if len(self.attributed) == 1:
            return [points.to(self.attributed[0][2])]
        sizes = [shape.numel() for _, shape, _ in self.attributed]
        pieces = torch.split(points, sizes, dim=1)
        return [piece.reshape(-1, *shape).to(dtype) for piece, (_, shape, dtype) in zip(pieces, self.attributed, strict=True)]

    def pack(self, values: object, name: str) -> Tensor:
        """Values in the user's structure, one for each feature of each explicand, in the engine's layout and precision."""
        if isinstance(values, Tensor) and len(self.attributed) == 1:
            values = {self.attributed[0][0]: values}
        parts = values if isinstance(values, dict) else dict(enumerate(values)) if isinstance(values, (tuple, list)) else {}
        pieces = []
        for key, shape, _ in self.attributed:
            if key not in parts:
                raise InputError(f"{name} must have a tensor for input {key!r}, as x has; got {describe(values)}")
            label = f"{name}[{key!r}]" if self.keys else name
            tensor = check_numeric(parts[key], label)
            if tensor.shape != (len(self), *shape):
                raise InputError(
                    f"{label} is {describe(tensor)}: expected {(len(self), *shape)}, the shape of x"
                    + _map_hint(tensor.shape, (len(self), *shape))
                )
            pieces.append(tensor.to(self.data))
        return pieces[0] if len(pieces) == 1 else torch.cat([piece.reshape(len(self), -1) for piece in pieces], dim=1)

    def arguments(self, tensors: list[Tensor], rows: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The network's call for these tensors; row i goes with the fixed inputs of explicand `rows[i]`."""
        values: dict[int | str, Any] = {
            key: value[rows] if isinstance(value, Tensor) else value for key, value in self.fixed.items()
        }
        values.update({key: tensor for (key, _, _), tensor in zip(self.attributed, tensors, strict=True)})
        order = self.keys or (self.attributed[0][0],)
        return tuple(values[k] for k in order if isinstance(k, int)), {k: values[k] for k in order if isinstance(k, str)}

    def unpack(self, values: Tensor) -> Structured:
        """Values of the engine's shape (n, ...) back in the user's structure."""
        if not self.keys:
            return values
        sizes = [shape.numel() for _, shape, _ in self.attributed]
        if len(self.attributed) == 1:
            tensors = [values]
        else:
            pieces = torch.split(values, sizes, dim=-1)
            shapes = [shape for _, shape, _ in self.attributed]
            tensors = [p.reshape(*p.shape[:-1], *shape) for p, shape in zip(pieces, shapes, strict=True)]
        if isinstance(self.keys[0], str):
            return {str(key): t for (key, _, _), t in zip(self.attributed, tensors, strict=True)}
        return tuple(tensors)
