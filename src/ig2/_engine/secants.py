"""Multipliers of the secant rule: a gradient in which every operation has its slope between two points.

The network runs at the far points, where the arguments of each operation that is not linear are recorded, and then at the
near ones, where each gets its slope from the one to the other in place of its derivative (see `slopes`). Functions are
intercepted as they are called, so a module used twice, a functional call and an in-place one are all seen; they are matched one
by one between the two passes, so it does not matter which axis of an activation is the batch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError

from ig2._engine.activations import first_tensor
from ig2._engine.choices import MAXIMA, Choices, choose
from ig2._engine.layers import Readings
from ig2._engine.network import Network
from ig2._engine.private import body_of, read_saved
from ig2._engine.slopes import Call, find_rule, replace_slope, take_apart
from ig2.errors import ModelError

# A pair holds both its passes and what the rules make of them: about this many times what a gradient does. Planned so, 160
# pairs on the wafer CNN took 1.35 s on a CPU, and 1.75 s as one point each: smaller tensors stay in its caches.
POINTS_A_PAIR = 3
# So many roundings of its terms are no movement of a margin.
ROUNDING = 16
INSTEAD = "use ig2.ExpectedIG, or another rule (ig2.rules.blended)"
OWN_GRADIENTS = (
    f"the network takes a gradient inside its forward pass, which DeepSHAP and the secant rule cannot replace: {INSTEAD}"
)
GRADIENTS = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)


def find_multipliers(
    network: Network, near: Tensor, far: Tensor, rows: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Multipliers m (n, ...) with Σ m·(near − far) = f(near) − f(far), and f at both, (n,).

    The equation holds as far as `operations_without_rule` has nothing to name.
    """
    points = near.detach().requires_grad_()
    try:
        ends = rescale(network, points, far, rows, target)
        (multipliers,) = _differentiate(network, ends, points, far, [])
    except CheckpointError as error:
        raise ModelError(
            "DeepSHAP and the secant rule cannot follow torch.utils.checkpoint, which runs parts of the network once more for "
            f"the gradient: switch it off to explain the network, or {INSTEAD}"
        ) from error
    network.forget()
    assert multipliers is not None
    return multipliers, ends.output.detach(), ends.far_output


def find_contributions(
    network: Network, near: Tensor, far: Tensor, rows: Tensor, target: Tensor, modules: Sequence[nn.Module]
) -> tuple[list[Tensor], Tensor, Tensor]:
    """m ⊙ (h(near) − h(far)) for what each module h returns, (n, ...), and f at both, (n,).

    Where all of the input goes through a module, its contributions sum to f(near) − f(far), as far as the multipliers' do.
    """
    points = near.detach().requires_grad_()
    with Readings(modules) as readings:
        ends = rescale(network, points, far, rows, target)
    # of a layer that returns several, as Swin's do, it is the first; where choices differ, the last two passes are compared
    read = [[first_tensor(each if isinstance(each, tuple) else (each,), {}) for each in both[-2:]] for both in readings.outputs]
    _, *multipliers = _differentiate(network, ends, points, far, [at_near for _, at_near in read])
    network.forget()
    contributions = [
        torch.zeros_like(at_near) if multiplier is None else multiplier * (at_near - at_far).detach()
        for (at_far, at_near), multiplier in zip(read, multipliers, strict=True)
    ]
    return contributions, ends.output.detach(), ends.far_output


@dataclass(frozen=True)
class Ends:
    """f at the near points (n,), whose gradient by them is the multiplier, and f at the far ones (n,).

    Where the network chooses differently at both: the margin of the choices, summed over all points, and what they did, (n,).
    """

    output: Tensor
    far_output: Tensor
    margin: Tensor | None = None
    jump: Tensor | None = None


def _differentiate(
    network: Network, ends: Ends, points: Tensor, far: Tensor, activations: Sequence[Tensor]
) -> list[Tensor | None]:
    """Multipliers of the points and of activations. What choices did goes to the values that they were made by.

    With the multipliers c of the margin, Σ c·(near − far) is how far it moved: jump / moved · c sums to the jump.
    """
    leaves = [points, *activations]
    multipliers = network.differentiate(ends.output, leaves, retain=ends.margin is not None)
    multipliers[0] = torch.zeros_like(points) if multipliers[0] is None else multipliers[0]
    if ends.margin is None or ends.jump is None:
        return multipliers
    of_margin = network.differentiate(ends.margin, leaves)
    if of_margin[0] is None:
        return multipliers
    terms = (of_margin[0] * (points.detach() - far)).flatten(1)
    moved, rounding = terms.sum(dim=1), ROUNDING * torch.finfo(terms.dtype).eps * terms.abs().sum(dim=1)
    factor = torch.where(moved > rounding, ends.jump / moved, 0.0)
    for number, (multiplier, margin) in enumerate(zip(multipliers, of_margin, strict=True)):
        if margin is not None:
            share = margin * factor.to(margin.dtype).view(-1, *[1] * (margin.ndim - 1))
            multipliers[number] = share if multiplier is None else multiplier + share
    return multipliers


def rescale(network: Network, near: Tensor, far: Tensor, rows: Tensor, target: Tensor) -> Ends:
    """Run the network at both ends: two passes, and two more if it chooses differently there."""

    def run(points: Tensor, choices: Choices, calls: deque[_Recorded], rescales: bool) -> Tensor:
        with _Interception(calls, choices, rescales):
            return network.scores(points, rows).gather(1, target[:, None])[:, 0]

    with torch.enable_grad():
        # The far points get a graph as well, though it is not used: a network may take another way where none is asked for, as
        # PyTorch's transformer layers do.
        leaf = far.detach().clone().requires_grad_()
        calls: deque[_Recorded] = deque()
        theirs = Choices()
        far_output = run(leaf, theirs, calls, rescales=False).detach()
        own = Choices(others=theirs.own)
        jump, choices = None, own
        try:
            output = run(near, own, calls, rescales=True)
            if own.differ:
                calls.clear()
                theirs = Choices(own.own)
                jump = run(leaf, theirs, calls, rescales=False).detach() - far_output
                choices = Choices(own.own, theirs.own)
                output = run(near, choices, calls, rescales=True)
        except RuntimeError as error:
            if "functorch" not in str(error):
                raise
            raise ModelError(OWN_GRADIENTS) from error
        if calls:
            raise _other_operations(calls[0][0])
        if not output.requires_grad:  # as it did in the session's first pass
            raise ModelError(OWN_GRADIENTS)
        return Ends(output, far_output, choices.margin, jump)


_Recorded = tuple[str, list[Tensor]]  # a call's name and its variables at the far points


class _Interception(TorchFunctionMode):
    """Records the variables of every call that has a rule, or rescales the call from what was recorded to its own."""

    def __init__(self, calls: deque[_Recorded], choices: Choices, rescales: bool) -> None:
        super().__init__()
        self.calls, self.choices, self.rescales = calls, choices, rescales

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in GRADIENTS:
            # it would get the multipliers of what was rescaled for its gradient
            raise ModelError(OWN_GRADIENTS)
        call = Call(func, args, kwargs or {})
        places = self.choices.make(call)
        if places is None:
            return self._run(call)
        if call.name not in MAXIMA:
            return choose(call, places)
        values, _ = result = self._run(call)
        return type(result)((values, places))

    def _run(self, call: Call) -> Any:
        if not call.variables or not torch.is_grad_enabled() or self.choices.differ:
            return call.result()
        rule = find_rule(call)
        if rule is None:
            return self._run_inside(call)
        if not self.rescales:
            # copied: a later call may write into them
            self.calls.append((call.name, [variable.detach().clone() for variable in call.variables]))
            return call.result()
        name, recorded = self.calls.popleft() if self.calls else ("nothing", [])
        if name != call.name or [each.shape for each in recorded] != [each.shape for each in call.variables]:
            raise _other_operations(call.name)
        result = rule(call, recorded)
        return call.args[0].copy_(result) if call.in_place else result

    def _run_inside(self, call: Call) -> Any:
        """A call without a rule of its own: each call in its Python code, or the parts it is taken apart into."""
        body = body_of(call.func)
        with self:  # a mode is switched off while it handles a call
            if body is not None:
                return body(*call.args, **call.kwargs)
            parts = take_apart(call)
        if parts is None or not self.rescales:
            return call.result()
        value = call.value()
        if isinstance(value, tuple):
            return tuple(map(_replace_value, parts, value))
        result = _replace_value(parts, value)
        return call.args[0].copy_(result) if call.in_place else result


def _replace_value(parts: Tensor, value: Tensor) -> Tensor:
    """The value that the network has itself, with the gradient of what it was taken apart into."""
    return replace_slope(parts.to(value.dtype), value)


def _other_operations(name: str) -> ModelError:
    return ModelError(
        f"the network ran other operations at one end of a segment than at the other (first at {name!r}): its control flow "
        f"depends on the values, and DeepSHAP and the secant rule compare the two operation by operation. Instead, {INSTEAD}"
    )


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
        saved = read_saved(node)
        frozen_norm = "BatchNorm" in name and not saved.get("training", True)
        if frozen_norm or any(known in name for known in KEEPS_INPUT):
            continue
        saved_in_python = getattr(node, "saved_tensors", ())
        if any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in [*saved.values(), *saved_in_python]):
            names[name] += 1
    return [name if number == 1 else f"{name} ({number} times)" for name, number in sorted(names.items())]
