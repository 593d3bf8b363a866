"""A model's network as it is run: what it is called with, and the layer on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from ig2._engine.activations import first_result, first_tensor, put, put_first
from ig2._engine.explicands import Explicands
from ig2._engine.isolation import uncompiled
from ig2._engine.layers import Intermediate, Intermediates, NoteIntermediate, in_this_thread, node_of, nodes_before
from ig2._engine.layouts import Layouts, may_misread
from ig2._engine.private import version_of
from ig2.errors import ModelError, describe
from ig2.model import Layer, Model
from ig2.targets import find_tensor

# What autograd says where a network takes gradients in its forward pass and no graph is kept.
WITHOUT_GRAPH = "does not require grad"


@dataclass
class Habits:
    """What a network was seen to do, by which it is run."""

    writes: bool | None = None  # whether it writes into its input, once that is known
    differentiates: bool = False  # whether it takes gradients in its forward pass, which need a graph
    reenters: bool = False  # whether it has checkpoints with re-entry
    # whether the gradient of one point, and that of several, may meet a layout that is misread
    misread_alone: bool = False
    misread_beside: bool = False
    in_pairs: bool = False  # whether a single point must be run beside a copy of itself
    singly: bool = False  # whether points must be run one at a time


class Folded(nn.Module):
    """In the place of a normalisation that went into the layer in front of it."""

    ran = False

    def forward(self, x: Tensor) -> Tensor:
        """Pass on what was normalised already."""
        self.ran = True
        return x


class Network:
    """Runs a model on points of the data space, and reads its representation once a layer was chosen."""

    def __init__(self, model: Model, inputs: Explicands, habits: Habits | None = None) -> None:
        self.model, self.inputs, self.habits = model, inputs, habits or Habits()
        self.channels_last = False  # the memory layout of its points
        self.against: Tensor | None = None  # the classes each explicand is explained against, (explicands, K)
        self.layer: Layer | Intermediate | Literal["output"] | None = None  # what is read
        self.call = 1  # which of the layer's calls in one forward pass
        self._calls = 0
        self._activation: Tensor | None = None
        self._stop_reading: Callable[[], None] = lambda: None
        self.layouts = Layouts()  # type: ignore[no-untyped-call]
        self._note: NoteIntermediate | None = None  # called with what torch's functions return

    @cached_property
    def modules(self) -> list[tuple[str, nn.Module]]:
        """Those of its model; on a network of some layers, to collect them takes as long as half a pass."""
        return self.model.modules

    @cached_property
    def precisions(self) -> set[torch.dtype]:
        """The floating types of the weights and of what is attributed."""
        types = {p.dtype for _, module in self.modules for p in module.parameters(recurse=False)}
        types |= {dtype for _, _, dtype in self.inputs.attributed}
        return {dtype for dtype in types if dtype.is_floating_point}

    @cached_property
    def folded(self) -> list[Folded]:
        """What has to run in every pass."""
        return [module for _, module in self.modules if isinstance(module, Folded)]

    @property
    def first(self) -> Tensor:
        """The row of the first explicand, (1,)."""
        return torch.zeros(1, dtype=torch.long, device=self.inputs.data.device)

    def forward(self, tensors: Sequence[Tensor], rows: Tensor) -> Any:
        """Return what the network returns for the attributed tensors; row i has the fixed inputs of
        explicand `rows[i]`."""
        # a network that starts with an in-place operation must not write into its own input
        points = [tensor.clone() if self.habits.writes is not False else tensor for tensor in tensors]
        if not self.channels_last:  # the points may have been laid out for a copy that was given up
            points = [tensor.contiguous() for tensor in points]
        versions = [version_of(tensor) for tensor in points]
        args, kwargs = self.inputs.arguments(points, rows)
        self._calls, self._activation = 0, None
        for module in self.folded:
            module.ran = False
        with uncompiled, nullcontext() if self._note is None else Intermediates(self._note):
            args, kwargs = self.model.preprocessed(args, kwargs)
            result = self.model.net(*args, **kwargs)
        if not all(module.ran for module in self.folded):
            # a layer with its normalisation in it may have run without it
            raise ModelError("the network goes another way than for the first explicand: use ig2.wrap(net, prepare=False)")
        if self.habits.writes is not True and versions != [version_of(tensor) for tensor in points]:
            if self.habits.writes is False:
                raise ModelError("the network writes into its input, and did not at first: give it a copy, net(x.clone())")
            self.habits.writes = True
        return result

    def scores(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the explained outputs of all classes, (n, classes); less those explained against,
        once they were chosen."""
        if self.habits.in_pairs and len(rows) == 1:  # what is read of layers has two rows then
            return self.scores(torch.cat([points, points]), rows.expand(2))[:1]
        raw = self.forward(self.inputs.split(points), rows)
        scores = self.model.scores(raw, len(rows), rows).to(self.inputs.data.device)
        if self.layer == "output":
            activation = scores if callable(self.model.output) else self._find_logits(raw, scores)
            # as `Model.scores` does: a network that ends with squeeze() loses the batch axis of a single sample
            self._activation = activation.reshape(1, -1) if len(rows) == 1 and activation.ndim < 2 else activation
        return scores if self.against is None else contrast(scores, self.against[rows])

    def _find_logits(self, raw: Any, scores: Tensor) -> Tensor:
        """Return the network's output as one tensor; where a target reads what is none, a
        detector's list of dicts, its scores."""
        if self.model.target is None:
            return self.model.logits(raw)
        try:
            return find_tensor(raw)
        except ModelError:
            return scores

    def scores_alone(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the same without autograd's graph."""
        if not self.habits.differentiates:
            try:
                with torch.no_grad():
                    return self.scores(points, rows)
            except RuntimeError as error:
                if WITHOUT_GRAPH not in str(error):
                    raise
                self.habits.differentiates = True
        with torch.enable_grad():
            return self.scores(points.detach().requires_grad_(), rows).detach()

    def differentiate(self, output: Tensor, leaves: Sequence[Tensor], retain: bool = False) -> list[Tensor | None]:
        """Return the gradient of the sum of `output` by each of the leaves; None for one that does
        not reach it."""
        # the cotangent is made whole: an expanded one made a matrix product 5 times slower on a CPU
        ones, kind, habits = torch.ones_like(output), output.device.type, self.habits
        with ExitStack() as around:
            if torch.is_autocast_enabled(kind):
                # it is for forward passes, and in bfloat16 refuses what the backward pass of a float16 network does
                around.enter_context(torch.autocast(kind, enabled=False))
            # of a sum over points it does not show how many they are
            several = habits.misread_beside or (output.ndim == 0 and habits.misread_alone)
            if habits.misread_alone if output.shape == (1,) else several:
                around.enter_context(self.layouts)
            if not self.habits.reenters:
                return list(torch.autograd.grad(output, leaves, ones, retain_graph=retain, allow_unused=True))
            # this fills .grad of every leaf that requires a gradient, which are ours alone, and of activations if asked
            for leaf in leaves:
                leaf.retain_grad()
            torch.autograd.backward(output, ones, retain_graph=retain)
        gradients = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        return gradients

    def gradient(self, output: Tensor, points: Tensor, retain: bool = False) -> Tensor:
        """Return the gradient of the sum of `output` by the points; zero where they do not reach
        it."""
        (gradient,) = self.differentiate(output, [points], retain)
        return torch.zeros_like(points) if gradient is None else gradient

    def look_at_graph(self, scores: Tensor) -> set[Node]:
        """Find out by the nodes of a pass's graph, which it returns, how gradients must be taken."""
        nodes = nodes_before(node_of(scores))
        # they run a backward pass of their own, which torch.autograd.grad does not allow
        self.habits.reenters = any("CheckpointFunction" in node.name() for node in nodes)
        if self.habits.reenters and any(p.requires_grad for _, m in self.modules for p in m.parameters(recurse=False)):
            raise ModelError(
                "the network uses torch.utils.checkpoint with use_reentrant=True inside a function, where its weights would "
                "collect gradients: use use_reentrant=False, or wrap the module itself"
            )
        misread = scores.device.type == "cpu" and any(map(may_misread, nodes))
        if len(scores) == 1:
            self.habits.misread_alone = misread
        # of several points it is looked for again, since samples may be laid end to end in the axis of channels
        self.habits.misread_beside = misread
        return nodes

    def watch(self, note: NoteIntermediate | None) -> None:
        """Call a function with all tensors that torch's functions return in the forward passes from now on; or none."""
        self._note = note

    def read(self, layer: Layer | Intermediate | Literal["output"], call: int) -> None:
        """Read this layer from now on, at one of its calls in a forward pass."""
        if isinstance(layer, Intermediate):
            self.watch(self._read_step)
        if isinstance(layer, Layer):
            if layer.side == "input":
                handle = layer.module.register_forward_pre_hook(in_this_thread(self._read_input), with_kwargs=True)
            else:
                handle = layer.module.register_forward_hook(in_this_thread(self._read_output))
            self._stop_reading = handle.remove
        self.layer, self.call = layer, call

    def read_as(self, other: Network, modules: Mapping[str, nn.Module]) -> None:
        """Read the layer that another network reads, if it does, by its name among this network's modules."""
        layer = other.layer
        if isinstance(layer, Layer) and layer.name in modules:
            layer = replace(layer, module=modules[layer.name])
        if layer is not None:
            self.read(layer, other.call)

    def close(self) -> None:
        """Read nothing any more."""
        self._stop_reading()
        self.watch(None)
        self.forget()

    def forget(self) -> None:
        """Let go of what was read: it holds the graph of a forward pass."""
        self._activation = None

    @property
    def where(self) -> str:
        """The layer that is read, in words."""
        if isinstance(self.layer, Intermediate):
            return f"result of {self.layer.function}, call {self.layer.number} of a function"
        return f"{self.layer.side} of {self.layer.name!r}" if isinstance(self.layer, Layer) else "output of the network"

    def activation(self, rows: int, advice: str) -> Tensor:
        """Return what was read in the last forward pass, (rows, ...).

        Of a single point that was run beside a copy of itself it has that row too.
        """
        activation, self._activation = self._activation, None
        if activation is None:
            raise ModelError(f"the {self.where} was not read: the layer did not run in this forward pass; {advice}")
        if activation.ndim == 0 or activation.shape[0] != rows + (self.habits.in_pairs and rows == 1):
            raise ModelError(
                f"the {self.where} is {describe(activation)} for {rows} samples: it needs one row a sample; {advice}"
            )
        return activation

    def representation(self, rows: int) -> Tensor:
        """Return what was read in the last forward pass, (rows, features)."""
        activation = self.activation(rows, "name another one for the representation: ig2.wrap(net, representation=...)")[:rows]
        # of a network on several devices it may be on another one than the points
        features = (activation.flatten(1) if activation.ndim > 1 else activation[:, None]).to(self.inputs.data.device)
        return features if features.dtype in (torch.float32, torch.float64) else features.float()

    def _read_step(self, step: Intermediate, args: Sequence[Any], result: Tensor) -> None:
        if step == self.layer:
            self._activation = result

    # Both hooks hand a copy on: a layer that writes into its input, such as an in-place ReLU, would otherwise change the
    # representation behind our back.

    def _read_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._calls += 1
        if self._calls != self.call:
            return None
        self._activation = first_tensor(args, kwargs)
        return put_first(args, kwargs, self._activation.clone())

    def _read_output(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> Any:
        self._calls += 1
        if self._calls != self.call:
            return None
        self._activation = first_result(result)
        return put(result, self._activation.clone())


def contrast(scores: Tensor, against: Tensor) -> Tensor:
    """Return scores (n, classes) less the mean of those of the classes `against` (n, K) [Yin 2022].

    Of every class, so that whoever picks the class explained, or takes its gradient, needs to know nothing of it.
    """
    return scores - scores.gather(1, against).mean(dim=1, keepdim=True)
