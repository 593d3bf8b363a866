"""How far an attribution can be believed: findings, and the words, marks and badges made of them.

`judge` makes findings from the numbers of an attribution, `judge_columns` from the same numbers in
columns of a store. The sentence of an attribution, the lines of the command, marks of reports and the
badges of the explorer are made of them here. A further finding is one entry of `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Evidence of nothing, evidence for the values, or a reason not to take them as they are.
Severity = Literal["none", "good", "poor"]
SEVERITIES: tuple[Severity, ...] = ("none", "good", "poor")  # of several, the last is shown
Array = NDArray[np.float64]
Mask = Any  # NDArray[np.bool_], which NumPy does not say of comparisons

# From this share of f(x) − f(baseline) on, a residual is large.
LARGE_RESIDUAL = 0.1
# Below this share, it is rounding.
EXACT = 1e-3
# What float32 leaves of two equal outputs, as a share of them.
ROUNDING = 1e-6
# Below this trust, the gradient predicts so little that signs are not to be believed.
LITTLE_TRUST = 0.5
# Below this share of the distance to their references, paths have not arrived. Distances are
# squared by default: with a quarter of D left, half of the way between the representations is.
LITTLE_ARRIVAL = 0.75
# Below this share of the distance, a path that moved got no nearer.
HARDLY_NEARER = 0.005
# From here on a path that stands still has arrived.
ARRIVED = 0.99
# Above this share of the margin, what is left of it at the references counts.
SIDE = 0.1


@dataclass(frozen=True, eq=False)
class Columns:
    """All numbers that are judged, of B explicands: columns of a store. NaN is a missing one."""

    output: Array
    """f(x)."""
    baseline_output: Array
    """f(baseline), the mean over references."""
    reference_output: Array
    """f(reference), the mean over the references of paths."""
    residual: Array
    """Σφ − (f(x) − f(baseline))."""
    relative_residual: Array
    """|residual| / |f(x) − f(baseline)|."""
    strength: Array
    """Σ|φ|."""
    trust: Array
    """This and the next four are medians over references."""
    arrival: Array
    stuck: Array
    finished: Array
    steps_taken: Array
    complete: Array
    """1 if values add up by construction."""
    margin: Array
    """1 if the output is that of one class less that of others: "A rather than B"."""

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Columns:
        """Read columns; cells, and whole columns, may be None or missing."""
        names = [f.name for f in fields(cls) if columns.get(f.name) is not None]
        known = {name: np.asarray(columns[name], dtype=np.float64) for name in names}
        unknown = np.full(max(map(len, known.values()), default=0), np.nan)
        return cls(**{f.name: known.get(f.name, unknown) for f in fields(cls)})

    def __len__(self) -> int:
        return len(self.output)

    def __getitem__(self, rows: NDArray[np.intp]) -> Columns:
        return Columns(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @cached_property
    def has_baseline(self) -> Mask:
        return ~(np.isnan(self.baseline_output) & np.isnan(self.relative_residual))

    @cached_property
    def relative(self) -> Array:
        """The relative residual; where it is missing, as for one reference, from the residual."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.abs(self.residual / (self.output - self.baseline_output))
        found = np.where(self._is_rounding(self.residual), 0.0, found)
        return np.where(np.isnan(self.relative_residual), found, self.relative_residual)

    @cached_property
    def far(self) -> Array:
        """The margin at what an explicand is contrasted with: references, or a baseline."""
        far = np.where(np.isnan(self.reference_output), self.baseline_output, self.reference_output)
        return np.where(self.margin > 0, far, np.nan)

    @cached_property
    def is_unchanged(self) -> Mask:
        """Where the output at the baseline is that at x, and the values add up to that."""
        with np.errstate(invalid="ignore"):
            return (self.relative == 0) & self._is_rounding(self.output - self.baseline_output)

    def _is_rounding(self, difference: Array) -> Mask:
        return np.abs(difference) <= ROUNDING * (np.abs(self.output) + np.abs(self.baseline_output))

    @cached_property
    def is_zero(self) -> Mask:
        """Where all values are zero, and rightly so as far as is known."""
        return (self.strength == 0) & (~self.has_baseline | (self.relative == 0))

    @cached_property
    def has_stopped(self) -> Mask:
        """Where paths stood still before their end."""
        return (self.stuck > 0) & (self.arrival < ARRIVED)

    @cached_property
    def fell_short(self) -> Mask:
        """Where paths did not arrive."""
        return (self.arrival < LITTLE_ARRIVAL) | self.has_stopped

    @cached_property
    def has_no_way(self) -> Mask:
        """Where paths were at their references before the first step."""
        return (self.steps_taken == 0) & ~self.fell_short


NUMBERS = tuple(f.name for f in fields(Columns))


@dataclass(frozen=True)
class Finding:
    """What numbers say about how far some explicands can be believed."""

    code: str
    """The name of its entry in `CHECKS`."""
    severity: Severity
    numbers: Mapping[str, float]
    """The numbers that its words have, such as the worst residual of its rows."""
    rows: tuple[int, ...]
    """The explicands it holds for."""
    of: int
    """How many were judged."""

    @property
    def check(self) -> Check:
        """What all findings of its kind share."""
        return BY_CODE[self.code]

    def say(self, noun: str = "explicand") -> str:
        """Return a clause about the attribution, with how many it holds for unless for all."""
        share = f" for {len(self.rows)} of {self.of} {noun}s" * (len(self.rows) < self.of)
        words = self.check.words
        return words(self, share) if callable(words) else words.format(share=share, **self.numbers)


@dataclass(frozen=True)
class Check:
    """A kind of finding: where it holds, how it is said, and what to do."""

    code: str
    topic: str  # the number it is about; on each an explicand has one finding, the first that holds
    severity: Severity
    badge: str  # a few words, beside a single explicand
    holds: Callable[[Columns], Mask]
    words: str | Callable[[Finding, str], str]  # {share}: how many it holds for
    measure: Callable[[Columns], dict[str, float]] | None = None  # its numbers, of its rows
    remedies: str = ""  # what to try in Python
    finer: tuple[str, ...] = ()  # what to type with methods that take a rule and {steps}
    options: tuple[str, ...] = ()  # what to type with any
    otherwise: str = ""  # what else to do, or how to read the values as they are


def judge(attribution: Any) -> tuple[Finding, ...]:
    """Return what the numbers of an `ig2.Attribution` say about how far it can be believed.

    >>> import ig2, torch
    >>> net = lambda x: x @ torch.tensor([[2.0], [-1.0]])
    >>> (finding,) = judge(ig2.IntegratedGradients()(net, torch.tensor([[3.0, 4.0]])))
    >>> finding.code, finding.severity, finding.rows, finding.say()
    ('sums', 'good', (0,), 'sums to the change in the output')
    """
    numbers = attribution.numbers.items()
    return judge_columns({name: each.detach().cpu().double().numpy() for name, each in numbers})


def judge_columns(columns: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what columns of numbers say, such as those of a store.

    Args:
        columns: sequences by the names of `Columns`, as far as they are known; cells may be None.
    """
    known = Columns.of(columns)
    if not len(known):
        return (Finding("empty", "none", {}, (), 0),) if "output" in columns else ()
    left = {check.topic: np.full(len(known), True) for check in CHECKS}
    findings = []
    for check in CHECKS:
        rows = np.flatnonzero(left[check.topic] & check.holds(known))
        left[check.topic][rows] = False
        if len(rows):
            numbers = {} if check.measure is None else check.measure(known[rows])
            places = tuple(rows.tolist())
            findings.append(Finding(check.code, check.severity, numbers, places, len(known)))
    topics = list(left)
    return tuple(sorted(findings, key=lambda one: (topics.index(one.check.topic), -len(one.rows))))


def find_rows(findings: Iterable[Finding], code: str) -> frozenset[int]:
    """Return the explicands that a finding holds for."""
    return frozenset(row for each in findings if each.code == code for row in each.rows)


def mark(findings: Iterable[Finding]) -> Severity:
    """Return the worst severity of findings, the mark of all of them together."""
    return max((each.severity for each in findings), key=SEVERITIES.index, default="none")


def mark_rows(findings: Iterable[Finding], count: int) -> list[dict[str, dict[str, str]]]:
    """Return the code, mark and badge of each explicand's findings by their topics, for pages."""
    rows: list[dict[str, dict[str, str]]] = [{} for _ in range(count)]
    for each in findings:
        shown = {"code": each.code, "mark": each.severity, "badge": each.check.badge}
        for row in each.rows:
            rows[row][each.check.topic] = shown
    return rows


def mark_row(row: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the marks of one row of a store, or of other numbers of one explicand."""
    return mark_rows(judge_columns({name: [cell] for name, cell in row.items()}), 1)[0]


def put_in_words(findings: Iterable[Finding], noun: str = "explicand") -> str:
    """Return findings as a sentence whose subject is the attribution, and what to do."""
    known = tuple(findings)
    return ": ".join(filter(None, (say(known, noun), advise(known))))


def say(findings: Iterable[Finding], noun: str = "explicand") -> str:
    """Return findings as a sentence, without what to do."""
    return "; ".join(filter(None, (each.say(noun) for each in findings)))


def advise(findings: Iterable[Finding]) -> str:
    """Return what to do in Python; empty where nothing has to be done."""
    return _join_advice((each.check.remedies, each.check.otherwise) for each in findings)


def advise_typing(findings: Iterable[Finding], steps: int | None) -> str:
    """Return what to do in the command.

    Args:
        findings: the findings.
        steps: more steps to take; None for a method that takes neither steps nor a rule.
    """
    pairs = []
    for check in (each.check for each in findings):
        finer = () if steps is None else (option.format(steps=steps) for option in check.finer)
        pairs.append((" or ".join([*finer, *check.options]), check.otherwise))
    return _join_advice(pairs)


def _join_advice(pairs: Iterable[tuple[str, str]]) -> str:
    texts = (", or ".join(filter(None, (tries and f"try {tries}", rest))) for tries, rest in pairs)
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _measure_residual(at: Columns) -> dict[str, float]:
    known = at.relative[np.isfinite(at.relative)]
    worst, inexact = float(known.max(initial=0.0)), float((at.relative >= EXACT).sum())
    return {"worst": worst, "inexact": inexact, "endless": float(len(at) - len(known))}


def _say_sum(finding: Finding, share: str) -> str:
    rows, inexact = len(finding.rows), int(finding.numbers["inexact"])
    within = f" within {finding.numbers['worst']:.1%}" * (inexact > 0)
    few = f" ({inexact} {'is' if inexact == 1 else 'are'} off by {EXACT:.1%} or more)"
    return f"sums to the change in the output{within}{share}{few * (0 < inexact < rows)}"


def _say_off(finding: Finding, share: str) -> str:
    rows, endless = len(finding.rows), finding.numbers["endless"]  # infinite, or NaN
    off = f"off by {'up to ' * (rows > 1)}{finding.numbers['worst']:.0%}"
    off += ", or with no change to sum to" * (endless > 0)
    off = "which is zero" if endless == rows else off
    return f"does NOT sum to the change in the output{share} ({off})"


def _measure_distance(at: Columns) -> dict[str, float]:
    return {"left": float(1 - np.median(at.arrival))}


NOTHING = "has nothing to explain{share}, since"
PARTLY = "so the values do not explain the whole contrast"
LEFT = f"{{left:.0%}} of the distance to the reference left, {PARTLY}"
OTHERS = "contrast it with other references, or explain another output"
LAYER = "another layer (ig2.wrap(net, representation=...)), or a straight line (ig2.ExpectedIG)"
LINES = f'ig2.IG2(fallback="straight"), {LAYER}'
WALKS = f"more or longer steps, ig2.paths.LineSearch(), {LINES}"
STEPS, STRAIGHT, EXPECTED = "--steps {steps}", "--method ig2-straight", "--method expected-ig"

CHECKS = (
    # Do the values add up?
    Check("lost", "residual", "poor", "explains nothing",
          lambda at: at.is_zero & at.fell_short, "explains nothing{share}"),
    Check("flat", "residual", "poor", "zero everywhere", lambda at: at.is_zero & ~at.has_baseline,
          "is zero everywhere{share}, since the gradient at x is (units asleep, or saturated?), or "
          "x itself", remedies="a method with references (ig2.ExpectedIG)", options=(EXPECTED,)),
    Check("no_baseline", "residual", "none", "no change to sum to", lambda at: ~at.has_baseline,
          "has no baseline{share}, so its sum stands for nothing"),
    Check("asleep", "residual", "poor", "nothing to explain",
          lambda at: at.is_zero & at.has_no_way & np.isclose(at.reference_output, at.output),
          f"{NOTHING} the output at x is that at its references, and no path leads from one to the "
          "other, since the representation is the same too (are the references x itself, or is it "
          "asleep at both?)", otherwise=OTHERS),
    Check("same_representation", "residual", "poor", "nothing to explain",
          lambda at: at.is_zero & at.has_no_way,
          f"{NOTHING} the representation, in which paths are found, is the same at x and its "
          "references while the output is not", remedies=LAYER, options=(EXPECTED,)),
    Check("nothing", "residual", "poor", "nothing to explain", lambda at: at.is_zero,
          f"{NOTHING} the output at x is that at its baselines", otherwise=OTHERS),
    Check("unchanged", "residual", "none", "no change to sum to", lambda at: at.is_unchanged,
          "sums to the change in the output{share}, which is zero"),
    Check("complete", "residual", "none", "by construction",
          lambda at: (at.complete > 0) & (at.relative < EXACT),
          "sums to the change in the output by construction{share}"),
    Check("sums", "residual", "good", "adds up", lambda at: at.relative < LARGE_RESIDUAL,
          _say_sum, _measure_residual),
    Check("unsteady", "residual", "poor", "does not add up", lambda at: at.complete > 0,
          _say_off, _measure_residual, otherwise="the network gave other scores for the same "
          "points, so look for state or randomness in its forward pass"),
    Check("off", "residual", "poor", "does not add up", lambda at: np.full(len(at), True),
          _say_off, _measure_residual, otherwise="read it as a ranking",
          remedies="a complete rule (ig2.rules.blended, scaled) or more gradients a segment "
          "(ig2.rules.gauss)", finer=(STEPS, "--rule blended (for all methods)")),
    Check("empty", "residual", "none", "empty", lambda at: np.full(len(at), False),
          "explains nothing, since it is empty"),
    # Is the other class at the far end?
    Check("opposed", "contrast", "poor", "baselines speak more for it",
          lambda at: (at.far >= at.output) & ~at.is_unchanged,
          "has no contrast to explain{share}, since its baselines speak more for the class "
          "than x does", otherwise=OTHERS, options=("--against others",)),
    Check("same_side", "contrast", "poor", "baselines are on its side",
          lambda at: (at.far > 0) & (at.far > SIDE * at.output) & ~at.is_unchanged,
          "misses {kept:.0%} of the margin{share}, since its baselines are on the side of the "
          "class too",
          lambda at: {"kept": float(np.median(at.far / at.output))}, otherwise=OTHERS,
          options=("--against others",)),
    # Are its signs to be believed?
    Check("signless", "trust", "poor", "strength only",
          lambda at: (at.trust < LITTLE_TRUST) & ~at.is_zero,
          "believe its strength, not its signs{share}, since the gradient does not predict the "
          "output"),
    Check("trusted", "trust", "good", "signs too",
          lambda at: (at.trust >= LITTLE_TRUST) & ~at.is_zero,
          "its signs can be believed too{share}, since the gradient predicts the output"),
    # Did paths arrive at their references?
    Check("unmoved", "arrival", "poor", "paths did not move",
          lambda at: at.fell_short & (at.steps_taken == 0),
          "paths did not move{share}, since the distance to the reference has no gradient at x "
          "(units asleep there?)", remedies=LINES, options=(STRAIGHT, EXPECTED)),
    Check("overshot", "arrival", "poor", "paths ended beyond the reference",
          lambda at: at.fell_short & (at.arrival < 0),
          "paths ended beyond the reference, farther from it than they began{share}, so the values "
          "do not explain the contrast",
          remedies=f"more and shorter steps, ig2.paths.LineSearch(), {LINES}",
          finer=(STEPS,), options=(STRAIGHT, EXPECTED)),
    Check("stuck", "arrival", "poor", "paths got stuck", lambda at: at.has_stopped,
          f"paths got stuck where the distance has no gradient{{share}}, with {LEFT}",
          _measure_distance, remedies=LINES, options=(STRAIGHT, EXPECTED)),
    Check("no_nearer", "arrival", "poor", "paths got no nearer",
          lambda at: at.fell_short & (at.arrival < HARDLY_NEARER),
          "paths got no nearer to the reference{share}, so the values do not explain the contrast",
          remedies=WALKS, finer=(STEPS,), options=(STRAIGHT, EXPECTED)),
    Check("short", "arrival", "poor", "paths ended on the way", lambda at: at.fell_short,
          f"paths ended on the way{{share}}, with {LEFT}",
          _measure_distance, remedies=WALKS, finer=(STEPS,), options=(STRAIGHT, EXPECTED)),
    Check("finished", "arrival", "none", "finished by a straight line", lambda at: at.finished > 0,
          "a straight line finished its paths{share}, which had {left:.0%} of the distance left",
          lambda at: {"left": float(np.median(at.finished))}),
    Check("arrived", "arrival", "good", "paths arrived",
          lambda at: ~np.isnan(at.arrival) & ~at.has_no_way, ""),
)  # fmt: skip
BY_CODE = {check.code: check for check in CHECKS}
