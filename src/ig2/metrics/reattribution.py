"""Attributions recomputed with their original method, for metrics that change the network or the explicands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ig2._engine.explicands import Explicands
from ig2._utils.settings import function, required
from ig2.attribution import Attribution
from ig2.errors import InputError
from ig2.inputs import Fixed
from ig2.methods.base import Method
from ig2.metrics.base import Case, Metric
from ig2.model import Model

# called as method(model, x, target=..., references=..., seed=...), where the attribution is against some classes with
# against=..., returns an Attribution or a tensor in x's shape
MethodLike = Callable[..., Any]
# An attribution made again on the same network differs by rounding alone, even where a path magnifies it.
TOLERANCE = 1e-2


def rebuild_x(inputs: Explicands, points: Tensor) -> Any:
    """Return points (B, ...), one for each explicand, in the structure of the call's x, with its fixed inputs."""
    parts: dict[int | str, Any] = {key: Fixed(value) for key, value in inputs.fixed.items()}
    for (key, _, _), tensor in zip(inputs.attributed, inputs.split(points), strict=True):
        parts[key] = Fixed(tensor, inputs.held[key]) if key in inputs.held else tensor
    if not inputs.keys:
        return parts[0]
    if isinstance(inputs.keys[0], str):
        return {key: parts[key] for key in inputs.keys}
    return tuple(parts[key] for key in inputs.keys)


def original_seed(case: Case) -> int:
    """Return the seed of the attribution if it is recorded, otherwise that of the metric's call."""
    seed = case.attribution.settings.get("seed") if case.attribution is not None else None
    return seed if isinstance(seed, int) else case.seed


@dataclass(frozen=True, eq=False)
class Reattribution(Metric):
    """Base class of metrics that explain again, by the attribution's own method. Subclasses have a field `references`.

    Args:
        method: the method that computed the attribution, or a function called as
            `method(model, x, target=..., references=..., seed=...)` that returns an `Attribution` or a tensor.
    """

    method: MethodLike = required(function("a method such as ig2.IG2(), or a function called like one"))

    @property
    @abstractmethod
    def references(self) -> Any:
        """The references of the attribution."""

    def attribute_again(self, model: Model, case: Case, points: Tensor | None = None) -> Tensor:
        """Return attributions of the case's explicands, or of points in their place, on a model, as `case.values`."""
        inputs = case.task.session.inputs
        x = rebuild_x(inputs, inputs.data if points is None else points)
        options: dict[str, Any] = {"references": self.references, "seed": original_seed(case)}
        if isinstance(self.method, Method):
            options["batch_size"] = case.task.batch.points
        if case.task.against is not None:
            options["against"] = case.task.against
        with torch.enable_grad():  # a function of the user's may take gradients as it is used to
            attribution = self.method(model, x, target=case.task.target, **options)
        values = attribution.values if isinstance(attribution, Attribution) else attribution
        return inputs.pack(values, "what the method returned").detach()

    def check_reproduces(self, case: Case) -> None:
        """Raise an `InputError` unless the method reproduces the attribution; otherwise more than the network would change."""
        again = self.attribute_again(case.model, case)
        change, norm = ((again - case.values).flatten(1).norm(dim=1), case.values.flatten(1).norm(dim=1))
        if (change > TOLERANCE * norm).any():
            row = int((change - TOLERANCE * norm).argmax())
            raise InputError(
                f"the method does not return this attribution again on the same network: that of explicand {row} differs by "
                f"{float(change[row]):.3g}, and its norm is {float(norm[row]):.3g}. Pass the method, the references and the "
                "seed it was made with"
            )
