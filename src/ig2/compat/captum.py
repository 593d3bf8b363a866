"""Captum's `attribute(inputs, baselines, target, ...)` for any of our methods."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2.errors import InputError, describe, import_extra
from ig2.inputs import Fixed
from ig2.methods.base import Method
from ig2.methods.path import GradCFE, PathMethod
from ig2.methods.simple import Gradient, InputXGradient, Random
from ig2.model import OUTPUTS, Model, wrap
from ig2.paths import Straight
from ig2.rules import Quadrature, Rule

GradientAttribution: Any = import_extra("captum.attr", "captum", "ig2.compat.captum").GradientAttribution

Tensors = Tensor | tuple[Tensor, ...]
Baselines = Tensor | float | tuple[Tensor | float, ...] | None
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


class CaptumMethod(GradientAttribution):  # type: ignore[misc] # Captum is not there to be read where it is not installed
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
        super().__init__(_forward(model) if isinstance(model, Model) else model)
        self.method = method
        self.model = model if isinstance(model, Model) else wrap(model)
        self.references = references
        self.distribution = method.default_references is None if distribution is None else distribution
        self.seed = seed

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
            baselines: None for the method's own (zero for Integrated Gradients and Guided IG), a number, or a tensor: one
                (1, ...) for all, one for each input (B, ...), or samples (R, ...) or (B, R, ...), see `distribution`. For a
                tuple of inputs a tuple of such.
            target: which output: an index for all inputs or one for each; tuples where the output has several axes. Not
                needed where the network has a single output.
            additional_forward_args: what else the forward function takes, after the inputs, and is not attributed. Tensors
                have a row for each input.
            n_steps: the number of steps, in place of the method's own.
            method: how to integrate on a straight line, in place of the method's own rule. `riemann_trapezoid` has weights
                that sum to one; Captum's sum to (n − 1)/n.
            internal_batch_size: how many points the network sees at once, by default as many as fit the memory. It may be
                smaller than the number of inputs.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), one number for each input; a
                mean over the baselines where there are several, and for IG² with the GradCFs for baselines.
        """
        tensors = (inputs,) if isinstance(inputs, Tensor) else inputs
        if not isinstance(tensors, tuple) or not all(isinstance(tensor, Tensor) and tensor.ndim > 0 for tensor in tensors):
            raise InputError(f"inputs must be a tensor (B, ...) or a tuple of them, got {describe(inputs)}")
        extra = additional_forward_args if isinstance(additional_forward_args, tuple) else (additional_forward_args,)
        fixed = () if additional_forward_args is None else tuple(Fixed(value) for value in extra)
        bare = isinstance(inputs, Tensor) and not fixed  # a tensor that the method is called with as it is, in no tuple
        model, chosen = _at(self.model, target)
        found = _integrated(self.method, n_steps, method)(
            model,
            inputs if bare else (*tensors, *fixed),
            target=chosen,
            references=self._references(tensors, baselines, bare),
            seed=self.seed,
            batch_size="auto" if internal_batch_size is None else internal_batch_size,
        )
        values = cast(Tensors, found.values)
        if isinstance(inputs, Tensor) and isinstance(values, tuple):
            (values,) = values
        if not return_convergence_delta:
            return values
        if found.residual is None:
            raise InputError(f"{type(self.method).__name__} has no baseline, and so no convergence delta: do not ask for it")
        return values, found.residual

    def has_convergence_delta(self) -> bool:
        """Whether the method sets out to account for the change in the output from a baseline."""
        inner = _innermost(self.method)
        squared = getattr(self.method, "squared", False)  # SmoothGrad²
        return not squared and not isinstance(inner, (Gradient, InputXGradient, Random, GradCFE))

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether values are contributions to the output ("global" in Captum's words) and not slopes."""
        return not isinstance(_innermost(self.method), (Gradient, Random))

    def _references(self, inputs: tuple[Tensor, ...], baselines: Baselines, bare: bool) -> Any:
        """Captum's baselines as references: (R, ...) for all inputs or (B, R, ...) for each its own."""
        if baselines is None:
            method = self.method
            own = (self.references, method.default_references, getattr(method, "references", None))
            none = all(references is None for references in own)
            if none and isinstance(method, PathMethod) and method.path.uses_reference:
                raise InputError(f"{type(method).__name__} contrasts with samples: give baselines=samples (R, ...)")
            return self.references
        items = baselines if isinstance(baselines, tuple) else (baselines,)
        if len(items) != len(inputs):
            raise InputError(f"there are {len(items)} baselines for {len(inputs)} inputs: give one for each")
        made = [_baseline(item, tensor, self.distribution) for item, tensor in zip(items, inputs, strict=True)]
        leads = [one.shape[: one.ndim - tensor.ndim + 1] for one, tensor in zip(made, inputs, strict=True)]
        try:
            lead = torch.broadcast_shapes(*leads) if self.distribution else inputs[0].shape[:1]  # type: ignore[no-untyped-call]
            made = [one.expand(*lead, *tensor.shape[1:]) for one, tensor in zip(made, inputs, strict=True)]
        except RuntimeError as error:
            raise InputError(f"baselines differ in how many there are: {describe(made)}") from error
        if not self.distribution:
            made = [one.unsqueeze(1) for one in made]  # a single one for each input
        return made[0] if bare else tuple(made)


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
    """A model whose outputs are those that Captum's targets name; with none, it must have one output alone."""

    places: tuple[tuple[int, ...], ...] = ()

    def scores(self, raw: Any, rows: int) -> Tensor:
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


def _at(model: Model, target: Target) -> tuple[Model, Any]:
    """The model, and which of its outputs is explained, for a target in one of Captum's forms."""

    def naming(*places: tuple[int, ...]) -> Model:
        return _At(**{item.name: getattr(model, item.name) for item in fields(model)}, places=places)

    if target is None:
        return naming(), None
    if isinstance(target, tuple):
        return naming(target), 0
    if isinstance(target, list) and target and all(isinstance(one, tuple) for one in target):
        places = list(dict.fromkeys(target))
        return naming(*places), [places.index(one) for one in target]  # type: ignore[arg-type]
    if isinstance(target, Tensor) and target.numel() == 1:
        return model, target.reshape(())
    return model, target


def _forward(model: Model) -> Callable[..., Tensor]:
    """A wrapped model as Captum's forward function: inputs to scores."""

    def forward(*args: Any) -> Tensor:
        made = args if model.preprocess is None else model.preprocess(*args)
        return model.scores(model.net(*(made if isinstance(made, tuple) else (made,))), len(args[0]))

    return forward
