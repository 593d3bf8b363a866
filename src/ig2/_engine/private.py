"""What torch keeps to itself and we cannot do without, in one place: a new version of torch is looked at here first.

Every name here was there from torch 2.6 to 2.15.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache
from logging import getLogger
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

__all__ = [
    "FunctionsSeen",
    "TorchDispatchMode",
    "base_of",
    "body_of",
    "buffers_of",
    "forward_of",
    "has_batch_statistics",
    "has_running_statistics",
    "hooks_of",
    "is_dropout",
    "own_weight",
    "shape_of",
    "trace",
    "tree_iter",
    "tree_map_only",
    "uncompiled_network",
    "uses_compiler",
    "version_of",
]


def version_of(tensor: Tensor) -> int:
    """Return how many operations wrote into a tensor in place."""
    return tensor._version


def base_of(tensor: Tensor) -> Tensor | None:
    """Return what a tensor is a view of."""
    return tensor._base


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Return a module's own buffers, those that are None as well."""
    return module._buffers


def own_weight(module: nn.Module) -> bool:
    """Return whether a module's weight is a parameter, and not computed from others, as by weight
    norm."""
    return "weight" in module._parameters


def hooks_of(module: nn.Module) -> list[Any]:
    """Return the functions that look at what goes into a module and what comes out."""
    return [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]


def is_dropout(module: nn.Module) -> bool:
    """Return whether a module is any kind of dropout."""
    return isinstance(module, nn.modules.dropout._DropoutNd)


def has_running_statistics(module: nn.Module) -> bool:
    """Return whether a module is a batch or instance normalisation that keeps statistics of what it
    saw."""
    return isinstance(module, nn.modules.batchnorm._NormBase) and bool(module.track_running_stats)


def has_batch_statistics(module: nn.Module) -> bool:
    """Return whether a module is a batch normalisation of any kind."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


def uncompiled_network(module: Any) -> Any:
    """Return the network that `torch.compile` wrapped; None where it did not."""
    return getattr(module, "_orig_mod", None)


def uses_compiler() -> bool:
    """Return whether the compiler was imported, which takes a second; before that nothing is
    compiled."""
    return "torch._dynamo" in sys.modules


def trace(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return operations of a function below autograd, as a graph.

    Traced with tensors that have no numbers: transformers asks for these, and then builds its masks without looking at any.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    traced, log = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True), getLogger("torch._subclasses.fake_tensor")

    def run(*args: Any) -> Any:
        # of an operation that has no such tensors it logs the stack, and then raises what it logged
        was, log.disabled = log.disabled, True
        try:
            return traced(*args)
        finally:
            log.disabled = was

    return run


def shape_of(node: Any) -> Any:
    """Return the shape of the gradient that a node of autograd's graph gets, the first of several;
    None where it does not show."""
    metadata = getattr(node, "_input_metadata", None)
    return metadata[0].shape if metadata else None


@cache
def body_of(function: Any) -> Callable[..., Any] | None:
    """Return a function that PyTorch wrote in Python, such that a `TorchFunctionMode` sees the
    calls in it rather than itself.

    Each begins by asking whether a mode wants to have the call; this copy of its code always learns that none does. Methods of
    a tensor are left alone, since most call C's method of the same name, which a mode takes for themselves.
    """
    is_function = isinstance(function, FunctionType) and function.__module__ in ("torch.nn.functional", "torch.functional")
    if not is_function and function is not Tensor.norm:
        return None
    answers = {name: _answer_no for name in function.__globals__ if name.startswith("has_torch_function")}
    body = FunctionType(
        function.__code__, {**function.__globals__, **answers}, function.__name__, function.__defaults__, function.__closure__
    )
    body.__kwdefaults__ = function.__kwdefaults__
    return body


def _answer_no(*_: Any) -> bool:
    return False


class FunctionsSeen:
    """While one is open, a `TorchFunctionMode` sees the calls of autograd functions of one's own, which PyTorch hides from it.

    Each arrives as a function with the name of its class, and the class as `autograd_function`. Between `Function` and the
    class in C that its `apply` calls there is one without an `apply`: whoever has kept `Mine.apply` comes past it as well.
    """

    _lock, _open = threading.Lock(), 0

    def __enter__(self) -> None:
        with FunctionsSeen._lock:
            FunctionsSeen._open += 1
            _BETWEEN.apply = classmethod(_show)

    def __exit__(self, *failure: Any) -> None:
        with FunctionsSeen._lock:
            FunctionsSeen._open -= 1
            if not FunctionsSeen._open:
                del _BETWEEN.apply


_BETWEEN: Any = torch.autograd.Function.__mro__[1]


def _show(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        return torch._C._FunctionBase.__dict__["apply"].__get__(None, cls)(*args, **kwargs)

    run.__name__, run.autograd_function = cls.__name__, cls  # type: ignore[attr-defined]
    if not has_torch_function(args) or cls.__module__.startswith(("torch.", "ig2.")):
        return run(*args, **kwargs)
    return handle_torch_function(run, (), *args, **kwargs)


def forward_of(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return what an autograd function computes, to be called like it, with a context that keeps
    nothing."""
    if cls.setup_context is not torch.autograd.Function.setup_context:
        return cls.forward
    return lambda *args, **kwargs: cls.forward(_Context(), *args, **kwargs)


class _Context:
    """In place of the context of an autograd function, whose methods note things for the backward pass."""

    needs_input_grad = (True,) * 99

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None
