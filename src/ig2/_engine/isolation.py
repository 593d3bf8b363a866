"""The user's network, apart from the user: what cannot be explained is an error, and nothing of theirs is written to."""

from __future__ import annotations

import copy
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ig2._engine.memory import is_out_of_memory
from ig2._engine.private import buffers_of, has_batch_statistics, has_running_statistics, hooks_of, is_dropout, uses_compiler
from ig2.errors import ModelError
from ig2.model import Function, Layer, Model, modules_used

# What most values of a module are, which hold no tensor of their own.
PLAIN = {bool, int, float, str, type(None), dict, OrderedDict, set, tuple}


class CopyError(Exception):
    """A copy of the modules would not be the same network, or cannot be made."""


def isolate(model: Model) -> Model:
    """Return the model on a copy of its modules.

    The copy shares the storage of the weights, none of which requires a gradient there: autograd then keeps less. Buffers,
    counters and caches are copied. So a call changes nothing that another thread, training this network for example, can see.

    Raises:
        CopyError: where a function refers to the modules, or one of them holds what cannot be copied.
    """
    parts, modules = (model.net, model.preprocess, model.output), model.modules
    functions = (*parts[1:], getattr(model.target, "function", None))
    if any(_calls_originals(module) for _, module in modules) or any(map(_refers_to_modules, functions)):
        raise CopyError("a function calls its modules, and would not call their copies")
    # what deepcopy finds here it takes as it is
    copies: dict[int, Any] = {}
    for _, module in modules:
        for parameter in module.parameters(recurse=False):
            copies[id(parameter)] = _freeze(parameter)
        for value in vars(module).values():
            if type(value) in PLAIN:
                continue
            if isinstance(value, Tensor) and not value.is_leaf:  # deepcopy refuses what was computed, such as a weight norm's
                copies[id(value)] = value.detach().clone()
            copies.update((id(tensor), tensor) for tensor in _find_weights(module, value))
    try:
        net, preprocess, output = (_copy(part, copies) for part in parts)
    except Exception as error:  # anything may be attached to a module: locks, open files, generators
        raise CopyError("no memory for a copy" if is_out_of_memory(error) else f"{type(error).__name__}: {error}") from error
    layer = model.representation
    if isinstance(layer, Layer):
        if id(layer.module) not in copies:
            raise CopyError(f"its layer {layer.name!r} is outside the network")
        layer = replace(layer, module=copies[id(layer.module)])
    isolated = model.exchange(net=net, preprocess=preprocess, output=output, representation=layer)
    for _, module in isolated.modules:  # a scripted module copies its weights itself
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:
                parameter.requires_grad_(False)
    return isolated


def _copy(part: Any, copies: dict[int, Any]) -> Any:
    """Return a copy of a module, with what was copied before in its place; anything else as it is.

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
        elif type(value) in (dict, OrderedDict, set) and not value:
            value = type(value)()
        elif not _is_constant(value):
            value = copy.deepcopy(value, copies)
        copied.__dict__[name] = value
    return copied


def _is_constant(value: Any) -> bool:
    return type(value) in (bool, int, float, str, type(None)) or (type(value) is tuple and all(map(_is_constant, value)))


def _freeze(parameter: Tensor) -> Tensor:
    """Return the parameter under another name, without a gradient; its storage is the same."""
    if type(parameter) is nn.Parameter:
        return nn.Parameter(parameter.detach(), requires_grad=False)
    return parameter.detach() if parameter.requires_grad else parameter


def _find_weights(module: nn.Module, value: Any) -> list[Tensor]:
    """Return tensors of an object that are the module's weights themselves: layers of bitsandbytes
    hold their 8 bits twice."""
    if isinstance(value, (nn.Module, Tensor)) or not hasattr(value, "__dict__"):
        return []
    tensors = [tensor for tensor in vars(value).values() if isinstance(tensor, Tensor)]
    weights = {weight.data_ptr() for weight in module.parameters(recurse=False)} if tensors else set()
    return [tensor for tensor in tensors if tensor.data_ptr() in weights]


def _calls_originals(module: nn.Module) -> bool:
    """Return whether the module runs a function that refers to modules, which a copy would go on
    calling."""
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
    """Return whether a plain function does. A bound method or a callable object holds its own,
    which deepcopy copies."""
    try:
        return isinstance(function, FunctionType) and bool(modules_used(function))
    except ValueError:  # a variable that has no value yet
        return True


@contextmanager
def open_model(model: Model, device: torch.device, isolated: Model | None = None) -> Iterator[Model]:
    """Yield the model, ready to be run, on modules of its own where it can be; however this ends,
    the user's is left as it was.

    Args:
        model: of the user.
        device: on which it runs.
        isolated: what `isolate` made of it before, if it did.
    """
    with ExitStack() as undo:
        if isolated is None:
            for name, module in model.modules:
                _check_weights(name or "the network", module)
                _check_mode(name or "it", module)
                for parameter in module.parameters(recurse=False):
                    if type(parameter) is not nn.Parameter:
                        # a copy shares it, and in its first pass a layer of bitsandbytes takes the scales away from its weight
                        undo.callback(vars(parameter).update, dict(vars(parameter)))
        try:
            model = isolated or isolate(model)
        except CopyError:
            undo.enter_context(_keep_buffers(model))
        undo.enter_context(_one_attention)
        if device.type == "cuda" and any(isinstance(module, nn.RNNBase) for _, module in model.modules):
            # cuDNN refuses the backward pass of a recurrent layer in eval mode
            undo.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield model


@contextmanager
def _keep_buffers(model: Model) -> Iterator[None]:
    """Restore running statistics, counters and caches at the end."""
    kept = [(m, name, b, None if b is None else b.clone()) for _, m in model.modules for name, b in buffers_of(m).items()]
    try:
        yield
    finally:
        for module, name, buffer, copy in kept:
            if getattr(module, name, None) is not buffer:
                setattr(module, name, buffer)
            if buffer is None or copy is None or buffer.layout != torch.strided:
                continue
            # by content: batch norm writes its statistics without a new version of the tensor
            if not torch.equal(buffer, copy):
                buffer.copy_(copy)


class _ProcessSetting:
    """A setting of the whole process: the first of several threads that need it opens it, and the last closes it."""

    def __init__(self, setting: Callable[[], AbstractContextManager[object]]) -> None:
        self.setting, self.lock, self.users = setting, threading.Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                self.open = self.setting()
                self.open.__enter__()
            self.users += 1

    def __exit__(self, *_: Any) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.open.__exit__(None, None, None)


@contextmanager
def _one_implementation() -> Iterator[None]:
    """Run transformer layers by one implementation, with gradients and without.

    A second one, for passes without gradients, has other values on padding.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _eager() -> AbstractContextManager[object]:
    return torch.compiler.set_stance("force_eager") if uses_compiler() else nullcontext()


_one_attention = _ProcessSetting(_one_implementation)
# What `torch.compile` made of a network, of a part of it or of a function that calls it passes by the hooks.
uncompiled = _ProcessSetting(_eager)


def _check_weights(name: str, module: nn.Module) -> None:
    for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
        if nn.parameter.is_lazy(tensor):
            raise ModelError(f"{name} has no weights yet: run the network once before it is explained")
        if tensor.is_meta:
            raise ModelError(
                f"the weights of {name} are on the meta device, which holds no values (offloaded or never loaded): load the "
                "whole network onto one device before it is explained"
            )
        if tensor.is_inference():
            raise ModelError(
                f"the weights of {name} were made in torch.inference_mode(), where gradients cannot follow: make or load the "
                "network outside it"
            )


def _check_mode(name: str, module: nn.Module) -> None:
    """Check that no layer of a network in train mode behaves differently there."""
    if not module.training:
        return
    random = getattr(module, "p", 0) if is_dropout(module) else 0
    random = random or (module.dropout if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) else 0)
    counting = has_running_statistics(module) or has_batch_statistics(module)
    if random or counting or isinstance(module, nn.RReLU):
        raise ModelError(
            f"the network is in train mode: {name} ({type(module).__name__}) behaves differently there, and explaining it "
            "would change its statistics or draw random numbers. Call net.eval() first"
        )
