"""Standings of methods on data sets, each at its own scale: ranks, paired differences, costs, and a file to add to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import combinations
from os import PathLike
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

import ig2
from ig2._utils.checks import is_number
from ig2._utils.files import check_regular
from ig2.errors import InputError, describe
from ig2.table import Column
from ig2_bench.board.intervals import Interval, bootstrap, bootstrap_rows
from ig2_bench.scales import choose_scales, rank
from ig2_bench.suite import AtScale, label_scale
from ig2_bench.table import MADE_BY, Failure, Table, merge_environments

FORMAT = 1
COSTS = ("forwards", "gradients", "seconds")
LACKS = "not without "  # how the reason begins for which a method does not apply to a data set
Scores = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Standing:
    """One method on one data set."""

    method: str
    about: Any
    """The parts and settings of the method, in words and numbers."""
    scale: float
    """The pixels its maps are blurred by, chosen on the validation split; 0 for raw maps."""
    raw: Scores = field(repr=False)
    """The scores of its raw maps, by metric, one for each sample; NaN if undefined."""
    scaled: Scores = field(repr=False)
    """The scores of its maps at the chosen scale, which are ranked."""
    cost: dict[str, float | None]
    """Forwards, gradients and seconds per input; None if unknown, as for methods from other libraries."""

    @property
    def work(self) -> float | None:
        """The cost per input in gradients, (forwards + 2·gradients)/3: a backward pass costs about two forward passes."""
        forwards, gradients = self.cost["forwards"], self.cost["gradients"]
        return None if forwards is None or gradients is None else (forwards + 2 * gradients) / 3

    def mean(self, metric: str, raw: bool = False) -> float:
        """Return the mean of a metric over the samples with a score; NaN if there are none."""
        values = [value for value in (self.raw if raw else self.scaled)[metric] if math.isfinite(value)]
        return fmean(values) if values else math.nan


@dataclass(frozen=True)
class Board:
    """The standings of one data set."""

    name: str
    title: str
    data: str
    """A description of the data, in a sentence."""
    samples: int
    quick: bool
    scales: tuple[float, ...]
    """The scales that were chosen from, besides 0."""
    settings: dict[str, Any]
    environment: dict[str, str]
    metrics: dict[str, Column]
    """The metrics by label; those that count in the mean rank are `ranked`."""
    standings: tuple[Standing, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    """Methods of the roster without a row, and the reason."""
    embedded: bool = False
    """Whether the data came with the suite, in place of the public data set."""

    @classmethod
    def from_tables(
        cls,
        name: str,
        test: Table,
        validation: Table | None,
        left_out: Mapping[str, str] | None = None,
        embedded: bool = False,
        chosen: Mapping[str, float] | None = None,
    ) -> Board:
        """Build the board of a data set from its tables.

        Args:
            name: the name of the data set.
            test: its table on the test split, with a row for every method, and one at the scale chosen for it.
            validation: its table on the validation split, on which the scale of each method is chosen by the lowest mean rank
                over the metrics among its own scales; None if there are no scales.
            left_out: methods without a row, and the reason.
            embedded: whether the data came with the suite.
            chosen: the scale of each method, if it was chosen before.
        """
        if chosen is None:
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
        sizes = {len(standing.raw[metric]) for standing in standings for metric in metrics}
        about = (validation or test).methods.values()
        scales = {
            float(method["sigma"]) for method in about if isinstance(method, Mapping) and method.get("type") == AtScale.__name__
        }
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
        for standing in self.standings:
            if standing.method == method:
                return standing
        raise InputError(f"{self.name} has no method {describe(method)}: it has {describe([s.method for s in self.standings])}")

    def ranks(self, metric: str, raw: bool = False) -> dict[str, float]:
        """Return the rank of each method by a metric's mean, 1 for the best.

        Means that are equal to the digits shown share the mean of their ranks, since exact methods differ only by rounding.
        """
        column = self.metrics[metric]
        sign = 1 if column.better == "higher" else -1
        means = [sign * round(standing.mean(metric, raw), column.digits) for standing in self.standings]
        ranks = rank([-math.inf if math.isnan(mean) else mean for mean in means])
        return {standing.method: place for standing, place in zip(self.standings, ranks, strict=True)}

    def mean_ranks(self, raw: bool = False) -> dict[str, float]:
        """Return the mean rank of each method over the metrics that count, best first."""
        each = [self.ranks(metric, raw) for metric in self.counted]
        means = {standing.method: fmean(ranks[standing.method] for ranks in each) for standing in self.standings}
        return dict(sorted(means.items(), key=lambda item: item[1]))

    def places(self) -> dict[str, int]:
        """Return the place of each method by its mean rank, 1 for the first; ties share the better place."""
        means = self.mean_ranks()
        return {method: 1 + sum(other < mean for other in means.values()) for method, mean in means.items()}

    def cost_ranks(self) -> dict[str, float]:
        """Return the rank by `Standing.work` of each method whose work is known, 1 for the cheapest."""
        known = {standing.method: work for standing in self.standings if (work := standing.work) is not None}
        return dict(zip(known, rank([-cost for cost in known.values()]), strict=True))

    def difference(self, method: str, base: str, metric: str) -> Interval:
        """Compare two methods sample by sample, each at its own scale.

        Args:
            method: the label of the first.
            base: the label of the second.
            metric: the label of the metric.

        Returns:
            The improvement of the first over the second, positive if the first is better, with its 95 % interval.

        Raises:
            InputError: if the board has no such method.
        """
        sign = 1 if self.metrics[metric].better == "higher" else -1
        first, second = (self.standing(label).scaled[metric] for label in (method, base))
        return Interval(*bootstrap([sign * (score - other) for score, other in zip(first, second, strict=True)]))

    def outcomes(self) -> dict[tuple[str, str], list[int]]:
        """Compare every pair of methods by every metric that counts.

        Returns:
            For each pair and metric, 1 if the first is ahead, −1 if it is behind, and 0 if they tie: the 95 % interval of the
            paired difference includes zero, or the difference is less than half of the last digit shown. A method without
            any score is behind one with scores.
        """
        pairs = list(combinations(range(len(self.standings)), 2))
        signs = {pair: list[int]() for pair in pairs}
        for metric in self.counted if pairs else ():
            sign = 1 if self.metrics[metric].better == "higher" else -1
            scores = sign * np.array([standing.scaled[metric] for standing in self.standings], dtype=np.float64)
            first, second = (scores[list(side)] for side in zip(*pairs, strict=True))
            mean, low, high = bootstrap_rows(first - second)
            is_level = (np.abs(mean) < 0.5 * 10.0 ** -self.metrics[metric].digits) | ~((low > 0) | (high < 0))
            signed = np.where(is_level, 0, np.sign(np.nan_to_num(mean))).astype(int)
            has_scores = [np.isfinite(side).any(axis=1).astype(int) for side in (first, second)]
            for pair, outcome, lead in zip(pairs, signed.tolist(), (has_scores[0] - has_scores[1]).tolist(), strict=True):
                signs[pair].append(lead or outcome)
        names = [standing.method for standing in self.standings]
        both = {(names[i], names[j]): each for (i, j), each in signs.items()}
        return both | {(b, a): [-sign for sign in each] for (a, b), each in both.items()}

    # -- adding --------------------------------------------------------------------------------------------------------

    def same_samples(self, other: Board) -> bool:
        """Return whether the other board has the same samples, so that their rows can be compared."""
        return self.samples == other.samples and self.same_study(other)

    def same_study(self, other: Board) -> bool:
        """Return whether the other board has the same data, network and settings, whatever the number of samples."""

        def identify(board: Board) -> tuple[Any, ...]:
            network = [board.environment.get(name) for name in ("data", "network")]
            settings = {**board.settings, "samples": None}
            data = board.data.removeprefix(str(board.settings.get("samples")))  # "100 samples of …", where a suite makes them
            # through JSON, as stored: tuples are then lists
            return board.name, data, json.dumps(settings, default=str), list(board.metrics), network

        return identify(self) == identify(other)

    def covers(self, other: Board) -> bool:
        """Return whether this is the other board with more samples, and a row or a reason for each of its methods."""
        known = {*self.left_out, *(standing.method for standing in self.standings)}
        return other.samples < self.samples and self.same_study(other) and known.issuperset(o.method for o in other.standings)

    def add(self, other: Board) -> Board:
        """Return the board with the rows of another; a method with the same label is replaced.

        Raises:
            InputError: if the scores of the other board are for other samples.
        """
        if not self.same_samples(other):
            raise InputError(
                f"{self.name}: the rows are of other samples, settings or networks ({other.data}; stored: {self.data}), and "
                "cannot stand in one table: choose another folder, or compute all again with fresh=True (--fresh)"
            )
        rows = {standing.method: standing for standing in (*self.standings, *other.standings)}
        left_out = {label: why for label, why in {**self.left_out, **other.left_out}.items() if label not in rows}
        environment = merge_environments(self.environment, other.environment)
        return replace(self, standings=tuple(rows.values()), left_out=left_out, environment=environment)

    def extend(self, later: Board) -> Board:
        """Return the board with the scores of further samples appended, for the methods that have both.

        Costs are the mean of both, or those of the further samples if the others are from another device or version of the
        code: a mean over two machines is the cost on neither.

        Args:
            later: the board of the further samples alone, each method at the scale it has here.

        Raises:
            InputError: if the other board has other data, networks or settings.
        """
        if not self.same_study(later):
            raise InputError(
                f"{self.name}: the stored rows are of other data, settings or networks ({self.data}; now: {later.data}), and "
                "cannot be extended by further samples: choose another folder, or compute all again with fresh=True (--fresh)"
            )
        rows = {standing.method: standing for standing in later.standings}
        standings = tuple(
            self._join(standing, rows[standing.method], later) for standing in self.standings if standing.method in rows
        )
        joined = {standing.method for standing in standings}
        left_out = {label: why for label, why in {**self.left_out, **later.left_out}.items() if label not in joined}
        return replace(
            self,
            samples=self.samples + later.samples,
            settings=later.settings,
            standings=standings,
            left_out=left_out,
            environment=merge_environments(self.environment, later.environment),
        )

    def _join(self, standing: Standing, more: Standing, later: Board) -> Standing:
        raw, scaled = (
            {metric: values + further[metric] for metric, values in scores.items()}
            for scores, further in ((standing.raw, more.raw), (standing.scaled, more.scaled))
        )
        cost = dict(more.cost)
        if all(self.environment.get(name) == later.environment.get(name) for name in ("device", "code")):
            for what, before in standing.cost.items():
                after = more.cost[what]
                known = None if before is None or after is None else before * self.samples + after * later.samples
                cost[what] = None if known is None else round_score(known / (self.samples + later.samples))
        return replace(standing, raw=raw, scaled=scaled, cost=cost)


def find_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the points (cost, quality) that no other beats in both, from the cheapest to the best.

    >>> find_front({"a": (1, 5), "b": (2, 4), "c": (3, 6)})
    ['a', 'c']
    """
    best, front = -math.inf, []
    for _, loss, label in sorted((cost, -quality, label) for label, (cost, quality) in points.items()):
        if -loss > best:
            best = -loss
            front.append(label)
    return front


@dataclass(frozen=True)
class Record:
    """The shares of its comparisons in which a method is ahead, level and behind."""

    ahead: float
    level: float
    behind: float

    @property
    def won(self) -> float:
        """The share of comparisons won, with ties counted half; methods are ordered by it."""
        return self.ahead + self.level / 2


@dataclass(frozen=True)
class Leaderboard:
    """The boards of all data sets, by name."""

    boards: dict[str, Board] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Data sets without a board, and the reason."""
    failures: tuple[Failure, ...] = field(default=(), repr=False, compare=False)
    """The failures of the run that returned it, with their errors; not stored in the file."""

    def add(self, other: Leaderboard, fresh: bool = False) -> Leaderboard:
        """Return the leaderboard with the boards and rows of another.

        Args:
            other: the leaderboard to add; its methods replace those with the same label.
            fresh: whether to replace boards of other samples; otherwise only boards that the other covers are replaced.

        Raises:
            InputError: if the rows of a data set are for different samples.
        """
        boards = dict(self.boards)
        for name, board in other.boards.items():
            known = boards.get(name)
            replaces = known is None or board.covers(known) or (fresh and not known.same_samples(board))
            boards[name] = board if known is None or replaces else known.add(board)
        skipped = {name: why for name, why in {**self.skipped, **other.skipped}.items() if name not in boards}
        return Leaderboard(boards, skipped)

    @property
    def ranked(self) -> list[str]:
        """The methods with a row on more than half of the data sets that they apply to.

        A method scored on few is not ranked overall: a lead on a single data set would place it before those that lead on
        several.
        """
        methods = dict.fromkeys(standing.method for board in self.boards.values() for standing in board.standings)
        has_row = {name: {standing.method for standing in board.standings} for name, board in self.boards.items()}

        def is_ranked(method: str) -> bool:
            applies = [name for name, board in self.boards.items() if not board.left_out.get(method, "").startswith(LACKS)]
            return 2 * sum(method in has_row[name] for name in applies) > len(applies)

        return [method for method in methods if is_ranked(method)]

    @cached_property
    def records(self) -> dict[str, Record]:
        """The record of each of the `ranked` methods against all others, best first.

        Two methods are compared on the data sets that have both, by every metric that counts, as in `Board.outcomes`. The
        metrics of a data set, the data sets of a pair and the opponents of a method each have equal weight.
        """
        ranked = self.ranked
        every = [board.outcomes() for board in self.boards.values()]
        records = {}
        for method in ranked:
            against = []
            for other in ranked:
                shared = [outcomes[method, other] for outcomes in every if (method, other) in outcomes]
                if shared:
                    against.append(
                        [fmean(fmean(sign == outcome for sign in each) for each in shared) for outcome in (1, 0, -1)]
                    )
            records[method] = Record(*map(fmean, zip(*against, strict=True))) if against else Record(0.0, 1.0, 0.0)
        return dict(sorted(records.items(), key=lambda item: -item[1].won))

    def work(self, method: str) -> float | None:
        """Return the median over data sets of a method's `Standing.work`; None if it is unknown."""
        works = [
            standing.work
            for board in self.boards.values()
            for standing in board.standings
            if standing.method == method and standing.work
        ]
        return median(works) if works else None

    def trade_off(self) -> dict[str, tuple[float, float]]:
        """Return the work of each ranked method, if known, and the share of comparisons that it wins."""
        return {
            method: (work, record.won) for method, record in self.records.items() if (work := self.work(method)) is not None
        }

    # -- files ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return everything as JSON, with a line for each method on each data set; scores to four digits."""
        boards = {}
        lines: dict[str, str] = {}
        for name, board in self.boards.items():
            rows = []
            for number, standing in enumerate(board.standings):
                mark = f"<{name} {number}>"
                lines[f'"{mark}"'] = json.dumps(_tidy(asdict(standing)), ensure_ascii=False, allow_nan=False)
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
        """Read and check a file written by `to_json`.

        Raises:
            InputError: if it is not a leaderboard, has another format, or its rows are inconsistent.
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
    """Return a score rounded to four digits."""
    return float(f"{value:.4g}")


def _read_board(name: str, content: dict[str, Any]) -> Board:
    metrics = {str(label): Column(**column) for label, column in content["metrics"].items()}
    standings = tuple(_read_standing(name, row, metrics) for row in content["standings"])
    if len({standing.method for standing in standings}) < len(standings):
        raise InputError(f"{name}: two rows have the same method: rename one of them")
    for label in metrics:
        sizes = {len(kind[label]) for standing in standings for kind in (standing.raw, standing.scaled)}
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
    """Return a value that JSON can hold: numbers to four digits, NaN as null."""
    if isinstance(thing, Mapping):
        return {str(key): _tidy(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_tidy(value) for value in thing]
    if isinstance(thing, float):
        return round_score(thing) if math.isfinite(thing) else None
    return thing if thing is None or isinstance(thing, (str, int)) else str(thing)
