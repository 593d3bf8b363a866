"""`CaptumMethod`, and Captum's classes for inputs on our engine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import ig2
from ig2.compat import AnyModel, as_method
from ig2.compat.captum.adapter import Adapter, Multipliers, wrapped
from ig2.compat.captum.forms import (
    Baselines,
    CallableBaselines,
    Copies,
    CustomAttribution,
    Integration,
    Target,
    Tensors,
    as_args,
    as_tensors,
    change_steps,
    draw_points,
    innermost,
    like,
    match_masks,
    pair_baselines,
    place_points,
    sample_baselines,
    share_baselines,
)
from ig2.errors import InputError, describe
from ig2.methods.base import Method
from ig2.methods.path import PathMethod
from ig2.paths import Straight
from ig2.rules import Quadrature


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
        super().__init__(as_method(method), model, seed=seed)
        self.references = references
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
        if isinstance(innermost(self.method), (ig2.Gradient, ig2.InputXGradient)) and baselines is not None:
            if target is not None:
                name = type(self.method).__name__
                raise InputError(f"{name} has no baseline, got {describe(baselines)}: leave baselines out")
            baselines, target = None, baselines
        values, residual = self._explain(
            change_steps(self.method, n_steps, method),
            inputs,
            target,
            additional_forward_args,
            self._as_references(as_tensors(inputs), baselines),
            batch_size="auto" if internal_batch_size is None else internal_batch_size,
        )
        attributions = like(inputs, values)
        if not return_convergence_delta:
            return attributions
        return attributions, self._delta(residual, values, baselines, inputs, target, additional_forward_args)

    def _delta(self, residual: Tensor | None, *arguments: Any) -> Tensor:
        if residual is None:
            name = type(self.method).__name__
            raise InputError(f"{name} has no baseline, and so no convergence delta: leave return_convergence_delta out")
        return residual

    def _as_references(self, inputs: tuple[Tensor, ...], baselines: Baselines) -> Any:
        """Convert Captum's baselines to references, (R, ...) for all inputs or (B, R, ...)."""
        if baselines is not None:
            return (sample_baselines if self.distribution else pair_baselines)(inputs, baselines)
        if self.references is not None or not self.method.needs_references:
            return self.references
        if isinstance(innermost(self.method), ig2.DeepSHAP):
            return 0.0
        raise InputError(f"{type(self.method).__name__} needs references: pass baselines=samples (R, ...)")


# -- Captum's classes ------------------------------------------------------------------------------------------------------


class IntegratedGradients(CaptumMethod):
    """`captum.attr.IntegratedGradients` [Sundararajan 2017] on our engine: `CaptumMethod`'s call, and the same numbers.

    There is one baseline for each input, or one for all.

    Args:
        forward_func: the network, any function of tensors, or the result of `ig2.wrap`.
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
        places, weights = place_points(method.path, method.rule)
        copies = Copies(inputs, target, extra, len(places))
        ends = references or pair_baselines(as_tensors(inputs), None)
        slopes, _ = super()._explain(ig2.Gradient(), copies.between(ends, places), *copies.arguments, **options)
        return copies.sum(slopes, weights), None

    def _delta(self, residual: Tensor | None, *arguments: Any) -> Tensor:
        delta: Tensor = self.compute_convergence_delta(*arguments)  # Captum's, to the last bit
        return delta


class Saliency(Adapter):
    """`captum.attr.Saliency` [Simonyan 2014] on our engine: the gradient, without its sign unless `abs=False`."""

    def __init__(self, forward_func: AnyModel) -> None:
        super().__init__(ig2.Gradient(), forward_func)

    @wrapped
    def attribute(
        self, inputs: Tensors, target: Target = None, abs: bool = True, additional_forward_args: Any = None
    ) -> Tensors:
        """Return the gradient of the output at `target`, or its magnitude. Arguments as for `CaptumMethod.attribute`."""
        values, _ = self._explain(self.method, inputs, target, additional_forward_args)
        return like(inputs, tuple(value.abs() for value in values) if abs else values)


class InputXGradient(Adapter):
    """`captum.attr.InputXGradient` [Shrikumar 2016] on our engine."""

    def __init__(self, forward_func: AnyModel) -> None:
        super().__init__(ig2.InputXGradient(), forward_func)

    @wrapped
    def attribute(self, inputs: Tensors, target: Target = None, additional_forward_args: Any = None) -> Tensors:
        """Return the inputs times the gradient of the output at `target`. Arguments as for `CaptumMethod.attribute`."""
        return like(inputs, self._explain(self.method, inputs, target, additional_forward_args)[0])


class DeepLift(Adapter):
    """`captum.attr.DeepLift` [Shrikumar 2017] on our engine, which also accepts plain functions and modules used twice.

    Args:
        model: the network, any function of tensors, or the result of `ig2.wrap`.
        multiply_by_inputs: False returns the multipliers, without the factor input − baseline.
        eps: not used: small differences use the derivative if it accounts for them up to rounding.
    """

    def __init__(self, model: AnyModel, multiply_by_inputs: bool = True, eps: float = 1e-10) -> None:
        super().__init__(Multipliers(), model, multiply_by_inputs)

    @wrapped
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
            return_convergence_delta: whether to also return Σ attributions − (f(input) − f(baseline)), (B,).
            custom_attribution_func: a function from multipliers, inputs and baselines, each a tuple of tensors, to
                attributions.

        Returns:
            Attributions in the form and shape of `inputs`, or (attributions, delta).
        """
        count, references = self._pair(inputs, baselines)
        copies = Copies(inputs, target, additional_forward_args, count)
        tensors, ends = tuple(copies.tensors), tuple(map(torch.Tensor.view_as, references, copies.tensors))
        values, _ = self._explain(self.method, like(inputs, tensors), *copies.arguments, references)
        if custom_attribution_func is not None:
            custom = custom_attribution_func(values, tensors, ends)
            values = (custom,) if isinstance(custom, Tensor) else custom
        elif self.multiply_by_inputs:
            values = copies.multiply(values, ends)
        return self._average(copies, values, ends, return_convergence_delta)

    @staticmethod
    def _pair(inputs: Tensors, baselines: Any) -> tuple[int, tuple[Tensor, ...]]:
        """Return the number of baselines of each input, and the baseline (n, 1, ...) of each pair."""
        return 1, pair_baselines(as_tensors(inputs), baselines)


class DeepLiftShap(DeepLift):
    """`captum.attr.DeepLiftShap` [Lundberg 2017] on our engine: the mean of `DeepLift` over baselines shared by all inputs.

    In `attribute`, `baselines` are samples (R, ...), or a function that returns them, of the inputs or without arguments. The
    delta is that of each pair, (B · R,): the first input with each baseline, then the second. `custom_attribution_func` gets
    all pairs.
    """

    def __init__(self, model: AnyModel, multiply_by_inputs: bool = True) -> None:
        super().__init__(model, multiply_by_inputs)

    @staticmethod
    def _pair(inputs: Tensors, baselines: Any) -> tuple[int, tuple[Tensor, ...]]:
        samples, rows = share_baselines(inputs, baselines), len(as_tensors(inputs)[0])
        return len(samples[0]), tuple(sample.repeat(rows, *[1] * (sample.ndim - 1)).unsqueeze(1) for sample in samples)


class GradientShap(Adapter):
    """`captum.attr.GradientShap` on our engine: the gradient at random points between noisy inputs and random baselines.

    The estimator is that of expected gradients [Erion 2021]. Points are stratified over the line rather than independent,
    which requires fewer of them. `ig2.ExpectedIG` integrates along every line to every baseline, without random draws.

    Args:
        forward_func: the network, any function of tensors, or the result of `ig2.wrap`.
        multiply_by_inputs: False omits the factor input − baseline.
        seed: the seed of noise, baselines and points. Global random state is neither read nor changed.
    """

    def __init__(self, forward_func: AnyModel, multiply_by_inputs: bool = True, seed: int = 0) -> None:
        super().__init__(ig2.ExpectedIG(), forward_func, multiply_by_inputs, seed)

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
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Attribute the output at `target`: the mean gradient over the points, times input − baseline.

        Arguments that are not listed are those of `CaptumMethod.attribute`.

        Args:
            baselines: samples (R, ...) to draw from, or a function that returns them, of the inputs or without arguments.
            n_samples: the number of points for each input.
            stdevs: the standard deviation of the noise on the inputs, one for all tensors or one for each.
            return_convergence_delta: whether to also return Σ attributions − (f(input) − f(baseline)) of each point,
                (B · n_samples,).

        Returns:
            Attributions in the form and shape of `inputs`, or (attributions, delta).
        """
        copies = Copies(inputs, target, additional_forward_args, n_samples)
        ends, places = draw_points(copies, inputs, baselines, stdevs, self.seed)
        values = self._explain(ig2.Gradient(), copies.between(ends, places), *copies.arguments)[0]
        if self.multiply_by_inputs:
            values = copies.multiply(values, ends)
        return self._average(copies, values, ends, return_convergence_delta)


class KernelShap(Adapter):
    """`captum.attr.KernelShap` [Lundberg 2017] on our engine, which is exact if all coalitions can be evaluated.

    Args:
        forward_func: the network, any function of tensors, or the result of `ig2.wrap`.
        seed: the seed of the drawn coalitions. Global random state is neither read nor changed.
    """

    def __init__(self, forward_func: AnyModel, seed: int = 0) -> None:
        super().__init__(ig2.KernelSHAP(), forward_func, seed=seed)

    @wrapped
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
            inputs: a tensor (B, ...), or a tuple of them. If the forward function returns one number for all of them, they
                are explained as one.
            feature_mask: the group of each feature, (1, ...) or (B, ...); for a tuple of inputs a tuple of these, in which a
                number denotes the same group throughout. By default each feature is a group.
            n_samples: the number of coalitions to evaluate, at least two per group: fewer cannot distinguish the groups.
            perturbations_per_eval: the number of samples per batch of the network.
            return_input_shape: False returns a number for each group, (B, groups).
            show_progress: whether to show a progress bar.

        Returns:
            Attributions in the form and shape of `inputs`, constant within a group; or those of the groups.

        Raises:
            InputError: if an argument does not fit the inputs or the network.
        """
        tensors, extra = as_tensors(inputs), additional_forward_args
        references, masks = pair_baselines(tensors, baselines), match_masks(tensors, feature_mask)
        full = [mask.expand(tensor.shape) for mask, tensor in zip(masks, tensors, strict=True)]
        if len(tensors[0]) > 1 and target is None and self._returns_one(tensors, extra):
            if any(len(mask) > 1 for mask in masks):
                raise InputError(
                    f"the network returned one number for {len(tensors[0])} inputs, which are therefore explained as one: "
                    f"give them one feature_mask (1, ...), got {describe(feature_mask)}"
                )
            # a single explicand, whose first axis is the inputs' batch
            whole = KernelShap(lambda *batch: self.forward_func(*(part[0] for part in batch), *as_args(extra)), self.seed)
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
        return like(inputs, [coefficients.gather(1, mask.flatten(1)).reshape(mask.shape) for mask in masks])

    def _returns_one(self, inputs: tuple[Tensor, ...], extra: Any) -> bool:
        """Return whether the forward function returns one number for all inputs together."""
        with torch.no_grad():
            result = self.forward_func(*inputs, *as_args(extra))
        return result.numel() == 1 if isinstance(result, Tensor) else isinstance(result, (int, float))
