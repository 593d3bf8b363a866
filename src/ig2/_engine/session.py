"""The one place that runs the network: scores, representations, and the two gradients of a step from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ig2._engine.acceleration import Step, compiled, prepare, replayed
from ig2._engine.inputs import Inputs
from ig2._engine.inspection import RandomState, inspect, run_first, same, tolerance
from ig2._engine.isolation import CopyError, opened
from ig2._engine.layers import LinearCalls, in_this_thread, node_of, nodes_before
from ig2._engine.memory import is_out_of_memory
from ig2._engine.network import Network
from ig2.errors import ModelError, describe
from ig2.model import SCRIPTED, Layer, Model

Distance = Callable[[Tensor, Tensor], Tensor]
# Whether the output's gradient is wanted, the distance if one is, whether its gradient is, how many points.
StepKey = tuple[bool, Distance | None, bool, int]
Way = Callable[[Step, Sequence[Tensor]], Step]

# How often a size of batch has to come before its step is recorded.
WORTH_RECORDING = 8
# Steps of batches that take less memory than this leave a GPU waiting for the next kernel.
MOST_REPLAYED = 2 << 30
# Of the first batch of each size, the first and the last point are run through the network itself as well: a kernel that is
# wrong at this size is wrong in all of it.
COMPARED = 2
# How far, as a share of its length, a gradient of the prepared network may be off; a kernel that is wrong is off by more than
# one. Rounding turns a unit on or off here and there, in half precision many.
GRADIENT_WITHIN = 0.2
GRADIENT_WITHIN_IN_HALF = 0.5
GRADIENT_WITHIN_IF_CAST = 1.2


@dataclass(frozen=True)
class Evaluation:
    """What was asked of the network at n points."""

    output: Tensor  # f, (n,)
    gradient: Tensor | None = None  # of f by the points, (n, ...)
    distance: Tensor | None = None  # between the representations of points and references, (n,)
    ascent: Tensor | None = None  # gradient of the distance by the points, (n, ...)

    def map(self, change: Callable[[Tensor], Tensor]) -> Evaluation:
        """The same, with each tensor changed."""
        return Evaluation(
            change(self.output), *(t if t is None else change(t) for t in (self.gradient, self.distance, self.ascent))
        )

    def at(self, which: Tensor) -> Evaluation:
        """The same for some of n points, where each tensor is (T, n, ...)."""
        return self.map(lambda values: values[:, which])


class Session:
    """A network opened for the length of one call, and left exactly as it was.

    Inside, the work is done on modules of our own wherever the network can be copied (see `isolation`), and on a faster copy
    of it where one gives the same scores and gradients (`acceleration`). Opening runs the first sample through the network
    three times, the last time beside another, to see that it can be explained (`inspection`).
    """

    def __init__(self, model: Model, inputs: Inputs, check_mixing: bool = True, prepares: bool = True) -> None:
        self.inputs = inputs
        self.check_mixing = check_mixing
        self.bytes_per_point = 0
        self.preparation: dict[str, Any] = {}  # what was done to make the network fast, and what could not be
        self._wish = model.preparation if prepares else None  # it does not pay for a few passes
        self._recorded: dict[StepKey, Step] = {}
        self._seen: dict[StepKey, int] = {}
        self._compared: set[int] = set()  # sizes of batches whose scores were compared
        self._undo = ExitStack()
        self._plain = Network(model, inputs)  # the network itself
        self._network = self._plain  # what is run: that, or a faster copy
        self._copies: Mapping[str, nn.Module] = {}  # the faster copy's modules by the names of the network's own

    @property
    def model(self) -> Model:
        """The model that is run."""
        return self._network.model

    @property
    def device(self) -> torch.device:
        return self.inputs.data.device

    @property
    def where(self) -> str | None:
        """What the representation is, in words, if it was read."""
        return None if self._plain.layer is None else self._plain.where

    # -- opening and closing -------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        try:
            self._plain.model = self._undo.enter_context(opened(self._plain.model, self.inputs.data.is_cuda))
            self._undo.callback(self._plain.close)
            random_state = RandomState(self.device)
            inspection = inspect(self._plain, self.check_mixing)
            self.bytes_per_point = inspection.bytes_per_point
            if inspection.draws:  # numbers it does not use: what it drew is put back
                self._undo.callback(random_state.restore)
            self._prepare()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()
        self._recorded.clear()

    def _prepare(self) -> None:
        """Go on with a copy of the network that runs faster, if there is one."""
        if self._wish is None:
            return
        first = torch.zeros(1, dtype=torch.long, device=self.device)

        def run(model: Model) -> Tensor:
            return Network(model, self.inputs).scores_alone(self.inputs.data[:1], first)

        try:
            prepared = prepare(self._plain.model, self._wish, run)
        except Exception as error:
            self.preparation["left as it is"] = _reason(error)
            return
        if prepared is None:
            return
        self._network = Network(prepared.model, self.inputs)
        self._undo.callback(self._network.close)
        self._copies = prepared.modules
        self.preparation.update(prepared.done)
        memory = self.bytes_per_point
        try:
            scores, self.bytes_per_point = run_first(self._network)
            agrees = self.agrees(self.inputs.data[:1], first, scores)
        except Exception as error:
            agrees = False
            self._fall_back(_reason(error))
        if not agrees:
            self.bytes_per_point = memory
        self._network.writes, self._network.reenters = self._plain.writes, self._plain.reenters
        self._network.channels_last = self.is_prepared and "channels_last" in self.preparation

    def _fall_back(self, reason: str) -> None:
        """Go on with the network as it is."""
        self._network.close()
        self._network = self._plain
        self._recorded.clear()
        self.preparation = {"left as it is": reason}

    @property
    def is_prepared(self) -> bool:
        """Whether a faster copy is run."""
        return self._network is not self._plain

    def agrees(self, points: Tensor, rows: Tensor, scores: Tensor) -> bool:
        """Whether the network itself gives these scores (n, classes); if it does not, it is used from here on.

        Always true where the network is run as it is.
        """
        return not self.is_prepared or self._accept(self._plain.scores_alone(points, rows), scores)

    def agrees_on(self, points: Tensor, rows: Tensor, target: Tensor, output: Tensor) -> bool:
        """The same for the output of one class at each point, (n,)."""
        if not self.is_prepared:
            return True
        own = self._plain.scores_alone(points, rows).gather(1, target[:, None])
        return self._accept(own, output[:, None])

    def _accept(self, own: Tensor, prepared: Tensor) -> bool:
        if self._same_scores(own, prepared.to(own.dtype)):
            return True
        self._fall_back("the copy gave other scores")
        return False

    def _same_scores(self, own: Tensor, prepared: Tensor) -> bool:
        within = tolerance(self._plain)
        if self._wish is not None and self._wish.precision in ("bfloat16", "float16"):
            within = 1e-1
        elif within == 1e-2 and self.device.type != "cuda":  # on a GPU convolutions may round to TF32
            within = 1e-3
        return same(own, prepared, within)

    def _same_gradients(self, own: Tensor, prepared: Tensor) -> bool:
        """Whether each point's gradient is the same up to rounding."""
        within = GRADIENT_WITHIN
        if "precision" in self.preparation:
            within = GRADIENT_WITHIN_IF_CAST
        elif tolerance(self._plain) > 1e-2:
            within = GRADIENT_WITHIN_IN_HALF
        own, prepared = own.flatten(1).double(), prepared.flatten(1).double()
        off = (own - prepared).norm(dim=1)
        # a gradient of the network's own that is not finite is named later, where it can be located
        return bool((off <= within * own.norm(dim=1)).logical_or(~own.isfinite().all(dim=1)).all())

    # -- running -------------------------------------------------------------------------------------------------------

    def laid_out(self, samples: Tensor) -> Tensor:
        """Samples (n, ...) in the memory layout the network takes: points that are so need no copy at every step."""
        last = self.preparation.get("channels_last") and samples.ndim == 4
        return samples.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)

    def scores(self, points: Tensor, rows: Tensor) -> Tensor:
        """The explained outputs of all classes at the points, (n, classes)."""
        scores = self._run(points, rows)
        if self.is_prepared and len(points) not in self._compared:
            self._compared.add(len(points))
            which = self._few(len(points))
            if not self.agrees(points[which], rows[which], scores[which]):
                return self._network.scores_alone(points, rows)
        return scores

    def _run(self, points: Tensor, rows: Tensor) -> Tensor:
        """The scores by what is run: where a faster copy fails, the network itself from here on."""
        try:
            return self._network.scores_alone(points, rows)
        except Exception as error:
            if not self.is_prepared or is_out_of_memory(error):
                raise
            self._fall_back(_reason(error))
            return self._network.scores_alone(points, rows)

    def _few(self, count: int) -> Tensor:
        """Which of `count` points are compared: some from the first to the last."""
        return torch.linspace(0, count - 1, min(count, COMPARED), device=self.device).round().long()

    def scores_with_graph(self, points: Tensor, rows: Tensor) -> Tensor:
        """The same with autograd's graph back to the points, for a method that makes its own gradient of it."""
        with torch.enable_grad():
            return self._network.scores(points, rows)

    def differentiate(self, output: Tensor, points: Tensor) -> Tensor:
        """The gradient of the sum of what `scores_with_graph` gave, or was made of it, by its points."""
        (gradient,) = self._network.differentiate(output, [points])
        return torch.zeros_like(points) if gradient is None else gradient

    def representation(self, points: Tensor, rows: Tensor) -> Tensor:
        """The representation at the points, (n, features)."""
        return self.represent(points, rows)[0]

    def represent(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The representation at the points, (n, features), and the explained outputs of all classes, (n, classes)."""
        self._open_layer()
        scores = self._run(points, rows)
        representation = self._network.representation(len(rows)).detach()
        if not self.agrees(points, rows, scores):
            return self.represent(points, rows)
        return representation, scores

    def evaluate(
        self,
        points: Tensor,
        rows: Tensor,
        target: Tensor,
        *,
        gradient: bool = True,
        distance: Distance | None = None,
        ascent: bool = True,
        reference: Tensor | None = None,
    ) -> Evaluation:
        """One forward pass at the points, and the gradients asked for.

        Args:
            points: (n, ...), in the data space.
            rows: the explicand each point belongs to, (n,), for inputs that are fixed.
            target: the class explained at each point, (n,).
            gradient: whether the gradient of the output is wanted.
            distance: a function of two representations (n, features) to (n,), if it is wanted.
            ascent: whether the distance's gradient is wanted too.
            reference: the representation of each point's reference, (n, features).
        """
        if not gradient and distance is None:
            return Evaluation(self.scores(points, rows).gather(1, target[:, None])[:, 0])
        if distance is not None:
            self._open_layer()
        args = [points, rows, target]
        if distance is not None:
            assert reference is not None
            args.append(reference)
        values = list(self._fastest(gradient, distance, ascent and distance is not None, args))
        output = values.pop(0)
        slope = values.pop(0) if gradient else None
        return Evaluation(output, slope, *values)

    def _step(
        self,
        network: Network,
        gradient: bool,
        distance: Distance | None,
        ascent: bool,
        points: Tensor,
        rows: Tensor,
        target: Tensor,
        reference: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The output; its gradient, if wanted; the distance, if wanted; the gradient of that, if wanted."""
        points = points.detach().requires_grad_()
        far = None
        with torch.set_grad_enabled(gradient or ascent or network.differentiates):
            output = network.scores(points, rows).gather(1, target[:, None])[:, 0]
            if distance is not None:
                assert reference is not None
                far = distance(network.representation(len(rows)), reference)
                self._check_distance(far, len(rows), ascent)
        # Each pair's gradient is its own: samples do not mix, so the gradient of the sum is the rows' gradients.
        values = [output.detach()]
        if gradient:
            (slope,) = network.differentiate(output, [points], retain=ascent)
            values.append(self.laid_out(torch.zeros_like(points) if slope is None else slope))
        if far is not None:
            values.append(far.detach())
            if ascent:
                (uphill,) = network.differentiate(far, [points])
                values.append(self.laid_out(torch.zeros_like(points) if uphill is None else uphill))
        network.forget()
        return tuple(values)

    def _fastest(self, gradient: bool, distance: Distance | None, ascent: bool, args: list[Tensor]) -> tuple[Tensor, ...]:
        """A step, recorded if that was wished for and its size comes again and again."""
        count = len(args[0])
        size = self._recorded_size(gradient, distance, ascent, count)
        if size is not None:
            spare = size - count
            padded = [torch.cat([arg, arg[:1].expand(spare, *arg.shape[1:])]) if spare else arg for arg in args]
            values = self._recorded[gradient, distance, ascent, size](*padded)
            return tuple(tensor[:count] for tensor in values) if spare else values
        key, step = (gradient, distance, ascent, count), partial(self._step, self._network, gradient, distance, ascent)
        self._seen[key] = self._seen.get(key, 0) + 1
        ways = self._ways(count)
        try:
            values = step(*args)
        except Exception as error:
            if not self.is_prepared or is_out_of_memory(error):
                raise
            self._fall_back(_reason(error))
            return self._step(self._network, gradient, distance, ascent, *args)
        if self._seen[key] == 1 and self.is_prepared and not self._compare(key, args, values):
            return self._step(self._network, gradient, distance, ascent, *args)
        if not ways or self._seen[key] < (2 if compiled in ways and self._kept(key) else WORTH_RECORDING):
            return values
        for way in ways:
            recorded = self._try(way, key, step, args, values)
            if recorded is not None:
                self._recorded[key] = recorded
                break
        else:
            self._seen[key] = -(1 << 60)  # do not try again
        return values

    def _compare(self, key: StepKey, args: Sequence[Tensor], values: Sequence[Tensor]) -> bool:
        """Whether the network itself gives these values on a few of the points; if it does not, it is used from here on."""
        gradient, distance, ascent, count = key
        which = self._few(count)
        own = self._step(self._plain, gradient, distance, ascent, *(arg[which] for arg in args))
        for one, other in zip(own, values, strict=True):
            is_gradient = one.ndim > 1
            if not (self._same_gradients if is_gradient else self._same_scores)(one, other[which]):
                self._fall_back(f"the copy gave other {'gradients' if is_gradient else 'scores'}")
                return False
        return True

    def _recorded_size(self, gradient: bool, distance: Distance | None, ascent: bool, count: int) -> int | None:
        """The smallest recorded batch that these points fill by more than half."""
        sizes = [size for *kind, size in self._recorded if kind == [gradient, distance, ascent]]
        return min((size for size in sizes if count <= size < 2 * count), default=None)

    def _ways(self, count: int) -> list[Way]:
        """How a step of so many points is to be recorded: the first way that works."""
        wish = self._wish
        if wish is None or torch.is_autocast_enabled(self.device.type):
            return []
        ways: list[Way] = [compiled] if wish.compile else []
        if wish.graphs and self.device.type == "cuda" and count * self.bytes_per_point <= MOST_REPLAYED:
            ways.append(replayed)
        return ways

    def _try(self, way: Way, key: StepKey, step: Step, args: list[Tensor], values: tuple[Tensor, ...]) -> Step | None:
        """The step, recorded, if it can be and then gives what the step itself gave."""
        name = way.__name__
        # a recording of CUDA kernels holds memory, and lives as long as the session; compiled code outlives it
        kept = self._kept(key) if way is compiled else None
        try:
            recorded = kept or way(step, args)
            again = recorded(*args)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self.preparation[name] = f"no: {_first_line(error)}"
            return None
        # gradients of a network in half precision are rounded differently in other code, and are not compared
        within = tolerance(self._network)
        checked = range(len(values)) if within <= 1e-2 else [0]
        if not all(same(values[i], again[i], within) for i in checked):
            self.preparation[name] = "no: it gave other values"
            return None
        self.preparation[name] = True
        if way is compiled:
            self.model.compiled[self._compiled_key(key)] = (self._weights(), recorded)
        return recorded

    def _kept(self, key: StepKey) -> Step | None:
        """Code compiled in an earlier call, if the weights are still those."""
        weights, step = self.model.compiled.get(self._compiled_key(key), ([], None))
        mine = self._weights()
        unchanged = len(weights) == len(mine) and all(
            a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(weights, mine, strict=True)
        )
        return step if unchanged else None

    def _compiled_key(self, key: StepKey) -> Any:
        return (*key, self.inputs.attributed, self.model.output, self.where, self._plain.call, self._wish, self.device)

    def _weights(self) -> list[Tensor]:
        return [t for _, m in self.model.modules for t in [*m.parameters(False), *m.buffers(False)]]

    def _check_distance(self, far: object, rows: int, ascent: bool) -> None:
        if not isinstance(far, Tensor) or far.shape != (rows,):
            raise ModelError(f"the distance between {rows} pairs of representations is {describe(far)}: expected ({rows},)")
        if ascent and not far.requires_grad:
            raise ModelError(
                f"the distance at the {self.where} has no gradient by the input: that layer does not see the input, or "
                "something on the way (.detach(), numpy) cuts it off. Name another one: ig2.wrap(net, representation=...)"
            )

    # -- the representation --------------------------------------------------------------------------------------------

    def _open_layer(self) -> None:
        """Find the layer on first use and read it from then on."""
        if self._plain.layer is None:
            layer, call = self._plain.model.representation, 1
            if layer is None:
                layer, call = self._last_linear()
            elif isinstance(layer, Layer):
                self._check_runs_once(layer)
            self._plain.read(layer, call)
        if self._network.layer is None:
            layer = self._plain.layer
            if isinstance(layer, Layer) and layer.name in self._copies:
                layer = replace(layer, module=self._copies[layer.name])
            assert layer is not None
            self._network.read(layer, self._plain.call)

    def _forward_first(self) -> tuple[list[Tensor], Tensor]:
        """The first explicand, input by input, and its scores with a graph, for looking at how the network works."""
        row = torch.zeros(1, dtype=torch.long, device=self.device)
        leaves = [t.detach().clone().requires_grad_() for t in self.inputs.split(self.inputs.data[:1])]
        with torch.enable_grad():
            return leaves, self._plain.model.scores(self._plain.forward(leaves, row), 1)

    def _check_runs_once(self, layer: Layer) -> None:
        count = 0

        def hook(*_: Any) -> None:
            nonlocal count
            count += 1

        handle = layer.module.register_forward_pre_hook(in_this_thread(hook))
        try:
            self._forward_first()
        finally:
            handle.remove()
        if count != 1:
            raise ModelError(
                f"representation {layer.name!r} runs {count} times in one forward pass, so its {layer.side} is "
                f"{'never there' if count == 0 else 'ambiguous'}; name a module that runs once"
            )

    def _last_linear(self) -> tuple[Layer | Literal["output"], int]:
        """The last linear layer on the way from every attributed input to the output, and which of its calls that is."""
        with LinearCalls(self._plain.model.modules) as calls:
            leaves, scores = self._forward_first()
        if not calls.found and any(isinstance(module, torch.jit.ScriptModule) for _, module in self._plain.model.modules):
            raise ModelError(f"the last linear layer is not found: {SCRIPTED}")
        used = nodes_before(node_of(scores))
        inputs = {node_of(leaf) for leaf in leaves}
        for call in reversed(calls.found):
            # of two towers whose outputs are compared, the last layer sees one input alone
            if call.node not in used or not inputs <= nodes_before(call.node):
                continue
            if call.module is None:
                raise ModelError(
                    f"the last linear map of this network is a call of {call.name}, not a layer that can be read. Say where "
                    "the representation is: ig2.wrap(net, representation=...) with a module or its name (its output), "
                    "'name:input', or 'output'"
                )
            return Layer(call.name, call.module, "input"), call.number
        return "output", 1


def _reason(error: Exception) -> str:
    """Why there is no faster copy."""
    if is_out_of_memory(error):
        return "no memory for a copy"
    return str(error) if isinstance(error, CopyError) else _first_line(error)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
