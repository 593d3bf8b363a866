"""Products, linear in each of several factors, and the solutions of linear equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2._engine.private import base_of
from ig2._engine.slopes.operations import Operation, replace_slope


def count_factors(call: Operation) -> int:
    """Return how many factors of a product depend on the input."""
    if call.name == "lerp":  # start + weight · (end − start)
        return 2 * int(getattr(call.argument(2, "weight"), "requires_grad", False))
    adds = call.name.startswith(("add", "badd"))
    every = call.name in ("einsum", "bilinear")
    factors = call.tensors if every else call.tensors[1:3] if adds else call.tensors[:2]
    return sum(factor.requires_grad for factor in factors)


class _Average(torch.autograd.Function):
    """A call's own value, with its gradient averaged between its variables and those recorded."""

    @staticmethod
    def forward(ctx: Any, call: Operation, recorded: list[Tensor], degree: int, *variables: Tensor) -> Tensor:
        nodes, weights = np.polynomial.legendre.leggauss((degree + 1) // 2)
        ctx.parts = []
        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            ends = zip(variables, recorded, strict=True)
            points = [torch.lerp(far, near, (1 + node) / 2).requires_grad_() for near, far in ends]
            with torch.enable_grad():
                ctx.parts.append((weight / 2, points, call.at(points).result()))
        value: Tensor = call.value()
        # einsum returns a view, and autograd lets nobody write into a view that a function of ours returned
        return value if base_of(value) is None else value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # kept for a second pass, that of the choices: the points are what it keeps, and they stay here in any case
        each = [
            torch.autograd.grad(result, points, grad * weight, retain_graph=True, allow_unused=True)
            for weight, points, result in ctx.parts
        ]
        return None, None, None, *(None if parts[0] is None else sum(parts) for parts in zip(*each, strict=True))


def average_gradient(call: Operation, recorded: list[Tensor]) -> Tensor:
    """Average the gradient of a polynomial of degree n in its variables, by n / 2 nodes of Gauss.

    f(z) − f(z′) = ∫ ∇f(z′ + t·(z − z′)) dt · (z − z′). They are exact for the
    gradient, whose degree along the line is n − 1. Of a product of two that is one node in the middle,
    ½(a + a′)·Δb + ½(b + b′)·Δa.
    """
    degree = max(2, count_factors(call))
    result: Tensor = _Average.apply(call, recorded, degree, *call.variables)  # type: ignore[no-untyped-call]
    return result


def solve(call: Operation, recorded: list[Tensor]) -> Tensor:
    """X with A·X = B. With means Ā and X̄ of both ends, Ā·ΔX + ΔA·X̄ = ΔB, so ΔX = Ā⁻¹·(ΔB − ΔA·X̄)."""
    with torch.no_grad():
        x, x_far = call.value(), call.at(recorded).value()
    (a, b), (a_far, _) = _equation(call), _equation(call.at(recorded))
    mean_a, mean_x = (a + a_far).detach() / 2, (x + x_far) / 2
    if b is None:  # the inverse
        source = -mean_a.inverse() @ a @ mean_x
    elif not call.kwargs.get("left", True):  # X·A = B
        source = torch.linalg.solve(mean_a, b - mean_x @ a, left=False)
    elif b.ndim == 1 or b.shape == a.shape[:-1]:  # a vector
        source = torch.linalg.solve(mean_a, b - (a @ mean_x[..., None])[..., 0])
    else:
        source = torch.linalg.solve(mean_a, b - a @ mean_x)
    return replace_slope(source, x)


def _equation(call: Operation) -> tuple[Tensor, Tensor | None]:
    """Return a as it counts, and B, if it is not one."""
    a, b = call.args[0], None if call.name in ("inv", "inverse") else call.argument(1, "B")
    if call.name == "solve_triangular":
        unit = call.kwargs.get("unitriangular", False)
        a = a.triu(int(unit)) if call.kwargs["upper"] else a.tril(-int(unit))
        a = a + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device) if unit else a
    return a, b
