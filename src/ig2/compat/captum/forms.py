"""Captum's forms of inputs, baselines, masks and integration, as ours."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from ig2 import rules
from ig2.errors import InputError, describe
from ig2.methods.base import Method
from ig2.methods.path import PathMethod
from ig2.paths import Straight
from ig2.rules import Quadrature

Tensors = Tensor | tuple[Tensor, ...]
Baselines = Tensor | float | tuple[Tensor | float, ...] | None
Target = int | tuple[int, ...] | Tensor | list[int] | list[tuple[int, ...]] | None
Integration = Literal["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]

# Captum counts from the baseline and we from the explicand, so that its left is our right.
RIEMANN = {
    "riemann_left": rules.right,
    "riemann_right": rules.left,
    "riemann_middle": rules.midpoint,
    "riemann_trapezoid": rules.trapezoid,
}


def as_tensors(inputs: object) -> tuple[Tensor, ...]:
    tensors = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(tensors, tuple) or not all(isinstance(t, Tensor) and t.ndim > 0 for t in tensors):
        raise InputError(f"inputs must be a tensor (B, ...) or a tuple of them, got {describe(inputs)}")
    return tensors


def like(inputs: Tensors, tensors: Sequence[Tensor]) -> Tensors:
    """Return a tensor if the inputs are a tensor, and a tuple if they are a tuple."""
    return tensors[0] if isinstance(inputs, Tensor) else tuple(tensors)


def as_args(extra: Any) -> tuple[Any, ...]:
    return extra if isinstance(extra, tuple) else () if extra is None else (extra,)


def column(numbers: Tensor, tensor: Tensor) -> Tensor:
    """Shape numbers, one for each row or repeated over them, to multiply a tensor."""
    repeated = numbers.repeat(len(tensor) // len(numbers)).to(tensor)
    return repeated.reshape(-1, *[1] * (tensor.ndim - 1))


# -- baselines and masks -------------------------------------------------------------------------


def _match_baselines(inputs: tuple[Tensor, ...], baselines: Baselines, distribution: bool) -> list[Tensor]:
    """Return a baseline for each tensor of inputs, with one or two axes that count; zero by default."""
    if baselines is None:
        baselines = (0.0,) * len(inputs)
    items = baselines if isinstance(baselines, tuple) else (baselines,)
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
                f"baselines are {describe(item)}, inputs {describe(tensor)}: expected one for each input, "
                "or one (1, ...) for all. To compare every input with all of them, use "
                "CaptumMethod(..., distribution=True)"
            )
        item = item.to(tensor)
        matched.append(item.unsqueeze(-1) if tensor.ndim == 1 else item)
    return matched


def pair_baselines(inputs: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    """Return one baseline for each input as its reference, (B, 1, ...)."""
    matched = _match_baselines(inputs, baselines, distribution=False)
    return tuple(end.expand(len(x), *end.shape[1:]).unsqueeze(1) for end, x in zip(matched, inputs, strict=True))


def sample_baselines(inputs: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    """Return the references of all inputs, (R, ...) or (B, R, ...), with the same number for each tensor."""
    matched = _match_baselines(inputs, baselines, distribution=True)
    splits = [end.ndim - max(1, x.ndim - 1) for end, x in zip(matched, inputs, strict=True)]
    leads = [end.shape[:split] for end, split in zip(matched, splits, strict=True)]
    try:
        lead = torch.broadcast_shapes(*leads)  # type: ignore[no-untyped-call]
        ends = zip(matched, splits, strict=True)
        return tuple(end.expand(*lead, *end.shape[split:]) for end, split in ends)
    except RuntimeError as error:
        raise InputError(f"baselines differ in number: {describe(matched)}") from error


def share_baselines(inputs: Tensors, baselines: Any) -> tuple[Tensor, ...]:
    """Return samples (R, ...) for every input, or what a function returns, of the inputs or of nothing."""
    if callable(baselines):
        baselines = baselines(inputs) if inspect.signature(baselines).parameters else baselines()
    tensors = as_tensors(inputs)
    samples = sample_baselines(tensors, baselines)
    if any(sample.ndim > max(2, x.ndim) for sample, x in zip(samples, tensors, strict=True)):
        raise InputError(f"baselines are {describe(baselines)}: expected samples (R, ...), the same for every input")
    return samples


def match_masks(inputs: tuple[Tensor, ...], feature_mask: Tensors | None) -> list[Tensor]:
    """Return the group of each feature, (1, ...) or (B, ...), counted from zero over all inputs."""
    if feature_mask is None:
        sizes = [tensor[0].numel() for tensor in inputs]
        groups = torch.split(torch.arange(sum(sizes)), sizes)
        masks = tuple(group.view(1, *tensor.shape[1:]) for group, tensor in zip(groups, inputs, strict=True))
    else:
        masks = as_tensors(feature_mask)
    if len(masks) != len(inputs):
        raise InputError(f"there are {len(masks)} items in feature_mask for {len(inputs)} inputs: give one for each")
    for mask, tensor in zip(masks, inputs, strict=True):
        fits = mask.shape[1:] == tensor.shape[1:] and len(mask) in (1, len(tensor))
        if not fits or mask.is_floating_point():
            raise InputError(
                f"feature_mask is {describe(mask)} for the input {describe(tensor)}: expected integers of "
                "its shape, or one (1, ...) for all"
            )
    first = min(int(mask.min()) for mask in masks if mask.numel())
    return [(mask.long() - first).to(tensor.device) for mask, tensor in zip(masks, inputs, strict=True)]


# -- integration ---------------------------------------------------------------------------------


def draw_line(steps: int, integration: str) -> tuple[Straight, Quadrature]:
    """Return the straight path and the rule on it of one of Captum's `method=` names."""
    if integration == "gausslegendre":
        return Straight(1), rules.gauss(steps)
    if integration not in RIEMANN:
        known = ", ".join(RIEMANN)
        raise InputError(f"method={integration!r} is unknown: use 'gausslegendre' or one of {known}")
    # n points with both ends among them bound n − 1 segments
    return Straight(steps - (integration == "riemann_trapezoid")), RIEMANN[integration]


def place_points(steps: int, integration: str) -> tuple[Tensor, Tensor]:
    """Return the points on a line, 0 at the input and 1 at its baseline, and their weights."""
    path, rule = draw_line(steps, integration)
    segments = torch.arange(path.steps, dtype=torch.float64)
    nodes, weights = (torch.tensor(row, dtype=torch.float64) for row in (rule.nodes, rule.weights))
    places = (segments[:, None] + nodes).flatten() / len(segments)
    return places, weights.repeat(len(segments)) / len(segments)


def change_steps(method: Method, steps: int | None, integration: str | None) -> Method:
    """Return the method with another number of steps, and on a straight line with another rule."""
    if steps is None and integration is None:
        return method
    name = type(method).__name__
    if not isinstance(method, PathMethod) or not hasattr(method.path, "steps"):
        raise InputError(f"{name} has no steps: leave n_steps and method out")
    path, rule = method.path, method.rule
    if isinstance(path, Straight):
        nodes = len(rule.nodes) if isinstance(rule, Quadrature) else 0
        is_gauss = path.steps == 1 and nodes > 0 and rule == rules.gauss(nodes)
        steps = steps if steps is not None else nodes if is_gauss else path.steps
        integration = integration or ("gausslegendre" if is_gauss else None)
        path, rule = draw_line(steps, integration) if integration else (Straight(steps), rule)
    elif integration is not None:
        raise InputError(
            f"method={integration!r} is for straight lines: give {name} its rule, for example rule=ig2.rules.trapezoid"
        )
    else:
        path = replace(path, steps=steps)  # type: ignore[call-arg]
    changed = copy.copy(method)  # not replace(): recipes are built from other arguments than their parts
    PathMethod.__init__(changed, path, method.references, rule)
    return changed
