"""Who an explicand is contrasted with: R samples for each, proposed by a strategy or given by the user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ig2._engine.inputs import Inputs, check_numeric, working_dtype
from ig2._engine.task import Task
from ig2.errors import InputError, describe


class References(ABC):
    """A strategy. `draw` proposes references for a task; everything random in it comes from `task.generator()`."""

    inside: ClassVar[bool] = True  # whether what is drawn is held to the model's bounds, as x is

    @abstractmethod
    def draw(self, task: Task) -> Tensor:
        """References in the data space: (R, ...) shared by all explicands, or (B, R, ...) for each its own."""


@dataclass(frozen=True, eq=False)
class Given(References):
    """Samples the user chose: (R, ...) for every explicand, or (B, R, ...) for each its own.

    Where the explicand is a tuple or dict of tensors, so are they.
    """

    samples: Any

    def draw(self, task: Task) -> Tensor:
        inputs = task.session.inputs
        samples = self._checked(inputs)
        if samples.ndim == task.x.ndim + 1 and len(samples) == len(inputs):
            samples = samples[task.rows.to(samples.device)]
        return samples

    def _checked(self, inputs: Inputs) -> Tensor:
        return (
            _flattened(self.samples, inputs)
            if inputs.keys
            else check_numeric(self.samples, "references", inputs.needs_gradient)
        )


def _flattened(samples: Any, inputs: Inputs) -> Tensor:
    """The tensors of several inputs laid end to end, as the explicand's are; where one is attributed, it may stand alone."""
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
            raise InputError(f"references[{key!r}] is {describe(tensor)}, expected {_rows('R', shape)} or (B, R, ...)")
        pieces.append(tensor if len(inputs.attributed) == 1 else tensor.reshape(*tensor.shape[:lead], -1))
    try:
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)
    except RuntimeError as error:
        raise InputError(f"the tensors of references differ in how many there are: {describe(pieces)}") from error


def as_references(given: object) -> References:
    """A strategy from what a call may be given: a strategy, a number, or samples."""
    from ig2.references.constant import Constant, Zeros

    if isinstance(given, References):
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return Constant(given) if given else Zeros()
    if isinstance(given, (Tensor, np.ndarray, tuple, list, dict)):  # an array is refused where x is, after x
        return Given(given)
    raise InputError(
        f"references must be samples (R, ...) or (B, R, ...), a number, or a strategy of ig2.references; got {describe(given)}"
    )


def drawn(references: References, task: Task, name: str = "references") -> Tensor:
    """References of a task as (B, R, ...), checked; shared ones are expanded, not copied. `name`: the user's word.

    Where features are fixed, references have the explicand's own.
    """
    samples = given = check_numeric(references.draw(task), "references", task.session.inputs.needs_gradient)
    shape = task.x.shape
    if samples.ndim == len(shape) and samples.shape[1:] == shape[1:]:
        samples = samples.expand(shape[0], *samples.shape)
    elif samples.ndim != len(shape) + 1 or samples.shape[0] != shape[0] or samples.shape[2:] != shape[1:]:
        hint = "; add the missing axis with .unsqueeze(0)" if samples.shape == shape[1:] else ""
        raise InputError(
            f"references are {describe(samples)}; for explicands {tuple(shape)} expected {_rows('R', shape[1:])}, shared by "
            f"all, or {_rows(f'{shape[0]}, R', shape[1:])}, for each its own{hint}"
        )
    if samples.shape[1] == 0:
        raise InputError("references are empty: give at least one")
    if references.inside:
        flat = given.reshape(-1, *shape[1:])
        precision = torch.finfo(flat.dtype).eps if flat.is_floating_point() else None
        task.session.model.check_inside(flat.to(working_dtype(flat.dtype)), name, precision)
    moves = task.session.inputs.moves
    if moves is None:
        return samples
    own = task.x.to(samples.device)[:, None]
    return torch.where(moves[task.rows].to(samples.device)[:, None], samples.to(own), own)


def _rows(lead: str, shape: torch.Size) -> str:
    """The shape of some samples, for a message."""
    return f"({', '.join([lead, *map(str, shape)])})"
