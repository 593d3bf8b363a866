"""Which linear maps a network runs, in which order: how the default representation is found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from ig2._engine.private import base_of


@dataclass(frozen=True)
class LinearCall:
    name: str
    module: nn.Linear | None  # None for a functional call
    number: int  # how many times the module had run by then
    node: Node  # what made the input, in autograd's graph
    shape: torch.Size  # of the input


class LinearCalls(TorchFunctionMode):
    """Records, in order, every linear map of a forward pass: by `nn.Linear`, and by functions with a parameter."""

    FUNCTIONS = (
        *(nn.functional.linear, torch.matmul, torch.mm, torch.addmm, Tensor.matmul, Tensor.__matmul__, Tensor.mm),
        torch.ops.aten.linear.default,  # in an exported program
    )

    def __init__(self, modules: Sequence[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.modules = modules
        self.calls: list[LinearCall] = []
        self._inside: nn.Linear | None = None
        self._handles: list[Any] = []

    def __enter__(self) -> LinearCalls:
        for name, module in self.modules:
            if isinstance(module, nn.Linear):
                enter, leave = in_this_thread(self._enter(name)), in_this_thread(self._leave)
                self._handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
                self._handles.append(module.register_forward_hook(leave, always_call=True))
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
            if isinstance(arg, Tensor) and not isinstance(arg, nn.Parameter) and is_tracked(arg):
                self.calls.append(LinearCall(name, module, number, node_of(arg), arg.shape))
                return

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self.FUNCTIONS and self._inside is None:
            operands = [*args, *kwargs.values()]
            if any(_is_weight(operand) for operand in operands):
                self._note(getattr(func, "__name__", str(func)), None, 0, operands)
        return func(*args, **kwargs)


def is_tracked(tensor: Tensor) -> bool:
    """Return whether a tensor has a node. In a checkpoint with re-entry, views require gradients
    and have none."""
    return tensor.requires_grad and (tensor.grad_fn is not None or base_of(tensor) is None)


def node_of(tensor: Tensor) -> Node:
    """Return what made a tensor in autograd's graph; of a leaf, the node where its gradient
    arrives."""
    with torch.enable_grad():  # of a leaf it is found by an operation on it
        return get_gradient_edge(tensor).node


def nodes_before(node: Node, without: Node | None = None) -> set[Node]:
    """Return the node and all it depends on; by ways that do not go through the node `without`."""
    seen, waiting = {node}, [node]
    while waiting:
        for before, _ in waiting.pop().next_functions:
            if before is not None and before not in seen and before is not without:
                seen.add(before)
                waiting.append(before)
    return seen


class Readings:
    """Reads what modules return in the forward passes of this thread that run while it is open.

    Where the next layer writes into it, such as an in-place ReLU, what it made of it is read instead.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = modules
        self.outputs: list[list[Any]] = [[] for _ in modules]  # of each module, in the order of its calls

    def __enter__(self) -> Readings:
        self._handles = [
            module.register_forward_hook(in_this_thread(partial(self._read, outputs)))
            for module, outputs in zip(self.modules, self.outputs, strict=True)
        ]
        return self

    def __exit__(self, *failure: Any) -> None:
        for handle in self._handles:
            handle.remove()

    @staticmethod
    def _read(outputs: list[Any], module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        outputs.append(result)


@dataclass(frozen=True)
class Intermediate:
    """A tensor that a function of torch's returns in a forward pass, whether a module has it or not."""

    number: int  # of the call
    function: str  # its name


NoteIntermediate = Callable[[Intermediate, Sequence[Any], Tensor], object]  # with the arguments, and what came of them


class Intermediates(TorchFunctionMode):
    """Numbers the calls of torch's functions in a forward pass, and hands on their arguments and the tensors they return."""

    def __init__(self, note: NoteIntermediate) -> None:
        super().__init__()
        self.note = note
        self.calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.calls += 1
        if isinstance(result, Tensor):
            name = getattr(func, "__name__", str(func)).partition(".")[0]  # an operator's has its overload behind it
            self.note(Intermediate(self.calls, name), [*args, *kwargs.values()], result)
        return result


def in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that leaves alone what other threads do with the same network, explain it for
    example."""
    owner = threading.get_ident()
    return lambda *args: hook(*args) if threading.get_ident() == owner else None


def _is_weight(operand: Any) -> bool:
    """Return whether it is a parameter, or a view of one: a tied head is h @ embedding.weight.T."""
    return isinstance(operand, nn.Parameter) or (isinstance(operand, Tensor) and isinstance(base_of(operand), nn.Parameter))
