"""A copy of the network made to run fast: the same function, with less arithmetic and in a better layout."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ig2.model import PRECISIONS, Function, Layer, Model, Preparation

NORMALISING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


@dataclass(frozen=True)
class Prepared:
    """A model with its network replaced, and what was done to it."""

    model: Model
    done: dict[str, Any]


def prepare(model: Model, wish: Preparation, run: Callable[[Model], object]) -> Prepared | None:
    """A copy of the network as it was wished for; nothing where there is nothing to gain.

    Args:
        model: whose network is copied.
        wish: what to do to it.
        run: runs a model's network once.
    """
    modules = list(model.net.modules())
    # the modules a function calls cannot be exchanged for copies, nor can those of a scripted network be looked into
    if isinstance(model.net, Function) or any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        return None
    dtype = PRECISIONS[wish.precision] if wish.precision else None
    casts = dtype is not None and any(p.is_floating_point() and p.dtype != dtype for p in model.net.parameters())
    folds = wish.fold and any(type(module) in NORMALISING for module in modules)
    # PyTorch's kernels for float64 know one layout
    arranges = wish.channels_last and any(
        isinstance(module, nn.Conv2d) and (casts or module.weight.dtype != torch.float64) for module in modules
    )
    if not (casts or folds or arranges):
        return None
    net, done = copy.deepcopy(model.net), dict[str, Any]()
    if folds:
        done["folded"] = _fold(net, model.representation, lambda: run(replace(model, net=net)))
    layer = model.representation
    if isinstance(layer, Layer):
        layer = replace(layer, module=net.get_submodule(layer.name))
    if arranges:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        done["channels_last"] = True
    if casts:
        assert dtype is not None
        net = _Cast(net.to(dtype), dtype)
        done["precision"] = wish.precision
    return Prepared(replace(model, net=net, representation=layer), done)


class _Cast(nn.Module):
    """A network in another precision, called with tensors in the user's."""

    def __init__(self, net: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self.dtype = net, dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.net(*map(self._cast, args), **{key: self._cast(value) for key, value in kwargs.items()})

    def _cast(self, value: Any) -> Any:
        return value.to(self.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def _fold(net: nn.Module, layer: Layer | str | None, run: Callable[[], object]) -> int:
    """Put every batch normalisation that follows a linear map into it; how many there were."""
    places: dict[nn.Module, list[str]] = {}
    for name, module in net.named_modules(remove_duplicate=False):
        places.setdefault(module, []).append(name)
    pairs = 0
    for linear, norm in _followed(net, run):
        # what lies between the two may be the representation
        if isinstance(layer, Layer) and (
            (layer.side == "output" and layer.name in places[linear]) or (layer.side == "input" and layer.name in places[norm])
        ):
            continue
        scale = (norm.running_var + norm.eps).rsqrt()
        scale = scale if norm.weight is None else scale * norm.weight
        shift = (-norm.running_mean if linear.bias is None else linear.bias - norm.running_mean) * scale
        shift = shift if norm.bias is None else shift + norm.bias
        weight = linear.weight * scale.view(-1, *[1] * (linear.weight.ndim - 1))
        linear.weight = nn.Parameter(weight.detach(), requires_grad=False)
        linear.bias = nn.Parameter(shift.detach(), requires_grad=False)
        for name in places[norm]:
            net.set_submodule(name, nn.Identity())
        pairs += 1
    return pairs


def _followed(net: nn.Module, run: Callable[[], object]) -> list[tuple[Any, Any]]:
    """Each linear map whose output a batch normalisation takes, both running once in a pass."""
    made: list[tuple[Tensor, nn.Module]] = []
    taken: list[tuple[Tensor, nn.Module]] = []

    def makes(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if isinstance(result, Tensor) and not (isinstance(module, nn.Linear) and result.ndim != 2):
            made.append((result, module))

    def takes(module: nn.Module, args: tuple[Any, ...]) -> None:
        taken.extend((arg, module) for arg in args[:1])

    handles = []
    for module in net.modules():
        if isinstance(module, LINEAR) and "weight" in module._parameters:  # and not made from others, as by weight norm
            handles.append(module.register_forward_hook(makes))
        elif type(module) in NORMALISING and module.running_var is not None:
            handles.append(module.register_forward_pre_hook(takes))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    makers, takers = (
        {id(tensor): module for tensor, module in calls if sum(other is module for _, other in calls) == 1}
        for calls in (made, taken)
    )
    return [(makers[key], norm) for key, norm in takers.items() if key in makers]
