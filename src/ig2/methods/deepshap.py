"""DeepSHAP: DeepLIFT's rescale rule, averaged over the references.

A network runs at the references, where the arguments of each of its non-linearities are recorded, and then at the explicands,
where each non-linearity gets the slope from the reference to the explicand, Δy/Δz, in place of its derivative. Functions are
intercepted as they are called, so a module used twice, a functional call and an in-place one are all seen; they are matched
one by one between the two passes, so it does not matter which axis of an activation is the batch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError

from ig2._engine.integrate import Keep, Moments
from ig2._engine.private import saved_by
from ig2._engine.session import Session
from ig2._engine.task import Task
from ig2.errors import ModelError, warn
from ig2.methods.base import Method, Result
from ig2.paths.base import Pairs
from ig2.references.base import References, draw_references

# A sum further than this share from the change in the output is worth a warning.
ADDITIVE_WITHIN = 0.01
# How many explicands that are off are run again, the worst first, before none is worth a warning.
MOST_SUSPECTS = 8
# So many roundings of the values and outputs are no miss: in float32 deep networks 40 were seen where float64 is exact.
ROUNDINGS = 64
# A pair holds both its passes and what the rules make of them: about this many times what a gradient does. Planned so, 160
# pairs on the wafer CNN took 1.35 s on a CPU, and 1.75 s as one point each: smaller tensors stay in its caches.
POINTS_A_PAIR = 3
OWN_GRADIENTS = (
    "the network takes a gradient inside its forward pass, for which DeepSHAP has no rescale rule: use ig2.ExpectedIG"
)


@dataclass(frozen=True, eq=False)
class DeepSHAP(Method):
    """DeepLIFT's rescale rule [Shrikumar 2017], averaged over the references [Lundberg 2017].

    φᵢ = E[mᵢ·(xᵢ − xʳᵢ)] with the multiplier m = Δf/Δx, which is the gradient of f where every non-linearity y(z) has the
    slope (y(z) − y(zʳ)) / (z − zʳ). The values sum to f(x) − mean f(references) on networks of linear maps, functions of one
    variable, max pooling and softmax. Where there is anything else (products of activations, attention, layer norm) they do
    not, and a warning says how far they are off.

    >>> import torch
    >>> DeepSHAP()(lambda x: x.relu().sum(dim=1), torch.tensor([[3.0, -1.0]]), references=torch.tensor([[-1.0, 1.0]])).values
    tensor([[ 3., -1.]])
    """

    multiplies: ClassVar[bool] = True  # by x − reference; False leaves the multipliers Δf/Δx, which are no contributions

    takes_own_gradients = True

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        samples = draw_references(self.require_references(references), task)
        count, device = samples.shape[1], task.x.device
        moments = Moments(torch.zeros_like(task.x))
        baseline_outputs, changes, missing, sizes = torch.zeros(4, len(task), count, dtype=task.x.dtype, device=device)
        task.progress.expect(len(task) * count)

        def work(piece: range) -> None:
            number = torch.arange(piece.start, piece.stop, device=device)
            rows, columns = number // count, number % count
            pairs = _pairs(task, samples, rows, columns)
            multiplier, output, baseline = _multipliers(task.session, pairs)
            values = multiplier * (pairs.explicand.detach() - pairs.reference)
            finite = values.flatten(1).isfinite().all(dim=1) & baseline.isfinite()
            if not finite.all():
                bad = int((~finite).nonzero()[0])
                raise ModelError(
                    f"DeepSHAP of explicand {int(pairs.rows[bad])} and reference {int(columns[bad])} is not finite: explain a "
                    "logit or log-probability instead of a probability, or use float32 instead of half precision",
                    rows=pairs.rows[~finite].tolist(),
                )
            for i, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
                moments.add(row, column, values[i] if self.multiplies else multiplier[i])
            baseline_outputs[rows, columns] = baseline
            changes[rows, columns] = output - baseline
            missing[rows, columns] = values.flatten(1).sum(dim=1) - (output - baseline)
            sizes[rows, columns] = values.flatten(1).abs().sum(dim=1)
            task.progress.advance(len(piece))

        task.batch.over(len(task) * count, work, POINTS_A_PAIR)
        size = sizes.mean(dim=1) + baseline_outputs.abs().mean(dim=1)
        _warn_if_not_additive(task, samples, missing, changes.mean(dim=1).abs(), size)
        spread = moments.deviation(count) if count > 1 else None
        return Result(values=moments.mean, baseline_outputs=baseline_outputs, spread=spread)


def _warn_if_not_additive(task: Task, samples: Tensor, missing: Tensor, change: Tensor, size: Tensor) -> None:
    """Warn where values miss the change in the output, given what is missing (B, R) and the mean change and size (B,)."""
    off = missing.mean(dim=1).abs()
    # of the coarsest type that is computed in: a bfloat16 network on float32 inputs was "off by 4.5%"
    types = {dtype for _, _, dtype in task.session.inputs.attributed}
    types |= {p.dtype for _, module in task.session.model.modules for p in module.parameters(False) if p.is_floating_point()}
    if torch.is_autocast_enabled(task.x.device.type):
        types.add(torch.get_autocast_dtype(task.x.device.type))
    precision = max((torch.finfo(dtype) for dtype in types), key=lambda info: info.eps)
    # and the smallest steps there are: float16 has none below 6e-8
    rounding = ROUNDINGS * precision.eps * (size + change + precision.smallest_normal)
    wrong = off > ADDITIVE_WITHIN * change + rounding
    # what cancels inside the network is rounded by more than the output shows
    suspects = torch.where(wrong, off / (change + rounding), -1.0).argsort(descending=True)[: int(wrong.sum())]
    for worst in suspects[:MOST_SUSPECTS].tolist():
        pair = _pairs(task, samples, torch.tensor([worst], device=off.device), missing[worst].abs().argmax()[None])
        if not _misses_steadily(task.session, pair, precision.eps):
            continue
        culprits = operations_without_rule(rescale(task.session, pair)[0])
        share = f", {float(off[worst] / change[worst]):.1%} of its change" if change[worst] > 0 else " of no change at all"
        cause = (
            f"The network has operations without a rescale rule: {', '.join(culprits)}"
            if culprits
            else "Look for choices made on values (torch.where, sorting) and for detached parts"
        )
        warn(
            f"DeepSHAP does not account for the change in the output of {int(wrong.sum())} of {len(task)} explicands: "
            f"explicand {int(task.rows[worst])} is off by {float(off[worst]):.3g}{share}. {cause}. Read the values as a "
            "ranking, or use ig2.ExpectedIG"
        )
        return


def _pairs(task: Task, samples: Tensor, rows: Tensor, columns: Tensor) -> Pairs:
    """Explicands `rows` (n,), as leaves of a graph, each with its reference `columns` (n,)."""
    explicand = task.x[rows].requires_grad_()
    reference = samples[rows.to(samples.device), columns.to(samples.device)].to(explicand)
    return Pairs(explicand, reference, task.rows[rows], task.target[rows])


def _multipliers(session: Session, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """DeepLIFT's multipliers (n, ...), and f at the explicands and at the references, (n,)."""
    try:
        output, baseline = rescale(session, pairs)
        multiplier = session.differentiate(output, pairs.explicand)
    except CheckpointError as error:
        raise ModelError(
            "DeepSHAP cannot follow torch.utils.checkpoint, which runs parts of the network once more for the gradient: switch "
            "it off to explain the network, or use ig2.ExpectedIG"
        ) from error
    return multiplier, output.detach().to(multiplier.dtype), baseline.to(multiplier.dtype)


def _misses_steadily(session: Session, pairs: Pairs, precision: float) -> bool:
    """Whether a pair's values miss the change in its output by about as much when the explicand moves a little.

    What a rule is missing for stays; what rounding leaves of a sum that cancels is another number each time. Moved by
    some last bits alone it was the same one in 2 of 100 networks.
    """
    misses = []
    for step in range(5):
        moved = (pairs.explicand.detach() * (1 + step * precision**0.5)).requires_grad_()
        multiplier, output, baseline = _multipliers(session, replace(pairs, explicand=moved))
        misses.append(float((multiplier * (moved.detach() - pairs.reference)).sum() - (output - baseline).sum()))
    return all(abs(miss - misses[0]) < 0.5 * abs(misses[0]) for miss in misses[1:])


def rescale(session: Session, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """f at the explicands (n,), whose gradient by them is DeepLIFT's multiplier, and f at the references (n,)."""
    calls: deque[_Recorded] = deque()
    # The references get a graph as well, though it is not used: a network may take another way where none is asked for, as
    # PyTorch's transformer layers do.
    with _Interception(calls, rescales=False):
        baseline = session.scores_with_graph(pairs.reference.clone().requires_grad_(), pairs.rows).detach()
    try:
        with _Interception(calls, rescales=True):
            scores = session.scores_with_graph(pairs.explicand, pairs.rows)
    except RuntimeError as error:
        if "functorch" not in str(error):
            raise
        raise ModelError(OWN_GRADIENTS) from error
    if calls:
        raise _other_operations(calls[0][0])
    if not scores.requires_grad:  # as it did in the session's first pass
        raise ModelError(OWN_GRADIENTS)
    with torch.enable_grad():
        return tuple(each.gather(1, pairs.target[:, None])[:, 0] for each in (scores, baseline))  # type: ignore[return-value]


# -- intercepting every call ---------------------------------------------------------------------------------------------


class _Call:
    """One call of a torch function, however it was written."""

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if "input" in kwargs:
            args, kwargs = (kwargs["input"], *args), {key: arg for key, arg in kwargs.items() if key != "input"}
        self.func, self.args, self.kwargs = func, args, kwargs
        name = getattr(func, "__name__", "").partition(".")[0]
        # `relu` for torch.relu, Tensor.relu_, nn.functional.relu and torch.ops.aten.relu.default alike
        self.name: str = name.removeprefix("special_").strip("_")
        self.in_place = bool(kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))
        # what depends on the input: parameters do not require a gradient here, so nothing else does
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor) and arg.requires_grad]
        self.variables = list({id(tensor): tensor for tensor in tensors}.values())

    def at(self, values: Sequence[Tensor]) -> _Call:
        """The same call at other values of its variables."""
        swap = {id(old): new for old, new in zip(self.variables, values, strict=True)}
        args = [swap.get(id(arg), arg) for arg in self.args]
        if self.in_place:
            args[0] = args[0].clone()
        return _Call(self.func, tuple(args), {key: swap.get(id(arg), arg) for key, arg in self.kwargs.items()})

    def argument(self, position: int, name: str) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    def result(self) -> Any:
        return self.func(*self.args, **self.kwargs)


_Recorded = tuple[str, list[Tensor]]  # a call's name and its variables at the references


class _Interception(TorchFunctionMode):
    """Records the variables of every call that has a rule, or rescales the call from what was recorded to its own."""

    def __init__(self, calls: deque[_Recorded], rescales: bool) -> None:
        super().__init__()
        self.calls, self.rescales = calls, rescales

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        call = _Call(func, args, kwargs or {})
        rule = _rule(call)
        if rule is None:
            return call.result()
        if not self.rescales:
            # copied: a later call may write into them
            self.calls.append((call.name, [variable.detach().clone() for variable in call.variables]))
            return call.result()
        name, recorded = self.calls.popleft() if self.calls else ("nothing", [])
        if name != call.name or [each.shape for each in recorded] != [each.shape for each in call.variables]:
            raise _other_operations(call.name)
        result = rule(call, recorded)
        return call.args[0].copy_(result) if call.in_place else result


def _other_operations(name: str) -> ModelError:
    return ModelError(
        f"the network ran other operations for an explicand than for its reference (first at {name!r}): its control flow "
        "depends on the values, and DeepSHAP compares the two operation by operation. Use ig2.ExpectedIG"
    )


class _Replacement(torch.autograd.Function):
    """`value`, with the gradient of multiplier ⊙ source."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, value: Tensor, multiplier: Tensor) -> Tensor:
        ctx.save_for_backward(multiplier)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.saved_tensors[0], None, None


# -- the rules -----------------------------------------------------------------------------------------------------------

_Rule = Callable[[_Call, list[Tensor]], Any]  # of a call at the explicands, and its variables at the references

# fmt: off
ELEMENTWISE = {
    "relu", "relu6", "leaky_relu", "rrelu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign",
    "threshold", "hardtanh", "hardswish", "hardsigmoid", "hardshrink", "softshrink", "tanhshrink", "clamp", "clip", "clamp_min",
    "clamp_max", "sigmoid", "expit", "log_sigmoid", "logit", "tanh", "erf", "erfc", "erfinv", "abs", "absolute", "square",
    "sqrt", "rsqrt", "pow", "rpow", "float_power", "reciprocal", "div", "divide", "true_divide", "rdiv", "rtruediv", "mul",
    "multiply", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "asinh", "acosh", "atanh", "sinc", "sign", "round", "floor", "ceil", "trunc", "frac",
}
# fmt: on
POOLING = {f"{kind}max_pool{axes}d": axes for kind in ("", "adaptive_") for axes in (1, 2, 3)}
GRADIENTS = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)


def _rule(call: _Call) -> _Rule | None:
    """The rule for a call, if it depends on the input and has one. A linear call needs none."""
    if call.func in GRADIENTS:
        # it would get the multipliers of what was rescaled for its gradient
        raise ModelError(OWN_GRADIENTS)
    variables = call.variables
    if not variables or not torch.is_grad_enabled():
        return None
    rule = _rule_by_name(call, variables)
    if rule is not None and any(variable.is_complex() for variable in variables):
        raise ModelError(
            f"the network computes {call.name!r} of complex numbers, for which DeepSHAP has no rule. Use ig2.ExpectedIG"
        )
    return rule


def _rule_by_name(call: _Call, variables: list[Tensor]) -> _Rule | None:
    name, second, along = call.name, call.argument(1, "other"), call.argument(1, "dim")
    if name in ELEMENTWISE and len(variables) == 1:
        if name in ("mul", "multiply") and call.args[0] is not second:
            return None  # by a constant
        if name in ("div", "divide", "true_divide") and second is not variables[0]:
            return None
        return _elementwise
    if name.removesuffix("_with_indices") in POOLING:
        return _pooling
    if name in ("maximum", "minimum") or (name in ("max", "min") and isinstance(second, Tensor)):
        return _maximum
    if (name in ("amax", "amin") and along not in (None, ())) or (name in ("max", "min") and isinstance(along, int)):
        return _maximum
    if name in ("softmax", "log_softmax", "logsumexp") and along is not None:
        return _softmax
    return None


def _slope(step: Tensor, y: Tensor, y_reference: Tensor, derivative: Tensor) -> Tensor:
    """Δy/Δz for a step Δz; or the derivative, the mean of that at both ends, where it accounts for Δy to rounding.

    So a small step, over which Δy is all rounding, gives a sound multiplier, and none costs any additivity.
    """
    change = y - y_reference
    # in place where a tensor is this function's own: passes over the activations are what this costs
    rounding = y.abs().add_(y_reference.abs()).mul_(2 * torch.finfo(y.dtype).eps)
    off = (change - derivative * step).abs_()
    # written so that NaN counts as accounted for: the step between two −∞ of a mask, ∞ · 0 of √z at 0
    return torch.where(off > rounding, change / step, derivative.nan_to_num(0.0, 0.0, 0.0))


def _elementwise(call: _Call, recorded: list[Tensor]) -> Tensor:
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
    return _replace(call.variables[0].expand(y.shape), y, slope)


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
    return _replace(source, y, slope)


def _pooling(call: _Call, recorded: list[Tensor]) -> Any:
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


def _maximum(call: _Call, recorded: list[Tensor]) -> Any:
    """The larger or smaller of two tensors, of which one may be constant; or the largest or smallest along some axes."""
    sign = -1 if "min" in call.name else 1

    def lines(call: _Call) -> Any:
        second = call.argument(1, "other")
        if isinstance(second, Tensor):
            return torch.stack(torch.broadcast_tensors(call.args[0], second), dim=-1) * sign  # type: ignore[no-untyped-call]
        dims = call.argument(1, "dim")
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        return call.args[0].movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims)) * sign

    z, reference = lines(call), lines(call.at(recorded))
    largest = _largest(z, reference, _maxima(z), _maxima(reference)) * sign
    with torch.no_grad():
        result = call.at(call.variables).result()
    if isinstance(result, tuple):
        return type(result)((largest.view_as(result[0]), result[1]))
    return largest.view_as(result)


def _softmax(call: _Call, recorded: list[Tensor]) -> Tensor:
    """log Σ exp(z) by the rescale rule for exp and for log, log-softmax as z less that, and softmax as exp of it."""
    dim = call.argument(1, "dim")
    with torch.no_grad():
        y, y_reference = call.at(call.variables).result(), call.at(recorded).result()
    z, reference = call.variables[0].to(y.dtype), recorded[0].to(y.dtype)
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
        return _replace(log_sum.view_as(y), y, torch.ones_like(y))
    if call.name == "log_softmax":
        return _replace(z - log_sum, y, torch.ones_like(y))
    with torch.no_grad():
        slope = _slope(z.log_softmax(dim) - reference.log_softmax(dim), y, y_reference, (y + y_reference) / 2)
    return _replace(z - log_sum, y, slope)


def _replace(source: Tensor, value: Tensor, multiplier: Tensor) -> Tensor:
    result: Tensor = _Replacement.apply(source, value, multiplier)  # type: ignore[no-untyped-call]
    return result


# -- operations without a rule -------------------------------------------------------------------------------------------

# Linear maps whose backward pass keeps its input all the same, for its shape or for a weight's gradient.
KEEPS_INPUT = ("Convolution", "AvgPool", "Pad", "Gather", "Upsample")


def operations_without_rule(output: Tensor) -> list[str]:
    """Name the operations behind a rescaled output that are not linear, as autograd calls them, and how often they occur.

    The backward pass of a linear operation needs no activation: those that saved one are the others.
    """
    names: Counter[str] = Counter()
    pending, seen = [output.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending.extend(following for following, _ in node.next_functions)
        name = node.name().rstrip("0123456789").removesuffix("Backward")
        saved = saved_by(node)
        frozen_norm = "BatchNorm" in name and not saved.get("training", True)
        if frozen_norm or any(known in name for known in KEEPS_INPUT):
            continue
        saved_in_python = getattr(node, "saved_tensors", ())
        if any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in [*saved.values(), *saved_in_python]):
            names[name] += 1
    return [name if number == 1 else f"{name} ({number} times)" for name, number in sorted(names.items())]
