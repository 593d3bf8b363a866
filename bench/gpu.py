"""What the engine adds to the network's own arithmetic on a GPU.

From the source tree: PYTHONPATH=src:. python bench/gpu.py
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
import torchvision

import ig2
from bench.store import Row, side_by_side, table

BATCH = 160


def engine(net: torch.nn.Module, size: int, steps: int, explicands: int, references: int) -> None:
    x, others = (torch.rand(count, 3, size, size, device="cuda") for count in (explicands, references))
    ig2.IG2(steps, 1.0)(ig2.wrap(net, bounds=(0, 1)), x, references=others, batch_size=BATCH)


def bare(net: torch.nn.Module, size: int, steps: int, explicands: int, references: int) -> None:
    """One forward and two input gradients of the same batches, and nothing else."""
    points = torch.rand(BATCH, 3, size, size, device="cuda", requires_grad=True)
    for _ in range(steps * explicands * references // BATCH):
        output = net(points)
        ones = torch.ones_like(output[:, 0])
        torch.autograd.grad(output[:, 0].clone(), points, ones, retain_graph=True)
        torch.autograd.grad(output.square().sum(dim=1), points, ones)


def run(steps: int = 20, explicands: int = 16, references: int = 10) -> list[Row]:
    rows: list[Row] = []
    for name, size in (("resnet50", 224), ("inception_v3", 299)):
        options = {"init_weights": False} if name == "inception_v3" else {}
        net = torchvision.models.get_model(name, weights=None, **options).eval().cuda().requires_grad_(False)
        work = (net, size, steps, explicands, references)
        times = side_by_side({"engine": partial(engine, *work), "bare": partial(bare, *work)})
        mine, theirs = times["engine"], times["bare"]
        rows.append(
            {
                "network": name,
                "work": f"{explicands} × {references} × {steps}",
                "s": f"{min(mine):.2f}",
                "bare s": f"{min(theirs):.2f}",
                "over bare": f"{statistics.median(a / b for a, b in zip(mine, theirs, strict=True)) - 1:+.0%}",
                "s an explicand at 500 steps": f"{min(mine) / explicands * 500 / steps:.2f}",
            }
        )
    print(table(rows, torch.cuda.get_device_name()))
    return rows


if __name__ == "__main__":
    run()
