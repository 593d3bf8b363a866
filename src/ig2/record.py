"""A step of the engine made once into something faster: compiled code, or a CUDA graph of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ig2.private import trace

Step = Callable[..., tuple[Tensor, ...]]  # from tensors to tensors, and nothing else that matters


def compiled(step: Step, example: Sequence[Tensor]) -> Step:
    """The step as one compiled graph, its gradients included, for tensors of the example's shapes.

    Operations are traced below autograd, so that the forward pass and both backward passes are one piece to the compiler,
    and hooks, autograd and the network's own Python code are gone from it.
    """
    fast: Any = torch.compile(trace(step)(*example), dynamic=False, fullgraph=True)

    def run(*args: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return tuple(fast(*args))

    return run


def replayed(step: Step, example: Sequence[Tensor]) -> Step:
    """The step's kernels on the GPU, recorded once and started together, for tensors of the example's shapes."""
    inputs = [tensor.clone() for tensor in example]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # what a first pass sets up must not be recorded
            step(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step(*inputs)

    def run(*args: Tensor) -> tuple[Tensor, ...]:
        for place, tensor in zip(inputs, args, strict=True):
            place.copy_(tensor)
        graph.replay()
        return tuple(output.clone() for output in outputs)  # the next replay writes over them

    return run
