"""Captum's `attribute(inputs, baselines, target, ...)` for any of our methods, and Captum's own classes on our engine.

`CaptumMethod` gives a method of ours the call of Captum [Kokhlikyan 2020]. The other classes have the names and arguments of
Captum's, so that a program changes over by its import line.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

import ig2
from ig2 import rules
from ig2._engine.activations import first_result, first_tensor
from ig2._engine.layers import in_this_thread
from ig2._utils.checks import check_count
from ig2.attribution import Attribution
from ig2.compat import AnyModel, as_method, as_model
from ig2.errors import InputError, describe, import_extra
from ig2.methods.base import Method
from ig2.methods.path import PathMethod
from ig2.model import OUTPUTS, Layer, Model, find_layer, preprocess_arguments
from ig2.paths import Straight
from ig2.rules import Quadrature

GradientAttribution: Any = import_extra("captum.attr", "captum", "ig2.compat.captum").GradientAttribution

Tensors = Tensor | tuple[Tensor, ...]
Baselines = Tensor | float | tuple[Tensor | float, ...] | None
CallableBaselines = Callable[..., Tensors]
CustomAttribution = Callable[[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]], Tensors]
Target = int | tuple[int, ...] | Tensor | list[int] | list[tuple[int, ...]] | None
Selector = int | tuple[int | slice, ...] | Callable[[Tensor], Tensor]
Integration = Literal["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]

# Captum counts from the baseline and we from the explicand, so that its left is our right.
RIEMANN = {
    "riemann_left": rules.right,
    "riemann_right": rules.left,
    "riemann_middle": rules.midpoint,
    "riemann_trapezoid": rules.trapezoid,
}

F = TypeVar("F", bound=Callable[..., Any])


def _wrapped(attribute: F) -> F:
    """Captum wraps its methods to log their use, and its `NoiseTunnel` calls `attribute.__wrapped__` past that."""
    return functools.wraps(attribute)(lambda *args, **kwargs: attribute(*args, **kwargs))  # type: ignore[return-value]


class _Adapter(GradientAttribution):  # type: ignore[misc] # Captum need not be installed where types are checked
    """One of our methods, called with inputs, targets and further arguments in Captum's forms."""

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
        """Whether the method sets out to account for the change in the output from a baseline."""
        squared = getattr(self.method, "squared", False)  # SmoothGrad²
        without = (ig2.Gradient, ig2.InputXGradient, ig2.Random, ig2.GradCFE)
        return not squared and not isinstance(_innermost(self.method), without)

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether values are contributions to the output ("global" in Captum's words) and not slopes."""
        method = _innermost(self.method)
        is_slope = isinstance(method, (ig2.Gradient, ig2.Random)) and not isinstance(method, ig2.InputXGradient)
        return self.multiply_by_inputs and not is_slope

    def _explain(
        self, method: Method, inputs: Tensors, target: Target, extra: Any, references: Any = None, **options: Any
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Return a method's values for each tensor of inputs, and its residual; references of scalars (B,) are (R, 1)."""
        tensors = _as_tensors(inputs)
        # Captum passes a 0-d tensor to every sample alike; a `Fixed` tensor has a row for each
        fixed = [ig2.Fixed(_SharedTensor(arg) if isinstance(arg, Tensor) and arg.ndim == 0 else arg) for arg in _as_args(extra)]
        # the engine needs features: scalar samples get an axis for theirs, and a tensor without any is passed along
        moving = [t[:, None] if t.ndim == 1 else t if t.numel() else ig2.Fixed(t) for t in tensors]
        model, index = _select_output(self.model, target, tuple(i for i, tensor in enumerate(tensors) if tensor.ndim == 1))
        is_bare = isinstance(inputs, Tensor) and not fixed
        if is_bare and isinstance(references, tuple):
            (references,) = references
        x = moving[0] if is_bare else (*moving, *fixed)
        attribution = method(model, x, index, references, seed=self.seed, **options)
        values = iter(_as_tensors(attribution.values))
        shaped = tuple(next(values).reshape(t.shape) if t.numel() else torch.zeros_like(t) for t in tensors)
        return shaped, attribution.residual

    def _average(
        self, copies: _Copies, values: Sequence[Tensor], baselines: Sequence[Tensor], with_delta: bool
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Return the mean over the copies of each input, with the convergence delta of every copy if asked for."""
        means = copies.like([value.mean(dim=1) for value in copies.gather(values)])
        if not with_delta:
            return means
        ends = tuple(copies.tensors)
        return means, self.compute_convergence_delta(tuple(values), tuple(baselines), ends, *copies.arguments)


class CaptumMethod(_Adapter):
    """One of our methods as a Captum `Attribution`, to call like Captum's own and to pass to its `NoiseTunnel` and metrics.

    >>> import torch, ig2
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2))
    >>> x = torch.ones(4, 3)
    >>> values, delta = CaptumMethod(ig2.IntegratedGradients(), net).attribute(x, target=1, return_convergence_delta=True)
    >>> values.shape, bool((delta.abs() < 1e-6).all())
    (torch.Size([4, 3]), True)

    Args:
        method: for example `ig2.IG2(steps=200)`.
        model: the network or forward function, as in Captum, or what `ig2.wrap` returned, where a representation, bounds or
            preprocessing are to be declared.
        references: the default where `attribute` gets no baselines: samples, a number or a strategy of `ig2.references`, as
            in a method's own call.
        distribution: what several baselines mean. True: samples that every input is compared with, as for Captum's
            `DeepLiftShap`. False: one for each input, as for its `IntegratedGradients`. By default False for methods whose
            default baseline is zero, and True for all others; it never depends on how many there are.
        seed: for all random draws.

    Raises:
        InputError: if `method` is not an ig2 method.
    """

    def __init__(
        self, method: Method, model: AnyModel, references: Any = None, *, distribution: bool | None = None, seed: int = 0
    ) -> None:
        super().__init__(as_method(method), model, seed=seed)
        self.references = references
        self.distribution = method.default_references is None if distribution is None else distribution

    @_wrapped
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
            target: the output to explain: an index for all inputs or one for each; tuples where the output has several axes.
                Not needed where the network has a single output.
            additional_forward_args: further arguments of the forward function, after the inputs, which are not attributed.
                Tensors have a row for each input, or no axis.
            n_steps: the number of steps; by default the method's.
            method: the quadrature rule on a straight line; by default the method's. The weights of `riemann_trapezoid` sum to
                one; Captum's sum to (n − 1)/n.
            internal_batch_size: how many points the network sees at once, by default as many as fit in memory. It may be
                smaller than the number of inputs.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), (B,): the mean over the baselines
                where there are several, with the GradCFs as baselines for IG².

        Returns:
            Attributions in the form and shape of `inputs`, or (attributions, delta).

        Raises:
            InputError: if an argument does not fit the inputs, the network or the method.
        """
        if isinstance(_innermost(self.method), (ig2.Gradient, ig2.InputXGradient)) and baselines is not None:
            if target is not None:
                name = type(self.method).__name__
                raise InputError(f"{name} has no baseline, got {describe(baselines)}: leave baselines out")
            baselines, target = None, baselines
        values, residual = self._explain(
            _change_steps(self.method, n_steps, method),
            inputs,
            target,
            additional_forward_args,
            self._as_references(_as_tensors(inputs), baselines),
            batch_size="auto" if internal_batch_size is None else internal_batch_size,
        )
        attributions = _like(inputs, values)
        if not return_convergence_delta:
            return attributions
        return attributions, self._delta(residual, values, baselines, inputs, target, additional_forward_args)

    def _delta(self, residual: Tensor | None, *arguments: Any) -> Tensor:
        if residual is None:
            name = type(self.method).__name__
            raise InputError(f"{name} has no baseline, and so no convergence delta: leave return_convergence_delta out")
        return residual

    def _as_references(self, inputs: tuple[Tensor, ...], baselines: Baselines) -> Any:
        """Turn Captum's baselines into references, (R, ...) for all inputs or (B, R, ...)."""
        if baselines is not None:
            return (_sample_baselines if self.distribution else _pair_baselines)(inputs, baselines)
        method = self.method
        defaults = (self.references, method.default_references, getattr(method, "references", None))
        if any(default is not None for default in defaults):
            return self.references
        if isinstance(_innermost(method), ig2.DeepSHAP):
            return 0.0
        if isinstance(method, PathMethod) and method.path.uses_reference:
            raise InputError(f"{type(method).__name__} needs references: pass baselines=samples (R, ...)")
        return None


# -- Captum's classes ------------------------------------------------------------------------------------------------------


class IntegratedGradients(CaptumMethod):
    """`captum.attr.IntegratedGradients` [Sundararajan 2017] on our engine: the call of `CaptumMethod`, and the same numbers.

    A baseline is one for each input, or one for all.

    Args:
        forward_func: the network, any function of tensors, or what `ig2.wrap` returned.
        multiply_by_inputs: False returns the mean gradient on the line, without the factor input − baseline.
    """

    def __init__(self, forward_func: AnyModel, multiply_by_inputs: bool = True) -> None:
        super().__init__(ig2.IntegratedGradients(), forward_func)
        self.multiply_by_inputs = multiply_by_inputs

    def _explain(
        self, method: Method, inputs: Tensors, target: Target, extra: Any, references: Any = None, **options: Any
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        if self.multiply_by_inputs:
            return super()._explain(method, inputs, target, extra, references, **options)
        assert isinstance(method, PathMethod) and isinstance(method.path, Straight) and isinstance(method.rule, Quadrature)
        places, weights = _place_points(method.path, method.rule)
        copies = _Copies(inputs, target, extra, len(places))
        ends = references or _pair_baselines(_as_tensors(inputs), None)
        slopes, _ = super()._explain(ig2.Gradient(), copies.between(ends, places), *copies.arguments, **options)
        return copies.sum(slopes, weights), None

    def _delta(self, residual: Tensor | None, *arguments: Any) -> Tensor:
        delta: Tensor = self.compute_convergence_delta(*arguments)  # Captum's, to the last bit
        return delta


class Saliency(_Adapter):
    """`captum.attr.Saliency` [Simonyan 2014] on our engine: the gradient, without its sign unless `abs=False`."""

    def __init__(self, forward_func: AnyModel) -> None:
        super().__init__(ig2.Gradient(), forward_func)

    @_wrapped
    def attribute(
        self, inputs: Tensors, target: Target = None, abs: bool = True, additional_forward_args: Any = None
    ) -> Tensors:
        """Return the gradient of the output at `target`, or its magnitude. Arguments as for `CaptumMethod.attribute`."""
        values, _ = self._explain(self.method, inputs, target, additional_forward_args)
        return _like(inputs, tuple(value.abs() for value in values) if abs else values)


class InputXGradient(_Adapter):
    """`captum.attr.InputXGradient` [Shrikumar 2016] on our engine."""

    def __init__(self, forward_func: AnyModel) -> None:
        super().__init__(ig2.InputXGradient(), forward_func)

    @_wrapped
    def attribute(self, inputs: Tensors, target: Target = None, additional_forward_args: Any = None) -> Tensors:
        """Return the inputs times the gradient of the output at `target`. Arguments as for `CaptumMethod.attribute`."""
        return _like(inputs, self._explain(self.method, inputs, target, additional_forward_args)[0])


class DeepLift(_Adapter):
    """`captum.attr.DeepLift` [Shrikumar 2017] on our engine, which also takes plain functions and modules used twice.

    Args:
        model: the network, any function of tensors, or what `ig2.wrap` returned.
        multiply_by_inputs: False returns the multipliers, without the factor input − baseline.
        eps: not used: a small step takes the derivative where that accounts for it to rounding.
    """

    def __init__(self, model: AnyModel, multiply_by_inputs: bool = True, eps: float = 1e-10) -> None:
        super().__init__(_Multipliers(), model, multiply_by_inputs)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines | CallableBaselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        custom_attribution_func: CustomAttribution | None = None,
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Attribute the output at `target`: multipliers Δf/Δx, times input − baseline.

        Arguments that are not listed are those of `CaptumMethod.attribute`.

        Args:
            baselines: a number, or a tensor: one (1, ...) for all or one for each input (B, ...); zero by default.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), (B,).
            custom_attribution_func: from multipliers, inputs and baselines, each a tuple of tensors, to attributions.

        Returns:
            Attributions in the form and shape of `inputs`, or (attributions, delta).
        """
        count, references = self._pair(inputs, baselines)
        copies = _Copies(inputs, target, additional_forward_args, count)
        tensors, ends = tuple(copies.tensors), tuple(map(torch.Tensor.view_as, references, copies.tensors))
        values, _ = self._explain(self.method, _like(inputs, tensors), *copies.arguments, references)
        if custom_attribution_func is not None:
            custom = custom_attribution_func(values, tensors, ends)
            values = (custom,) if isinstance(custom, Tensor) else custom
        elif self.multiply_by_inputs:
            values = copies.multiply(values, ends)
        return self._average(copies, values, ends, return_convergence_delta)

    @staticmethod
    def _pair(inputs: Tensors, baselines: Any) -> tuple[int, tuple[Tensor, ...]]:
        """Return how many baselines each input has, and the baseline (n, 1, ...) of each pair."""
        return 1, _pair_baselines(_as_tensors(inputs), baselines)


class DeepLiftShap(DeepLift):
    """`captum.attr.DeepLiftShap` [Lundberg 2017] on our engine: the mean of `DeepLift` over baselines shared by all inputs.

    In `attribute`, `baselines` are samples (R, ...) or a function of the inputs or of nothing that returns them. The delta is
    that of each pair, (B · R,): the first input with each baseline, then the second. `custom_attribution_func` gets all pairs.
    """

    def __init__(self, model: AnyModel, multiply_by_inputs: bool = True) -> None:
        super().__init__(model, multiply_by_inputs)

    @staticmethod
    def _pair(inputs: Tensors, baselines: Any) -> tuple[int, tuple[Tensor, ...]]:
        samples, rows = _share_baselines(inputs, baselines), len(_as_tensors(inputs)[0])
        return len(samples[0]), tuple(sample.repeat(rows, *[1] * (sample.ndim - 1)).unsqueeze(1) for sample in samples)


class GradientShap(_Adapter):
    """`captum.attr.GradientShap` on our engine: the gradient at random points between noisy inputs and random baselines.

    The estimator is that of expected gradients [Erion 2021]. Points are spread evenly over the line rather than by chance
    alone, which takes fewer of them. `ig2.ExpectedIG` integrates along every line to every baseline and draws nothing.

    Args:
        forward_func: the network, any function of tensors, or what `ig2.wrap` returned.
        multiply_by_inputs: False leaves out the factor input − baseline.
        seed: for noise, baselines and points. Global random state is neither read nor changed.
    """

    def __init__(self, forward_func: AnyModel, multiply_by_inputs: bool = True, seed: int = 0) -> None:
        super().__init__(ig2.ExpectedIG(), forward_func, multiply_by_inputs, seed)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines | CallableBaselines,
        n_samples: int = 5,
        stdevs: float | tuple[float, ...] = 0.0,
        target: Target = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Attribute the output at `target`: the mean gradient over the points, times input − baseline.

        Arguments that are not listed are those of `CaptumMethod.attribute`.

        Args:
            baselines: samples (R, ...) to draw from, or a function of the inputs or of nothing that returns them.
            n_samples: how many points for each input.
            stdevs: standard deviation of the noise on the inputs, one for all tensors or one for each.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)) of each point, (B · n_samples,).

        Returns:
            Attributions in the form and shape of `inputs`, or (attributions, delta).
        """
        copies = _Copies(inputs, target, additional_forward_args, n_samples)
        ends, places = _draw_points(copies, inputs, baselines, stdevs, self.seed)
        values = self._explain(ig2.Gradient(), copies.between(ends, places), *copies.arguments)[0]
        if self.multiply_by_inputs:
            values = copies.multiply(values, ends)
        return self._average(copies, values, ends, return_convergence_delta)


class KernelShap(_Adapter):
    """`captum.attr.KernelShap` [Lundberg 2017] on our engine, which is exact where all coalitions can be tried.

    Args:
        forward_func: the network, any function of tensors, or what `ig2.wrap` returned.
        seed: for the coalitions drawn. Global random state is neither read nor changed.
    """

    def __init__(self, forward_func: AnyModel, seed: int = 0) -> None:
        super().__init__(ig2.KernelSHAP(), forward_func, seed=seed)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        n_samples: int = 25,
        perturbations_per_eval: int = 1,
        return_input_shape: bool = True,
        show_progress: bool = False,
    ) -> Tensors:
        """Attribute the output at `target`. Arguments that are not listed are those of `DeepLift.attribute`.

        Args:
            inputs: a tensor (B, ...), or a tuple of them. Where the forward function returns one number for all of them,
                they are explained as one.
            feature_mask: the group of each feature, (1, ...) or (B, ...); for a tuple of inputs a tuple of these, in which a
                number means the same group throughout. By default each feature is a group.
            n_samples: how many coalitions are tried, at least two for each group: fewer cannot tell groups apart.
            perturbations_per_eval: how many samples the network sees at once.
            return_input_shape: False returns a number for each group, (B, groups).
            show_progress: show a progress bar.

        Returns:
            Attributions in the form and shape of `inputs`, the same within a group; or those of the groups.

        Raises:
            InputError: if an argument does not fit the inputs or the network.
        """
        tensors, extra = _as_tensors(inputs), additional_forward_args
        references, masks = _pair_baselines(tensors, baselines), _match_masks(tensors, feature_mask)
        full = [mask.expand(tensor.shape) for mask, tensor in zip(masks, tensors, strict=True)]
        if len(tensors[0]) > 1 and target is None and self._returns_one(tensors, extra):
            if any(len(mask) > 1 for mask in masks):
                raise InputError(
                    f"the network returned one number for {len(tensors[0])} inputs, which are therefore explained as one: "
                    f"give them one feature_mask (1, ...), got {describe(feature_mask)}"
                )
            # a single explicand, whose first axis is the inputs' batch
            whole = KernelShap(lambda *batch: self.forward_func(*(part[0] for part in batch), *_as_args(extra)), self.seed)
            coefficients = whole.attribute(
                tuple(tensor[None] for tensor in tensors),
                tuple(end.reshape(1, *tensor.shape) for end, tensor in zip(references, tensors, strict=True)),
                feature_mask=tuple(mask[None] for mask in full),
                n_samples=n_samples,
                perturbations_per_eval=perturbations_per_eval,
                return_input_shape=False,
                show_progress=show_progress,
            )
            assert isinstance(coefficients, Tensor)
        else:
            masks, indices = full, torch.cat([mask.flatten(1) for mask in full], dim=1)
            count = 1 + int(indices.max())
            shaped = [mask[:, None] if mask.ndim == 1 else mask for mask in full if mask.numel()]
            method = ig2.KernelSHAP(shaped[0] if len(shaped) == 1 else indices, max(n_samples, 2 * count))
            options: dict[str, Any] = {"batch_size": perturbations_per_eval, "progress": show_progress}
            values, _ = self._explain(method, inputs, target, extra, references, **options)
            contributions = torch.cat([value.flatten(1) for value in values], dim=1)
            # what a group contributes, which the engine divides among its features
            coefficients = contributions.new_zeros(len(indices), count).scatter_add_(1, indices, contributions)
        if not return_input_shape:
            return coefficients
        return _like(inputs, [coefficients.gather(1, mask.flatten(1)).reshape(mask.shape) for mask in masks])

    def _returns_one(self, inputs: tuple[Tensor, ...], extra: Any) -> bool:
        """Whether the forward function returns one number for all inputs together."""
        with torch.no_grad():
            result = self.forward_func(*inputs, *_as_args(extra))
        return result.numel() == 1 if isinstance(result, Tensor) else isinstance(result, (int, float))


# -- Captum's classes for layers -------------------------------------------------------------------------------------------


class _AtLayer(_Adapter):
    """One of our methods at a layer, called with inputs, targets and further arguments in Captum's forms."""

    def __init__(self, method: Method, model: AnyModel, layer: Any, multiply_by_inputs: bool = True, seed: int = 0) -> None:
        super().__init__(method, model, multiply_by_inputs, seed)
        self.layer = layer

    def _find(self, to_input: bool) -> Layer:
        layer = find_layer(self.model.net, self.layer, "layer")
        if not isinstance(layer, Layer):
            raise InputError(f"layer={self.layer!r} is the network's own output: name a module")
        return replace(layer, side="input") if to_input else layer

    def _explain_layer(
        self,
        method: Method,
        inputs: Tensors,
        target: Target,
        extra: Any,
        to_input: bool,
        references: Any = None,
        **options: Any,
    ) -> Attribution:
        tensors = _as_tensors(inputs)
        fixed = [ig2.Fixed(_SharedTensor(arg) if isinstance(arg, Tensor) and arg.ndim == 0 else arg) for arg in _as_args(extra)]
        model, index = _select_output(self.model, target, ())
        is_bare = isinstance(inputs, Tensor) and not fixed
        if is_bare and isinstance(references, tuple):
            (references,) = references
        layer = self._find(to_input)
        name = f"{layer.name}:{layer.side}"
        return method(model, inputs if is_bare else (*tensors, *fixed), index, references, at=name, **options)

    def _slopes(self, points: Tensors, arguments: tuple[Any, Any], to_input: bool, **options: Any) -> tuple[Tensor, Tensor]:
        """Return the gradient by the layer where the inputs are `points`, and the layer's activation there."""
        attribution = self._explain_layer(ig2.Gradient(), points, *arguments, to_input, **options)
        assert isinstance(attribution.values, Tensor) and isinstance(attribution.explicand, Tensor)
        return attribution.values, attribution.explicand

    def _read(self, tensors: Sequence[Tensor], extra: Any, to_input: bool) -> Tensor:
        """Return the layer's activation."""
        args, kwargs = preprocess_arguments(self.model.preprocess, (*tensors, *_as_args(extra)), {})
        with torch.no_grad():
            activation: Tensor = _Lower(self.model.net, self._find(to_input))(*args, **kwargs)
        return activation


class _Lower(nn.Module):
    """A network up to one of its layers: it returns what a selector makes of the layer's activation, by default all of it."""

    def __init__(self, net: nn.Module, layer: Layer, select: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.net, self.layer, self.select = net, replace(layer, module=nn.Identity()), select
        # one that a function calls and does not show; not a part of this module
        registered = dict(net.named_modules(remove_duplicate=False)).get(layer.name) is layer.module
        self.unregistered = None if registered else (layer.module,)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        seen: list[Tensor] = []  # a copy, which later layers do not write into
        # by name in each pass: a copy of this module has its own
        layer = self.net.get_submodule(self.layer.name) if self.unregistered is None else self.unregistered[0]
        if self.layer.side == "input":
            before = in_this_thread(lambda _, args, kwargs: seen.append(first_tensor(args, kwargs).clone()))
            handle = layer.register_forward_pre_hook(before, with_kwargs=True)
        else:
            handle = layer.register_forward_hook(in_this_thread(lambda _, args, out: seen.append(first_result(out).clone())))
        try:
            self.net(*args, **kwargs)
        finally:
            handle.remove()
        if not seen:
            raise InputError(f"layer {self.layer.name!r} does not run in the network's forward pass: name one that does")
        return seen[-1] if self.select is None else self.select(seen[-1])


class LayerActivation(_AtLayer):
    """`captum.attr.LayerActivation`: what a layer returns, or gets.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it; one, where Captum also takes a list.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.InputXGradient(), forward_func, layer)

    @_wrapped
    def attribute(self, inputs: Tensors, additional_forward_args: Any = None, attribute_to_layer_input: bool = False) -> Tensor:
        """Return the activation. Arguments as for `LayerIntegratedGradients.attribute`."""
        return self._read(_as_tensors(inputs), additional_forward_args, attribute_to_layer_input)


class LayerIntegratedGradients(_AtLayer):
    """`captum.attr.LayerIntegratedGradients` on our engine: Integrated Gradients at a layer, from h(baseline) to h(input).

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it; one, where Captum also takes a list.
        device_ids: not used.
        multiply_by_inputs: True; the mean gradient alone is not available.

    Raises:
        InputError: if `multiply_by_inputs` is False.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True) -> None:
        if not multiply_by_inputs:
            raise InputError("multiply_by_inputs=False is not available at a layer: use ig2.Gradient()(net, x, at=layer)")
        super().__init__(ig2.IntegratedGradients(), forward_func, layer)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        n_steps: int = 50,
        method: Integration = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attribute the output at `target` to the layer. Arguments that are not listed are those of `CaptumMethod.attribute`.

        Args:
            baselines: of the inputs: None for zero, a number, or one for each input.
            attribute_to_layer_input: attribute to what the layer gets, not to what it returns.
            grad_kwargs: not used, here and at the other layers.

        Returns:
            Attributions in the shape of the activation, or (attributions, delta).
        """
        attribution = self._explain_layer(
            _change_steps(self.method, n_steps, method), inputs, target, additional_forward_args, attribute_to_layer_input,
            _pair_baselines(_as_tensors(inputs), baselines),
            batch_size="auto" if internal_batch_size is None else internal_batch_size,
        )  # fmt: skip
        assert attribution.residual is not None and isinstance(attribution.values, Tensor)
        return (attribution.values, attribution.residual) if return_convergence_delta else attribution.values


class InternalInfluence(_AtLayer):
    """`captum.attr.InternalInfluence` [Leino 2018] on our engine: the mean gradient by a layer on the inputs' line.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.Gradient(), forward_func, layer)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        n_steps: int = 50,
        method: Integration = "gausslegendre",
        internal_batch_size: int | None = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensor:
        """Return the mean gradient in the shape of the activation. Arguments as for `LayerIntegratedGradients.attribute`."""
        places, weights = _place_points(*_draw_line(n_steps, method))
        copies = _Copies(inputs, target, additional_forward_args, len(places))
        points = copies.between(_pair_baselines(_as_tensors(inputs), baselines), places)
        options = {"batch_size": "auto" if internal_batch_size is None else internal_batch_size}
        slopes, _ = self._slopes(points, copies.arguments, attribute_to_layer_input, **options)
        (values,) = copies.sum([slopes], weights)
        return values


class LayerConductance(_AtLayer):
    """`captum.attr.LayerConductance` [Dhamdhere 2019] on our engine: Σ ∂f/∂h · Δh over points on the inputs' line.

    The path of h is what the layer makes of that line, where `LayerIntegratedGradients` goes straight from h(baseline) to
    h(input). As in Captum, points are where the rule has them, from the first to the last of n_steps + 1; those of
    "gausslegendre" leave out both ends, "riemann_trapezoid" has them.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.IntegratedGradients(), forward_func, layer)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        n_steps: int = 50,
        method: Integration = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attribute the output at `target` to the layer. Arguments as for `LayerIntegratedGradients.attribute`."""
        check_count(n_steps, "n_steps")
        distinct = set(_place_points(*_draw_line(n_steps + 1, method))[0].tolist())
        places = torch.tensor(sorted(distinct, reverse=True), dtype=torch.float64)  # from the baseline, each once
        copies = _Copies(inputs, target, additional_forward_args, len(places))
        ends = _pair_baselines(_as_tensors(inputs), baselines)
        options = {"batch_size": "auto" if internal_batch_size is None else internal_batch_size}
        points = copies.between(ends, places)
        slopes, activations = copies.gather(self._slopes(points, copies.arguments, attribute_to_layer_input, **options))
        values = (slopes[:, :-1] * activations.diff(dim=1)).sum(dim=1)
        if not return_convergence_delta:
            return values
        starts = tuple(end.view_as(tensor) for end, tensor in zip(ends, _as_tensors(inputs), strict=True))
        return values, self.compute_convergence_delta(values, starts, inputs, target, additional_forward_args)


class LayerGradientXActivation(_AtLayer):
    """`captum.attr.LayerGradientXActivation` on our engine: a layer's activation times the gradient by it.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it; one, where Captum also takes a list.
        device_ids: not used.
        multiply_by_inputs: False returns the gradient alone.
        memory_efficient: not used.
    """

    def __init__(
        self,
        forward_func: AnyModel,
        layer: Any,
        device_ids: Any = None,
        multiply_by_inputs: bool = True,
        memory_efficient: bool = False,
    ) -> None:
        method = ig2.InputXGradient() if multiply_by_inputs else ig2.Gradient()
        super().__init__(method, forward_func, layer, multiply_by_inputs)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        target: Target = None,
        additional_forward_args: Any = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensor:
        """Return the products in the shape of the activation. Arguments as for `LayerIntegratedGradients.attribute`."""
        values = self._explain_layer(self.method, inputs, target, additional_forward_args, attribute_to_layer_input).values
        assert isinstance(values, Tensor)
        return values


class LayerDeepLift(_AtLayer):
    """`captum.attr.LayerDeepLift` on our engine: DeepLIFT's rescale rule at a layer, from h(baseline) to h(input).

    Args:
        model: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        multiply_by_inputs: False returns the multipliers, without the factor h(input) − h(baseline).
    """

    _pair = staticmethod(DeepLift._pair)

    def __init__(self, model: AnyModel, layer: Any, multiply_by_inputs: bool = True) -> None:
        super().__init__(_Multipliers(), model, layer, multiply_by_inputs)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines | CallableBaselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        attribute_to_layer_input: bool = False,
        custom_attribution_func: CustomAttribution | None = None,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attribute the output at `target` to the layer. Arguments are those of `DeepLift` and `LayerIntegratedGradients`.

        In a custom function, inputs and baselines are those of the layer.
        """
        count, references = self._pair(inputs, baselines)
        copies = _Copies(inputs, target, additional_forward_args, count)
        tensors, ends = tuple(copies.tensors), tuple(map(torch.Tensor.view_as, references, copies.tensors))
        attribution = self._explain_layer(
            self.method, _like(inputs, tensors), *copies.arguments, attribute_to_layer_input, references
        )
        values, activation = attribution.values, attribution.explicand
        assert isinstance(values, Tensor) and isinstance(activation, Tensor)
        if custom_attribution_func is not None or self.multiply_by_inputs:
            base = self._read(ends, copies.arguments[1], attribute_to_layer_input)
            if custom_attribution_func is None:
                values = values * (activation - base)
            else:
                (values,) = _as_tensors(custom_attribution_func((values,), (activation,), (base,)))
        (mean,) = (value.mean(dim=1) for value in copies.gather([values]))
        if not return_convergence_delta:
            return mean
        return mean, self.compute_convergence_delta(values, ends, tensors, *copies.arguments)


class LayerDeepLiftShap(LayerDeepLift):
    """`captum.attr.LayerDeepLiftShap` on our engine: the mean of `LayerDeepLift` over baselines shared by all inputs.

    Baselines and the delta are those of `DeepLiftShap`.
    """

    _pair = staticmethod(DeepLiftShap._pair)


class LayerGradientShap(_AtLayer):
    """`captum.attr.LayerGradientShap` on our engine: `GradientShap`'s points, and the gradient by a layer there.

    It is multiplied by h(input) − h(baseline).

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
        multiply_by_inputs: False leaves out the factor h(input) − h(baseline).
        seed: for noise, baselines and points. Global random state is neither read nor changed.
    """

    def __init__(
        self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True, seed: int = 0
    ) -> None:
        super().__init__(ig2.ExpectedIG(), forward_func, layer, multiply_by_inputs, seed)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines | CallableBaselines,
        n_samples: int = 5,
        stdevs: float | tuple[float, ...] = 0.0,
        target: Target = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attribute the output at `target` to the layer. Arguments as for `GradientShap` and `LayerIntegratedGradients`."""
        copies = _Copies(inputs, target, additional_forward_args, n_samples)
        ends, places = _draw_points(copies, inputs, baselines, stdevs, self.seed)
        values, _ = self._slopes(copies.between(ends, places), copies.arguments, attribute_to_layer_input)
        if self.multiply_by_inputs:
            activation, base = (
                self._read(points, copies.arguments[1], attribute_to_layer_input) for points in (copies.tensors, ends)
            )
            values = values * (activation - base)
        (mean,) = (value.mean(dim=1) for value in copies.gather([values]))
        if not return_convergence_delta:
            return mean
        return mean, self.compute_convergence_delta(values, tuple(ends), tuple(copies.tensors), *copies.arguments)


class LayerGradCam(_AtLayer):
    """`captum.attr.LayerGradCam` [Selvaraju 2017] on our engine: Σₖ mean(∂f/∂Aₖ) · Aₖ, on the grid of the layer.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.Gradient(), forward_func, layer)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        target: Target = None,
        additional_forward_args: Any = None,
        attribute_to_layer_input: bool = False,
        relu_attributions: bool = False,
        attr_dim_summation: bool = True,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensor:
        """Return the map (B, 1, *places), or with `attr_dim_summation=False` that of each channel.

        Arguments that are not listed are those of `LayerIntegratedGradients.attribute`.

        Args:
            relu_attributions: whether negative values become zero.
            attr_dim_summation: whether channels are summed.
        """
        gradient, activation = self._slopes(inputs, (target, additional_forward_args), attribute_to_layer_input)
        weights = gradient.mean(dim=tuple(range(2, gradient.ndim)), keepdim=True) if gradient.ndim > 2 else gradient
        maps = weights * activation
        maps = maps.sum(dim=1, keepdim=True) if attr_dim_summation else maps
        return maps.clamp(min=0) if relu_attributions else maps


# -- and for neurons: the network up to a layer, explained by the classes for inputs ---------------------------------------


class _OfNeuron(_AtLayer):
    """A neuron, attributed to the inputs."""

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True) -> None:
        super().__init__(ig2.IntegratedGradients(), forward_func, layer, multiply_by_inputs)

    def has_convergence_delta(self) -> bool:
        """No, as in Captum."""
        return False

    def _neuron(self, selector: Selector, to_input: bool) -> Model:
        """Return the model whose output is the neuron."""
        net = _Lower(self.model.net, self._find(to_input), functools.partial(_select_neuron, selector=selector))
        net.training = False  # by itself: train() would reach the user's modules
        return replace(self.model, net=net, representation=None, output="logit", compiled={})


class NeuronGradient(_OfNeuron):
    """`captum.attr.NeuronGradient` on our engine: the gradient of a neuron.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(forward_func, layer, multiply_by_inputs=False)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        neuron_selector: Selector,
        additional_forward_args: Any = None,
        attribute_to_neuron_input: bool = False,
    ) -> Tensors:
        """Return the neuron's gradient in the form and shape of `inputs`. Arguments as for `NeuronIntegratedGradients`."""
        saliency = Saliency(self._neuron(neuron_selector, attribute_to_neuron_input))
        return saliency.attribute(inputs, None, False, additional_forward_args)


class NeuronIntegratedGradients(_OfNeuron):
    """`captum.attr.NeuronIntegratedGradients` on our engine: Integrated Gradients of a neuron.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
        multiply_by_inputs: False leaves out the factor input − baseline.
    """

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        neuron_selector: Selector,
        baselines: Baselines = None,
        additional_forward_args: Any = None,
        n_steps: int = 50,
        method: Integration = "gausslegendre",
        internal_batch_size: int | None = None,
        attribute_to_neuron_input: bool = False,
    ) -> Tensors:
        """Attribute a neuron. Arguments that are not listed are those of `IntegratedGradients`.

        Args:
            neuron_selector: the index of a neuron in one sample's activation, a number or a tuple; with slices in it, the sum
                of those neurons; or a function from the activation to (B,), or to its sum over the batch.
            attribute_to_neuron_input: the neuron is one of what the layer gets, not of what it returns.

        Returns:
            Attributions in the form and shape of `inputs`.
        """
        explainer = IntegratedGradients(self._neuron(neuron_selector, attribute_to_neuron_input), self.multiply_by_inputs)
        return cast(
            Tensors, explainer.attribute(inputs, baselines, None, additional_forward_args, n_steps, method, internal_batch_size)
        )


class NeuronConductance(_OfNeuron):
    """`captum.attr.NeuronConductance` on our engine: what the inputs contribute to the output through a neuron.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
        multiply_by_inputs: False leaves out the factor input − baseline.
    """

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        neuron_selector: Selector,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        n_steps: int = 50,
        method: Integration = "riemann_trapezoid",
        internal_batch_size: int | None = None,
        attribute_to_neuron_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
    ) -> Tensors:
        """Attribute the output at `target`. Arguments are those of `NeuronIntegratedGradients`."""
        tensors = _as_tensors(inputs)
        places, weights = _place_points(*_draw_line(n_steps, method))
        copies, ends = _Copies(inputs, target, additional_forward_args, len(places)), _pair_baselines(tensors, baselines)
        points, options = (
            copies.between(ends, places),
            {"batch_size": "auto" if internal_batch_size is None else internal_batch_size},
        )
        above, _ = self._slopes(points, copies.arguments, attribute_to_neuron_input, **options)
        neuron = _Adapter(ig2.Gradient(), self._neuron(neuron_selector, attribute_to_neuron_input))
        below, _ = neuron._explain(neuron.method, points, None, copies.arguments[1], **options)
        factor = _select_neuron(above, neuron_selector)
        means = copies.sum([slope * _column(factor, slope) for slope in below], weights)
        if not self.multiply_by_inputs:
            return copies.like(means)
        return copies.like([m * (x - end.view_as(x)) for m, x, end in zip(means, tensors, ends, strict=True)])


class NeuronGradientShap(_OfNeuron):
    """`captum.attr.NeuronGradientShap` on our engine.

    Args:
        forward_func: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        device_ids: not used.
        multiply_by_inputs: False leaves out the factor input − baseline.
        seed: for noise, baselines and points.
    """

    def __init__(
        self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True, seed: int = 0
    ) -> None:
        super().__init__(forward_func, layer, device_ids, multiply_by_inputs)
        self.seed = seed

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        neuron_selector: Selector,
        baselines: Baselines | CallableBaselines,
        n_samples: int = 5,
        stdevs: float | tuple[float, ...] = 0.0,
        additional_forward_args: Any = None,
        attribute_to_neuron_input: bool = False,
    ) -> Tensors:
        """Attribute a neuron. Arguments are those of `GradientShap` and `NeuronIntegratedGradients`."""
        neuron = self._neuron(neuron_selector, attribute_to_neuron_input)
        explainer = GradientShap(neuron, self.multiply_by_inputs, self.seed)
        return cast(Tensors, explainer.attribute(inputs, baselines, n_samples, stdevs, None, additional_forward_args))


class NeuronDeepLift(_OfNeuron):
    """`captum.attr.NeuronDeepLift` on our engine.

    Args:
        model: the network, or what `ig2.wrap` returned.
        layer: a module of it.
        multiply_by_inputs: False returns the multipliers, without the factor input − baseline.
    """

    explainer: type[DeepLift] = DeepLift

    def __init__(self, model: AnyModel, layer: Any, multiply_by_inputs: bool = True) -> None:
        super().__init__(model, layer, None, multiply_by_inputs)

    @_wrapped
    def attribute(
        self,
        inputs: Tensors,
        neuron_selector: Selector,
        baselines: Baselines | CallableBaselines = None,
        additional_forward_args: Any = None,
        attribute_to_neuron_input: bool = False,
        custom_attribution_func: CustomAttribution | None = None,
    ) -> Tensors:
        """Attribute a neuron. Arguments are those of `DeepLift` and `NeuronIntegratedGradients`."""
        explainer = self.explainer(self._neuron(neuron_selector, attribute_to_neuron_input), self.multiply_by_inputs)
        return cast(
            Tensors, explainer.attribute(inputs, baselines, None, additional_forward_args, False, custom_attribution_func)
        )


class NeuronDeepLiftShap(NeuronDeepLift):
    """`captum.attr.NeuronDeepLiftShap` on our engine: the mean of `NeuronDeepLift` over baselines shared by all inputs."""

    explainer = DeepLiftShap


def _select_neuron(activation: Tensor, selector: Selector) -> Tensor:
    """Return one number of each sample's activation, or the sum of several, (B,)."""
    if callable(selector):
        chosen = selector(activation)
        # Captum differentiates a sum over the batch too; a sample's own is what the function makes of it alone
        return chosen if chosen.ndim else torch.stack([selector(sample[None]) for sample in activation])
    index = selector if isinstance(selector, tuple) else (selector,)
    try:
        chosen = activation[(slice(None), *index)]
    except (IndexError, TypeError) as error:
        raise InputError(f"neuron_selector {selector!r} is none of an activation {describe(activation)}: {error}") from error
    if any(isinstance(part, slice) for part in index):
        return chosen.flatten(1).sum(dim=1)
    if chosen[0].numel() != 1:
        raise InputError(
            f"neuron_selector {selector!r} names {tuple(chosen.shape[1:])} neurons of an activation {describe(activation)}: "
            "give an index for each of its axes, or slices for their sum"
        )
    return chosen.flatten()


class LLMGradientAttribution:
    """The call of Captum's `LLMGradientAttribution` [Miglani 2023]: each token of an answer, attributed to those of the prompt.

    Captum's takes one of its layer methods on the embedding and runs it once for each token of the target. This one takes any
    method of ours and a language model, and runs all tokens as one batch. With `IntegratedGradients` the values are Captum's.

    Args:
        lm: what `ig2.adapters.lm.load(model, tokenizer)` returned.
        method: one of ours; by default that of the language model.
    """

    def __init__(self, lm: Any, method: Method | None = None) -> None:
        if not hasattr(lm, "explain"):
            raise InputError(f"lm must be a language model, ig2.adapters.lm.load(model, tokenizer), got {describe(lm)}")
        self.lm, self.method = lm, method

    def attribute(
        self, inp: Any, target: str | None = None, gen_args: dict[str, Any] | None = None, *, baselines: Any = None
    ) -> Any:
        """Attribute each token of the target to the tokens of the prompt.

        Args:
            inp: the prompt, a text or Captum's `TextTokenInput`, whose baseline is then that of all its tokens.
            target: the answer; by default what the model generates.
            gen_args: of the generation; `max_new_tokens` is read, by default 25.
            baselines: another prompt or a strategy of `ig2.adapters.lm`; by default that of `TextTokenInput`, or the model's.

        Returns:
            Captum's `LLMAttributionResult`.

        Raises:
            InputError: if the prompt or the target cannot be used.
        """
        prompt, filler = inp, None
        if hasattr(inp, "itp_tensor"):
            prompt, filler = self.lm.decode(inp.inp_tensor[0].tolist()), int(inp.baselines)
        count = None if target is not None else int((gen_args or {}).get("max_new_tokens", 25))
        options: dict[str, Any] = {}
        if baselines is None and filler is not None:
            tokens = self.lm.read(prompt).ids
            options["references"] = {"embeddings": self.lm.embed([filler] * len(tokens))[None]}
        explanation = self.lm.explain(
            prompt, target, "auto", baselines, self.method, generate=count, each=count is None, confine=False, **options
        )
        return explanation.to_captum()


class _Multipliers(ig2.DeepSHAP):
    """DeepLIFT's multipliers themselves."""

    multiplies = False


# -- from Captum's forms to ours -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SharedTensor:
    """A tensor that all samples share."""

    value: Tensor


def _as_tensors(inputs: object) -> tuple[Tensor, ...]:
    tensors = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(tensors, tuple) or not all(isinstance(tensor, Tensor) and tensor.ndim > 0 for tensor in tensors):
        raise InputError(f"inputs must be a tensor (B, ...) or a tuple of them, got {describe(inputs)}")
    return tensors


def _like(inputs: Tensors, tensors: Sequence[Tensor]) -> Tensors:
    """Return a tensor where the inputs are one, and a tuple where they are a tuple."""
    return tensors[0] if isinstance(inputs, Tensor) else tuple(tensors)


def _as_args(extra: Any) -> tuple[Any, ...]:
    return extra if isinstance(extra, tuple) else () if extra is None else (extra,)


def _match_baselines(inputs: tuple[Tensor, ...], baselines: Baselines, distribution: bool) -> list[Tensor]:
    """Return a baseline for each tensor of inputs, with one or two axes that count; zero by default."""
    items = baselines if isinstance(baselines, tuple) else (0.0,) * len(inputs) if baselines is None else (baselines,)
    if len(items) != len(inputs):
        raise InputError(f"there are {len(items)} baselines for {len(inputs)} inputs: give one for each")
    matched = []
    for item, tensor in zip(items, inputs, strict=True):
        if isinstance(item, (int, float)) and not isinstance(item, bool):
            item = torch.full_like(tensor[:1], item)
        lead = item.ndim - tensor.ndim + 1 if isinstance(item, Tensor) else 0
        if not isinstance(item, Tensor) or lead not in (1, 2) or item.shape[lead:] != tensor.shape[1:]:
            raise InputError(
                f"a baseline is {describe(item)}: for the input {describe(tensor)} expected a number or samples of its shape"
            )
        if not distribution and (lead == 2 or len(item) not in (1, len(tensor))):
            raise InputError(
                f"baselines are {describe(item)}, inputs {describe(tensor)}: expected one for each input, or one (1, ...) for "
                "all. To compare every input with all of them, use CaptumMethod(..., distribution=True)"
            )
        item = item.to(tensor)
        matched.append(item.unsqueeze(-1) if tensor.ndim == 1 else item)
    return matched


def _pair_baselines(inputs: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    """Return one baseline for each input as its reference, (B, 1, ...)."""
    matched = _match_baselines(inputs, baselines, distribution=False)
    return tuple(end.expand(len(x), *end.shape[1:]).unsqueeze(1) for end, x in zip(matched, inputs, strict=True))


def _sample_baselines(inputs: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    """Return the references of all inputs, (R, ...) or (B, R, ...), as many for each tensor."""
    matched = _match_baselines(inputs, baselines, distribution=True)
    splits = [end.ndim - max(1, tensor.ndim - 1) for end, tensor in zip(matched, inputs, strict=True)]
    try:
        lead = torch.broadcast_shapes(*(end.shape[:k] for end, k in zip(matched, splits, strict=True)))  # type: ignore[no-untyped-call]
        return tuple(end.expand(*lead, *end.shape[k:]) for end, k in zip(matched, splits, strict=True))
    except RuntimeError as error:
        raise InputError(f"baselines differ in number: {describe(matched)}") from error


def _share_baselines(inputs: Tensors, baselines: Any) -> tuple[Tensor, ...]:
    """Return samples (R, ...) for every input, or those that a function of the inputs or of nothing returns."""
    if callable(baselines):
        baselines = baselines(inputs) if inspect.signature(baselines).parameters else baselines()
    tensors = _as_tensors(inputs)
    samples = _sample_baselines(tensors, baselines)
    if any(sample.ndim > max(2, x.ndim) for sample, x in zip(samples, tensors, strict=True)):
        raise InputError(f"baselines are {describe(baselines)}: expected samples (R, ...), the same for every input")
    return samples


def _match_masks(inputs: tuple[Tensor, ...], feature_mask: Tensors | None) -> list[Tensor]:
    """Return the group of each feature, (1, ...) or (B, ...), counted from zero over all inputs."""
    if feature_mask is None:
        sizes = [tensor[0].numel() for tensor in inputs]
        indices = torch.split(torch.arange(sum(sizes)), sizes)
        return [index.view(1, *tensor.shape[1:]).to(tensor.device) for index, tensor in zip(indices, inputs, strict=True)]
    masks = (feature_mask,) if isinstance(feature_mask, Tensor) else feature_mask
    if len(masks) != len(inputs):
        raise InputError(f"there are {len(masks)} items in feature_mask for {len(inputs)} inputs: give one for each")
    for mask, tensor in zip(masks, inputs, strict=True):
        fits = isinstance(mask, Tensor) and mask.shape[1:] == tensor.shape[1:] and len(mask) in (1, len(tensor))
        if not fits or mask.is_floating_point():
            raise InputError(
                f"feature_mask is {describe(mask)} for the input {describe(tensor)}: expected integers of its shape, or one "
                "(1, ...) for all"
            )
    first = min(int(mask.min()) for mask in masks if mask.numel())
    return [(mask.long() - first).to(tensor.device) for mask, tensor in zip(masks, inputs, strict=True)]


def _draw_points(copies: _Copies, inputs: Tensors, baselines: Any, stdevs: Any, seed: int) -> tuple[list[Tensor], Tensor]:
    """Add noise to the copies, and return a random baseline for each and its place between the two."""
    tensors, count, rows = copies.tensors, copies.count, copies.rows
    widths = stdevs if isinstance(stdevs, tuple) else (stdevs,) * len(tensors)
    if len(widths) != len(tensors):
        raise InputError(f"there are {len(widths)} stdevs for {len(tensors)} inputs: give one number, or one for each")
    samples = _share_baselines(inputs, baselines)
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(len(samples[0]), (rows * count,), generator=generator)
    jitter = torch.rand(rows, count, dtype=torch.float64, generator=generator)
    ends = []
    for i, (tensor, width, sample) in enumerate(zip(tensors, widths, samples, strict=True)):
        noise = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        copies.tensors[i] = tensor + width * noise.to(tensor)
        ends.append(sample[indices.to(sample.device)].view_as(tensor))
    return ends, ((torch.arange(count) + jitter) / count).flatten()


class _Copies:
    """`count` copies of each input, one after the other, (B · count, ...), with their targets and further arguments."""

    def __init__(self, inputs: Tensors, target: Target, extra: Any, count: int) -> None:
        check_count(count, "n_samples")

        def repeat(tensor: Tensor) -> Tensor:
            return tensor.repeat_interleave(count, dim=0)

        self.tensors = [repeat(tensor.detach()) for tensor in _as_tensors(inputs)]
        for tensor in self.tensors:
            if not tensor.is_floating_point():
                raise InputError(f"inputs are {describe(inputs)}: only floating-point inputs have gradients")
        self.count, self.rows = count, len(self.tensors[0]) // count
        self.like = functools.partial(_like, inputs)
        if isinstance(target, list):
            target = [index for index in target for _ in range(count)]  # type: ignore[assignment]
        elif isinstance(target, Tensor) and target.numel() > 1:
            target = repeat(target)
        args = tuple(repeat(arg) if isinstance(arg, Tensor) and arg.ndim else arg for arg in _as_args(extra))
        self.arguments = target, None if extra is None else args

    def between(self, ends: Sequence[Tensor], places: Tensor) -> Tensors:
        """Return points between the copies and `ends` (B, ...) or (B · count, ...); `places` go from 0 to 1."""
        points = []
        for tensor, end in zip(self.tensors, ends, strict=True):
            far = end.repeat_interleave(len(tensor) // len(end), dim=0).view_as(tensor)
            points.append(torch.lerp(tensor, far, _column(places, tensor)))
        return self.like(points)

    def multiply(self, slopes: Sequence[Tensor], ends: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(slope * (x - end) for slope, x, end in zip(slopes, self.tensors, ends, strict=True))

    def sum(self, slopes: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
        """Return the sum over the copies of each input, with a weight for each copy, (B, ...)."""
        weighted = self.gather(slope * _column(weights, slope) for slope in slopes)
        return tuple(slope.sum(dim=1) for slope in weighted)

    def gather(self, values: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """Reshape values of the copies to (B, count, ...)."""
        return tuple(value.reshape(self.rows, self.count, *value.shape[1:]) for value in values)


def _column(numbers: Tensor, tensor: Tensor) -> Tensor:
    """Shape numbers, one for each row or repeated over them, to multiply a tensor."""
    return numbers.repeat(len(tensor) // len(numbers)).to(tensor).reshape(-1, *[1] * (tensor.ndim - 1))


def _innermost(method: Method) -> Method:
    """Return what is inside SmoothGrad or XRAI."""
    inner = getattr(method, "method", None)
    return _innermost(inner) if isinstance(inner, Method) else method


def _draw_line(steps: int, integration: str) -> tuple[Straight, Quadrature]:
    """Return the straight path and the rule on it of one of Captum's `method=` names."""
    if integration == "gausslegendre":
        return Straight(1), rules.gauss(steps)
    if integration not in RIEMANN:
        raise InputError(f"method={integration!r} is unknown: use 'gausslegendre' or one of {', '.join(RIEMANN)}")
    # n points with both ends among them bound n − 1 segments
    return Straight(steps - (integration == "riemann_trapezoid")), RIEMANN[integration]


def _place_points(path: Straight, rule: Quadrature) -> tuple[Tensor, Tensor]:
    """Return where a rule looks on a line, 0 at the input and 1 at its baseline, and the weight of each point."""
    segments = torch.arange(path.steps, dtype=torch.float64)
    nodes, weights = (torch.tensor(row, dtype=torch.float64) for row in (rule.nodes, rule.weights))
    return (segments[:, None] + nodes).flatten() / len(segments), weights.repeat(len(segments)) / len(segments)


def _change_steps(method: Method, steps: int | None, integration: str | None) -> Method:
    """Return the method with another number of steps, and on a straight line with another rule."""
    if steps is None and integration is None:
        return method
    if not isinstance(method, PathMethod) or not hasattr(method.path, "steps"):
        raise InputError(f"{type(method).__name__} has no steps: leave n_steps and method out")
    path, rule = method.path, method.rule
    if isinstance(path, Straight):
        nodes = len(rule.nodes) if isinstance(rule, Quadrature) else 0
        is_gauss = path.steps == 1 and nodes > 0 and rule == rules.gauss(nodes)
        steps = steps if steps is not None else nodes if is_gauss else path.steps
        integration = integration or ("gausslegendre" if is_gauss else None)
        path, rule = _draw_line(steps, integration) if integration else (Straight(steps), rule)
    elif integration is not None:
        raise InputError(
            f"method={integration!r} is for straight lines: give {type(method).__name__} its rule, for example "
            "rule=ig2.rules.trapezoid"
        )
    else:
        path = replace(path, steps=steps)  # type: ignore[call-arg]
    changed = copy.copy(method)  # not replace(): the recipes are built from other arguments than their parts
    PathMethod.__init__(changed, path, method.references, rule)
    return changed


@dataclass(frozen=True, eq=False)
class _TargetModel(Model):
    """A model whose outputs are those that Captum's target names; with no names, it must have a single output.

    Inputs numbered in `scalars` come with an axis for the one number of a sample, which the network does not expect.
    """

    names: tuple[tuple[int, ...], ...] | None = None
    scalars: tuple[int, ...] = ()

    def preprocessed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(arg.value if isinstance(arg, _SharedTensor) else arg for arg in args)
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


def _select_output(model: Model, target: Target, scalars: tuple[int, ...]) -> tuple[Model, Any]:
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
    return _TargetModel(**settings, names=names, scalars=scalars), index
