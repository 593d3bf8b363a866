"""The same function faster: a copy of the network with less arithmetic, and steps compiled or recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ig2._engine.isolation import isolate
from ig2._engine.private import TorchDispatchMode, hooks_of, own_weight, trace, tree_iter, version_of
from ig2.model import PRECISIONS, Function, Layer, Model, Preparation

NORMALISING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# Their gradients in the channels-last layout lose digits in torch 2.6 to 2.15: of GroupNorm on noise of 0.01 around 10 they are
# off by 43 % on a CPU and by 0.04 % on a GPU, contiguous by 0.06 % and 6e-7; of InstanceNorm2d at batch size 1 they are wrong
# on a CPU.
ILL_LAID_OUT = (nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


@dataclass(frozen=True)
class Prepared:
    """A model with its network replaced, and what was done to it."""

    model: Model
    modules: dict[str, nn.Module]  # by the names they have in the network it was made from
    done: dict[str, Any]


def prepare(model: Model, wish: Preparation, run: Callable[[Model], object]) -> Prepared | None:
    """A copy of the network as it was wished for; nothing where there is nothing to gain, or it cannot be copied.

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
    arranges = arranges and not any(isinstance(module, ILL_LAID_OUT) for module in modules)
    if not (casts or folds or arranges):
        return None
    copied, done = isolate(model), dict[str, Any]()
    net = copied.net
    if folds:
        done["folded"] = _fold(net, model.representation, lambda: run(copied))
    by_name = dict(net.named_modules(remove_duplicate=False))
    if arranges:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        done["channels_last"] = True
    if casts:
        assert dtype is not None
        net = _Cast(net.to(dtype), dtype)
        done["precision"] = wish.precision
    return Prepared(replace(copied, net=net), by_name, done)


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
    """Each linear map whose output goes into a batch normalisation and nowhere else, both running once in a pass."""
    outputs: list[tuple[Tensor, int, nn.Module]] = []  # a linear map's output, which version of it, and the map
    inputs: list[tuple[Tensor, int, nn.Module]] = []  # the same of what a normalisation takes

    def note_output(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if isinstance(result, Tensor) and not (isinstance(module, nn.Linear) and result.ndim != 2):
            outputs.append((result, version_of(result), module))
            uses.watch(result)

    def note_input(module: nn.Module, args: tuple[Any, ...]) -> None:
        inputs.extend((arg, version_of(arg), module) for arg in args[:1] if isinstance(arg, Tensor))

    handles = []
    for module in net.modules():
        if isinstance(module, LINEAR) and own_weight(module):
            handles.append(module.register_forward_hook(note_output))
        elif type(module) in NORMALISING and module.running_var is not None and not _is_hooked(module):
            handles.append(module.register_forward_pre_hook(note_input))
    try:
        with _Uses() as uses:
            run()
    finally:
        for handle in handles:
            handle.remove()
    pairs = []
    for tensor, version, norm in inputs:
        for output, made, linear in outputs:
            once = [kind for _, _, kind in outputs].count(linear) == [kind for _, _, kind in inputs].count(norm) == 1
            # written into by an in-place operation, it is no longer what the linear map made
            if output is tensor and made == version and once and uses.count(output) == 1:
                pairs.append((linear, norm))
    return pairs


def _is_hooked(module: nn.Module) -> bool:
    """Whether the user's hooks are to see what goes through it."""
    return bool(hooks_of(module))


class _Uses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that take a tensor, or a view of it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts: dict[int, int] = {}  # by the address of the storage, which is kept alive by whoever watches

    def watch(self, tensor: Tensor) -> None:
        self._counts[tensor.untyped_storage().data_ptr()] = 0

    def count(self, tensor: Tensor) -> int:
        return self._counts[tensor.untyped_storage().data_ptr()]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for storage in {t.untyped_storage().data_ptr() for t in tree_iter((args, kwargs)) if isinstance(t, Tensor)}:
            if storage in self._counts:
                self._counts[storage] += 1
        return func(*args, **(kwargs or {}))


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
