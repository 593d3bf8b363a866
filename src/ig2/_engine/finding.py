"""Where in a network a representation, an activation or a cut is read: found in a pass of the first explicand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import Node

from ig2._engine.layers import Intermediate, LinearCall, LinearCalls, Readings, is_tracked, node_of, nodes_before
from ig2._engine.network import Network
from ig2.errors import ModelError
from ig2.model import SCRIPTED, Layer

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
NAME_PLACES = (
    "name a layer whose output is (n, channels, places …), layer='features.7', or the tokens of a transformer's patches, "
    "ig2.GradCAM('blocks.11.norm1'). Where they lie in another order, say how: arrange=lambda t: ..."
)


def find_representation(network: Network) -> tuple[Layer | Literal["output"], int]:
    """Return the layer a model's representation is read from, and which of its calls it is.

    It is what the user named, or the last linear layer on the way from every attributed input to
    the output.
    """
    layer = network.model.representation
    if layer is not None:
        return (find_running(network, layer, "representation") if isinstance(layer, Layer) else layer), 1
    modules = network.modules
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
    """Return whether its input has one row for one sample, as the proposals of a detector have
    not."""
    return len(call.shape) <= 1 or call.shape[0] == 1


def find_activation(network: Network) -> Intermediate:
    """Return what the last convolution with places comes to.

    It is the last tensor with its places that is made of it on the way from every attributed
    input to the output, after its norm, its activation and the sum with what went around it.

    Grad-CAM, LayerCAM and HiResCAM explain rectified maps: on 40 photos and an EfficientNet, Grad-CAM had a GT-SUM of .738
    before the activation and .814 after it.
    """
    steps: list[tuple[Node, torch.Size, Intermediate]] = []
    convolutions: list[tuple[Node, int, bool]] = []  # how many steps there were with it, and whether it cuts into patches

    def note(step: Intermediate, args: Sequence[Any], result: Tensor) -> None:
        if not is_tracked(result) or result.ndim not in (3, 4, 5) or result.shape[0] != 1 or result.shape[2:].numel() < 2:
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
    """Return the layers that all of the input passes through and that return places.

    These return tensors of so many axes, (n, channels, *places). On each grid of places it is the
    last one, from the finest grid to the coarsest.
    """
    modules = [(name, module) for name, module in network.modules if name]
    with Readings([module for _, module in modules]) as readings:
        leaves, scores = _forward_first(network)
    end, inputs = node_of(scores), {node_of(leaf) for leaf in leaves}
    cuts: dict[tuple[int, ...], Layer] = {}
    depths: dict[tuple[int, ...], int] = {}  # how much of the network lies before each
    for (name, module), outputs in zip(modules, readings.outputs, strict=True):
        result = outputs[0] if len(outputs) == 1 else None
        if not isinstance(result, Tensor) or not is_tracked(result) or result.ndim != axes:
            continue
        if result.shape[0] != 1 or result.shape[2:].numel() < 2:  # several rows are, for example, a detector's proposals
            continue
        grid, node = tuple(result.shape[2:]), node_of(result)
        depth = len(nodes_before(node))
        if depth > depths.get(grid, 0) and inputs.isdisjoint(nodes_before(end, without=node)):
            cuts[grid], depths[grid] = Layer(name, module, "output"), depth
    return sorted(cuts.items(), key=lambda cut: cut[0], reverse=True)


def _forward_first(network: Network) -> tuple[list[Tensor], Tensor]:
    """Return the first explicand, input by input, and its scores with a graph."""
    data = network.inputs.data
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in network.inputs.split(data[:1])]
    with torch.enable_grad():
        return leaves, network.model.scores(network.forward(leaves, network.first), 1)


def find_running(network: Network, layer: Layer, name: str) -> Layer:
    """Return the layer, which the user calls `name`, if a forward pass runs it a single time.

    In place of one that never runs, the only one that has its weights and runs once: of an encoder and a decoder with the same
    embeddings, transformers names a third module.

    Raises:
        ModelError: if there is none.
    """
    weights = {weight.data_ptr() for weight in layer.module.parameters() if weight.numel()}
    alike = [
        Layer(other, module, layer.side)
        for other, module in network.modules
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
