"""What a segment of a path adds to the attribution.

A quadrature rule is a table: at which places of the segment the gradient is taken, and with what weight. 0 is the end
nearer the explicand. A sharing rule instead hands out what the output really did on the segment, so that its attributions
sum to f(x) − f(baseline) on any path and at any step size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ig2.errors import InputError, describe, is_count


@dataclass(frozen=True)
class Rule(ABC):
    """How gradients on a segment become attribution."""

    name: str

    @property
    def complete(self) -> bool:
        """Whether attributions sum to f(x) − f(baseline) by construction."""
        return False

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        """A last word on each pair's attribution (n, ...), given f(x) − f(baseline), (n,), and x − baseline, (n, ...)."""
        return values

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Quadrature(Rule):
    """The gradient at `nodes` of the segment, 0 to 1 from the explicand's end, averaged with `weights` that sum to one."""

    nodes: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.weights) or not self.nodes:
            raise InputError(f"rule {self.name}: {len(self.nodes)} nodes and {len(self.weights)} weights; one for each")
        if not all(0 <= node <= 1 for node in self.nodes):
            raise InputError(f"rule {self.name}: nodes must lie between 0 and 1, got {self.nodes}")
        if abs(sum(self.weights) - 1) > 1e-12:
            raise InputError(f"rule {self.name}: weights must sum to one, got {sum(self.weights)!r}")


@dataclass(frozen=True, repr=False)
class Sharing(Rule):
    """Hands out f(pₜ) − f(pₜ₊₁) in proportion to what `portions` makes of the gradient at pₜ and the step."""

    @property
    def complete(self) -> bool:
        """Always: what is handed out is what the output did."""
        return True

    @abstractmethod
    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        """Portions (n, features), to be scaled to sum to `change` (n, 1); rows that sum to zero hand out nothing."""

    def share(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        """What the segment adds, from the gradient (n, ...) at pₜ, pₜ − pₜ₊₁ (n, ...) and f(pₜ) − f(pₜ₊₁), (n,)."""
        flat, slopes = _unit(gradient.flatten(1))
        step, lengths = _unit(moved.flatten(1))
        # only the gradient's direction matters to a proportion, but `tempered` compares the linear prediction with the
        # change itself: bring the change to the scale of the portions
        portions = self.portions(flat, step, change[:, None] / slopes / lengths)
        total = portions.sum(dim=1, keepdim=True)
        usable = (total.abs() > 0) & total.isfinite()
        return (change[:, None] * (portions / total.where(usable, 1.0)) * usable).view_as(gradient)

    def terms(self, gradient: Tensor, moved: Tensor, change: Tensor) -> tuple[Tensor, ...]:
        """What is summed up along the path, each (n, ...): the shares."""
        return (self.share(gradient, moved, change),)

    def total(self, *sums: Tensor) -> Tensor:
        """The attribution of each pair, (n, ...), from the sums of its `terms`."""
        (shares,) = sums
        return shares

    def trust(self, *sums: Tensor) -> Tensor | None:
        """How far each pair's attribution rests on what the gradient predicted, 0 to 1, (n,); None if that is not asked."""
        return None

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        return complete(values, change, moved)


@dataclass(frozen=True, repr=False)
class _Direct(Sharing):
    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return gradient.square()


@dataclass(frozen=True, repr=False)
class _Shared(Sharing):
    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return _positive(gradient * moved)


@dataclass(frozen=True, repr=False)
class _Aligned(Sharing):
    """As `shared` where the output falls along the path; where it rises, among the features that made it rise.

    `shared` pays those whose gradient and step agree whatever the output did: of 3a − b from (−1, −1) to zero it gives b all.
    """

    def portions(self, gradient: Tensor, moved: Tensor, change: Tensor) -> Tensor:
        return _positive(gradient * moved * torch.where(change < 0, -1.0, 1.0))


@dataclass(frozen=True, repr=False)
class _Tempered(Sharing):
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


@dataclass(frozen=True, repr=False)
class _Blended(_Shared):
    """The published sum as far as the gradient predicted what the output did along the path, and `shared` for the rest.

    How far that is, is one number for each path: 1 − Σ(Δf − Σc)² / ΣΔf² over its segments, c the gradient times the step, or
    zero where that is less. On smooth networks it is next to one, and every feature keeps its sign; on rough ones, where
    the gradient predicts less than "no change" would, it is zero. Segment by segment it would be mostly chance.
    """

    def terms(self, gradient: Tensor, moved: Tensor, change: Tensor) -> tuple[Tensor, ...]:
        product = gradient * moved
        agreeing = product.clamp(min=0)
        predicted, paid = product.flatten(1).sum(dim=1), agreeing.flatten(1).sum(dim=1)
        # As few passes over the samples as can be: the shares are agreeing / paid, and product / predicted where nobody agrees.
        each = _inverse(paid, change)
        all_alike = (paid == 0) * _inverse(predicted, change)
        shared = _combined(agreeing, change * each, product, change * all_alike)
        # the second sums to zero: however much of it is taken, the attribution stays complete
        signs = _combined(agreeing, -predicted * each, product, 1 - predicted * all_alike)
        return shared, signs, (change - predicted).square(), change.square()

    def total(self, *sums: Tensor) -> Tensor:
        shared, signs, *_ = sums
        return torch.addcmul(shared, _like(self.trust(*sums), signs), signs)

    def trust(self, *sums: Tensor) -> Tensor:
        *_, missed, done = sums
        # where nothing was missed all was predicted, also that nothing changes
        return torch.where(missed > 0, 1 - missed / done, 1.0).nan_to_num(0).clamp(min=0)


@dataclass(frozen=True, repr=False)
class Scaled(Rule):
    """Another rule's attribution, with one factor for the whole pair that makes its sum exact."""

    rule: Rule

    @property
    def complete(self) -> bool:
        """Always: the factor is what makes it so."""
        return True

    def finish(self, values: Tensor, change: Tensor, moved: Tensor) -> Tensor:
        values = self.rule.finish(values, change, moved)
        total = values.flatten(1).sum(dim=1)
        size = values.flatten(1).abs().sum(dim=1)
        # a factor below zero would turn every sign, one through a sum that cancels would be noise: leave those to `complete`
        factor = change * _inverse(total, change)
        sound = (factor > 0) & (total.abs() > 1e-3 * size)
        factor = torch.where(sound, factor, 1.0)
        return complete(values * _like(factor, values), change, moved)


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


def _combined(one: Tensor, first: Tensor, other: Tensor, second: Tensor) -> Tensor:
    """first · one + second · other, a number for each row."""
    return torch.addcmul(one * _like(first, one), _like(second, other), other)


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
direct = _Direct("direct")
shared = _Shared("shared")
aligned = _Aligned("aligned")
tempered = _Tempered("tempered")
blended = _Blended("blended")


def gauss(nodes: int) -> Quadrature:
    """Gauss–Legendre with `nodes` gradients a segment: exact for polynomials of degree 2·nodes − 1.

    >>> gauss(1).nodes, gauss(1).weights
    ((0.5,), (1.0,))
    """
    if not is_count(nodes):
        raise InputError(f"gauss takes a positive number of nodes, got {describe(nodes)}")
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return Quadrature(f"gauss({nodes})", tuple(map(float, (places + 1) / 2)), tuple(map(float, weights / weights.sum())))


def scaled(rule: Rule) -> Scaled:
    """`rule`, with one factor for each pair that makes it complete."""
    if not isinstance(rule, Rule):
        raise InputError(f"scaled takes a rule, for example scaled(left), got {describe(rule)}")
    return Scaled(f"scaled({rule.name})", rule)
