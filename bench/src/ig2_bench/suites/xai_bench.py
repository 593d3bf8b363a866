"""XAI-BENCH: networks on synthetic tables, and how well attributions know what their features do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ig2 import rules
from ig2._engine.explicands import check_numeric
from ig2._utils.checks import check_count, check_seed
from ig2.attribution import Attribution
from ig2.comparison import WithoutReferences
from ig2.errors import InputError, describe
from ig2.methods import IG2, DeepSHAP, ExpectedIG, GuidedIG, IntegratedGradients, KernelSHAP, Random
from ig2.metrics.base import Metric
from ig2.metrics.faithfulness import Faithfulness, Monotonicity
from ig2.metrics.gaussian import Distribution, Gaussian, Mixture
from ig2.metrics.infidelity import Infidelity
from ig2.metrics.shapley import GTShapley, conditional_shapley
from ig2.model import Model, wrap
from ig2.table import Column
from ig2_bench.datasets.synthetic import Data, Family, Labels, Synthetic
from ig2_bench.metrics.monotonicity import PublishedMonotonicity
from ig2_bench.metrics.roar import ROAR, Predict
from ig2_bench.networks.perceptron import PerceptronSettings, train_perceptrons
from ig2_bench.suite import BenchOptions, MethodLike, Suite, check_returned
from ig2_bench.suites.studies import WithReferences

FEATURES = 5
DATA = "data"  # references whatever their label


@dataclass(frozen=True)
class PreparedSeed:
    """One seed's data, network, references and truth; x holds the training samples first, then those that are scored."""

    data: Data
    model: Model
    x: Tensor  # (train + validation, d)
    others: Tensor  # for each of x its references, training samples on the other side, (train + validation, R, d)
    background: Tensor  # training samples, (R, d)
    shapley: Tensor  # of the validation samples, (validation, d)
    explaining: int  # the seed of the methods
    measuring: int  # and that of the metrics


@dataclass(frozen=True, eq=False, kw_only=True)
class XAIBench(Suite):
    """Methods compared on a network d-64-16-1 that predicts the label of synthetic samples.

    Each seed is one data set, one network, and one value of each metric: the mean over the validation samples. What is
    explained is the network's output. References are training samples: for IG² (and methods of your own) those whose label
    and output lie on the other side than the explicand's output, for Expected IG and DeepSHAP any, as many for each. IG,
    Guided IG and KernelSHAP start from zero, as in the paper, which is also the mean of the data.

    Args:
        seeds: how many, from `seed` on.
        family: the function behind the labels, see `ig2_bench.datasets.synthetic.Synthetic`.
        labels: "binary" (0 and 1, which the network regresses) or "regression".
        rho: the correlation between any two features.
        mixture: the features' distribution, instead of a Gaussian.
        train: how many samples the network is trained on.
        validation: how many are explained and scored.
        references: how many for each explicand.
        steps: how many GradPath takes; enough for nine in ten to come within a few percent of the reference's representation.
        step_size: their length.
        draws: how many samples of a conditional distribution are averaged.
        shapley_draws: the same for the true Shapley values.
        perturbations: how many infidelity averages.
        recipe: how networks are trained, the first and those of ROAR.
    """

    about: ClassVar[str] = "synthetic data of known distribution, so that importance has a truth"
    name: ClassVar[str] = "xai-bench"
    title: ClassVar[str] = "XAI-BENCH"
    unit: ClassVar[str] = "seed"

    seeds: int = 10
    family: Family = "piecewise"
    labels: Labels = "binary"
    rho: float = 0.0
    mixture: Mixture | None = None
    train: int = 1000
    validation: int = 100
    references: int = 10
    steps: int = 300
    step_size: float = 0.02
    draws: int = 100
    shapley_draws: int = 2000
    perturbations: int = 1000
    recipe: PerceptronSettings = PerceptronSettings()

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("seeds", "train", "validation", "references", "draws", "shapley_draws", "perturbations"):
            check_count(getattr(self, name), name)
        if self.mixture is not None and self.rho != 0:
            raise InputError(f"rho={self.rho!r} is for Gaussian features: a mixture has the correlations of its components")
        _checked = self.synthetic, self.methods()  # each part checks its own settings

    @property
    def distribution(self) -> Distribution:
        """Of the features."""
        return Gaussian.correlated(FEATURES, self.rho) if self.mixture is None else self.mixture

    @property
    def synthetic(self) -> Synthetic:
        """Where the samples come from."""
        return Synthetic(self.family, self.labels, self.distribution)

    @property
    def middle(self) -> float:
        """The output that parts the two sides."""
        return 0.5 if self.labels == "binary" else 0.0

    # -- the table -----------------------------------------------------------------------------------------------------

    @cached_property
    def _seeds(self) -> dict[str, int]:
        return {f"seed {seed}": seed for seed in range(self.seed, self.seed + self.seeds)}

    def parts(self) -> Sequence[str]:
        return list(self._seeds)

    def methods(self) -> Mapping[str, MethodLike]:
        return {
            "Random": Random(),
            "IG": WithoutReferences(IntegratedGradients()),
            "Guided IG": WithoutReferences(GuidedIG()),
            "Expected IG": WithReferences(DATA, ExpectedIG()),
            "DeepSHAP": WithReferences(DATA, DeepSHAP()),
            "KernelSHAP": WithoutReferences(KernelSHAP()),
            "IG² (left, as published)": IG2(self.steps, self.step_size, rules.left),
            "IG² (blended)": IG2(self.steps, self.step_size, rules.blended),
            "IG² (default settings)": IG2(),
            "IG² (shared)": IG2(self.steps, self.step_size, rules.shared),
            "IG² (aligned)": IG2(self.steps, self.step_size, rules.aligned),
            "IG² (trapezoid)": IG2(self.steps, self.step_size, rules.trapezoid),
        }

    def metrics(self) -> Mapping[str, Column]:
        drawn = f"{self.draws} draws"
        return {
            "faithfulness": Column(
                "higher", about=f"correlation of |φ| with |f(x) − E f(X | all features but one)|, {drawn} from the distribution"
            ),
            "monotonicity": Column(
                "higher",
                about=f"as features become known by increasing |φ|, the share of increments that do not shrink, {drawn}",
            ),
            "monotonicity (as published)": Column(
                "higher",
                about="as XAI-BENCH's published code has it, which orders the increments by the features' places in the table",
            ),
            "ROAR": Column("higher", about="area under |error| of networks trained again without the features of largest |φ|"),
            "GT-Shapley": Column(
                "higher", about=f"correlation with the Shapley values of E f(X | features known), {self.shapley_draws} draws"
            ),
            "infidelity": Column(
                "lower",
                digits=4,
                about=f"mean (Δf − β Σrφ)² for perturbations r that leave noise near zero, {self.perturbations} of them",
            ),
        }

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        if (self.family, self.labels, self.rho, self.mixture) != ("piecewise", "binary", 0.0, None):
            return {}
        columns = ("faithfulness", "monotonicity (as published)", "ROAR", "GT-Shapley", "infidelity")
        figures = {
            "Random": (-0.033, 0.458, 0.332, -0.060, 0.034),
            "IG": (0.349, 0.440, 0.356, 0.714, 0.015),
            "Guided IG": (0.342, 0.463, 0.359, 0.681, 0.021),
            "Expected IG": (0.596, 0.470, 0.365, 0.814, 0.014),
            "DeepSHAP": (0.380, 0.488, 0.357, 0.821, 0.014),
            "KernelSHAP": (0.370, 0.435, 0.340, 0.901, 0.015),
            "IG² (left, as published)": (0.610, 0.486, 0.377, 0.833, 0.021),
        }
        return {method: dict(zip(columns, values, strict=True)) for method, values in figures.items()}

    def describe_data(self) -> str:
        function = {
            "linear": "4x₁ + 3x₂ + 2x₃ + x₄",
            "additive": "sin x₁ + |x₂| + x₃² + exp(−x₄)",
            "piecewise": "a piecewise constant function of three of them",
        }[self.family]
        kind = "0 or 1 by the sign of" if self.labels == "binary" else "the normalised value of"
        if self.mixture is not None:
            features = f"a mixture of {len(self.mixture.means)} Gaussians of {FEATURES} features"
        else:
            features = f"{FEATURES} standard normal features, " + (f"correlated by {self.rho}" if self.rho else "independent")
        return f"{self.train} samples to train on and {self.validation} to explain, of {features}; labels are {kind} {function}"

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        if self.mixture is not None:
            parts = {name: getattr(self.mixture, name) for name in ("means", "covariances", "weights")}
            settings["mixture"] = {name: tensor.tolist() for name, tensor in parts.items() if tensor is not None}
        return settings

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in self.settings().items() if name != "seeds"}

    # -- the work ------------------------------------------------------------------------------------------------------

    def prepare(self, part: str) -> PreparedSeed:
        # seeds of their own for all that is drawn: with one for all, the first "draws" would be the training samples
        generator = torch.Generator().manual_seed(self._seeds[part])
        drawing, training, choosing, explaining, measuring = torch.randint(
            2**62, (5,), generator=generator, device="cpu"
        ).tolist()
        data = self.synthetic.draw(self.train, self.validation, drawing)
        nets = train_perceptrons(data.x[None], data.y[None], training, self.recipe)
        # in float64: ranks of features decide most metrics, and float32 turns some of them with the size of a batch
        dtype = torch.float32 if self.device.startswith("mps") else torch.float64
        model = wrap(nets.network().to(self.device, dtype))
        x = torch.cat([data.x, data.new_x])
        output = nets.predict(x[None])[0]
        order = torch.randperm(self.train, generator=torch.Generator().manual_seed(choosing), device="cpu")
        sides = (output > self.middle).long()
        agree = (data.y > self.middle).long() == sides[: self.train]
        pools = []
        for side in (0, 1):
            members = order[(agree & (sides[: self.train] == side))[order]]
            if len(members) < self.references:
                raise InputError(
                    f"{part}: {len(members)} training samples have label and output on the "
                    f"{'upper' if side else 'lower'} side, too few for {self.references} references: train the network longer"
                )
            pools.append(data.x[members[: self.references]])
        others = torch.stack(pools)[1 - sides]
        background = data.x[order[: self.references]]
        x, others, background = (tensor.to(self.device, dtype) for tensor in (x, others, background))
        truth = conditional_shapley(model, x[self.train :], self.distribution, draws=self.shapley_draws, seed=measuring)
        assert isinstance(truth, Tensor)
        return PreparedSeed(data, model, x, others, background, truth, explaining, measuring)

    def facts(self, part: str, prepared: PreparedSeed) -> Mapping[str, Sequence[float]]:
        """How well the network predicts."""
        with torch.no_grad():
            output = prepared.model.net(prepared.x)[:, 0].cpu().double()
        seen, new = output[: self.train], output[self.train :]
        errors = {"training": (seen - prepared.data.y), "validation": (new - prepared.data.new_y)}
        facts = {f"{name} mean squared error": [float(error.square().mean())] for name, error in errors.items()}
        if self.labels == "binary":
            facts["validation accuracy"] = [float(((new > self.middle) == (prepared.data.new_y > self.middle)).double().mean())]
        return facts

    def score(self, part: str, prepared: PreparedSeed, method: MethodLike) -> Mapping[str, Sequence[float]]:
        references = prepared.background if isinstance(method, WithReferences) else prepared.others
        target = torch.zeros(len(prepared.x), dtype=torch.long, device=prepared.x.device)
        # a copy: what someone's own method writes into its input must not reach the next one
        attribution = method(prepared.model, prepared.x.clone(), target, references, seed=prepared.explaining)
        check_returned(attribution, prepared.x)
        values = check_numeric(attribution.values if isinstance(attribution, Attribution) else attribution, "the attribution")
        if values.shape != prepared.x.shape:
            raise InputError(f"the attribution is {describe(values)}, expected {tuple(prepared.x.shape)}, the shape of x")
        seen, new = values[: self.train], values[self.train :]
        distribution, data, x = self.distribution, prepared.data, prepared.x.cpu().double()
        metrics: dict[str, Metric] = {
            "faithfulness": Faithfulness(distribution, self.draws),
            "monotonicity": Monotonicity(distribution, self.draws),
            "monotonicity (as published)": PublishedMonotonicity(distribution, self.draws),
            "infidelity": Infidelity(draws=self.perturbations),
        }
        scores = {
            name: metric(prepared.model, new, prepared.x[self.train :], 0, seed=prepared.measuring)
            for name, metric in metrics.items()
        }
        scores["GT-Shapley"] = GTShapley()(None, new, truth=prepared.shapley)
        roar = ROAR(self._retrain, distribution)
        scores["ROAR"] = roar(
            (x[: self.train], data.y, seen.cpu()), (x[self.train :], data.new_y, new.cpu()), seed=prepared.measuring
        )
        return {name: [score.mean] for name, score in scores.items()}

    def _retrain(self, x: Tensor, y: Tensor, seed: int) -> Predict:
        return train_perceptrons(x, y, seed, self.recipe).predict

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        options.check(cls.name, "seeds")
        common: dict[str, Any] = {"seed": options.seed, "quick": options.quick, "device": options.device}
        if not options.quick:
            return cls(seeds=options.seeds or 10, **common)
        return cls(
            seeds=options.seeds or 2,
            train=200,
            validation=20,
            references=3,
            steps=40,
            step_size=0.1,
            draws=20,
            shapley_draws=100,
            perturbations=100,
            recipe=PerceptronSettings(epochs=40, batch=50),
            **common,
        )
