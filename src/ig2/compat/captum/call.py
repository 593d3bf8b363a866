"""A call in Captum's forms, and what the engine returns for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ig2
from ig2._utils.checks import check_count
from ig2.compat.captum.forms import Target, Tensors, as_args, as_tensors, column, like
from ig2.compat.captum.network import Lower, SharedTensor, select_output
from ig2.errors import InputError, describe
from ig2.methods.base import Method
from ig2.model import Layer, Model, preprocess_arguments


class Explained(NamedTuple):
    """Values, what they belong to (the inputs, or a layer's activation), and their residual."""

    values: tuple[Tensor, ...]
    activations: tuple[Tensor, ...]
    residual: Tensor | None


@dataclass(frozen=True)
class CaptumCall:
    """Inputs, target and further arguments in Captum's forms.

    Values belong to the inputs, or to a layer. There may be `count` copies of each input, one after
    the other.
    """

    model: Model
    inputs: Tensors
    target: Target
    extra: Any
    batch_size: int | None
    seed: int
    layer: Layer | None = None
    count: int = 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return as_tensors(self.inputs)

    def like(self, values: Sequence[Tensor]) -> Tensors:
        """Return values in the form of what they belong to."""
        return like(self.inputs, values) if self.layer is None else values[0]

    def repeat(self, count: int) -> CaptumCall:
        """Return the call for `count` copies of each input, its target and its further arguments."""
        check_count(count, "n_samples")
        if not all(tensor.is_floating_point() for tensor in self.tensors):
            raise InputError(f"inputs are {describe(self.inputs)}: only floating-point inputs have gradients")

        def copy(value: Any) -> Any:
            if isinstance(value, list):
                return [item for item in value for _ in range(count)]
            is_shared = not isinstance(value, Tensor) or value.ndim == 0
            return value if is_shared else value.repeat_interleave(count, dim=0)

        is_one = isinstance(self.target, Tensor) and self.target.numel() == 1
        return replace(
            self,
            inputs=like(self.inputs, [copy(tensor.detach()) for tensor in self.tensors]),
            target=self.target if is_one else copy(self.target),
            extra=None if self.extra is None else tuple(map(copy, as_args(self.extra))),
            count=count,
        )

    def move(self, points: Sequence[Tensor]) -> CaptumCall:
        """Return the call for other inputs."""
        return replace(self, inputs=like(self.inputs, points))

    def between(self, ends: Sequence[Tensor], places: Tensor) -> CaptumCall:
        """Return the call for points from inputs, at 0, to `ends`, at 1, of each input or copy."""
        points = []
        for tensor, end in zip(self.tensors, ends, strict=True):
            far = end.repeat_interleave(len(tensor) // len(end), dim=0).view_as(tensor)
            points.append(torch.lerp(tensor, far, column(places, tensor)))
        return self.move(points)

    # -- results -------------------------------------------------------------------------------

    def explain(self, method: Method, references: Any = None, **options: Any) -> Explained:
        """Run a method; references of scalars (B,) are (R, 1)."""
        tensors = self.tensors
        # Captum passes a 0-d tensor to every sample alike; a `Fixed` tensor has a row for each
        fixed = [
            ig2.Fixed(SharedTensor(arg) if isinstance(arg, Tensor) and arg.ndim == 0 else arg) for arg in as_args(self.extra)
        ]
        moving: list[Any] = list(tensors)
        scalars: tuple[int, ...] = ()
        if self.layer is None:
            # the engine needs features: scalars get an axis for theirs, and what has none comes along
            scalars = tuple(i for i, tensor in enumerate(tensors) if tensor.ndim == 1)
            moving = [t[:, None] if t.ndim == 1 else t if t.numel() else ig2.Fixed(t) for t in tensors]
        else:
            options["at"] = f"{self.layer.name}:{self.layer.side}"
        model, index = select_output(self.model, self.target, scalars)
        is_bare = isinstance(self.inputs, Tensor) and not fixed
        if is_bare and isinstance(references, tuple):
            (references,) = references
        batch_size = "auto" if self.batch_size is None else self.batch_size
        options = {"seed": self.seed, "batch_size": batch_size, **options}
        x = moving[0] if is_bare else (*moving, *fixed)
        found = method(model, x, index, references, **options)
        values = as_tensors(found.values)
        if self.layer is not None:
            return Explained(values, as_tensors(found.explicand), found.residual)
        rest = iter(values)
        shaped = (next(rest).reshape(t.shape) if t.numel() else torch.zeros_like(t) for t in tensors)
        return Explained(tuple(shaped), tensors, found.residual)

    def slopes(self) -> Explained:
        """Return the gradient."""
        return self.explain(ig2.Gradient())

    def read(self, points: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what values belong to at other inputs: those, or the layer's activation there."""
        if self.layer is None:
            return tuple(points)
        args, kwargs = preprocess_arguments(self.model.preprocess, (*points, *as_args(self.extra)), {})
        with torch.no_grad():
            return (Lower(self.model.net, self.layer)(*args, **kwargs),)

    def gather(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Reshape values of the copies to (B, count, ...)."""
        return tuple(value.reshape(-1, self.count, *value.shape[1:]) for value in values)

    def sum(self, values: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
        """Return the sum over the copies of each input, with a weight for each copy."""
        weighted = self.gather([value * column(weights, value) for value in values])
        return tuple(value.sum(dim=1) for value in weighted)
