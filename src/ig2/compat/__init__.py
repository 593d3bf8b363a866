"""Our methods where Captum, Quantus, SHAP or PAIR's saliency are expected, each in a module of that name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2.errors import InputError, describe
from ig2.model import Model
from ig2.references.base import References


def as_tensor(data: Any, model: Model, name: str) -> Tensor:
    """An array, a data frame or a tensor as a tensor in the precision of the network's weights."""
    try:
        # a copy: arrays that may not be written to, as of a data frame, make torch warn
        tensor = data if isinstance(data, Tensor) else torch.as_tensor(np.array(data))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers, got {describe(data)}: {error}") from error
    weights = (p.dtype for _, module in model.modules for p in module.parameters(recurse=False) if p.is_floating_point())
    return tensor.to(next(weights, tensor.dtype if tensor.is_floating_point() else torch.float32))


def as_given(references: Any, model: Model) -> Any:
    """References as a method's call takes them: strategies and numbers as they are, samples as tensors."""
    if references is None or isinstance(references, (References, int, float)):
        return references
    return as_tensor(references, model, "references")
