"""IG² beside a plain replica of the authors' algorithm, on the paper's wafer CNN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

import ig2
from performance import wafer
from performance.store import Row, ratio, seconds, table
from tests.replicas import authors_ig2

STEP = 0.05


@dataclass(frozen=True)
class Work:
    explicands: int
    references: int
    steps: int

    @property
    def gradients(self) -> int:
        return self.explicands * self.references * self.steps

    def __str__(self) -> str:
        return f"{self.explicands} maps × {self.references} references × {self.steps} steps"


def run(quick: bool = False) -> list[Row]:
    """Some of the work by both, and the paper's setting, of which the replica does a part."""
    small, part, whole = Work(4, 5, 20), Work(1, 2, 20), Work(16, 10, 200)
    if quick:
        small, part, whole = Work(2, 2, 5), Work(1, 2, 5), Work(2, 2, 10)
    rows = [_row(small, small, 1 if quick else 3), _row(whole, part, 1 if quick else 2)]
    print(table(rows, f"IG² on the wafer CNN, {torch.get_num_threads()} threads"))
    return rows


def _row(work: Work, part: Work, rounds: int) -> Row:
    """Time the work, and in turns with it a part of it by the replica, one sample and one gradient after the other."""
    net = nn.Sequential(*wafer.network().children())
    x, references = wafer.maps(2)[0][: work.explicands], wafer.maps(2, seed=1)[0][-work.references :]
    target = net(x).argmax(dim=1)

    def ours(work: Work) -> None:
        method = ig2.IG2(work.steps, STEP, ig2.rules.left)
        method(net, x[: work.explicands], target[: work.explicands], references[: work.references])

    def replica(work: Work) -> None:
        for sample, goal in zip(x.numpy()[: work.explicands], target.tolist(), strict=False):
            authors_ig2(net, sample, list(references.numpy()[: work.references]), goal, work.steps, STEP)

    times: dict[str, list[float]] = {"authors": [], "ig2": []}
    for each in (ours, replica):  # the first run of all is slow
        each(Work(min(2, part.explicands), 1, 2))
    for _ in range(rounds):
        scale = work.gradients / part.gradients
        times["authors"].append(seconds(lambda: replica(part)) * scale)
        times["ig2"].append(seconds(lambda: ours(work)))
    return {
        "work": str(work),
        "authors s": f"{min(times['authors']):.2f}" + ("" if part == work else f", from {part}"),
        "ig2 s": f"{min(times['ig2']):.2f}",
        "times faster": ratio(times["authors"], times["ig2"]),
    }
