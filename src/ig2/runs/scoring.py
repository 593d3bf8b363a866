"""Scores of the rows of a store."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ig2.errors import InputError, describe
from ig2.methods import Gradient
from ig2.methods.base import summary
from ig2.metrics.base import Metric, Scores
from ig2.runs.ids import contains, hash_ids
from ig2.runs.planning import find_model, make_plan
from ig2.runs.sources import find_source, group_items
from ig2.runs.store import Store


def score_store(
    store: Store, metric: Metric, source: Any, model: Any, *, column: str | None = None, batch: int | None = None, seed: int = 0
) -> Scores:
    """Score the rows of a store by a metric; see `Store.score`."""
    if not isinstance(metric, Metric):
        raise InputError(f"metric must be of ig2.metrics, got {describe(metric)}")
    kept = store.manifest["fingerprint"].get("settings", {}).get("values")
    if kept not in ("float32", "float16"):
        raise InputError(f"{store.folder} keeps {describe(kept)} of the values, and a metric needs all: run it with float32")
    target = store.manifest["fingerprint"].get("question", {}).get("target")
    if isinstance(target, dict):
        raise InputError(
            f"{store.folder} explains {target['type']}, which a store does not keep: give the run ig2.Saving(metrics=…) instead"
        )
    origin = store.manifest["fingerprint"].get("source", {})
    items = find_source(source, id=origin.get("id")) if origin.get("id") is not None else find_source(source)
    plan = make_plan(items, find_model(model, items), Gradient(), column=column)
    ids = store.where("error is None").ids
    wanted, values, undefined = hash_ids(iter(ids)), dict[str, float](), dict[str, int]()
    for members in group_items((item for item in items if contains(wanted, item.id)), batch or plan.modality.batch):
        rows = store.find([item.id for item in members])
        loaded = plan.read(members)
        sound = [place for place in range(len(members)) if place not in loaded.failures]
        for places, samples in plan.batch(loaded, sound):
            chosen = [rows[members[place].id] for place in places]
            tensor = torch.zeros(samples.attributed.shape)
            for number, row in enumerate(chosen):
                tensor[number][: len(row["values"])] = torch.from_numpy(np.array(row["values"], dtype=np.float32))
            against = None if chosen[0].get("against") is None else torch.tensor([row["against"] for row in chosen])
            targets = torch.tensor([row["target"] for row in chosen])
            scores = metric(plan.model, samples.like_x(tensor), samples.x, targets, against=against, seed=seed)
            values.update(zip([members[place].id for place in places], scores.values.double().tolist(), strict=True))
            for why, times in scores.undefined.items():
                undefined[why] = undefined.get(why, 0) + times
    missing = len(ids) - len(values)
    if missing:
        undefined["the source does not have the item, or it cannot be read"] = missing
    ordered = torch.tensor([values.get(identity, math.nan) for identity in ids], dtype=torch.float64)
    return Scores(ordered, metric.name, metric.better, undefined, settings=summary(metric))
