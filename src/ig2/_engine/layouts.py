"""The one kernel of PyTorch's that misreads memory layouts, and what it is given so that it cannot.

Along an axis of a single entry every stride is as good as any other, so that a tensor (1, C, H, W)
may have its channels last in memory and strides that do not show it. `native_batch_norm_backward`
on a CPU asks a tensor in two ways how it lies, which then disagree, and pairs the entries of the
gradient with those of the input in another order: the result was off by 120 to 140 % of its length.
That happens with one sample alone, with a height or a width of one, and in an instance
normalisation, where a view of the input or of the gradient was tokens, (1, H · W, C). Of some sixty
functions tried in every layout, in torch 2.13, it is the only one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from ig2._engine.private import TorchDispatchMode, shape_of

MISREADING = torch.ops.aten.native_batch_norm_backward.default


class Layouts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is open, tensors that this kernel might misread are given to it with plain strides.

    It sees every operation of a backward pass, at some 10 µs each, which doubles that of a network
    of ten small layers: it is open where it is needed.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is MISREADING:
            gradient, data, *others = args
            args = (plain(gradient), plain(data), *others)
        return func(*args, **(kwargs or {}))


def plain(tensor: Tensor) -> Tensor:
    """Return the tensor as it lies, with the strides that PyTorch gives to such a layout."""
    if tensor.ndim < 4 or tensor.is_contiguous():
        return tensor
    channels_last = tensor.movedim(1, -1)
    if not channels_last.is_contiguous():
        return tensor
    return channels_last.flatten().view(channels_last.shape).movedim(-1, 1)


def may_misread(node: Node) -> bool:
    """Return whether a node of autograd's graph runs the kernel on a tensor with an axis of one
    entry, or hides what it runs."""
    if "BatchNorm" not in node.name():
        return isinstance(node, BackwardCFunction)
    shape = shape_of(node)
    return shape is None or (len(shape) > 3 and 1 in (shape[0], *shape[2:]))
