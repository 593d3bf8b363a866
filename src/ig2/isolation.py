"""The user's network, apart from the user: modules of its own that share the weights and write into nothing of theirs."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ig2.memory import is_out_of_memory
from ig2.model import Function, Layer, Model, modules_used
from ig2.private import hooks_of


class CopyError(Exception):
    """A copy of the modules would not be the same network, or cannot be made."""


def isolate(model: Model) -> Model:
    """The model on a copy of its modules.

    The copy shares the storage of the weights, none of which requires a gradient there: autograd then keeps less. Buffers,
    counters and caches are copied. So a call changes nothing that another thread, training this network for example, can see.

    Raises:
        CopyError: where a function refers to the modules, or one of them holds what cannot be copied.
    """
    parts = (model.net, model.preprocess, model.output)
    if any(_calls_originals(module) for _, module in model.modules) or any(map(_refers_to_modules, parts[1:])):
        raise CopyError("a function calls its modules, and would not call their copies")
    # what deepcopy finds here it takes as it is
    copies: dict[int, Any] = {}
    for _, module in model.modules:
        for parameter in module.parameters(recurse=False):
            copies[id(parameter)] = _frozen(parameter)
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:  # deepcopy refuses what was computed, such as a weight norm's
                copies[id(value)] = value.detach().clone()
    try:
        net, preprocess, output = (_copy(part, copies) for part in parts)
    except Exception as error:  # anything may be attached to a module: locks, open files, generators
        raise CopyError("no memory for a copy" if is_out_of_memory(error) else f"{type(error).__name__}: {error}") from error
    layer = model.representation
    if isinstance(layer, Layer):
        if id(layer.module) not in copies:
            raise CopyError(f"its layer {layer.name!r} is outside the network")
        layer = replace(layer, module=copies[id(layer.module)])
    isolated = replace(model, net=net, preprocess=preprocess, output=output, representation=layer)
    for _, module in isolated.modules:  # a scripted module copies its weights itself
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:
                parameter.requires_grad_(False)
    return isolated


def _copy(part: Any, copies: dict[int, Any]) -> Any:
    """A copy of a module, with what was copied before in its place; anything else as it is.

    By hand where a module is made as usual: deepcopy takes 40 ms for ResNet-50, most of it for empty dicts of hooks.
    """
    if not isinstance(part, nn.Module):
        return part
    if id(part) in copies:
        return copies[id(part)]
    kind = type(part)
    usual = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__getstate__ is nn.Module.__getstate__
    if not usual or hasattr(kind, "__deepcopy__") or isinstance(part, torch.jit.ScriptModule):
        return copy.deepcopy(part, copies)
    copied = copies[id(part)] = kind.__new__(kind)
    for name, value in part.__getstate__().items():  # type: ignore[no-untyped-call]
        if name == "_modules":
            value = type(value)((key, _copy(child, copies)) for key, child in value.items())
        elif not (value is None or isinstance(value, (bool, int, float, str))):
            value = type(value)() if type(value) in (dict, OrderedDict) and not value else copy.deepcopy(value, copies)
        copied.__dict__[name] = value
    return copied


def _frozen(parameter: Tensor) -> Tensor:
    """The parameter under another name, without a gradient; its storage is the same."""
    if type(parameter) is nn.Parameter:
        return nn.Parameter(parameter.detach(), requires_grad=False)
    return parameter.detach() if parameter.requires_grad else parameter


def _calls_originals(module: nn.Module) -> bool:
    """Whether the module runs a function that refers to modules, which a copy would go on calling."""
    if isinstance(module, Function):
        function = module.function
        while isinstance(function, functools.partial):
            function = function.func
        # what shows no module, an estimator of another library for example, is left to itself
        if isinstance(function, FunctionType) or not list(module.children()):
            return True
    functions = [vars(module).get("forward"), *hooks_of(module)]
    return any(map(_refers_to_modules, functions))


def _refers_to_modules(function: Any) -> bool:
    """Whether a plain function does. A bound method or a callable object holds its own, which deepcopy copies."""
    try:
        return isinstance(function, FunctionType) and bool(modules_used(function))
    except ValueError:  # a variable that has no value yet
        return True
