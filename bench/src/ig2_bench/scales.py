"""The scale of each method, chosen on one table and reported on another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from ig2.errors import InputError, describe
from ig2_bench.suite import AtScale, label_scale
from ig2_bench.table import Table

RANK = "rank"


def choose_scales(table: Table, criterion: str = RANK) -> dict[str, float]:
    """Choose a scale for each method of a table with rows at several scales.

    With "rank", the scales of a method, including 0 for its raw maps, are ranked by the mean of each metric (ties share the
    mean of their ranks), and the scale with the lowest mean rank over the metrics is chosen. With a metric, the scale with
    the best mean is chosen. Ties go to the smallest scale; a scale without a score comes last.

    Args:
        table: the table of a suite with `scales`, on its validation split.
        criterion: "rank", or the label of a metric that has a better direction.

    Returns:
        The scale of each method in pixels, by label; 0 for its raw maps.

    Raises:
        InputError: if the table has no such metric, or no method at several scales.
    """
    ranked = [label for label, column in table.metrics.items() if column.ranked]
    if criterion != RANK and criterion not in ranked:
        raise InputError(f"criterion must be {describe(RANK)} or one of {describe(ranked)}, got {describe(criterion)}")
    metrics = ranked if criterion == RANK else [criterion]
    chosen = {}
    for label, rows in _group_scales(table).items():
        ranks = [rank([_score(table, row, metric) for row in rows.values()]) for metric in metrics]
        means = [fmean(column) for column in zip(*ranks, strict=True)]
        chosen[label] = min(zip(means, rows, strict=True))[1]
    return chosen


def select_scales(table: Table, scales: Mapping[str, float]) -> Table:
    """Select the rows to report: the raw maps of each method, and its maps at the chosen scale.

    Args:
        table: the table of the same suite, on its test split.
        scales: the scales that `choose_scales` returned for the validation split.

    Returns:
        The table with these rows, and a note on the chosen scales.

    Raises:
        InputError: if the table lacks a method or a scale.
    """
    groups = _group_scales(table)
    kept = []
    for label, sigma in scales.items():
        if sigma not in groups.get(label, {}):
            raise InputError(f"the table has no {describe(label)} at {sigma:g} px: run its suite with the scales chosen from")
        kept += [label] if sigma == 0 else [label, groups[label][sigma]]
    note = "the scale of each method was chosen on the validation split: " + ", ".join(
        f"{label} {f'{sigma:g} px' if sigma else 'raw'}" for label, sigma in scales.items()
    )
    methods = {label: table.methods[label] for label in kept}
    rows = tuple(row for label in kept for row in table.rows if row.method == label)
    return replace(table, methods=methods, rows=rows, notes=(*table.notes, note))


def _group_scales(table: Table) -> dict[str, dict[float, str]]:
    """Return the labels of each method's rows by scale, ascending; 0 is the method itself."""
    sigmas = {
        label: float(about["sigma"])
        for label, about in table.methods.items()
        if isinstance(about, Mapping) and about.get("type") == AtScale.__name__
    }
    if not sigmas:
        raise InputError(f"{describe(table.suite)} has no rows at other scales: run its suite with scales=(2, 8) (--scales 2)")
    several = sorted(set(sigmas.values()))
    return {
        label: {0.0: label, **{sigma: row for sigma in several if (row := label_scale(label, sigma)) in sigmas}}
        for label in table.methods
        if label not in sigmas
    }


def _score(table: Table, method: str, metric: str) -> float:
    row = table.row(method, metric)
    return -math.inf if math.isnan(row.mean) else row.mean if row.better == "higher" else -row.mean


def rank(scores: Sequence[float]) -> list[float]:
    """Return the ranks of scores, 1 for the highest; ties share the mean of their ranks."""
    return [1 + sum(o > score for o in scores) + (sum(o == score for o in scores) - 1) / 2 for score in scores]
