"""A look at the network before it is explained: whether it can be, whether its gradients are right, and what a point takes.

It takes three forward passes and two backward ones: of the first explicand alone, with its gradient;
again, a small step along that gradient, which shows whether passes repeat and the gradient is the
slope; and beside another one, with the gradients of both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ig2._engine.checkpoints import count_bytes
from ig2._engine.explicands import join
from ig2._engine.memory import Saved, Written, is_out_of_memory
from ig2._engine.network import WITHOUT_GRAPH, Habits, Network
from ig2._engine.rounding import is_close, tolerance
from ig2.errors import WITHOUT_GRADIENTS, IG2Error, ModelError, describe, reason, warn

RANDOM = (
    "two passes of the same sample gave different scores: the network draws random numbers (dropout left on?). Call "
    "net.eval(), or make the pass deterministic"
)
STATE = (
    "two equal calls in a row gave different scores: the network keeps state from one call to the next, or draws random "
    "numbers from a generator of its own, so a point has no score of its own. Reset it at the start of each call, for example "
    "ig2.wrap(lambda x: (net.reset(), net(x))[1])"
)
MIXING = (
    "the same sample scored differently alone and beside another one: samples of a batch mix (batch statistics that are not "
    "frozen?), so a sample has no attribution of its own. Use batch_size=1, or freeze them"
)
FAULT = "That is a fault of a kernel of PyTorch's, or of a backward pass of the network's own"
ALONE = (
    "the gradient of a sample alone is another one, by {:.0%}, than beside a second sample, and difference quotients agree "
    f"with the second. {FAULT}: single points are run beside a copy of themselves, in twice the time"
)
BESIDE = (
    "the gradient of a sample beside a second one is another one, by {:.0%}, than alone, and difference quotients agree "
    f"with the one alone. {FAULT}: points are run one at a time"
)
NEITHER = (
    f"the gradient of a sample beside a second one is another one, by {{:.0%}}, than alone, and difference quotients agree "
    f"with neither. {FAULT}: methods without gradients, such as ig2.KernelSHAP, do not depend on it"
)
NO_SLOPE = (
    "the gradient of the network is not the slope of its output: a step along it changes the score of the first sample {:.3g} "
    "times as much as it says. A function with a backward pass of its own (a straight-through estimator, a reversed gradient) "
    "or a part that is detached may be meant so: values follow the gradient, and need not sum to the change in the output"
)
# How many passes show that dropout of a few features, or of whole layers, does not do the same each time.
TRIES = 16
# A step that changes the score by this power of the rounding, 3e-4 of it in float32 and 1e-8 in float64, is a hundred times
# and more above what is lost of it, and for most networks short enough to be straight.
STEP_POWER = 0.5
# But none longer than this share of the sample: where the gradient is next to nothing, it leads nowhere.
LONGEST_STEP = 0.01
# How far a difference quotient may be from a gradient to confirm it, and how far it has to be to contradict it, as shares.
CONFIRMED_WITHIN = 0.02
SLOPE_WITHIN = 0.2


@dataclass(frozen=True)
class Pass:
    """What the network made of some points."""

    points: Tensor
    rows: Tensor  # the explicand each belongs to, (n,)
    scores: Tensor  # of all classes, (n, classes)
    chosen: int  # the class with the highest score of the first explicand
    gradient: Tensor | None  # of its score by each point, (n, ...); None where none is wanted

    @cached_property
    def direction(self) -> Tensor:
        """Nearly that of the gradient at the first point. Exactly along themselves, gradients that are wrong may be right:
        one whose entries were exchanged was, and another that was averaged."""
        assert self.gradient is not None
        first = self.gradient[0]
        slant = torch.linspace(0.5, 1.5, first.numel(), dtype=first.dtype, device=first.device)
        slanted = first * slant.view_as(first)
        return torch.div(slanted, slanted.norm())

    @cached_property
    def steepness(self) -> float:
        """The slope of the gradient in that direction."""
        return 0.0 if self.gradient is None else float((self.gradient[0] * self.direction).sum())


@dataclass(frozen=True)
class Inspection:
    """What a look at the network on the first explicand brought."""

    bytes_per_point: int  # of memory for a step with both gradients
    draws: bool  # whether a pass draws random numbers, even if the scores do not go by them
    habits: Habits
    scores: Tensor  # of the first explicand, (1, classes)
    is_finite: bool  # whether their gradient is
    advice: str | None = None  # what is wrong with its gradients, and what is done about it
    is_meant: bool = False  # whether that may be as the network means it


def inspect(network: Network, check_mixing: bool = True, in_batches: bool = True) -> Inspection:
    """Run the first explicand alone, again, and beside another one, and refuse a network that cannot be explained.

    Global random state is as it was when this returns.

    Args:
        network: to look at; its habits are known from here on.
        check_mixing: whether samples of a batch must not influence each other.
        in_batches: whether gradients are going to be taken of several points at once.
    """
    before = RandomState(network.inputs.data.device)
    try:
        alone, bytes_per_point = _run_first(network)
        draws = before != RandomState(before.device)
        is_slope = _check_repeats(network, alone, draws)
        beside = None
        if check_mixing or is_slope is False:
            beside = _run_beside(network, alone, check_mixing, in_batches or not is_slope)
        network.habits.writes = bool(network.habits.writes)
        advice, is_meant = _check_gradients(network, alone, beside, is_slope)
    finally:
        before.restore()
    is_finite = alone.gradient is None or bool(alone.gradient.isfinite().all())
    return Inspection(bytes_per_point, draws, network.habits, alone.scores, is_finite, advice, is_meant)


class RandomState:
    """The state of every global random generator a network might draw from."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the global one is what is meant
        self.python = random.getstate()

    def restore(self) -> None:
        """Put every generator back to this state."""
        torch.set_rng_state(self.torch)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)
        np.random.set_state(self.numpy)  # noqa: NPY002
        random.setstate(self.python)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RandomState)
            and torch.equal(self.torch, other.torch)
            and (self.cuda is None or other.cuda is None or torch.equal(self.cuda, other.cuda))
            and self.numpy["state"]["pos"] == other.numpy["state"]["pos"]
            and np.array_equal(self.numpy["state"]["key"], other.numpy["state"]["key"])
            and self.python == other.python
        )

    __hash__ = None  # type: ignore[assignment]


def _forward(network: Network, points: Tensor, rows: Tensor) -> tuple[list[Tensor], Any, Tensor, int]:
    """Return the points input by input, what the network returns, the scores of it, and how much
    memory a point takes."""
    inputs, model, habits, graph = network.inputs, network.model, network.habits, network.inputs.needs_gradient

    def run(watch: Saved | Written) -> tuple[list[Tensor], Any, Tensor]:
        enabled = graph or habits.differentiates
        leaves = [t.detach().clone().requires_grad_(enabled) for t in inputs.split(points)]
        with watch, torch.set_grad_enabled(enabled):
            raw = network.forward(leaves, rows)
            return leaves, raw, model.scores(raw, len(rows), rows).to(points.device)

    weights = (t for _, m in network.modules for t in [*m.parameters(False), *m.buffers(False)])
    count = Saved(weights) if graph else Written()
    try:
        leaves, raw, scores = run(count)
    except RuntimeError as error:
        # torch.func takes no such hooks, and a network that differentiates needs a graph
        habits.differentiates |= not graph and WITHOUT_GRAPH in str(error)
        if not habits.differentiates and "saved tensor hooks" not in str(error):
            raise
        count = Written()
        leaves, raw, scores = run(count)
    # forward activations stay for both backward passes, which hold about half as much again at their peak
    kept = (count.bytes + count_bytes(model.net)) // len(rows)
    return leaves, raw, scores, (kept * 3 // 2 if graph else kept) + 8 * inputs.data[0].nbytes


def _differentiate(network: Network, scores: Tensor, chosen: int, leaves: Sequence[Tensor]) -> list[Tensor | None]:
    with torch.enable_grad():
        output = scores[:, chosen]
    return network.differentiate(output, leaves)


def _join(parts: Sequence[Tensor | None], leaves: Sequence[Tensor], points: Tensor) -> Tensor:
    return join([torch.zeros_like(t) if part is None else part for part, t in zip(parts, leaves, strict=True)]).to(points)


def _run_first(network: Network) -> tuple[Pass, int]:
    """Return the first explicand alone; whether the attributed inputs reach its scores."""
    data, row = network.inputs.data, network.first
    in_training = [(name, module) for name, module in network.modules if module.training]
    buffers = [(f"{name}.{key}", b, b.clone()) for name, m in in_training for key, b in m.named_buffers(recurse=False)]
    try:
        leaves, raw, scores, size = _forward(network, data[:1], row)
    except Exception as error:
        if isinstance(error, IG2Error) or is_out_of_memory(error):
            raise
        raise ModelError(_failure(network, network.inputs.split(data[:1]), error)) from error
    for name, buffer, content in buffers:
        if not torch.equal(buffer, content):
            raise ModelError(f"the network is in train mode, where a pass changes its {name}. Call net.eval() first")
    _check_logits(network, raw)
    gradient, chosen = None, int(scores.detach().argmax())
    try:
        if network.inputs.needs_gradient:
            gradient = _differentiate_first(network, scores, chosen, leaves)
    except RuntimeError as error:
        if isinstance(error, IG2Error) or is_out_of_memory(error):
            raise
        raise ModelError(f"the network runs and cannot be differentiated. It said: {error}") from error
    return Pass(data[:1], row, scores.detach(), chosen, gradient), size


def _differentiate_first(network: Network, scores: Tensor, chosen: int, leaves: Sequence[Tensor]) -> Tensor:
    parts: list[Tensor | None] = [None] * len(leaves)
    if scores.requires_grad:
        nodes = network.look_at_graph(scores)
        parts = _differentiate(network, scores, chosen, leaves)
        if any("NotImplemented" in node.name() for node in nodes):
            raise ModelError(
                "an operation of the network has no gradient, which PyTorch takes for zero (its warning names the operation): "
                f"it is for inference alone, as some of quantised weights are. {WITHOUT_GRADIENTS}"
            )
    unreached = [key for (key, _, _), part in zip(network.inputs.attributed, parts, strict=True) if part is None]
    if unreached:
        which = "the input" if len(leaves) == 1 else f"input {unreached[0]!r}"
        raise ModelError(
            f"{which} does not reach the output through differentiable operations: look for .detach(), .data, "
            ".item(), torch.no_grad(), rounding or integer indexing in the forward pass"
            + ("" if len(leaves) == 1 else "; or, if it is only passed on, wrap it in ig2.Fixed(...)")
            + f". {WITHOUT_GRADIENTS}"
        )
    return _join(parts, leaves, network.inputs.data)


def _failure(network: Network, given: Sequence[Tensor], error: Exception) -> str:
    modules = [module for _, module in network.modules]
    weights = {p.dtype for m in modules for p in m.parameters(False) if p.is_floating_point()}
    dtypes = {tensor.dtype for tensor in given}
    keys = network.inputs.keys
    hint = "x must be a batch (B, ...) of what the network takes"
    if len(weights) == 1 and not dtypes & weights:
        hint = f"its weights are {weights.pop()}: bring x to that with x.to(...)".replace("torch.", "")
    elif _reads_text(modules):
        hint = "a text network of transformers and its tokenizer go into ig2.modalities.text.from_transformers(net, tokenizer)"
    elif "numpy" in str(error):
        hint = f"what leaves PyTorch for NumPy has no gradients: write it in torch. {WITHOUT_GRADIENTS}"
    elif not keys:
        hint += "; a single sample gets its axis by x[None]"
    elif isinstance(keys[0], int):
        hint = "a tuple or list is the arguments of one call; a list of samples becomes a batch by torch.stack(x)"
    given_text = describe(given[0] if len(given) == 1 else tuple(given))
    return f"the network fails on the first explicand, given {given_text}: {hint}. It said: {reason(error)}"


def _reads_text(modules: Sequence[nn.Module]) -> bool:
    """Return whether this is a network of transformers that takes tokens."""
    return any(isinstance(module, nn.Embedding) for module in modules) and any(
        kind.__module__.startswith("transformers.") for module in modules for kind in type(module).__mro__
    )


def _check_logits(network: Network, raw: Any) -> None:
    """Warn of a softmax of a softmax: it is flat, and still looks like probabilities."""
    if network.model.output not in ("probability", "log-probability") or network.model.target is not None:
        return
    logits = network.model.logits(raw).detach()
    if logits.numel() > 1 and bool((logits >= 0).all()) and abs(float(logits.sum()) - 1) < 1e-3:
        warn(
            f"the network returns probabilities already, and output={network.model.output!r} takes the softmax of them once "
            "more: use output='logit', which explains what the network returns"
        )


def _check_repeats(network: Network, alone: Pass, draws: bool) -> bool | None:
    """Check that the first sample scores the same again, and a step from it as its gradient says.

    Returns:
        Whether the gradient is the slope there; None where no step could show it.
    """
    data, first = network.inputs.data, alone.rows

    def run(points: Tensor, rows: Tensor) -> Tensor:
        if not network.inputs.needs_gradient:
            return network.scores_alone(points, rows)
        with torch.enable_grad():  # as the first pass was: kernels may differ
            return network.scores(points.detach().requires_grad_(), rows).detach()

    if draws:  # dropout of a few features, or of whole layers, may by chance do twice the same
        passes = [run(data[:1], first) for _ in range(TRIES)]
        if any(not torch.equal(passes[0], other) for other in passes[1:]):
            raise ModelError(RANDOM)
    within, length = tolerance(network), _choose_step(network, alone, alone.steepness)
    if length is not None:
        again = run(torch.add(alone.points, alone.direction, alpha=length), first)
        change, expected = (again - alone.scores)[0].tolist(), length * alone.steepness
        if abs(change[alone.chosen] - expected) <= CONFIRMED_WITHIN * expected and is_close(alone.scores, again, within):
            return True
    again = run(data[:1], first)
    if not is_close(alone.scores, again, within / 100) and not is_close(
        alone.scores, again, within / 100, _rounding(network, run, first)
    ):
        raise ModelError(RANDOM if draws else STATE)
    return None if length is None else False


def _choose_step(network: Network, alone: Pass, slope: float) -> float | None:
    """Return how long a step from the first explicand must be to change a score of this slope by
    much more than rounding does.

    None where the sample itself is rounded to such steps, or they are too long.
    """
    types, scores, x = network.precisions, alone.scores, alone.points
    if tolerance(network) > 1e-2 or not 0 < slope < torch.inf:
        return None
    rounding = max(torch.finfo(dtype).eps for dtype in types)
    size, score = float(x.norm()), float(scores.abs().max())
    if scores.is_cuda and torch.float32 in types:
        rounding = 2**-10  # that of TF32, which convolutions may round to
    length = rounding**STEP_POWER * score / slope
    return length if 20 * torch.finfo(x.dtype).eps * size <= length <= LONGEST_STEP * size else None


def _run_beside(network: Network, alone: Pass, check_mixing: bool, differentiates: bool) -> Pass | None:
    """Return the first sample beside another one, where it must score the same; None where it
    cannot be run so.

    Where samples may mix, beside a copy of itself, where batch statistics stay as they are.
    """
    data, row = network.inputs.data, len(network.inputs) - 1 if check_mixing else 0
    other = data[row]
    if check_mixing and torch.equal(data[0], other):
        floats = all(dtype.is_floating_point for _, _, dtype in network.inputs.attributed)
        other = torch.div(other, 2, rounding_mode=None if floats else "floor")
    points, rows = torch.stack([data[0], other]), torch.tensor([0, row], device=data.device)
    graph = differentiates and network.inputs.needs_gradient
    try:
        if graph:
            points.requires_grad_()
            with torch.enable_grad():
                scores = network.scores(points, rows)
                output = scores[:, alone.chosen]
            if network.habits.misread_alone:
                network.look_at_graph(scores)
            gradient = network.gradient(output, points)
            beside = Pass(points.detach(), rows, scores.detach(), alone.chosen, gradient)
        else:
            beside = Pass(points, rows, network.scores_alone(points, rows), alone.chosen, None)
    except IG2Error:
        raise
    except Exception as error:
        if is_out_of_memory(error) or not check_mixing:
            return None  # one at a time it will have to be, and then nothing mixes
        text = f"the network takes one sample and fails on two: use batch_size=1. It said: {reason(error)}"
        raise ModelError(text) from error
    within, first = tolerance(network), alone.rows
    if not is_close(alone.scores, beside.scores[:1], within) and not is_close(
        alone.scores, beside.scores[:1], within, _rounding(network, network.scores_alone, first)
    ):
        if not check_mixing:
            return None
        raise ModelError(MIXING)
    return beside


def _check_gradients(network: Network, alone: Pass, beside: Pass | None, is_slope: bool | None) -> tuple[str | None, bool]:
    """Return whether the gradient of the first sample is the same beside another one, and the slope
    of its score.

    Where it is not, the network is run from here on in the way that returns the slope.

    Returns:
        What to say of it, if anything, and whether the network may mean it so.
    """
    if alone.gradient is None:
        return None, False
    mine, theirs = alone.gradient[0], None if beside is None or beside.gradient is None else beside.gradient[0]
    off = 0.0 if theirs is None else float(torch.dist(mine, theirs))
    size, habits = alone.steepness, network.habits
    if theirs is not None and 10 * tolerance(network) * size < off < torch.inf:  # gradients are rounded more than scores
        slope = _find_slope(network, alone, (mine - theirs) / off, off)
        if slope is None:  # too rough, or rounded too much, to say which is right
            return None, False
        habits.singly, habits.in_pairs = (
            abs(float((gradient * (mine - theirs)).sum()) / off - slope) < off / 4 for gradient in (mine, theirs)
        )
        advice = (ALONE if habits.in_pairs else BESIDE if habits.singly else NEITHER).format(off / size)
    elif is_slope is False:
        slope = _find_slope(network, alone, alone.direction, size)
        if slope is None or abs(slope - size) <= SLOPE_WITHIN * max(abs(slope), size):
            return None, False
        return NO_SLOPE.format(slope / size), True  # and the sums show it: no warning
    else:
        return None, False
    return advice, False


def _find_slope(network: Network, alone: Pass, direction: Tensor, size: float) -> float | None:
    """Return the slope of the score at the first sample in a direction, by differences of the
    scale `size`.

    None where steps forwards and backwards, long and short, do not agree.
    """
    length = _choose_step(network, alone, size)
    if length is None:
        return None
    steps = [0.0, length, -length, length / 4, -length / 4]
    points = [torch.add(alone.points, direction, alpha=step) for step in steps]
    first, *outputs = (float(network.scores_alone(point, alone.rows)[0, alone.chosen]) for point in points)
    slopes = [(output - first) / step for output, step in zip(outputs, steps[1:], strict=True)]
    spread, steepest = max(slopes) - min(slopes), max(map(abs, slopes))
    return sum(slopes[:2]) / 2 if spread <= SLOPE_WITHIN / 4 * max(size, steepest) else None


def _rounding(network: Network, run: Callable[[Tensor, Tensor], Tensor], row: Tensor) -> float:
    """Return how far the scores of the first sample move when it changes in its last digits.

    Where large numbers cancel inside the network, scores in another batch differ by more than their own rounding: logits that
    are differences of numbers around 1e5 by 0.01. Nothing, if the scores move by themselves.
    """
    sample = network.inputs.data[:1]
    moves = all(dtype.is_floating_point for _, _, dtype in network.inputs.attributed)
    last = max((torch.finfo(dtype).eps for dtype in network.precisions), default=0.0) if moves else 0.0
    if not last or not torch.equal(run(sample, row), run(sample, row)):
        return 0.0
    moved = torch.stack([run(sample * (1 + k * last), row) for k in (-4, -2, 0, 2, 4)])
    return 4 * float((moved.amax(dim=0) - moved.amin(dim=0)).nan_to_num().max())
