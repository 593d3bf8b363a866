"""A call of a torch function, and how its result gets another gradient than its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Operation:
    """One call of a torch function, however it was written."""

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if "input" in kwargs:
            args, kwargs = (kwargs["input"], *args), {key: arg for key, arg in kwargs.items() if key != "input"}
        name = getattr(func, "__name__", "").partition(".")[0]
        # `relu` for torch.relu, Tensor.relu_, nn.functional.relu and torch.ops.aten.relu.default alike
        self.name: str = name.removeprefix("special_").removeprefix("linalg_").strip("_")
        if func is torch.einsum and isinstance(args[1], (list, tuple)):
            args = (args[0], *args[1])
        self.func, self.args, self.kwargs = func, args, kwargs
        named = name.endswith("_") and not name.endswith("__")
        self.in_place = bool(kwargs.get("inplace")) or named or name == "__setitem__"
        self.tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
        # what depends on the input: parameters do not require a gradient here, so nothing else does
        self.variables = list({id(tensor): tensor for tensor in self.tensors if tensor.requires_grad}.values())

    def at(self, values: Sequence[Tensor]) -> Operation:
        """Return the same call at other values of its variables."""
        swap = {id(old): new for old, new in zip(self.variables, values, strict=True)}
        args = [swap.get(id(arg), arg) for arg in self.args]
        if self.in_place:
            args[0] = args[0].clone()
        return Operation(self.func, tuple(args), {key: swap.get(id(arg), arg) for key, arg in self.kwargs.items()})

    def argument(self, position: int, name: str) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    def result(self) -> Any:
        return self.func(*self.args, **self.kwargs)

    def value(self) -> Any:
        """Return what it returns, without a graph and without writing into its arguments."""
        with torch.no_grad():
            return self.at(self.variables).result()


Rule = Callable[[Operation, list[Tensor]], Any]  # of a call at the near ends, and its variables at the far ones


class _Replacement(torch.autograd.Function):
    """Return `value`, with the gradient of multiplier ⊙ source."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, value: Tensor, multiplier: Tensor | None) -> Tensor:
        ctx.save_for_backward(multiplier)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (multiplier,) = ctx.saved_tensors
        return grad if multiplier is None else grad * multiplier, None, None


def replace_slope(source: Tensor, value: Tensor, multiplier: Tensor | None = None) -> Tensor:
    """Return `value`, with the gradient of multiplier ⊙ source; by default of the source itself."""
    result: Tensor = _Replacement.apply(source, value, multiplier)  # type: ignore[no-untyped-call]
    return result


def find_slope(step: Tensor, y: Tensor, y_reference: Tensor, derivative: Tensor) -> Tensor:
    """Δy/Δz for a step Δz; or the derivative, the mean of that at both ends, where it accounts for Δy to rounding.

    So a small step, over which Δy is all rounding, yields a sound multiplier, and none costs any additivity.
    """
    change = y - y_reference
    # in place where a tensor is this function's own: passes over the activations are what this costs
    rounding = y.abs().add_(y_reference.abs()).mul_(2 * torch.finfo(y.dtype).eps)
    off = (change - derivative * step).abs_()
    # written so that NaN counts as accounted for: the step between two −∞ of a mask, ∞ · 0 of √z at 0. A change over a step of
    # zero is rounding too: the y of a softmax are not computed from the logarithms that its step is between
    return torch.where((off > rounding) & (step != 0), change / step, derivative.nan_to_num(0.0, 0.0, 0.0))


def at_least_float(z: Tensor) -> Tensor:
    """Return it in the precision that normalisations compute in: squares overflow in half."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z


def put_together(join: Callable[..., Tensor], tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors by `cat` or `stack`, which autocast in bfloat16 refuses for float16."""
    with torch.autocast(tensors[0].device.type, enabled=False):
        return join(tensors, dim)
