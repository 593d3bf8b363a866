"""Adapters with the interfaces of Captum, Quantus and SHAP: one module for each library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ig2.errors import InputError, describe
from ig2.methods import Method
from ig2.model import Model
from ig2.references import References

AnyModel = Model | nn.Module | Callable[..., Any]


def as_method(method: object) -> Method:
    """Check that this is an ig2 method: these libraries name their methods by strings or build them from a network."""
    if not isinstance(method, Method):
        raise InputError(f"method must be an ig2 method, for example ig2.IG2(), got {describe(method)}")
    return method


def as_tensor(data: Any, model: Model, name: str) -> Tensor:
    """Convert an array, a data frame or a tensor to a tensor in the precision of the network's weights."""
    try:
        # a copy: arrays that may not be written to, as of a data frame, make torch warn
        tensor = data if isinstance(data, Tensor) else torch.as_tensor(np.array(data))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers, got {describe(data)}: {error}") from error
    weights = (p.dtype for _, module in model.modules for p in module.parameters(recurse=False) if p.is_floating_point())
    return tensor.to(next(weights, tensor.dtype if tensor.is_floating_point() else torch.float32))


def as_references(references: Any, model: Model) -> Any:
    """Convert samples to a tensor; strategies and numbers are returned unchanged."""
    if references is None or isinstance(references, (References, int, float)):
        return references
    return as_tensor(references, model, "references")
