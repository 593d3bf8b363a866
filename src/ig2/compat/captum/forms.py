"""Conversion between Captum's forms of inputs, baselines, masks and targets, and ours."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ig2 import rules
from ig2._utils.checks import check_count
from ig2.errors import InputError, describe
from ig2.methods.base import Method
from ig2.methods.path import PathMethod
from ig2.model import OUTPUTS, Model
from ig2.paths import Straight
from ig2.rules import Quadrature

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


@dataclass(frozen=True)
class SharedTensor:
    """A tensor that all samples share."""

    value: Tensor


def as_tensors(inputs: object) -> tuple[Tensor, ...]:
    tensors = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(tensors, tuple) or not all(isinstance(tensor, Tensor) and tensor.ndim > 0 for tensor in tensors):
        raise InputError(f"inputs must be a tensor (B, ...) or a tuple of them, got {describe(inputs)}")
    return tensors


def like(inputs: Tensors, tensors: Sequence[Tensor]) -> Tensors:
    """Return a tensor if the inputs are a tensor, and a tuple if they are a tuple."""
    return tensors[0] if isinstance(inputs, Tensor) else tuple(tensors)


def as_args(extra: Any) -> tuple[Any, ...]:
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


def pair_baselines(inputs: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    """Return one baseline for each input as its reference, (B, 1, ...)."""
    matched = _match_baselines(inputs, baselines, distribution=False)
    return tuple(end.expand(len(x), *end.shape[1:]).unsqueeze(1) for end, x in zip(matched, inputs, strict=True))


def sample_baselines(inputs: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    """Return the references of all inputs, (R, ...) or (B, R, ...), with the same number for each tensor."""
    matched = _match_baselines(inputs, baselines, distribution=True)
    splits = [end.ndim - max(1, tensor.ndim - 1) for end, tensor in zip(matched, inputs, strict=True)]
    try:
        lead = torch.broadcast_shapes(*(end.shape[:k] for end, k in zip(matched, splits, strict=True)))  # type: ignore[no-untyped-call]
        return tuple(end.expand(*lead, *end.shape[k:]) for end, k in zip(matched, splits, strict=True))
    except RuntimeError as error:
        raise InputError(f"baselines differ in number: {describe(matched)}") from error


def share_baselines(inputs: Tensors, baselines: Any) -> tuple[Tensor, ...]:
    """Return samples (R, ...) for every input, which may come from a function of the inputs or without arguments."""
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


def draw_points(copies: Copies, inputs: Tensors, baselines: Any, stdevs: Any, seed: int) -> tuple[list[Tensor], Tensor]:
    """Add noise to the copies, and return a random baseline for each and a position between the two."""
    tensors, count, rows = copies.tensors, copies.count, copies.rows
    widths = stdevs if isinstance(stdevs, tuple) else (stdevs,) * len(tensors)
    if len(widths) != len(tensors):
        raise InputError(f"there are {len(widths)} stdevs for {len(tensors)} inputs: give one number, or one for each")
    samples = share_baselines(inputs, baselines)
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(len(samples[0]), (rows * count,), generator=generator)
    jitter = torch.rand(rows, count, dtype=torch.float64, generator=generator)
    ends = []
    for i, (tensor, width, sample) in enumerate(zip(tensors, widths, samples, strict=True)):
        noise = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        copies.tensors[i] = tensor + width * noise.to(tensor)
        ends.append(sample[indices.to(sample.device)].view_as(tensor))
    return ends, ((torch.arange(count) + jitter) / count).flatten()


class Copies:
    """`count` copies of each input, one after the other, (B · count, ...), with their targets and further arguments."""

    def __init__(self, inputs: Tensors, target: Target, extra: Any, count: int) -> None:
        check_count(count, "n_samples")

        def repeat(tensor: Tensor) -> Tensor:
            return tensor.repeat_interleave(count, dim=0)

        self.tensors = [repeat(tensor.detach()) for tensor in as_tensors(inputs)]
        for tensor in self.tensors:
            if not tensor.is_floating_point():
                raise InputError(f"inputs are {describe(inputs)}: only floating-point inputs have gradients")
        self.count, self.rows = count, len(self.tensors[0]) // count
        self.like = functools.partial(like, inputs)
        if isinstance(target, list):
            target = [index for index in target for _ in range(count)]  # type: ignore[assignment]
        elif isinstance(target, Tensor) and target.numel() > 1:
            target = repeat(target)
        args = tuple(repeat(arg) if isinstance(arg, Tensor) and arg.ndim else arg for arg in as_args(extra))
        self.arguments = target, None if extra is None else args

    def between(self, ends: Sequence[Tensor], places: Tensor) -> Tensors:
        """Return points between the copies and `ends` (B, ...) or (B · count, ...); `places` go from 0 to 1."""
        points = []
        for tensor, end in zip(self.tensors, ends, strict=True):
            far = end.repeat_interleave(len(tensor) // len(end), dim=0).view_as(tensor)
            points.append(torch.lerp(tensor, far, column(places, tensor)))
        return self.like(points)

    def multiply(self, slopes: Sequence[Tensor], ends: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(slope * (x - end) for slope, x, end in zip(slopes, self.tensors, ends, strict=True))

    def sum(self, slopes: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
        """Return the sum over the copies of each input, with a weight for each copy, (B, ...)."""
        weighted = self.gather(slope * column(weights, slope) for slope in slopes)
        return tuple(slope.sum(dim=1) for slope in weighted)

    def gather(self, values: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """Reshape values of the copies to (B, count, ...)."""
        return tuple(value.reshape(self.rows, self.count, *value.shape[1:]) for value in values)


def column(numbers: Tensor, tensor: Tensor) -> Tensor:
    """Shape numbers, one for each row or repeated over them, to multiply a tensor."""
    return numbers.repeat(len(tensor) // len(numbers)).to(tensor).reshape(-1, *[1] * (tensor.ndim - 1))


def innermost(method: Method) -> Method:
    """Return the innermost method inside SmoothGrad or XRAI."""
    inner = getattr(method, "method", None)
    return innermost(inner) if isinstance(inner, Method) else method


def draw_line(steps: int, integration: str) -> tuple[Straight, Quadrature]:
    """Return the straight path and the rule on it of one of Captum's `method=` names."""
    if integration == "gausslegendre":
        return Straight(1), rules.gauss(steps)
    if integration not in RIEMANN:
        raise InputError(f"method={integration!r} is unknown: use 'gausslegendre' or one of {', '.join(RIEMANN)}")
    # n points with both ends among them bound n − 1 segments
    return Straight(steps - (integration == "riemann_trapezoid")), RIEMANN[integration]


def place_points(path: Straight, rule: Quadrature) -> tuple[Tensor, Tensor]:
    """Return the nodes of a rule on a line, 0 at the input and 1 at its baseline, and their weights."""
    segments = torch.arange(path.steps, dtype=torch.float64)
    nodes, weights = (torch.tensor(row, dtype=torch.float64) for row in (rule.nodes, rule.weights))
    return (segments[:, None] + nodes).flatten() / len(segments), weights.repeat(len(segments)) / len(segments)


def change_steps(method: Method, steps: int | None, integration: str | None) -> Method:
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
        path, rule = draw_line(steps, integration) if integration else (Straight(steps), rule)
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
    """A model with only the outputs selected by Captum's target; without a selection, it must have a single output.

    Inputs listed in `scalars` have an additional axis for the one number of a sample, which the network does not expect.
    """

    names: tuple[tuple[int, ...], ...] | None = None
    scalars: tuple[int, ...] = ()

    def preprocessed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(arg.value if isinstance(arg, SharedTensor) else arg for arg in args)
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


def select_output(model: Model, target: Target, scalars: tuple[int, ...]) -> tuple[Model, Any]:
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
