"""The one place that runs the network: scores, representations, and the two gradients of a step from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ig2.errors import IG2Error, ModelError, describe, reason, warn
from ig2.guards import opened, uncompiled
from ig2.inputs import Inputs
from ig2.layers import LinearCalls, in_this_thread
from ig2.memory import Written, is_out_of_memory
from ig2.model import SCRIPTED, Layer, Model
from ig2.prepare import prepare
from ig2.record import Step, compiled, replayed

Distance = Callable[[Tensor, Tensor], Tensor]
StepKey = tuple[bool, Distance | None, int]  # whether the output's gradient is wanted, the distance if one is, how many points
Way = Callable[[Step, Sequence[Tensor]], Step]

# How often a size of batch has to come before its step is recorded.
WORTH_RECORDING = 8
# Steps of batches that take less memory than this leave a GPU waiting for the next kernel.
MOST_REPLAYED = 2 << 30

# What autograd says where a network takes gradients in its forward pass and no graph is kept.
WITHOUT_GRAPH = "does not require grad"

RANDOM = (
    "two passes of the same sample gave different scores: the network draws random numbers (dropout left on?). Call "
    "net.eval(), or make the pass deterministic"
)
MIXING = (
    "the same sample scored differently alone and beside another one: samples of a batch mix (batch statistics that are not "
    "frozen?), so a sample has no attribution of its own. Use batch_size=1, or freeze them"
)


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
        return self.map(lambda found: found[:, which])


class Session:
    """A network opened for the length of one call, and left exactly as it was.

    Inside, no parameter requires a gradient and the representation is read by a hook; on the way out, also through an
    exception or Ctrl-C, both are undone. Opening runs the first sample through the network twice, the second time beside
    another, to see that it can be explained: that it is deterministic, that samples do not mix, that every attributed
    input reaches the output.
    """

    def __init__(self, model: Model, inputs: Inputs, check_mixing: bool = True, prepares: bool = True) -> None:
        self.model = model
        self.inputs = inputs
        self.check_mixing = check_mixing
        self.bytes_per_point = 0
        self.preparation: dict[str, Any] = {}  # what was done to make the network fast, and what could not be
        self._wish = model.preparation if prepares else None  # it does not pay for a few passes
        self._recorded: dict[StepKey, Step] = {}
        self._seen: dict[StepKey, int] = {}
        self._undo = ExitStack()
        self._layer: Layer | Literal["output"] | None = None
        self._call = 1  # which of the layer's calls in one forward pass is read
        self._calls = 0
        self._read: Tensor | None = None
        self._differentiates = False  # whether the network takes gradients in its forward pass, which need a graph
        self._writes: bool | None = None  # whether the network writes into its input, once that is known

    # -- opening and closing -------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        try:
            self._undo.enter_context(opened(self.model, self.inputs.data.is_cuda))
            self._prepare(self._inspect())
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()
        self._recorded.clear()
        self._read = None

    def _prepare(self, scores: Tensor) -> None:
        """Go on with a copy of the network that runs faster, if there is one that gives the same scores."""
        if self._wish is None:
            return
        own, memory = self.model, self.bytes_per_point
        try:
            prepared = prepare(own, self._wish, self._run_first)
            if prepared is None:
                return
            self.model = prepared.model
            mine = self._first_pass()
        except Exception as error:
            reason = "no memory for a copy" if is_out_of_memory(error) else _first_line(error)
        else:
            # on a GPU convolutions may round to TF32
            if _same(scores, mine, self._tolerance() if self._tolerance() > 1e-2 or self.device.type == "cuda" else 1e-3):
                self.preparation.update(prepared.done)
                return
            reason = "the copy gave other scores"
        self.model, self.bytes_per_point = own, memory
        self.preparation["left as it is"] = reason

    def _run_first(self, model: Model) -> None:
        """One pass of the first sample."""
        self.model, own = model, self.model
        try:
            self.scores(self.inputs.data[:1], torch.zeros(1, dtype=torch.long, device=self.device))
        finally:
            self.model = own

    def _inspect(self) -> Tensor:
        """Look at the network on the first sample. What it draws at random here is put back."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            before = _random_state(self.device)
            scores = self._first_pass(its_own=True)
            drew = not torch.equal(before, _random_state(self.device))
            self._check_repeats(scores, drew)
            self._writes = bool(self._writes)
            return scores

    def _first_pass(self, its_own: bool = False) -> Tensor:
        """Scores of the first sample; on the way, whether the inputs reach them and how much memory a point takes."""
        first = torch.zeros(1, dtype=torch.long, device=self.device)
        leaves = [t.detach().clone().requires_grad_() for t in self.inputs.split(self.inputs.data[:1])]
        weights = {t.data_ptr() for t in self._weights() if t.layout == torch.strided}
        in_training = [(name, module) for name, module in self.model.modules if module.training]
        written = [(f"{name}.{key}", b, b.clone()) for name, m in in_training for key, b in m.named_buffers(recurse=False)]
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            if tensor.layout == torch.strided and not tensor.is_nested and tensor.data_ptr() not in weights:
                saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        def scored() -> tuple[Any, Tensor]:
            raw = self._forward(leaves, first)
            return raw, self.model.scores(raw, 1)

        with torch.enable_grad():
            try:
                try:
                    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                        raw, scores = scored()
                except RuntimeError as error:
                    if "saved tensor hooks" not in str(error):
                        raise
                    with Written() as everything:  # torch.func takes no such hooks
                        raw, scores = scored()
                    saved = {0: everything.bytes}
            except Exception as error:  # of the user's own code
                if isinstance(error, IG2Error) or is_out_of_memory(error):
                    raise
                raise ModelError(self._failure(leaves, error)) from error
        for name, buffer, copy in written:
            if not torch.equal(buffer, copy):
                raise ModelError(f"the network is in train mode, where a pass changes its {name}. Call net.eval() first")
        self._check_reach(scores, leaves)
        if its_own:
            self._check_logits(raw)
        # forward activations stay for both backward passes, which hold about half as much again at their peak
        self.bytes_per_point = sum(saved.values()) * 3 // 2 + 8 * self.inputs.data[0].nbytes
        return scores.detach()

    def _failure(self, leaves: Sequence[Tensor], error: Exception) -> str:
        weights = {p.dtype for _, m in self.model.modules for p in m.parameters(False) if p.is_floating_point()}
        given = {leaf.dtype for leaf in leaves}
        hint = "x must be a batch (B, ...) of what the network takes"
        if len(weights) == 1 and not given & weights:
            hint = f"its weights are {weights.pop()}: bring x to that with x.to(...)".replace("torch.", "")
        elif self._reads_text():
            hint = (
                "a text network of transformers and its tokenizer go into ig2.adapters.text.from_transformers(net, tokenizer)"
            )
        elif "numpy" in str(error):
            hint = "what leaves PyTorch for NumPy has no gradients: write it in torch"
        elif not self.inputs.keys:
            hint += "; a single sample gets its axis by x[None]"
        elif isinstance(self.inputs.keys[0], int):
            hint = "a tuple or list is the arguments of one call; a list of samples becomes a batch by torch.stack(x)"
        given_text = describe(leaves[0] if len(leaves) == 1 else tuple(leaves))
        return f"the network fails on the first explicand, given {given_text}: {hint}. It said: {reason(error)}"

    def _reads_text(self) -> bool:
        """Whether this is a network of transformers that takes tokens."""
        modules = [module for _, module in self.model.modules]
        return any(isinstance(module, nn.Embedding) for module in modules) and any(
            kind.__module__.startswith("transformers.") for module in modules for kind in type(module).__mro__
        )

    def _check_repeats(self, scores: Tensor, drew: bool) -> None:
        """The first sample must score the same again: in a pass of its own, and beside another sample."""
        data, first = self.inputs.data, torch.zeros(1, dtype=torch.long, device=self.device)
        # dropout of a few features, or of whole layers, may by chance do twice the same
        if drew and any(not torch.equal(scores, self.scores(data[:1], first)) for _ in range(16)):
            raise ModelError(RANDOM)
        points, rows = data[:1], first
        if self.check_mixing:
            # beside a copy of itself its batch statistics would stay as they are
            other = data[-1] if not torch.equal(data[0], data[-1]) else data[0] / 2
            points, rows = torch.stack([data[0], other]), torch.tensor([0, len(data) - 1], device=self.device)
        try:
            beside = self.scores(points, rows)[:1]
        except IG2Error:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                return  # one at a time it will have to be, and then nothing mixes
            text = f"the network takes one sample and fails on two: use batch_size=1. It said: {reason(error)}"
            raise ModelError(text) from error
        tolerance = self._tolerance()
        if not _same(scores, beside, tolerance):
            raise ModelError(MIXING if _same(scores, self.scores(data[:1], first), tolerance) else RANDOM)

    def _tolerance(self) -> float:
        """How much of the largest score may change when a sample is scored in another batch: rounding, and TF32's."""
        types = {p.dtype for _, module in self.model.modules for p in module.parameters(recurse=False)}
        types |= {dtype for _, _, dtype in self.inputs.attributed}
        if types == {torch.float64}:
            return 1e-6
        return 1e-1 if types & {torch.float16, torch.bfloat16} or torch.is_autocast_enabled(self.device.type) else 1e-2

    def _check_reach(self, scores: Tensor, leaves: Sequence[Tensor]) -> None:
        reached = [False] * len(leaves)
        if scores.requires_grad:
            grads = torch.autograd.grad(scores, leaves, torch.ones_like(scores), allow_unused=True)
            reached = [grad is not None for grad in grads]
        if not all(reached):
            keys = [key for (key, _, _), ok in zip(self.inputs.attributed, reached, strict=True) if not ok]
            which = "the input" if len(leaves) == 1 else f"input {keys[0]!r}"
            raise ModelError(
                f"{which} does not reach the output through differentiable operations: look for .detach(), .data, "
                ".item(), torch.no_grad(), rounding or integer indexing in the forward pass"
                + ("" if len(leaves) == 1 else "; or, if it is only passed on, wrap it in ig2.Fixed(...)")
            )

    def _check_logits(self, raw: Any) -> None:
        """A softmax of what a softmax gave is a flat thing that still looks like probabilities."""
        if self.model.output not in ("probability", "log-probability"):
            return
        logits = self.model.logits(raw).detach()
        if logits.numel() > 1 and bool((logits >= 0).all()) and abs(float(logits.sum()) - 1) < 1e-3:
            warn(
                f"the network returns probabilities already, and output={self.model.output!r} takes the softmax of them once "
                "more: use output='logit', which explains what the network returns"
            )

    # -- running -------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return self.inputs.data.device

    def laid_out(self, samples: Tensor) -> Tensor:
        """Samples (n, ...) in the memory layout the network takes: points that are so need no copy at every step."""
        last = self.preparation.get("channels_last") and samples.ndim == 4
        return samples.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)

    def _forward(self, tensors: Sequence[Tensor], rows: Tensor) -> Any:
        """What the network returns; the representation, if a layer is being read, is left in `_read`."""
        # a network that starts with an in-place operation must not write into its own input
        given = [tensor.clone() for tensor in tensors] if self._writes is not False else list(tensors)
        versions = [tensor._version for tensor in given]
        args, kwargs = self.inputs.arguments(given, rows)
        self._calls, self._read = 0, None
        with uncompiled:
            args, kwargs = self.model.preprocessed(args, kwargs)
            result = self.model.net(*args, **kwargs)
        if self._writes is not True and versions != [tensor._version for tensor in given]:
            if self._writes is False:
                raise ModelError("the network writes into its input, and did not at first: give it a copy, net(x.clone())")
            self._writes = True
        return result

    def _run(self, tensors: Sequence[Tensor], rows: Tensor) -> Tensor:
        """Scores (n, classes)."""
        raw = self._forward(tensors, rows)
        scores = self.model.scores(raw, len(rows))
        if self._layer == "output":
            self._read = scores if callable(self.model.output) else self.model.logits(raw)
        return scores

    def scores(self, points: Tensor, rows: Tensor) -> Tensor:
        """The explained outputs of all classes at the points, (n, classes)."""
        if not self._differentiates:
            try:
                with torch.no_grad():
                    return self._run(self.inputs.split(points), rows)
            except RuntimeError as error:
                if WITHOUT_GRAPH not in str(error):
                    raise
                self._differentiates = True
        with torch.enable_grad():
            return self._run(self.inputs.split(points.detach().requires_grad_()), rows).detach()

    def scores_with_graph(self, points: Tensor, rows: Tensor) -> Tensor:
        """The same with autograd's graph back to the points, for a method that makes its own gradient of it."""
        with torch.enable_grad():
            return self._run(self.inputs.split(points), rows)

    def representation(self, points: Tensor, rows: Tensor) -> Tensor:
        """The representation at the points, (n, features)."""
        self._open_layer()
        self.scores(points, rows)
        return self._representation(len(rows)).detach()

    def evaluate(
        self,
        points: Tensor,
        rows: Tensor,
        target: Tensor,
        *,
        gradient: bool = True,
        distance: Distance | None = None,
        reference: Tensor | None = None,
    ) -> Evaluation:
        """One forward pass at the points, and the gradients asked for.

        Args:
            points: (n, ...), in the data space.
            rows: the explicand each point belongs to, (n,), for inputs that are fixed.
            target: the class explained at each point, (n,).
            gradient: whether the gradient of the output is wanted.
            distance: a function of two representations (n, features) to (n,), if its gradient is wanted.
            reference: the representation of each point's reference, (n, features).
        """
        if not gradient and distance is None:
            return Evaluation(self.scores(points, rows).gather(1, target[:, None])[:, 0])
        if distance is not None:
            self._open_layer()
        args = [points, rows, target] if reference is None else [points, rows, target, reference]
        found = list(self._fastest(gradient, distance, args))
        output = found.pop(0)
        slope = found.pop(0) if gradient else None
        far, ascent = found or (None, None)
        return Evaluation(output, slope, far, ascent)

    def _step(
        self,
        gradient: bool,
        distance: Distance | None,
        points: Tensor,
        rows: Tensor,
        target: Tensor,
        reference: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The output; its gradient, if wanted; the distance and its gradient, if wanted."""
        points = points.detach().requires_grad_()
        far = None
        with torch.enable_grad():
            output = self._run(self.inputs.split(points), rows).gather(1, target[:, None])[:, 0]
            if distance is not None:
                assert reference is not None
                far = distance(self._representation(len(rows)), reference)
                self._check_distance(far, len(rows))
        # Each pair's gradient is its own: samples do not mix, so the gradient of the sum is the rows' gradients. The
        # cotangents are made whole: an expanded one made a matrix product 5 times slower on a CPU.
        found = [output.detach()]
        if gradient:
            (slope,) = torch.autograd.grad(output, points, torch.ones_like(output), retain_graph=far is not None)
            found.append(self.laid_out(slope))
        if far is not None:
            (ascent,) = torch.autograd.grad(far, points, torch.ones_like(far))
            found += [far.detach(), self.laid_out(ascent)]
        self._read = None
        return tuple(found)

    def _fastest(self, gradient: bool, distance: Distance | None, args: list[Tensor]) -> tuple[Tensor, ...]:
        """A step, recorded if that was wished for and its size comes again and again."""
        count = len(args[0])
        size = self._recorded_size(gradient, distance, count)
        if size is not None:
            spare = size - count
            padded = [torch.cat([arg, arg[:1].expand(spare, *arg.shape[1:])]) if spare else arg for arg in args]
            found = self._recorded[gradient, distance, size](*padded)
            return tuple(tensor[:count] for tensor in found) if spare else found
        key, step = (gradient, distance, count), partial(self._step, gradient, distance)
        self._seen[key] = self._seen.get(key, 0) + 1
        ways = self._ways(count)
        found = step(*args)
        if not ways or self._seen[key] < (2 if compiled in ways and self._kept(key) else WORTH_RECORDING):
            return found
        for way in ways:
            made = self._try(way, key, step, args, found)
            if made is not None:
                self._recorded[key] = made
                break
        else:
            self._seen[key] = -(1 << 60)  # do not try again
        return found

    def _recorded_size(self, gradient: bool, distance: Distance | None, count: int) -> int | None:
        """The smallest recorded batch that these points fill by more than half."""
        sizes = [size for one, two, size in self._recorded if (one, two) == (gradient, distance)]
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

    def _try(self, way: Way, key: StepKey, step: Step, args: list[Tensor], found: tuple[Tensor, ...]) -> Step | None:
        """The step, recorded, if it can be and then gives what the step itself gave."""
        name = way.__name__
        # a recording of CUDA kernels holds memory, and lives as long as the session; compiled code outlives it
        kept = self._kept(key) if way is compiled else None
        try:
            made = kept or way(step, args)
            again = made(*args)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self.preparation[name] = f"no: {_first_line(error)}"
            return None
        # gradients of a network in half precision are rounded differently in other code, and are not compared
        checked = range(len(found)) if self._tolerance() <= 1e-2 else [0]
        if not all(_same(found[i], again[i], self._tolerance()) for i in checked):
            self.preparation[name] = "no: it gave other values"
            return None
        self.preparation[name] = True
        if way is compiled:
            self.model.compiled[self._compiled_key(key)] = (self._weights(), made)
        return made

    def _kept(self, key: StepKey) -> Step | None:
        """Code compiled in an earlier call, if the weights are still those."""
        weights, step = self.model.compiled.get(self._compiled_key(key), ([], None))
        mine = self._weights()
        same = len(weights) == len(mine) and all(
            a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(weights, mine, strict=True)
        )
        return step if same else None

    def _compiled_key(self, key: StepKey) -> Any:
        layer = self._layer.name if isinstance(self._layer, Layer) else self._layer
        return (*key, self.inputs.attributed, self.model.output, layer, self._call, self._wish, self.device)

    def _weights(self) -> list[Tensor]:
        return [t for _, m in self.model.modules for t in [*m.parameters(False), *m.buffers(False)]]

    def _check_distance(self, far: object, rows: int) -> None:
        if not isinstance(far, Tensor) or far.shape != (rows,):
            raise ModelError(f"the distance between {rows} pairs of representations is {describe(far)}: expected ({rows},)")
        if not far.requires_grad:
            where = self._layer.name if isinstance(self._layer, Layer) else self._layer
            raise ModelError(
                f"the distance at {where!r} has no gradient by the input: that layer does not see the input, or something on "
                "the way (.detach(), numpy) cuts it off. Name another one: ig2.wrap(net, representation=...)"
            )

    # -- the representation --------------------------------------------------------------------------------------------

    def _representation(self, rows: int) -> Tensor:
        if self._read is None:
            raise ModelError("the representation's layer did not run in this forward pass")
        if self._read.ndim == 0 or self._read.shape[0] != rows:
            where = self._layer.name if isinstance(self._layer, Layer) else self._layer
            raise ModelError(
                f"the representation at {where!r} is {describe(self._read)} for {rows} samples: it needs one row a sample. "
                "Name another layer: ig2.wrap(net, representation=...)"
            )
        read = self._read.flatten(1) if self._read.ndim > 1 else self._read[:, None]
        return read if read.dtype in (torch.float32, torch.float64) else read.float()

    def _open_layer(self) -> None:
        """Find the layer on first use and read it from then on."""
        if self._layer is not None:
            return
        layer = self.model.representation
        if layer is None:
            layer, self._call = self._last_linear()
        elif isinstance(layer, Layer):
            self._check_runs_once(layer)
        if isinstance(layer, Layer):
            if layer.side == "input":
                handle = layer.module.register_forward_pre_hook(in_this_thread(self._read_input), with_kwargs=True)
            else:
                handle = layer.module.register_forward_hook(in_this_thread(self._read_output))
            self._undo.callback(handle.remove)
        self._layer = layer

    # Both hooks hand a copy on: a layer that writes into its input, such as an in-place ReLU, would otherwise change the
    # representation behind our back.

    def _read_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._calls += 1
        if self._calls != self._call:
            return None
        named: dict[int | str, Any] = dict(enumerate(args)) | kwargs
        key = next((k for k, v in named.items() if isinstance(v, Tensor)), None)
        if key is None:
            raise ModelError(f"the representation's layer gets {describe(args)}: name one that takes a tensor")
        self._read = named[key]
        named[key] = named[key].clone()
        return tuple(v for k, v in named.items() if isinstance(k, int)), {k: v for k, v in named.items() if isinstance(k, str)}

    def _read_output(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> Any:
        self._calls += 1
        if self._calls != self._call:
            return None
        if not isinstance(result, Tensor):
            raise ModelError(f"the representation's layer returns {describe(result)}: name one that returns a tensor")
        self._read = result
        return result.clone()

    def _forward_first(self) -> tuple[Tensor, Tensor]:
        """The first explicand with a graph, for looking at how the network works."""
        rows = torch.zeros(1, dtype=torch.long, device=self.device)
        points = self.inputs.data[:1].detach().requires_grad_()
        with torch.enable_grad():
            return points, self._run(self.inputs.split(points), rows)

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
        """The last linear layer whose input the output depends on, and which of its calls that is."""
        with LinearCalls(self.model.modules) as calls:
            _, scores = self._forward_first()
        inputs = [call.input for call in calls.found]
        if not inputs:
            if any(isinstance(module, torch.jit.ScriptModule) for _, module in self.model.modules):
                raise ModelError(f"the last linear layer is not found: {SCRIPTED}")
            return "output", 1
        reached: Sequence[Tensor | None] = torch.autograd.grad(scores, inputs, torch.ones_like(scores), allow_unused=True)
        for call, grad in zip(reversed(calls.found), reversed(reached), strict=True):
            if grad is None:
                continue
            if call.module is None:
                raise ModelError(
                    f"the last linear map of this network is a call of {call.name}, not a layer that can be read. Say where "
                    "the representation is: ig2.wrap(net, representation=...) with a module or its name (its output), "
                    "'name:input', or 'output'"
                )
            return Layer(call.name, call.module, "input"), call.number
        return "output", 1


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _same(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Equal up to what batching changes in the rounding; a NaN is judged later, where it can be located."""
    scale = max(1e-6, float(one.detach().abs().nan_to_num(posinf=0.0).max()))
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
