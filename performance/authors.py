"""IG² beside a plain replica of the published code, which walks all references of one explicand in one batch.

Both take the same number of steps and return the same numbers. The smallest of several rounds counts, of the clock and of CPU
time, since whatever else a machine does only ever adds. A step is the difference of two lengths: what a call does once, such
as checking and preparing the network, is no part of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

import ig2
from ig2 import modalities
from performance import wafer
from performance.store import Row, clock_and_cpu, table
from tests.replicas import authors_ig2


@dataclass(frozen=True)
class Contest:
    """Explicands of a network, each explained against the same references, by both."""

    name: str
    net: nn.Module  # with weights that require gradients, as they come
    layer: nn.Module  # whose input is the representation: the last
    x: Tensor
    references: Tensor
    step_size: float

    @classmethod
    def wafers(cls, explicands: int, references: int) -> Contest:
        net = nn.Sequential(*wafer.network().children())
        x, others = wafer.maps(2)[0][:explicands], wafer.maps(2, seed=1)[0][-references:]
        return cls("wafer CNN", net, net[-1], x, others, 0.05)

    @classmethod
    def photos(cls, explicands: int, references: int) -> Contest:
        net = modalities.image.load("efficientnet-lite0").model.net
        assert isinstance(net, nn.Module) and isinstance(net._fc, nn.Module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            x, others = torch.rand(explicands, 3, 224, 224), torch.rand(references, 3, 224, 224)
        return cls("EfficientNet-Lite0", net, net._fc, x, others, 1.5)

    def ours(self, steps: int) -> Tensor:
        values = ig2.IG2(steps, self.step_size, ig2.rules.left)(self.net, self.x, self._target, self.references).values
        assert isinstance(values, Tensor)
        return values

    def theirs(self, steps: int) -> Tensor:
        references = list(self.references.cpu().numpy())
        pairs = zip(self.x.cpu().numpy(), self._target.tolist(), strict=True)
        values = [authors_ig2(self.net, x, references, goal, steps, self.step_size, self.layer)[0] for x, goal in pairs]
        return torch.from_numpy(np.stack(values))

    @property
    def _target(self) -> Tensor:
        return torch.zeros(len(self.x), dtype=torch.long, device=self.x.device)

    def measure(self, short: int, long: int, rounds: int) -> Row:
        """Both in turns, with few and with more steps."""
        sides = {"ours": self.ours, "theirs": self.theirs}
        for explain in sides.values():  # the first run of all is slow
            explain(2)
        times: dict[tuple[str, int], list[tuple[float, float]]] = {(side, n): [] for side in sides for n in (short, long)}
        for _ in range(rounds):
            for side, steps in times:
                times[side, steps].append(clock_and_cpu(partial(sides[side], steps)))
        best = {key: np.min(each, axis=0) for key, each in times.items()}
        step = {side: (best[side, long] - best[side, short]) / (long - short) for side in sides}
        (clock, cpu), (whole_clock, whole_cpu) = step["theirs"] / step["ours"], best["theirs", long] / best["ours", long]
        return {
            "network": self.name,
            "work": f"{len(self.x)} × {len(self.references)} references × {long} steps",
            "threads": torch.get_num_threads(),
            "its ms a step": f"{1000 * step['theirs'][1]:.1f}",
            "ms a step": f"{1000 * step['ours'][1]:.1f}",
            "step, CPU time": f"{cpu:.2f}",
            "step, clock": f"{clock:.2f}",
            "whole call, CPU time": f"{whole_cpu:.2f}",
            "whole call, clock": f"{whole_clock:.2f}",
        }


def run(quick: bool = False) -> list[Row]:
    """The networks of the page, with one thread and with two."""
    rows: list[Row] = []
    for threads in (1,) if quick else (1, 2):
        with _use_threads(threads):
            if quick:
                rows.append(Contest.wafers(1, 2).measure(2, 4, 1))
            else:
                rows.append(Contest.wafers(1, 10).measure(10, 50, 5))
                rows.append(Contest.wafers(8, 10).measure(4, 12, 5))
                rows.append(Contest.photos(1, 5).measure(1, 5, 4))
        print(table(rows[-3:], f"times faster than the authors' shape, at equal steps, {threads} threads"), flush=True)
    return rows


@contextlib.contextmanager
def _use_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
