"""What the engine adds to one forward and two input gradients of the same batch, taken in turns."""

from __future__ import annotations

import statistics
from functools import partial

import torch
from torch import Tensor, nn

import ig2
from ig2._engine.acceleration import Program, compile_step
from ig2._engine.explicands import Explicands
from ig2._engine.session import Session
from performance import wafer
from performance.store import Row, side_by_side, table

RULES = (ig2.rules.left, ig2.rules.blended)


def bare_step(net: nn.Module, points: Tensor) -> tuple[Tensor, Tensor]:
    """One forward and two input gradients, and nothing else."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        output = net(points).float()
        one, two = output[:, 0].clone(), output.square().sum(dim=1)
    (first,) = torch.autograd.grad(one, points, torch.ones_like(one), retain_graph=True)
    (second,) = torch.autograd.grad(two, points, torch.ones_like(two))
    return first, second


def repeated(step: Program, points: Tensor, times: int) -> None:
    for _ in range(times):
        step(points)


def explain(
    model: ig2.Model, x: Tensor, references: Tensor, steps: int, step_size: float, rule: ig2.rules.Rule
) -> ig2.Attribution:
    """IG² in one batch of all pairs."""
    return ig2.IG2(steps, step_size, rule)(model, x, references=references, batch_size=len(x) * len(references))


def measure(
    net: nn.Module,
    x: Tensor,
    references: Tensor,
    preparation: ig2.Preparation | None,
    steps: int,
    rounds: int,
    step_size: float,
) -> Row:
    """The time of a bare step of the prepared network, and by how much each rule's is longer."""
    model = ig2.wrap(net, bounds=(0, 1), prepare=preparation or False)
    points = x.repeat_interleave(len(references), dim=0)
    with Session(model, Explicands.of(points[:2])) as session:
        run, points = session.model.net, session.lay_out(points)
        bare: Program = partial(bare_step, run)
        if preparation is not None and preparation.compile:
            bare = compile_step(bare, [points])
    works = {"bare": partial(repeated, bare, points, steps)}
    for rule in RULES:
        # the difference of two lengths: opening the network is not part of a step
        for part, count in ((f"{rule}, begun", steps // 2), (f"{rule}, whole", steps // 2 + steps)):
            works[part] = partial(explain, model, x, references, count, step_size, rule)
    times = side_by_side(dict(works), rounds)
    row: Row = {"points": len(points), "bare ms a step": f"{min(times['bare']) / steps * 1000:.1f}"}
    for rule in RULES:
        whole, begun = times[f"{rule}, whole"], times[f"{rule}, begun"]
        extra = [(a - b) / c - 1 for a, b, c in zip(whole, begun, times["bare"], strict=True)]
        row[f"{rule} over bare"] = f"{statistics.median(extra):+.1%} ({min(extra):+.1%} to {max(extra):+.1%})"
    return row


def run(quick: bool = False) -> list[Row]:
    """The wafer CNN on a CPU."""
    x, _ = wafer.maps(2)
    rows = []
    for label, preparation in (("as it is", None), ("default", ig2.Preparation())):
        found = measure(wafer.network(), x[:4], x[-8:], preparation, 2 if quick else 20, 1 if quick else 5, 0.1)
        rows.append({"network": "wafer CNN", "prepared": label, **found})
    print(table(rows, f"what the engine adds to the bare passes, {torch.get_num_threads()} threads"))
    return rows
