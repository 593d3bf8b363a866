"""The contributions of several factors to a score, from a full factorial on the same samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2.errors import InputError, describe
from ig2_bench.board.intervals import Interval, resample
from ig2_bench.markdown import format_rows
from ig2_bench.suite import AtScale
from ig2_bench.table import Table

FACTORS = "factors"
BETWEEN = " × "
NAMES = ("path", "rule", "references", "scale")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Effect(Interval):
    """The contribution of a factor, level or interaction, with its interval."""

    what: str


@dataclass(frozen=True)
class Effects:
    """The contributions of all factors, by metric. Positive differences are improvements."""

    title: str
    data: str
    samples: int
    quick: bool
    shares: dict[str, list[Effect]]
    """The share of the variance between the means of the combinations that each factor explains alone, and each pair beyond
    that."""
    levels: dict[str, list[Effect]]
    """The improvement of each level of a factor over its first level, averaged over all other factors."""
    interactions: dict[str, list[Effect]]
    """For each pair of factors, the two levels whose joint effect differs most from the sum of their effects."""

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps({"format": 1, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Effects:
        """Read a file written by `to_json`.

        Raises:
            InputError: if it is not such a file.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content.pop("format") != 1:
                raise InputError(f"{path} has a format that this version of ig2 does not read")
            kinds = ("shares", "levels", "interactions")
            effects = {
                kind: {metric: [Effect(**row) for row in each] for metric, each in content[kind].items()} for kind in kinds
            }
            return cls(**{**content, **effects})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} holds no effects: {type(error).__name__}: {error}") from error

    def to_markdown(self) -> str:
        """Return the contributions as Markdown tables."""
        parts = []
        for title, effects, form in (
            ("Share of the variance between combinations", self.shares, _format_share),
            ("How much better each level is than the first of its factor", self.levels, str),
            ("The largest interaction of each two factors", self.interactions, _format_interaction),
        ):
            metrics = list(effects)
            whats = [effect.what for effect in (self.shares if form is _format_interaction else effects)[metrics[0]]]
            whats = whats[-len(effects[metrics[0]]) :]  # of shares, those of pairs come last
            rows = [[what, *(_bold(effects[metric][i], form) for metric in metrics)] for i, what in enumerate(whats)]
            parts += [f"{title}:", format_rows(["", *metrics], rows)]
        return "\n\n".join(parts)


def _format_share(effect: Effect) -> str:
    return f"{effect.mean:.0%} [{effect.low:.0%}, {effect.high:.0%}]"


def _format_interaction(effect: Effect) -> str:
    return f"{effect} ({effect.what})"


def _bold(effect: Effect, form: Any) -> str:
    return f"**{form(effect)}**" if effect.is_clear and form is not _format_share else form(effect)


def analyse(scores: Array, levels: Mapping[str, Sequence[str]], better: str = "higher") -> tuple[list[Effect], ...]:
    """Separate the contributions of factors, with bootstrap intervals over samples.

    Let y be the mean over samples of every combination, a the mean of y over all factors but one minus the grand mean, and ab
    the mean over all but two minus a, b and the grand mean. The share of a factor is Σa² / Σ(y − ȳ)², and that of a pair
    Σab² / Σ(y − ȳ)².

    Args:
        scores: the scores (samples, levels of the first factor, of the second, …), without NaN.
        levels: the names of the levels of each factor, by factor.
        better: the better direction; "lower" changes the sign of all differences.

    Returns:
        The shares of factors and pairs; the improvement of each level over the first of its factor; and the largest
        interaction of each pair.

    >>> scores = np.zeros((8, 2, 2)) + np.array([0.0, 1.0])[:, None]
    >>> shares, levels, _ = analyse(scores, {"path": ["a", "b"], "rule": ["c", "d"]})
    >>> [(one.what, one.mean) for one in shares], levels[0].what, levels[0].mean
    ([('path', 1.0), ('rule', 0.0), ('path × rule', 0.0)], 'path: b', 1.0)
    """
    signed = scores if better == "higher" else -scores
    count = len(signed)
    # the mean itself first, then that of every draw
    weights = np.concatenate([np.full((1, count), 1 / count), resample(count)])
    means = np.tensordot(weights, signed, axes=1)  # (1 + draws, levels …)
    axes = dict(zip(levels, range(1, means.ndim), strict=True))
    centred = means - means.mean(axis=tuple(axes.values()), keepdims=True)
    total = (centred**2).sum(axis=tuple(axes.values()))
    total = np.where(total > 0, total, 1.0)

    def average(*kept: str) -> Array:
        others = tuple(axis for name, axis in axes.items() if name not in kept)
        result: Array = centred.mean(axis=others, keepdims=True)
        return result

    def share(part: Array) -> Array:
        result: Array = (np.broadcast_to(part, centred.shape) ** 2).sum(axis=tuple(axes.values())) / total
        return result

    mains = {name: average(name) for name in levels}
    pairs = {(a, b): average(a, b) - mains[a] - mains[b] for a, b in combinations(levels, 2)}
    shares = [_summarise(name, share(part)) for name, part in mains.items()]
    shares += [_summarise(BETWEEN.join(pair), share(part)) for pair, part in pairs.items()]
    differences = [
        _summarise(f"{name}: {label}", np.take(flat, i, axis=1) - flat[:, 0])
        for name, part in mains.items()
        for flat in [part.reshape(len(part), -1)]
        for i, label in enumerate(levels[name])
        if i
    ]
    largest = []
    for (a, b), part in pairs.items():
        flat = part.reshape(len(part), -1)
        place = int(np.abs(flat[0]).argmax())
        level, other_level = list(product(levels[a], levels[b]))[place]
        largest.append(_summarise(f"{level}{BETWEEN}{other_level}", flat[:, place]))
    return shares, differences, largest


def _summarise(what: str, draws: Array) -> Effect:
    ends = np.percentile(draws[1:], [2.5, 97.5])
    mean, low, high = (round(float(number), 5) for number in (draws[0], *ends))
    return Effect(mean, low, high, what)


def analyse_table(table: Table) -> Effects:
    """Analyse the table of a study whose rows are combinations, "path × rule × references", at several scales.

    Raises:
        InputError: if a combination is missing, or no sample has all scores.
    """
    rows: dict[tuple[str, ...], str] = {}
    for label, about in table.methods.items():
        is_scaled = isinstance(about, Mapping) and about.get("type") == AtScale.__name__
        base = label.rpartition(", blurred by")[0] if is_scaled else label
        rows[(*base.split(BETWEEN), f"{about['sigma']:g} px" if is_scaled else "raw")] = label
    levels = {name: list(dict.fromkeys(key[i] for key in rows)) for i, name in enumerate(NAMES)}
    combinations_ = list(product(*levels.values()))
    missing = [key for key in combinations_ if key not in rows]
    if missing or table.failures:
        raise InputError(f"{table.suite} lacks {describe(missing or [f.said for f in table.failures])}: run its study again")
    kinds: tuple[dict[str, list[Effect]], ...] = ({}, {}, {})
    used = 0
    for metric, column in table.metrics.items():
        scores = np.array([table.row(rows[key], metric).values for key in combinations_], dtype=np.float64).T
        scores = scores[np.isfinite(scores).all(axis=1)]
        if not len(scores):
            raise InputError(f"{table.suite}: no sample has a score of {metric} in every row")
        used = max(used, len(scores))
        shape = (len(scores), *map(len, levels.values()))
        for kind, effects in zip(kinds, analyse(scores.reshape(shape), levels, column.better), strict=True):
            kind[metric] = effects
    return Effects(table.title, table.data, used, table.quick, *kinds)
