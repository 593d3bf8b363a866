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
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError

from ig2._engine.activations import first_tensor
from ig2._engine.choices import MAXIMA, Choices, choose
from ig2._engine.layers import Readings
from ig2._engine.network import Network
from ig2._engine.private import FunctionsSeen, body_of
from ig2._engine.slopes import Operation, Rule, find_rule, list_compared, replace_slope, take_apart
from ig2._engine.slopes.elementwise import acts_on_each, rescale_one
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
LEAVING = ("numpy", "array", "dlpack")  # torch, with what the network has detached
GRADIENTS = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)


def find_multipliers(
    network: Network, near: Tensor, far: Tensor, rows: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return multipliers m (n, ...) with Σ m·(near − far) = f(near) − f(far), and f at both, (n,).

    The equation holds as far as `find_misses` finds none.
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
        (torch.zeros_like(at_near) if multiplier is None else multiplier * (at_near - at_far).detach())[: len(near)]
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
    """Return multipliers of the points and of activations. What choices did goes to the values that
    they were made by.

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

    def run(points: Tensor, following: _Following) -> Tensor:
        with following, FunctionsSeen():
            return network.scores(points, rows).gather(1, target[:, None])[:, 0]

    with torch.enable_grad():
        # The far points get a graph as well, though it is not used: a network may take another way where none is asked for, as
        # PyTorch's transformer layers do.
        leaf = far.detach().clone().requires_grad_()
        recording = _Recording(Choices())
        far_output = run(leaf, recording).detach()
        rescaling = _Rescaling(Choices(others=recording.choices.own), recording.calls)
        jump = None
        try:
            output = run(near, rescaling)
            if rescaling.choices.differ:
                chosen = rescaling.choices.own
                recording = _Recording(Choices(chosen))
                jump = run(leaf, recording).detach() - far_output
                rescaling = _Rescaling(Choices(chosen, recording.choices.own), recording.calls)
                output = run(near, rescaling)
        except RuntimeError as error:
            if "functorch" not in str(error):
                raise
            raise ModelError(OWN_GRADIENTS) from error
        if recording.calls:
            raise _other_operations(recording.calls[0][0])
        if not output.requires_grad:  # as it did in the session's first pass
            raise ModelError(OWN_GRADIENTS)
        return Ends(output, far_output, rescaling.choices.margin, jump)


def find_misses(network: Network, near: Tensor, far: Tensor, rows: Tensor) -> Counter[str]:
    """Return the operations whose slopes do not account for their own change between the ends, and
    how often they occur.

    Each is looked at alone. If there is none, those that cut the gradient off from what changed.
    """
    with torch.enable_grad():
        near, far = (points.detach().clone().requires_grad_() for points in (near, far))
        chosen = Choices()
        with _Recording(chosen), FunctionsSeen():
            network.scores(near, rows)
        noting, examining = _Noting(Choices(chosen.own)), _Examining(Choices(chosen.own))
        with noting, FunctionsSeen():
            network.scores(far, rows)
        examining.calls, examining.choices.others = noting.calls, noting.choices.own
        with examining, FunctionsSeen():
            network.scores(near, rows)
    network.forget()
    return examining.misses or examining.cuts


_Recorded = tuple[str, list[Tensor]]  # a call's name and what a rule needs to know of it at the far points


class _Following(TorchFunctionMode):
    """Sees each call of a pass that is not taken apart, and every choice."""

    rescales = False

    def __init__(self, choices: Choices) -> None:
        super().__init__()
        self.choices = choices
        self._left = False  # whether what was taken apart left torch

    def run_one(self, call: Operation, rule: Rule | None) -> Any:
        """Return what a call returns. Without a rule it is linear, or nothing is known of it."""
        raise NotImplementedError

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in GRADIENTS:
            # it would get the multipliers of what was rescaled for its gradient
            raise ModelError(OWN_GRADIENTS)
        call = Operation(func, args, kwargs or {})
        places = self.choices.make(call)
        if places is None:
            return self._run(call)
        if call.name not in MAXIMA:
            return choose(call, places)
        values, _ = result = self._run(call)
        return type(result)((values, places))

    def _run(self, call: Operation) -> Any:
        if not call.variables or not torch.is_grad_enabled():
            return call.result()
        if call.name == "detach":  # the output depends on it all the same
            return call.args[0] if call.in_place else call.args[0].view_as(call.args[0])
        if call.name in LEAVING:
            self._left = True
            return call.func(call.args[0].detach(), *call.args[1:], **call.kwargs)
        rule = find_rule(call)
        if rule is None:
            body = body_of(call.func)
            with self:  # a mode is switched off while it handles a call
                if body is not None:
                    return body(*call.args, **call.kwargs)
                before, self._left = self._left, False
                parts = take_apart(call)
                left, self._left = self._left, before
            if parts is not None and not left:
                return self._replace(call, parts) if self.rescales and not self.choices.differ else call.result()
            rule = rescale_one if hasattr(call.func, "autograd_function") and acts_on_each(call) else None
        # the pass of one end that chooses differently is run again: all that counts is what it chooses next
        return call.result() if self.choices.differ else self.run_one(call, rule)

    @staticmethod
    def _replace(call: Operation, parts: Any) -> Any:
        """Return the value that the network has itself, with the gradient of what it was taken
        apart into."""
        value = call.value()
        if isinstance(value, tuple):
            return tuple(map(_replace_value, parts, value))
        result = _replace_value(parts, value)
        return call.args[0].copy_(result) if call.in_place else result


class _Recording(_Following):
    """The far points: what rules need to know of them."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.calls: deque[_Recorded] = deque()

    def run_one(self, call: Operation, rule: Rule | None) -> Any:
        if rule is not None:
            # copied: a later call may write into them
            self.calls.append((call.name, [each.detach().clone() for each in list_compared(call)]))
        return call.result()


class _Rescaling(_Following):
    """The near points: each call is rescaled from what was recorded to its own."""

    rescales = True

    def __init__(self, choices: Choices, calls: deque[_Recorded]) -> None:
        super().__init__(choices)
        self.calls = calls

    def run_one(self, call: Operation, rule: Rule | None) -> Any:
        if rule is None:
            return call.result()
        name, recorded = self.calls.popleft() if self.calls else ("nothing", [])
        if name != call.name or [each.shape for each in recorded] != [each.shape for each in list_compared(call)]:
            raise _other_operations(call.name)
        result = rule(call, recorded)
        return call.args[0].copy_(result) if call.in_place else result


class _Noting(_Following):
    """The far points: all calls, and what they return."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.calls: deque[tuple[str, list[Tensor], list[Tensor]]] = deque()

    def run_one(self, call: Operation, rule: Rule | None) -> Any:
        compared = [each.detach().clone() for each in list_compared(call)]
        result = call.result()
        self.calls.append((call.name, compared, [each.detach().clone() for each in _list_numbers(result)]))
        return result


class _Examining(_Noting):
    """The near points: whether the slopes of each call account for its change."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.misses: Counter[str] = Counter()
        self.cuts: Counter[str] = Counter()
        self._random = torch.Generator().manual_seed(0)

    def run_one(self, call: Operation, rule: Rule | None) -> Any:
        name, recorded, far_results = self.calls.popleft() if self.calls else ("nothing", [], [])
        if name != call.name or [each.shape for each in recorded] != [each.shape for each in list_compared(call)]:
            raise _other_operations(call.name)
        leaves = [variable.detach().clone().requires_grad_() for variable in call.variables]
        fresh = call.at(leaves)
        # saved as they are: a network that computes layers twice would count them among its own
        with saved_tensors_hooks(_keep, _keep):
            results = _list_numbers(fresh.result() if rule is None else rule(fresh, recorded))
        for result, far_result in zip(results, far_results, strict=True):
            change = (result - far_result).detach().double().nan_to_num(0.0, 0.0, 0.0)
            if not change.any() and all(torch.equal(leaf, far) for leaf, far in zip(leaves, recorded, strict=False)):
                continue
            if not result.requires_grad:
                self.cuts[call.name] += 1
                continue
            weights = torch.randn(change.shape, generator=self._random, dtype=torch.float64).to(change.device)
            slopes = torch.autograd.grad(result, leaves, weights.to(result.dtype), retain_graph=True, allow_unused=True)
            terms = [
                (slope.conj() * (leaf - far).detach()).real.double().nan_to_num(0.0, 0.0, 0.0)
                for slope, leaf, far in zip(slopes, leaves, recorded[: len(leaves)], strict=True)
                if slope is not None
            ]
            missing = float((weights * change).sum()) - sum(float(term.sum()) for term in terms)
            size = float((weights * change).norm() + sum(term.norm() for term in terms))
            values = float((weights * result.detach().nan_to_num(0.0, 0.0, 0.0)).norm())
            if abs(missing) > 1e-3 * size + ROUNDING * torch.finfo(result.dtype).eps * (size + values):
                self.misses[call.name] += 1
                break
        return call.result()


def _keep(tensor: Tensor) -> Tensor:
    return tensor


def _list_numbers(result: Any) -> list[Tensor]:
    """Return the tensors of real numbers that a call returned."""
    results = result if isinstance(result, (tuple, list)) else [result]
    return [each for each in results if isinstance(each, Tensor) and each.is_floating_point()]


def _replace_value(parts: Tensor, value: Tensor) -> Tensor:
    """Return the value that the network has itself, with the gradient of what it was taken apart
    into."""
    return replace_slope(parts.to(value.dtype), value)


def _other_operations(name: str) -> ModelError:
    return ModelError(
        f"the network ran other operations at one end of a segment than at the other (first at {name!r}): its control flow "
        f"depends on the values, and DeepSHAP and the secant rule compare the two operation by operation. Instead, {INSTEAD}"
    )
