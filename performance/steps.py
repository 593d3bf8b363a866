"""How few steps do: IG² on photos with true masks, against the paper's 500.

`python -m performance.steps PHOTOS.npz [--out FOLDER]`, with an .npz of photos: x (N, H, W, 3) uint8, mask (N, H, W) with 1 on
the subject, 0 elsewhere and −1 where it is undecided, pool (R, H, W, 3) uint8 of other classes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ig2
from ig2 import modalities
from ig2.metrics.curves import Deletion, Insertion
from ig2.metrics.localisation import GTAUC, GTSum
from ig2.paths import Converged, Decaying, LineSearch
from performance.precision import rank_correlation
from performance.store import Row, save, seconds, table

STEP = 512 / 255 * 224 / 299  # the authors' 512 of [0, 255] at 299²: the same change of a pixel at 224², in [0, 1]


def images(array: np.ndarray, device: str) -> Tensor:
    return torch.from_numpy(array).permute(0, 3, 1, 2).float().to(device) / 255


def metrics(model: ig2.Model, found: ig2.Attribution, mask: Tensor) -> dict[str, float]:
    scores = {
        "GT-AUC": GTAUC()(model, found, truth=mask),
        "GT-SUM": GTSum()(model, found, truth=mask),
        "ADD": Insertion(background="blurred", sign="positive")(model, found),
        "DEL": Deletion(background="blurred", sign="positive")(model, found),
    }
    return {name: score.mean for name, score in scores.items()}


def loss(score: dict[str, float], first: dict[str, float]) -> float:
    """The largest share by which any metric is worse; below 0 if all are better."""
    return max((1 if name == "DEL" else -1) * (score[name] / first[name] - 1) for name in score)


def run(
    photos: Path, out: Path, device: str, most: int, references: int, full_steps: int, rules: list[str], paths: list[str]
) -> None:
    data = np.load(photos)
    base = modalities.image.load("efficientnet-lite0").to(device).model
    x, pool = images(data["x"][:most], device), images(data["pool"][:references], device)
    mask = torch.from_numpy(data["mask"][:most])
    results: dict[str, list[Row]] = {}

    def explain(method: ig2.IG2) -> tuple[ig2.Attribution, float]:
        attributions: list[ig2.Attribution] = []
        taken = seconds(lambda: attributions.append(method(base, x, references=pool)))
        return attributions[0], taken

    for rule in (getattr(ig2.rules, name) for name in rules):
        variants: dict[str, dict[str, Any]] = {f"{full_steps} steps, as published": {"steps": full_steps}}
        variants |= {f"{n} steps": {"steps": n} for n in (20, 50, 100, 120, 200) if n < full_steps}
        for n in (50, 120):
            variants[f"{n} steps, decaying"] = {"steps": n, "schedule": Decaying()}
        variants["20 steps, line search"] = {"steps": 20, "schedule": LineSearch()}
        for tolerance in (0.05, 0.01):
            variants[f"stop at {tolerance:.0%}"] = {"steps": full_steps, "stop": Converged(tolerance)}
        variants["200 steps, decaying, stop at 1%"] = {"steps": 200, "schedule": Decaying(), "stop": Converged(0.01)}
        variants = {label: settings for label, settings in variants.items() if any(part in label for part in paths)}
        rows: list[Row] = []
        whole: ig2.Attribution | None = None
        first: dict[str, float] = {}
        for label, settings in variants.items():
            found, taken = explain(ig2.IG2(step_size=STEP, rule=rule, **settings))
            score = metrics(base, found, mask.to(device))
            whole, first = whole or found, first or score
            assert found.steps_taken is not None and found.relative_residual is not None
            print(label, score, found.steps_taken.double().mean(), f"{taken:.1f} s", flush=True)
            rows.append(
                {
                    "rule": rule.name,
                    "path": label,
                    "steps taken": f"{float(found.steps_taken.double().mean()):.0f}",
                    **{name: f"{value:.4f}" for name, value in score.items()},
                    "largest loss": f"{loss(score, first):.1%}",
                    "rank correlation": f"{rank_correlation(found.values, whole.values):.3f}",
                    "residual": f"{float(found.relative_residual.median()):.1%}",
                    "s an explicand": f"{taken / len(x):.3f}",
                }
            )
        print(table(rows, f"steps: EfficientNet-Lite0, {len(x)} photos, {references} references, step {STEP:.3g}"), flush=True)
        results[f"steps {rows[0]['rule']}"] = rows
        save(results, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/performance-steps"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--most", type=int, default=64, help="how many photos")
    parser.add_argument("--references", type=int, default=10, help="how many")
    parser.add_argument("--full", type=int, default=500, help="the steps everything is compared with")
    parser.add_argument("--rules", nargs="+", default=["left", "blended"])
    parser.add_argument("--paths", nargs="*", default=[""], help="those whose names hold one of these")
    options = parser.parse_args()
    sizes = (options.most, options.references, options.full)
    run(options.photos, options.out, options.device, *sizes, options.rules, options.paths)


if __name__ == "__main__":
    main()
