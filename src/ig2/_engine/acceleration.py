"""The same function faster: a copy of the network with less arithmetic, and steps compiled or recorded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ig2._engine.explicands import Explicands
from ig2._engine.isolation import CopyError, isolate
from ig2._engine.memory import is_out_of_memory
from ig2._engine.network import Folded, Network
from ig2._engine.private import TorchDispatchMode, hooks_of, own_weight, trace, tree_iter, version_of
from ig2._engine.rounding import tolerance
from ig2.model import PRECISIONS, Function, Layer, Model, Preparation

NORMALISING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# Its gradient in the channels-last layout loses digits in torch 2.6 to 2.15: on noise of 0.01 around 10 it is off by 43 % on a
# CPU and by 0.04 % on a GPU, contiguous by 0.06 % and 6e-7.
ILL_LAID_OUT = nn.GroupNorm
# Devices on which depthwise convolutions in that layout are compiled at every new size of batch: by cuDNN on an H200, some 3 s
# for a forward pass of EfficientNet-Lite0 and as long for its gradient. Contiguous, PyTorch has kernels of its own.
COMPILING = {"cuda"}
# How often a size of batch has to come before its step is recorded.
WORTH_RECORDING = 8
# Steps of batches that take less memory than this leave a GPU waiting for the next kernel.
MOST_REPLAYED = 2 << 30
# How far, as a share of its length, a gradient of a recorded step may be off, and how many times as
# far as rounding takes it: of a rough network, two points at a time, a right one was off 4.2 times.
GRADIENT_WITHIN = 0.2
ROUGHER = 10
LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)

# Networks with as many weights in matrices spend their time in products of them.
LARGE = 10_000_000
# Points of a step that is timed in several precisions, how often, and how many times faster is worth a word.
TIMED_POINTS = 16
TIMED = 3
WORTH_OFFERING = 1.5
OFFER = (
    "this network is explained in full float32, as PyTorch ships, which is slow on this GPU: a step of {points} takes {times}. "
    "For the fastest, ig2.wrap(net, prepare=ig2.Preparation(precision={best!r})); 'tf32' rounds less than 'bfloat16'. To stay "
    "in float32 and not be asked again, precision='float32'. A language model takes prepare= in explain"
)

Program = Callable[..., tuple[Tensor, ...]]  # from tensors to tensors, and nothing else that matters


@dataclass(frozen=True)
class StepRequest:
    """What is asked of the network in a step, beside its output."""

    gradient: bool  # of the output
    distance: Callable[[Tensor, Tensor], Tensor] | None  # between the representations of points and references
    ascent: bool  # the gradient of the distance


@dataclass(frozen=True)
class FasterCopy:
    """A model with its network replaced, and what was done to it."""

    model: Model
    modules: dict[str, nn.Module]  # by the names they have in the network it was made from
    done: dict[str, Any]
    first_scores: Tensor | None = None  # what the network itself returns for the first explicand, (1, classes)
    # each of its modules, and the one that it is a copy of
    made_from: list[tuple[nn.Module, nn.Module]] = field(default_factory=list)
    folded: dict[nn.Module, nn.Module] = field(default_factory=dict)  # what was folded into which, both as they were copied

    def refresh(self) -> None:
        """Take over the numbers that the weights and buffers have by now of the network it was made from."""
        own = dict(self.made_from)
        for linear, norm in self.folded.items():
            for name, fused in _fuse(own[linear], own[norm]).items():
                linear.get_parameter(name).copy_(fused)
        for module, original in self.made_from:
            copied, current = (dict[str, Tensor | None](m._parameters) | m._buffers for m in (module, original))
            for name, tensor in {} if module in self.folded else current.items():
                mine = copied[name]
                if tensor is not None and mine is not None and mine.data_ptr() != tensor.data_ptr():
                    mine.copy_(tensor)


def prepare(model: Model, wish: Preparation, inputs: Explicands) -> FasterCopy | None:
    """Return a copy of the network as it was wished for; nothing where there is nothing to gain, or
    it cannot be copied.

    Args:
        model: whose network is copied.
        wish: what to do to it.
        inputs: on the first of which the network is run, to see what follows what.
    """
    modules = list(model.net.modules())
    # the modules a function calls cannot be exchanged for copies, nor can those of a scripted network be looked into
    if isinstance(model.net, Function) or any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        return None
    dtype = PRECISIONS[wish.precision] if wish.precision else None
    casts = dtype is not None and any(p.is_floating_point() and p.dtype != dtype for p in model.net.parameters())
    folds = wish.fold and any(type(module) in NORMALISING for module in modules)
    arranges = _wants_channels_last(modules, wish, casts)
    if not (casts or folds or arranges):
        return None
    if casts and any(type(p) is not nn.Parameter and p.is_floating_point() for p in model.net.parameters()):
        # the copy has the user's own, which some packages cast where they are
        raise CopyError("quantised weights are not cast: load the model with another dtype")
    copied, done, folded = isolate(model), dict[str, Any](), dict[nn.Module, nn.Module]()
    made_from = [(mine, own) for (_, mine), (_, own) in zip(copied.modules, model.modules, strict=True)]
    net, network = copied.net, Network(copied, inputs)
    run = partial(network.scores_alone, inputs.data[:1], network.first)
    if folds:
        scores, pairs = _find_followed(net, run)
        folded = _fold(net, model.representation, pairs)
        done["folded"] = len(folded)
    else:
        scores = run()
    by_name = dict(net.named_modules(remove_duplicate=False))
    if arranges:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        done["channels_last"] = True
    if casts:
        assert dtype is not None
        net = _Cast(net.to(dtype), dtype)
        done["precision"] = wish.precision
    return FasterCopy(replace(copied, net=net), by_name, done, scores, made_from, folded)


def _wants_channels_last(modules: Sequence[nn.Module], wish: Preparation, casts: bool) -> bool:
    convolutions = [module for module in modules if isinstance(module, nn.Conv2d)]
    if not wish.channels_last or any(isinstance(module, ILL_LAID_OUT) for module in modules):
        return False
    if wish.channels_last == "auto" and any(
        _is_depthwise(module) and module.weight.device.type in COMPILING for module in convolutions
    ):
        return False
    # PyTorch's kernels for float64 know one layout
    return any(casts or module.weight.dtype != torch.float64 for module in convolutions)


def _is_depthwise(convolution: nn.Conv2d) -> bool:
    """Return whether every channel is convolved by itself."""
    return convolution.groups == convolution.in_channels > 1


def is_slow_in_float32(model: Model, device: torch.device) -> bool:
    """Return whether a network of matrices, such as a transformer, runs in full float32 on a GPU
    that would round faster."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    if torch.get_float32_matmul_precision() != "highest" or torch.is_autocast_enabled("cuda"):
        return False
    modules = [module for _, module in model.modules]
    if sum(isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) for module in modules) > 2:  # those round as it is
        return False
    weights = [p for m in modules if not isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)]
    return sum(p.numel() for p in weights if p.ndim == 2 and p.dtype == torch.float32) >= LARGE


def offer_precision(network: Network, step: Callable[[Network], object], points: str) -> str | None:
    """Return what to say of a network in full float32 where a step in another precision is seen to
    be much faster."""
    device = network.inputs.data.device
    wish = Preparation(fold=False, channels_last=False, precision="bfloat16")
    try:
        seconds = {"float32": _time(partial(step, network), device)}
        with round_to_tf32(device, {}):
            seconds["tf32"] = _time(partial(step, network), device)
        if (prepared := prepare(network.model, wish, network.inputs)) is not None:
            half = Network(prepared.model, network.inputs, network.habits)
            try:
                seconds["bfloat16"] = _time(partial(step, half), device)
            finally:
                half.close()
    except Exception:  # of memory, or an operation without that precision: nothing is offered that cannot be had
        return None
    best = min(seconds, key=lambda precision: seconds[precision])
    if seconds["float32"] <= WORTH_OFFERING * seconds[best]:
        return None
    times = ", ".join(f"{1000 * taken:.3g} ms in {precision}" for precision, taken in seconds.items())
    return OFFER.format(points=points, times=times, best=best)


def _time(run: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a run, the quickest of several after a first that sets things up."""
    run()
    seconds = []
    for _ in range(TIMED):
        _await(device)
        start = time.perf_counter()
        run()
        _await(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _await(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def round_to_tf32(device: torch.device, report: dict[str, Any]) -> Iterator[None]:
    """Let float32 matrix products on an NVIDIA GPU round their factors to 11 bits."""
    if device.type != "cuda":
        report["tf32"] = "no: it is for NVIDIA GPUs"
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    report["tf32"] = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Cast(nn.Module):
    """A network in another precision, called with tensors in the user's."""

    def __init__(self, net: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self.dtype = net, dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.net(*map(self._cast, args), **{key: self._cast(value) for key, value in kwargs.items()})

    def _cast(self, value: Any) -> Any:
        return value.to(self.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def _fold(net: nn.Module, layer: Layer | str | None, pairs: Sequence[tuple[Any, Any]]) -> dict[nn.Module, nn.Module]:
    """Put batch normalisations into the linear maps that they follow; which into which."""
    places: dict[nn.Module, list[str]] = {}
    for name, module in net.named_modules(remove_duplicate=False):
        places.setdefault(module, []).append(name)
    folded = dict[nn.Module, nn.Module]()
    for linear, norm in pairs:
        # what lies between the two may be the representation
        if isinstance(layer, Layer) and (
            (layer.side == "output" and layer.name in places[linear]) or (layer.side == "input" and layer.name in places[norm])
        ):
            continue
        for name, fused in _fuse(linear, norm).items():
            linear.register_parameter(name, nn.Parameter(fused, requires_grad=False))
        for name in places[norm]:
            net.set_submodule(name, Folded())
        folded[linear] = norm
    return folded


def _fuse(linear: Any, norm: Any) -> dict[str, Tensor]:
    """Return the weight and bias of a linear map with the normalisation behind it, in any number of
    dimensions."""
    weight, bias = fuse_conv_bn_weights(
        linear.weight, linear.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    return {"weight": weight.detach(), "bias": bias.detach()}


def _find_followed(net: nn.Module, run: Callable[[], Tensor]) -> tuple[Tensor, list[tuple[Any, Any]]]:
    """Return each linear map whose output goes into a batch normalisation and nowhere else, both
    running once in a pass.

    Returns:
        What the pass returns, and the pairs.
    """
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
        elif type(module) in NORMALISING and module.running_var is not None and not hooks_of(module):
            handles.append(module.register_forward_pre_hook(note_input))
    try:
        with _Uses() as uses:
            scores = run()
    finally:
        for handle in handles:
            handle.remove()
    pairs = []
    for tensor, version, norm in inputs:
        for output, output_version, linear in outputs:
            once = [kind for _, _, kind in outputs].count(linear) == [kind for _, _, kind in inputs].count(norm) == 1
            # written into by an in-place operation, it is no longer what the linear map made
            if output is tensor and output_version == version and once and uses.count(output) == 1:
                pairs.append((linear, norm))
    return scores, pairs


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


class Recorder:
    """Compiles or records the steps of a network whose sizes of batch come again and again, and replays them."""

    def __init__(
        self,
        network: Network,
        wish: Preparation | None,
        bytes_per_point: int,
        report: dict[str, Any],
        compiled: dict[object, Program],
    ) -> None:
        self.network, self.wish, self.bytes_per_point = network, wish, bytes_per_point
        self.device = network.inputs.data.device
        self.report = report  # what was done, and what could not be
        self.compiled = compiled  # code of earlier calls: it reads the weights as they are by then
        self._recorded: dict[tuple[StepRequest, int], Program] = {}
        self._seen: Counter[tuple[StepRequest, int]] = Counter()

    def clear(self) -> None:
        """Let go of what was recorded."""
        self._recorded.clear()

    def replay(self, request: StepRequest, args: list[Tensor]) -> tuple[Tensor, ...] | None:
        """Return the step by the smallest recorded batch that these points fill by more than half;
        None where there is none."""
        count = len(args[0])
        sizes = [size for recorded, size in self._recorded if recorded == request and count <= size < 2 * count]
        if not sizes:
            return None
        spare = min(sizes) - count
        padded = [torch.cat([arg, arg[:1].expand(spare, *arg.shape[1:])]) if spare else arg for arg in args]
        values = self._recorded[request, min(sizes)](*padded)
        return tuple(tensor[:count] for tensor in values) if spare else values

    def observe(self, request: StepRequest, step: Program, args: list[Tensor], values: tuple[Tensor, ...]) -> None:
        """Count a step that was run as it is, and record it once its size has come often enough.

        Args:
            request: what was asked for.
            step: runs it, on a network.
            args: what it was run on.
            values: what it returned, which a recording has to return too.
        """
        key, ways = (request, len(args[0])), self._ways(len(args[0]))
        self._seen[key] += 1
        known = self._seen[key] > 1 and "compiled" in ways and self._compiled_key(key) in self.compiled
        if not ways or self._seen[key] < (2 if known else WORTH_RECORDING):
            return
        for name, make in ways.items():
            recorded = self._try(name, make, key, step, args, values)
            if recorded is not None:
                self._recorded[key] = recorded
                return
        self._seen[key] = -(1 << 60)  # do not try again

    def _ways(self, count: int) -> dict[str, Callable[[Program, Sequence[Tensor]], Program]]:
        """Return how a step of so many points is to be recorded: the first way that works."""
        if self.wish is None or torch.is_autocast_enabled(self.device.type):
            return {}
        ways: dict[str, Callable[[Program, Sequence[Tensor]], Program]] = (
            {"compiled": compile_step} if self.wish.compile else {}
        )
        if self.wish.graphs and self.device.type == "cuda" and count * self.bytes_per_point <= MOST_REPLAYED:
            ways["replayed"] = record_step
        return ways

    def _try(
        self,
        name: str,
        make: Callable[[Program, Sequence[Tensor]], Program],
        key: tuple[StepRequest, int],
        step: Program,
        args: list[Tensor],
        values: tuple[Tensor, ...],
    ) -> Program | None:
        """Return the step, recorded, if it can be and then returns what the step itself
        returned."""
        # a recording of CUDA kernels holds memory, and lives as long as the session; compiled code outlives it
        compiled = self.compiled.get(self._compiled_key(key)) if name == "compiled" else None
        try:
            recorded = compiled or make(partial(step, self.network), args)
            again = recorded(*args)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self.report[name] = f"no: {first_line(error)}"
            return None
        if self._differ(step, args, values, again):
            self.report[name] = "no: it gave other values"
            return None
        self.report[name] = True
        if name == "compiled":
            self.compiled[self._compiled_key(key)] = recorded
        return recorded

    def _differ(self, step: Program, args: list[Tensor], values: Sequence[Tensor], again: Sequence[Tensor]) -> bool:
        """Return whether the recording returns something else than the step.

        Gradients of a rough network, an Inception on a GPU for example, are off by rounding alone: how
        far, the step itself shows on two points apart from the others.
        """
        few = [0, -1]
        apart = step(self.network, *(arg[few] for arg in args))
        for mine, theirs, alone in zip(values, again, apart, strict=True):
            within = tolerance(self.network) if mine.ndim == 1 else GRADIENT_WITHIN
            within = max(within, ROUGHER * float(_errors(alone, mine[few]).nan_to_num().max()))
            # a gradient of the network's own that is not finite is named later, where it can be located
            unknown = ~mine.reshape(len(mine), -1).isfinite().all(dim=1)
            if not bool(((_errors(theirs, mine) <= within) | unknown).all()):
                return True
        return False

    def _compiled_key(self, key: tuple[StepRequest, int]) -> Any:
        network = self.network
        layer = network.layer and (network.where, network.call)
        against = None if network.against is None else str(network.against.tolist())  # compiled code holds them as constants
        explained = (network.model.output, network.model.target)
        return (*key, network.inputs.attributed, explained, layer, against, self.wish, self.device)


def _errors(values: Tensor, truth: Tensor) -> Tensor:
    """Return how far values are off: scores (n,) as a share of the largest, gradients (n, ...) each
    of its length."""
    values, truth = values.double(), truth.double()
    if truth.ndim == 1:
        return (values - truth).abs() / truth.abs().amax().clamp(min=1e-6)
    off, length = (values - truth).flatten(1).norm(dim=1), truth.flatten(1).norm(dim=1)
    return torch.where(off == 0, 0.0, off / length)  # of NaN it is NaN, which is within nothing


def compile_step(step: Program, example: Sequence[Tensor]) -> Program:
    """Return the step as one compiled graph, its gradients included, for tensors of the example's
    shapes.

    Operations are traced below autograd, so that the forward pass and both backward passes are one piece to the compiler,
    and hooks, autograd and the network's own Python code are gone from it.
    """
    fast: Any = torch.compile(trace(step)(*example), dynamic=False, fullgraph=True)

    def run(*args: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return tuple(fast(*args))

    return run


def record_step(step: Program, example: Sequence[Tensor]) -> Program:
    """Return the step's kernels on the GPU, recorded once and started together, for tensors of the
    example's shapes."""
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


def first_line(error: Exception) -> str:
    """Return what an error says, shortened to one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
