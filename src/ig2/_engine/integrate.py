"""The fold: the only loop over gradients in the library.

For every pair of an explicand and a reference, walk the path and let the rule turn each segment into attribution. The path
is folded as it is drawn, so memory does not grow with its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from ig2._engine.session import Evaluation
from ig2._engine.task import Task
from ig2.errors import ModelError
from ig2.paths.base import GrownPath, KnownPath, Memory, Pairs, Path
from ig2.rules import Quadrature, Rule, Scaled, Sharing

# From here on it is the size of the data that makes numbers overflow: the fourth power of this is too much for float32.
HUGE = 1e10


@dataclass(frozen=True)
class Keep:
    """What to bring back besides the attribution, for each explicand and reference."""

    baselines: bool = False  # where the paths end
    per_reference: bool = False  # each reference's own attribution
    curves: bool = False  # the output, and the distance if one is measured, at every vertex
    paths: bool = False  # every vertex


@dataclass
class Integral:
    """B explicands, R references, each path of k segments; numbers along a path run from the explicand to the baseline."""

    values: Tensor  # mean over references, (B, ...)
    spread: Tensor | None  # standard deviation over references, (B, ...); none for a single one
    displacement: Tensor  # x − baseline, mean over references, (B, ...)
    outputs: Tensor  # f at the explicands, as it was in each walk, (B, R)
    baseline_outputs: Tensor  # (B, R)
    steps: Tensor  # how many segments each path has, (B, R)
    trust: Tensor | None = None  # how far the rule went by the gradient on each path, (B, R), where it asks
    arrival: Tensor | None = None  # the share of its distance each path covered, (B, R), where one is measured
    reference_outputs: Tensor | None = None  # f at the references, (B, R), where they were run
    baselines: Tensor | None = None  # (B, R, ...)
    per_reference: Tensor | None = None  # (B, R, ...)
    output_curve: Tensor | None = None  # (B, R, k + 1)
    distance_curve: Tensor | None = None  # (B, R, k + 1)
    paths: Tensor | None = None  # (B, R, k + 1, ...)


def integrate(task: Task, path: Path, rule: Rule | None, references: Tensor, keep: Keep = Keep()) -> Integral:
    """Fold every path from the task's explicands to `references` (B, R, ...), in pieces that fit the memory.

    Without a rule the paths are only walked: no gradient of the output is taken and the values are zero.
    """
    count, shape, device = references.shape[1], task.x.shape, task.x.device
    total = shape[0] * count

    def room(*size: int) -> Tensor:
        return torch.zeros(shape[0], *size, dtype=task.x.dtype, device=device)

    sums = Moments(room(*shape[1:]))
    way = Moments(room(*shape[1:]))
    result = Integral(sums.mean, None, way.mean, room(count), room(count), room(count).long())
    if keep.baselines:
        result.baselines = room(count, *shape[1:])
    if keep.per_reference:
        result.per_reference = room(count, *shape[1:])
    if keep.curves:
        result.output_curve = room(count, path.segments + 1)
        if isinstance(path, GrownPath) and path.measures:
            result.distance_curve = room(count, path.segments + 1)
    if keep.paths:
        result.paths = room(count, path.segments + 1, *shape[1:])
    task.progress.expect(total * path.segments)

    def work(piece: range) -> None:
        number = torch.arange(piece.start, piece.stop, device=device)
        of, which = number // count, number % count
        pairs = Pairs(
            task.session.laid_out(task.x[of]),
            task.session.laid_out(references[of.to(references.device), which.to(references.device)].to(task.x)),
            task.rows[of],
            task.target[of],
            task.session.model.bounds,
        )
        done = 0

        def tick(points: int) -> None:
            nonlocal done
            done += points
            task.progress.advance(points)

        try:
            prepared = task.session.is_prepared
            folded = fold(task, path, rule, pairs, keep, tick)
            task.session.agrees_on(folded.baseline, pairs.rows, pairs.target, folded.baseline_output)
            if prepared and not task.session.is_prepared:  # a part of the way, or all of it, was walked with a wrong copy
                task.progress.advance(-done)
                done = 0
                folded = fold(task, path, rule, pairs, keep, tick)
        except BaseException:
            task.progress.advance(-done)  # this piece will be done again, or not at all
            raise
        _check_finite(folded, pairs, which, task.session.where)
        for i, (row, reference) in enumerate(zip(of.tolist(), which.tolist(), strict=True)):
            # one pair after the other in a fixed order: the mean does not depend on how pairs were batched
            sums.add(row, reference, folded.values[i])
            way.add(row, reference, pairs.explicand[i] - folded.baseline[i])
        result.outputs[of, which] = folded.output
        result.baseline_outputs[of, which] = folded.baseline_output
        result.steps[of, which] = folded.steps
        if folded.trust is not None:
            result.trust = room(count) if result.trust is None else result.trust
            result.trust[of, which] = folded.trust
        if folded.arrival is not None and folded.reference_output is not None:
            if result.arrival is None or result.reference_outputs is None:
                result.arrival, result.reference_outputs = room(count), room(count)
            result.arrival[of, which] = folded.arrival
            result.reference_outputs[of, which] = folded.reference_output
        if result.baselines is not None:
            result.baselines[of, which] = folded.baseline
        if result.per_reference is not None:
            result.per_reference[of, which] = folded.values
        if result.output_curve is not None:
            result.output_curve[of, which] = _stacked(folded.outputs, path.segments)
        if result.distance_curve is not None:
            result.distance_curve[of, which] = _stacked(folded.distances, path.segments)
        if result.paths is not None:
            result.paths[of, which] = _stacked(folded.points, path.segments)

    task.batch.over(total, work)
    if count > 1:
        result.spread = sums.deviation(count)
    return result


def _stacked(record: list[Tensor], segments: int) -> Tensor:
    """What was recorded at the vertices, (n, segments + 1, ...); where all paths ended early, the last goes on."""
    return torch.stack(record + record[-1:] * (segments + 1 - len(record)), dim=1)


def evaluations(path: Path, rule: Rule | None) -> int:
    """How many points of each path the network is run at."""
    plan = _Plan.of(rule, path.from_explicand)
    everywhere = isinstance(path, GrownPath) or plan.at_vertices
    return (path.segments + 1 if everywhere else 2) + path.segments * len(plan.between)


class Moments:
    """Running mean and sum of squared deviations of each explicand over its references (Welford)."""

    def __init__(self, zeros: Tensor) -> None:
        self.mean = zeros
        # in float64: of values around 1e20 the squares leave float32. MPS has none
        self.squares = torch.zeros_like(zeros, dtype=zeros.dtype if zeros.device.type == "mps" else torch.float64)

    def add(self, row: int, seen: int, value: Tensor) -> None:
        before = value - self.mean[row]
        self.mean[row] += before / (seen + 1)
        self.squares[row] += before.to(self.squares.dtype) * (value - self.mean[row])

    def deviation(self, count: int) -> Tensor:
        return (self.squares / (count - 1)).sqrt().to(self.mean.dtype)


# Where a batch of a new size costs as much as some twenty steps, since kernels are chosen and recorded for each: there a batch
# whose paths end one after the other shrinks by halves, in between its empty places are filled.
FEW_SIZES = {"cuda"}


@dataclass
class Folded:
    """One piece of the work: n pairs, walked to the end."""

    values: Tensor  # (n, ...)
    baseline: Tensor  # (n, ...)
    output: Tensor  # at the explicand, (n,)
    baseline_output: Tensor  # (n,)
    steps: Tensor  # how many segments each path has, (n,)
    trust: Tensor | None  # how far the rule went by the gradient, (n,)
    arrival: Tensor | None  # the share of its distance each path covered, (n,)
    reference_output: Tensor | None  # (n,)
    outputs: list[Tensor]  # each (n,), from the explicand to the baseline, as the next two
    distances: list[Tensor]
    points: list[Tensor]


def fold(
    task: Task,
    path: Path,
    rule: Rule | None,
    pairs: Pairs,
    keep: Keep = Keep(),
    tick: Callable[[int], None] = lambda _: None,
) -> Folded:
    """Walk the paths of n pairs side by side and sum up what the rule makes of each segment."""
    walk = _Walk(task, path, _Plan.of(rule, path.from_explicand), pairs, keep)
    told = 0
    for segments in walk:
        if rule is not None:
            walk.contribute(segments)
        if keep.paths:
            walk.points.extend(map(walk.of_all, segments.ends, repeat(walk.points[-1])))
        told += len(segments.starts) * len(walk.pairs)
        tick(len(segments.starts) * len(walk.pairs))
    tick(path.segments * len(pairs) - told)  # of pairs that stopped early
    ends = [(walk.first, walk.output_first), (walk.last, walk.output_last)]
    (explicand, output), (baseline, baseline_output) = ends if path.from_explicand else reversed(ends)
    sharing = walk.plan.sharing if told else None  # where every path ends at its start there is nothing to share
    values = walk.sums[0] if sharing is None else sharing.total(*walk.sums)
    trust = None if sharing is None else sharing.trust(*walk.sums)
    if rule is not None:
        values = rule.finish(values, output - baseline_output, explicand - baseline)
    records = [walk.outputs, walk.distances, walk.points]
    if not path.from_explicand:
        records = [record[::-1] for record in records]
    return Folded(values, baseline, output, baseline_output, walk.steps, trust, walk.arrival(), walk.reference_output, *records)


@dataclass(frozen=True)
class _Plan:
    """A rule as it meets a segment in the order of drawing: the weight of the gradient at its first vertex, at its last,
    and at places between them."""

    first: float
    last: float
    between: tuple[tuple[float, float], ...]  # (place from the first vertex, weight)
    sharing: Sharing | None

    @classmethod
    def of(cls, rule: Rule | None, from_explicand: bool) -> _Plan:
        while isinstance(rule, Scaled):
            rule = rule.rule
        if isinstance(rule, Quadrature):
            table = [(node if from_explicand else 1 - node, w) for node, w in zip(rule.nodes, rule.weights, strict=True)]
            return cls(
                sum(w for node, w in table if node == 0),
                sum(w for node, w in table if node == 1),
                tuple((node, w) for node, w in table if 0 < node < 1),
                None,
            )
        if isinstance(rule, Sharing):  # the gradient at the end nearer the explicand
            return cls(float(from_explicand), float(not from_explicand), (), rule)
        return cls(0.0, 0.0, (), None)

    @property
    def at_vertices(self) -> bool:
        return bool(self.first or self.last)

    @property
    def at_end(self) -> bool:
        """Whether the gradient at the very last vertex is used."""
        return bool(self.last) or self.sharing is not None


@dataclass(frozen=True)
class _Segments:
    """T consecutive segments of n paths, as drawn, with what was evaluated at their ends."""

    starts: Tensor  # (T, n, ...)
    ends: Tensor
    at_starts: Evaluation | None
    at_ends: Evaluation | None


class _Walk:
    """Draws the paths of n pairs, evaluating the network where the path, the rule or the record need it."""

    def __init__(self, task: Task, path: Path, plan: _Plan, pairs: Pairs, keep: Keep) -> None:
        self.task, self.path, self.plan, self.pairs, self.keep = task, path, plan, pairs, keep
        self.active: Tensor | None = None  # which of the n pairs are still on their way; None for all
        self.room = len(pairs)  # how many pairs the network sees at once: those on their way, and some of them twice
        self.steps = torch.full((len(pairs),), path.segments, device=pairs.rows.device)
        self.measures = path.measures if isinstance(path, GrownPath) else None
        self.reference = self.reference_output = None
        if self.measures is not None:
            self.reference, scores = task.session.represent(pairs.reference, pairs.rows)
            self.reference_output = scores.gather(1, pairs.target[:, None])[:, 0].to(pairs.explicand.dtype)
        self.sums = [torch.zeros_like(pairs.explicand)]  # along the path, of what the rule makes of each segment
        self.outputs: list[Tensor] = []
        self.distances: list[Tensor] = []
        self.points: list[Tensor] = []
        self.first = self.last = pairs.explicand
        self.output_first = self.output_last = torch.empty(0)
        self.distance_first: Tensor | None = None
        self.distance_last: Tensor | None = None

    def __iter__(self) -> Iterator[_Segments]:
        if isinstance(self.path, GrownPath):
            return self._grown(self.path)
        assert isinstance(self.path, KnownPath)
        return self._known(self.path)

    def _grown(self, path: GrownPath) -> Iterator[_Segments]:
        """One segment at a time: the next vertex depends on what was found at this one."""
        gradient = self.plan.at_vertices or path.wants_gradient
        memory: Memory = {}
        point = path.start(self.pairs)
        here = self._visit(point[None], gradient, measure=True)
        self._begin(point, here)
        for step in range(path.segments):
            going = path.going(step, here.map(_first), memory)
            if going is not None and not going.all():
                self._retire(~going, memory.get("moves", step), point, here)
                point, here = point[going], here.at(going)
                memory = {name: tensor[going] for name, tensor in memory.items()}
                if not len(self.pairs):
                    break
            reached = path.advance(self.pairs, step, point, here.map(_first), memory)
            is_last = step + 1 == path.segments
            there = self._visit(reached[None], self.plan.at_end if is_last else gradient, measure=True, ascent=not is_last)
            yield _Segments(point[None], reached[None], here, there)
            point, here = reached, there
        if "moves" in memory:
            self._count(slice(None), memory["moves"])
        self._end(point, here)

    def _count(self, which: slice | Tensor, moves: int | Tensor) -> None:
        """Put on record how many steps some of the pairs on their way took."""
        numbers = self.active[which] if self.active is not None else which
        self.steps[numbers] = moves[which] if isinstance(moves, Tensor) else moves

    def _retire(self, done: Tensor, moves: int | Tensor, point: Tensor, found: Evaluation) -> None:
        """Go on without the pairs that have arrived."""
        if self.active is None:
            self.active = torch.arange(len(self.pairs), device=done.device)
            self.last, self.output_last = torch.empty_like(point), torch.empty_like(self.output_first)
        arrived = self.active[done]
        self.last[arrived], self.output_last[arrived] = point[done], found.output[0, done].to(point.dtype)
        if found.distance is not None and self.distance_last is not None:
            self.distance_last[arrived] = found.distance[0, done]
        self._count(done, moves)
        self.active, self.pairs = self.active[~done], self.pairs[~done]
        if self.reference is not None:
            self.reference = self.reference[~done]
        if done.device.type not in FEW_SIZES:
            self.room = len(self.pairs)
        while self.room >= 2 * max(1, len(self.pairs)):
            self.room //= 2

    def of_all(self, values: Tensor, before: Tensor) -> Tensor:
        """Values of the pairs on their way, in the order of all n; those that have arrived keep the ones before."""
        return values if self.active is None else before.index_copy(0, self.active, values)

    def _known(self, path: KnownPath) -> Iterator[_Segments]:
        """As many segments at a time as fit a batch."""
        block = max(1, self.task.batch.points // len(self.pairs))
        everywhere = self.plan.at_vertices or self.keep.curves
        vertices = path.vertices(self.pairs, range(1))
        here = self._visit(vertices, self.plan.at_vertices)
        self._begin(vertices[0], here)
        for drawn in range(0, path.segments, block):
            numbers = range(drawn, min(drawn + block, path.segments) + 1)
            vertices = path.vertices(self.pairs, numbers)
            at_starts = there = None
            if everywhere:
                there = self._visit(vertices[1:], self.plan.at_vertices)
                at_starts = _shifted(here, there)
                here = there.map(lambda found: found[-1:])
            yield _Segments(vertices[:-1], vertices[1:], at_starts, there)
        if not everywhere:
            here = self._visit(vertices[-1:], gradient=False)
        self._end(vertices[-1], here)

    def _begin(self, point: Tensor, found: Evaluation) -> None:
        self.first, self.output_first = point, found.output[0].to(point.dtype)
        if found.distance is not None:
            self.distance_first, self.distance_last = found.distance[0], found.distance[0].clone()
        if self.keep.paths:
            self.points.append(point)

    def _end(self, point: Tensor, found: Evaluation) -> None:
        if self.active is None:
            self.last, self.output_last = point, found.output[-1].to(point.dtype)
        else:
            self.last[self.active], self.output_last[self.active] = point, found.output[-1].to(point.dtype)
        if found.distance is not None and self.distance_last is not None:
            self.distance_last[slice(None) if self.active is None else self.active] = found.distance[-1]

    def arrival(self) -> Tensor | None:
        """The share of its distance to the reference that each path covered, (n,); one where there was none to cover."""
        if self.distance_first is None or self.distance_last is None:
            return None
        left = torch.where(self.distance_first == 0, 0.0, self.distance_last / self.distance_first)
        return (1 - left).to(self.first.dtype)

    def _visit(self, vertices: Tensor, gradient: bool, measure: bool = False, ascent: bool = True) -> Evaluation:
        """Evaluate vertices (T, n, ...), and put on record what is to be kept."""
        found = self._evaluate(vertices, gradient, measure, ascent)
        if self.keep.curves:
            self._record(self.outputs, found.output)
            if found.distance is not None:
                self._record(self.distances, found.distance)
        return found

    def _record(self, curve: list[Tensor], found: Tensor) -> None:
        for values in found:
            curve.append(values if self.active is None else self.of_all(values, curve[-1]))

    def _evaluate(self, points: Tensor, gradient: bool, measure: bool = False, ascent: bool = True) -> Evaluation:
        times, count = points.shape[:2]
        rows, target, reference = self.pairs.rows, self.pairs.target, self.reference
        if self.room > count:
            filled = torch.arange(self.room, device=rows.device).clamp_(max=count - 1)
            points, rows, target = points[:, filled], rows[filled], target[filled]
            reference = None if reference is None else reference[filled]
        return self.task.session.evaluate(
            points.flatten(0, 1),
            rows.repeat(times),
            target.repeat(times),
            gradient=gradient,
            distance=self.measures if measure else None,
            ascent=ascent,
            reference=reference,
        ).map(lambda found: found.reshape(times, -1, *found.shape[1:])[:, :count])

    def contribute(self, segments: _Segments) -> None:
        """Add what the rule makes of the segments to the sums of all n pairs."""
        plan = self.plan
        sign = 1 if self.path.from_explicand else -1
        moved = segments.starts - segments.ends
        if plan.sharing is None and not plan.between and len(moved) == 1 and self.active is None:
            # in place, gradient by gradient: the fewest passes over the samples
            for weight, found in ((plan.first, segments.at_starts), (plan.last, segments.at_ends)):
                if weight:
                    assert found is not None and found.gradient is not None
                    self.sums[0].addcmul_(found.gradient[0], moved[0], value=weight * sign)
            return
        moved = moved if sign == 1 else -moved
        terms = (self._slope(segments) * moved,) if plan.sharing is None else self._shared(segments, moved, sign)
        for i, term in enumerate(terms):
            term = term[0] if len(term) == 1 else term.sum(dim=0)
            if i == len(self.sums):
                self.sums.append(term.new_zeros(len(self.steps), *term.shape[1:]))
            if self.active is None:
                self.sums[i] += term
            else:
                self.sums[i].index_add_(0, self.active, term)

    def _shared(self, segments: _Segments, moved: Tensor, sign: int) -> tuple[Tensor, ...]:
        """What the sharing rule makes of each segment, every term (T, n, ...)."""
        assert self.plan.sharing is not None
        at_starts, at_ends = segments.at_starts, segments.at_ends
        assert at_starts is not None and at_ends is not None
        near, far = (at_starts, at_ends) if self.plan.first else (at_ends, at_starts)
        assert near.gradient is not None and far.gradient is not None
        # a unit that sleeps at the near end and wakes on the way leaves its trace at the far one
        asleep = (near.gradient == 0).flatten(2).all(dim=2).view(*near.output.shape, *[1] * (moved.ndim - 2))
        slope = torch.where(asleep, far.gradient, near.gradient)
        change = (at_starts.output - at_ends.output) * sign
        slope, moved, change = slope.flatten(0, 1), moved.flatten(0, 1), change.flatten().to(moved.dtype)
        turned = moved.ndim == 4 and not moved.is_contiguous()
        if turned:  # channels last: so turned, a sample is a row without a copy
            slope, moved = slope.movedim(1, -1), moved.movedim(1, -1)
        terms = self.plan.sharing.terms(slope, moved, change)
        if turned:
            terms = tuple(term.movedim(-1, 1) if term.ndim == 4 else term for term in terms)
        return tuple(term.reshape(*near.output.shape, *term.shape[1:]) for term in terms)

    def _slope(self, segments: _Segments) -> Tensor:
        """The weighted gradient on each segment, (T, n, ...)."""
        slope = self._between(segments) if self.plan.between else torch.zeros_like(segments.starts)
        for weight, found in ((self.plan.first, segments.at_starts), (self.plan.last, segments.at_ends)):
            if weight:
                assert found is not None and found.gradient is not None
                slope = torch.add(slope, found.gradient, alpha=weight)
        return slope

    def _between(self, segments: _Segments) -> Tensor:
        """The weighted sum of gradients at the rule's places inside the segments, as many at a time as fit a batch."""
        total = torch.zeros_like(segments.starts)
        group = max(1, self.task.batch.points // (len(total) * len(self.pairs)))
        for i in range(0, len(self.plan.between), group):
            some = self.plan.between[i : i + group]
            places = torch.cat([torch.lerp(segments.starts, segments.ends, node) for node, _ in some])
            slope = self._evaluate(places, gradient=True).gradient
            assert slope is not None
            for (_, weight), piece in zip(some, torch.split(slope, len(total)), strict=True):
                total.add_(piece, alpha=weight)
        return total


def _first(found: Tensor) -> Tensor:
    return found[0]


def _shifted(here: Evaluation, there: Evaluation) -> Evaluation:
    """What was found at the starts of segments, from the first start and what was found at the ends."""

    def join(first: Tensor | None, ends: Tensor | None) -> Tensor | None:
        return None if first is None or ends is None else torch.cat([first, ends[:-1]])

    output = join(here.output, there.output)
    assert output is not None
    return Evaluation(output, join(here.gradient, there.gradient))


def _check_finite(folded: Folded, pairs: Pairs, which: Tensor, where: str | None) -> None:
    sound = folded.values.flatten(1).isfinite().all(dim=1) & folded.baseline_output.isfinite()
    problem = "the output or its gradient is not finite"
    advice = (
        "explain a logit or log-probability instead of a probability, use float32 instead of half precision, or smaller steps"
    )
    if sound.all() and folded.arrival is not None:
        sound = folded.arrival.isfinite()
        problem = f"the distance between representations, the {where}, is not finite"
        advice = (
            "their numbers are too large. Name another layer, ig2.wrap(net, representation=...), or use "
            "distance=ig2.paths.cosine"
        )
    if not sound.all():
        pair = int((~sound).nonzero()[0])
        largest = max(float(pairs.explicand[pair].abs().max()), float(pairs.reference[pair].abs().max()))
        if largest >= HUGE:
            advice = "bring the data to about one, for their products leave the range of the network's numbers"
        raise ModelError(
            f"{problem} on the path of explicand {int(pairs.rows[pair])} to reference {int(which[pair])}, whose values reach "
            f"{largest:.3g}: {advice}",
            rows=sorted(set(pairs.rows[~sound].tolist())),
        )
