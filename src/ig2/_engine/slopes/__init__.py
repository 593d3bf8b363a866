"""The slope of each operation between two points: what the secant rule puts in place of its derivative.

A function of one variable gets its secant, Δy/Δz, and a product the mean of its other factor: both account for Δy exactly.
What is built of such parts, as a normalisation or attention are, is taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ig2._engine.slopes.elementwise import rescale_choice, rescale_one, rescale_softmax, rescale_two
from ig2._engine.slopes.geometry import sample_grid
from ig2._engine.slopes.maxima import POOLING, maximum, pool
from ig2._engine.slopes.operations import Operation, Rule, replace_slope
from ig2._engine.slopes.parts import DIVISION, take_apart
from ig2._engine.slopes.products import average_gradient, count_factors, solve
from ig2.errors import ModelError

__all__ = ["FAMILIES", "Operation", "Rule", "find_rule", "list_compared", "replace_slope", "take_apart"]

# fmt: off
ELEMENTWISE = {
    "relu", "relu6", "leaky_relu", "rrelu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign",
    "threshold", "hardtanh", "hardswish", "hardsigmoid", "hardshrink", "softshrink", "tanhshrink", "clamp", "clip", "clamp_min",
    "clamp_max", "sigmoid", "expit", "log_sigmoid", "logit", "tanh", "erf", "erfc", "erfinv", "abs", "absolute", "square",
    "sqrt", "rsqrt", "pow", "rpow", "float_power", "reciprocal", "div", "divide", "true_divide", "rdiv", "rtruediv", "mul",
    "multiply", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "asinh", "acosh", "atanh", "sinc", "sign", "round", "floor", "ceil", "trunc", "frac",
    "nan_to_num", "lgamma", "i0",
}
OF_TWO = {"atan2", "arctan2", "hypot", "pow", "float_power", "xlogy", "logaddexp", "logaddexp2"}
# Linear in each of several arguments.
BILINEAR = {
    "mul", "multiply", "matmul", "rmatmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "outer", "ger", "kron", "cross",
    "tensordot", "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "einsum",
    # plus something that is linear
    "addmm", "addbmm", "baddbmm", "addmv", "addr", "addcmul", "lerp",
}
# fmt: on
CONDITIONAL = {"where", "masked_fill"}


def _has_one_variable(call: Operation) -> bool:
    second = call.argument(1, "other")
    if len(call.variables) != 1 or (call.name in ("mul", "multiply") and call.args[0] is not second):
        return False  # by a constant
    return call.name not in DIVISION or second is call.variables[0]


def _is_maximum(call: Operation) -> bool:
    """`max(z, dim)` and `max(a, b)`, of a tensor's only with those arguments; `amax` and `max` of all as well."""
    second = call.argument(1, "other")
    return call.name not in ("maximum", "minimum") or isinstance(second, Tensor)


@dataclass(frozen=True)
class Family:
    """Operations with the same rule."""

    about: str
    slope: str
    names: Iterable[str]
    rule: Rule
    applies: Callable[[Operation], bool] = lambda call: True  # to a call of one of these names


FAMILIES = (
    Family("functions of one variable", "the secant", ELEMENTWISE, rescale_one, _has_one_variable),
    Family(
        "functions of two variables", "each one's secant, averaged over both places of the other", OF_TWO,
        rescale_two, lambda call: len(call.variables) == 2,
    ),
    Family(
        "products", "the mean of the other factor at both ends; of more factors, the mean gradient between the ends", BILINEAR,
        average_gradient, lambda call: count_factors(call) > 1,
    ),
    Family("squares", "the gradient in the middle", ("var", "mse_loss"), average_gradient),
    Family(
        "solutions of linear equations", "of A·X = B, with means of A and X over both ends",
        ("solve", "solve_triangular", "inv", "inverse"), solve, lambda call: bool(call.args[0].requires_grad),
    ),
    Family(
        "maxima and minima", "all to the place of the larger of the two", ("maximum", "minimum", "max", "min", "amax", "amin"),
        maximum, _is_maximum,
    ),
    Family(
        "max pooling", "that of a maximum, in each window", (*POOLING, *(f"{name}_with_indices" for name in POOLING)), pool,
    ),
    Family("one of two values by a condition", "itself; where the condition changes, the secant", CONDITIONAL, rescale_choice),
    Family(
        "softmax", "exp, a sum and a logarithm, each with its secant", ("softmax", "log_softmax", "logsumexp"),
        rescale_softmax, lambda call: call.argument(1, "dim") is not None,
    ),
    Family(
        "reading at places that depend on the input", "each coordinate's secant, averaged over the places of the others",
        ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), sample_grid,
    ),
)  # fmt: skip
BY_NAME = {name: [family for family in FAMILIES if name in family.names] for family in FAMILIES for name in family.names}


def find_rule(call: Operation) -> Rule | None:
    """Return the rule for a call that is not taken apart. A linear call needs none."""
    family = next((family for family in BY_NAME.get(call.name, ()) if family.applies(call)), None)
    if family is not None and any(variable.is_complex() for variable in call.variables):
        raise ModelError(
            f"the network computes {call.name!r} of complex numbers, for which DeepSHAP and the secant rule have no slope. Use "
            "ig2.ExpectedIG"
        )
    return None if family is None else family.rule


def list_compared(call: Operation) -> list[Tensor]:
    """Return what a rule needs to know of a call at the far points: its variables, and the
    condition if it has one."""
    conditions = [tensor for tensor in call.tensors if tensor.dtype == torch.bool] if call.name in CONDITIONAL else []
    return [*call.variables, *conditions[:1]]
