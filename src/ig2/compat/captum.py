"""Captum's `attribute(inputs, baselines, target, ...)` for any of our methods, and Captum's own classes on our engine."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2._engine.inputs import Fixed, check_numeric
from ig2._utils.checks import is_count
from ig2.errors import InputError, describe, import_extra
from ig2.methods import kernelshap, path, simple
from ig2.methods.base import Method
from ig2.methods.deepshap import DeepSHAP
from ig2.methods.path import PathMethod
from ig2.model import OUTPUTS, Model, wrap
from ig2.paths import Straight
from ig2.rules import Quadrature, Rule

GradientAttribution: Any = import_extra("captum.attr", "captum", "ig2.compat.captum").GradientAttribution

Tensors = Tensor | tuple[Tensor, ...]
Baselines = Tensor | float | tuple[Tensor | float, ...] | None
CallableBaselines = Callable[..., Tensors]
CustomAttribution = Callable[[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]], Tensors]
Target = int | tuple[int, ...] | Tensor | list[int] | list[tuple[int, ...]] | None
Integration = Literal["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]

# Captum counts from the baseline and we from the explicand, so that its left is our right.
RIEMANN: dict[str, Rule] = {
    "riemann_left": rules.right,
    "riemann_right": rules.left,
    "riemann_middle": rules.midpoint,
    "riemann_trapezoid": rules.trapezoid,
}

P = ParamSpec("P")
R = TypeVar("R")


def _logged(function: Callable[P, R]) -> Callable[P, R]:
    """`NoiseTunnel` calls `attribute.__wrapped__`, past the logging that Captum wraps around its own methods."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return call


class _Adapter(GradientAttribution):  # type: ignore[misc] # Captum is not there to be read where it is not installed
    """What all classes here share: a method of ours, called with inputs, targets and further arguments in Captum's forms."""

    def __init__(
        self,
        method: Method,
        model: Model | nn.Module | Callable[..., Any],
        multiply_by_inputs: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(_forward(model) if isinstance(model, Model) else model)
        self.method = method
        self.model = model if isinstance(model, Model) else wrap(model)
        self.multiply_by_inputs = multiply_by_inputs
        self.seed = seed

    def attribute_future(self, *args: Any, **kwargs: Any) -> None:
        """Not available, as for these classes of Captum's own: they attribute at once."""
        raise NotImplementedError("attribute_future is not available: call attribute, which returns the attributions")

    def has_convergence_delta(self) -> bool:
        """Whether the method sets out to account for the change in the output from a baseline."""
        inner = _innermost(self.method)
        squared = getattr(self.method, "squared", False)  # SmoothGrad²
        return not squared and not isinstance(inner, (simple.Gradient, simple.InputXGradient, simple.Random, path.GradCFE))

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether values are contributions to the output ("global" in Captum's words) and not slopes."""
        return self.multiply_by_inputs and not isinstance(_innermost(self.method), (simple.Gradient, simple.Random))

    def _explain(
        self,
        method: Method,
        inputs: Tensors,
        target: Target,
        extra: Any,
        references: Any = None,
        **options: Any,
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """A method's values for each of the inputs, and its residual.

        Args:
            method: one of ours.
            inputs: as the user gave them.
            target: in one of Captum's forms.
            extra: what else the forward function takes: `additional_forward_args`.
            references: for the method; samples of inputs (B,) are (R, 1) here.
            options: of the method's call.
        """
        tensors = _tensors(inputs)
        extras = _extras(extra)
        # Captum hands a number in a tensor to every sample alike; a `Fixed` tensor has a row for each
        fixed = [Fixed(_Shared(value) if isinstance(value, Tensor) and value.ndim == 0 else value) for value in extras]
        # the engine has features: samples of one number each get an axis for it, and an input without any is passed along
        moving = [t[:, None] if t.ndim == 1 else t if t.numel() else Fixed(t) for t in tensors]
        model, chosen = _at(self.model, target, tuple(i for i, tensor in enumerate(tensors) if tensor.ndim == 1))
        bare = isinstance(inputs, Tensor) and not fixed  # a tensor that the method is called with as it is, in no tuple
        if bare and isinstance(references, tuple):
            (references,) = references
        found = method(model, moving[0] if bare else (*moving, *fixed), chosen, references, seed=self.seed, **options)
        values = iter(_tensors(found.values))
        return tuple(next(values).reshape(t.shape) if t.numel() else torch.zeros_like(t) for t in tensors), found.residual

    def _slopes(self, points: Sequence[Tensor], target: Target, extra: Any, count: int, **options: Any) -> tuple[Tensor, ...]:
        """The gradient at points (B · count, ...), for targets and further arguments of the B inputs."""
        method = simple.Gradient()
        return self._explain(method, tuple(points), _each_target(target, count), _each_extra(extra, count), **options)[0]

    def _delta(self, values: Tensors, baselines: Any, inputs: Tensors, target: Target, extra: Any) -> Tensor:
        """Captum's own account of what the values miss, to the last bit."""
        delta: Tensor = self.compute_convergence_delta(values, baselines, inputs, target=target, additional_forward_args=extra)
        return delta


class CaptumMethod(_Adapter):
    """A method of ours as Captum's `Attribution`, to call as any of Captum's and to hand to its `NoiseTunnel` and metrics.

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
        references: whom to contrast with where `attribute` is given no baselines: samples, a number or a strategy of
            `ig2.references`, as in a method's own call.
        distribution: what several baselines are. True: samples that every input is contrasted with, as for Captum's
            `DeepLiftShap`. False: one for each input, as for its `IntegratedGradients`. By default it is False for methods
            whose baseline is zero unless given, and True for all others: never a matter of how many there happen to be.
        seed: of everything random in the method.
    """

    def __init__(
        self,
        method: Method,
        model: Model | nn.Module | Callable[..., Any],
        references: Any = None,
        *,
        distribution: bool | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(method, Method):
            raise InputError(f"method must be one of ours, for example ig2.IG2(), got {describe(method)}")
        super().__init__(method, model, seed=seed)
        self.references = references
        self.distribution = method.default_references is None if distribution is None else distribution

    @_logged
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
            baselines: None for the method's own (zero for Integrated Gradients, Guided IG and DeepSHAP), a number, or a
                tensor: one (1, ...) for all, one for each input (B, ...), or samples (R, ...) or (B, R, ...), see
                `distribution`. For a tuple of inputs a tuple of such. A gradient has no baseline: for `Gradient` and
                `InputXGradient` the second argument is the target, as it is for Captum's.
            target: which output: an index for all inputs or one for each; tuples where the output has several axes. Not
                needed where the network has a single output.
            additional_forward_args: what else the forward function takes, after the inputs, and is not attributed. Tensors
                have a row for each input, or no axis.
            n_steps: the number of steps, in place of the method's own.
            method: how to integrate on a straight line, in place of the method's own rule. `riemann_trapezoid` has weights
                that sum to one; Captum's sum to (n − 1)/n.
            internal_batch_size: how many points the network sees at once, by default as many as fit the memory. It may be
                smaller than the number of inputs.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), one number for each input; a
                mean over the baselines where there are several, and for IG² with the GradCFs for baselines.
        """
        if isinstance(_innermost(self.method), (simple.Gradient, simple.InputXGradient)) and baselines is not None:
            if target is not None:
                raise InputError(
                    f"{type(self.method).__name__} has no baseline, got {describe(baselines)}: leave baselines out"
                )
            baselines, target = None, baselines
        values, residual = self._explain(
            _integrated(self.method, n_steps, method),
            inputs,
            target,
            additional_forward_args,
            self._references(_tensors(inputs), baselines),
            batch_size="auto" if internal_batch_size is None else internal_batch_size,
        )
        shaped = values[0] if isinstance(inputs, Tensor) else values
        if not return_convergence_delta:
            return shaped
        if residual is None:
            raise InputError(f"{type(self.method).__name__} has no baseline, and so no convergence delta: do not ask for it")
        return shaped, residual

    def _references(self, inputs: tuple[Tensor, ...], baselines: Baselines) -> Any:
        """Captum's baselines as references: (R, ...) for all inputs or (B, R, ...) for each its own."""
        if baselines is None:
            method = self.method
            own = (self.references, method.default_references, getattr(method, "references", None))
            none = all(references is None for references in own)
            if none and isinstance(method, PathMethod) and method.path.uses_reference:
                raise InputError(f"{type(method).__name__} contrasts with samples: give baselines=samples (R, ...)")
            return 0.0 if none and isinstance(_innermost(method), DeepSHAP) else self.references
        if not self.distribution:
            return tuple(one.unsqueeze(1) for one in _one_each(inputs, baselines))
        return _samples(inputs, baselines, own=True)


# -- Captum's classes ------------------------------------------------------------------------------------------------------


class IntegratedGradients(_Adapter):
    """Captum's `IntegratedGradients` on our engine, with the same call and the same numbers.

    Args:
        forward_func: the network, any function of tensors, or what `ig2.wrap` returned.
        multiply_by_inputs: False returns the mean gradient on the line, without the factor input − baseline.
    """

    def __init__(self, forward_func: Model | nn.Module | Callable[..., Any], multiply_by_inputs: bool = True) -> None:
        super().__init__(path.IntegratedGradients(), forward_func, multiply_by_inputs)

    @_logged
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
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Attribute the output at `target`. Arguments as for `CaptumMethod.attribute`; a baseline is one for each input."""
        tensors = _tensors(inputs)
        ends = _one_each(tensors, baselines)
        batch: Any = "auto" if internal_batch_size is None else internal_batch_size
        changed = _integrated(self.method, n_steps, method)
        if self.multiply_by_inputs:
            references = tuple(end.unsqueeze(1) for end in ends)
            values, _ = self._explain(changed, inputs, target, additional_forward_args, references, batch_size=batch)
        else:
            nodes, weights = _nodes(changed)
            count = len(nodes)
            copies = [(_each(tensor.detach(), count), _each(end, count)) for tensor, end in zip(tensors, ends, strict=True)]
            points = [_between(start, end, nodes) for start, end in copies]
            slopes = self._slopes(points, target, additional_forward_args, count, batch_size=batch)
            values = tuple(_of_each(slope * _column(weights, slope), count).sum(dim=1) for slope in slopes)
        shaped = values[0] if isinstance(inputs, Tensor) else values
        if not return_convergence_delta:
            return shaped
        return shaped, self._delta(shaped, baselines, inputs, target, additional_forward_args)


class Saliency(_Adapter):
    """Captum's `Saliency` on our engine: the gradient, without its sign unless `abs=False`."""

    def __init__(self, forward_func: Model | nn.Module | Callable[..., Any]) -> None:
        super().__init__(simple.Gradient(), forward_func)

    @_logged
    def attribute(
        self, inputs: Tensors, target: Target = None, abs: bool = True, additional_forward_args: Any = None
    ) -> Tensors:
        """The gradient of the output at `target`. Arguments as for `CaptumMethod.attribute`."""
        values, _ = self._explain(self.method, inputs, target, additional_forward_args)
        if abs:
            values = tuple(value.abs() for value in values)
        return values[0] if isinstance(inputs, Tensor) else values


class InputXGradient(_Adapter):
    """Captum's `InputXGradient` on our engine."""

    def __init__(self, forward_func: Model | nn.Module | Callable[..., Any]) -> None:
        super().__init__(simple.InputXGradient(), forward_func)

    @_logged
    def attribute(self, inputs: Tensors, target: Target = None, additional_forward_args: Any = None) -> Tensors:
        """The inputs times the gradient of the output at `target`. Arguments as for `CaptumMethod.attribute`."""
        values, _ = self._explain(self.method, inputs, target, additional_forward_args)
        return values[0] if isinstance(inputs, Tensor) else values


class DeepLift(_Adapter):
    """Captum's `DeepLift` on our engine, where modules may be used twice and functions need not be modules.

    Args:
        model: the network, any function of tensors, or what `ig2.wrap` returned.
        multiply_by_inputs: False returns the multipliers, without the factor input − baseline.
        eps: not used: a small step takes the derivative where that accounts for it to rounding.
    """

    def __init__(
        self, model: Model | nn.Module | Callable[..., Any], multiply_by_inputs: bool = True, eps: float = 1e-10
    ) -> None:
        super().__init__(_Multipliers(), model, multiply_by_inputs)

    @_logged
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        custom_attribution_func: CustomAttribution | None = None,
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Attribute the output at `target`.

        Args:
            inputs: a tensor (B, ...), or a tuple of them.
            baselines: a number, or a tensor: one (1, ...) for all or one for each input (B, ...); zero by default.
            target: which output, as for `CaptumMethod.attribute`.
            additional_forward_args: what else the forward function takes.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), one number for each input.
            custom_attribution_func: from multipliers, inputs and baselines, each a tuple of tensors, to attributions.
        """
        tensors = _tensors(inputs)
        ends = _one_each(tensors, baselines)
        values = self._contributions(inputs, ends, target, additional_forward_args, custom_attribution_func)
        shaped = values[0] if isinstance(inputs, Tensor) else values
        if not return_convergence_delta:
            return shaped
        return shaped, self._delta(shaped, baselines, inputs, target, additional_forward_args)

    def _contributions(
        self, inputs: Tensors, ends: tuple[Tensor, ...], target: Target, extra: Any, custom: CustomAttribution | None
    ) -> tuple[Tensor, ...]:
        """What each input contributes against its own baseline."""
        references = tuple(end.unsqueeze(1) for end in ends)
        multipliers, _ = self._explain(self.method, inputs, target, extra, references)
        tensors = tuple(tensor.detach() for tensor in _tensors(inputs))
        ends = tuple(end.reshape(tensor.shape) for end, tensor in zip(ends, tensors, strict=True))
        if custom is not None:
            values = custom(multipliers, tensors, ends)
            return (values,) if isinstance(values, Tensor) else values
        if not self.multiply_by_inputs:
            return multipliers
        return tuple(m * (tensor - end) for m, tensor, end in zip(multipliers, tensors, ends, strict=True))


class DeepLiftShap(DeepLift):
    """Captum's `DeepLiftShap` on our engine: the mean of `DeepLift` over baselines that every input is contrasted with."""

    def __init__(self, model: Model | nn.Module | Callable[..., Any], multiply_by_inputs: bool = True) -> None:
        super().__init__(model, multiply_by_inputs)

    @_logged
    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines | CallableBaselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        custom_attribution_func: CustomAttribution | None = None,
    ) -> Tensors | tuple[Tensors, Tensor]:
        """Attribute the output at `target`.

        Args:
            inputs: a tensor (B, ...), or a tuple of them.
            baselines: samples (R, ...) for every input, or a function that returns them, of the inputs or of nothing.
            target: which output, as for `CaptumMethod.attribute`.
            additional_forward_args: what else the forward function takes.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), (B · R,): the first input with
                each baseline, then the second.
            custom_attribution_func: from multipliers, inputs and baselines of all B · R pairs to attributions.
        """
        tensors = _tensors(inputs)
        samples = _samples(tensors, _called(baselines, inputs))
        count = len(samples[0])
        pairs = _like_given(inputs, [_each(tensor.detach(), count) for tensor in tensors])
        ends = tuple(end.repeat(len(tensor), *[1] * (end.ndim - 1)) for end, tensor in zip(samples, tensors, strict=True))
        target, extra = _each_target(target, count), _each_extra(additional_forward_args, count)
        values = self._contributions(pairs, ends, target, extra, custom_attribution_func)
        means = _like_given(inputs, [_of_each(value, count).mean(dim=1) for value in values])
        if not return_convergence_delta:
            return means
        starts = _like_given(inputs, [end.reshape(one.shape) for end, one in zip(ends, _tensors(pairs), strict=True)])
        return means, self._delta(_like_given(inputs, values), starts, pairs, target, extra)


class GradientShap(_Adapter):
    """Captum's `GradientShap` on our engine: the gradient at random points between noised inputs and random baselines.

    Points are spread evenly over the line rather than by chance alone, which takes fewer of them. `ig2.ExpectedIG` walks
    every line to every baseline and draws nothing.

    Args:
        forward_func: the network, any function of tensors, or what `ig2.wrap` returned.
        multiply_by_inputs: False leaves out the factor input − baseline.
        seed: of noise, baselines and points. Global random state is neither read nor changed.
    """

    def __init__(
        self, forward_func: Model | nn.Module | Callable[..., Any], multiply_by_inputs: bool = True, seed: int = 0
    ) -> None:
        super().__init__(path.ExpectedIG(), forward_func, multiply_by_inputs, seed)

    @_logged
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
        """Attribute the output at `target`.

        Args:
            inputs: a tensor (B, ...), or a tuple of them.
            baselines: samples (R, ...) to draw from, or a function that returns them, of the inputs or of nothing.
            n_samples: how many points for each input.
            stdevs: of the noise on the inputs, one for all of them or one for each tensor.
            target: which output, as for `CaptumMethod.attribute`.
            additional_forward_args: what else the forward function takes.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)) of each point, (B · n_samples,).
        """
        tensors = _tensors(inputs)
        if not is_count(n_samples):
            raise InputError(f"n_samples must be a positive integer, got {describe(n_samples)}")
        widths = stdevs if isinstance(stdevs, tuple) else (stdevs,) * len(tensors)
        if len(widths) != len(tensors):
            raise InputError(f"there are {len(widths)} stdevs for {len(tensors)} inputs: give one number, or one for each")
        samples = _samples(tensors, _called(baselines, inputs))
        rows, generator = len(tensors[0]), torch.Generator().manual_seed(self.seed)
        which = torch.randint(len(samples[0]), (rows * n_samples,), generator=generator)
        jitter = torch.rand(rows, n_samples, dtype=torch.float64, generator=generator)
        share = ((torch.arange(n_samples) + jitter) / n_samples).flatten()
        noised, ends, points = [], [], []
        for tensor, width, sample in zip(tensors, widths, samples, strict=True):
            copies = _each(tensor.detach(), n_samples)
            noise = torch.randn(copies.shape, dtype=torch.float64, generator=generator)
            noised.append(copies + width * noise.to(copies))
            ends.append(sample[which.to(sample.device)].reshape(copies.shape))
            points.append(_between(noised[-1], ends[-1], share))
        slopes = self._slopes(points, target, additional_forward_args, n_samples)
        values = slopes
        if self.multiply_by_inputs:
            values = tuple(slope * (one - end) for slope, one, end in zip(slopes, noised, ends, strict=True))
        means = _like_given(inputs, [_of_each(value, n_samples).mean(dim=1) for value in values])
        if not return_convergence_delta:
            return means
        start, end, all_values = (_like_given(inputs, each) for each in (ends, noised, values))
        target, extra = _each_target(target, n_samples), _each_extra(additional_forward_args, n_samples)
        return means, self._delta(all_values, start, end, target, extra)


class KernelShap(_Adapter):
    """Captum's `KernelShap` on our engine, which solves the regression exactly where all coalitions can be tried.

    Args:
        forward_func: the network, any function of tensors, or what `ig2.wrap` returned.
        seed: of the coalitions drawn. Global random state is neither read nor changed.
    """

    def __init__(self, forward_func: Model | nn.Module | Callable[..., Any], seed: int = 0) -> None:
        super().__init__(kernelshap.KernelSHAP(), forward_func, seed=seed)

    @_logged
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
        """Attribute the output at `target`.

        Args:
            inputs: a tensor (B, ...), or a tuple of them. Where the forward function returns one number for all of them,
                they are explained as one.
            baselines: a number, or a tensor: one (1, ...) for all or one for each input (B, ...); zero by default.
            target: which output, as for `CaptumMethod.attribute`.
            additional_forward_args: what else the forward function takes.
            feature_mask: which group each feature belongs to, (1, ...) or (B, ...); for a tuple of inputs a tuple of such,
                in which a number means the same group. By default each feature is a group.
            n_samples: how many coalitions are tried, at least two for each group: fewer cannot tell groups apart.
            perturbations_per_eval: how many samples the network sees at once.
            return_input_shape: False returns a number for each group, (B, groups).
            show_progress: show a bar.
        """
        tensors = _tensors(inputs)
        ends, masks = _one_each(tensors, baselines), _masks(tensors, feature_mask)
        options = {"samples": n_samples, "batch_size": perturbations_per_eval, "progress": show_progress}
        rows, extra = len(tensors[0]), additional_forward_args
        if rows > 1 and target is None and self._returns_one(tensors, extra):
            if any(len(mask) > 1 for mask in masks):
                raise InputError(
                    f"the network returned one number for {rows} inputs, which are therefore explained as one: give them one "
                    f"feature_mask (1, ...), got {describe(feature_mask)}"
                )
            # a single explicand, whose first axis is the inputs' batch
            whole = KernelShap(lambda *one: self.forward_func(*(tensor[0] for tensor in one), *_extras(extra)), self.seed)
            every = [mask.expand(tensor.shape)[None] for mask, tensor in zip(masks, tensors, strict=True)]
            ends = tuple(end.reshape(1, *tensor.shape) for end, tensor in zip(ends, tensors, strict=True))
            groups = whole._coefficients(tuple(tensor[None] for tensor in tensors), ends, every, None, None, **options)
        else:
            masks = [mask.expand(tensor.shape) for mask, tensor in zip(masks, tensors, strict=True)]
            groups = self._coefficients(inputs, ends, masks, target, extra, **options)
        if not return_input_shape:
            return groups
        return _like_given(inputs, [groups.gather(1, mask.flatten(1)).reshape(mask.shape) for mask in masks])

    def _returns_one(self, inputs: tuple[Tensor, ...], extra: Any) -> bool:
        """Whether the forward function returns one number for all inputs together."""
        with torch.no_grad():
            result = self.forward_func(*inputs, *_extras(extra))
        return result.numel() == 1 if isinstance(result, Tensor) else isinstance(result, (int, float))

    def _coefficients(
        self,
        inputs: Tensors,
        ends: tuple[Tensor, ...],
        masks: Sequence[Tensor],
        target: Target,
        extra: Any,
        samples: int,
        **options: Any,
    ) -> Tensor:
        """What each group is worth, (B, groups): the engine divides that among its features."""
        count = 1 + max(int(mask.max()) for mask in masks if mask.numel())
        flat = [mask.flatten(1) for mask in masks]
        lone = [mask[:, None] if mask.ndim == 1 else mask for mask in masks if mask.numel()]
        labels = lone[0] if len(lone) == 1 else torch.cat(flat, dim=1)
        method = kernelshap.KernelSHAP(labels, max(samples, 2 * count))
        references = tuple(end.unsqueeze(1) for end in ends)
        values, _ = self._explain(method, inputs, target, extra, references, **options)
        every = torch.cat([value.flatten(1) for value in values], dim=1)
        return every.new_zeros(len(every), count).scatter_add_(1, torch.cat(flat, dim=1), every)


class _Multipliers(DeepSHAP):
    """DeepLIFT's multipliers themselves."""

    multiplies = False


# -- from Captum's forms to ours -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shared:
    """A tensor that all samples share."""

    value: Tensor


def _tensors(inputs: object) -> tuple[Tensor, ...]:
    """The inputs as a tuple of tensors."""
    tensors = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(tensors, tuple) or not all(isinstance(tensor, Tensor) and tensor.ndim > 0 for tensor in tensors):
        raise InputError(f"inputs must be a tensor (B, ...) or a tuple of them, got {describe(inputs)}")
    return tensors


def _like_given(inputs: Tensors, tensors: Sequence[Tensor]) -> Tensors:
    """Tensors for the inputs, bare where those are."""
    return tensors[0] if isinstance(inputs, Tensor) else tuple(tensors)


def _extras(extra: Any) -> tuple[Any, ...]:
    """Captum's `additional_forward_args` as a tuple."""
    return extra if isinstance(extra, tuple) else () if extra is None else (extra,)


def _called(baselines: Any, inputs: Tensors) -> Any:
    """What a function of baselines returns, which takes the inputs or nothing."""
    if not callable(baselines):
        return baselines
    return baselines(inputs) if inspect.signature(baselines).parameters else baselines()


def _items(inputs: tuple[Tensor, ...], baselines: Baselines, distribution: bool) -> list[Tensor]:
    """A baseline for each of the inputs, samples of one number each with an axis for it; zero by default."""
    items = (0.0,) * len(inputs) if baselines is None else baselines if isinstance(baselines, tuple) else (baselines,)
    if len(items) != len(inputs):
        raise InputError(f"there are {len(items)} baselines for {len(inputs)} inputs: give one for each")
    tensors = [_baseline(item, tensor, distribution) for item, tensor in zip(items, inputs, strict=True)]
    return [one.unsqueeze(-1) if of.ndim == 1 else one for one, of in zip(tensors, inputs, strict=True)]


def _one_each(inputs: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    """Baselines of which each input has one, (B, ...)."""
    return tuple(one.expand(len(of), *one.shape[1:]) for one, of in zip(_items(inputs, baselines, False), inputs, strict=True))


def _samples(inputs: tuple[Tensor, ...], baselines: Baselines, own: bool = False) -> tuple[Tensor, ...]:
    """Baselines that every input is contrasted with, (R, ...), or with `own` maybe (B, R, ...), as many for each tensor."""
    items = _items(inputs, baselines, True)
    sizes = [max(1, of.ndim - 1) for of in inputs]  # how many axes a sample has
    leads = [one.shape[: one.ndim - size] for one, size in zip(items, sizes, strict=True)]
    if not own and any(len(lead) > 1 for lead in leads):
        raise InputError(f"baselines are {describe(baselines)}: expected samples (R, ...), the same for every input")
    try:
        lead = torch.broadcast_shapes(*leads)  # type: ignore[no-untyped-call]
        return tuple(one.expand(*lead, *one.shape[one.ndim - size :]) for one, size in zip(items, sizes, strict=True))
    except RuntimeError as error:
        raise InputError(f"baselines differ in how many there are: {describe(items)}") from error


def _masks(inputs: tuple[Tensor, ...], feature_mask: Tensors | None) -> list[Tensor]:
    """The group of each feature, (1, ...) or (B, ...), counted from zero over all inputs."""
    if feature_mask is None:
        sizes = torch.tensor([0] + [tensor[0].numel() for tensor in inputs]).cumsum(0).tolist()
        return [
            torch.arange(start, start + tensor[0].numel(), device=tensor.device).view(1, *tensor.shape[1:])
            for start, tensor in zip(sizes, inputs, strict=False)
        ]
    masks = (feature_mask,) if isinstance(feature_mask, Tensor) else feature_mask
    for mask, tensor in zip(masks, inputs, strict=False):
        fits = isinstance(mask, Tensor) and mask.shape[1:] == tensor.shape[1:] and len(mask) in (1, len(tensor))
        if not fits or mask.is_floating_point():
            raise InputError(
                f"feature_mask is {describe(mask)} for the input {describe(tensor)}: expected integers of its shape, or one "
                "(1, ...) for all"
            )
    if len(masks) != len(inputs):
        raise InputError(f"there are {len(masks)} feature masks for {len(inputs)} inputs: give one for each")
    first = min(int(mask.min()) for mask in masks if mask.numel())
    return [(mask.long() - first).to(tensor.device) for mask, tensor in zip(masks, inputs, strict=True)]


# -- copies of each input --------------------------------------------------------------------------------------------------


def _each(tensor: Tensor, count: int) -> Tensor:
    """That many copies of each row, one after the other, (B · count, ...)."""
    return tensor.repeat_interleave(count, dim=0)


def _each_target(target: Target, count: int) -> Target:
    if isinstance(target, list):
        return [one for one in target for _ in range(count)]  # type: ignore[return-value]
    return _each(target, count) if isinstance(target, Tensor) and target.numel() > 1 else target


def _each_extra(extra: Any, count: int) -> Any:
    if extra is None:
        return None
    return tuple(_each(one, count) if isinstance(one, Tensor) and one.ndim else one for one in _extras(extra))


def _of_each(copies: Tensor, count: int) -> Tensor:
    """Values of the copies, (B, count, ...)."""
    return copies.reshape(-1, count, *copies.shape[1:])


def _column(numbers: Tensor, copies: Tensor) -> Tensor:
    """Numbers for the copies of each row, or for all copies, to multiply these with."""
    return numbers.repeat(len(copies) // len(numbers)).to(copies).reshape(-1, *[1] * (copies.ndim - 1))


def _between(start: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """Points at that share of the way."""
    return torch.lerp(check_numeric(start, "inputs"), end.reshape(start.shape), _column(share, start))


def _nodes(method: Method) -> tuple[Tensor, Tensor]:
    """Where a quadrature on a straight line takes the gradient, 0 at the input and 1 at its baseline, and its weights."""
    assert isinstance(method, PathMethod) and isinstance(method.path, Straight) and isinstance(method.rule, Quadrature)
    segments = torch.arange(method.path.steps, dtype=torch.float64)
    nodes, weights = (torch.tensor(each, dtype=torch.float64) for each in (method.rule.nodes, method.rule.weights))
    return (segments[:, None] + nodes).flatten() / len(segments), weights.repeat(len(segments)) / len(segments)


def _baseline(given: Tensor | float, of: Tensor, distribution: bool) -> Tensor:
    """One input's baselines, with an axis that counts them, or two."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return torch.full_like(of[:1], given)
    lead = given.ndim - of.ndim + 1 if isinstance(given, Tensor) else 0
    if not isinstance(given, Tensor) or lead not in (1, 2) or given.shape[lead:] != of.shape[1:]:
        raise InputError(f"a baseline is {describe(given)}: for the input {describe(of)} expected a number or such samples")
    if not distribution and (lead == 2 or len(given) not in (1, len(of))):
        raise InputError(
            f"baselines are {describe(given)}, inputs {describe(of)}: expected one for each input, or one (1, ...) for all. "
            "If every input is to be contrasted with all of them, say CaptumMethod(..., distribution=True)"
        )
    return given.to(of)


def _innermost(method: Method) -> Method:
    """What is inside SmoothGrad or XRAI."""
    inner = getattr(method, "method", None)
    return _innermost(inner) if isinstance(inner, Method) else method


def _integrated(method: Method, steps: int | None, integration: str | None) -> Method:
    """The method with another number of steps, and on a straight line with another rule."""
    if steps is None and integration is None:
        return method
    if not isinstance(method, PathMethod) or not hasattr(method.path, "steps"):
        raise InputError(f"{type(method).__name__} has no steps: leave n_steps and method out")
    path, rule = method.path, method.rule
    if isinstance(path, Straight):
        whole = path.steps == 1 and isinstance(rule, Quadrature) and rule == rules.gauss(len(rule.nodes))
        if steps is None:
            steps = len(rule.nodes) if whole and isinstance(rule, Quadrature) else path.steps
        if integration is None and whole:
            integration = "gausslegendre"
        if integration == "gausslegendre":
            path, rule = Straight(1), rules.gauss(steps)
        elif integration is not None:
            if integration not in RIEMANN:
                raise InputError(f"method={integration!r} is unknown: use 'gausslegendre' or one of {', '.join(RIEMANN)}")
            # n points with both ends among them bound n − 1 segments
            path, rule = Straight(steps - (integration == "riemann_trapezoid")), RIEMANN[integration]
        else:
            path = Straight(steps)
    elif integration is not None:
        raise InputError(
            f"method={integration!r} is for straight lines: give {type(method).__name__} its rule, for example "
            "rule=ig2.rules.trapezoid"
        )
    else:
        path = replace(path, steps=steps)  # type: ignore[call-arg]
    changed = copy.copy(method)  # not replace(): the recipes are built from other arguments than their parts
    object.__setattr__(changed, "path", path)
    object.__setattr__(changed, "rule", rule)
    return changed


@dataclass(frozen=True, eq=False)
class _At(Model):
    """A model whose outputs are those that Captum's targets name; with none, it must have one output alone.

    Inputs named in `lone` come with an axis for the one number of a sample, which the network's do not have.
    """

    places: tuple[tuple[int, ...], ...] | None = None
    lone: tuple[int, ...] = ()

    def preprocessed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(arg.value if isinstance(arg, _Shared) else arg for arg in args)
        return super().preprocessed(tuple(a.squeeze(1) if i in self.lone else a for i, a in enumerate(args)), kwargs)

    def logits(self, raw: Any) -> Tensor:
        logits = super().logits(raw)
        one = logits.ndim > 2 and logits[0].numel() == 1 and not self.places
        return logits.reshape(len(logits), 1) if one else logits

    def scores(self, raw: Any, rows: int) -> Tensor:
        if self.places is None:
            return super().scores(raw, rows)
        if not self.places:
            scores = super().scores(raw, rows)
            if scores.shape[1] > 1:
                raise InputError(f"the network has {scores.shape[1]} outputs: say which with target=")
            return scores
        outputs = self.output(raw) if callable(self.output) else OUTPUTS[self.output](self.logits(raw))
        if any(len(place) != outputs.ndim - 1 for place in self.places):
            raise InputError(f"target {self.places[0]} does not name one output: the network returned {describe(outputs)}")
        try:
            return torch.stack([outputs.movedim(0, -1)[place] for place in self.places], dim=1)
        except IndexError as error:
            raise InputError(f"target is outside the network's output, {describe(outputs)}: {error}") from error


def _at(model: Model, target: Target, lone: tuple[int, ...]) -> tuple[Model, Any]:
    """The model, and which of its outputs is explained, for a target in one of Captum's forms."""

    def naming(places: tuple[tuple[int, ...], ...] | None) -> Model:
        return _At(**{item.name: getattr(model, item.name) for item in fields(model)}, places=places, lone=lone)

    if target is None:
        return naming(()), None
    if isinstance(target, tuple):
        return naming((target,)), 0
    if isinstance(target, list) and target and all(isinstance(one, tuple) for one in target):
        places = list(dict.fromkeys(target))
        return naming(tuple(places)), [places.index(one) for one in target]  # type: ignore[arg-type]
    if isinstance(target, Tensor) and target.numel() == 1:
        return naming(None), target.reshape(())
    return naming(None), target


def _forward(model: Model) -> Callable[..., Tensor]:
    """A wrapped model as Captum's forward function: inputs to scores."""

    def forward(*args: Any) -> Tensor:
        made = args if model.preprocess is None else model.preprocess(*args)
        return model.scores(model.net(*(made if isinstance(made, tuple) else (made,))), len(args[0]))

    return forward
