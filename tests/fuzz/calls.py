"""Every method with random settings, a few steps each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

import ig2
from ig2 import paths, references, rules
from ig2.methods.catalogue import ENTRIES, Entry, Facts

from .networks import Case, mapped, tensors

QUADRATURES = [rules.left, rules.right, rules.midpoint, rules.trapezoid, rules.gauss(2)]
SHARING = [rules.direct, rules.shared, rules.aligned, rules.tempered, rules.blended]
RULES = [*QUADRATURES, rules.secant, *SHARING, *SHARING, rules.scaled(rules.left), rules.scaled(rules.trapezoid)]


@dataclass(frozen=True)
class Call:
    """A method and what it is called with; the same for the network, its copies and its float64 twin."""

    name: str
    method: ig2.Method
    references: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the values sum to the change in the output by construction."""
        rule = self.method.rule if isinstance(self.method, ig2.PathMethod) else None
        # secants are complete where every operation has one, and a warning says where not
        secants = isinstance(self.method, SECANTS) or (rule is not None and rule.needs.secants)
        return self.method.complete and not secants

    def __str__(self) -> str:
        given = {} if self.references is None else {"references": type(self.references).__name__}
        text = re.sub(r"<function (\w+) at 0x\w+>", r"\1", f"{self.name}: {self.method!r}({given | self.options})")
        return " ".join(text.split())[:500]


def grad_path(rng: Random) -> dict[str, Any]:
    return {
        "steps": rng.randint(1, 8),
        "step_size": rng.choice([None, None, 0.1, 10.0]),
        "distance": rng.choice([paths.euclidean, paths.euclidean, paths.cosine, paths.manhattan]),
        "norm": rng.choice([paths.L2(), paths.L2(), paths.SparseL1(50), paths.SparseL1(95)]),
        "schedule": rng.choice([paths.Steady(), paths.Decaying(), paths.LineSearch()]),
        "stop": rng.choice([None, None, paths.Converged(0.05, 1), paths.Converged(0.01, 2)]),
    }


def _rule(rng: Random) -> rules.Rule:
    return rng.choice(RULES)


def _kept(rng: Random) -> dict[str, Any]:
    return {name: True for name in ("curves", "per_reference", "paths") if rng.random() < 0.4}


def _ig2(rng: Random, case: Case) -> Call:
    rule = rules.blended if rng.random() < 0.3 else _rule(rng)
    return Call("IG2", ig2.IG2(rule=rule, **grad_path(rng)), case.references, _kept(rng))


def _gradcfe(rng: Random, case: Case) -> Call:
    options = {key: True for key in _kept(rng) if key != "per_reference"}
    return Call("GradCFE", ig2.GradCFE(**grad_path(rng)), case.references, options)


def _integrated(rng: Random, case: Case) -> Call:
    rule = rng.choice([None, _rule(rng)])
    return Call("IntegratedGradients", ig2.IntegratedGradients(rng.randint(1, 8), rule), None, _kept(rng))


def _expected(rng: Random, case: Case) -> Call:
    rule = rng.choice([None, _rule(rng)])
    return Call("ExpectedIG", ig2.ExpectedIG(rng.randint(1, 8), rule), case.references, _kept(rng))


def _guided(rng: Random, case: Case) -> Call:
    method = ig2.GuidedIG(rng.randint(1, 8), rng.choice([0.25, 0.0, 1.0]), rng.choice([0.02, 0.0, 0.5]), _rule(rng))
    return Call("GuidedIG", method, rng.choice([None, case.references]), _kept(rng))


def _blur(rng: Random, case: Case) -> Call:
    method = ig2.BlurIG(rng.randint(1, 6), rng.choice([1.0, 5.0]), rng.choice(["reflect", "zero"]), _rule(rng))
    return Call("BlurIG", method, None, _kept(rng))


def _kernel(rng: Random, case: Case) -> Call:
    features = sum(t[0].numel() for t in tensors(case.x))
    if case.kind == "i":
        groups: Any = ig2.Grid(2, 2)
    elif features > 12 or rng.random() < 0.3:
        groups = torch.arange(features) % 4
        groups = groups.view(tensors(case.x)[0].shape[1:]) if len(tensors(case.x)) == 1 else groups
    else:
        groups = None
    return Call("KernelSHAP", ig2.KernelSHAP(groups, 30), rng.choice([None, case.references]))


def _smooth(rng: Random, case: Case) -> Call:
    inner = rng.choice([ig2.Gradient(), ig2.InputXGradient(), ig2.IntegratedGradients(2), ig2.IG2(2)])
    method = ig2.SmoothGrad(inner, rng.randint(1, 3), rng.choice([0.1, 0.01]), squared=rng.random() < 0.2)
    return Call("SmoothGrad", method, case.references if isinstance(inner, ig2.IG2) else None)


def _strategy(rng: Random, case: Case, classes: int) -> Any:
    """A strategy of references in place of samples."""
    pool = _pool(case)
    count = len(tensors(pool)[0])
    labels = torch.arange(count) % 3
    choices: list[Callable[[], Any]] = [
        lambda: 0,
        references.Zeros,
        lambda: references.RandomSamples(pool, 1),
        lambda: references.NoisedExplicand(0.1, 2),
        lambda: references.GradCF(case.references, paths.GradPath(2)),
        lambda: references.UniformNoise(2, -0.5, 0.5) if "bounds" not in case.wrapping else references.UniformNoise(2),
        lambda: references.Union(references.Zeros(), case.references),
    ]
    if classes > 1:
        choices += [lambda: references.OtherClasses(pool, labels), lambda: references.Relevant(pool, labels, top_k=1)]
    if "bounds" in case.wrapping:
        choices += [references.White, references.MaximalDistance]
    if case.kind == "i":
        choices.append(references.BlurredExplicand)
    return rng.choice(choices)()


def _path(rng: Random, case: Case, classes: int) -> Call:
    path = rng.choice([paths.Straight(rng.randint(1, 5)), paths.Guided(rng.randint(1, 4)), paths.GradPath(**grad_path(rng))])
    return Call(
        "PathMethod",
        ig2.PathMethod(path, rule=rng.choice([_rule(rng), _rule(rng), None])),
        _strategy(rng, case, classes),
        _kept(rng),
    )


CALLS: dict[str, Callable[..., Call]] = {
    "Gradient": lambda rng, case: Call("Gradient", ig2.Gradient()),
    "InputXGradient": lambda rng, case: Call("InputXGradient", ig2.InputXGradient()),
    "Random": lambda rng, case: Call("Random", ig2.Random()),
    "IG2": _ig2,
    "GradCFE": _gradcfe,
    "IntegratedGradients": _integrated,
    "ExpectedIG": _expected,
    "GuidedIG": _guided,
    "PathMethod": _path,
    "DeepSHAP": lambda rng, case: Call("DeepSHAP", ig2.DeepSHAP(), case.references),
    "KernelSHAP": _kernel,
    "SmoothGrad": _smooth,
    "BlurIG": _blur,
    "XRAI": lambda rng, case: Call("XRAI", ig2.XRAI(ig2.IntegratedGradients(2), scales=(100,))),
}
# Segments an image at 224 × 224 pixels, whatever its size: 0.2 s a sample.
SLOW = {"XRAI": 0.03}
# Of the methods that are made by the catalogue alone, how many each network meets.
SHARE = 0.25
SECANTS = (ig2.DeepSHAP, ig2.Turns, ig2.Strata)
# What is counted, where the catalogue does not say how far.
SMALL = {"steps", "samples", "masks", "copies", "classes", "turns", "orders", "neighbours", "shares"}
FEW = {"clusters": 1, "count": 2}  # of a pool of three samples and more
# What a class has to be made with, by the name of the argument.
NEEDED: dict[str, Callable[[Case, type[ig2.Method]], Any]] = {
    "method": lambda case, kind: ig2.ExpectedIG(2) if kind is ig2.WG else ig2.IntegratedGradients(2),
    "pool": lambda case, kind: _pool(case),
    "embeddings": lambda case, kind: _pool(case).flatten(0, 1),
    "weight": lambda case, kind: _ramp,
    "sigma": lambda case, kind: 1.0,
    "regions": lambda case, kind: _grouped(case),
}


def _ramp(place: float) -> float:
    return 1 - place / 2


def _pool(case: Case) -> Any:
    return mapped(case.references, lambda t: torch.cat([t, t * 0.5, t * 0.25]))


def catalogued(rng: Random, case: Case, entry: Entry) -> Call:
    """A call of a method as the catalogue makes it for few steps, or as its class is made by default."""
    facts = Facts(
        images=case.kind == "i",
        steps=rng.randint(1, 6),
        straight=rng.randint(1, 6),
        guided=rng.randint(1, 6),
        references=len(tensors(case.references)[0]),
        coalitions=30,
        groups=_grouped(case),
    )
    settings = {} if entry.settings is None else entry.settings(facts)
    for name, parameter in inspect.signature(entry.type.__init__).parameters.items():
        if name in SMALL and name not in settings:
            settings[name] = rng.randint(1, 4)
        elif name in FEW:
            settings[name] = FEW[name]
        elif name in NEEDED and name not in settings and parameter.default is parameter.empty:
            settings[name] = NEEDED[name](case, entry.type)
    method = entry.type(**settings)
    return Call(entry.class_name, method, case.references if method.needs_references else None)


def _grouped(case: Case) -> Any:
    features = sum(t[0].numel() for t in tensors(case.x))
    if case.kind == "i" and isinstance(case.x, torch.Tensor):
        return ig2.Grid(2, 2)
    groups = torch.arange(features) % 4
    return groups.view(tensors(case.x)[0].shape[1:]) if len(tensors(case.x)) == 1 else groups


def takes(entry: Entry, case: Case, classes: int) -> bool:
    """Whether a class takes such samples and networks at all."""
    method, needed = entry.type, inspect.signature(entry.type.__init__).parameters
    is_one = isinstance(case.x, torch.Tensor)
    if (method.needs_places is True or entry.in_pixels or "sigma" in needed) and not (is_one and case.kind == "i"):
        return False
    if ("pool" in needed and not is_one) or ("embeddings" in needed and not (is_one and case.kind == "t")):
        return False
    return classes > 1 or method.needs_classes is not True


def calls(case: Case, classes: int) -> list[Call]:
    """A call of each method that takes such samples, of a network with so many outputs; of some methods now and then."""
    rng = Random(case.seed + 1)
    entries = {entry.class_name: entry for entry in reversed(ENTRIES)}  # of variants the first
    chosen = []
    for name, make in CALLS.items():
        if rng.random() < SLOW.get(name, 1.0) and (name == "PathMethod" or takes(entries[name], case, classes)):
            chosen.append(make(rng, case, classes) if name == "PathMethod" else make(rng, case))
    for name in sorted(entries.keys() - CALLS):
        # a generator for each, so that a new method changes no other's calls
        own = Random(f"{case.seed} {name}")
        if own.random() < SHARE and takes(entries[name], case, classes):
            chosen.append(catalogued(own, case, entries[name]))
    return chosen
