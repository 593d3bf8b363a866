"""The base class of Captum's interface: inputs, targets and further arguments in Captum's forms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

import ig2
from ig2.compat import AnyModel, as_model
from ig2.compat.captum.forms import Copies, SharedTensor, Target, Tensors, as_args, as_tensors, innermost, select_output
from ig2.errors import import_extra
from ig2.methods.base import Method
from ig2.model import Model

GradientAttribution: Any = import_extra("captum.attr", "captum", "ig2.compat.captum").GradientAttribution

F = TypeVar("F", bound=Callable[..., Any])


def wrapped(attribute: F) -> F:
    """Wrap a method as Captum does to log its use: its `NoiseTunnel` bypasses the log by `attribute.__wrapped__`."""
    return functools.wraps(attribute)(lambda *args, **kwargs: attribute(*args, **kwargs))  # type: ignore[return-value]


class Adapter(GradientAttribution):  # type: ignore[misc] # Captum need not be installed where types are checked
    """An ig2 method, called with inputs, targets and further arguments in Captum's forms."""

    def __init__(self, method: Method, model: AnyModel, multiply_by_inputs: bool = True, seed: int = 0) -> None:
        super().__init__((lambda *args: model(args)) if isinstance(model, Model) else model)
        self.method = method
        self.model = as_model(model)
        self.multiply_by_inputs = multiply_by_inputs
        self.seed = seed

    def attribute_future(self, *args: Any, **kwargs: Any) -> None:
        """Raise `NotImplementedError`, as these classes do in Captum."""
        raise NotImplementedError("attribute_future is not available: call attribute, which returns the attributions")

    def has_convergence_delta(self) -> bool:
        """Return whether the method's values should sum to the change in the output from a baseline."""
        squared = getattr(self.method, "squared", False)  # SmoothGrad²
        without = (ig2.Gradient, ig2.InputXGradient, ig2.Random, ig2.GradCFE)
        return not squared and not isinstance(innermost(self.method), without)

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether values are contributions to the output ("global" in Captum's terms) and not slopes."""
        method = innermost(self.method)
        is_slope = isinstance(method, (ig2.Gradient, ig2.Random)) and not isinstance(method, ig2.InputXGradient)
        return self.multiply_by_inputs and not is_slope

    def _explain(
        self, method: Method, inputs: Tensors, target: Target, extra: Any, references: Any = None, **options: Any
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Return a method's values for each tensor of inputs, and its residual; references of scalars (B,) are (R, 1)."""
        tensors = as_tensors(inputs)
        # Captum passes a 0-d tensor to every sample alike; a `Fixed` tensor has a row for each
        fixed = [ig2.Fixed(SharedTensor(arg) if isinstance(arg, Tensor) and arg.ndim == 0 else arg) for arg in as_args(extra)]
        # the engine needs features: scalar samples get an axis for theirs, and a tensor without any is passed along
        moving = [t[:, None] if t.ndim == 1 else t if t.numel() else ig2.Fixed(t) for t in tensors]
        model, index = select_output(self.model, target, tuple(i for i, tensor in enumerate(tensors) if tensor.ndim == 1))
        is_bare = isinstance(inputs, Tensor) and not fixed
        if is_bare and isinstance(references, tuple):
            (references,) = references
        x = moving[0] if is_bare else (*moving, *fixed)
        attribution = method(model, x, index, references, seed=self.seed, **options)
        values = iter(as_tensors(attribution.values))
        shaped = tuple(next(values).reshape(t.shape) if t.numel() else torch.zeros_like(t) for t in tensors)
        return shaped, attribution.residual

    def _average(
        self, copies: Copies, values: Sequence[Tensor], baselines: Sequence[Tensor], with_delta: bool
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Return the mean over the copies of each input, with the convergence delta of every copy if asked for."""
        means = copies.like([value.mean(dim=1) for value in copies.gather(values)])
        if not with_delta:
            return means
        ends = tuple(copies.tensors)
        return means, self.compute_convergence_delta(tuple(values), tuple(baselines), ends, *copies.arguments)


class Multipliers(ig2.DeepSHAP):
    """DeepLIFT's multipliers, without the factor input − baseline."""

    multiplies = False
