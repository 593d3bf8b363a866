"""Explaining the same explicands again, with the method that made an attribution: metrics that change the network need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ig2._engine.inputs import Fixed, Inputs
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.methods.base import Method
from ig2.metrics.base import Case
from ig2.model import Model

# called as method(model, x, target=..., references=..., seed=...), gives an Attribution or a tensor in x's shape
MethodLike = Callable[..., Any]
# An attribution made again on the same network differs by rounding alone, even where a path magnifies it.
SAME = 1e-2


def check_method(method: object) -> None:
    """A method of ours, or a function that is called as one."""
    if not callable(method) or isinstance(method, type):
        raise InputError(f"method must be a method such as ig2.IG2(), or a function called like one; got {describe(method)}")


def as_given(inputs: Inputs, points: Tensor) -> Any:
    """Points (B, ...), one for each explicand, in the structure x was given in, beside the inputs that are fixed."""
    tensors = inputs.split(points)
    parts: dict[int | str, Any] = {key: Fixed(value) for key, value in inputs.fixed.items()}
    for (key, _, _), tensor in zip(inputs.attributed, tensors, strict=True):
        parts[key] = Fixed(tensor, inputs.held[key]) if key in inputs.held else tensor
    if not inputs.keys:
        return parts[0]
    if isinstance(inputs.keys[0], str):
        return {key: parts[key] for key in inputs.keys}
    return tuple(parts[key] for key in inputs.keys)


def seed_of(case: Case) -> int:
    """The seed the attribution was made with, as far as it says; otherwise that of the metric's call."""
    made_with = case.attribution.settings.get("seed") if case.attribution is not None else None
    return made_with if isinstance(made_with, int) else case.seed


def explained(method: MethodLike, references: Any, model: Model, case: Case) -> Tensor:
    """What the method gives for the case's explicands and classes on a model, in the layout of `case.values`."""
    inputs = case.task.session.inputs
    options = {"batch_size": case.task.batch.points} if isinstance(method, Method) else {}
    with torch.enable_grad():  # a function of the user's may take gradients as it is used to
        found = method(
            model, as_given(inputs, inputs.data), target=case.task.target, references=references, seed=seed_of(case), **options
        )
    return inputs.pack(found.values if isinstance(found, Attribution) else found, "what the method returned").detach()


def check_repeats(method: MethodLike, references: Any, case: Case) -> None:
    """That the method is the one that made the attribution: otherwise a change of the network is not all that changed."""
    again = explained(method, references, case.model, case)
    off, size = (t.flatten(1).norm(dim=1) for t in (again - case.values, case.values))
    if (off > SAME * size).any():
        row = int((off - SAME * size).argmax())
        raise InputError(
            f"the method does not give this attribution again on the same network: that of explicand {row} differs by "
            f"{float(off[row]):.3g}, its own norm is {float(size[row]):.3g}. Give the method, the references and the seed it "
            "was made with"
        )
