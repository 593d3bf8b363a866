"""Networks that cannot be explained as they are, and what is put back when one that can has been."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from ig2.errors import ModelError
from ig2.isolation import CopyError, isolate
from ig2.model import Model


@contextmanager
def opened(model: Model, on_cuda: bool) -> Iterator[Model]:
    """The model, ready to be run, on modules of its own where it can be; however this ends, the user's is left as it was."""
    _refuse_weights(model)
    _refuse_train_mode(model)
    with ExitStack() as undo:
        try:
            model = isolate(model)
        except CopyError:
            for restoring in (_buffers_kept, _uncompiled):
                undo.enter_context(restoring(model))
        undo.enter_context(_one_attention)
        if on_cuda and any(isinstance(module, nn.RNNBase) for _, module in model.modules):
            # cuDNN refuses the backward pass of a recurrent layer in eval mode
            undo.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield model


@contextmanager
def _buffers_kept(model: Model) -> Iterator[None]:
    """Running statistics, counters and caches are put back."""
    kept = [(m, name, b, None if b is None else b.clone()) for _, m in model.modules for name, b in m._buffers.items()]
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


@contextmanager
def _uncompiled(model: Model) -> Iterator[None]:
    """`net.compile()` in place: the compiled code would pass by the hooks."""
    compiled = [(module, module._compiled_call_impl) for _, module in model.modules if module._compiled_call_impl is not None]
    try:
        for module, _ in compiled:
            module._compiled_call_impl = None
        yield
    finally:
        for module, call in compiled:
            module._compiled_call_impl = call


class _OneAttention:
    """Transformer layers have a second implementation for passes without gradients, which gives other values on padding.

    The switch is the process's: the first of several sessions turns it, in whichever thread, and the last turns it back.
    """

    def __init__(self) -> None:
        self.lock, self.sessions, self.before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self.lock:
            if self.sessions == 0:
                self.before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self.sessions += 1

    def __exit__(self, *_: Any) -> None:
        with self.lock:
            self.sessions -= 1
            if self.sessions == 0:
                torch.backends.mha.set_fastpath_enabled(self.before)


_one_attention = _OneAttention()


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
        random = getattr(module, "p", 0) if isinstance(module, nn.modules.dropout._DropoutNd) else 0
        random = random or (module.dropout if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) else 0)
        counting = isinstance(module, nn.modules.batchnorm._NormBase) and (
            module.track_running_stats or isinstance(module, nn.modules.batchnorm._BatchNorm)
        )
        if random or counting or isinstance(module, nn.RReLU):
            raise ModelError(
                f"the network is in train mode: {name or 'it'} ({type(module).__name__}) behaves differently there, and "
                "explaining it would change its statistics or draw random numbers. Call net.eval() first"
            )
