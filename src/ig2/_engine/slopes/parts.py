"""Operations that are taken apart.

Each function has the signature of the operation it stands for, and computes the same from operations that are linear or have a
rule. It returns None where it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ig2._engine.private import forward_of
from ig2._engine.slopes.operations import Operation, at_least_float, put_together

DIVISION = ("div", "divide", "true_divide")


def _divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor | None:
    if rounding_mode is not None or not all(isinstance(part, Tensor) and part.requires_grad for part in (a, b)):
        return None
    return a * b.reciprocal()  # type: ignore[no-any-return]


def _divide_and_add(z: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return z + value * (a / b)


def _standard_deviation(z: Tensor, *args: Any, **options: Any) -> Tensor:
    return z.var(*args, **options).sqrt()


def _variance_and_mean(z: Tensor, dim: Any = None, *args: Any, keepdim: bool = False, **options: Any) -> tuple[Tensor, Tensor]:
    dim = tuple(range(z.ndim)) if dim is None else dim
    return z.var(dim, *args, keepdim=keepdim, **options), z.mean(dim, keepdim=keepdim)


def _deviation_and_mean(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    variance, mean = _variance_and_mean(*args, **options)
    return variance.sqrt(), mean


def _vector_norm(z: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor | None:
    if not isinstance(ord, (int, float)) or ord <= 0 or z.is_complex() or dtype is not None:
        return None
    dim = tuple(range(z.ndim)) if dim is None else dim
    if ord == math.inf:
        return z.abs().amax(dim, keepdim=keepdim)
    if ord == 2:
        return z.square().sum(dim, keepdim=keepdim).sqrt()
    return (z.abs() ** ord).sum(dim, keepdim=keepdim) ** (1 / ord)


def _norm(z: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor | None:
    if ord is not None and not isinstance(dim, int):
        return None  # of a matrix
    return _vector_norm(z, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


def _product(z: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Multiply pairs, and pairs of these: each product is of two factors."""
    z, dim = (z.flatten(), 0) if dim is None else (z, dim)
    z = z.to(dtype) if dtype else z
    while (size := z.shape[dim]) > 1:
        half = size // 2
        pairs = z.narrow(dim, 0, half) * z.narrow(dim, half, half)
        z = torch.cat([pairs, z.narrow(dim, 2 * half, 1)], dim) if size % 2 else pairs
    return z if keepdim else z.squeeze(dim)


def _cumulated_product(z: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Multiply each by what is 1, 2, 4, … places before it, the product of as many."""
    z, shift = z.to(dtype) if dtype else z, 1
    while shift < (size := z.shape[dim]):
        product = z.narrow(dim, shift, size - shift) * z.narrow(dim, 0, size - shift)
        z, shift = torch.cat([z.narrow(dim, 0, shift), product], dim), 2 * shift
    return z


def _power_of_matrix(z: Tensor, n: int) -> Tensor | None:
    if n < 1:
        return None
    result = z
    for _ in range(n - 1):
        result = result @ z
    return result


def _clamp(z: Tensor, min: Any = None, max: Any = None) -> Tensor | None:
    if not any(isinstance(bound, Tensor) and bound.requires_grad for bound in (min, max)):
        return None
    for bound, function in ((min, torch.maximum), (max, torch.minimum)):
        z = z if bound is None else function(z, torch.as_tensor(bound, dtype=z.dtype, device=z.device))
    return z


def _distance(a: Tensor, b: Tensor, p: float = 2) -> Tensor | None:
    return _vector_norm(a - b, p)


def _distances(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor | None:
    return _vector_norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def _pairwise_distance(a: Tensor, b: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor | None:
    return _vector_norm(a - b + eps, p, -1, keepdim)


def _absolute_error(a: Tensor, b: Tensor, *options: Any, reduction: str = "mean", **_: Any) -> Tensor | None:
    error = (a - b).abs()
    return None if options else error if reduction == "none" else getattr(error, reduction)()


def _cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    a, b = (each / each.norm(dim=dim, keepdim=True).clamp_min(eps) for each in (a, b))
    return (a * b).sum(dim)


def _gated_linear_unit(z: Tensor, dim: int = -1) -> Tensor:
    value, gate = z.chunk(2, dim)
    return value * gate.sigmoid()


def _normalise(z: Tensor, dims: tuple[int, ...], eps: float, centres: bool = True) -> Tensor:
    """(z − mean) / √(variance + eps) along some axes; or z / √(mean of z² + eps)."""
    z = z - z.mean(dims, keepdim=True) if centres else z
    return z * (z.square().mean(dims, keepdim=True) + eps).rsqrt()


def _scale(z: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    z = z if weight is None else z * weight
    return z if bias is None else z + bias


def _layer_norm(
    z: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *_: bool
) -> Tensor:
    return _scale(_normalise(at_least_float(z), tuple(range(-len(shape), 0)), eps), weight, bias)


def _rms_norm(z: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    eps = torch.finfo(z.dtype).eps if eps is None else eps
    return _scale(_normalise(at_least_float(z), tuple(range(-len(shape), 0)), eps, centres=False), weight, None)


def _group_norm(
    z: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *_: bool
) -> Tensor:
    normal = _normalise(at_least_float(z).reshape(len(z), groups, -1), (-1,), eps).view(z.shape)
    weight, bias = (each if each is None else each.view(-1, *[1] * (z.ndim - 2)) for each in (weight, bias))
    return _scale(normal, weight, bias)


def _instance_norm(
    z: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, use_input_stats: bool, *rest: Any
) -> Tensor | None:
    _, eps, *_ = rest
    return _group_norm(z, z.shape[1], weight, bias, eps) if use_input_stats else None


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor | None:  # fmt: skip
    """Compute attention: scores by a product, a mask, softmax, and a product with the values."""
    if dropout_p > 0:
        return None
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is None:
        return scores.softmax(dim=-1) @ value
    if attn_mask.dtype == torch.bool:
        attn_mask = scores.new_zeros(()).masked_fill(~attn_mask, -torch.inf)
    # whoever may look at nothing sees zeros, and not the NaN of a softmax over −∞
    blind = (attn_mask == -torch.inf).all(dim=-1, keepdim=True)
    return (scores + attn_mask).softmax(dim=-1).masked_fill(blind, 0.0) @ value


_Cell = Callable[..., tuple[Tensor, ...]]  # of a time step, the state and the weights, to the next state


def _lstm_cell(z: Tensor, state: Sequence[Tensor], *weights: Tensor) -> tuple[Tensor, Tensor]:
    let_in, forget, new, let_out = _gates(z, state[0], *weights, count=4)
    cell = forget.sigmoid() * state[1] + let_in.sigmoid() * new.tanh()
    return let_out.sigmoid() * cell.tanh(), cell


def _gates(z: Tensor, state: Tensor, w: Tensor, u: Tensor, b: Any = None, c: Any = None, *, count: int) -> Any:
    return (nn.functional.linear(z, w, b) + nn.functional.linear(state, u, c)).chunk(count, dim=-1)


def _gru_cell(z: Tensor, state: Sequence[Tensor], w: Tensor, u: Tensor, b: Any = None, c: Any = None) -> tuple[Tensor]:
    by_input, by_state = nn.functional.linear(z, w, b).chunk(3, dim=-1), nn.functional.linear(state[0], u, c).chunk(3, dim=-1)
    reset, keep = ((by_input[i] + by_state[i]).sigmoid() for i in range(2))
    new = (by_input[2] + reset * by_state[2]).tanh()
    return (new + keep * (state[0] - new),)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> _Cell:
    return lambda z, state, *weights: (activation(_gates(z, state[0], *weights, count=1)[0]),)


def _recurrent(cell: _Cell, size: int) -> Callable[..., Any]:
    """Run layers of a cell over time, with a state of so many tensors."""

    def run(
        z: Tensor, state: Any, weights: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool, first: bool
    ) -> tuple[Tensor, ...] | None:
        states = [state] if isinstance(state, Tensor) else list(state)
        each = 4 if biases else 2
        lines = layers * (2 if both else 1)
        if not isinstance(weights, (list, tuple)) or len(weights) != each * lines or (train and dropout > 0):
            return None  # of a packed sequence, or with a projection
        z = z.transpose(0, 1) if first else z
        last: list[tuple[Tensor, ...]] = []
        for layer in range(layers):
            outputs = []
            for backward in range(lines // layers):
                line = layer * (lines // layers) + backward
                now, cell_weights = tuple(part[line] for part in states), weights[line * each : (line + 1) * each]
                steps = []
                for moment in reversed(z.unbind(0)) if backward else z.unbind(0):
                    now = cell(moment, now, *cell_weights)
                    steps.append(now[0])
                outputs.append(put_together(torch.stack, steps[::-1] if backward else steps))
                last.append(now)
            z = put_together(torch.cat, outputs, dim=-1)
        z = z.transpose(0, 1) if first else z
        ends = ([state[i] for state in last] for i in range(size))
        return z, *(put_together(torch.stack, states) for states in ends)

    return run


def _alone(cell: _Cell) -> Callable[..., Tensor]:
    """One time step, with a state of one tensor."""
    return lambda z, state, *weights: cell(z, (state,), *weights)[0]


_tanh_cell, _relu_cell = _plain_cell(torch.tanh), _plain_cell(torch.relu)

# By what they are called in the docs.
FAMILIES: dict[str, dict[str, Callable[..., Any]]] = {
    "quotients": {**dict.fromkeys(DIVISION, _divide), "addcdiv": _divide_and_add},
    "products over an axis": {"prod": _product, "cumprod": _cumulated_product, "matrix_power": _power_of_matrix},
    "variances and norms": {
        "std": _standard_deviation, "var_mean": _variance_and_mean, "std_mean": _deviation_and_mean,
        "vector_norm": _vector_norm, "norm": _norm,
    },
    "distances": {
        "cosine_similarity": _cosine_similarity, "dist": _distance, "cdist": _distances,
        "pairwise_distance": _pairwise_distance, "l1_loss": _absolute_error,
    },
    "bounds that depend on the input": dict.fromkeys(("clamp", "clip"), _clamp),
    "normalisation": {
        "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm, "instance_norm": _instance_norm,
    },
    "gates and attention": {"glu": _gated_linear_unit, "scaled_dot_product_attention": _attention},
    "recurrent layers and their cells": {
        "lstm": _recurrent(_lstm_cell, 2), "gru": _recurrent(_gru_cell, 1), "rnn_tanh": _recurrent(_tanh_cell, 1),
        "rnn_relu": _recurrent(_relu_cell, 1), "lstm_cell": _lstm_cell, "gru_cell": _alone(_gru_cell),
        "rnn_tanh_cell": _alone(_tanh_cell), "rnn_relu_cell": _alone(_relu_cell),
    },
}  # fmt: skip
PARTS = {name: part for family in FAMILIES.values() for name, part in family.items()}


def take_apart(call: Operation) -> Any:
    """Return what a call returns, computed from operations that are linear or have a rule; None
    where that is not known.

    The values are those of the call to rounding.
    """
    options = {key: arg for key, arg in call.kwargs.items() if key != "inplace"}
    own = getattr(call.func, "autograd_function", None)
    if own is None:
        part = PARTS.get(call.name)
        return None if part is None else part(*call.args, **options)
    try:
        result = forward_of(own)(*call.args, **options)
    except (RuntimeError, TypeError):  # what leaves torch for a kernel or for NumPy cannot be followed
        return None
    results = result if isinstance(result, tuple) else [result]
    return result if all(isinstance(each, Tensor) and each.requires_grad for each in results) else None
