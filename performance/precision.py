"""What half precision changes: maps and metrics of IG² beside those of the network as it is.

`python -m performance precision` explains drawn wafer maps. Any suite with a folder of data:
`python -m performance.precision imagenet --data FOLDER [--samples N] [--device cuda]`
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

import ig2
from ig2.metrics.correlation import pearson
from ig2.metrics.sanity import midranks
from ig2_bench.suite import BenchOptions, find_suite
from ig2_bench.suites.experiment import COUNTERFACTUAL, Experiment
from performance.store import Row, save, table

PREPARATIONS = {
    "as it is": None,
    "default": ig2.Preparation(),
    "bfloat16": ig2.Preparation(precision="bfloat16"),
    "float16": ig2.Preparation(precision="float16"),
}


def rank_correlation(one: Tensor, two: Tensor) -> float:
    """Spearman's, of pixels, mean over the explicands."""
    ranks = [midranks(values.sum(dim=1).flatten(1)) for values in (one, two)]
    return float(pearson(*ranks).mean())


def measure(suite: Experiment, rule: ig2.rules.Rule) -> list[Row]:
    """IG² with each preparation of the suite's network; the network that scores is the same for all."""
    explicands, everything = suite.explicands, slice(0, suite.samples)
    references = explicands.references[COUNTERFACTUAL].select(everything)
    method, rows = suite.ig2(rule=rule), []
    first: Tensor | None = None
    for label, preparation in PREPARATIONS.items():
        model = replace(explicands.model, preparation=preparation)
        method(model, suite.method_input(slice(0, 1)), explicands.target[:1], references[:1])  # what happens once is not timed
        attribution = method(model, suite.method_input(everything), explicands.target, references)
        values = attribution.values
        assert isinstance(values, Tensor) and attribution.cost is not None
        first = values if first is None else first
        scores = suite.score_attribution(attribution, everything)
        rows.append(
            {
                "rule": rule.name,
                "prepared": label,
                **{name: f"{float(score.nanmean()):.3f}" for name, score in sorted(scores.items())},
                "rank correlation": f"{rank_correlation(values, first):.3f}",
                "s an explicand": f"{attribution.cost.seconds / suite.samples:.3f}",
            }
        )
        print(rows[-1], flush=True)
    title = f"precision: {suite.name}, {suite.samples} samples × {suite.references} references × {suite.steps} steps"
    print(table(rows, title), flush=True)
    return rows


def make_experiment(name: str, options: BenchOptions, **settings: Any) -> Experiment:
    suite = find_suite(name, options)
    assert isinstance(suite, Experiment)
    return replace(suite, **settings)


def run(quick: bool = False) -> list[Row]:
    """Drawn wafer maps, on a CPU."""
    options = BenchOptions(quick=quick, samples=2 if quick else 24, device="cpu")
    suite = make_experiment("wafer", options, references=2 if quick else 4)
    return [row for rule in (ig2.rules.left, ig2.rules.blended) for row in measure(suite, rule)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m performance.precision", description=__doc__)
    parser.add_argument("suite")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--references", type=int, default=10)
    parser.add_argument("--steps", type=int, help="the suite's own without")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("out/performance-precision"))
    options = parser.parse_args()
    settings = {"references": options.references} | ({"steps": options.steps} if options.steps else {})
    asked = BenchOptions(data=options.data, samples=options.samples, split="validation", device=options.device)
    suite = make_experiment(options.suite, asked, **settings)
    results = {f"precision {rule}": measure(suite, rule) for rule in (ig2.rules.left, ig2.rules.blended)}
    print("stored in", save(results, options.out))


if __name__ == "__main__":
    main()
