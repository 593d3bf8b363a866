"""Networks that cannot be explained as they are, and what is put back when one that can has been."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from ig2.errors import ModelError
from ig2.isolation import CopyError, isolate
from ig2.model import Model
from ig2.private import buffers_of, has_batch_statistics, has_running_statistics, is_dropout, uses_compiler


@contextmanager
def opened(model: Model, on_cuda: bool) -> Iterator[Model]:
    """The model, ready to be run, on modules of its own where it can be; however this ends, the user's is left as it was."""
    _refuse_weights(model)
    _refuse_train_mode(model)
    with ExitStack() as undo:
        try:
            model = isolate(model)
        except CopyError:
            undo.enter_context(_buffers_kept(model))
        undo.enter_context(_one_attention)
        if on_cuda and any(isinstance(module, nn.RNNBase) for _, module in model.modules):
            # cuDNN refuses the backward pass of a recurrent layer in eval mode
            undo.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield model


@contextmanager
def _buffers_kept(model: Model) -> Iterator[None]:
    """Running statistics, counters and caches are put back."""
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


class _Shared:
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
    """Transformer layers have a second implementation for passes without gradients, which gives other values on padding."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _eager() -> AbstractContextManager[object]:
    return torch.compiler.set_stance("force_eager") if uses_compiler() else nullcontext()


_one_attention = _Shared(_one_implementation)
# What `torch.compile` made of a network, of a part of it or of a function that calls it passes by the hooks.
uncompiled = _Shared(_eager)


def _refuse_weights(model: Model) -> None:
    for name, module in model.modules:
        for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            if nn.parameter.is_lazy(tensor):
                raise ModelError(f"{name or 'the network'} has no weights yet: run the network once before it is explained")
            if tensor.is_meta:
                raise ModelError(
                    f"the weights of {name or 'the network'} are on the meta device, which holds no values (offloaded or never "
                    "loaded): load the whole network onto one device before it is explained"
                )
            if tensor.is_inference():
                raise ModelError(
                    f"the weights of {name or 'the network'} were made in torch.inference_mode(), where gradients cannot "
                    "follow: make or load the network outside it"
                )


def _refuse_train_mode(model: Model) -> None:
    """A network in train mode is fine as long as no layer behaves differently there."""
    for name, module in model.modules:
        if not module.training:
            continue
        random = getattr(module, "p", 0) if is_dropout(module) else 0
        random = random or (module.dropout if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) else 0)
        counting = has_running_statistics(module) or has_batch_statistics(module)
        if random or counting or isinstance(module, nn.RReLU):
            raise ModelError(
                f"the network is in train mode: {name or 'it'} ({type(module).__name__}) behaves differently there, and "
                "explaining it would change its statistics or draw random numbers. Call net.eval() first"
            )
