"""How far each rule's sum is from the change in the output, on a trained ReLU network at the paper's wafer settings."""

from __future__ import annotations

import ig2
from ig2_bench.datasets.wafer import drawn
from ig2_bench.networks.training import train_network
from performance import wafer
from performance.store import Row, table

QUADRATURES = (ig2.rules.left, ig2.rules.right, ig2.rules.midpoint, ig2.rules.trapezoid, ig2.rules.gauss(4))
COMPLETE = (ig2.rules.direct, ig2.rules.shared, ig2.rules.aligned, ig2.rules.tempered, ig2.rules.blended)
RULES = (*QUADRATURES, ig2.rules.secant, *COMPLETE, ig2.rules.scaled(ig2.rules.left))


def run(quick: bool = False) -> list[Row]:
    net = train_network("wafer", drawn.draw_maps(10 if quick else 50), quick=quick).net
    x, labels = wafer.maps(1, seed=2)
    explicands, references = x[labels != wafer.NORMAL], wafer.maps(2, seed=3)[0][-2:]
    steps, size = 4 if quick else 100, 0.1
    print(f"wafer CNN; {len(explicands)} maps × 2 normal references, {steps} steps of {size}")
    rows: list[Row] = []
    for rule in RULES:
        result = ig2.IG2(steps, size, rule)(ig2.wrap(net, bounds=(0, 1)), explicands, references=references)
        relative = result.relative_residual
        assert relative is not None
        rows.append({"rule": rule.name, "median": f"{float(relative.median()):.2e}", "worst": f"{float(relative.max()):.2e}"})
    print(table(rows, "residual relative to |f(x) − f(GradCF)|"))
    return rows
