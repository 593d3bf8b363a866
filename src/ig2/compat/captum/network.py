"""The network that a call of Captum's explains: by one of its outputs, or up to a layer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ig2._engine.activations import Hooked, first_result, first_tensor
from ig2.compat.captum.forms import Target
from ig2.errors import InputError, describe
from ig2.model import OUTPUTS, Model


@dataclass(frozen=True)
class SharedTensor:
    """A tensor that all samples share."""

    value: Tensor


@dataclass(frozen=True, eq=False)
class _TargetModel(Model):
    """A model with only the outputs selected by Captum's target; without a selection, it must have a single output.

    Inputs listed in `scalars` have an additional axis for the one number of a sample, which the network does not expect.
    """

    names: tuple[tuple[int, ...], ...] | None = None
    scalars: tuple[int, ...] = ()

    def preprocessed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(arg.value if isinstance(arg, SharedTensor) else arg for arg in args)
        return super().preprocessed(tuple(a.squeeze(1) if i in self.scalars else a for i, a in enumerate(args)), kwargs)

    def logits(self, raw: Any) -> Tensor:
        logits = super().logits(raw)
        is_single = logits.ndim > 2 and logits[0].numel() == 1 and not self.names
        return logits.reshape(len(logits), 1) if is_single else logits

    def scores(self, raw: Any, rows: int, which: Tensor | None = None) -> Tensor:
        if not self.names:
            scores = super().scores(raw, rows, which)
            if self.names is not None and scores.shape[1] > 1:
                raise InputError(f"the network has {scores.shape[1]} outputs: name one with target=")
            return scores
        outputs = self.output(raw) if callable(self.output) else OUTPUTS[self.output](self.logits(raw))
        if any(len(name) != outputs.ndim - 1 for name in self.names):
            raise InputError(f"target {self.names[0]} does not name one output: the network returned {describe(outputs)}")
        try:
            return torch.stack([outputs.movedim(0, -1)[name] for name in self.names], dim=1)
        except IndexError as error:
            raise InputError(f"target is outside the network's output, {describe(outputs)}: {error}") from error


def select_output(model: Model, target: Target, scalars: tuple[int, ...]) -> tuple[Model, Any]:
    """Return the model, and the index of the output to explain, for a target in one of Captum's forms."""
    names: tuple[tuple[int, ...], ...] | None = None
    index: Any = target
    if target is None:
        names = ()
    elif isinstance(target, tuple):
        names, index = (target,), 0
    elif isinstance(target, list) and target and all(isinstance(item, tuple) for item in target):
        names = tuple(dict.fromkeys(target))  # type: ignore[arg-type]
        index = [names.index(item) for item in target]
    elif isinstance(target, Tensor) and target.numel() == 1:
        index = target.reshape(())
    settings = {field.name: getattr(model, field.name) for field in fields(model)}
    if names:
        del settings["kept"]  # opened for other outputs
    return _TargetModel(**settings, names=names, scalars=scalars), index


class Lower(Hooked):
    """A network up to a layer, which returns its activation."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        seen: list[Tensor] = []  # a copy, which later layers do not write into
        before = lambda _, args, kwargs: seen.append(first_tensor(args, kwargs).clone())  # noqa: E731
        self.run(args, kwargs, before, lambda _, args, result: seen.append(first_result(result).clone()))
        if not seen:
            raise InputError(f"layer {self.name!r} does not run in the network's forward pass: name one that does")
        return seen[-1]
