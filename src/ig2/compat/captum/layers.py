"""Captum's classes for layers, on our engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import ig2
from ig2._engine.activations import first_result, first_tensor
from ig2._engine.layers import in_this_thread
from ig2._utils.checks import check_count
from ig2.attribution import Attribution
from ig2.compat import AnyModel
from ig2.compat.captum.adapter import Adapter, Multipliers, wrapped
from ig2.compat.captum.forms import (
    Baselines,
    CallableBaselines,
    Copies,
    CustomAttribution,
    Integration,
    SharedTensor,
    Target,
    Tensors,
    as_args,
    as_tensors,
    change_steps,
    draw_line,
    draw_points,
    like,
    pair_baselines,
    place_points,
    select_output,
)
from ig2.compat.captum.inputs import DeepLift, DeepLiftShap
from ig2.errors import InputError
from ig2.methods.base import Method
from ig2.model import Layer, find_layer, preprocess_arguments


class AtLayer(Adapter):
    """An ig2 method at a layer, called with inputs, targets and further arguments in Captum's forms."""

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
        tensors = as_tensors(inputs)
        fixed = [ig2.Fixed(SharedTensor(arg) if isinstance(arg, Tensor) and arg.ndim == 0 else arg) for arg in as_args(extra)]
        model, index = select_output(self.model, target, ())
        is_bare = isinstance(inputs, Tensor) and not fixed
        if is_bare and isinstance(references, tuple):
            (references,) = references
        layer = self._find(to_input)
        name = f"{layer.name}:{layer.side}"
        return method(model, inputs if is_bare else (*tensors, *fixed), index, references, at=name, **options)

    def _slopes(self, points: Tensors, arguments: tuple[Any, Any], to_input: bool, **options: Any) -> tuple[Tensor, Tensor]:
        """Return the gradient with respect to the layer at the inputs `points`, and the layer's activation there."""
        attribution = self._explain_layer(ig2.Gradient(), points, *arguments, to_input, **options)
        assert isinstance(attribution.values, Tensor) and isinstance(attribution.explicand, Tensor)
        return attribution.values, attribution.explicand

    def _read(self, tensors: Sequence[Tensor], extra: Any, to_input: bool) -> Tensor:
        """Return the layer's activation."""
        args, kwargs = preprocess_arguments(self.model.preprocess, (*tensors, *as_args(extra)), {})
        with torch.no_grad():
            activation: Tensor = Lower(self.model.net, self._find(to_input))(*args, **kwargs)
        return activation


class Lower(nn.Module):
    """A network up to one of its layers, which returns a selection of the layer's activation, by default all of it."""

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


class LayerActivation(AtLayer):
    """`captum.attr.LayerActivation`: the output of a layer, or its input.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network; a single one, whereas Captum also accepts a list.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.InputXGradient(), forward_func, layer)

    @wrapped
    def attribute(self, inputs: Tensors, additional_forward_args: Any = None, attribute_to_layer_input: bool = False) -> Tensor:
        """Return the activation. Arguments as for `LayerIntegratedGradients.attribute`."""
        return self._read(as_tensors(inputs), additional_forward_args, attribute_to_layer_input)


class LayerIntegratedGradients(AtLayer):
    """`captum.attr.LayerIntegratedGradients` on our engine: Integrated Gradients at a layer, from h(baseline) to h(input).

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network; a single one, whereas Captum also accepts a list.
        device_ids: not used.
        multiply_by_inputs: True; the mean gradient alone is not available.

    Raises:
        InputError: if `multiply_by_inputs` is False.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True) -> None:
        if not multiply_by_inputs:
            raise InputError("multiply_by_inputs=False is not available at a layer: use ig2.Gradient()(net, x, at=layer)")
        super().__init__(ig2.IntegratedGradients(), forward_func, layer)

    @wrapped
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
            baselines: the baselines of the inputs: None for zero, a number, or one for each input.
            attribute_to_layer_input: whether to attribute to the layer's input instead of its output.
            grad_kwargs: not used, here and in the other classes for layers.

        Returns:
            Attributions in the shape of the activation, or (attributions, delta).
        """
        attribution = self._explain_layer(
            change_steps(self.method, n_steps, method), inputs, target, additional_forward_args, attribute_to_layer_input,
            pair_baselines(as_tensors(inputs), baselines),
            batch_size="auto" if internal_batch_size is None else internal_batch_size,
        )  # fmt: skip
        assert attribution.residual is not None and isinstance(attribution.values, Tensor)
        return (attribution.values, attribution.residual) if return_convergence_delta else attribution.values


class InternalInfluence(AtLayer):
    """`captum.attr.InternalInfluence` [Leino 2018] on our engine: a layer's mean gradient on the inputs' line.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.Gradient(), forward_func, layer)

    @wrapped
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
        places, weights = place_points(*draw_line(n_steps, method))
        copies = Copies(inputs, target, additional_forward_args, len(places))
        points = copies.between(pair_baselines(as_tensors(inputs), baselines), places)
        options = {"batch_size": "auto" if internal_batch_size is None else internal_batch_size}
        slopes, _ = self._slopes(points, copies.arguments, attribute_to_layer_input, **options)
        (values,) = copies.sum([slopes], weights)
        return values


class LayerConductance(AtLayer):
    """`captum.attr.LayerConductance` [Dhamdhere 2019] on our engine: Σ ∂f/∂h · Δh over points on the inputs' line.

    The path of h is the image of that line, whereas `LayerIntegratedGradients` goes straight from h(baseline) to h(input). As
    in Captum, points are those of the rule, from the first to the last of n_steps + 1; those of "gausslegendre" exclude both
    ends, those of "riemann_trapezoid" include them.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.IntegratedGradients(), forward_func, layer)

    @wrapped
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
        distinct = set(place_points(*draw_line(n_steps + 1, method))[0].tolist())
        places = torch.tensor(sorted(distinct, reverse=True), dtype=torch.float64)  # from the baseline, each once
        copies = Copies(inputs, target, additional_forward_args, len(places))
        ends = pair_baselines(as_tensors(inputs), baselines)
        options = {"batch_size": "auto" if internal_batch_size is None else internal_batch_size}
        points = copies.between(ends, places)
        slopes, activations = copies.gather(self._slopes(points, copies.arguments, attribute_to_layer_input, **options))
        values = (slopes[:, :-1] * activations.diff(dim=1)).sum(dim=1)
        if not return_convergence_delta:
            return values
        starts = tuple(end.view_as(tensor) for end, tensor in zip(ends, as_tensors(inputs), strict=True))
        return values, self.compute_convergence_delta(values, starts, inputs, target, additional_forward_args)


class LayerGradientXActivation(AtLayer):
    """`captum.attr.LayerGradientXActivation` on our engine: a layer's activation times its gradient.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network; a single one, whereas Captum also accepts a list.
        device_ids: not used.
        multiply_by_inputs: False returns only the gradient.
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

    @wrapped
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


class LayerDeepLift(AtLayer):
    """`captum.attr.LayerDeepLift` on our engine: DeepLIFT's rescale rule at a layer, from h(baseline) to h(input).

    Args:
        model: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        multiply_by_inputs: False returns the multipliers, without the factor h(input) − h(baseline).
    """

    _pair = staticmethod(DeepLift._pair)

    def __init__(self, model: AnyModel, layer: Any, multiply_by_inputs: bool = True) -> None:
        super().__init__(Multipliers(), model, layer, multiply_by_inputs)

    @wrapped
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
        copies = Copies(inputs, target, additional_forward_args, count)
        tensors, ends = tuple(copies.tensors), tuple(map(torch.Tensor.view_as, references, copies.tensors))
        attribution = self._explain_layer(
            self.method, like(inputs, tensors), *copies.arguments, attribute_to_layer_input, references
        )
        values, activation = attribution.values, attribution.explicand
        assert isinstance(values, Tensor) and isinstance(activation, Tensor)
        if custom_attribution_func is not None or self.multiply_by_inputs:
            base = self._read(ends, copies.arguments[1], attribute_to_layer_input)
            if custom_attribution_func is None:
                values = values * (activation - base)
            else:
                (values,) = as_tensors(custom_attribution_func((values,), (activation,), (base,)))
        (mean,) = (value.mean(dim=1) for value in copies.gather([values]))
        if not return_convergence_delta:
            return mean
        return mean, self.compute_convergence_delta(values, ends, tensors, *copies.arguments)


class LayerDeepLiftShap(LayerDeepLift):
    """`captum.attr.LayerDeepLiftShap` on our engine: the mean of `LayerDeepLift` over baselines shared by all inputs.

    Baselines and the delta are those of `DeepLiftShap`.
    """

    _pair = staticmethod(DeepLiftShap._pair)


class LayerGradientShap(AtLayer):
    """`captum.attr.LayerGradientShap` on our engine: the gradient of a layer at the points of `GradientShap`.

    The gradient is multiplied by h(input) − h(baseline).

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
        multiply_by_inputs: False omits the factor h(input) − h(baseline).
        seed: the seed of noise, baselines and points. Global random state is neither read nor changed.
    """

    def __init__(
        self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True, seed: int = 0
    ) -> None:
        super().__init__(ig2.ExpectedIG(), forward_func, layer, multiply_by_inputs, seed)

    @wrapped
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
        copies = Copies(inputs, target, additional_forward_args, n_samples)
        ends, places = draw_points(copies, inputs, baselines, stdevs, self.seed)
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


class LayerGradCam(AtLayer):
    """`captum.attr.LayerGradCam` [Selvaraju 2017] on our engine: Σₖ mean(∂f/∂Aₖ) · Aₖ, on the grid of the layer.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(ig2.Gradient(), forward_func, layer)

    @wrapped
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
        """Return the map (B, 1, *places), or with `attr_dim_summation=False` the map of each channel.

        Arguments that are not listed are those of `LayerIntegratedGradients.attribute`.

        Args:
            relu_attributions: whether to set negative values to zero.
            attr_dim_summation: whether to sum over channels.
        """
        gradient, activation = self._slopes(inputs, (target, additional_forward_args), attribute_to_layer_input)
        weights = gradient.mean(dim=tuple(range(2, gradient.ndim)), keepdim=True) if gradient.ndim > 2 else gradient
        maps = weights * activation
        maps = maps.sum(dim=1, keepdim=True) if attr_dim_summation else maps
        return maps.clamp(min=0) if relu_attributions else maps
