"""Captum's classes for neurons: the network up to a layer, explained by the classes for inputs."""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch import Tensor

import ig2
from ig2.compat import AnyModel
from ig2.compat.captum.adapter import Adapter, wrapped
from ig2.compat.captum.forms import (
    Baselines,
    CallableBaselines,
    Copies,
    CustomAttribution,
    Integration,
    Selector,
    Target,
    Tensors,
    as_tensors,
    column,
    draw_line,
    pair_baselines,
    place_points,
)
from ig2.compat.captum.inputs import DeepLift, DeepLiftShap, GradientShap, IntegratedGradients, Saliency
from ig2.compat.captum.layers import AtLayer, Lower
from ig2.errors import InputError, describe
from ig2.model import Model


class _OfNeuron(AtLayer):
    """The base class for attributions of a neuron to the inputs."""

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True) -> None:
        super().__init__(ig2.IntegratedGradients(), forward_func, layer, multiply_by_inputs)

    def has_convergence_delta(self) -> bool:
        """Return False, as in Captum."""
        return False

    def _neuron(self, selector: Selector, to_input: bool) -> Model:
        """Return the model whose output is the neuron."""
        net = Lower(self.model.net, self._find(to_input), functools.partial(_select_neuron, selector=selector))
        net.training = False  # by itself: train() would reach the user's modules
        return self.model.exchange(net=net, representation=None, output="logit")


class NeuronGradient(_OfNeuron):
    """`captum.attr.NeuronGradient` on our engine: the gradient of a neuron.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
    """

    def __init__(self, forward_func: AnyModel, layer: Any, device_ids: Any = None) -> None:
        super().__init__(forward_func, layer, multiply_by_inputs=False)

    @wrapped
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
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
        multiply_by_inputs: False omits the factor input − baseline.
    """

    @wrapped
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
            attribute_to_neuron_input: whether the neuron belongs to the layer's input instead of its output.

        Returns:
            Attributions in the form and shape of `inputs`.
        """
        explainer = IntegratedGradients(self._neuron(neuron_selector, attribute_to_neuron_input), self.multiply_by_inputs)
        return cast(
            Tensors, explainer.attribute(inputs, baselines, None, additional_forward_args, n_steps, method, internal_batch_size)
        )


class NeuronConductance(_OfNeuron):
    """`captum.attr.NeuronConductance` on our engine: the inputs' contributions to the output through a neuron.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
        multiply_by_inputs: False omits the factor input − baseline.
    """

    @wrapped
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
        tensors = as_tensors(inputs)
        places, weights = place_points(*draw_line(n_steps, method))
        copies, ends = Copies(inputs, target, additional_forward_args, len(places)), pair_baselines(tensors, baselines)
        points, options = (
            copies.between(ends, places),
            {"batch_size": "auto" if internal_batch_size is None else internal_batch_size},
        )
        above, _ = self._slopes(points, copies.arguments, attribute_to_neuron_input, **options)
        neuron = Adapter(ig2.Gradient(), self._neuron(neuron_selector, attribute_to_neuron_input))
        below, _ = neuron._explain(neuron.method, points, None, copies.arguments[1], **options)
        factor = _select_neuron(above, neuron_selector)
        means = copies.sum([slope * column(factor, slope) for slope in below], weights)
        if not self.multiply_by_inputs:
            return copies.like(means)
        return copies.like([m * (x - end.view_as(x)) for m, x, end in zip(means, tensors, ends, strict=True)])


class NeuronGradientShap(_OfNeuron):
    """`captum.attr.NeuronGradientShap` on our engine: `GradientShap` of a neuron.

    Args:
        forward_func: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        device_ids: not used.
        multiply_by_inputs: False omits the factor input − baseline.
        seed: the seed of noise, baselines and points.
    """

    def __init__(
        self, forward_func: AnyModel, layer: Any, device_ids: Any = None, multiply_by_inputs: bool = True, seed: int = 0
    ) -> None:
        super().__init__(forward_func, layer, device_ids, multiply_by_inputs)
        self.seed = seed

    @wrapped
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
    """`captum.attr.NeuronDeepLift` on our engine: `DeepLift` of a neuron.

    Args:
        model: the network, or the result of `ig2.wrap`.
        layer: a module of the network.
        multiply_by_inputs: False returns the multipliers, without the factor input − baseline.
    """

    explainer: type[DeepLift] = DeepLift

    def __init__(self, model: AnyModel, layer: Any, multiply_by_inputs: bool = True) -> None:
        super().__init__(model, layer, None, multiply_by_inputs)

    @wrapped
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
