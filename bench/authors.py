"""IG² beside a plain replica of the authors' algorithm, on the paper's wafer CNN."""

from __future__ import annotations

import torch

import ig2
from bench import wafer
from bench.store import Row, ratio, side_by_side, table
from tests.replicas import authors_ig2


def run(quick: bool = False) -> list[Row]:
    """Time both on the same work, the replica one sample after the other."""
    net = wafer.network()
    steps, explicands, count = (5, 2, 2) if quick else (20, 4, 5)
    data, _ = wafer.maps(3)
    x, references = data[3 : 3 + explicands], data[-count:]
    method, model = ig2.IG2(steps, 0.05), ig2.wrap(net)
    target = method(model, x, references=references).target
    times = side_by_side(
        {
            "authors": lambda: [
                authors_ig2(net, sample.numpy(), list(references.numpy()), int(goal), steps, 0.05)
                for sample, goal in zip(x, target, strict=True)
            ],
            "ig2": lambda: method(model, x, references=references),
        },
        rounds=1 if quick else 3,
    )
    rows: list[Row] = [
        {
            "work": f"{explicands} maps × {count} references × {steps} steps",
            "authors s": f"{min(times['authors']):.2f}",
            "ig2 s": f"{min(times['ig2']):.2f}",
            "times faster": ratio(times["authors"], times["ig2"]),
        }
    ]
    print(table(rows, f"IG² on the wafer CNN, {torch.get_num_threads()} threads"))
    return rows
