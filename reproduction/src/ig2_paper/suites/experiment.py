"""What the paper's experiments share: samples of a data set, a network, references, and the metrics that score both."""

from __future__ import annotations

import hashlib
import time
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2 import rules
from ig2._utils.checks import check_seed, is_count
from ig2.attribution import Attribution
from ig2.benchmarks.suite import (
    BenchOptions,
    ChoiceError,
    Column,
    Half,
    MethodLike,
    Shows,
    Suite,
    WithoutReferences,
    check_returned,
)
from ig2.benchmarks.table import EACH
from ig2.errors import IG2Warning, InputError, describe
from ig2.methods import IG2, DeepSHAP, ExpectedIG, Gradient, GuidedIG, IntegratedGradients, KernelSHAP, Random
from ig2.methods.base import Method
from ig2.methods.kernelshap import Groups
from ig2.metrics.base import Metric
from ig2.metrics.curves import Deletion, Insertion, OutputOption
from ig2.metrics.localisation import GTAUC, GTSum
from ig2.model import Model
from ig2.paths import GradPath
from ig2.references.choice import choose_other_classes, round_robin
from ig2_paper.datasets.base import Samples, feed
from ig2_paper.networks import Network
from ig2_paper.suites.studies import SECONDS, Against, Study
from ig2_paper.training import accuracy

OTHERS, DATA = "others", "data"  # counterfactual references, and samples whatever their class
# Settings of a small run, to see that it runs
QUICK = {"samples": 3, "references": 2, "steps": 3, "guided": 3, "straight": 3, "coalitions": 200, "thresholds": 5}


@dataclass(frozen=True, eq=False)
class References:
    """Samples to contrast with, and which of them each explicand has."""

    samples: Tensor
    """(M, ...), in the model's space."""
    rows: Tensor
    """For each explicand the numbers of its own, (N, R)."""

    def of(self, some: slice) -> Tensor:
        """Of some explicands, (n, R, ...)."""
        return self.samples[self.rows[some].to(self.samples.device)]


@dataclass(frozen=True, eq=False)
class Opened:
    """An experiment's explicands, with all that is needed to explain and to score them."""

    model: Model
    x: Tensor
    """Explicands in the model's space, (N, ...)."""
    target: Tensor
    """The class or label explained, (N,)."""
    references: Mapping[str, References]
    """By name: "others" and "data", and those of the studies."""
    truth: Tensor | None = None
    """1 on what matters, 0 beside it, −1 where it is left open, (N, H, W); None where nobody knows."""
    names: tuple[str, ...] = ()
    facts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What is to be known of the data and the network, such as its accuracy, by label."""
    fixed: tuple[Any, ...] = ()
    """What the network is called with beside x, each (N, ...), such as the mask of a text."""

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True, eq=False, kw_only=True)
class Experiment(Suite):
    """The paper's comparison of methods on one data set, and the studies made on it.

    Explained are samples that the network has not seen and is right about, a half of them to choose settings on and a half to
    report, as many of each class as there are. Each is one value of every metric.

    Args:
        study: the name of one of `studies`, instead of the comparison of methods.
        half: which half of the samples.
        samples: how many are explained.
        references: how many for each explicand.
        steps: how many GradPath takes.
        step_size: their length in the space of the data.
        guided: how many steps Guided IG takes.
        straight: how many gradients IG and Expected IG take.
        coalitions: how many of KernelSHAP, for each explicand.
        thresholds: how many steps the curves of ADD and DEL have.
    """

    dataset: ClassVar[str]
    """Its name on the command line."""
    heading: ClassVar[str]
    """Above its tables."""
    version: ClassVar[int] = 2
    unit: ClassVar[str] = "sample"
    shows: ClassVar[Shows] = "se"
    studies: ClassVar[Mapping[str, Study]] = {}
    """Those that make sense on this data, by name."""
    layers: ClassVar[tuple[str, ...]] = ()
    """Where the representation may be taken, from the first layers to the last; as `ig2.wrap` takes them."""
    marked: ClassVar[bool] = True
    """Whether it is known what matters; GT-AUC and GT-SUM are columns only then."""
    tried: ClassVar[tuple[int, float]]
    """The middle of the settings among which the number of steps and their length were chosen."""
    published: ClassVar[tuple[int, float] | None] = None
    """The paper's number of steps and their length, in our space of the data."""
    chosen_on: ClassVar[str] = "the other"
    """Where the number of steps and their length were chosen; empty if nowhere."""
    background: ClassVar[str] = "black"
    """What features are added to and replaced by."""
    probability: ClassVar[OutputOption] = "auto"
    """What ADD and DEL show, as `Insertion` takes its output."""
    per_part: ClassVar[int] = 50  # few enough to resume, enough to fill a GPU

    data: Path | None = field(default=None, repr=False)
    study: str | None = None
    half: Half = "report"
    samples: int = 100
    references: int = 10
    steps: int = 100
    step_size: float | None = None
    guided: int = 200
    straight: int = 50
    coalitions: int = 2048
    thresholds: int = 50

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("samples", "references", "guided", "straight", "coalitions", "thresholds"):
            if not is_count(getattr(self, name)):
                raise InputError(f"{name} must be a whole number from 1 on, got {describe(getattr(self, name))}")
        if self.study is not None and self.study not in self.studies:
            raise ChoiceError(f"{self.dataset} has no study {describe(self.study)}: choose from {', '.join(self.studies)}")
        named = self.dataset if self.study is None else f"{self.dataset}-{self.study}"
        named += "-choose" if self.half == "choose" else ""
        object.__setattr__(self, "name", named)
        title = self.heading if self.study is None else f"{self.heading}: {self.studies[self.study].about}"
        object.__setattr__(self, "title", title)
        if self.study is not None and self.studies[self.study].timed:
            object.__setattr__(self, "unit", "batch")
        _checked = self.methods()  # each looks at its own settings

    # -- what each data set says ---------------------------------------------------------------------------------------

    @cached_property
    @abstractmethod
    def loaded(self) -> Any:
        """The data, read or made once; the network is not needed for it."""

    @abstractmethod
    def open(self) -> Opened:
        """The explicands of the half, the network trained for them, their references and truth."""

    def groups(self) -> Groups | Tensor | None:
        """What KernelSHAP takes together."""
        return None

    # -- what stands in the table --------------------------------------------------------------------------------------

    @cached_property
    def opened(self) -> Opened:
        """What `open` gives, once."""
        return self.open()

    def parts(self) -> Sequence[str]:
        starts = range(0, self.samples, self.per_part)
        return [f"samples {start + 1}–{min(start + self.per_part, self.samples)}" for start in starts]

    def methods(self) -> Mapping[str, MethodLike]:
        return self.compared() if self.study is None else self.studies[self.study].methods(self)

    def compared(self) -> Mapping[str, MethodLike]:
        """The methods of the paper's table, and ours.

        As in the paper, Expected IG and DeepSHAP contrast with the references of IG²; beside them with samples of any class,
        as they were first published.
        """
        return {
            "Random": Random(),
            "Gradient": Gradient(),
            "IG": WithoutReferences(IntegratedGradients(self.straight)),
            "Guided IG": WithoutReferences(GuidedIG(self.guided)),
            "Expected IG": ExpectedIG(self.straight),
            "Expected IG (train data)": Against(DATA, ExpectedIG(self.straight)),
            "DeepSHAP": DeepSHAP(),
            "DeepSHAP (train data)": Against(DATA, DeepSHAP()),
            "KernelSHAP": WithoutReferences(KernelSHAP(self.groups(), self.coalitions)),
            "IG² (left, as published)": self.ig2(rule=rules.left),
            "IG² (shared)": self.ig2(rule=rules.shared),
            "IG² (aligned)": self.ig2(rule=rules.aligned),
            "IG² (blended)": self.ig2(rule=rules.blended),
        }

    def ig2(self, **changed: Any) -> IG2:
        """IG² with the experiment's settings, or others."""
        return IG2(**{"steps": self.steps, "step_size": self.step_size, **changed})

    def path(self) -> GradPath:
        """GradPath with the experiment's settings."""
        return GradPath(self.steps, self.step_size)

    def metrics(self) -> Mapping[str, Column]:
        study = None if self.study is None else self.studies[self.study]
        scored = {} if study is not None and not study.scored else self.columns()
        return {**scored, **(study.columns if study is not None else {})}

    def columns(self) -> Mapping[str, Column]:
        """The metrics of every table."""
        over = f"features replaced by a {self.background} background"
        known = {
            "GT-AUC": Column(
                "higher", about="area under the ROC curve of the positive attribution as a score of the marked area"
            ),
            "GT-SUM": Column("higher", about="the share of the positive attribution that lies on the marked area"),
        }
        return {
            **(known if self.marked else {}),
            "ADD": Column("higher", about=f"area under the probability as features are added by attribution; {over}"),
            "DEL": Column("lower", about=f"the same as they are deleted; {over}"),
        }

    def describe_data(self) -> str:
        # the halves of another seed are others
        chosen = self.data is not None and self.seed == 0 and not self.quick and self.chosen_on
        where = f"; settings were chosen on {self.chosen_on}" if chosen else ""
        halves = {
            "choose": "from the half that settings are chosen on",
            "report": f"from the half that is reported{where}",
        }
        rule = "" if self.study in (None, "rules", "cost") else f". The rule of IG² is {IG2().rule}"
        return f"{self.source()}. Explained are samples the network is right about, {halves[self.half]}{rule}"

    def source(self) -> str:
        """Which data, in a sentence without its point."""
        loaded = self.loaded
        assert isinstance(loaded, tuple) and isinstance(loaded[0], Samples)
        return loaded[0].source

    @property
    def ranked(self) -> bool:
        return self.study is None or self.studies[self.study].ranked

    def settings(self) -> dict[str, Any]:
        varied = () if self.study is None else self.studies[self.study].varies
        return {name: value for name, value in super().settings().items() if name not in varied}

    def digest_data(self) -> str:
        parts = [part.digest() for part in self.loaded if part is not None]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:24]

    def digest_network(self) -> str:
        found = hashlib.sha256()
        for value in self.opened.model.net.state_dict().values():
            feed(found, value)
        return found.hexdigest()[:24]

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in self.settings().items() if name != "samples"}

    # -- the work ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if self.samples > len(self.opened):
            raise InputError(
                f"there are {len(self.opened)} samples to explain in the half {describe(self.half)}, asked for are "
                f"{self.samples}: ask for fewer (--samples), or give more data"
            )

    def prepare(self, part: str) -> slice:
        start, _, stop = part.removeprefix("samples ").partition("–")
        return slice(int(start) - 1, int(stop))

    def facts(self, part: str, prepared: slice) -> Mapping[str, Sequence[float]]:
        """The network's accuracy and the like, with the first part."""
        return self.opened.facts if prepared.start == 0 else {}

    def score(self, part: str, prepared: slice, method: MethodLike) -> Mapping[str, Sequence[float]]:
        study = None if self.study is None else self.studies[self.study]
        # a method of someone's need not know the option
        curves = study is not None and study.curves and isinstance(method, Method) and method.follows_paths
        if study is not None and study.timed:
            self.explained(prepared, method)
        began = time.perf_counter()
        found = self.explained(prepared, method, **({"curves": True} if curves else {}))
        scores: dict[str, Tensor] = {}
        if study is not None and isinstance(found, Attribution):
            scores |= study.measured(found)
        elif study is not None and study.timed:
            if self.opened.x.is_cuda:
                torch.cuda.synchronize()
            scores[SECONDS] = torch.tensor([(time.perf_counter() - began) / len(self.opened.target[prepared])])
        if study is None or study.scored:
            scores |= self.scored(found, prepared)
        return {label: values.tolist() for label, values in scores.items()}

    def explained(self, some: slice, method: MethodLike, **options: Any) -> Any:
        """What a method makes of some explicands."""
        opened = self.opened
        references = opened.references[method.references if isinstance(method, Against) else OTHERS].of(some)
        x = self.explicand(some)
        found = method(opened.model, x, opened.target[some], references, seed=self.seed, **options)
        check_returned(found, x)
        return found

    def explicand(self, some: slice) -> Any:
        """What a method is called with, for some explicands.

        It is a copy: what a method of someone's writes into its input must not reach the next one.
        """
        return self.opened.x[some].clone()

    def scored(self, found: Any, some: slice) -> dict[str, Tensor]:
        """Every metric of an attribution of some explicands, by its label, each (n,)."""
        opened = self.opened
        made: dict[str, Metric] = {
            "ADD": Insertion(self.background, self.thresholds, output=self.probability),
            "DEL": Deletion(self.background, self.thresholds, output=self.probability),
        }
        x = None if isinstance(found, Attribution) else self.explicand(some)
        target = None if isinstance(found, Attribution) else opened.target[some]
        scores = {label: metric(opened.model, found, x, target, seed=self.seed) for label, metric in made.items()}
        if opened.truth is not None:
            truth = opened.truth[some]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IG2Warning)  # where nothing is marked: the table counts these itself
                scores["GT-AUC"] = GTAUC()(None, found, truth=truth)
                scores["GT-SUM"] = GTSum()(None, found, truth=truth)
        return {label: score.values for label, score in scores.items()}


# -- choosing samples --------------------------------------------------------------------------------------------------


def half_of(test: Samples, half: Half, seed: int) -> Samples:
    """One of two seeded halves, of each class a half."""
    choose, report = test.split(0.5, seed=seed)
    return choose if half == "choose" else report


def in_turns(y: Tensor, eligible: Tensor, count: int, seed: int) -> list[int]:
    """The numbers of so many eligible samples, a seeded choice in which every class gives one before any gives two.

    Of a larger count these are the first.
    """
    return round_robin(y, seed, eligible)[:count]


def same_for_all(samples: Tensor, explicands: int) -> References:
    """The same references for every explicand."""
    return References(samples, torch.arange(len(samples)).expand(explicands, -1))


def of_other_classes(target: Tensor, classes: Tensor, count: int, seed: int) -> Tensor:
    """For each explicand the numbers of so many samples of other classes, one of each before two of any, (N, count).

    Args:
        target: the class of each explicand, (N,).
        classes: those of the samples that there are to contrast with.
        count: how many for each explicand.
        seed: of the choice, which is another one for each explicand.
    """
    return choose_other_classes(target, classes, count, seed)


def accuracy_facts(net: Network, test: Samples) -> dict[str, list[float]]:
    """How often the network is right, over all samples and by class or label."""
    found = accuracy(net, test)
    return {"accuracy": [found["overall"]], **{f"{EACH}{name}": [value] for name, value in found["each"].items()}}


def options_of(options: BenchOptions, suite: type[Experiment]) -> dict[str, Any]:
    """What a person chose, as the experiment's settings."""
    options.check(suite.dataset, "data", "samples", "study", "half")
    found: dict[str, Any] = {name: getattr(options, name) for name in ("seed", "quick", "device", "data", "study")}
    found |= {name: getattr(options, name) for name in ("samples", "half") if getattr(options, name) is not None}
    return found
