"""A look at the network before it is explained: whether it can be, and how much memory a point takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from ig2._engine.checkpoints import count_bytes
from ig2._engine.layers import LinearCall, LinearCalls, Readings, Step, Steps, node_of, nodes_before
from ig2._engine.memory import Written, is_out_of_memory
from ig2._engine.network import WITHOUT_GRAPH, Network
from ig2.errors import WITHOUT_GRADIENTS, IG2Error, ModelError, describe, reason, warn
from ig2.model import SCRIPTED, Layer

RANDOM = (
    "two passes of the same sample gave different scores: the network draws random numbers (dropout left on?). Call "
    "net.eval(), or make the pass deterministic"
)
STATE = (
    "two equal calls in a row gave different scores: the network keeps state from one call to the next, or draws random "
    "numbers from a generator of its own, so a point has no score of its own. Reset it at the start of each call, for example "
    "ig2.wrap(lambda x: (net.reset(), net(x))[1])"
)
MIXING = (
    "the same sample scored differently alone and beside another one: samples of a batch mix (batch statistics that are not "
    "frozen?), so a sample has no attribution of its own. Use batch_size=1, or freeze them"
)
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
NAME_PLACES = (
    "name a layer whose output is (n, channels, places …), layer='features.7', or the tokens of a transformer's patches, "
    "ig2.GradCAM('blocks.11.norm1'). Where they lie in another order, say how: arrange=lambda t: ..."
)
# How many passes show that dropout of a few features, or of whole layers, does not do the same each time.
TRIES = 16


@dataclass(frozen=True)
class Inspection:
    """What a look at the network on the first explicand brought."""

    bytes_per_point: int  # of memory for a step with both gradients
    draws: bool  # whether a pass draws random numbers, even if the scores do not go by them
    habits: tuple[bool | None, bool, bool]  # those of `Network`


def inspect(network: Network, check_mixing: bool = True) -> Inspection:
    """Run the first explicand alone, again, and beside another one, and refuse a network that cannot be explained.

    Global random state is as it was when this returns.

    Args:
        network: to look at; whether it writes into its input is known from here on.
        check_mixing: whether samples of a batch must not influence each other.
    """
    before = RandomState(network.inputs.data.device)
    try:
        scores, bytes_per_point = run_first(network)
        draws = before != RandomState(before.device)
        again = _differentiate_first(network)
        _check_repeats(network, scores, again, draws, check_mixing)
        network.writes = bool(network.writes)
    finally:
        before.restore()
    return Inspection(bytes_per_point, draws, network.habits)


class RandomState:
    """The state of every global random generator a network might draw from."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the global one is what is meant
        self.python = random.getstate()

    def restore(self) -> None:
        """Put every generator back to this state."""
        torch.set_rng_state(self.torch)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)
        np.random.set_state(self.numpy)  # noqa: NPY002
        random.setstate(self.python)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RandomState)
            and torch.equal(self.torch, other.torch)
            and (self.cuda is None or other.cuda is None or torch.equal(self.cuda, other.cuda))
            and self.numpy["state"]["pos"] == other.numpy["state"]["pos"]
            and np.array_equal(self.numpy["state"]["key"], other.numpy["state"]["key"])
            and self.python == other.python
        )

    __hash__ = None  # type: ignore[assignment]


def run_first(network: Network) -> tuple[Tensor, int]:
    """The scores of the first explicand, and how much memory a point takes."""
    inputs, model = network.inputs, network.model
    row = torch.zeros(1, dtype=torch.long, device=inputs.data.device)
    graph = inputs.needs_gradient
    leaves = [t.detach().clone().requires_grad_(graph) for t in inputs.split(inputs.data[:1])]
    weights = {t.data_ptr() for _, m in model.modules for t in [*m.parameters(False), *m.buffers(False)] if _is_dense(t)}
    in_training = [(name, module) for name, module in model.modules if module.training]
    buffers = [(f"{name}.{key}", b, b.clone()) for name, m in in_training for key, b in m.named_buffers(recurse=False)]
    saved: dict[int, int] = {}
    results: list[Tensor] = []  # kept to the end: memory used twice would be counted once, and not the same in every run

    def note(tensor: Tensor) -> Tensor:
        with suppress(RuntimeError):  # inside torch.func tensors have no storage
            if _is_dense(tensor) and tensor.data_ptr() not in weights:
                saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor.detach()  # a node that keeps its own output would never be let go

    def note_result(_: Step, args: Sequence[Any], result: Tensor) -> None:
        note(result)
        results.append(result)

    def run(watch: AbstractContextManager[object]) -> tuple[Any, Tensor]:
        with watch:
            raw = network.forward(leaves, row)
            return raw, model.scores(raw, 1).to(inputs.data.device)

    try:
        try:
            with torch.set_grad_enabled(graph):
                raw, scores = run(torch.autograd.graph.saved_tensors_hooks(note, lambda t: t) if graph else Steps(note_result))
        except RuntimeError as error:
            # torch.func takes no such hooks, and a network that differentiates needs a graph
            network.differentiates = not graph and WITHOUT_GRAPH in str(error)
            if not network.differentiates and "saved tensor hooks" not in str(error):
                raise
            everything = Written()
            with torch.enable_grad():
                leaves = [leaf.requires_grad_() for leaf in leaves]
                raw, scores = run(everything)
            saved = {0: everything.bytes}
    except Exception as error:
        if isinstance(error, IG2Error) or is_out_of_memory(error):
            raise
        raise ModelError(_failure(network, leaves, error)) from error
    for name, buffer, content in buffers:
        if not torch.equal(buffer, content):
            raise ModelError(f"the network is in train mode, where a pass changes its {name}. Call net.eval() first")
    _check_logits(network, raw)
    # forward activations stay for both backward passes, which hold about half as much again at their peak
    kept = sum(saved.values()) + count_bytes(model.net)
    activations = kept * 3 // 2 if graph else kept
    return scores.detach(), activations + 8 * inputs.data[0].nbytes


def _differentiate_first(network: Network) -> Tensor:
    """The scores of the first explicand once more, and whether the attributed inputs reach them.

    In a pass of its own: while saved tensors are counted, autograd does not see that one was written into.
    """
    inputs, graph = network.inputs, network.inputs.needs_gradient
    row = torch.zeros(1, dtype=torch.long, device=inputs.data.device)
    enabled = graph or network.differentiates
    leaves = [t.detach().clone().requires_grad_(enabled) for t in inputs.split(inputs.data[:1])]
    with torch.set_grad_enabled(enabled):
        scores = network.model.scores(network.forward(leaves, row), 1).to(inputs.data.device)
    try:
        if graph:
            _check_reach(network, scores, leaves)
    except RuntimeError as error:
        if isinstance(error, IG2Error) or is_out_of_memory(error):
            raise
        raise ModelError(f"the network runs and cannot be differentiated. It said: {error}") from error
    return scores.detach()


def find_representation(network: Network) -> tuple[Layer | Literal["output"], int]:
    """The layer a model's representation is read from, and which of its calls in a forward pass: as the user said, or the
    last linear layer on the way from every attributed input to the output."""
    layer = network.model.representation
    if layer is not None:
        return (find_running(network, layer, "representation") if isinstance(layer, Layer) else layer), 1
    modules = network.model.modules
    with LinearCalls(modules) as linear:
        leaves, scores = _forward_first(network)
    if not linear.calls and any(isinstance(module, torch.jit.ScriptModule) for _, module in modules):
        raise ModelError(f"the last linear layer is not found: {SCRIPTED}")
    used, inputs = nodes_before(node_of(scores)), {node_of(leaf) for leaf in leaves}
    # of two towers whose outputs are compared, the last layer sees one input alone
    seeing = [call for call in reversed(linear.calls) if call.node in used and inputs <= nodes_before(call.node)]
    if not seeing:
        return "output", 1
    last = seeing[0]
    if last.module is not None and _has_one_row(last):
        return Layer(last.name, last.module, "input"), last.number
    fitting = [repr(f"{call.name}:input") for call in seeing if call.module is not None and _has_one_row(call)]
    # the proposals of a detector share no layer but those with places
    cuts = find_cuts(network, network.inputs.data.ndim) if last.module is not None else []
    names = [repr(layer.name) for _, layer in cuts[-1:]] + list(dict.fromkeys(fitting))[:3] or ["'output'"]
    why = (
        f"the last linear map of this network is a call of {last.name}, not a layer that can be read"
        if last.module is None
        else f"the input of {last.name!r}, the last linear layer, is {tuple(last.shape)} for one sample: a representation "
        "needs one row a sample"
    )
    others = f", or {' or '.join(names[1:])}" if names[1:] else ""
    raise ModelError(
        f"{why}. Say where the representation is: ig2.wrap(net, representation={names[0]}){others}, or with a module or its "
        "name (its output), 'name:input', or 'output'"
    )


def _has_one_row(call: LinearCall) -> bool:
    """Whether its input has one row for one sample, as the proposals of a detector have not."""
    return len(call.shape) <= 1 or call.shape[0] == 1


def find_activation(network: Network) -> Step:
    """What the last convolution with places comes to: the last tensor with its places that is made of it on the way from every
    attributed input to the output, after its norm, its activation and the sum with what went around it.

    Grad-CAM, LayerCAM and HiResCAM explain rectified maps: on 40 photos and an EfficientNet, Grad-CAM had a GT-SUM of .738
    before the activation and .814 after it.
    """
    steps: list[tuple[Node, torch.Size, Step]] = []
    convolutions: list[tuple[Node, int, bool]] = []  # how many steps there were with it, and whether it cuts into patches

    def note(step: Step, args: Sequence[Any], result: Tensor) -> None:
        if not result.requires_grad or result.ndim not in (3, 4, 5) or result.shape[0] != 1 or result.shape[2:].numel() < 2:
            return
        steps.append((node_of(result), result.shape, step))
        if step.function in CONVOLUTIONS:
            before, kernel = (tensor.shape[2:] for tensor in args[:2])
            cut = tuple(size // side for size, side in zip(before, kernel, strict=True))
            convolutions.append((node_of(result), len(steps), max(kernel) > 1 and cut == result.shape[2:]))

    network.watch(note)
    try:
        leaves, scores = _forward_first(network)
    finally:
        network.watch(None)
    used, inputs = nodes_before(node_of(scores)), {node_of(leaf) for leaf in leaves}
    on_the_way = [found for found in convolutions if found[0] in used and inputs <= nodes_before(found[0])]
    if not on_the_way:
        raise ModelError(f"the network has no convolution whose output has places on the way to its output: {NAME_PLACES}")
    node, count, is_cut = on_the_way[-1]
    if is_cut and len(on_the_way) == 1:
        raise ModelError(f"the only convolution cuts the input into patches, as a transformer's does: {NAME_PLACES}")
    shape = steps[count - 1][1]
    return next(
        step
        for end, size, step in reversed(steps[count - 1 :])
        if size[2:] == shape[2:] and end in used and node in nodes_before(end)
    )


def find_cuts(network: Network, axes: int) -> list[tuple[tuple[int, ...], Layer]]:
    """The layers that all of the input passes through and that return places, tensors of so many axes, (n, channels, *places):
    on each grid of places the last one, from the finest grid to the coarsest."""
    modules = [(name, module) for name, module in network.model.modules if name]
    with Readings([module for _, module in modules]) as readings:
        leaves, scores = _forward_first(network)
    end, inputs = node_of(scores), {node_of(leaf) for leaf in leaves}
    cuts: dict[tuple[int, ...], Layer] = {}
    depths: dict[tuple[int, ...], int] = {}  # how much of the network lies before each
    for (name, module), outputs in zip(modules, readings.outputs, strict=True):
        result = outputs[0] if len(outputs) == 1 else None
        if not isinstance(result, Tensor) or not result.requires_grad or result.ndim != axes:
            continue
        if result.shape[0] != 1 or result.shape[2:].numel() < 2:  # several rows are, for example, a detector's proposals
            continue
        grid, node = tuple(result.shape[2:]), node_of(result)
        depth = len(nodes_before(node))
        if depth > depths.get(grid, 0) and inputs.isdisjoint(nodes_before(end, without=node)):
            cuts[grid], depths[grid] = Layer(name, module, "output"), depth
    return sorted(cuts.items(), key=lambda cut: cut[0], reverse=True)


def _forward_first(network: Network) -> tuple[list[Tensor], Tensor]:
    """The first explicand, input by input, and its scores with a graph."""
    data = network.inputs.data
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in network.inputs.split(data[:1])]
    with torch.enable_grad():
        return leaves, network.model.scores(network.forward(leaves, torch.zeros(1, dtype=torch.long, device=data.device)), 1)


def find_running(network: Network, layer: Layer, name: str) -> Layer:
    """The layer, which the user calls `name`, if a forward pass runs it a single time.

    In place of one that never runs, the only one that has its weights and runs once: of an encoder and a decoder with the same
    embeddings, transformers names a third module.

    Raises:
        ModelError: if there is none.
    """
    weights = {weight.data_ptr() for weight in layer.module.parameters() if weight.numel()}
    alike = [
        Layer(other, module, layer.side)
        for other, module in network.model.modules
        if module is not layer.module
        and (isinstance(module, type(layer.module)) or isinstance(layer.module, type(module)))
        and weights.intersection(weight.data_ptr() for weight in module.parameters())
    ]
    with Readings([layer.module, *(other.module for other in alike)]) as readings:
        _forward_first(network)
    calls, *calls_of_others = map(len, readings.outputs)
    if calls == 1:
        return layer
    running = [other for other, times in zip(alike, calls_of_others, strict=True) if times == 1]
    if not calls and len(running) == 1:
        return running[0]
    advice = "name a module that runs once"
    if not calls and running:
        advice = f"{' and '.join(repr(other.name) for other in running)} have its weights, and each runs once: name one of them"
    raise ModelError(
        f"{name} {layer.name!r} runs {calls} times in one forward pass, so its {layer.side} is "
        f"{'ambiguous' if calls else 'never computed'}; {advice}"
    )


def _is_dense(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested


def _failure(network: Network, leaves: Sequence[Tensor], error: Exception) -> str:
    modules = [module for _, module in network.model.modules]
    weights = {p.dtype for m in modules for p in m.parameters(False) if p.is_floating_point()}
    dtypes = {leaf.dtype for leaf in leaves}
    keys = network.inputs.keys
    hint = "x must be a batch (B, ...) of what the network takes"
    if len(weights) == 1 and not dtypes & weights:
        hint = f"its weights are {weights.pop()}: bring x to that with x.to(...)".replace("torch.", "")
    elif _reads_text(modules):
        hint = "a text network of transformers and its tokenizer go into ig2.modalities.text.from_transformers(net, tokenizer)"
    elif "numpy" in str(error):
        hint = f"what leaves PyTorch for NumPy has no gradients: write it in torch. {WITHOUT_GRADIENTS}"
    elif not keys:
        hint += "; a single sample gets its axis by x[None]"
    elif isinstance(keys[0], int):
        hint = "a tuple or list is the arguments of one call; a list of samples becomes a batch by torch.stack(x)"
    given_text = describe(leaves[0] if len(leaves) == 1 else tuple(leaves))
    return f"the network fails on the first explicand, given {given_text}: {hint}. It said: {reason(error)}"


def _reads_text(modules: Sequence[nn.Module]) -> bool:
    """Whether this is a network of transformers that takes tokens."""
    return any(isinstance(module, nn.Embedding) for module in modules) and any(
        kind.__module__.startswith("transformers.") for module in modules for kind in type(module).__mro__
    )


def _check_reach(network: Network, scores: Tensor, leaves: Sequence[Tensor]) -> None:
    reached = [False] * len(leaves)
    if scores.requires_grad:
        network.look_for_checkpoints(scores)
        nodes = nodes_before(node_of(scores))
        reached = [grad is not None for grad in network.differentiate(scores, leaves)]
        if any("NotImplemented" in node.name() for node in nodes):
            raise ModelError(
                "an operation of the network has no gradient, which PyTorch takes for zero (its warning names the operation): "
                f"it is for inference alone, as some of quantised weights are. {WITHOUT_GRADIENTS}"
            )
    if not all(reached):
        keys = [key for (key, _, _), ok in zip(network.inputs.attributed, reached, strict=True) if not ok]
        which = "the input" if len(leaves) == 1 else f"input {keys[0]!r}"
        raise ModelError(
            f"{which} does not reach the output through differentiable operations: look for .detach(), .data, "
            ".item(), torch.no_grad(), rounding or integer indexing in the forward pass"
            + ("" if len(leaves) == 1 else "; or, if it is only passed on, wrap it in ig2.Fixed(...)")
            + f". {WITHOUT_GRADIENTS}"
        )


def _check_logits(network: Network, raw: Any) -> None:
    """A softmax of what a softmax gave is a flat thing that still looks like probabilities."""
    if network.model.output not in ("probability", "log-probability") or network.model.target is not None:
        return
    logits = network.model.logits(raw).detach()
    if logits.numel() > 1 and bool((logits >= 0).all()) and abs(float(logits.sum()) - 1) < 1e-3:
        warn(
            f"the network returns probabilities already, and output={network.model.output!r} takes the softmax of them once "
            "more: use output='logit', which explains what the network returns"
        )


def _check_repeats(network: Network, scores: Tensor, again: Tensor, draws: bool, check_mixing: bool) -> None:
    """The first sample must score the same again: in a pass of its own, and beside another sample."""
    data = network.inputs.data
    first = torch.zeros(1, dtype=torch.long, device=data.device)

    run = network.scores_alone
    if draws:  # dropout of a few features, or of whole layers, may by chance do twice the same
        passes = [run(data[:1], first) for _ in range(TRIES)]
        if any(not torch.equal(passes[0], other) for other in passes[1:]):
            raise ModelError(RANDOM)
    within = tolerance(network)
    moves = all(dtype.is_floating_point for _, _, dtype in network.inputs.attributed)
    last = max((torch.finfo(dtype).eps for dtype in _precisions(network)), default=0.0) if moves else 0.0
    if not is_close(scores, again, within / 100) and not is_close(
        scores, again, within / 100, _rounding(run, data[:1], first, last)
    ):
        raise ModelError(RANDOM if draws else STATE)
    points, rows = data[:1], first
    if check_mixing:
        # beside a copy of itself its batch statistics would stay as they are
        half = "floor" if any(not dtype.is_floating_point for _, _, dtype in network.inputs.attributed) else None
        other = data[-1] if not torch.equal(data[0], data[-1]) else torch.div(data[0], 2, rounding_mode=half)
        points, rows = torch.stack([data[0], other]), torch.tensor([0, len(data) - 1], device=data.device)
    try:
        beside = run(points, rows)[:1]
    except IG2Error:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            return  # one at a time it will have to be, and then nothing mixes
        text = f"the network takes one sample and fails on two: use batch_size=1. It said: {reason(error)}"
        raise ModelError(text) from error
    if not is_close(again, beside, within):
        alone = run(data[:1], first)  # without a graph, as beside the other: kernels may differ
        if not is_close(alone, beside, within, _rounding(run, data[:1], first, last)):
            raise ModelError(MIXING)


def _precisions(network: Network) -> set[torch.dtype]:
    """The floating types of the weights and of what is attributed."""
    types = {p.dtype for _, module in network.model.modules for p in module.parameters(recurse=False)}
    types |= {dtype for _, _, dtype in network.inputs.attributed}
    return {dtype for dtype in types if dtype.is_floating_point}


def tolerance(network: Network) -> float:
    """How much of the largest score may change when a sample is scored in another batch: rounding, and TF32's."""
    types = _precisions(network)
    if types == {torch.float64}:
        return 1e-6
    in_half = types & {torch.float16, torch.bfloat16} or torch.is_autocast_enabled(network.inputs.data.device.type)
    return 1e-1 if in_half else 1e-2


def is_close(tensor: Tensor, other: Tensor, relative: float, absolute: float = 0.0) -> bool:
    """Equal up to what batching changes in the rounding; a NaN is judged later, where it can be located."""
    scale = max(1e-6, float(tensor.detach().abs().nan_to_num(posinf=0.0).max()))
    return torch.allclose(tensor, other.to(tensor.dtype), rtol=relative, atol=relative * scale + absolute, equal_nan=True)


def _rounding(run: Callable[[Tensor, Tensor], Tensor], sample: Tensor, row: Tensor, last: float) -> float:
    """How far the scores of a sample move when it changes in its last digits, `last` times itself.

    Where large numbers cancel inside the network, scores in another batch differ by more than their own rounding: logits that
    are differences of numbers around 1e5 by 0.01. Nothing, if the scores move by themselves.
    """
    if not last or not torch.equal(run(sample, row), run(sample, row)):
        return 0.0
    moved = torch.stack([run(sample * (1 + k * last), row) for k in (-4, -2, 0, 2, 4)])
    return 4 * float((moved.amax(dim=0) - moved.amin(dim=0)).nan_to_num().max())
