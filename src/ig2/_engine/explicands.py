"""What the network is called with: the tensors that are attributed, and those that only come along.

The engine moves one tensor of points. Where a network takes several attributed tensors, each sample's features are laid
end to end in one row, so that norms, paths and references see the whole sample, and are cut apart again for the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2.errors import WITHOUT_GRADIENTS, InputError, describe
from ig2.inputs import Fixed, Structured, is_fixed, value_of

# By so much a point may miss an integer that it stands for.
ROUNDING = 1e-3


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of paths and sums, float32 at least.

    A step of 0.002 is lost beside a bfloat16 value of 1.

    Integers of more than 16 bits live in float64, since float32 has all of them up to 2²⁴ only.
    """
    wide = dtype.itemsize > (4 if dtype.is_floating_point else 2)
    return torch.float64 if wide else torch.float32


def check_numeric(tensor: object, name: str, needs_gradient: bool = True) -> Tensor:
    """Return a tensor, checked to have finite values, floating-point where gradients are needed."""
    if not isinstance(tensor, Tensor):
        raise InputError(
            f"{name} must be a torch tensor, got {describe(tensor)}; torch.as_tensor converts arrays, torch.stack lists"
        )
    _check_dense(tensor, name)
    if needs_gradient and not tensor.is_floating_point():
        raise InputError(
            f"{name} is {describe(tensor)}: only floating-point inputs have gradients. For token ids explain the "
            "embeddings (feed the embedding layer's output to the rest of the network); for images use .float(), and / 255 "
            "where the network or its bounds go from 0 to 1; for a tensor that is only passed on, wrap it in ig2.Fixed(...); "
            f"or keep it: {WITHOUT_GRADIENTS}"
        )
    if tensor.is_complex() or tensor.is_quantized:
        raise InputError(
            f"{name} is {describe(tensor)}: expected real numbers, for example by torch.view_as_real or dequantize"
        )
    if not torch.isfinite(tensor).all():
        bad = sorted({index[0] for index in (~torch.isfinite(tensor)).nonzero().tolist()}) if tensor.ndim else [0]
        rows = f"row {bad[0]}" if len(bad) == 1 else f"{len(bad)} rows, the first is {bad[0]}"
        skip = ", or pass skip_bad=True to go on without them" if name.partition("[")[0] == "x" else ""
        raise InputError(f"{name} holds NaN or infinite values in {rows}: remove or fill them{skip}", rows=bad)
    return tensor


def _check_dense(tensor: Tensor, name: str) -> None:
    """Check that a tensor has its values in one block of memory."""
    if tensor.is_nested:  # some of them have no shape to describe
        raise InputError(f"{name} is a nested tensor: pad it to one size, for example with tensor.to_padded_tensor(0.0)")
    if tensor.layout != torch.strided:
        raise InputError(f"{name} is {describe(tensor)} with layout {tensor.layout}: make it dense with tensor.to_dense()")
    if tensor.is_meta:
        raise InputError(f"{name} is {describe(tensor)} on the meta device, which holds no values: make or load it on a device")


def _broadcast(where: object, value: Tensor, name: str) -> Tensor:
    """Return booleans over the leading axes of a value, with an axis of one for each of the
    others."""
    if (
        isinstance(where, Tensor)
        and where.dtype == torch.bool
        and 0 < where.ndim <= value.ndim
        and len(where) == len(value)
        and all(size in (1, wanted) for size, wanted in zip(where.shape, value.shape, strict=False))
    ):
        return where.reshape(*where.shape, *[1] * (value.ndim - where.ndim))
    raise InputError(
        f"where={describe(where)} of ig2.Fixed: expected booleans over the leading axes of {name}, {tuple(value.shape)}, "
        f"such as {tuple(value.shape[:2])}"
    )


def _map_hint(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return what to do with a map that all channels of an image share."""
    if len(wanted) != 4 or shape not in ((wanted[0], 1, *wanted[2:]), (wanted[0], *wanted[2:])):
        return ""
    axis = "" if len(shape) == 4 else "[:, None]"
    return f". A map for all channels goes to each of them by values{axis}.expand_as(x)"


@dataclass(frozen=True)
class Explicands:
    """A batch of explicands, ready for the engine."""

    data: Tensor  # one row for each explicand, in the working precision
    keys: tuple[int | str, ...]  # of the network's arguments, by position or name; empty for a single tensor
    attributed: tuple[tuple[int | str, torch.Size, torch.dtype], ...]  # key, shape of a sample and dtype of what is attributed
    fixed: dict[int | str, Any]  # what only comes along
    home: torch.device  # where the user's first tensor was, and where results go
    held: dict[int | str, Tensor] = field(default_factory=dict)  # of attributed tensors, where they are fixed, (B, ...)
    needs_gradient: bool = True  # whether anything is going to be differentiated

    @classmethod
    def of(cls, x: object, device: torch.device | None = None, name: str = "x", needs_gradient: bool = True) -> Explicands:
        """Check what the user passed and bring it to one tensor of explicands.

        Args:
            x: a tensor, or a tuple or dict of them and of `Fixed`.
            device: where the network is.
            name: what the user calls it.
            needs_gradient: False allows integers and booleans, and a network without gradients.
        """
        several = isinstance(x, (Mapping, tuple, list))
        items: dict[int | str, Any] = dict(x) if isinstance(x, Mapping) else dict(enumerate(x if several else [x]))  # type: ignore[arg-type]
        labels = {key: f"{name}[{key!r}]" if several else name for key in items}
        moving = {key: item for key, item in items.items() if not is_fixed(item)}
        fixed = {key: item.value for key, item in items.items() if is_fixed(item)}
        if not moving:
            raise InputError(f"{name} has no tensor to attribute, got {describe(x)}; leave one out of ig2.Fixed")
        tensors = {key: check_numeric(value_of(item), labels[key], needs_gradient) for key, item in moving.items()}
        for key, tensor in tensors.items():
            if tensor.ndim < 1 or tensor.numel() == 0:
                raise InputError(f"{labels[key]} is {describe(tensor)}: expected a batch (B, ...) with at least one sample")
            if tensor.ndim == 1 and len(moving) == 1:
                raise InputError(
                    f"{labels[key]} is {describe(tensor)}, expected a batch (B, ...): one sample gets its axis by x[None], "
                    "samples of one number each by x[:, None]"
                )
        first = next(iter(tensors.values()))
        for key, value in {**tensors, **fixed}.items():
            if isinstance(value, np.ndarray):
                raise InputError(f"{labels[key]} is {describe(value)}: make it a tensor, so that each sample gets its own row")
            if not isinstance(value, Tensor):
                continue
            _check_dense(value, labels[key])
            if value.ndim == 0 or len(value) != len(first):
                raise InputError(
                    f"{labels[key]} is {describe(value)}, the first tensor has {len(first)} rows: make them equal. What all "
                    "samples share goes into the call: ig2.wrap(lambda x: net(x, shared))"
                )
        held = {
            key: _broadcast(item.where, tensors[key], labels[key]).to(device)
            for key, item in moving.items()
            if isinstance(item, Fixed)
        }
        dtype = max((working_dtype(t.dtype) for t in tensors.values()), key=lambda working: working.itemsize)
        with torch.inference_mode(False):
            # clone: a tensor made in inference mode may take no part in autograd, its copy may
            ready = {key: t.detach().to(device=device, dtype=dtype).clone() for key, t in tensors.items()}
            for key, t in tensors.items():
                if not t.is_floating_point() and not torch.equal(ready[key].to(t.dtype), t.to(ready[key].device)):
                    raise InputError(f"{labels[key]} is {describe(t)} with numbers beyond 2⁵³, which float64 does not hold")
            data = join(list(ready.values()))
        return cls(
            data,
            tuple(items) if several else (),
            tuple((key, t.shape[1:], t.dtype) for key, t in tensors.items()),
            {key: value.to(device) if isinstance(value, Tensor) else value for key, value in fixed.items()},
            first.device,
            held,
            needs_gradient,
        )

    def __len__(self) -> int:
        return self.data.shape[0]

    def double(self) -> Explicands:
        """Return the same in float64."""
        return replace(
            self,
            data=self.data.double(),
            attributed=tuple((k, s, torch.float64 if t.is_floating_point else t) for k, s, t in self.attributed),
            fixed={
                key: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
                for key, value in self.fixed.items()
            },
        )

    def split(self, points: Tensor) -> list[Tensor]:
        """Return points (n, ...) as the attributed tensors, each in its own shape and dtype."""
        return [_cast(piece, dtype) for piece, (_, _, dtype) in zip(self._cut(points), self.attributed, strict=True)]

    def _cut(self, values: Tensor) -> list[Tensor]:
        """Return values of the engine's shape (..., features) as one tensor for each that is
        attributed."""
        if len(self.attributed) == 1:
            return [values]
        shapes = [shape for _, shape, _ in self.attributed]
        pieces = torch.split(values, [shape.numel() for shape in shapes], dim=-1)
        return [piece.reshape(*piece.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def map(self, values: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return values of the engine's shape (n, ...), with each attributed tensor changed to
        another of its shape."""
        pieces = [change(piece) for piece in self._cut(values)]
        return pieces[0] if len(pieces) == 1 else torch.cat([p.reshape(*values.shape[:-1], -1) for p in pieces], dim=-1)

    def pack(self, values: object, name: str) -> Tensor:
        """Return values in the user's structure, one for each feature of each explicand, in the
        engine's layout and precision."""
        if isinstance(values, Tensor) and len(self.attributed) == 1:
            values = {self.attributed[0][0]: values}
        parts = values if isinstance(values, dict) else dict(enumerate(values)) if isinstance(values, (tuple, list)) else {}
        pieces = []
        for key, shape, _ in self.attributed:
            if key not in parts:
                raise InputError(f"{name} must have a tensor for input {key!r}, as x has; got {describe(values)}")
            label, expected = f"{name}[{key!r}]" if self.keys else name, (len(self), *shape)
            tensor = check_numeric(parts[key], label, needs_gradient=False)
            if tensor.shape != expected:
                hint = _map_hint(tensor.shape, expected)
                raise InputError(f"{label} is {describe(tensor)}: expected {expected}, the shape of x{hint}")
            pieces.append(tensor.to(self.data))
        return join(pieces)

    def arguments(self, tensors: list[Tensor], rows: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the network's call for these tensors; row i goes with the fixed inputs and
        features of explicand `rows[i]`."""
        if self.held:
            explicands = self.split(self.data[rows])
            tensors = [
                torch.where(self.held[key][rows], explicand, tensor) if key in self.held else tensor
                for (key, _, _), explicand, tensor in zip(self.attributed, explicands, tensors, strict=True)
            ]
        values: dict[int | str, Any] = {
            key: value[rows] if isinstance(value, Tensor) else value for key, value in self.fixed.items()
        }
        values.update({key: tensor for (key, _, _), tensor in zip(self.attributed, tensors, strict=True)})
        order = self.keys or (self.attributed[0][0],)
        return tuple(values[k] for k in order if isinstance(k, int)), {k: values[k] for k in order if isinstance(k, str)}

    @property
    def moves(self) -> Tensor | None:
        """The features that may move, booleans in the layout of `data`; None where all may."""
        if not self.held:
            return None
        none = torch.zeros(1, dtype=torch.bool, device=self.data.device)
        return join([~self.held.get(key, none).expand(len(self), *shape) for key, shape, _ in self.attributed])

    @property
    def explicand(self) -> Structured:
        """The explicands as they came, each tensor in its own dtype."""
        return self._arrange(self.split(self.data))

    def unpack(self, values: Tensor) -> Structured:
        """Return values of the engine's shape (n, ...) back in the user's structure."""
        return self._arrange(self._cut(values))

    def _arrange(self, tensors: list[Tensor]) -> Structured:
        """One tensor for each that is attributed, in the user's structure."""
        if not self.keys:
            return tensors[0]
        if isinstance(self.keys[0], str):
            return {str(key): t for (key, _, _), t in zip(self.attributed, tensors, strict=True)}
        return tuple(tensors)


def join(tensors: list[Tensor]) -> Tensor:
    """Return one tensor as it is; of several (B, ...), each sample's features end to end in one row."""
    return tensors[0] if len(tensors) == 1 else torch.cat([tensor.reshape(len(tensor), -1) for tensor in tensors], dim=1)


def _cast(points: Tensor, dtype: torch.dtype) -> Tensor:
    """Return points in the network's dtype. Integers come back exactly, and what lies between two
    of them is an error."""
    if dtype.is_floating_point:
        return points.to(dtype)
    whole = points.round().to(dtype)
    between = (whole.to(points) - points).abs() > ROUNDING
    if between.any():
        raise InputError(
            f"x is {dtype}, and a point of {float(points[between][0]):.6g} was asked for, which is none: give references or a "
            "background of x's own type, or make x floating-point".replace("torch.", "")
        )
    return whole
