"""What a segment of a path adds to the attribution.

A path is a polyline p₀ = x, …, pₖ = baseline, and a rule turns each of its segments into attribution. A `Quadrature` averages
gradients on the segment and multiplies the average by the step pₜ − pₜ₊₁. A `Sharing` rule instead hands out what the output
really did on the segment, f(pₜ) − f(pₜ₊₁), so that attributions sum to f(x) − f(baseline) on any path and at any step size.
`secant` reaches the same by slopes that span the segment in place of derivatives at a point of it.
Any other `Rule` says which gradients it takes (`plan`) and what it makes of them (`terms`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ig2._utils.checks import check_count
from ig2.errors import InputError, describe


@dataclass(frozen=True)
class Plan:
    """Which gradients a rule takes on each segment; places run from 0, the end nearer the explicand, to 1."""

    nodes: tuple[float, ...] = ()
    """Where gradients are taken for a weighted average."""
    weights: tuple[float, ...] = ()
    """The weight of each node in that average."""
    ends: bool = False
    """Whether the rule needs the gradients and outputs at both ends. `Rule.terms` is then called for every segment; without
    `ends`, a segment adds its average gradient times its step, and `terms` is not called."""
    secants: bool = False
    """Whether the average is one of slopes over the segment rather than of gradients at nodes; see `secant`. `Rule.terms` is
    then called for every segment. Without `ends`, the gradients at both ends are the secant's too."""

    def __post_init__(self) -> None:
        if self.secants and self.nodes:
            raise InputError(f"a plan takes its average from secants or from nodes, got both: secants=True, nodes={self.nodes}")

    def reverse(self) -> Plan:
        """The same plan for a path that is drawn from its baseline."""
        return replace(self, nodes=tuple(1 - node for node in self.nodes))

    def weight(self, end: int) -> float:
        """The weight of the gradient at an end of the segment, 0 or 1."""
        return sum(weight for node, weight in zip(self.nodes, self.weights, strict=True) if node == end)

    @property
    def between(self) -> list[tuple[float, float]]:
        """The nodes inside the segment, each with its weight."""
        return [(node, weight) for node, weight in zip(self.nodes, self.weights, strict=True) if 0 < node < 1]

    @property
    def at_vertices(self) -> bool:
        """Whether gradients at the vertices of the path are needed."""
        return self.ends or any(self.weight(end) for end in (0, 1))


@dataclass(frozen=True)
class Segments:
    """One segment of each of n paths, as `Rule.terms` gets them. Features may be in another order than in x."""

    step: Tensor
    """pₜ − pₜ₊₁, (n, ...)."""
    change: Tensor
    """f(pₜ) − f(pₜ₊₁), (n,)."""
    near: Tensor
    """∇f(pₜ), at the end nearer the explicand, (n, ...)."""
    far: Tensor
    """∇f(pₜ₊₁), (n, ...)."""
    average: Tensor | None = None
    """The weighted average of the gradients at the plan's nodes, or the secant multipliers, (n, ...), if it has any."""


@dataclass(frozen=True)
class Rule(ABC):
    """How gradients on the segments of a path become attribution.

    A rule says in `plan` which gradients it needs. What `terms` makes of each segment is summed along the path, `total` turns
    the sums into attributions, and `finish` has the last word. This one takes, feature by feature, the smaller of the
    gradients at the two ends, and nothing where their signs differ:

    >>> @dataclass(frozen=True, repr=False)
    ... class Minmod(Rule):
    ...     @property
    ...     def plan(self):
    ...         return Plan(ends=True)
    ...
    ...     def terms(self, segments):
    ...         near, far = segments.near, segments.far
    ...         smaller = torch.where(near.abs() < far.abs(), near, far)
    ...         return (torch.where(near * far > 0, smaller, 0.0) * segments.step,)
    >>> import ig2
    >>> method = ig2.IntegratedGradients(steps=4, rule=Minmod("minmod"))
    >>> method(lambda x: (x**2).sum(dim=1), torch.tensor([[4.0, -8.0]])).values  # the gradient at the ends nearer zero
    tensor([[12., 48.]])
    """

    name: str
    """What the rule is called in settings and tables."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """Which gradients the rule takes on each segment."""

    @property
    def complete(self) -> bool:
        """Whether attributions sum to f(x) − f(baseline) by construction."""
        return False

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        """What is summed along the path, each (n, ...): by default the average gradient times the step."""
        assert segments.average is not None
        return (segments.average * segments.step,)

    def total(self, *sums: Tensor) -> Tensor:
        """The attribution of each pair, (n, ...), from the sums of its terms along the path; by default the first of them."""
        return sums[0]

    def trust(self, *sums: Tensor) -> Tensor | None:
        """How far each pair's attribution rests on what the gradient predicted, 0 to 1, (n,); None if the rule does not ask."""
        return None

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        """A last word on each pair's attribution (n, ...), given f(x) − f(baseline), (n,), and x − baseline, (n, ...)."""
        return values

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Quadrature(Rule):
    """φ = Σₜ Σᵢ wᵢ ∇f(pₜ + nᵢ (pₜ₊₁ − pₜ)) ⊙ (pₜ − pₜ₊₁): an average of gradients times the step, the line integral of
    Integrated Gradients [Sundararajan 2017] on each segment.

    Args:
        name: what the rule is called.
        nodes: where on the segment gradients are taken, from 0, the end nearer the explicand, to 1.
        weights: the weight of each node; they sum to one.

    Raises:
        InputError: if a node has no weight or lies outside the segment, or the weights do not sum to one.

    >>> Quadrature("simpson", nodes=(0, 0.5, 1), weights=(1 / 6, 4 / 6, 1 / 6))
    simpson
    """

    nodes: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.weights) or not self.nodes:
            raise InputError(f"rule {self.name}: {len(self.nodes)} nodes and {len(self.weights)} weights; one for each")
        if not all(0 <= node <= 1 for node in self.nodes):
            raise InputError(f"rule {self.name}: nodes must lie between 0 and 1, got {self.nodes}")
        if abs(sum(self.weights) - 1) > 1e-12:
            raise InputError(f"rule {self.name}: weights must sum to one, got {sum(self.weights)!r}")

    @property
    def plan(self) -> Plan:
        return Plan(self.nodes, self.weights)


@dataclass(frozen=True, repr=False)
class Sharing(Rule):
    """φ = Σₜ (f(pₜ) − f(pₜ₊₁)) · s / Σs, with s = `portions` of the gradient at pₜ and the step: complete by construction.

    Where the gradient at pₜ is zero in every feature, that at pₜ₊₁ stands in: a unit that is off at the near end and on at the
    far one leaves its trace there. What no segment could hand out is handed out by `complete` at the end of the path.
    """

    @property
    def plan(self) -> Plan:
        return Plan(ends=True)

    @property
    def complete(self) -> bool:
        """Always: what is handed out is what the output did."""
        return True

    @abstractmethod
    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        """Portions (n, features), to be scaled to sum to `change` (n, 1); rows that sum to zero hand out nothing."""

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        """What is summed along the path: the shares."""
        gradient, change = self.gradient(segments), segments.change[:, None]
        flat, slopes = _unit(gradient.flatten(1))
        step, lengths = _unit(segments.step.flatten(1))
        # only the gradient's direction matters to a proportion, but `tempered` compares the linear prediction with the
        # change itself: bring the change to the scale of the portions
        portions = self.portions(flat, step, change / slopes / lengths)
        total = portions.sum(dim=1, keepdim=True)
        usable = (total.abs() > 0) & total.isfinite()
        return ((change * (portions / total.where(usable, 1.0)) * usable).view_as(gradient),)

    def gradient(self, segments: Segments) -> Tensor:
        """The gradient at the near end, or at the far one where that is zero in every feature, (n, ...)."""
        off = (segments.near == 0).flatten(1).all(dim=1)
        return torch.where(_like(off, segments.near), segments.far, segments.near)

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        return complete(values, change, moved)


class _Direct(Sharing):
    """s = g²: the rule of IDGI [Yang 2023], which shares the change in the output in proportion to the squared gradient.

    All shares have the sign of the change, whatever the step of a feature was. `idgi` is another name for it.
    """

    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return gradient.square()


class _Shared(Sharing):
    """s = (g ⊙ Δp)⁺: the change is shared among the features whose gradient and step agree; all count alike if none do."""

    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return _positive(gradient * moved)


class _Aligned(Sharing):
    """s = (±g ⊙ Δp)⁺: as `shared` where the output falls along the path; where it rises, among the features that raised it.

    `shared` pays those whose gradient and step agree whatever the output did: of 3a − b from (−1, −1) to zero it gives b all.
    """

    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return _positive(gradient * moved * torch.where(change < 0, -1.0, 1.0))


class _Tempered(Sharing):
    """s = c⁺ − t · c⁻ with c = g ⊙ Δp and t = clip(Δf / Σc, 0, 1): signed as far as the linear prediction holds.

    Between t = 0, which is `shared`, and t = 1, which is `left`, features that oppose the change lose in proportion to t.
    """

    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        product = gradient * moved
        predicted = product.sum(dim=1, keepdim=True)
        trust = (change / predicted.where(predicted != 0, torch.inf)).clamp(0, 1)
        agreeing, opposing = product.clamp(min=0), (-product).clamp(min=0)
        portions = agreeing - trust * opposing
        # Between trust 0 and 1 the two parts can cancel, and a proportion of nothing is noise without bound: then the
        # agreeing features share alone.
        size = (agreeing + trust * opposing).sum(dim=1, keepdim=True)
        cancels = portions.sum(dim=1, keepdim=True).abs() <= 0.01 * size
        alone = torch.where(agreeing.sum(dim=1, keepdim=True) > 0, agreeing, opposing)
        return torch.where(cancels, alone, portions)


class _Blended(_Shared):
    """φ = Σₜ [trust · cₜ + (Δₜ − trust · Σcₜ) · sₜ]: as `left` as far as the gradient predicted what the output did along the
    path, and as `shared` for the rest. The default of `ig2.IG2`.

    Here cₜ = ∇f(pₜ) ⊙ (pₜ − pₜ₊₁), Δₜ = f(pₜ) − f(pₜ₊₁), sₜ are the shares of `shared`, and
    trust = max(0, 1 − Σₜ (Δₜ − Σcₜ)² / Σₜ Δₜ²) is one number for each path. On smooth networks it is next to one, and every
    feature keeps its sign; on rough ones, where the gradient predicts less than "no change" would, it is zero. Segment by
    segment it would be mostly chance.
    """

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        change, product = segments.change, self.gradient(segments) * segments.step
        agreeing = product.clamp(min=0)
        predicted, paid = product.flatten(1).sum(dim=1), agreeing.flatten(1).sum(dim=1)
        # As few passes over the samples as can be: the shares are agreeing / paid, and product / predicted where nobody agrees.
        each = _inverse(paid, change)
        all_alike = (paid == 0) * _inverse(predicted, change)
        shared = _combine(agreeing, change * each, product, change * all_alike)
        # the second sums to zero: however much of it is taken, the attribution stays complete
        signs = _combine(agreeing, -predicted * each, product, 1 - predicted * all_alike)
        return shared, signs, (change - predicted).square(), change.square()

    def total(self, *sums: Tensor) -> Tensor:
        shared, signs, *_ = sums
        return torch.addcmul(shared, _like(self.trust(*sums), signs), signs)

    def trust(self, *sums: Tensor) -> Tensor:
        *_, missed, done = sums
        # where nothing was missed all was predicted, also that nothing changes
        return torch.where(missed > 0, 1 - missed / done, 1.0).nan_to_num(0).clamp(min=0)


class _Secant(Rule):
    """φ = Σₜ m ⊙ (pₜ − pₜ₊₁), where m is ∇f with every non-linearity's slope replaced by its secant over the segment.

    Between the ends a = pₜ and b = pₜ₊₁ of a segment, a function h of one variable has the slope (h(a) − h(b)) / (a − b), its
    derivative where a = b, as in DeepLIFT's rescale rule [Shrikumar 2017]; a product has by each factor the mean of the other
    one at both ends; softmax, normalisations and attention are built of such parts. One backward pass with these slopes yields
    m, and Σm·(a − b) = f(a) − f(b) whatever the length of the segment, with signs. One segment on a straight line is
    `ig2.DeepSHAP`; many tend to the integral. Where an operation has no such slope the sums are off, and a warning names it.

    >>> import ig2
    >>> method = ig2.IntegratedGradients(steps=1, rule=secant)
    >>> method(lambda x: x[:, 0] * x[:, 1].relu(), torch.tensor([[4.0, 3.0]])).values  # of a product each gets half
    tensor([[6., 6.]])
    """

    @property
    def plan(self) -> Plan:
        return Plan(secants=True)

    @property
    def complete(self) -> bool:
        """Where every operation of the network has a secant: each call checks its sums, and claims nothing if they are off."""
        return True


@dataclass(frozen=True, repr=False)
class Scaled(Rule):
    """φ = r · (f(x) − f(baseline)) / Σr for another rule's attribution r: one factor for the whole pair makes its sum exact.

    Where the factor would be negative, or Σr cancels to less than a thousandth of Σ|r|, what is missing is handed out by
    `complete` instead.
    """

    rule: Rule

    @property
    def plan(self) -> Plan:
        return self.rule.plan

    @property
    def complete(self) -> bool:
        """Always: the factor is what makes it so."""
        return True

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        return self.rule.terms(segments)

    def total(self, *sums: Tensor) -> Tensor:
        return self.rule.total(*sums)

    def trust(self, *sums: Tensor) -> Tensor | None:
        return self.rule.trust(*sums)

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        values = self.rule.finish(values, change, moved)
        total = values.flatten(1).sum(dim=1)
        size = values.flatten(1).abs().sum(dim=1)
        # a factor below zero would turn every sign, one through a sum that cancels would be noise: leave those to `complete`
        factor = change * _inverse(total, change)
        sound = (factor > 0) & (total.abs() > 1e-3 * size)
        factor = torch.where(sound, factor, 1.0)
        return complete(values * _like(factor, values), change, moved)


class _Decision(Rule):
    """φ = ‖x − x′‖ · Σₜ ∇f(pₜ) ⊙ (pₜ − pₜ₊₁) · Δfₜ / ‖pₜ − pₜ₊₁‖: each gradient weighted by the slope of the output along the
    path, as in Integrated Decision Gradients [Walker 2024].

    On a straight line that is (x − x′) ⊙ Σₜ ∇f(pₜ) Δfₜ. It is of the size of the output squared, and accounts for nothing: of a
    linear output it sums to (f(x) − f(x′))².
    """

    @property
    def plan(self) -> Plan:
        return Plan(ends=True)

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        length = torch.linalg.vector_norm(segments.step.flatten(1), dim=1)
        slope = segments.change / length.where(length > 0, torch.inf)
        return (segments.near * segments.step * _like(slope, segments.step),)

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        return values * _like(torch.linalg.vector_norm(moved.flatten(1), dim=1), values)


@dataclass(frozen=True, repr=False)
class PathWeighted(Rule):
    """φ = Σᵢ wᵢ u(1 − nᵢ) ∇f(pₜ + nᵢ (pₜ₊₁ − pₜ)) ⊙ (pₜ − pₜ₊₁): Gauss–Legendre nodes nᵢ and weights wᵢ, gradients weighted
    by their place α = 1 − nᵢ on the segment, 0 at the baseline's end. On `Straight(1)` it is Path-Weighted IG [Kamalov 2025].

    Complete if u is one everywhere, and else only by chance.

    Args:
        name: what the rule is called.
        weight: u, a function of α from 0 to 1.
        gradients: how many are taken on each segment.
    """

    weight: Callable[[float], float]
    gradients: int = 50

    @property
    def plan(self) -> Plan:
        table = gauss(self.gradients)
        return Plan(table.nodes, tuple(w * float(self.weight(1 - n)) for n, w in zip(table.nodes, table.weights, strict=True)))


def complete(values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
    """Hand out what is missing to `change`: in proportion to |values|, or to the squared distance moved if all are zero.

    The remainder is rounding, except for pairs in which a segment had no usable gradient.
    """
    flat = values.flatten(1)
    missing = change[:, None] - flat.sum(dim=1, keepdim=True)
    portions = _unit(flat)[0].abs()
    portions = torch.where(portions.sum(dim=1, keepdim=True) > 0, portions, _unit(moved.flatten(1))[0].square())
    total = portions.sum(dim=1, keepdim=True)
    return (flat + missing * portions / total.where(total > 0, 1.0)).view_as(values)


def _combine(tensor: Tensor, factor: Tensor, other: Tensor, other_factor: Tensor) -> Tensor:
    """factor · tensor + other_factor · other, a number for each row."""
    return torch.addcmul(tensor * _like(factor, tensor), _like(other_factor, other), other)


def _inverse(total: Tensor, change: Tensor) -> Tensor:
    """1 / total, (n,); zero where total is, or where it is so small that the inverse, or its share of `change`, is infinite.

    Products of 1e-39 are what a saturated unit leaves. Times zero, for a feature without a gradient, infinity would be NaN.
    """
    inverse = 1 / total.where(total != 0, torch.inf)
    too_large = inverse.isinf() | ((change * inverse).isinf() & change.isfinite())
    return torch.where(too_large, 0.0, inverse)


def _positive(product: Tensor) -> Tensor:
    """The positive part of each row; where there is none, all of them count alike."""
    agreeing = product.clamp(min=0)
    return torch.where(agreeing.sum(dim=1, keepdim=True) > 0, agreeing, product.abs())


def _unit(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Rows scaled to a largest entry of one, so that squares and products neither vanish nor overflow, and by how much."""
    largest = flat.abs().amax(dim=1, keepdim=True)
    scale = largest.where(largest > 0, 1.0)
    return flat / scale, scale


def _like(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.ndim - 1))


left = Quadrature("left", (0.0,), (1.0,))
right = Quadrature("right", (1.0,), (1.0,))
midpoint = Quadrature("midpoint", (0.5,), (1.0,))
trapezoid = Quadrature("trapezoid", (0.0, 1.0), (0.5, 0.5))
direct = idgi = _Direct("direct")
shared = _Shared("shared")
aligned = _Aligned("aligned")
tempered = _Tempered("tempered")
blended = _Blended("blended")
decision = _Decision("decision")
secant = _Secant("secant")

# For help(ig2.rules.left); the others show the docstrings of their classes.
vars(left)["__doc__"] = """φ = Σₜ ∇f(pₜ) ⊙ (pₜ − pₜ₊₁): the gradient at the end nearer the explicand, as IG² was published
[Zhuo 2024]. On GradPath the step was chosen there, so gradient and step go together; on rough networks it is no integral."""
vars(right)[
    "__doc__"
] = """φ = Σₜ ∇f(pₜ₊₁) ⊙ (pₜ − pₜ₊₁): the gradient at the end nearer the baseline, as Guided IG was published
[Kapishnikov 2021], whose path is drawn from the baseline and takes the gradient where each step begins."""
vars(midpoint)["__doc__"] = """φ = Σₜ ∇f((pₜ + pₜ₊₁) / 2) ⊙ (pₜ − pₜ₊₁): the gradient in the middle of each segment. The error
falls with the square of the step length."""
vars(trapezoid)[
    "__doc__"
] = """φ = Σₜ ½ (∇f(pₜ) + ∇f(pₜ₊₁)) ⊙ (pₜ − pₜ₊₁): the mean of the gradients at both ends. The error falls
with the square of the step length, at the cost of `left`."""


def gauss(nodes: int) -> Quadrature:
    """Gauss–Legendre quadrature on each segment: exact for polynomials of degree 2·nodes − 1.

    Args:
        nodes: how many gradients are taken on each segment.

    Returns:
        The rule.

    Raises:
        InputError: if `nodes` is not a positive integer.

    >>> gauss(1).nodes, gauss(1).weights
    ((0.5,), (1.0,))
    """
    check_count(nodes, "nodes of gauss")
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return Quadrature(f"gauss({nodes})", tuple(map(float, (places + 1) / 2)), tuple(map(float, weights / weights.sum())))


def scaled(rule: Rule) -> Scaled:
    """φ = r · (f(x) − f(baseline)) / Σr: another rule's attribution r, scaled pair by pair until its sum is exact.

    Args:
        rule: any rule, for example `left`.

    Returns:
        The complete rule; see `Scaled`.

    Raises:
        InputError: if `rule` is no rule.

    >>> scaled(left)
    scaled(left)
    """
    if not isinstance(rule, Rule):
        raise InputError(f"scaled takes a rule, for example scaled(left), got {describe(rule)}")
    return Scaled(f"scaled({rule.name})", rule)
