"""What must hold of every call, and how far rounding may go.

The yardstick of rounding is the network itself: its float64 twin, and the same with weights and inputs shaken by one rounding
of the network's own precision. Where that shakes the answer, as at a kink or in a chaotic walk, so may a change of layout.
"""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import ig2
from ig2._engine.explicands import Explicands
from ig2._engine.session import Session

from .calls import Call, calls
from .networks import HALF, Case, build, mapped, tensors

ROUNDING = (
    nn.Linear, nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm,
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    oracle: str
    seed: int
    call: str
    text: str

    def __str__(self) -> str:
        return f"[{self.oracle}] seed {self.seed}, {self.call}: {self.text}"


@dataclass
class Outcome:
    """What came of one network: what was counted, and what was found."""

    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def count(self, key: str, number: int = 1) -> None:
        self.counts[key] = self.counts.get(key, 0) + number


# -- running -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a call gave: an attribution or an error, and the warnings on the way."""

    attribution: ig2.Attribution | None
    error: Exception | None
    warned: tuple[warnings.WarningMessage, ...]


def ask(case: Case, call: Call, *, prepare: bool = True, x: Any = None, target: Any = None, references: Any = None) -> Answer:
    model = ig2.wrap(case.call, prepare=prepare, **case.wrapping)
    with warnings.catch_warnings(record=True) as warned, case.surroundings():
        warnings.simplefilter("always")
        try:
            given = call.references if references is None else references
            found = call.method(model, case.x if x is None else x, target, given, **call.options)
            return Answer(found, None, tuple(warned))
        except Exception as error:
            return Answer(None, error, tuple(warned))


@dataclass(frozen=True)
class Native:
    """What PyTorch itself gives: scores (B, classes) and the gradient of each sample's highest."""

    scores: Tensor
    slopes: list[Tensor]
    target: Tensor


def natively(case: Case, target: Tensor | None = None, alone: bool = False) -> Native:
    """The scores and input gradients of the network as it is; each sample `alone` or all in a batch."""
    if alone:
        found = [
            natively(dataclasses.replace(case, x=rows_of(case.x, i)), None if target is None else target[i : i + 1])
            for i in range(case.rows)
        ]
        slopes = [torch.cat(parts) for parts in zip(*(one.slopes for one in found), strict=True)]
        return Native(torch.cat([one.scores for one in found]), slopes, torch.cat([one.target for one in found]))
    leaves: list[Tensor] = []

    def leaf(t: Tensor) -> Tensor:
        leaves.append(t.detach().clone().requires_grad_())
        return leaves[-1].clone()

    items = case.x.items() if isinstance(case.x, dict) else enumerate(case.x if isinstance(case.x, tuple) else (case.x,))
    values = {key: item.value if isinstance(item, ig2.Fixed) else leaf(item) for key, item in items}
    model = case.model
    with case.surroundings(), torch.random.fork_rng(devices=[]):
        args, named = model.preprocessed(
            tuple(v for k, v in values.items() if isinstance(k, int)), {k: v for k, v in values.items() if isinstance(k, str)}
        )
        kept = {name: buffer.clone() for name, buffer in case.module.named_buffers()}
        scores = model.scores(case.call(*args, **named), case.rows)
        target = scores.detach().argmax(dim=1) if target is None else target
        # not by autograd.grad, which checkpoints that re-enter refuse
        scores.gather(1, target[:, None]).sum().backward()
        for name, buffer in case.module.named_buffers():
            buffer.copy_(kept[name])
    case.module.zero_grad(set_to_none=True)
    return Native(scores.detach(), [torch.zeros_like(at) if at.grad is None else at.grad for at in leaves], target)


def rows_of(x: Any, i: int) -> Any:
    return mapped(x, lambda t: t[i : i + 1])


# -- the yardstick --------------------------------------------------------------------------------------------------------


def rounding(case: Case) -> float:
    """One rounding of the coarsest arithmetic in the network."""
    types = {case.dtype}
    if case.around:
        types.add(case.around)
    types |= {module.dtype for module in case.module.modules() if type(module).__name__ == "Autocast"}
    return max(torch.finfo(dtype).eps for dtype in types)


def shaken(case: Case, size: float, number: int) -> Case:
    """The float64 twin, each weight and input moved by about `size` of it."""
    twin = build(case.seed, exact=True)
    generator = torch.Generator().manual_seed(number)

    def move(t: Tensor) -> Tensor:
        if not t.is_floating_point():
            return t
        spread = t.detach().abs().mean() if t.numel() else 0.0
        return t * (1 + size * _noise(t, generator)) + size * spread * _noise(t, generator)

    with torch.no_grad():
        for tensor in [*twin.module.parameters(), *twin.module.buffers()]:
            if tensor.is_floating_point() and tensor.numel():
                tensor.copy_(move(tensor))
    for module in twin.module.modules():
        if isinstance(module, ROUNDING):  # what these return is theirs alone: others may hand on what they were given
            module.register_forward_hook(_shaking(size, generator))
    return dataclasses.replace(twin, x=mapped(twin.x, move), references=mapped(twin.references, move))


def _shaking(size: float, generator: torch.Generator) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """A hook that moves what a layer returns, each sample alike and every time the same: it stays a function of a sample."""
    factors: dict[torch.Size, Tensor] = {}

    def hook(module: nn.Module, args: Any, result: Tensor) -> Tensor:
        shape = result.shape[1:]
        if shape not in factors:
            factors[shape] = 1 + size * _noise(result[0], generator)
        return result * factors[shape]

    return hook


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64)


def sizes(found: Tensor) -> Tensor:
    """The largest entry of each row, (B,)."""
    return found.reshape(len(found), -1).abs().double().amax(dim=1)


def apart(one: Tensor, other: Tensor) -> Tensor:
    """How far two tensors are apart in each row, (B,)."""
    return sizes(one.double() - other.double())


def relative(off: Tensor, size: Tensor) -> Tensor:
    """An error (B,) made as large, relative to the size, as it is in any row: one row's may by chance be zero."""
    return torch.maximum(off, (off / size.where(size > 0, torch.inf)).amax() * size)


# -- the oracles ----------------------------------------------------------------------------------------------------------


def snapshot(case: Case) -> dict[str, Any]:
    """All that a call must leave as it was."""
    net = case.module
    return {
        "weights": [(n, p, p.detach().clone(), p.requires_grad, p.grad) for n, p in net.named_parameters()],
        "buffers": [(n, b, b.clone()) for n, b in net.named_buffers()],
        "modules": [(m, m.training, m._forward_hooks.copy(), m._forward_pre_hooks.copy()) for m in net.modules()],
        "inputs": [t.clone() for t in tensors(case.x) + tensors(case.references)],
        "torch's random state": torch.get_rng_state(),
        "Python's random state": random.getstate(),
        "NumPy's random state": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "switches": (
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(), torch.backends.mha.get_fastpath_enabled(),
            torch.is_autocast_enabled("cpu"), torch.get_num_threads(),
        ),
    }  # fmt: skip


def changed(case: Case, before: dict[str, Any]) -> list[str]:
    after = snapshot(case)
    wrong = []
    for (name, p, copy, wants, grad), (_, q, now, wants_now, grad_now) in zip(before["weights"], after["weights"], strict=True):
        if p is not q or not same_bits(copy, now) or wants != wants_now or grad is not grad_now:
            wrong.append(f"parameter {name}")
    for (name, b, copy), (_, c, now) in zip(before["buffers"], after["buffers"], strict=True):
        if b is not c or not same_bits(copy, now):
            wrong.append(f"buffer {name}")
    if before["modules"] != after["modules"]:
        wrong.append("modules, training or hooks")
    if not all(map(same_bits, before["inputs"], after["inputs"])):
        wrong.append("the inputs")
    if not torch.equal(before["torch's random state"], after["torch's random state"]):
        wrong.append("torch's random state")
    wrong += [key for key in ("Python's random state", "NumPy's random state", "switches") if before[key] != after[key]]
    return wrong


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(nan=12345.0), other.nan_to_num(nan=12345.0))


def not_finite(found: ig2.Attribution) -> list[str]:
    """The fields that hold NaN or infinities."""
    names = [item.name for item in dataclasses.fields(found) if item.name not in ("settings", "cost")]
    names += ["residual", "total"]
    return [
        name for name in names if any(t.is_floating_point() and not t.isfinite().all() for t in tensors(getattr(found, name)))
    ]


# Which error may come when: a part of its sentence, and what must be so about the network.
EXPECTED: list[tuple[str, Callable[[Case], bool]]] = [
    ("not finite", lambda case: extreme(case)),
    ("is nan", lambda case: extreme(case)),
    ("is inf", lambda case: extreme(case)),
    ("is -inf", lambda case: extreme(case)),
    ("is a call of", lambda case: "functional" in case.traits or "none" in case.traits),
    ("takes one sample and fails on two", lambda case: case.rows == 1),  # .view() of what is contiguous for one alone
    ("cannot follow torch.utils.checkpoint", lambda case: any(word in str(case) for word in ("Checkpointed", "use_reentrant"))),
    ("use_reentrant=True inside a function", lambda case: "function" in case.traits),
    ("too large for their type", lambda case: bool(case.traits & LARGE)),
    ("the pool has no sample of class", lambda case: True),
    ("has no convolution whose output has places", lambda case: True),
    ("the only convolution cuts the input into patches", lambda case: True),
    ("no layer with places that all of the input passes", lambda case: True),
    ("its weights cannot be noised", lambda case: True),
    ("needs 1 references of class", lambda case: True),
]


LARGE = {"scale 100000", "scale 1e+10", "scale 1e+20"}


def extreme(case: Case) -> bool:
    """Whether numbers may leave the range of the network's type."""
    return bool(case.traits & {"half", "autocast", "scale 1e+20", "scale 1e+10"})


def is_expected(case: Case, error: Exception) -> bool:
    return any(part in str(error) and holds(case) for part, holds in EXPECTED)


def check(seed: int) -> Outcome:
    """Everything about one network."""
    outcome = Outcome()
    case = build(seed)
    if "train" in case.traits:
        outcome.count("networks in train mode")
        check_refused(case, outcome, "in train mode")
        return outcome
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            native = natively(case)
            alone = natively(case, native.target, alone=True)
            exact = natively(build(seed, exact=True), native.target)
            with torch.no_grad(), case.surroundings():
                case.model(mapped(case.x, torch.clone))
    except Exception as error:
        outcome.count("networks that PyTorch refuses")
        check_refused(case, outcome, f"PyTorch: {str(error)[:100]}")
        return outcome
    outcome.count("networks")
    mixes = mixing(build(seed, exact=True), exact)
    if mixes > 1e-6 or any(isinstance(m, _BatchNorm) and not m.track_running_stats for m in case.module.modules()):
        outcome.count("networks that mix samples")
        check_refused(case, outcome, f"mixes by {mixes:.2g}")
        return outcome
    rng = random.Random(seed + 2)
    chosen = calls(case, native.scores.shape[1])
    deep = rng.choice(chosen)
    for call in chosen:
        answer = check_call(case, call, outcome, {str(w.message) for w in warned})
        if answer.attribution is not None and call is deep:
            check_deep(case, call, answer.attribution, outcome)
    if native.scores.isfinite().all() and all(slope.isfinite().all() for slope in native.slopes):
        check_gradients(case, native, alone, exact, outcome)
    return outcome


def mixing(twin: Case, together: Native) -> float:
    """How far a sample's scores depend on the others of its batch, in float64."""
    alone = natively(twin, together.target, alone=True)
    return float((apart(alone.scores, together.scores) / sizes(together.scores).clamp(min=1e-300)).nan_to_num().amax())


def check_refused(case: Case, outcome: Outcome, reason: str) -> None:
    """A network that cannot be explained, or may not be: an answer or an ig2 error, and nothing else."""
    for call in (Call("Gradient", ig2.Gradient()), Call("IG2", ig2.IG2(2), case.references)):
        before = snapshot(case)
        answer = ask(case, call)
        if answer.error is not None and not isinstance(answer.error, ig2.IG2Error):
            text = f"{type(answer.error).__name__}: {str(answer.error)[:300]} ({reason})"
            outcome.findings.append(Finding("foreign exception, hostile network", case.seed, call.name, text))
        for what in changed(case, before):
            outcome.findings.append(Finding("network changed", case.seed, call.name, f"{what} ({reason})"))
        outcome.count(f"hostile network {'answered' if answer.error is None else 'refused'}")


def check_call(case: Case, call: Call, outcome: Outcome, own_warnings: set[str]) -> Answer:
    before = snapshot(case)
    answer = ask(case, call)
    outcome.count(f"call {call.name}")

    def report(oracle: str, text: str) -> None:
        outcome.findings.append(Finding(oracle, case.seed, str(call), text))

    for what in changed(case, before):
        report("network changed", what)
    for warned in answer.warned:
        if issubclass(warned.category, ig2.IG2Warning):
            outcome.count(f"warning: {str(warned.message)[:40]}")
            check_alarm(case, call, str(warned.message), report)
        elif str(warned.message) not in own_warnings:
            report("foreign warning", f"{warned.category.__name__}: {str(warned.message)[:200]}")
    if answer.error is not None:
        if not isinstance(answer.error, ig2.IG2Error):
            report("foreign exception", f"{type(answer.error).__name__}: {str(answer.error)[:300]}")
        elif is_expected(case, answer.error):
            outcome.count(f"error: {str(answer.error)[:40]}")
        else:
            report("error", f"{type(answer.error).__name__}: {str(answer.error)[:400]}")
        return answer
    assert answer.attribution is not None
    outcome.count(f"answered {call.name}")
    fields = not_finite(answer.attribution)
    if fields:
        report("not finite", ", ".join(fields))
    elif call.complete:
        check_complete(case, call, answer.attribution, report)
    return answer


def check_alarm(case: Case, call: Call, text: str, report: Callable[[str, str], None]) -> None:
    """A warning of something wrong with the numbers is a false alarm if float64 does not give it."""
    if not text.startswith("the secants do not account"):
        return
    if "inf%" in text or "nan" in text:
        report("false alarm", text[:300])
    # a log-softmax of logits of 1e8 is off by one rounding of them, and autocast inside the network is not to be seen
    elif not case.traits & (LARGE | {"cancelling", "autocast"}):
        twin = build(case.seed, exact=True)
        answer = ask(twin, twin_call(call, case, twin))
        if not any(str(w.message).startswith(text[:25]) for w in answer.warned):
            report("false alarm", text[:300])


def check_complete(case: Case, call: Call, found: ig2.Attribution, report: Callable[[str, str], None]) -> None:
    assert found.residual is not None and found.baseline_output is not None
    share = 1e-9 if tensors(found.values)[0].dtype == torch.float64 else 1e-4
    size = sum(t.reshape(len(t), -1).abs().double().sum(dim=1) for t in tensors(found.values))
    outputs = found.output.abs().double() + found.baseline_output.abs().double()
    # outputs of half precision are rounded anew where the batch has another size
    wrong = found.residual.abs().double() > share * (size + outputs) + 4 * rounding(case) * outputs + tiny(case)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        report(
            "not complete",
            f"explicand {row}: sum {float(found.total[row]):.9g}, change "
            f"{float(found.output[row]):.9g} − {float(found.baseline_output[row]):.9g}",
        )


def check_deep(case: Case, call: Call, found: ig2.Attribution, outcome: Outcome) -> None:
    """The same call again, without preparing, on each sample alone; and in float64."""

    def report(oracle: str, text: str) -> None:
        outcome.findings.append(Finding(oracle, case.seed, str(call), text))

    outcome.count(f"compared {call.name}")
    again = ask(case, call).attribution
    if again is None or not all(map(same_bits, tensors(found.values), tensors(again.values))):
        report("not deterministic", "the same call twice gives different values")
    target = found.target
    results: dict[str, list[Tensor] | None] = {"prepared": tensors(found.values)}
    plain = ask(case, call, prepare=False, target=target)
    results["unprepared"] = None if plain.attribution is None else tensors(plain.attribution.values)
    if plain.error is not None:
        report("prepared and unprepared", f"unprepared fails: {plain.error}")
    rows = []
    for i in range(case.rows):
        one = ask(case, call, x=rows_of(case.x, i), target=int(target[i]))
        if one.attribution is None:
            report("alone and in a batch", f"explicand {i} fails alone: {type(one.error).__name__}: {str(one.error)[:300]}")
            return
        rows.append(tensors(one.attribution.values))
    results["alone"] = [torch.cat(parts) for parts in zip(*rows, strict=True)]
    if results["unprepared"] is None:
        return
    exact = ask(twin := build(case.seed, exact=True), twin_call(call, case, twin), prepare=False, target=target).attribution
    if exact is None:
        outcome.count("no twin to compare with")
        return
    moved = []
    for number in range(4):
        # by 16 roundings: a walk adds them up, and may choose its features at a near tie
        other = shaken(case, 16 * rounding(case), number)
        answer = ask(other, twin_call(call, case, other), prepare=False, target=target)
        if answer.attribution is None:
            outcome.count("no twin to compare with")
            return
        moved.append(tensors(answer.attribution.values))
    for i, truth in enumerate(tensors(exact.values)):
        condition = torch.stack([apart(other[i], truth) for other in moved]).amax(dim=0)
        error = relative(apart(results["unprepared"][i], truth), sizes(truth))
        floor = 64 * rounding(case) * sizes(truth).amax()
        for name in ("prepared", "alone"):
            mine = results[name]
            assert mine is not None
            off = apart(mine[i], results["unprepared"][i])
            wrong = off > 8 * condition + 16 * error + floor + tiny(case)
            if wrong.any():
                row = int(wrong.nonzero()[0])
                report(
                    "prepared and unprepared" if name == "prepared" else "alone and in a batch",
                    f"explicand {row} is off by {float(off[row]):.3g} of {float(sizes(truth)[row]):.3g}; float64 differs by "
                    f"{float(error[row]):.3g}, one rounding by {float(condition[row]):.3g}; {found.settings['preparation']}",
                )


def twin_call(call: Call, case: Case, twin: Case) -> Call:
    """The call with the twin's references, where it has the case's own."""
    return dataclasses.replace(call, references=twin.references) if call.references is case.references else call


def tiny(case: Case) -> float:
    """What is lost at the bottom of the range of the network's type."""
    return 1e-30 if case.dtype == torch.float64 else 1e-6 if case.dtype in HALF or "autocast" in case.traits else 1e-30


def check_gradients(case: Case, native: Native, alone: Native, truth: Native, outcome: Outcome) -> None:
    """Scores and input gradients: prepared, unprepared, PyTorch's own, alone and in a batch, all against float64."""
    outcome.count("gradients compared")
    moved = [natively(shaken(case, rounding(case), number), native.target) for number in range(4)]
    found: dict[str, tuple[Tensor, list[Tensor]]] = {}
    for prepares in (True, False):
        for single in (True, False):
            name = f"{'prepared' if prepares else 'unprepared'}, {'alone' if single else 'in a batch'}"
            scores, slopes = [], []
            try:
                with warnings.catch_warnings(), case.surroundings(), torch.no_grad():
                    warnings.simplefilter("ignore")
                    inputs = Explicands.of(case.x, case.model.device)
                    rows = torch.arange(len(inputs))
                    with Session(ig2.wrap(case.call, **case.wrapping), inputs, prepares=prepares) as session:
                        for part in rows.split(1 if single else len(rows)):
                            at = session.lay_out(inputs.data[part])
                            scores.append(session.scores(at, part))
                            slope = session.evaluate(at, part, native.target[part]).gradient
                            assert slope is not None
                            slopes.append(tensors(inputs.unpack(slope)))
            except ig2.IG2Error:
                continue  # counted with the calls
            except Exception as error:
                text = f"{type(error).__name__}: {str(error)[:300]}"
                outcome.findings.append(Finding("foreign exception", case.seed, f"gradients, {name}", text))
                continue
            found[name] = (torch.cat(scores), [torch.cat(parts) for parts in zip(*slopes, strict=True)])
    for what in ("scores", "gradients"):
        pick_tensors: Callable[[Tensor, list[Tensor]], list[Tensor]] = (
            (lambda scores, slopes: [scores]) if what == "scores" else (lambda scores, slopes: slopes)
        )
        exact = pick_tensors(truth.scores, truth.slopes)
        own = pick_tensors(native.scores, native.slopes)
        others = [pick_tensors(other.scores, other.slopes) for other in moved]
        for i, right in enumerate(exact):
            if not right.isfinite().all():
                continue
            near = [own[i], pick_tensors(alone.scores, alone.slopes)[i]]
            error = torch.stack([relative(apart(one, right), sizes(right)) for one in near]).amax(dim=0)
            # where a shaken twin is not finite there is no yardstick
            condition = torch.stack([apart(other[i], right) for other in others]).amax(dim=0).nan_to_num(nan=torch.inf)
            floor = 32 * rounding(case) * sizes(right).amax() + tiny(case)
            for name, (scores, slopes) in found.items():
                off = apart(pick_tensors(scores, slopes)[i], right)
                wrong = ~(off <= 16 * condition + 8 * error + floor)
                if wrong.any():
                    row = int(wrong.nonzero()[0])
                    text = (
                        f"{what} of explicand {row} are off by {float(off[row]):.3g} of {float(sizes(right)[row]):.3g}; "
                        f"PyTorch's own by {float(error[row]):.3g}, one rounding shakes them by {float(condition[row]):.3g}"
                    )
                    outcome.findings.append(Finding(f"{what}, {name}", case.seed, "Session", text))
