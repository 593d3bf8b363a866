"""The base class of reference strategies, which provide R references for each explicand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ig2._engine.explicands import Explicands, check_numeric, working_dtype
from ig2._utils.settings import Settings
from ig2.errors import InputError, describe
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class WeightedSamples:
    """References with weights for the mean over them, as returned by the `draw` of a weighted strategy."""

    samples: Tensor  # (R, ...) or (B, R, ...)
    weights: Tensor  # (R,) or (B, R), none negative; they are scaled to sum to one


class References(Settings, ABC):
    """Base class of strategies that choose or generate references. Subclasses implement `draw`."""

    inside: ClassVar[bool] = True
    """Whether references must lie inside the model's bounds, as x must."""

    @abstractmethod
    def draw(self, task: Task) -> Tensor | WeightedSamples:
        """Return references in the data space, (R, ...) shared by all explicands or (B, R, ...), with weights if they differ.

        All randomness must come from `task.generator()`, so that an explicand's references do not depend on its batch.
        """


@dataclass(frozen=True, eq=False)
class Given(References):
    """Fixed samples chosen by the user: (R, ...) for all explicands, or (B, R, ...) with R for each.

    If the explicand is a tuple or dict of tensors, the samples must be one too.
    """

    samples: Any

    def draw(self, task: Task) -> Tensor:
        inputs = task.session.inputs
        if inputs.keys:
            samples = flatten_inputs(self.samples, inputs)
        else:
            samples = check_numeric(self.samples, "references", inputs.needs_gradient)
        if samples.ndim == task.x.ndim + 1 and len(samples) == len(inputs):
            samples = samples[task.rows.to(samples.device)]
        return samples


def flatten_inputs(samples: Any, inputs: Explicands) -> Tensor:
    """Concatenate the flattened tensors of several inputs in the explicand's layout; a single attributed one needs no dict."""
    if isinstance(samples, Tensor) and len(inputs.attributed) == 1:
        samples = {inputs.attributed[0][0]: samples}
    parts = samples if isinstance(samples, dict) else dict(enumerate(samples)) if isinstance(samples, (tuple, list)) else {}
    pieces = []
    for key, shape, _ in inputs.attributed:
        if key not in parts:
            raise InputError(f"references must have a tensor for input {key!r}, as x has; got {describe(samples)}")
        tensor = check_numeric(parts[key], f"references[{key!r}]", inputs.needs_gradient)
        lead = tensor.ndim - len(shape)
        if lead not in (1, 2) or tensor.shape[lead:] != shape:
            raise InputError(f"references[{key!r}] is {describe(tensor)}, expected {_show('R', shape)} or (B, R, ...)")
        pieces.append(tensor if len(inputs.attributed) == 1 else tensor.reshape(*tensor.shape[:lead], -1))
    try:
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)
    except RuntimeError as error:
        raise InputError(f"the tensors of references differ in how many there are: {describe(pieces)}") from error


def as_references(value: object) -> References:
    """Convert the `references` argument of a call, a strategy, a number, or samples, to a strategy."""
    from ig2.references.constant import Constant, Zeros

    if isinstance(value, References):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Constant(value) if value else Zeros()
    if isinstance(value, (Tensor, np.ndarray, tuple, list, dict)):  # an array is an error where x is, after x
        return Given(value)
    raise InputError(
        f"references must be samples (R, ...) or (B, R, ...), a number, or a strategy of ig2.references; got {describe(value)}"
    )


def draw_references(references: References, task: Task, name: str = "references") -> Tensor:
    """Draw and check the references of a task. Fixed features keep the explicand's values.

    Args:
        references: the strategy.
        task: the call, with the explicands.
        name: the name of the references in error messages.

    Returns:
        References (B, R, ...); shared ones are expanded, not copied.

    Raises:
        InputError: if the references do not fit the explicands, lie outside the model's bounds, or have weights, which only
            `draw_weighted` returns.
    """
    samples, weights = draw_weighted(references, task, name)
    if weights is not None:
        raise InputError(
            f"{type(references).__name__} gives its references weights, and here all count alike: use a path method such as "
            "ig2.ExpectedIG or ig2.IG2, or references without weights"
        )
    return samples


def draw_weighted(references: References, task: Task, name: str = "references") -> tuple[Tensor, Tensor | None]:
    """Draw and check the references of a task, with their weights. The arguments are those of `draw_references`.

    Returns:
        References (B, R, ...), and weights (B, R) whose rows sum to one, or None if all are equal.

    Raises:
        InputError: if the references do not fit the explicands or lie outside the model's bounds, or the weights do not fit
            the references.
    """
    draw = references.draw(task)
    if not isinstance(draw, WeightedSamples):
        return _check(references, draw, task, name), None
    samples = _check(references, draw.samples, task, name)
    return samples, _scale(draw.weights, samples, task)


def _scale(weights: Any, samples: Tensor, task: Task) -> Tensor:
    """Return weights (B, R) whose rows sum to one."""
    table = check_numeric(weights, "weights of references", needs_gradient=False).to(task.x)
    if table.ndim not in (1, 2) or table.shape[-1] != samples.shape[1] or (table.ndim == 2 and len(table) != len(task)):
        raise InputError(f"weights are {describe(weights)}: expected ({samples.shape[1]},), or a row for each of {len(task)}")
    total = table.sum(dim=-1, keepdim=True)
    if bool((table < 0).any()) or not bool((total > 0).all()):
        raise InputError(f"weights must not be negative, nor all zero, got {describe(weights)}")
    return (table / total).expand(len(task), -1)


def _check(references: References, draw: Tensor, task: Task, name: str) -> Tensor:
    """Return the checked references in the shape documented in `draw_references`."""
    samples = drawn = check_numeric(draw, "references", task.session.inputs.needs_gradient)
    shape = task.x.shape
    if samples.ndim == len(shape) and samples.shape[1:] == shape[1:]:
        samples = samples.expand(shape[0], *samples.shape)
    elif samples.ndim != len(shape) + 1 or samples.shape[0] != shape[0] or samples.shape[2:] != shape[1:]:
        hint = "; add the missing axis with .unsqueeze(0)" if samples.shape == shape[1:] else ""
        raise InputError(
            f"references are {describe(samples)}; for explicands {tuple(shape)} expected {_show('R', shape[1:])}, shared by "
            f"all, or {_show(f'{shape[0]}, R', shape[1:])}, R for each{hint}"
        )
    if samples.shape[1] == 0:
        raise InputError("references are empty: give at least one")
    if references.inside:
        flat = drawn.reshape(-1, *shape[1:])
        precision = torch.finfo(flat.dtype).eps if flat.is_floating_point() else None
        task.session.model.check_inside(flat.to(working_dtype(flat.dtype)), name, precision)
    moves = task.session.inputs.moves
    if moves is None:
        return samples
    explicand = task.x.to(samples.device)[:, None]
    return torch.where(moves[task.rows].to(samples.device)[:, None], samples.to(explicand), explicand)


def _show(lead: str, shape: torch.Size) -> str:
    return f"({', '.join([lead, *map(str, shape)])})"
