"""The paper's studies: what is varied, and what is measured beside the metrics. Each is a table on any data set it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ig2 import rules
from ig2.attribution import Attribution
from ig2.comparison import WithoutReferences
from ig2.methods import ExpectedIG, FreeIG2, GuidedIG, IntegratedGradients, PathMethod
from ig2.model import wrap
from ig2.paths import Path, Rivals, SparseL1, Straight, cosine, manhattan
from ig2.references import References
from ig2.table import Column
from ig2_bench.board.roster import AtGradCF
from ig2_bench.suite import MethodLike
from ig2_bench.suites.synthetic import COSTS

if TYPE_CHECKING:
    from ig2_bench.suites.experiment import Experiment

COUNTERFACTUAL, DATA = "counterfactual", "data"  # references of other classes, and samples whatever their class


# -- methods in other circumstances ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WithReferences:
    """A method that takes references of the experiment other than the counterfactual ones, by their name."""

    references: str
    method: MethodLike

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.method(*args, **options)


@dataclass(frozen=True)
class WithBaseline:
    """A method that takes references made of the explicand, or of nothing."""

    baseline: References
    method: MethodLike

    def __call__(self, model: Any, x: Any, target: Any, references: Any, **options: Any) -> Any:
        return self.method(model, x, target, self.baseline, **options)


@dataclass(frozen=True)
class AtLayer:
    """A method on a network whose representation is taken from another layer."""

    layer: str
    method: MethodLike

    def __call__(self, model: Any, *args: Any, **options: Any) -> Any:
        layer = wrap(model.net, representation=self.layer).representation
        return self.method(replace(model, representation=layer), *args, **options)


# -- what is measured --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """Variants of a method on one experiment's samples."""

    about: str
    """In a few words, for the title of its table."""
    methods: Callable[[Experiment], Mapping[str, MethodLike]]
    """The rows of its table."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    """What is measured beside the metrics: those in `MEASURES` of the attribution itself, others by the experiment."""
    scored: bool = True
    """Whether the metrics are columns too."""
    ranked: bool = True
    """Whether all rows are of the same samples, so that their means can be compared."""
    varies: tuple[str, ...] = ()
    """Settings of the experiment that its rows do not use, since each has its own."""

    @property
    def curves(self) -> bool:
        """Whether the distance along the path is needed."""
        return DISTANCE in self.columns

    @property
    def timed(self) -> bool:
        """Whether only time is measured: then the work is done once before, while the device starts and finds its memory."""
        return SECONDS in self.columns and not self.scored

    def measure(self, attribution: Attribution) -> dict[str, Tensor]:
        """The columns of an attribution, each (n,)."""
        return {label: MEASURES[label](attribution) for label in self.columns if label in MEASURES}


def _residual(attribution: Attribution) -> Tensor:
    relative = attribution.relative_residual
    return torch.full((len(attribution),), torch.nan) if relative is None else relative


def _distance(attribution: Attribution) -> Tensor:
    curve = attribution.distance_curve
    if curve is None:  # of someone's own method
        return torch.full((len(attribution),), torch.nan)
    return (curve[..., -1] / curve[..., 0]).mean(dim=1)


def _arrival(attribution: Attribution) -> Tensor:
    if attribution.arrival is None:  # of someone's own method
        return torch.full((len(attribution),), torch.nan)
    return attribution.arrival.mean(dim=1)


def _seconds(attribution: Attribution) -> Tensor:
    assert attribution.cost is not None
    return torch.tensor([attribution.cost.seconds / len(attribution)], dtype=torch.float64)  # one number for the whole batch


def _count(name: str) -> Callable[[Attribution], Tensor]:
    def count(attribution: Attribution) -> Tensor:
        number = getattr(attribution.cost, name)
        return torch.tensor([torch.nan if number is None else number / len(attribution)], dtype=torch.float64)

    return count


RESIDUAL, DISTANCE, SECONDS, FORWARDS, GRADIENTS = "residual", "distance left", "seconds", "forwards", "gradients"
ARRIVAL = "arrival"
DIFFID, IDSDS = "DiffID", "IDSDS"
MEASURES: dict[str, Callable[[Attribution], Tensor]] = {
    RESIDUAL: _residual,
    DISTANCE: _distance,
    ARRIVAL: _arrival,
    SECONDS: _seconds,
    FORWARDS: _count(FORWARDS),
    GRADIENTS: _count(GRADIENTS),
}
COLUMNS = {
    RESIDUAL: Column("lower", digits=3, about="|Σφ − (f(x) − f(baseline))| as a share of that change of the output"),
    DISTANCE: Column(
        "lower", digits=3, about="between representations at the end of the path, as a share of that at its start"
    ),
    ARRIVAL: Column("higher", ranked=False, about="how far towards the goal paths came, as a share"),
    SECONDS: Column("lower", digits=4, about="for each sample, all of them explained in batches"),
    # shown, and not counted in ranks: they say much the same as ADD and DEL
    DIFFID: Column(
        "higher",
        ranked=False,
        about="how much more of the probability is left without the least features than without the most",
    ),
    IDSDS: Column(
        "higher",
        ranked=False,
        about="Spearman's correlation of the sums over 16 patches with what the output loses without each",
    ),
}


# -- the studies -------------------------------------------------------------------------------------------------------


def _rules(experiment: Experiment) -> Mapping[str, MethodLike]:
    complete = (rules.direct, rules.shared, rules.aligned, rules.tempered, rules.blended)
    labels = {
        "left, as published": rules.left,
        "trapezoid": rules.trapezoid,
        "gauss(4)": rules.gauss(4),
        "scaled(left)": rules.scaled(rules.left),
        **{str(rule): rule for rule in complete},
    }
    return {label: experiment.ig2(rule=rule) for label, rule in labels.items()}


def _distances(experiment: Experiment) -> Mapping[str, MethodLike]:
    measures: dict[str, dict[str, Any]] = {"Euclidean": {}, "cosine": {"distance": cosine}, "ℓ1": {"distance": manhattan}}
    return {label: experiment.ig2(**changed) for label, changed in measures.items()}


PERCENTILES = (90, 95, 97, 98, 98.5)


def _norms(experiment: Experiment) -> Mapping[str, MethodLike]:
    # every path is as long as the straight line to the reference, each in the norm of its steps
    norms = {f"ℓ1, percentile {percentile:g}": SparseL1(percentile) for percentile in PERCENTILES}
    sparse = {label: experiment.ig2(norm=norm, step_size=None) for label, norm in norms.items()}
    return {"ℓ2": experiment.ig2(step_size=None), **sparse}


def _layers(experiment: Experiment) -> Mapping[str, MethodLike]:
    return {layer: AtLayer(layer, experiment.ig2()) for layer in experiment.layers}


def _steps(experiment: Experiment) -> Mapping[str, MethodLike]:
    # around what was tried, not around what was chosen: the table that settings were chosen by can then be made again
    most, size = (experiment.steps if experiment.quick else experiment.tried[0]), experiment.tried[1]
    grid = [(max(1, round(most * share)), size * factor) for factor in (0.25, 0.5, 1, 2, 4) for share in (0.25, 1, 2)]
    labels = {f"{steps} steps of {length:.3g}": (steps, length) for steps, length in grid}
    if experiment.published is not None and not experiment.quick:
        steps, length = experiment.published
        labels[f"{steps} steps of {length:.3g}, as published"] = experiment.published
    return {label: experiment.ig2(steps=steps, step_size=length) for label, (steps, length) in labels.items()}


def _ablation(experiment: Experiment) -> Mapping[str, MethodLike]:
    straight, guided = ExpectedIG(experiment.straight), GuidedIG(experiment.guided)
    return {
        "straight, black": WithoutReferences(IntegratedGradients(experiment.straight)),
        "straight, train data": WithReferences("data", straight),
        "straight, references": straight,
        "straight, GradCF": AtGradCF(straight, experiment.path()),
        "guided, black": WithoutReferences(guided),
        "guided, train data": WithReferences("data", guided),
        "guided, references": guided,
        "guided, GradCF": AtGradCF(guided, experiment.path()),
        "GradPath, GradCF (IG²)": experiment.ig2(),
        "GradPath, GradCF (IG², left, as published)": experiment.ig2(rule=rules.left),
    }


def _cost(experiment: Experiment) -> Mapping[str, MethodLike]:
    return {label: method for label, method in experiment.compared_methods().items() if label != "Random"}


def _leaderboard(experiment: Experiment) -> Mapping[str, MethodLike]:
    return experiment.contenders()


BEYOND = 1e4  # a margin that no path reaches, so that all steps are taken


def _goals(experiment: Experiment) -> Mapping[str, MethodLike]:
    """IG² without references: to how many classes, and in which steps; on the test split the best."""
    size = 4 * (experiment.step_size or 1.0)
    chosen = {f"10 classes, 5 steps of {size:g}": FreeIG2(Rivals(margin=BEYOND), 5, size)}
    tried = {"10 classes": FreeIG2(), "1 class": FreeIG2(Rivals(1))}
    return chosen if experiment.split == "test" else {**chosen, **tried}


PATHS, FACTOR_RULES = ("straight", "GradPath"), (rules.left, rules.direct, rules.blended, rules.secant)
BASELINES = {"none": None, "data": DATA, "counterfactual": COUNTERFACTUAL}
FACTORS_OF = ("path", "rule", "references")
BETWEEN = " × "


def _factors(experiment: Experiment) -> Mapping[str, MethodLike]:
    """Every path with every rule and every kind of references; the scales are rows besides."""
    paths: dict[str, Path] = {"straight": Straight(experiment.straight), "GradPath": experiment.path()}
    rows: dict[str, MethodLike] = {}
    for (name, path), rule, (kind, references) in product(paths.items(), FACTOR_RULES, BASELINES.items()):
        method = PathMethod(path, None, rule)
        label = BETWEEN.join((name, str(rule), kind))
        rows[label] = (
            WithBaseline(experiment.no_reference, method) if references is None else WithReferences(references, method)
        )
    return rows


RULES = Study("integration rules", _rules, {RESIDUAL: COLUMNS[RESIDUAL]})
DISTANCES = Study("distances between representations", _distances)
NORMS = Study("norms of a step", _norms, varies=("step_size",))
LAYERS = Study("layers of the representation", _layers)
STEPS = Study("size and number of steps", _steps, {DISTANCE: COLUMNS[DISTANCE]}, varies=("steps", "step_size"))
ABLATION = Study("path × baseline", _ablation)
COST = Study("computational cost", _cost, {SECONDS: COLUMNS[SECONDS]}, scored=False)
LEADERBOARD = Study("every method", _leaderboard, {label: COLUMNS[label] for label in (DIFFID, IDSDS)} | COSTS)
GOALS = Study(
    "IG² without references",
    _goals,
    {ARRIVAL: COLUMNS[ARRIVAL], GRADIENTS: COSTS[GRADIENTS]},
    varies=("steps", "references"),
)
FACTORS = Study("path × rule × references", _factors)
EVERYWHERE: dict[str, Study] = {
    "rules": RULES,
    "distances": DISTANCES,
    "layers": LAYERS,
    "steps": STEPS,
    "ablation": ABLATION,
    "cost": COST,
    "leaderboard": LEADERBOARD,
}
