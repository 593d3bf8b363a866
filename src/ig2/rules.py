"""Rules that turn the segments of a path into attributions.

A path is a polyline p₀ = x, …, pₖ = baseline, and a rule computes the contribution of each of its segments to the attribution.
A `Quadrature` averages gradients on the segment and multiplies the average by the step pₜ − pₜ₊₁. A `Sharing` rule instead
distributes the actual change in the output on the segment, f(pₜ) − f(pₜ₊₁), so that attributions sum to f(x) − f(baseline) on
any path and at any step size. `secant` achieves the same with slopes over the whole segment in place of derivatives at a point.
Any other `Rule` defines the gradients it needs (`needs`) and how they are combined (`terms`).
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
class Needs:
    """The gradients that a rule needs on each segment, at positions from 0, the end nearer the explicand, to 1."""

    nodes: tuple[float, ...] = ()
    """The positions of the gradients in a weighted average."""
    weights: tuple[float, ...] = ()
    """The weight of each node in that average."""
    ends: bool = False
    """Whether the rule needs the gradients and outputs at both ends. `Rule.terms` is then called for every segment; without
    `ends`, a segment contributes its average gradient times its step, and `terms` is not called."""
    secants: bool = False
    """Whether slopes over the segment are averaged in place of gradients at nodes; see `secant`. `Rule.terms` is then called
    for every segment. Without `ends`, the gradients passed for both ends are the secant slopes too."""

    def __post_init__(self) -> None:
        if self.secants and self.nodes:
            raise InputError(f"an average is taken from secants or from nodes, got both: secants=True, nodes={self.nodes}")

    def reverse(self) -> Needs:
        """Return the same for a path that is built from its baseline."""
        return replace(self, nodes=tuple(1 - node for node in self.nodes))

    def weight(self, end: int) -> float:
        """Return the weight of the gradient at an end of the segment, 0 or 1."""
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
    """One segment of each of n paths, as passed to `Rule.terms`. The order of features may differ from that in x."""

    step: Tensor
    """pₜ − pₜ₊₁, (n, ...)."""
    change: Tensor
    """f(pₜ) − f(pₜ₊₁), (n,)."""
    near: Tensor
    """∇f(pₜ), at the end nearer the explicand, (n, ...)."""
    far: Tensor
    """∇f(pₜ₊₁), (n, ...)."""
    average: Tensor | None = None
    """The weighted average of the gradients at the nodes, or the secant slopes, (n, ...); None if there are neither."""


@dataclass(frozen=True)
class Rule(ABC):
    """Base class of rules, which turn gradients on the segments of a path into attributions.

    A rule defines the gradients it needs in `needs`. The `terms` of all segments are summed along the path, `total` turns the
    sums into attributions, and `finish` may correct them. The following rule takes, feature by feature, the smaller of the
    gradients at the two ends, and zero if their signs differ:

    >>> @dataclass(frozen=True, repr=False)
    ... class Minmod(Rule):
    ...     @property
    ...     def needs(self):
    ...         return Needs(ends=True)
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
    """The name of the rule in settings and tables."""

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """The gradients that the rule needs on each segment."""

    @property
    def complete(self) -> bool:
        """Whether attributions sum to f(x) − f(baseline) by construction."""
        return False

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        """Return the terms to sum along the path, each (n, ...); by default the average gradient times the step."""
        assert segments.average is not None
        return (segments.average * segments.step,)

    def total(self, *sums: Tensor) -> Tensor:
        """Return the attribution of each pair, (n, ...), from the sums of its terms along the path; by default the first."""
        return sums[0]

    def trust(self, *sums: Tensor) -> Tensor | None:
        """Return how far each pair's attribution rests on the gradient's prediction, 0 to 1, (n,), or None if not measured."""
        return None

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        """Return each pair's final attribution (n, ...), given f(x) − f(baseline), (n,), and x − baseline, (n, ...)."""
        return values

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Quadrature(Rule):
    """A quadrature rule: an average of gradients times the step, φ = Σₜ Σᵢ wᵢ ∇f(pₜ + nᵢ (pₜ₊₁ − pₜ)) ⊙ (pₜ − pₜ₊₁).

    This is the line integral of Integrated Gradients [Sundararajan 2017] on each segment.

    Args:
        name: the name of the rule.
        nodes: the positions of the gradients on the segment, from 0, the end nearer the explicand, to 1.
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
    def needs(self) -> Needs:
        return Needs(self.nodes, self.weights)


@dataclass(frozen=True, repr=False)
class Sharing(Rule):
    """Base class of complete rules that distribute the change in the output: φ = Σₜ (f(pₜ) − f(pₜ₊₁)) · s / Σs.

    Here s are the `portions` for the gradient at pₜ and the step. If the gradient at pₜ is zero in every feature, the one at
    pₜ₊₁ is used instead: it shows a unit that is inactive at the near end and active at the far one. A change that no segment
    could distribute is distributed by `complete` at the end of the path.
    """

    @property
    def needs(self) -> Needs:
        return Needs(ends=True)

    @property
    def complete(self) -> bool:
        """Always True: the shares sum to the change in the output."""
        return True

    @abstractmethod
    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        """Return portions (n, features), to be scaled to sum to `change` (n, 1); rows that sum to zero distribute nothing."""

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        """Return each feature's share in the change on the segment, (n, ...)."""
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
        """Return the gradient at the near end, or at the far end where the former is zero in every feature, (n, ...)."""
        off = (segments.near == 0).flatten(1).all(dim=1)
        return torch.where(_like(off, segments.near), segments.far, segments.near)

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        return complete(values, change, moved)


class _Direct(Sharing):
    """s = g²: the rule of IDGI [Yang 2023], which shares the change in the output in proportion to the squared gradient.

    All shares have the sign of the change, whatever the step of a feature.
    """

    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return gradient.square()


class _Shared(Sharing):
    """s = (g ⊙ Δp)⁺: shares the change among the features whose gradient and step agree; if none do, s = |g ⊙ Δp|."""

    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return _positive(gradient * moved)


class _Aligned(Sharing):
    """s = (±g ⊙ Δp)⁺: like `shared` if the output falls along the path; if it rises, shared among the features that raised it.

    `shared` credits features whose gradient and step agree whatever the output did: for 3a − b from (−1, −1) to zero, it
    credits b with the whole change.
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
    """φ = Σₜ [trust · cₜ + (Δₜ − trust · Σcₜ) · sₜ]: `left` as far as the gradient predicts the change in the output along the
    path, and `shared` for the rest. The default of `ig2.IG2`.

    Here cₜ = ∇f(pₜ) ⊙ (pₜ − pₜ₊₁), Δₜ = f(pₜ) − f(pₜ₊₁), sₜ are the shares of `shared`, and
    trust = max(0, 1 − Σₜ (Δₜ − Σcₜ)² / Σₜ Δₜ²) is one number for each path. On smooth networks it is close to one, and every
    feature keeps its sign; on rough ones, where the gradient predicts worse than "no change" would, it is zero. Computed for
    each segment, it would be mostly chance.
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
    """φ = Σₜ m ⊙ (pₜ − pₜ₊₁), where m is ∇f with the slope of every non-linearity replaced by its secant over the segment.

    Between the ends a = pₜ and b = pₜ₊₁ of a segment, a function h of one variable has the slope (h(a) − h(b)) / (a − b), or
    its derivative if a = b, as in DeepLIFT's rescale rule [Shrikumar 2017]; the slope of a product in each factor is the mean
    of the other factor over both ends; softmax, normalisations and attention are composed of such parts. One backward pass with
    these slopes yields m, and Σm·(a − b) = f(a) − f(b) for any length of the segment, with signs. One segment on a straight
    line is `ig2.DeepSHAP`; many approach the integral. If an operation has no such slope, the sums are off, and a warning names
    it.

    >>> import ig2
    >>> method = ig2.IntegratedGradients(steps=1, rule=secant)
    >>> method(lambda x: x[:, 0] * x[:, 1].relu(), torch.tensor([[4.0, 3.0]])).values  # of a product each gets half
    tensor([[6., 6.]])
    """

    @property
    def needs(self) -> Needs:
        return Needs(secants=True)

    @property
    def complete(self) -> bool:
        """Whether every operation of the network has a secant. Each call checks its sums and claims nothing if they are off."""
        return True


@dataclass(frozen=True, repr=False)
class Scaled(Rule):
    """Another rule's attribution r, scaled by one factor for each pair to an exact sum: φ = r · (f(x) − f(baseline)) / Σr.

    If the factor would be negative, or Σr cancels to less than a thousandth of Σ|r|, `complete` distributes the missing change
    instead.
    """

    rule: Rule

    @property
    def needs(self) -> Needs:
        return self.rule.needs

    @property
    def complete(self) -> bool:
        """Always True: the factor makes the sum exact."""
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

    On a straight line this is (x − x′) ⊙ Σₜ ∇f(pₜ) Δfₜ. Its magnitude is that of the output squared, and it is not complete:
    for a linear output it sums to (f(x) − f(x′))².
    """

    @property
    def needs(self) -> Needs:
        return Needs(ends=True)

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        length = torch.linalg.vector_norm(segments.step.flatten(1), dim=1)
        slope = segments.change / length.where(length > 0, torch.inf)
        return (segments.near * segments.step * _like(slope, segments.step),)

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        return values * _like(torch.linalg.vector_norm(moved.flatten(1), dim=1), values)


@dataclass(frozen=True, repr=False)
class PathWeighted(Rule):
    """The rule of Path-Weighted IG on `Straight(1)`: gradients weighted by their position on the segment [Kamalov 2025].

    φ = Σᵢ wᵢ u(1 − nᵢ) ∇f(pₜ + nᵢ (pₜ₊₁ − pₜ)) ⊙ (pₜ − pₜ₊₁), with Gauss–Legendre nodes nᵢ and weights wᵢ, and a weight u at
    α = 1 − nᵢ, which is 0 at the baseline's end. Complete if u is one everywhere, and otherwise only by chance.

    Args:
        name: the name of the rule.
        weight: u, a function of α from 0 to 1.
        gradients: the number of gradients on each segment.
    """

    weight: Callable[[float], float]
    gradients: int = 50

    @property
    def needs(self) -> Needs:
        table = gauss(self.gradients)
        return Needs(table.nodes, tuple(w * float(self.weight(1 - n)) for n, w in zip(table.nodes, table.weights, strict=True)))


def complete(values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
    """Distribute the missing `change` in proportion to |values|, or to the squared distance moved if all values are zero.

    The remainder is rounding error, except for pairs in which a segment had no usable gradient.

    Args:
        values: the attribution of each pair, (n, ...).
        change: f(x) − f(baseline), (n,), which the values should sum to.
        moved: x − baseline, (n, ...).

    Returns:
        Attributions (n, ...) that sum to `change`.
    """
    flat = values.flatten(1)
    missing = change[:, None] - flat.sum(dim=1, keepdim=True)
    portions = _unit(flat)[0].abs()
    portions = torch.where(portions.sum(dim=1, keepdim=True) > 0, portions, _unit(moved.flatten(1))[0].square())
    total = portions.sum(dim=1, keepdim=True)
    return (flat + missing * portions / total.where(total > 0, 1.0)).view_as(values)


def _combine(tensor: Tensor, factor: Tensor, other: Tensor, other_factor: Tensor) -> Tensor:
    """Return factor · tensor + other_factor · other, with one factor for each row."""
    return torch.addcmul(tensor * _like(factor, tensor), _like(other_factor, other), other)


def _inverse(total: Tensor, change: Tensor) -> Tensor:
    """Return 1 / total, (n,), or zero where total is zero, or so small that its inverse or the share of `change` is infinite.

    A saturated unit leaves products of 1e-39. Multiplied by zero, for a feature without a gradient, infinity would become NaN.
    """
    inverse = 1 / total.where(total != 0, torch.inf)
    too_large = inverse.isinf() | ((change * inverse).isinf() & change.isfinite())
    return torch.where(too_large, 0.0, inverse)


def _positive(product: Tensor) -> Tensor:
    """Return the positive part of each row, or absolute values if a row has no positive entry."""
    agreeing = product.clamp(min=0)
    return torch.where(agreeing.sum(dim=1, keepdim=True) > 0, agreeing, product.abs())


def _unit(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows scaled to a largest entry of one, so that squares and products neither vanish nor overflow, and the scale."""
    largest = flat.abs().amax(dim=1, keepdim=True)
    scale = largest.where(largest > 0, 1.0)
    return flat / scale, scale


def _like(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.ndim - 1))


left = Quadrature("left", (0.0,), (1.0,))
right = Quadrature("right", (1.0,), (1.0,))
midpoint = Quadrature("midpoint", (0.5,), (1.0,))
trapezoid = Quadrature("trapezoid", (0.0, 1.0), (0.5, 0.5))
direct = _Direct("direct")
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
    """Return Gauss–Legendre quadrature on each segment, exact for polynomials of degree 2·nodes − 1.

    Args:
        nodes: the number of gradients on each segment.

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
    """Return a rule that scales another rule's attribution r pair by pair to an exact sum: φ = r · (f(x) − f(baseline)) / Σr.

    Args:
        rule: any rule, for example `left`.

    Returns:
        The complete rule; see `Scaled`.

    Raises:
        InputError: if `rule` is not a rule.

    >>> scaled(left)
    scaled(left)
    """
    if not isinstance(rule, Rule):
        raise InputError(f"scaled takes a rule, for example scaled(left), got {describe(rule)}")
    return Scaled(f"scaled({rule.name})", rule)
