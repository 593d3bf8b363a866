"""The slope of each operation between two points: what the secant rule puts in place of its derivative.

A function of one variable gets its secant, Δy/Δz, and an operation of degree two, such as a product, its gradient in the
middle, ½(z + z′): both account for Δy exactly. A maximum has a rule of its own. What is built of such parts, as a normalisation
or attention are, is taken apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ig2.errors import ModelError


class Call:
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
        self.in_place = bool(kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))
        self.tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
        # what depends on the input: parameters do not require a gradient here, so nothing else does
        self.variables = list({id(tensor): tensor for tensor in self.tensors if tensor.requires_grad}.values())

    def at(self, values: Sequence[Tensor]) -> Call:
        """The same call at other values of its variables."""
        swap = {id(old): new for old, new in zip(self.variables, values, strict=True)}
        args = [swap.get(id(arg), arg) for arg in self.args]
        if self.in_place:
            args[0] = args[0].clone()
        return Call(self.func, tuple(args), {key: swap.get(id(arg), arg) for key, arg in self.kwargs.items()})

    def argument(self, position: int, name: str) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    def result(self) -> Any:
        return self.func(*self.args, **self.kwargs)

    def value(self) -> Any:
        """What it returns, without a graph and without writing into its arguments."""
        with torch.no_grad():
            return self.at(self.variables).result()


Rule = Callable[[Call, list[Tensor]], Any]  # of a call at the near ends, and its variables at the far ones

# fmt: off
ELEMENTWISE = {
    "relu", "relu6", "leaky_relu", "rrelu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign",
    "threshold", "hardtanh", "hardswish", "hardsigmoid", "hardshrink", "softshrink", "tanhshrink", "clamp", "clip", "clamp_min",
    "clamp_max", "sigmoid", "expit", "log_sigmoid", "logit", "tanh", "erf", "erfc", "erfinv", "abs", "absolute", "square",
    "sqrt", "rsqrt", "pow", "rpow", "float_power", "reciprocal", "div", "divide", "true_divide", "rdiv", "rtruediv", "mul",
    "multiply", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "asinh", "acosh", "atanh", "sinc", "sign", "round", "floor", "ceil", "trunc", "frac",
}
# Linear in each of two arguments.
BILINEAR = {
    "mul", "multiply", "matmul", "rmatmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "outer", "ger", "kron", "cross",
    "tensordot", "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "einsum",
    # plus something that is linear
    "addmm", "addbmm", "baddbmm", "addmv", "addr", "addcmul", "lerp",
}
# fmt: on
DIVISION = ("div", "divide", "true_divide")
POOLING = {f"{kind}max_pool{axes}d": axes for kind in ("", "adaptive_") for axes in (1, 2, 3)}


def find_rule(call: Call) -> Rule | None:
    """The rule for a call that is not taken apart. A linear call needs none."""
    rule = _rule_by_name(call)
    if rule is not None and any(variable.is_complex() for variable in call.variables):
        raise ModelError(
            f"the network computes {call.name!r} of complex numbers, for which DeepSHAP and the secant rule have no slope. Use "
            "ig2.ExpectedIG"
        )
    return rule


def _rule_by_name(call: Call) -> Rule | None:
    name, second, along = call.name, call.argument(1, "other"), call.argument(1, "dim")
    if name in ELEMENTWISE and len(call.variables) == 1:
        if name in ("mul", "multiply") and call.args[0] is not second:
            return None  # by a constant
        if name in DIVISION and second is not call.variables[0]:
            return None
        return _elementwise
    if name in BILINEAR and _count_factors(call) == 2:
        return _midpoint
    if name in ("var", "mse_loss"):
        return _midpoint
    if name.removesuffix("_with_indices") in POOLING:
        return _pooling
    if name in ("maximum", "minimum") or (name in ("max", "min") and isinstance(second, Tensor)):
        return _maximum
    if (name in ("amax", "amin") and along not in (None, ())) or (name in ("max", "min") and isinstance(along, int)):
        return _maximum
    if name in ("softmax", "log_softmax", "logsumexp") and along is not None:
        return _softmax
    return None


def _count_factors(call: Call) -> int:
    """How many factors of a product depend on the input."""
    if call.name == "lerp":  # start + weight · (end − start)
        return 2 * int(getattr(call.argument(2, "weight"), "requires_grad", False))
    tensors, adds = call.tensors, call.name.startswith(("add", "badd"))
    factors = tensors if call.name == "einsum" else tensors[1:3] if adds else tensors[:2]
    return sum(factor.requires_grad for factor in factors)


# -- replacing slopes ----------------------------------------------------------------------------------------------------


class _Replacement(torch.autograd.Function):
    """`value`, with the gradient of multiplier ⊙ source."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, value: Tensor, multiplier: Tensor | None) -> Tensor:
        ctx.save_for_backward(multiplier)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (multiplier,) = ctx.saved_tensors
        return grad if multiplier is None else grad * multiplier, None, None


def replace_slope(source: Tensor, value: Tensor, multiplier: Tensor | None = None) -> Tensor:
    """`value`, with the gradient of multiplier ⊙ source; by default of the source itself."""
    result: Tensor = _Replacement.apply(source, value, multiplier)  # type: ignore[no-untyped-call]
    return result


class _Midpoint(torch.autograd.Function):
    """A call's own value, with its gradient in the middle between its variables and those recorded."""

    @staticmethod
    def forward(ctx: Any, call: Call, recorded: list[Tensor], *variables: Tensor) -> Tensor:
        middles = [((near + far) / 2).requires_grad_() for near, far in zip(variables, recorded, strict=True)]
        with torch.enable_grad():
            # kept here and not in the graph, in which `operations_without_rule` looks for what has no rule
            ctx.middles, ctx.result = middles, call.at(middles).result()
        value: Tensor = call.value()
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # kept for a second pass, that of the choices: the middles are what it keeps, and they stay here in any case
        return None, None, *torch.autograd.grad(ctx.result, ctx.middles, grad, retain_graph=True, allow_unused=True)


def _midpoint(call: Call, recorded: list[Tensor]) -> Tensor:
    """An operation of degree two in its variables: f(z) − f(z′) = ∇f(½(z + z′)) · (z − z′).

    Of a product that is ½(a + a′)·Δb + ½(b + b′)·Δa.
    """
    result: Tensor = _Midpoint.apply(call, recorded, *call.variables)  # type: ignore[no-untyped-call]
    return result


# -- the rules -----------------------------------------------------------------------------------------------------------


def _slope(step: Tensor, y: Tensor, y_reference: Tensor, derivative: Tensor) -> Tensor:
    """Δy/Δz for a step Δz; or the derivative, the mean of that at both ends, where it accounts for Δy to rounding.

    So a small step, over which Δy is all rounding, gives a sound multiplier, and none costs any additivity.
    """
    change = y - y_reference
    # in place where a tensor is this function's own: passes over the activations are what this costs
    rounding = y.abs().add_(y_reference.abs()).mul_(2 * torch.finfo(y.dtype).eps)
    off = (change - derivative * step).abs_()
    # written so that NaN counts as accounted for: the step between two −∞ of a mask, ∞ · 0 of √z at 0. A change over a step of
    # zero is rounding too: the y of a softmax are not computed from the logarithms that its step is between
    return torch.where((off > rounding) & (step != 0), change / step, derivative.nan_to_num(0.0, 0.0, 0.0))


def _elementwise(call: Call, recorded: list[Tensor]) -> Tensor:
    """A function of one variable: the rescale rule itself."""
    (z,), (reference,) = call.variables, recorded

    def at(point: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            point = point.detach().requires_grad_()
            y = call.at([point]).result()
            (derivative,) = torch.autograd.grad(y, point, torch.ones_like(y))
        return y.detach(), derivative

    with torch.no_grad():
        y, derivative = at(z)
        if y.shape != z.shape:  # of more axes where a constant has them, over which the derivative was summed
            z, reference = z.expand(y.shape), reference.expand(y.shape)
            y, derivative = at(z)
        y_reference, derivative_reference = at(reference)
        slope = _slope(z - reference, y, y_reference, (derivative + derivative_reference).mul_(0.5))
    return replace_slope(call.variables[0].expand(y.shape), y, slope)


_Maxima = tuple[Tensor, Tensor]  # along the last axis, and where they are


def _largest(z: Tensor, reference: Tensor, maxima: _Maxima, maxima_reference: _Maxima) -> Tensor:
    """Maxima over the last axis of z, given those of both: the rule for max pooling.

    Where the maximum grew, the place of the new one gets all of the change, otherwise the place of the old one. The value
    there changed by as much or more, so the multiplier is between 0 and 1.
    """
    (y, place), (y_reference, place_reference) = maxima, maxima_reference
    chosen = torch.where(y >= y_reference, place, place_reference)
    source = z.gather(-1, chosen)
    with torch.no_grad():
        step = source - reference.gather(-1, chosen)
        slope = torch.where(step == 0, 1.0, (y - y_reference) / step)
    return replace_slope(source, y, slope)


def _pooling(call: Call, recorded: list[Tensor]) -> Any:
    (z,), (reference,) = call.variables, recorded
    name = call.name.removesuffix("_with_indices")
    axes, pool = POOLING[name], getattr(nn.functional, f"{name}_with_indices")
    options = {key: value for key, value in call.kwargs.items() if key != "return_indices"}
    with torch.no_grad():
        pooled, pooled_reference = (pool(each, *call.args[1:], **options) for each in (z, reference))
        returns_indices = isinstance(call.at([z[:1]]).result(), tuple)
    lines, lines_reference = (tuple(each.flatten(-axes) for each in both) for both in (pooled, pooled_reference))
    largest = _largest(z.flatten(-axes), reference.flatten(-axes), lines, lines_reference).view_as(pooled[0])
    return (largest, pooled[1]) if returns_indices else largest


def _maxima(lines: Tensor) -> _Maxima:
    values, places = lines.detach().max(dim=-1, keepdim=True)
    return values, places


def _maximum(call: Call, recorded: list[Tensor]) -> Any:
    """The larger or smaller of two tensors, of which one may be constant; or the largest or smallest along some axes."""
    sign = -1 if "min" in call.name else 1

    def lines(call: Call) -> Any:
        second = call.argument(1, "other")
        if isinstance(second, Tensor):
            return torch.stack(torch.broadcast_tensors(call.args[0], second), dim=-1) * sign  # type: ignore[no-untyped-call]
        dims = call.argument(1, "dim")
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        return call.args[0].movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims)) * sign

    z, reference = lines(call), lines(call.at(recorded))
    largest = _largest(z, reference, _maxima(z), _maxima(reference)) * sign
    result = call.value()
    if isinstance(result, tuple):
        return type(result)((largest.view_as(result[0]), result[1]))
    return largest.view_as(result)


def _softmax(call: Call, recorded: list[Tensor]) -> Tensor:
    """log Σ exp(z) by the rescale rule for exp and for log, log-softmax as z less that, and softmax as exp of it."""
    dim = call.argument(1, "dim")
    with torch.no_grad():
        y, y_reference = call.at(call.variables).result(), call.at(recorded).result()
    # logarithms are wide: that of a small share has steps of 1/32 in bfloat16
    z, reference = (_at_least_float(each.to(y.dtype)) for each in (call.variables[0], recorded[0]))
    with torch.no_grad():
        shift = torch.maximum(z, reference).amax(dim, keepdim=True)
        powers, powers_reference = (z - shift).exp(), (reference - shift).exp()
        total, total_reference = (each.sum(dim, keepdim=True) for each in (powers, powers_reference))
        # not the logarithms of these totals: one of them may have gone to zero
        log, log_reference = (each.logsumexp(dim, keepdim=True) - shift for each in (z, reference))
        share = _slope(z - reference, powers, powers_reference, (powers + powers_reference) / 2)
        ends = (1 / total + 1 / total_reference) / 2
        share = share * _slope(total - total_reference, log, log_reference, ends)
    log_sum = (z * share).sum(dim, keepdim=True)
    if call.name == "logsumexp":
        return replace_slope(log_sum.view_as(y), y)
    if call.name == "log_softmax":
        return replace_slope(z - log_sum, y)
    with torch.no_grad():
        slope = _slope(z.log_softmax(dim) - reference.log_softmax(dim), y, y_reference, (y + y_reference) / 2)
    return replace_slope(z - log_sum, y, slope)


# -- operations that are taken apart ---------------------------------------------------------------------------------------
# Each function has the signature of the operation it stands for, and computes the same from operations that are linear or
# have a rule. It returns None where it cannot.


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


def _cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    a, b = (each / each.norm(dim=dim, keepdim=True).clamp_min(eps) for each in (a, b))
    return (a * b).sum(dim)


def _gated_linear_unit(z: Tensor, dim: int = -1) -> Tensor:
    value, gate = z.chunk(2, dim)
    return value * gate.sigmoid()


def _at_least_float(z: Tensor) -> Tensor:
    """In the precision that normalisations compute in: squares overflow in half."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z


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
    return _scale(_normalise(_at_least_float(z), tuple(range(-len(shape), 0)), eps), weight, bias)


def _rms_norm(z: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    eps = torch.finfo(z.dtype).eps if eps is None else eps
    return _scale(_normalise(_at_least_float(z), tuple(range(-len(shape), 0)), eps, centres=False), weight, None)


def _group_norm(
    z: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *_: bool
) -> Tensor:
    normal = _normalise(_at_least_float(z).reshape(len(z), groups, -1), (-1,), eps).view(z.shape)
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
    """Scores by a product, a mask, softmax, and a product with the values."""
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
    """Layers of a cell over time, with a state of so many tensors."""

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
                outputs.append(torch.stack(steps[::-1] if backward else steps))
                last.append(now)
            z = torch.cat(outputs, dim=-1)
        z = z.transpose(0, 1) if first else z
        return z, *(torch.stack([state[i] for state in last]) for i in range(size))

    return run


def _alone(cell: _Cell) -> Callable[..., Tensor]:
    """One time step, with a state of one tensor."""
    return lambda z, state, *weights: cell(z, (state,), *weights)[0]


_tanh_cell, _relu_cell = _plain_cell(torch.tanh), _plain_cell(torch.relu)

PARTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(DIVISION, _divide),
    "addcdiv": _divide_and_add, "std": _standard_deviation, "var_mean": _variance_and_mean, "std_mean": _deviation_and_mean,
    "vector_norm": _vector_norm, "norm": _norm, "cosine_similarity": _cosine_similarity, "glu": _gated_linear_unit,
    "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm, "instance_norm": _instance_norm,
    "scaled_dot_product_attention": _attention,
    "lstm": _recurrent(_lstm_cell, 2), "gru": _recurrent(_gru_cell, 1), "rnn_tanh": _recurrent(_tanh_cell, 1),
    "rnn_relu": _recurrent(_relu_cell, 1), "lstm_cell": _lstm_cell, "gru_cell": _alone(_gru_cell),
    "rnn_tanh_cell": _alone(_tanh_cell), "rnn_relu_cell": _alone(_relu_cell),
}  # fmt: skip


def take_apart(call: Call) -> Any:
    """What a call returns, computed from operations that are linear or have a rule; None where that is not known.

    The values are those of the call to rounding.
    """
    part = PARTS.get(call.name)
    return None if part is None else part(*call.args, **{key: arg for key, arg in call.kwargs.items() if key != "inplace"})
