"""Captum's classes on our engine: each computation once, for inputs and for layers.

A class here takes its arguments, their defaults and its flags from Captum's class of that name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import ig2
from ig2._utils.checks import check_count
from ig2.compat.captum.call import CaptumCall
from ig2.compat.captum.forms import (
    as_args,
    as_tensors,
    draw_line,
    match_masks,
    pair_baselines,
    place_points,
    share_baselines,
)
from ig2.compat.captum.method import Adapter, captum, wrapped
from ig2.errors import InputError, describe
from ig2.methods.path import PathMethod
from ig2.model import Layer, find_layer
from ig2.paths import Straight
from ig2.rules import Needs, Rule, Segments

Values = Sequence[Tensor]


def _declare(theirs: Callable[..., Any], own: str, seed: bool = False) -> Callable[..., Any]:
    """Return a method with the arguments of one of Captum's, which calls ours with them by name.

    Args:
        theirs: Captum's.
        own: the name of ours.
        seed: whether there is also the keyword `seed`.
    """
    signature = inspect.signature(theirs)
    if seed:
        last = inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY, default=0, annotation=int)
        signature = signature.replace(parameters=[*signature.parameters.values(), last])

    def method(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        self = arguments.arguments.pop("self")
        return getattr(self, own)(**arguments.arguments)

    method.__signature__ = signature  # type: ignore[attr-defined]
    method.__name__, method.__qualname__ = theirs.__name__, theirs.__qualname__
    method.__doc__ = f"`captum.attr.{theirs.__qualname__}` on our engine, with the same arguments."
    return method


class Captums(Adapter):
    """The base class of Captum's classes; subclasses implement `_attribute`."""

    _theirs: Any
    _attribute: Callable[..., Any]

    def __init_subclass__(cls) -> None:
        theirs = getattr(captum, cls.__name__, None)
        if theirs is None:  # `AtLayer`
            return
        cls.__init__ = _declare(theirs.__init__, "_build", seed=True)  # type: ignore[method-assign]
        cls.attribute = wrapped(_declare(theirs.attribute, "_run"))
        cls._theirs = theirs

    def has_convergence_delta(self) -> bool:
        """Return whether `attribute` can also return the convergence delta."""
        return bool(self._theirs.has_convergence_delta(self))

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether values are contributions to the output ("global" in Captum's terms) and not slopes."""
        return bool(self._theirs.multiplies_by_inputs.fget(self))

    def _build(self, seed: int, **arguments: Any) -> None:
        model: Any = arguments.get("forward_func", arguments.get("model"))  # Captum's names for it
        super().__init__(model, seed)
        self.layer: Any = arguments.get("layer")
        self._multiply_by_inputs = arguments.get("multiply_by_inputs", True)  # which Captum's flag reads

    def _run(self, **arguments: Any) -> Any:
        arguments.pop("grad_kwargs", None)  # of Captum's own gradients
        return self._attribute(self._read_call(arguments), **arguments)

    def _read_call(self, arguments: dict[str, Any]) -> CaptumCall:
        """Take out what says which output of which inputs is explained."""
        names = ("inputs", "target", "additional_forward_args", "internal_batch_size")
        inputs, target, extra, batch_size = (arguments.pop(name, None) for name in names)
        return CaptumCall(self.model, inputs, target, extra, batch_size, self.seed)

    def _finish(self, copies: CaptumCall, values: Values, ends: Values, with_delta: bool) -> Any:
        """Return the mean over the copies of each input, and the convergence delta of every copy."""
        means = copies.like([value.mean(dim=1) for value in copies.gather(values)])
        if not with_delta:
            return means
        starts = tuple(end.view_as(tensor) for end, tensor in zip(ends, copies.tensors, strict=True))
        change = (starts, copies.tensors, copies.target, copies.extra)
        return means, self.compute_convergence_delta(tuple(values), *change)


class AtLayer(Captums):
    """At a layer: a module of the network or its name; a single one, where Captum accepts a list."""

    def _read_call(self, arguments: dict[str, Any]) -> CaptumCall:
        to_input = arguments.pop("attribute_to_layer_input")
        layer = find_layer(self.model.net, self.layer, "layer")
        if not isinstance(layer, Layer):
            raise InputError(f"layer={self.layer!r} is the network's own output: name a module")
        return replace(super()._read_call(arguments), layer=replace(layer, side="input") if to_input else layer)


# -- gradients -------------------------------------------------------------------------------------


class Saliency(Captums):
    """`captum.attr.Saliency` [Simonyan 2014]: the gradient, without its sign unless `abs=False`."""

    def _attribute(self, call: CaptumCall, abs: bool = False) -> Any:
        values = call.slopes().values
        return call.like([value.abs() for value in values] if abs else values)


class InputXGradient(Captums):
    """`captum.attr.InputXGradient` [Shrikumar 2016] on our engine."""

    def _attribute(self, call: CaptumCall) -> Any:
        method = ig2.InputXGradient() if self._multiply_by_inputs else ig2.Gradient()
        return call.like(call.explain(method).values)


class LayerGradientXActivation(AtLayer, InputXGradient):
    """`captum.attr.LayerGradientXActivation`: a layer's activation times its gradient."""


class LayerActivation(AtLayer):
    """`captum.attr.LayerActivation`: the output of a layer, or its input."""

    def _attribute(self, call: CaptumCall) -> Any:
        return call.like(call.read(call.tensors))


class LayerGradCam(AtLayer):
    """`captum.attr.LayerGradCam` [Selvaraju 2017]: Σₖ mean(∂f/∂Aₖ) · Aₖ, on the layer's grid."""

    def _attribute(self, call: CaptumCall, relu_attributions: bool, attr_dim_summation: bool) -> Any:
        (gradient,), (activation,), _ = call.slopes()
        weights = gradient.mean(dim=tuple(range(2, gradient.ndim)), keepdim=True) if gradient.ndim > 2 else gradient
        maps = weights * activation
        maps = maps.sum(dim=1, keepdim=True) if attr_dim_summation else maps
        return maps.clamp(min=0) if relu_attributions else maps


# -- along the inputs' line ------------------------------------------------------------------------


def _average_slopes(call: CaptumCall, ends: Values, n_steps: int, method: str) -> tuple[Tensor, ...]:
    """Return the mean gradient on the line from each input to its baseline."""
    places, weights = place_points(n_steps, method)
    copies = call.repeat(len(places))
    return copies.sum(copies.between(ends, places).slopes().values, weights)


class IntegratedGradients(Captums):
    """`captum.attr.IntegratedGradients` [Sundararajan 2017]: the same numbers.

    There is one baseline for each input, or one for all. The weights of "riemann_trapezoid" sum to
    one; Captum's sum to (n − 1)/n. With `multiply_by_inputs=False` values are the mean gradient.
    """

    def _attribute(
        self,
        call: CaptumCall,
        baselines: Any,
        n_steps: int,
        method: str,
        return_convergence_delta: bool = False,
    ) -> Any:
        ends = pair_baselines(call.tensors, baselines)
        if self._multiply_by_inputs:
            path, rule = draw_line(n_steps, method)
            values = call.explain(PathMethod(path, rule=rule), ends).values
        else:
            values = _average_slopes(call, ends, n_steps, method)
        return self._finish(call, values, ends, return_convergence_delta)


class LayerIntegratedGradients(AtLayer, IntegratedGradients):
    """`captum.attr.LayerIntegratedGradients`: straight in the layer, from h(baseline) to h(input).

    Raises:
        InputError: if `multiply_by_inputs` is False; the mean gradient alone is not available.
    """

    multiplies_by_inputs = True

    def _build(self, seed: int, **arguments: Any) -> None:
        super()._build(seed, **arguments)
        if not self._multiply_by_inputs:
            raise InputError("multiply_by_inputs=False is not available at a layer: use ig2.Gradient()(net, x, at=layer)")


class LayerConductance(AtLayer):
    """`captum.attr.LayerConductance` [Dhamdhere 2019]: Σ ∂f/∂h · Δh over points on the inputs' line.

    The path of h is the image of that line, whereas `LayerIntegratedGradients` goes straight from
    h(baseline) to h(input). As in Captum, points are those of the rule, from the first to the last of
    n_steps + 1; "gausslegendre" excludes both ends, "riemann_trapezoid" includes them.
    """

    def _attribute(self, call: CaptumCall, baselines: Any, n_steps: int, method: str, return_convergence_delta: bool) -> Any:
        check_count(n_steps, "n_steps")
        distinct = set(place_points(n_steps + 1, method)[0].tolist())
        places = torch.tensor(sorted(distinct, reverse=True), dtype=torch.float64)  # from the baseline, each once
        ends, copies = pair_baselines(call.tensors, baselines), call.repeat(len(places))
        explained = copies.between(ends, places).slopes()
        slopes, activations = copies.gather((*explained.values, *explained.activations))
        values = (slopes[:, :-1] * activations.diff(dim=1)).sum(dim=1)
        return self._finish(call, [values], ends, return_convergence_delta)


# -- DeepLIFT and SHAP -----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class _Multipliers(Rule):
    """The slopes of `ig2.rules.secant`: DeepLIFT's multipliers, without the factor input − baseline."""

    @property
    def needs(self) -> Needs:
        return Needs(secants=True)

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        assert segments.average is not None
        return (segments.average,)


class _Rescaled(ig2.DeepSHAP):
    """`ig2.DeepSHAP` by its multipliers."""

    def __init__(self) -> None:
        PathMethod.__init__(self, Straight(1), None, _Multipliers("multipliers"))


class DeepLift(Captums):
    """`captum.attr.DeepLift` [Shrikumar 2017], also of plain functions and of modules used twice.

    `eps` is not used: small differences use the derivative if it accounts for them up to rounding.
    """

    def _attribute(
        self,
        call: CaptumCall,
        baselines: Any,
        return_convergence_delta: bool = False,
        custom_attribution_func: Callable[..., Any] | None = None,
    ) -> Any:
        count, ends = self._pair(call, baselines)
        pairs = call.repeat(count)
        starts = [end.view_as(tensor) for end, tensor in zip(ends, pairs.tensors, strict=True)]
        values, activations, _ = pairs.explain(_Rescaled(), ends)
        if custom_attribution_func is not None:
            values = as_tensors(custom_attribution_func(values, activations, pairs.read(starts)))
        elif self._multiply_by_inputs:
            values = _multiply(values, activations, pairs.read(starts))
        return self._finish(pairs, values, starts, return_convergence_delta)

    def _pair(self, call: CaptumCall, baselines: Any) -> tuple[int, tuple[Tensor, ...]]:
        """Return the number of baselines of each input, and the baseline (n, 1, ...) of each pair."""
        return 1, pair_baselines(call.tensors, baselines)


class DeepLiftShap(DeepLift):
    """`captum.attr.DeepLiftShap` [Lundberg 2017]: the mean of `DeepLift` over shared baselines.

    The delta is that of each pair, (B · R,): the first input with each baseline, then the second.
    `custom_attribution_func` gets all pairs.
    """

    def _pair(self, call: CaptumCall, baselines: Any) -> tuple[int, tuple[Tensor, ...]]:
        samples, rows = share_baselines(call.inputs, baselines), len(call.tensors[0])
        ends = (sample.repeat(rows, *[1] * (sample.ndim - 1)).unsqueeze(1) for sample in samples)
        return len(samples[0]), tuple(ends)


class LayerDeepLift(AtLayer, DeepLift):
    """`captum.attr.LayerDeepLift`: `DeepLift` at a layer, from h(baseline) to h(input).

    In a custom function, inputs and baselines are those of the layer.
    """


class LayerDeepLiftShap(AtLayer, DeepLiftShap):
    """`captum.attr.LayerDeepLiftShap`: the mean of `LayerDeepLift` over shared baselines."""


class GradientShap(Captums):
    """`captum.attr.GradientShap`: the gradient between noisy inputs and random baselines.

    The estimator is that of expected gradients [Erion 2021]. Points are stratified over the line
    rather than independent, which requires fewer of them. `ig2.ExpectedIG` integrates along every
    line to every baseline, without random draws. Noise, baselines and points are drawn with `seed`;
    global random state is neither read nor changed.
    """

    def _attribute(
        self,
        call: CaptumCall,
        baselines: Any,
        n_samples: int,
        stdevs: Any,
        return_convergence_delta: bool = False,
    ) -> Any:
        copies = call.repeat(n_samples)
        tensors, rows = copies.tensors, len(copies.tensors[0])
        widths = stdevs if isinstance(stdevs, tuple) else (stdevs,) * len(tensors)
        if len(widths) != len(tensors):
            raise InputError(f"there are {len(widths)} stdevs for {len(tensors)} inputs: give one number, or one for each")
        samples = share_baselines(call.inputs, baselines)
        generator = torch.Generator().manual_seed(self.seed)
        indices = torch.randint(len(samples[0]), (rows,), generator=generator)
        jitter = torch.rand(rows // n_samples, n_samples, dtype=torch.float64, generator=generator)
        places = ((torch.arange(n_samples) + jitter) / n_samples).flatten()
        noise = [torch.randn(tensor.shape, dtype=torch.float64, generator=generator) for tensor in tensors]
        noisy = [x + width * each.to(x) for x, width, each in zip(tensors, widths, noise, strict=True)]
        ends = [sample[indices.to(sample.device)].view_as(x) for sample, x in zip(samples, tensors, strict=True)]
        copies = copies.move(noisy)
        values = copies.between(ends, places).slopes().values
        if self._multiply_by_inputs:
            values = _multiply(values, copies.read(noisy), copies.read(ends))
        return self._finish(copies, values, ends, return_convergence_delta)


class LayerGradientShap(AtLayer, GradientShap):
    """`captum.attr.LayerGradientShap`: `GradientShap` at a layer, times h(input) − h(baseline)."""


def _multiply(slopes: Values, activations: Values, bases: Values) -> tuple[Tensor, ...]:
    return tuple(slope * (x - base) for slope, x, base in zip(slopes, activations, bases, strict=True))


class KernelShap(Captums):
    """`captum.attr.KernelShap` [Lundberg 2017], exact if all coalitions can be evaluated.

    It evaluates at least two coalitions for each group, since fewer cannot distinguish them; they are
    drawn with `seed`. If the forward function returns one number for all inputs, these are explained
    as one.
    """

    def _attribute(self, call: CaptumCall, baselines: Any, feature_mask: Any, return_input_shape: bool, **options: Any) -> Any:
        tensors = call.tensors
        masks, ends = match_masks(tensors, feature_mask), pair_baselines(tensors, baselines)
        full = [mask.expand(tensor.shape) for mask, tensor in zip(masks, tensors, strict=True)]
        if len(tensors[0]) > 1 and call.target is None and self._returns_one(call):
            if any(len(mask) > 1 for mask in masks):
                raise InputError(
                    f"the network returned one number for {len(tensors[0])} inputs, which are therefore explained as one: "
                    f"give them one feature_mask (1, ...), got {describe(feature_mask)}"
                )
            # a single explicand, whose first axis is the inputs' batch
            coefficients = KernelShap(self._run_whole(call), seed=self.seed).attribute(
                tuple(tensor[None] for tensor in tensors),
                tuple(end.reshape(1, *tensor.shape) for end, tensor in zip(ends, tensors, strict=True)),
                feature_mask=tuple(mask[None] for mask in full),
                return_input_shape=False,
                **options,
            )
        else:
            masks = full
            coefficients = self._explain_groups(call, ends, full, **options)
        if not return_input_shape:
            return coefficients
        return call.like([coefficients.gather(1, mask.flatten(1)).reshape(mask.shape) for mask in masks])

    def _explain_groups(
        self, call: CaptumCall, ends: Values, masks: Values, n_samples: int, perturbations_per_eval: int, show_progress: bool
    ) -> Tensor:
        """Return what each group contributes, (B, groups)."""
        groups = torch.cat([mask.flatten(1) for mask in masks], dim=1)
        count = 1 + int(groups.max())
        shaped = [mask[:, None] if mask.ndim == 1 else mask for mask in masks if mask.numel()]
        method = ig2.KernelSHAP(shaped[0] if len(shaped) == 1 else groups, max(n_samples, 2 * count))
        options: dict[str, Any] = {"batch_size": perturbations_per_eval, "progress": show_progress}
        values = torch.cat([value.flatten(1) for value in call.explain(method, ends, **options).values], dim=1)
        # the engine divides it among the group's features
        return values.new_zeros(len(groups), count).scatter_add_(1, groups, values)

    def _returns_one(self, call: CaptumCall) -> bool:
        """Return whether the forward function returns one number for all inputs together."""
        with torch.no_grad():
            result = self.forward_func(*call.tensors, *as_args(call.extra))
        return result.numel() == 1 if isinstance(result, Tensor) else isinstance(result, (int, float))

    def _run_whole(self, call: CaptumCall) -> Callable[..., Any]:
        return lambda *batch: self.forward_func(*(part[0] for part in batch), *as_args(call.extra))
