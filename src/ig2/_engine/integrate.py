"""The only loop over gradients in the library.

For every pair of an explicand and a reference, walk the path and let the rule turn each segment into attribution. Segments are
summed as the path is drawn, so memory does not grow with its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ig2._engine.additivity import check_additivity
from ig2._engine.memory import explain_memory_errors
from ig2._engine.moments import Moments
from ig2._engine.secants import POINTS_A_PAIR
from ig2.errors import InputError, describe
from ig2.evaluation import Evaluation
from ig2.paths.base import GrownPath, KnownPath, Memory, Pairs, Path
from ig2.result import Keep, Result
from ig2.rules import Needs, Rule, Segments
from ig2.task import Task

# Where a batch of a new size costs as much as some twenty steps, since kernels are chosen and recorded for each: there a batch
# whose paths end one after the other shrinks by halves, in between its empty places are padded.
FEW_SIZES = {"cuda"}

# How far, beside the largest value of x, a path may be from the explicand where it should be at it.
OFF_EXPLICAND = 1e-3


def integrate(
    task: Task, path: Path, rule: Rule | None, references: Tensor, keep: Keep = Keep(), weights: Tensor | None = None
) -> Result:
    """Sum the rule along every path from the task's explicands to `references` (B, R, ...), in pieces that fit the memory.

    Without a rule the paths are only walked: no gradient of the output is taken and the values are zero. `weights` (B, R) are
    those of the references in the mean, and sum to one for each explicand; by default all count alike.
    """
    count, session = references.shape[1], task.session
    total = len(task) * count
    path = path.prepare(task, references)
    values, displacement = Moments(task.x, weights), Moments(task.x, weights)
    records: dict[str, Any] = {}  # tensors (B, R, ...), by the names of a result

    def reserve(name: str, *shape: int, dtype: torch.dtype = task.x.dtype) -> None:
        with explain_memory_errors():  # a smaller batch would not help
            records[name] = torch.zeros(len(task), count, *shape, dtype=dtype, device=task.x.device)

    def make_pairs(row: Tensor, which: Tensor) -> Pairs:
        samples = references[row.to(references.device), which.to(references.device)].to(task.x)
        explicand = session.lay_out(task.x[row])
        number = row * count + which
        return Pairs(explicand, session.lay_out(samples), task.rows[row], task.target[row], session.model.bounds, number, task)

    if keep.paths:  # the largest by far: where they do not fit, nothing need be walked
        reserve("paths", path.segments + 1, *task.x.shape[1:])
    task.progress.expect(total * path.segments)

    def work(piece: range) -> None:
        pair = torch.arange(piece.start, piece.stop, device=task.x.device)
        row, which = pair // count, pair % count
        pairs = make_pairs(row, which)
        walk = _walk(task, path, rule, pairs, keep)
        for i, (explicand_row, reference) in enumerate(zip(row.tolist(), which.tolist(), strict=True)):
            # one pair after the other in a fixed order: the mean does not depend on how pairs were batched
            values.add(explicand_row, reference, walk.values[i])
            if keep.baselines:
                displacement.add(explicand_row, reference, pairs.explicand[i] - walk.baseline[i])
        for name, record in walk.records().items():
            if name not in records:
                reserve(name, *record.shape[1:], dtype=task.x.dtype if record.is_floating_point() else record.dtype)
            records[name][row, which] = record.to(records[name].dtype)

    takes_secants = rule is not None and rule.needs.secants
    task.batch.over(total, work, POINTS_A_PAIR if takes_secants else 1)
    output = records.pop("outputs")
    if takes_secants:

        def find_segments(row: Tensor, which: Tensor) -> Tensor:
            walk = _Walk(task, path, None, make_pairs(row, which), Keep(paths=True), lambda _: None)
            vertices = walk.records()["paths"][0]
            return torch.stack([vertices[:-1], vertices[1:]])

        change = output - records["baseline_outputs"]
        size = records.pop("contributed") + records["baseline_outputs"].abs()
        session.adds_up &= check_additivity(task, records.pop("missing"), change, size, find_segments)
    return Result(
        values.mean,
        spread=values.deviation(count) if count > 1 else None,
        gradcfe=displacement.mean if keep.baselines else None,
        output=output.mean(dim=1),
        weights=weights,
        **records,
    )


def count_evaluations(path: Path, rule: Rule | None, segments: int) -> int:
    """Return how many points of each path the network is run at, with so many segments."""
    plan = Needs() if rule is None else rule.needs
    everywhere = isinstance(path, GrownPath) or plan.at_vertices
    each = POINTS_A_PAIR if plan.secants else len(plan.between)
    return (segments + 1 if everywhere else 0 if plan.secants else 2) + segments * each


def _walk(task: Task, path: Path, rule: Rule | None, pairs: Pairs, keep: Keep) -> _Walk:
    """Walk the paths; progress is taken back where that fails."""
    ticked = 0

    def tick(points: int) -> None:
        nonlocal ticked
        ticked += points
        task.progress.advance(points)

    try:
        return _Walk(task, path, rule, pairs, keep, tick)
    except BaseException:
        tick(-ticked)  # this piece will be done again, or not at all
        raise


@dataclass(frozen=True)
class _Block:
    """T consecutive segments of n paths, as they are drawn, with what was evaluated at their ends."""

    starts: Tensor  # (T, n, ...)
    ends: Tensor
    at_starts: Evaluation | None
    at_ends: Evaluation | None
    secants: Tensor | None = None  # slopes over each segment, (T, n, ...)


class _Walk:
    """Draws the paths of n pairs side by side, evaluating the network where the path, the rule or the record need it."""

    def __init__(
        self, task: Task, path: Path, rule: Rule | None, pairs: Pairs, keep: Keep, tick: Callable[[int], None]
    ) -> None:
        self.task, self.path, self.rule, self.pairs, self.keep = task, path, rule, pairs, keep
        self.explicand = pairs.explicand
        plan = Needs() if rule is None else rule.needs
        self.plan = plan if path.from_explicand else plan.reverse()  # in the order of drawing
        self.active: Tensor | None = None  # which of the n pairs are still on their way; None for all
        self.width = len(pairs)  # how many pairs the network sees at once: those on their way, and some of them twice
        self.steps = torch.full((len(pairs),), path.segments, device=pairs.rows.device)
        self.measures = path.measures if isinstance(path, GrownPath) else None
        self.reference = self.reference_output = None
        # of paths that measure a distance, which of them stood still; of those finished by a line, how much was left to it
        self.stuck: Tensor | None = None
        self.finished: Tensor | None = None
        if isinstance(path, GrownPath) and self.measures is not None:
            self.reference = path.aim(pairs)
            if self.reference is None:
                self.reference, scores = task.session.represent(pairs.reference, pairs.rows)
                self.reference_output = scores.gather(1, pairs.target[:, None])[:, 0]
            self.stuck = torch.zeros_like(pairs.rows, dtype=torch.bool)
        self.sums = [torch.zeros_like(pairs.explicand)]  # along the path, of what the rule makes of each segment
        # of secants, how far their sums are from what the output did, and the sums of their sizes, (n,)
        self.missing, self.contributed = torch.zeros(2, len(pairs), dtype=pairs.explicand.dtype, device=pairs.rows.device)
        self.curves: dict[str, list[Tensor]] = {}  # what is kept of every vertex, each (n, ...), by the names of a result
        self._run(tick)

    def _run(self, tick: Callable[[int], None]) -> None:
        count, ticked = len(self.pairs), 0
        for block in self._draw_blocks():
            if self.rule is not None:
                self._contribute(block)
            if self.keep.paths:
                self._record("paths", block.ends)
            points = len(block.starts) * len(self.pairs)
            ticked += points
            tick(points)
        tick(self.path.segments * count - ticked)  # of pairs that stopped early
        ends = [(self.first, self.first_output), (self.last, self.last_output)]
        (explicand, self.output), (self.baseline, self.baseline_output) = ends if self.path.from_explicand else ends[::-1]
        self._check_explicand(explicand)
        self.values, self.trust = self.sums[0], None
        if self.rule is not None:
            if ticked:  # where every path ends at its start there is nothing to sum
                self.values, self.trust = self.rule.total(*self.sums), self.rule.trust(*self.sums)
            summed = self.values
            self.values = self.rule.finish(summed, self.output - self.baseline_output, explicand - self.baseline)
            if self.plan.secants:  # what it handed out counts
                self.missing = self.missing + (self.values - summed).flatten(1).sum(dim=1)

    def _check_explicand(self, end: Tensor) -> None:
        """See that a path of the user's has the explicand at its end; ours may be off by rounding."""
        gap = (end - self.explicand).abs()
        if bool((gap > OFF_EXPLICAND * (1 + self.explicand.abs().amax())).any()):
            place = "last vertex" if isinstance(self.path, GrownPath) and not self.path.from_explicand else "first vertex"
            raise InputError(
                f"{type(self.path).__name__} does not lead from the explicand: its {place} is off by {float(gap.max()):.3g}. "
                "Vertices run from the explicand, number 0, to the baseline; a path that is drawn from its baseline says "
                "from_explicand = False"
            )

    def _check_shape(self, vertices: Tensor, expected: Sequence[int]) -> None:
        if not isinstance(vertices, Tensor) or tuple(vertices.shape) != tuple(expected):
            raise InputError(
                f"{type(self.path).__name__} returned vertices {describe(vertices)}, expected {tuple(expected)}: one for each "
                "pair, in the shape of x"
            )

    def records(self) -> dict[str, Tensor]:
        """Return what is known of each pair, (n, ...), by the names of a result."""
        records = {
            "outputs": self.output,
            "baseline_outputs": self.baseline_output,
            "reference_outputs": self.reference_output,
            "missing": self.missing if self.plan.secants else None,
            "contributed": self.contributed if self.plan.secants else None,
            "trust": self.trust,
            "arrival": self.arrival,
            "stuck": None if self.stuck is None or self.last_distance is None else self.stuck & (self.last_distance > 0),
            "finished": self.finished,
            "per_reference": self.values if self.keep.per_reference else None,
            "gradcf": self.baseline if self.keep.baselines else None,
            "steps_taken": self.steps if self.keep.baselines else None,
        }
        for name, curve in self.curves.items():  # where all paths ended early, the last vertex stands for the rest
            curve = curve + curve[-1:] * (self.path.segments + 1 - len(curve))
            records[name] = torch.stack(curve if self.path.from_explicand else curve[::-1], dim=1)
        return {name: record for name, record in records.items() if record is not None}

    @property
    def arrival(self) -> Tensor | None:
        """The share of its distance to the reference that each path covered, (n,); one where there was none to cover."""
        if self.first_distance is None or self.last_distance is None:
            return None
        left = torch.where(self.first_distance == 0, 0.0, self.last_distance / self.first_distance)
        return (1 - left).to(self.first.dtype)

    # -- drawing -------------------------------------------------------------------------------------------------------

    def _draw_blocks(self) -> Iterator[_Block]:
        if isinstance(self.path, GrownPath):
            return self._grow(self.path)
        assert isinstance(self.path, KnownPath)
        return self._span(self.path) if self.plan.secants and not self.plan.ends else self._draw(self.path)

    def _grow(self, path: GrownPath) -> Iterator[_Block]:
        """Yield one segment at a time: the next vertex depends on what was found at this one."""
        gradient = self.plan.at_vertices or path.wants_gradient
        memory: Memory = {}
        point = path.start(self.pairs)
        self._check_shape(point, self.pairs.explicand.shape)
        here = self._visit(point[None], gradient, measure=True)
        self._begin(point, here)
        for step in range(path.segments):
            going = path.keep_going(step, here.map(_first), memory)
            if going is not None and not going.all():
                self._end(point, here, step, memory, ~going)
                self._retire(going)
                point, here = point[going], here.select(going)
                memory = {name: tensor[going] for name, tensor in memory.items()}
                if not len(self.pairs):
                    break
            reached = path.advance(self.pairs, step, point, here.map(_first), memory)
            self._check_shape(reached, point.shape)
            is_last = step + 1 == path.segments
            gradient = gradient if not is_last else self.plan.ends or bool(self.plan.weight(1))
            there = self._visit(reached[None], gradient, measure=True, ascent=not is_last)
            secants = self._find_secants(point[None], reached[None])[0] if self.plan.secants else None
            yield _Block(point[None], reached[None], here, there, secants)
            point, here = reached, there
        self._end(point, here, path.segments, memory)

    def _draw(self, path: KnownPath) -> Iterator[_Block]:
        """Yield as many segments at a time as fit a batch."""
        gradient = self.plan.at_vertices
        everywhere = gradient or self.keep.curves
        vertices = self._vertices(path, range(1))
        here = self._visit(vertices, gradient)
        self._begin(vertices[0], here)
        for numbers in self._blocks(path):
            vertices = self._vertices(path, numbers)
            at_starts = there = None
            if everywhere:
                there = self._visit(vertices[1:], gradient)
                at_starts = _shift(here, there)
                here = there.map(lambda values: values[-1:])
            secants = self._find_secants(vertices[:-1], vertices[1:])[0] if self.plan.secants else None
            yield _Block(vertices[:-1], vertices[1:], at_starts, there, secants)
        if not everywhere:
            here = self._visit(vertices[-1:], gradient=False)
        self._end(vertices[-1], here, path.segments)

    def _span(self, path: KnownPath) -> Iterator[_Block]:
        """Yield the same where the rule takes secants alone: they come with the outputs at the
        vertices."""
        for numbers in self._blocks(path):
            vertices = self._vertices(path, numbers)
            secants, at_starts, at_ends = self._find_secants(vertices[:-1], vertices[1:])
            if numbers.start == 0:
                self._begin(vertices[0], self._keep_curve(at_starts.map(lambda values: values[:1])))
            yield _Block(vertices[:-1], vertices[1:], at_starts, self._keep_curve(at_ends), secants)
        self._end(vertices[-1], at_ends, path.segments)

    def _blocks(self, path: KnownPath) -> Iterator[range]:
        """Yield the numbers of the vertices of as many segments as fit a batch."""
        points = len(self.pairs) * (POINTS_A_PAIR if self.plan.secants else 1)
        size = max(1, self.task.batch.points // points)
        for start in range(0, path.segments, size):
            yield range(start, min(start + size, path.segments) + 1)

    def _vertices(self, path: KnownPath, numbers: range) -> Tensor:
        vertices = path.vertices(self.pairs, numbers)
        self._check_shape(vertices, (len(numbers), *self.pairs.explicand.shape))
        return vertices

    def _begin(self, point: Tensor, at: Evaluation) -> None:
        """Put on record where the paths begin."""
        self.first, self.first_output = point, at.output[0].to(point.dtype)
        self.first_distance = None if at.distance is None else at.distance[0]
        self.last, self.last_output = self.first.clone(), self.first_output.clone()
        self.last_distance = None if self.first_distance is None else self.first_distance.clone()
        if self.keep.paths:
            self._record("paths", point[None])

    def _end(
        self, point: Tensor, at: Evaluation, steps: int, memory: Memory | None = None, done: slice | Tensor = slice(None)
    ) -> None:
        """Put on record where some of the pairs on their way end after so many steps, and in how many of them they moved."""
        numbers = done if self.active is None else self.active[done]
        self.last[numbers], self.last_output[numbers] = point[done], at.output[-1, done].to(point.dtype)
        if at.distance is not None and self.last_distance is not None:
            self.last_distance[numbers] = at.distance[-1, done]
        memory = memory or {}
        moves = memory.get("moves")
        self.steps[numbers] = steps if moves is None else moves[done]
        if moves is not None and self.stuck is not None:
            self.stuck[numbers] = moves[done] < steps
        if "finished" in memory:
            if self.finished is None:
                self.finished = self.first_output.new_zeros(len(self.steps))
            self.finished[numbers] = memory["finished"][done].to(self.finished.dtype)

    def _retire(self, going: Tensor) -> None:
        """Go on without the pairs that have arrived."""
        self.active = going.nonzero()[:, 0] if self.active is None else self.active[going]
        self.pairs = self.pairs[going]
        if self.reference is not None:
            self.reference = self.reference[going]
        if going.device.type not in FEW_SIZES:
            self.width = len(self.pairs)
        while self.width >= 2 * max(1, len(self.pairs)):
            self.width //= 2

    def _visit(self, vertices: Tensor, gradient: bool, measure: bool = False, ascent: bool = True) -> Evaluation:
        """Evaluate vertices (T, n, ...), and put on record what is to be kept."""
        return self._keep_curve(self._evaluate(vertices, gradient, measure, ascent))

    def _keep_curve(self, at: Evaluation) -> Evaluation:
        if self.keep.curves:
            self._record("output_curve", at.output)
            if at.distance is not None:
                self._record("distance_curve", at.distance)
        return at

    def _record(self, name: str, values: Tensor) -> None:
        """Continue a curve by values (T, n, ...) of the pairs on their way; those that have arrived keep their last."""
        curve = self.curves.setdefault(name, [])
        for value in values:
            curve.append(value if self.active is None else curve[-1].index_copy(0, self.active, value))

    def _evaluate(self, points: Tensor, gradient: bool, measure: bool = False, ascent: bool = True) -> Evaluation:
        times, count = points.shape[:2]
        rows, target, reference = self.pairs.rows, self.pairs.target, self.reference
        if self.width > count:
            padded = torch.arange(self.width, device=rows.device).clamp_(max=count - 1)
            points, rows, target = points[:, padded], rows[padded], target[padded]
            reference = None if reference is None else reference[padded]
        return self.task.session.evaluate(
            points.flatten(0, 1),
            rows.repeat(times),
            target.repeat(times),
            gradient=gradient,
            distance=self.measures if measure else None,
            ascent=ascent,
            reference=reference,
        ).map(lambda values: values.reshape(times, -1, *values.shape[1:])[:, :count])

    def _find_secants(self, starts: Tensor, ends: Tensor) -> tuple[Tensor, Evaluation, Evaluation]:
        """Return the slopes over segments, (T, n, ...), and the outputs at their starts and
        ends."""
        (near, far), rows, target = (starts, ends), self.pairs.rows, self.pairs.target
        if not self.path.from_explicand:
            near, far = far, near
        secants, output, far_output = (
            values.reshape(*near.shape[:2], *values.shape[1:])
            for values in self.task.session.find_secants(
                near.flatten(0, 1), far.flatten(0, 1), rows.repeat(len(near)), target.repeat(len(near))
            )
        )
        products = (secants * (near - far)).flatten(2)
        missing = products.sum(dim=2) - (output - far_output).to(products.dtype)
        numbers = slice(None) if self.active is None else self.active
        self.missing[numbers] += missing.sum(dim=0)
        self.contributed[numbers] += products.abs().sum(dim=(0, 2))
        at_near, at_far = Evaluation(output), Evaluation(far_output)
        return (secants, at_near, at_far) if self.path.from_explicand else (secants, at_far, at_near)

    # -- summing -------------------------------------------------------------------------------------------------------

    def _contribute(self, block: _Block) -> None:
        """Add what the rule makes of the segments to the sums of all n pairs."""
        plan, sign = self.plan, 1 if self.path.from_explicand else -1
        step = block.starts - block.ends
        if not plan.ends and not plan.between and not plan.secants and len(step) == 1 and self.active is None:
            # in place, gradient by gradient: the fewest passes over the samples
            for weight, gradient in self._weighted_ends(block):
                self.sums[0].addcmul_(gradient[0], step[0], value=weight * sign)
            return
        step = step if sign == 1 else -step
        average = block.secants if plan.secants else self._average(block) if plan.nodes else None
        calls_rule = plan.ends or plan.secants
        terms = self._terms(block, step, average) if calls_rule else () if average is None else (average * step,)
        for i, term in enumerate(terms):
            term = term[0] if len(term) == 1 else term.sum(dim=0)
            if i == len(self.sums):
                self.sums.append(term.new_zeros(len(self.steps), *term.shape[1:]))
            if self.active is None:
                self.sums[i] += term
            else:
                self.sums[i].index_add_(0, self.active, term)

    def _terms(self, block: _Block, step: Tensor, average: Tensor | None) -> Iterator[Tensor]:
        """Yield what the rule makes of each segment, every term (T, n, ...)."""
        near, far = block.at_starts, block.at_ends
        if not self.path.from_explicand:
            near, far = far, near
        assert self.rule is not None and near is not None and far is not None
        change = (near.output - far.output).flatten().to(step.dtype)
        # channels last: with the channels at the end, a sample is a row without a copy
        channels_last = step.ndim == 5 and not step.flatten(0, 1).is_contiguous()

        def flatten(values: Tensor) -> Tensor:
            return values.flatten(0, 1).movedim(1, -1) if channels_last else values.flatten(0, 1)

        average = None if average is None else flatten(average)
        # a secant's slope is that of the whole segment
        at_near, at_far = (average if at.gradient is None or not self.plan.ends else flatten(at.gradient) for at in (near, far))
        assert at_near is not None and at_far is not None
        for term in self.rule.terms(Segments(flatten(step), change, at_near, at_far, average)):
            term = term.movedim(-1, 1) if channels_last and term.ndim == 4 else term
            yield term.reshape(*near.output.shape, *term.shape[1:])

    def _weighted_ends(self, block: _Block) -> Iterator[tuple[float, Tensor]]:
        """Yield the gradients at the ends of the segments that have a weight, each (T, n, ...)."""
        for end, at in enumerate((block.at_starts, block.at_ends)):
            if weight := self.plan.weight(end):
                assert at is not None and at.gradient is not None
                yield weight, at.gradient

    def _average(self, block: _Block) -> Tensor:
        """Return the weighted gradient on each segment, (T, n, ...), evaluated inside it at as many
        nodes as fit a batch."""
        average = torch.zeros_like(block.starts)
        group = max(1, self.task.batch.points // (len(average) * len(self.pairs)))
        between = self.plan.between
        for i in range(0, len(between), group):
            nodes = between[i : i + group]
            points = torch.cat([torch.lerp(block.starts, block.ends, node) for node, _ in nodes])
            gradient = self._evaluate(points, gradient=True).gradient
            assert gradient is not None
            for (_, weight), piece in zip(nodes, torch.split(gradient, len(average)), strict=True):
                average.add_(piece, alpha=weight)
        for weight, gradient in self._weighted_ends(block):
            average = torch.add(average, gradient, alpha=weight)
        return average


def _first(values: Tensor) -> Tensor:
    return values[0]


def _shift(here: Evaluation, there: Evaluation) -> Evaluation:
    """Return what was found at the starts of segments, from the first start and what was found at
    the ends."""
    output = torch.cat([here.output, there.output[:-1]])
    if here.gradient is None or there.gradient is None:
        return Evaluation(output)
    return Evaluation(output, torch.cat([here.gradient, there.gradient[:-1]]))
