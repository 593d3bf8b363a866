"""Any ig2 method as one of Captum's attributions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

import ig2
from ig2.compat import AnyModel, as_method
from ig2.compat.captum.call import CaptumCall
from ig2.compat.captum.forms import (
    Baselines,
    Integration,
    Target,
    Tensors,
    change_steps,
    pair_baselines,
    sample_baselines,
)
from ig2.errors import InputError, describe, import_extra
from ig2.methods.base import Method
from ig2.model import Model, as_model

captum: Any = import_extra("captum.attr", "captum", "ig2.compat.captum")

F = TypeVar("F", bound=Callable[..., Any])


def wrapped(attribute: F) -> F:
    """Wrap a method as Captum does to log its use: its `NoiseTunnel` bypasses the log by `attribute.__wrapped__`."""
    return functools.wraps(attribute)(lambda *args, **kwargs: attribute(*args, **kwargs))  # type: ignore[return-value]


class Adapter(captum.GradientAttribution):  # type: ignore[misc] # Captum need not be installed where types are checked
    """An attribution of Captum's on our engine."""

    def __init__(self, model: AnyModel, seed: int = 0) -> None:
        super().__init__((lambda *args: model(args)) if isinstance(model, Model) else model)
        self.model, self.seed = as_model(model), seed

    def attribute_future(self, *args: Any, **kwargs: Any) -> None:
        """Raise `NotImplementedError`, as these classes do in Captum."""
        raise NotImplementedError("attribute_future is not available: call attribute, which returns the attributions")


class CaptumMethod(Adapter):
    """An ig2 method as a Captum `Attribution`, to call like Captum's methods and to pass to its `NoiseTunnel` and metrics.

    >>> import torch, ig2
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2))
    >>> x = torch.ones(4, 3)
    >>> values, delta = CaptumMethod(ig2.IntegratedGradients(), net).attribute(x, target=1, return_convergence_delta=True)
    >>> values.shape, bool((delta.abs() < 1e-6).all())
    (torch.Size([4, 3]), True)

    Args:
        method: an ig2 method, for example `ig2.IG2(steps=200)`.
        model: the network or forward function, as in Captum, or the result of `ig2.wrap`, to declare a representation, bounds
            or preprocessing.
        references: the default if `attribute` gets no baselines: samples, a number or a strategy of `ig2.references`, as
            for the method.
        distribution: the meaning of several baselines. True: samples that every input is compared with, as for Captum's
            `DeepLiftShap`. False: one for each input, as for its `IntegratedGradients`. By default False for methods whose
            default baseline is zero, and True for all others, independent of the number of baselines.
        seed: the seed of all random draws.

    Raises:
        InputError: if `method` is not an ig2 method.
    """

    def __init__(
        self, method: Method, model: AnyModel, references: Any = None, *, distribution: bool | None = None, seed: int = 0
    ) -> None:
        super().__init__(model, seed)
        self.method, self.references = as_method(method), references
        self.distribution = method.default_references is None if distribution is None else distribution

    @wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: Integration | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Attribute the output at `target` to the inputs.

        Args:
            inputs: a tensor (B, ...), or a tuple of them.
            baselines: None for the method's default (zero for Integrated Gradients, Guided IG and DeepSHAP), a number, or a
                tensor: one (1, ...) for all, one for each input (B, ...), or samples (R, ...) or (B, R, ...), see
                `distribution`. For a tuple of inputs, a tuple of these. A gradient has no baseline: for `Gradient` and
                `InputXGradient` the second argument is the target, as in Captum.
            target: the output to explain: an index for all inputs or one for each; tuples if the output has several axes.
                Not required if the network has a single output.
            additional_forward_args: further arguments of the forward function, after the inputs, which are not attributed.
                Tensors have a row for each input, or no axis.
            n_steps: the number of steps; by default the method's.
            method: the quadrature rule on a straight line; by default the method's. The weights of `riemann_trapezoid` sum to
                one; Captum's sum to (n − 1)/n.
            internal_batch_size: the number of points per batch of the network, by default as many as fit in memory. It may be
                smaller than the number of inputs.
            return_convergence_delta: whether to also return Σ attributions − (f(input) − f(baseline)), (B,): the mean over the
                baselines if there are several, with the GradCFs as baselines for IG².

        Returns:
            Attributions in the form and shape of `inputs`, or (attributions, delta).

        Raises:
            InputError: if an argument does not fit the inputs, the network or the method.
        """
        name = type(self.method).__name__
        if self._is(ig2.Gradient, ig2.InputXGradient) and baselines is not None:
            if target is not None:
                raise InputError(f"{name} has no baseline, got {describe(baselines)}: leave baselines out")
            baselines, target = None, baselines
        call = CaptumCall(self.model, inputs, target, additional_forward_args, internal_batch_size, self.seed)
        references = self._as_references(call.tensors, baselines)
        values, _, residual = call.explain(change_steps(self.method, n_steps, method), references)
        if not return_convergence_delta:
            return call.like(values)
        if residual is None:
            raise InputError(f"{name} has no baseline, and so no convergence delta: leave return_convergence_delta out")
        return call.like(values), residual

    def has_convergence_delta(self) -> bool:
        """Return whether the method's values should sum to the change in the output from a baseline."""
        squared = getattr(self.method, "squared", False)  # SmoothGrad²
        return not squared and not self._is(ig2.Gradient, ig2.InputXGradient, ig2.Random, ig2.GradCFE)

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether values are contributions to the output ("global" in Captum's terms) and not slopes."""
        return self._is(ig2.InputXGradient) or not self._is(ig2.Gradient, ig2.Random)

    def _is(self, *methods: type[Method]) -> bool:
        """Return whether the method is one of these, by itself or inside SmoothGrad or XRAI."""
        inner = self.method
        while isinstance(getattr(inner, "method", None), Method):
            inner = inner.method  # type: ignore[attr-defined]
        return isinstance(inner, methods)

    def _as_references(self, inputs: tuple[Tensor, ...], baselines: Baselines) -> Any:
        """Convert Captum's baselines to references, (R, ...) for all inputs or (B, R, ...)."""
        if baselines is not None:
            return (sample_baselines if self.distribution else pair_baselines)(inputs, baselines)
        if self.references is not None or not self.method.needs_references:
            return self.references
        if self._is(ig2.DeepSHAP):
            return 0.0
        raise InputError(f"{type(self.method).__name__} needs references: pass baselines=samples (R, ...)")
