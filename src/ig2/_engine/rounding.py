"""How far numbers of a network may be apart before more than rounding must be why."""

from __future__ import annotations

import torch
from torch import Tensor

from ig2._engine.network import Network


def tolerance(network: Network) -> float:
    """Return how much of the largest score may change when a sample is scored in another batch:
    rounding, and TF32's."""
    types = network.precisions
    if types == {torch.float64}:
        return 1e-6
    in_half = types & {torch.float16, torch.bfloat16} or torch.is_autocast_enabled(network.inputs.data.device.type)
    return 1e-1 if in_half else 1e-2


def is_close(tensor: Tensor, other: Tensor, relative: float, absolute: float = 0.0) -> bool:
    """Return whether they are equal up to what batching changes in the rounding.

    A NaN is judged later, where it can be located.
    """
    scale = max(1e-6, float(tensor.detach().abs().nan_to_num(posinf=0.0).max()))
    return torch.allclose(tensor, other.to(tensor.dtype), rtol=relative, atol=relative * scale + absolute, equal_nan=True)
