"""How the time and the memory of IG² grow with the steps, references, explicands, pixels and the size of the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import nn

import ig2
from performance.metrics import Watched
from performance.store import Row, side_by_side, table


@dataclass(frozen=True)
class Work:
    """IG² on a network like the wafer CNN, but for images of any size."""

    steps: int = 10
    references: int = 4
    explicands: int = 4
    pixels: int = 56  # a side
    channels: int = 16  # of the first layer; the next have two and four times as many

    def __call__(self) -> Callable[[], object]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers: list[nn.Module] = []
            for inside, outside in ((3, 1), (1, 2), (2, 4)):
                inside = inside if not layers else inside * self.channels
                layers += [nn.Conv2d(inside, outside * self.channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * self.channels, 64), nn.ReLU(), nn.Linear(64, 9)]
            net = nn.Sequential(*layers).eval()
            x, references = (torch.rand(n, 3, self.pixels, self.pixels) for n in (self.explicands, self.references))
        return partial(ig2.IG2(self.steps, 0.05), net, x, references=references)


def run(quick: bool = False) -> list[Row]:
    """Each of the sizes doubled again and again, the others as they are."""
    rows = [_row(name, 2 if quick else 4, 1 if quick else 3) for name in asdict(Work())]
    start = ", ".join(f"{name} {size}" for name, size in asdict(Work()).items())
    print(table(rows, f"IG² from {start}; {torch.get_num_threads()} threads"))
    return rows


def _row(name: str, doublings: int, rounds: int) -> Row:
    start = Work()
    sizes = [getattr(start, name) * 2**i for i in range(doublings)]
    works = {str(size): Watched(replace(start, **{name: size})()) for size in sizes}
    times = {size: min(found) for size, found in side_by_side(dict(works), rounds).items()}
    slope, _ = np.polyfit(np.log(sizes), np.log(list(times.values())), 1)
    return {
        "doubled": name,
        "sizes": " ".join(times),
        "s": " ".join(f"{time:.2f}" for time in times.values()),
        "exponent": f"{slope:.2f}",
        # twice the pixels a side are four times the arithmetic, and so are twice the channels in all layers but the first
        "at most": 2 if name in ("pixels", "channels") else 1,
        "MB": " ".join(f"{work.megabytes:.0f}" for work in works.values()),
    }
