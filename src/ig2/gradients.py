"""The one place that runs the network: scores, representations, and the two gradients of a step from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ig2.errors import ModelError, describe
from ig2.inputs import Inputs
from ig2.model import Layer, Model

Distance = Callable[[Tensor, Tensor], Tensor]


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


class Session:
    """A network opened for the length of one call, and left exactly as it was.

    Inside, no parameter requires a gradient and the representation is read by a hook; on the way out, also through an
    exception or Ctrl-C, both are undone. Opening runs the first sample through the network twice to see that it can be
    explained: that it is deterministic, that samples do not mix, that every attributed input reaches the output.
    """

    def __init__(self, model: Model, inputs: Inputs, check_mixing: bool = True) -> None:
        self.model = model
        self.inputs = inputs
        self.check_mixing = check_mixing
        self.bytes_per_point = 0
        self._undo = ExitStack()
        self._layer: Layer | Literal["output"] | None = None
        self._call = 1  # which of the layer's calls in one forward pass is read
        self._calls = 0
        self._read: Tensor | None = None

    # -- opening and closing -------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        try:
            _refuse_train_mode(self.model)
            self._undo.enter_context(_frozen(self.model))
            if self.inputs.data.is_cuda and any(isinstance(m, nn.RNNBase) for _, m in self.model.modules):
                # cuDNN refuses the backward pass of a recurrent layer in eval mode
                self._undo.enter_context(torch.backends.cudnn.flags(enabled=False))
            self._inspect()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()
        self._read = None

    def _inspect(self) -> None:
        first = torch.zeros(1, dtype=torch.long, device=self.device)
        leaves = [t.detach().clone().requires_grad_() for t in self.inputs.split(self.inputs.data[:1])]
        weights = {t.data_ptr() for _, m in self.model.modules for t in [*m.parameters(False), *m.buffers(False)]}
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in weights:
                saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            scores = self._run(leaves, first)
        self._check_reach(scores, leaves)
        # forward activations stay for both backward passes, which hold about half as much again at their peak
        self.bytes_per_point = sum(saved.values()) * 3 // 2 + 8 * self.inputs.data[0].nbytes
        two = first.expand(2 if self.check_mixing else 1)
        again = self.scores(self.inputs.data[two], two)[:1]
        if not _same(scores, again):
            alone = self.scores(self.inputs.data[:1], first)
            raise ModelError(
                "the same sample scored differently alone and beside another one: samples of a batch mix (batch statistics "
                "that are not frozen?), so a sample has no attribution of its own. Use batch_size=1, or freeze them"
                if _same(scores, alone)
                else "two passes of the same sample gave different scores: the network draws random numbers (dropout left "
                "on?). Call net.eval(), or make the pass deterministic"
            )

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

    # -- running -------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return self.inputs.data.device

    def _run(self, tensors: Sequence[Tensor], rows: Tensor) -> Tensor:
        """Scores (n, classes); the representation, if a layer is being read, is left in `_read`."""
        # clone: a network that starts with an in-place operation must not write into its own input
        args, kwargs = self.inputs.arguments([tensor.clone() for tensor in tensors], rows)
        if self.model.preprocess is not None:
            made = self.model.preprocess(*args, **kwargs)
            args, kwargs = (list(made) if isinstance(made, tuple) else [made]), {}
        self._calls, self._read = 0, None
        raw = self.model.net(*args, **kwargs)
        scores = self.model.scores(raw, len(rows))
        if self._layer == "output":
            self._read = scores if callable(self.model.output) else self.model.logits(raw)
        return scores

    @torch.no_grad()
    def scores(self, points: Tensor, rows: Tensor) -> Tensor:
        """The explained outputs of all classes at the points, (n, classes)."""
        return self._run(self.inputs.split(points), rows)

    @torch.no_grad()
    def representation(self, points: Tensor, rows: Tensor) -> Tensor:
        """The representation at the points, (n, features)."""
        self._open_layer()
        self._run(self.inputs.split(points), rows)
        return self._representation(len(rows))

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
        points = points.detach().requires_grad_()
        far = None
        with torch.enable_grad():
            output = self._run(self.inputs.split(points), rows).gather(1, target[:, None])[:, 0]
            if distance is not None:
                assert reference is not None
                far = distance(self._representation(len(rows)), reference)
        # Each pair's gradient is its own: samples do not mix, so the gradient of the sum is the rows' gradients. The
        # cotangents are made whole: an expanded one made a matrix product 5 times slower on a CPU.
        slope = ascent = None
        if gradient:
            (slope,) = torch.autograd.grad(output, points, torch.ones_like(output), retain_graph=far is not None)
        if far is not None:
            (ascent,) = torch.autograd.grad(far, points, torch.ones_like(far))
            far = far.detach()
        self._read = None
        return Evaluation(output.detach(), slope, far, ascent)

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
                handle = layer.module.register_forward_pre_hook(self._read_input, with_kwargs=True)
            else:
                handle = layer.module.register_forward_hook(self._read_output)
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

        handle = layer.module.register_forward_pre_hook(hook)
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
        with _LinearCalls(self.model.net) as calls:
            _, scores = self._forward_first()
        inputs = [call.input for call in calls.found]
        if not inputs:
            return "output", 1
        reached: Sequence[Tensor | None] = torch.autograd.grad(scores, inputs, torch.ones_like(scores), allow_unused=True)
        for call, grad in zip(reversed(calls.found), reversed(reached), strict=True):
            if grad is None:
                continue
            if call.module is None:
                raise ModelError(
                    f"the last linear map of this network is a call of {call.name}, not a layer that can be read. Say where "
                    "the representation is: ig2.wrap(net, representation=...) with a module's name (its output), "
                    "'name:input', or 'output'"
                )
            return Layer(call.name, call.module, "input"), call.number
        return "output", 1


@dataclass(frozen=True)
class _LinearCall:
    name: str
    module: nn.Linear | None  # None for a functional call
    number: int  # how many times the module had run by then
    input: Tensor


class _LinearCalls(TorchFunctionMode):
    """Records, in order, every linear map of a forward pass: by `nn.Linear`, and by functions with a parameter."""

    FUNCTIONS = (nn.functional.linear, torch.matmul, torch.mm, torch.addmm, Tensor.matmul, Tensor.__matmul__, Tensor.mm)

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.found: list[_LinearCall] = []
        self._inside: nn.Linear | None = None
        self._handles: list[Any] = []

    def __enter__(self) -> _LinearCalls:
        for name, module in self.net.named_modules():
            if isinstance(module, nn.Linear):
                self._handles.append(module.register_forward_pre_hook(self._enter(name), with_kwargs=True))
                self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()

    def _enter(self, name: str) -> Callable[..., None]:
        number = 0

        def hook(module: nn.Linear, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal number
            number += 1
            self._inside = module
            self._note(name, module, number, [*args, *kwargs.values()])

        return hook

    def _leave(self, *_: Any) -> None:
        self._inside = None

    def _note(self, name: str, module: nn.Linear | None, number: int, args: Sequence[Any]) -> None:
        for arg in args:
            if isinstance(arg, Tensor) and not isinstance(arg, nn.Parameter) and arg.requires_grad:
                self.found.append(_LinearCall(name, module, number, arg))
                return

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self.FUNCTIONS and self._inside is None:
            operands = [*args, *kwargs.values()]
            if any(isinstance(operand, nn.Parameter) for operand in operands):
                self._note(getattr(func, "__name__", str(func)), None, 0, operands)
        return func(*args, **kwargs)


@contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """No parameter requires a gradient: autograd then keeps less and never computes one."""
    parameters = {id(p): p for _, module in model.modules for p in module.parameters(recurse=False) if p.requires_grad}
    if isinstance(model.output, nn.Module):
        parameters.update({id(p): p for p in model.output.parameters() if p.requires_grad})
    try:
        for parameter in parameters.values():
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in parameters.values():
            parameter.requires_grad_(True)


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


def _same(one: Tensor, other: Tensor) -> bool:
    """Equal up to what batching changes in the rounding; a NaN is judged later, where it can be located."""
    scale = max(1e-6, float(one.detach().abs().nan_to_num(posinf=0.0).max()))
    return torch.allclose(one, other, rtol=1e-2, atol=1e-2 * scale, equal_nan=True)
