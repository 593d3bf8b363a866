"""XAI-Units: networks of a few ReLUs, each built so that the right attribution is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2._utils.checks import check_count, check_seed
from ig2.methods import (
    IG2,
    DeepSHAP,
    Gradient,
    GuidedIG,
    InputXGradient,
    IntegratedGradients,
    KernelSHAP,
    Occlusion,
    Random,
    SmoothGrad,
)
from ig2.model import Model, wrap
from ig2.table import Column
from ig2_bench.suite import BenchOptions, MethodLike, Suite
from ig2_bench.suites.synthetic import COSTS, attribute

FEATURES = 8
TEETH = 16  # of the zigzag, between 0 and 1
Hidden = tuple[Mapping[int, float], float, Sequence[float]]  # a unit's weights by feature, its bias, its weights to the outputs


@dataclass(frozen=True)
class Problem:
    """A network, samples, the reference they are explained against, and what the attribution has to be."""

    model: Model
    x: Tensor  # (n, features)
    reference: Tensor  # (1, features)
    truth: Tensor  # (n, features)


def build_network(hidden: Sequence[Hidden], bias: Sequence[float]) -> nn.Sequential:
    """A network of one hidden layer of ReLUs with these weights."""
    inner, outer = nn.Linear(FEATURES, len(hidden)).double(), nn.Linear(len(hidden), len(bias)).double()
    with torch.no_grad():
        inner.weight.zero_()
        for number, (weights, offset, outward) in enumerate(hidden):
            for feature, weight in weights.items():
                inner.weight[number, feature] = weight
            inner.bias[number] = offset
            outer.weight[:, number] = torch.tensor(outward, dtype=torch.float64)
        outer.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    return nn.Sequential(inner, nn.ReLU(), outer).eval()


def draw_linear(count: int, generator: torch.Generator) -> Problem:
    """f = Σ wᵢxᵢ, each term from two ReLUs. By linearity and completeness a feature has its term, wᵢxᵢ."""
    w = _draw_weights(generator)
    hidden: list[Hidden] = [({i: sign}, 0.0, [sign * float(w[i])]) for i in range(FEATURES) for sign in (1.0, -1.0)]
    x = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    return Problem(wrap(build_network(hidden, [0.0])), x, torch.zeros(1, FEATURES, dtype=torch.float64), w * x)


def draw_irrelevant(count: int, generator: torch.Generator) -> Problem:
    """The same of half of the features; of the others two equal ReLUs cancel. What changes nothing has nothing (dummy)."""
    w = _draw_weights(generator)
    w[FEATURES // 2 :] = 0
    hidden: list[Hidden] = [({i: sign}, 0.0, [sign * float(w[i])]) for i in range(FEATURES // 2) for sign in (1.0, -1.0)]
    hidden += [({i: 1.0}, 0.0, [sign]) for i in range(FEATURES // 2, FEATURES) for sign in (3.0, -3.0)]
    x = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    return Problem(wrap(build_network(hidden, [0.0])), x, torch.zeros(1, FEATURES, dtype=torch.float64), w * x)


def draw_and(count: int, generator: torch.Generator) -> Problem:
    """f = Σ w·relu(a + b − 1) over pairs of features that are 0 or 1: an interaction.

    Against zero, a pair of ones has w/2 for each: the network treats the two alike and they are equal (symmetry), and the pair
    is all there is to share (completeness). Of any other pair the output is as at zero, and so are those features that are
    zero: nothing is left for the other one.
    """
    w = _draw_weights(generator)[: FEATURES // 2]
    hidden: list[Hidden] = [({2 * p: 1.0, 2 * p + 1: 1.0}, -1.0, [float(w[p])]) for p in range(FEATURES // 2)]
    x = _draw_bits(count, generator)
    x[:, :2] = 1  # one pair at least, so that there is something to explain
    both = x[:, ::2] * x[:, 1::2]
    truth = (both * w / 2).repeat_interleave(2, dim=1)
    return Problem(wrap(build_network(hidden, [0.0])), x, torch.zeros(1, FEATURES, dtype=torch.float64), truth)


def draw_or(count: int, generator: torch.Generator) -> Problem:
    """f = Σ w·min(1, Σ of a group) over two groups of features that are 0 or 1: one of them is enough.

    Against zero, k ones of a group have w/k each (symmetry and completeness). With two or more of them the gradient is zero.
    """
    w = _draw_weights(generator)[:2]
    half = FEATURES // 2
    hidden: list[Hidden] = [
        (dict.fromkeys(range(group * half, (group + 1) * half), -1.0), 1.0, [-float(w[group])]) for group in range(2)
    ]
    x = _draw_bits(count, generator)
    x[:, 0] = 1
    ones = x.view(count, 2, half).sum(dim=2).clamp(min=1)
    truth = x * (w / ones).repeat_interleave(half, dim=1)
    return Problem(wrap(build_network(hidden, [float(w.sum())])), x, torch.zeros(1, FEATURES, dtype=torch.float64), truth)


def draw_saturated(count: int, generator: torch.Generator) -> Problem:
    """f = Σ wᵢ·min(xᵢ, 0.3) for x between 0 and 1: above 0.3 the gradient is zero.

    Each feature alone, so it has its term (linearity and completeness).
    """
    w, level = _draw_weights(generator), 0.3
    hidden: list[Hidden] = [({i: 1.0}, 0.0, [float(w[i])]) for i in range(FEATURES)]
    hidden += [({i: 1.0}, -level, [-float(w[i])]) for i in range(FEATURES)]
    x = torch.rand(count, FEATURES, generator=generator, dtype=torch.float64)
    truth = w * x.clamp(max=level)
    return Problem(wrap(build_network(hidden, [0.0])), x, torch.zeros(1, FEATURES, dtype=torch.float64), truth)


def draw_zigzag(count: int, generator: torch.Generator) -> Problem:
    """f = Σ wᵢxᵢ + zig(xᵢ), with a zigzag of 16 teeth between 0 and 1: shattered gradients.

    Each feature alone, so it has its term. The zigzag is at most 0.1, and its slope is ±1.6 where that of the rest is about 1.
    """
    w, height = _draw_weights(generator), 0.1
    knots = torch.arange(TEETH, dtype=torch.float64) / TEETH
    slopes = height * TEETH * torch.tensor([1.0, *[(-1) ** k * 2.0 for k in range(1, TEETH)]], dtype=torch.float64)
    hidden: list[Hidden] = [({i: 1.0}, 0.0, [float(w[i])]) for i in range(FEATURES)]
    hidden += [
        ({i: 1.0}, -float(knot), [float(slope)]) for i in range(FEATURES) for knot, slope in zip(knots, slopes, strict=True)
    ]
    x = torch.rand(count, FEATURES, generator=generator, dtype=torch.float64)
    truth = w * x + ((x[..., None] - knots).clamp(min=0) * slopes).sum(dim=-1)
    return Problem(wrap(build_network(hidden, [0.0])), x, torch.zeros(1, FEATURES, dtype=torch.float64), truth)


def draw_negative(count: int, generator: torch.Generator) -> Problem:
    """f = Σ wᵢ·relu(1 − xᵢ) for x of 0 or 1: what is missing tells, against a reference of ones.

    Each feature alone, so it has wᵢ where it is 0, and nothing where it is 1. What multiplies by x sees none of it.
    """
    w = _draw_weights(generator)
    hidden: list[Hidden] = [({i: -1.0}, 1.0, [float(w[i])]) for i in range(FEATURES)]
    x = _draw_bits(count, generator)
    x[:, 0] = 0
    return Problem(wrap(build_network(hidden, [0.0])), x, torch.ones(1, FEATURES, dtype=torch.float64), w * (1 - x))


def draw_uncertain(count: int, generator: torch.Generator) -> Problem:
    """The probability of one of three classes, whose logits differ by a·x₁ alone: all others raise every logit alike.

    They do not change the probability, so they have nothing (dummy), and the first has f(x) − f(0) (completeness).
    """
    shared = _draw_weights(generator)
    hidden: list[Hidden] = [({0: sign}, 0.0, [2.0 * sign, 0.0, 0.0]) for sign in (1.0, -1.0)]
    hidden += [({i: sign}, 0.0, [sign * float(shared[i])] * 3) for i in range(1, FEATURES) for sign in (1.0, -1.0)]
    x = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    truth = torch.zeros_like(x)
    logits = torch.stack([2 * x[:, 0], torch.zeros(count), torch.zeros(count)], dim=1)
    truth[:, 0] = logits.softmax(dim=1)[:, 0] - 1 / 3
    model = wrap(build_network(hidden, [0.0] * 3), output="probability")
    return Problem(model, x, torch.zeros(1, FEATURES, dtype=torch.float64), truth)


def _draw_weights(generator: torch.Generator) -> Tensor:
    """Between 0.5 and 1.5, of either sign."""
    size = 0.5 + torch.rand(FEATURES, generator=generator, dtype=torch.float64)
    return size * (2 * torch.randint(2, (FEATURES,), generator=generator) - 1)


def _draw_bits(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(2, (count, FEATURES), generator=generator).double()


UNITS: dict[str, Callable[[int, torch.Generator], Problem]] = {
    "linear": draw_linear,
    "irrelevant": draw_irrelevant,
    "and": draw_and,
    "or": draw_or,
    "saturated": draw_saturated,
    "zigzag": draw_zigzag,
    "negative": draw_negative,
    "uncertain": draw_uncertain,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class XAIUnits(Suite):
    """Methods compared on networks of a few ReLUs whose right attribution is known, after the idea of [Lee 2025].

    Each unit is a network that does one thing, with weights drawn by the seed. Against its reference, zero or one, the
    attribution follows from axioms alone: completeness, dummy, symmetry and linearity. So it is the truth for any method that
    contrasts with this reference. Every method gets it.

    Args:
        samples: how many for each unit.
    """

    about: ClassVar[str] = "networks of a few ReLUs whose right attribution is known"
    name: ClassVar[str] = "xai-units"
    title: ClassVar[str] = "XAI-Units"
    shows: ClassVar = "se"

    samples: int = 100

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_count(self.samples, "samples")

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        options.check(cls.name, "samples")
        samples = options.samples or (20 if options.quick else 100)
        return cls(samples=samples, seed=options.seed, quick=options.quick, device=options.device)

    def parts(self) -> Sequence[str]:
        return list(UNITS)

    def methods(self) -> Mapping[str, MethodLike]:
        return {
            "Random": Random(),
            "Gradient": Gradient(),
            "Input × gradient": InputXGradient(),
            "SmoothGrad": SmoothGrad(Gradient(), samples=50),
            "IG": IntegratedGradients(),
            "Guided IG": GuidedIG(),
            "DeepSHAP": DeepSHAP(),
            "KernelSHAP": KernelSHAP(),
            "Occlusion": Occlusion(),
            "IG² (left, as published)": IG2(rule=rules.left),
            "IG² (blended)": IG2(),
        }

    def metrics(self) -> Mapping[str, Column]:
        cosines = {unit: Column("higher", about=_first_line(draw)) for unit, draw in UNITS.items()}
        error = Column(
            "lower", about="Σ |φ − truth| / Σ |truth|, over all units; the columns before are the cosine of φ and truth"
        )
        return {**cosines, "error": error, **COSTS}

    def describe_data(self) -> str:
        return f"{self.samples} samples of {FEATURES} features for each of {len(UNITS)} networks, drawn with seed {self.seed}"

    def prepare(self, part: str) -> Problem:
        problem = UNITS[part](self.samples, torch.Generator().manual_seed(self.seed))
        dtype = torch.float32 if self.device.startswith("mps") else torch.float64
        problem.model.net.to(self.device, dtype)
        return replace(problem, x=problem.x.to(self.device, dtype), reference=problem.reference.to(self.device, dtype))

    def score(self, part: str, prepared: Problem, method: MethodLike) -> Mapping[str, Sequence[float]]:
        values, costs = attribute(method, prepared.model, prepared.x, 0, prepared.reference, self.seed)
        truth = prepared.truth
        cosine = nn.functional.cosine_similarity(values, truth, dim=1)
        error = (values - truth).abs().sum(dim=1) / truth.abs().sum(dim=1)
        return {part: cosine.tolist(), "error": error.tolist(), **costs}


def _first_line(draw: Callable[..., object]) -> str:
    return (draw.__doc__ or "").partition("\n")[0]
