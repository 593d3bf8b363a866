"""Standings: methods on data sets, each at its own scale, with ranks, paired differences, costs, and a file others add to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from statistics import fmean, median
from typing import Any

import ig2
from ig2._utils.checks import is_number
from ig2._utils.files import check_regular
from ig2.benchmarks.intervals import Interval, bootstrap
from ig2.benchmarks.scales import choose_scales, rank
from ig2.benchmarks.suite import AtScale, Column, label_scale
from ig2.benchmarks.table import MADE_BY, Table
from ig2.errors import InputError, describe

FORMAT = 1
COSTS = ("forwards", "gradients", "seconds")
Scores = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Standing:
    """One method on one data set."""

    method: str
    about: Any
    """What the method is made of, in words and numbers."""
    scale: float
    """The pixels its maps are blurred by, chosen on the validation split; 0 for raw maps."""
    raw: Scores = field(repr=False)
    """The scores of its raw maps, by metric, one for each sample; NaN where not defined."""
    scaled: Scores = field(repr=False)
    """The same at the chosen scale. These are ranked."""
    cost: dict[str, float | None]
    """Forwards, gradients and seconds for each input; None where not known, as of methods from elsewhere."""

    @property
    def work(self) -> float | None:
        """What it takes for an input in gradients, (forwards + 2·gradients)/3: a pass back costs about two forward."""
        forwards, gradients = self.cost["forwards"], self.cost["gradients"]
        return None if forwards is None or gradients is None else (forwards + 2 * gradients) / 3

    def mean(self, metric: str, raw: bool = False) -> float:
        """Return the mean over samples with a score; NaN if there are none."""
        values = [value for value in (self.raw if raw else self.scaled)[metric] if math.isfinite(value)]
        return fmean(values) if values else math.nan


@dataclass(frozen=True)
class Board:
    """The standings of one data set."""

    name: str
    title: str
    data: str
    """Which data, in a sentence."""
    samples: int
    quick: bool
    scales: tuple[float, ...]
    """Those that were chosen among, beside 0."""
    settings: dict[str, Any]
    environment: dict[str, str]
    metrics: dict[str, Column]
    """Those that count in the mean rank are `ranked`."""
    standings: tuple[Standing, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    """Methods of the roster without a row, and why."""
    embedded: bool = False
    """Whether the data came with the suite, in place of the public data set."""

    @classmethod
    def from_tables(
        cls, name: str, test: Table, validation: Table | None, left_out: Mapping[str, str] | None = None, embedded: bool = False
    ) -> Board:
        """Return the standings of a data set.

        Args:
            name: of the data set.
            test: its table on the test split, with a row for every method, and one at the scale that is chosen for it.
            validation: the same on the validation split, on which the scale of each method is chosen by the lowest mean rank
                over the metrics among its own scales; None where there are no scales.
            left_out: methods without a row, and why.
            embedded: whether the data came with the suite.
        """
        chosen = choose_scales(validation) if validation is not None else dict.fromkeys(test.methods, 0.0)
        reasons = dict(left_out or {})
        metrics = {label: column for label, column in test.metrics.items() if label not in COSTS}
        standings = []
        failed = {failure.method: failure.said for failure in (*test.failures, *(validation.failures if validation else ()))}
        for label, scale in chosen.items():
            row = label_scale(label, scale) if scale else label
            said = failed.get(label) or failed.get(row) or failed.get(None)
            if said:
                reasons[label] = f"failed: {said}"
                continue
            # to the digits that are stored, so that ranks are the same after reading
            raw, scaled = (
                {metric: tuple(round_score(value) for value in test.row(which, metric).values) for metric in metrics}
                for which in (label, row)
            )
            cost = {what: test.row(label, what).mean for what in COSTS if what in test.metrics}
            known = {what: None if math.isnan(cost.get(what, math.nan)) else round_score(cost[what]) for what in COSTS}
            standings.append(Standing(label, test.methods[label], scale, raw, scaled, known))
        sizes = {len(one.raw[metric]) for one in standings for metric in metrics}
        about = (validation or test).methods.values()
        scales = {float(one["sigma"]) for one in about if isinstance(one, Mapping) and one.get("type") == AtScale.__name__}
        return cls(
            name, test.title, test.data, max(sizes, default=0), test.quick, tuple(sorted(scales)) if validation else (),
            test.settings, test.environment, metrics, tuple(standings), reasons, embedded,
        )  # fmt: skip

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def counted(self) -> list[str]:
        """The metrics that count in the mean rank."""
        return [label for label, column in self.metrics.items() if column.ranked]

    def standing(self, method: str) -> Standing:
        """Return the standing of a method.

        Raises:
            InputError: if the board has no such method.
        """
        for one in self.standings:
            if one.method == method:
                return one
        raise InputError(f"{self.name} has no method {describe(method)}: it has {describe([s.method for s in self.standings])}")

    def ranks(self, metric: str, raw: bool = False) -> dict[str, float]:
        """Return the rank of each method by a metric's mean, 1 for the best; equal ones share the mean of their ranks."""
        sign = 1 if self.metrics[metric].better == "higher" else -1
        means = [sign * one.mean(metric, raw) for one in self.standings]
        ranks = rank([-math.inf if math.isnan(mean) else mean for mean in means])
        return {one.method: place for one, place in zip(self.standings, ranks, strict=True)}

    def mean_ranks(self, raw: bool = False) -> dict[str, float]:
        """Return the mean rank of each method over the metrics that count, the best first."""
        each = [self.ranks(metric, raw) for metric in self.counted]
        means = {one.method: fmean(ranks[one.method] for ranks in each) for one in self.standings}
        return dict(sorted(means.items(), key=lambda item: item[1]))

    def cost_ranks(self) -> dict[str, float]:
        """Return the rank by `Standing.work` of each method for which it is known, 1 for the cheapest."""
        known = {one.method: work for one in self.standings if (work := one.work) is not None}
        return dict(zip(known, rank([-cost for cost in known.values()]), strict=True))

    def difference(self, method: str, base: str, metric: str) -> Interval:
        """Compare two methods sample by sample, each at its own scale.

        Args:
            method: the label of the first.
            base: the label of the second.
            metric: the label of the metric.

        Returns:
            By how much the first is better, whichever direction that is, with its 95 % interval.

        Raises:
            InputError: if the board has no such method.
        """
        sign = 1 if self.metrics[metric].better == "higher" else -1
        first, second = (self.standing(label).scaled[metric] for label in (method, base))
        return Interval(*bootstrap([sign * (one - two) for one, two in zip(first, second, strict=True)]))

    def trade_off(self) -> dict[str, tuple[float, float]]:
        """Return the work and the mean rank of each method whose work is known."""
        return {
            one.method: (work, ranks[one.method])
            for ranks in [self.mean_ranks()]
            for one in self.standings
            if (work := one.work)
        }

    # -- adding --------------------------------------------------------------------------------------------------------

    def same_samples(self, other: Board) -> bool:
        """Return whether scores of the other are of the same samples, so that its rows may stand beside these."""

        def identify(board: Board) -> tuple[Any, ...]:
            network = [board.environment.get(name) for name in ("data", "network")]
            # through JSON, as stored: tuples are then lists
            return board.name, board.data, json.dumps(board.settings, default=str), list(board.metrics), board.samples, network

        return identify(self) == identify(other)

    def add(self, other: Board) -> Board:
        """Return the board with the rows of another; a method of the same label is replaced.

        Raises:
            InputError: if the other's scores are of other samples.
        """
        if not self.same_samples(other):
            raise InputError(
                f"{self.name}: the rows are of other samples, settings or networks ({other.data}; stored: {self.data}), and "
                "cannot stand in one table: choose another folder, or compute all again with fresh=True (--fresh)"
            )
        rows = {one.method: one for one in (*self.standings, *other.standings)}
        left_out = {label: why for label, why in {**self.left_out, **other.left_out}.items() if label not in rows}
        return replace(self, standings=tuple(rows.values()), left_out=left_out)


def find_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the points (cost, rank) that no other beats in both, from the cheapest to the best.

    >>> find_front({"a": (1, 5), "b": (2, 6), "c": (3, 4)})
    ['a', 'c']
    """
    best, front = math.inf, []
    for _, place, label in sorted((cost, place, label) for label, (cost, place) in points.items()):
        if place < best:
            best = place
            front.append(label)
    return front


@dataclass(frozen=True)
class Leaderboard:
    """The boards of all data sets, by name."""

    boards: dict[str, Board] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Data sets without a board, and why."""

    def add(self, other: Leaderboard, fresh: bool = False) -> Leaderboard:
        """Return this with the boards and rows of another.

        Args:
            other: what is added; a method of the same label is replaced.
            fresh: whether a board of other samples is replaced; otherwise it raises an error.

        Raises:
            InputError: if rows of one data set are of other samples.
        """
        boards = dict(self.boards)
        for name, board in other.boards.items():
            known = boards.get(name)
            replaces = known is None or (fresh and not known.same_samples(board))
            boards[name] = board if known is None or replaces else known.add(board)
        skipped = {name: why for name, why in {**self.skipped, **other.skipped}.items() if name not in boards}
        return Leaderboard(boards, skipped)

    def overall(self) -> dict[str, float]:
        """Return the mean over data sets of each method's mean rank, as a share of the methods there, the best first.

        0 is first everywhere and 1 last everywhere, so that boards with more methods do not count more.
        """
        shares: dict[str, list[float]] = {}
        for board in self.boards.values():
            for method, mean_rank in board.mean_ranks().items():
                shares.setdefault(method, []).append((mean_rank - 1) / max(1, len(board.standings) - 1))
        return dict(sorted(((method, fmean(each)) for method, each in shares.items()), key=lambda item: item[1]))

    def trade_off(self) -> dict[str, tuple[float, float]]:
        """Return the median work over data sets and the overall rank of each method whose work is known."""
        works: dict[str, list[float]] = {}
        for board in self.boards.values():
            for one in board.standings:
                if work := one.work:
                    works.setdefault(one.method, []).append(work)
        return {method: (median(works[method]), share) for method, share in self.overall().items() if method in works}

    # -- files ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return everything as JSON, with a line for each method on each data set; scores to four digits."""
        boards = {}
        lines: dict[str, str] = {}
        for name, board in self.boards.items():
            rows = []
            for number, one in enumerate(board.standings):
                mark = f"<{name} {number}>"
                lines[f'"{mark}"'] = json.dumps(_tidy(asdict(one)), ensure_ascii=False, allow_nan=False)
                rows.append(mark)
            boards[name] = {**_tidy({**vars(board), "standings": [], "metrics": {}}), "standings": rows}
            boards[name]["metrics"] = {label: asdict(column) for label, column in board.metrics.items()}
        content = {"made_by": f"{MADE_BY}{ig2.__version__}", "format": FORMAT, "boards": boards, "skipped": self.skipped}
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        for mark, line in lines.items():
            text = text.replace(mark, line, 1)
        return text + "\n"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Leaderboard:
        """Read a file of `to_json`, and check it.

        Raises:
            InputError: if it is no leaderboard, of another format, or its rows do not fit each other.
        """
        check_regular(path)
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            number = content["format"]
            if number != FORMAT:
                raise InputError(f"{path} has format {describe(number)}, this version of ig2 reads {FORMAT}")
            boards = {str(name): _read_board(str(name), board) for name, board in content["boards"].items()}
            return cls(boards, {str(name): str(why) for name, why in content["skipped"].items()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} holds no leaderboard: {type(error).__name__}: {error}") from error


def round_score(value: float) -> float:
    """Return a score to four digits."""
    return float(f"{value:.4g}")


def _read_board(name: str, content: dict[str, Any]) -> Board:
    metrics = {str(label): Column(**column) for label, column in content["metrics"].items()}
    standings = tuple(_read_standing(name, row, metrics) for row in content["standings"])
    if len({one.method for one in standings}) < len(standings):
        raise InputError(f"{name}: two rows have the same method: rename one of them")
    for label in metrics:
        sizes = {len(kind[label]) for one in standings for kind in (one.raw, one.scaled)}
        if len(sizes) > 1:
            raise InputError(
                f"{name}: rows have different numbers of values of {label}, one a sample is expected: {describe(sizes)}"
            )
    changed = {"name": name, "scales": tuple(content["scales"]), "metrics": metrics, "standings": standings}
    return Board(**{**content, **changed})


def _read_standing(board: str, row: dict[str, Any], metrics: Mapping[str, Column]) -> Standing:
    method, scale = str(row["method"]), row["scale"]
    if not (is_number(scale) and scale >= 0):
        raise InputError(f"{board}: {method} has scale {describe(scale)}, expected pixels from 0 on")
    raw, scaled = (
        {label: tuple(math.nan if value is None else float(value) for value in row[kind][label]) for label in metrics}
        for kind in ("raw", "scaled")
    )
    cost = {what: None if row["cost"].get(what) is None else float(row["cost"][what]) for what in COSTS}
    return Standing(method, row["about"], float(scale), raw, scaled, cost)


def _tidy(thing: Any) -> Any:
    """Return what JSON can hold: numbers to four digits, NaN as null."""
    if isinstance(thing, Mapping):
        return {str(key): _tidy(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_tidy(value) for value in thing]
    if isinstance(thing, float):
        return round_score(thing) if math.isfinite(thing) else None
    return thing if thing is None or isinstance(thing, (str, int)) else str(thing)
