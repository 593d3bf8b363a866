"""Functions of each element: of one variable, of two, by a condition, and softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from ig2._engine.slopes.operations import Operation, at_least_float, find_slope, replace_slope


def rescale_one(call: Operation, recorded: list[Tensor]) -> Tensor:
    """Replace the slope of a function of one variable: Δy/Δz, the rescale rule itself."""
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
        slope = find_slope(z - reference, y, y_reference, (derivative + derivative_reference).mul_(0.5))
    return replace_slope(call.variables[0].expand(y.shape), y, slope)


def acts_on_each(call: Operation) -> bool:
    """Return whether a function of one variable maps each element alone: of elements from two
    inputs, each has the result it had."""
    if len(call.variables) != 1 or call.in_place:
        return False
    z = call.variables[0].detach()
    other = z.flip(tuple(range(z.ndim)))
    takes = torch.arange(z.numel(), device=z.device).view(z.shape) % 3 == 0
    y, y_other, mixed = (call.at([each]).value() for each in (z, other, torch.where(takes, z, other)))
    return isinstance(y, Tensor) and y.shape == z.shape and torch.equal(torch.where(takes, y, y_other), mixed)


def rescale_two(call: Operation, recorded: list[Tensor]) -> Tensor:
    """Replace the slopes of a function of two variables: each one's secant,
    averaged over where the other may be.

    With F(a) = ½(f(a, b) + f(a, b′)) and G(b) = ½(f(a, b) + f(a′, b)), F(a) − F(a′) + G(b) − G(b′) = f(a, b) − f(a′, b′).
    """
    near = list(torch.broadcast_tensors(*call.variables))  # type: ignore[no-untyped-call]
    far = [each.expand_as(near[0]) for each in recorded]
    source = torch.zeros((), dtype=near[0].dtype, device=near[0].device)
    for number in (0, 1):

        def mean(point: Tensor, number: int = number) -> tuple[Tensor, Tensor]:
            """Return the mean over both places of the other, and its derivative."""
            with torch.enable_grad():
                point = point.detach().requires_grad_()
                others = near[1 - number].detach(), far[1 - number]
                y = sum(call.at([point, other] if number == 0 else [other, point]).result() for other in others) / 2
                (derivative,) = torch.autograd.grad(y, point, torch.ones_like(y))
            return y.detach(), derivative

        (y, derivative), (y_far, derivative_far) = mean(near[number]), mean(far[number])
        with torch.no_grad():
            slope = find_slope(near[number] - far[number], y, y_far, (derivative + derivative_far) / 2)
        source = source + near[number] * slope
    return replace_slope(source, call.value())


def rescale_choice(call: Operation, recorded: list[Tensor]) -> Tensor:
    """One of two values by a condition: itself where the condition is the same at both ends, and Δy/Δz elsewhere.

    There z is whichever of both moved further: of a leaky ReLU, where(z > 0, z, 0.1·z), as of where(z > 0, z, −z), whose mean
    does not move at all, that is the secant over z.
    """
    (condition, first, second), condition_far = _branches(call), recorded[-1]
    if torch.equal(condition, condition_far):
        return call.at(call.variables).result()  # type: ignore[no-any-return]
    _, first_far, second_far = _branches(call.at(recorded[:-1]))
    with torch.no_grad():
        y = call.value()
        y_far = torch.where(condition_far, first_far, second_far).to(y.dtype).expand_as(y)
        steps = [(each - far).nan_to_num().to(y.dtype) for each, far in ((first, first_far), (second, second_far))]
        # what is masked by −∞ at one end alone has no slope
        turned = (condition != condition_far) & (y - y_far).isfinite()
        takes_first = torch.where(turned, steps[0].abs() >= steps[1].abs(), condition)
        slope = torch.where(
            turned, find_slope(torch.where(takes_first, steps[0], steps[1]), y, y_far, torch.zeros_like(y)), 1.0
        )
    return replace_slope(torch.where(takes_first, first, second).to(y.dtype).expand_as(y), y, slope)


def _branches(call: Operation) -> tuple[Tensor, Tensor, Tensor]:
    """Return the condition, the value where it holds, and that where it does not."""
    first, second = call.args[0], call.argument(1, "mask" if call.name == "masked_fill" else "condition")
    if call.name == "masked_fill":
        condition, chosen, other = second, call.argument(2, "value"), first
    elif first.dtype == torch.bool:  # torch.where
        condition, chosen, other = first, call.argument(1, "self"), call.argument(2, "other")
    else:  # the method of the value
        condition, chosen, other = second, first, call.argument(2, "other")
    dtype = next(each.dtype for each in call.tensors if each is not condition)
    chosen, other = (torch.as_tensor(each, dtype=dtype, device=condition.device) for each in (chosen, other))
    return condition, chosen, other


def rescale_softmax(call: Operation, recorded: list[Tensor]) -> Tensor:
    """log Σ exp(z) by the rescale rule for exp and for log, log-softmax as z less that, and softmax as exp of it."""
    dim = call.argument(1, "dim")
    with torch.no_grad():
        y, y_reference = call.at(call.variables).result(), call.at(recorded).result()
    # logarithms are wide: that of a small share has steps of 1/32 in bfloat16
    z, reference = (at_least_float(each.to(y.dtype)) for each in (call.variables[0], recorded[0]))
    with torch.no_grad():
        shift = torch.maximum(z, reference).amax(dim, keepdim=True)
        powers, powers_reference = (z - shift).exp(), (reference - shift).exp()
        total, total_reference = (each.sum(dim, keepdim=True) for each in (powers, powers_reference))
        # not the logarithms of these totals: one of them may have gone to zero
        log, log_reference = (each.logsumexp(dim, keepdim=True) - shift for each in (z, reference))
        share = find_slope(z - reference, powers, powers_reference, (powers + powers_reference) / 2)
        ends = (1 / total + 1 / total_reference) / 2
        share = share * find_slope(total - total_reference, log, log_reference, ends)
    log_sum = (z * share).sum(dim, keepdim=True)
    if call.name == "logsumexp":
        return replace_slope(log_sum.view_as(y), y)
    if call.name == "log_softmax":
        return replace_slope(z - log_sum, y)
    with torch.no_grad():
        slope = find_slope(z.log_softmax(dim) - reference.log_softmax(dim), y, y_reference, (y + y_reference) / 2)
    return replace_slope(z - log_sum, y, slope)
