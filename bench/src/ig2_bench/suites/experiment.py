"""What the paper's experiments share: samples of a data set, a network, references, and the metrics that score both."""

from __future__ import annotations

import hashlib
import time
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ig2 import rules
from ig2._utils.checks import check_count, check_seed
from ig2.attribution import Attribution
from ig2.comparison import WithoutReferences
from ig2.errors import IG2Warning, InputError, describe
from ig2.groups import Groups
from ig2.methods import IG2, DeepSHAP, ExpectedIG, Gradient, GuidedIG, IntegratedGradients, KernelSHAP, Random
from ig2.methods.base import Method
from ig2.metrics import removal
from ig2.metrics.base import Metric
from ig2.metrics.curves import Deletion, DiffID, Insertion, OutputOption
from ig2.metrics.localisation import GTAUC, GTSum
from ig2.model import Model
from ig2.paths import GradPath
from ig2.references import BlurredExplicand, References, Zeros
from ig2.references.choice import round_robin
from ig2.table import Column, Shows
from ig2_bench.board.roster import Conditions, build_roster
from ig2_bench.datasets.base import LabelledSamples, update_digest
from ig2_bench.networks.base import SampleNetwork
from ig2_bench.networks.training import measure_accuracy, predict
from ig2_bench.suite import AtScale, BenchOptions, ChoiceError, MethodLike, Split, Suite, check_returned
from ig2_bench.suites.studies import COUNTERFACTUAL as COUNTERFACTUAL
from ig2_bench.suites.studies import DATA as DATA
from ig2_bench.suites.studies import DIFFID, IDSDS, SECONDS, Study, WithReferences
from ig2_bench.table import EACH

QUICK = {"samples": 3, "references": 2, "steps": 3, "guided": 3, "straight": 3, "coalitions": 200, "thresholds": 5}
"""Settings of a small run, to see that it runs."""


@dataclass(frozen=True, eq=False)
class AssignedReferences:
    """Reference samples, and which of them belong to each explicand."""

    samples: Tensor
    """(M, ...), in the model's space."""
    rows: Tensor
    """For each explicand the indices of its own, (N, R)."""

    @classmethod
    def same_for_all(cls, samples: Tensor, explicands: int) -> Self:
        """The same references for every explicand."""
        return cls(samples, torch.arange(len(samples)).expand(explicands, -1))

    def select(self, explicands: slice) -> Tensor:
        """The references of these explicands, (n, R, ...)."""
        return self.samples[self.rows[explicands].to(self.samples.device)]


@dataclass(frozen=True, eq=False)
class ExplicandSet:
    """An experiment's explicands, with all that is needed to explain and to score them."""

    model: Model
    x: Tensor
    """Explicands in the model's space, (N, ...)."""
    target: Tensor
    """The class or label explained, (N,)."""
    references: Mapping[str, AssignedReferences]
    """By name: "counterfactual" and "data", and those of the studies."""
    truth: Tensor | None = None
    """1 on what matters, 0 beside it, −1 where it is undecided, (N, H, W); None where nothing is marked."""
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

    The explicands are samples that the network has not seen and classifies correctly, as many of each class as there are. The
    samples are divided into a validation split, on which settings are chosen, and a test split, which is reported. Each sample
    is one value of every metric.

    Args:
        study: the name of one of `studies`, instead of the comparison of methods.
        split: "validation" or "test".
        samples: how many are explained.
        references: how many for each explicand.
        steps: how many GradPath takes.
        step_size: their length in the space of the data.
        guided: how many steps Guided IG takes.
        straight: how many gradients IG and Expected IG take.
        coalitions: how many of KernelSHAP, for each explicand.
        thresholds: how many steps the curves of ADD and DEL have.
        skip: how many of the samples are not explained, from the first on.
    """

    dataset: ClassVar[str]
    """Its name on the command line."""
    heading: ClassVar[str]
    """Above its tables."""
    version: ClassVar[int] = 3
    shows: ClassVar[Shows] = "se"
    studies: ClassVar[Mapping[str, Study]] = {}
    """Those that make sense on this data, by name."""
    marked: ClassVar[bool] = True
    """Whether it is known what matters; GT-AUC and GT-SUM are columns only then."""
    tried: ClassVar[tuple[int, float]]
    """The middle of the settings among which the number of steps and their length were chosen."""
    published: ClassVar[tuple[int, float] | None] = None
    """The paper's number of steps and their length, in our space of the data."""
    background: ClassVar[str] = "black"
    """What features are added to and replaced by."""
    spatial: ClassVar[bool] = True
    """Whether maps can be blurred."""
    probability: ClassVar[OutputOption] = "auto"
    """What ADD and DEL show, as `Insertion` takes its output."""
    per_part: ClassVar[int] = 50  # few enough to resume, enough to fill a GPU
    paper_columns: ClassVar[tuple[str, ...]] = ("GT-AUC", "GT-SUM", "ADD", "DEL")
    paper_scores: ClassVar[Mapping[str | None, Mapping[str, tuple[float, ...]]]] = {}
    """The paper's figures by study and method, in the order of `paper_columns`; of the study "cost", seconds."""

    data: Path | None = field(default=None, repr=False)
    study: str | None = None
    split: Split = "test"
    samples: int = 100
    references: int = 10
    steps: int = 100
    step_size: float | None = None
    guided: int = 200
    straight: int = 50
    coalitions: int = 2048
    thresholds: int = 50
    skip: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("samples", "references", "guided", "straight", "coalitions", "thresholds"):
            check_count(getattr(self, name), name)
        if self.study is not None and self.study not in self.studies:
            raise ChoiceError(f"{self.dataset} has no study {describe(self.study)}: choose from {', '.join(self.studies)}")
        self.methods()  # each checks its own settings

    # -- what each data set defines ------------------------------------------------------------------------------------

    @cached_property
    @abstractmethod
    def loaded(self) -> Any:
        """The data, read or made once; the network is not needed for it."""

    @abstractmethod
    def prepare_explicands(self) -> ExplicandSet:
        """The explicands of the split, the network trained for them, their references and truth."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Where the representation may be taken, from the first layers to the last; as `ig2.wrap` takes them."""
        return ()

    @property
    def chosen_on(self) -> str:
        """Where the number of steps and their length were chosen; empty if nowhere."""
        return "the validation split"

    def groups(self) -> Groups | Tensor | None:
        """The features that KernelSHAP takes together."""
        return None

    @classmethod
    def defaults(cls, options: BenchOptions) -> dict[str, Any]:
        """Settings that differ from those of the class in a quick run, or without a folder of data."""
        return dict(QUICK) if options.quick else {}

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        options.check(cls.dataset, "data", "samples", "study", "split", *(("scales",) if cls.spatial else ()))
        chosen = {name: getattr(options, name) for name in ("seed", "quick", "device", "data", "study", "scales")}
        chosen |= {name: value for name in ("samples", "split") if (value := getattr(options, name)) is not None}
        return cls(**{**cls.defaults(options), **chosen})

    # -- the table -----------------------------------------------------------------------------------------------------

    @property
    def stem(self) -> str:
        """How the names of its tables begin."""
        return self.dataset

    @property
    def name(self) -> str:  # type: ignore[override]
        # tables on the validation split were first stored as those "to choose on", and keep their names
        parts = (self.stem, self.study, "choose" if self.split == "validation" else None)
        return "-".join(part for part in parts if part)

    @property
    def title(self) -> str:  # type: ignore[override]
        return self.heading if self._study is None else f"{self.heading}: {self._study.about}"

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "batch" if self._study is not None and self._study.timed else "sample"

    @property
    def _study(self) -> Study | None:
        return None if self.study is None else self.studies[self.study]

    @cached_property
    def explicands(self) -> ExplicandSet:
        """What `prepare_explicands` returns, made once."""
        return self.prepare_explicands()

    @cached_property
    def _slices(self) -> dict[str, slice]:
        starts = range(self.skip, self.samples, self.per_part)
        slices = [slice(start, min(start + self.per_part, self.samples)) for start in starts]
        return {f"samples {rows.start + 1}–{rows.stop}": rows for rows in slices}

    def parts(self) -> Sequence[str]:
        return list(self._slices)

    def methods(self) -> Mapping[str, MethodLike]:
        return self.compared_methods() if self._study is None else self._study.methods(self)

    def compared_methods(self) -> Mapping[str, MethodLike]:
        """The methods of the paper's table, and ours.

        As in the paper, Expected IG and DeepSHAP take the references of IG²; beside them samples of any class, as they were
        first published.
        """
        return {
            "Random": Random(),
            "Gradient": Gradient(),
            "IG": WithoutReferences(IntegratedGradients(self.straight)),
            "Guided IG": WithoutReferences(GuidedIG(self.guided)),
            "Expected IG": ExpectedIG(self.straight),
            "Expected IG (train data)": WithReferences(DATA, ExpectedIG(self.straight)),
            "DeepSHAP": DeepSHAP(),
            "DeepSHAP (train data)": WithReferences(DATA, DeepSHAP()),
            "KernelSHAP": WithoutReferences(KernelSHAP(self.groups(), self.coalitions)),
            "IG² (left, as published)": self.ig2(rule=rules.left),
            "IG² (shared)": self.ig2(rule=rules.shared),
            "IG² (aligned)": self.ig2(rule=rules.aligned),
            "IG² (blended)": self.ig2(rule=rules.blended),
        }

    def contenders(self) -> Mapping[str, MethodLike]:
        """The methods of the leaderboard."""
        return build_roster(self.conditions())

    def conditions(self) -> Conditions:
        """What the methods of the leaderboard need to know of this data."""
        names = ("steps", "step_size", "references", "straight", "guided", "coalitions")
        shared = {name: getattr(self, name) for name in names}
        # labels that do not exclude each other are no classes
        return Conditions(**shared, images=self.spatial, classes=self.probability != "sigmoid", groups=self.groups())

    @property
    def no_reference(self) -> References:
        """What stands for no reference at all."""
        return BlurredExplicand() if self.background == "blurred" else Zeros()

    def ig2(self, **changes: Any) -> IG2:
        """IG² with the experiment's settings, or others."""
        return IG2(**{"steps": self.steps, "step_size": self.step_size, **changes})

    def path(self) -> GradPath:
        """GradPath with the experiment's settings."""
        return GradPath(self.steps, self.step_size)

    def metrics(self) -> Mapping[str, Column]:
        study = self._study
        return self.columns() if study is None else {**(self.columns() if study.scored else {}), **study.columns}

    def columns(self) -> Mapping[str, Column]:
        """The metrics of every table."""
        over = f"features replaced by a {self.background} background"
        marked = {
            "GT-AUC": Column(
                "higher", about="area under the ROC curve of the positive attribution as a score of the marked area"
            ),
            "GT-SUM": Column("higher", about="the share of the positive attribution that lies on the marked area"),
        }
        return {
            **(marked if self.marked else {}),
            "ADD": Column("higher", about=f"area under the probability as features are added by attribution; {over}"),
            "DEL": Column("lower", about=f"the same as they are deleted; {over}"),
        }

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        columns = (SECONDS,) if self.study == "cost" else self.paper_columns
        scores = self.paper_scores.get(self.study, {})
        return {method: dict(zip(columns, values, strict=True)) for method, values in scores.items()}

    def describe_data(self) -> str:
        # the splits of another seed are others
        tuned = self.split == "test" and self.data is not None and self.seed == 0 and not self.quick and self.chosen_on
        tuning = f"; settings were chosen on {self.chosen_on}" if tuned else ""
        rule = "" if self.study in (None, "rules", "cost", "leaderboard", "factors") else f". The rule of IG² is {IG2().rule}"
        return f"{self.source()}. The explicands are correctly classified samples from the {self.split} split{tuning}{rule}"

    def source(self) -> str:
        """Which data, in a sentence without its full stop."""
        loaded = self.loaded
        assert isinstance(loaded, tuple) and isinstance(loaded[0], LabelledSamples)
        return loaded[0].source

    @property
    def ranked(self) -> bool:
        return self._study is None or self._study.ranked

    def settings(self) -> dict[str, Any]:
        varied = () if self._study is None else self._study.varies
        return {name: value for name, value in super().settings().items() if name not in varied}

    def digest_data(self) -> str:
        parts = [part.digest() for part in self.loaded if part is not None]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:24]

    def digest_network(self) -> str:
        digest = hashlib.sha256()
        for value in self.explicands.model.net.state_dict().values():
            update_digest(digest, value)
        return digest.hexdigest()[:24]

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in self.settings().items() if name != "samples"}

    # -- the work ------------------------------------------------------------------------------------------------------

    def skip_samples(self, count: int) -> Self | None:
        return replace(self, skip=count) if count < self.samples else None

    def check(self) -> None:
        if self.samples > len(self.explicands):
            raise InputError(
                f"there are {len(self.explicands)} samples to explain in the {self.split} split, asked for are "
                f"{self.samples}: ask for fewer (--samples), or give more data"
            )

    def prepare(self, part: str) -> slice:
        return self._slices[part]

    def facts(self, part: str, prepared: slice) -> Mapping[str, Sequence[float]]:
        """The network's accuracy and the like, with the first part."""
        return self.explicands.facts if prepared.start == 0 else {}

    def score(self, part: str, prepared: slice, method: MethodLike) -> Mapping[str, Sequence[float]]:
        study = self._study
        # someone's own method need not know the option
        raw = method.method if isinstance(method, AtScale) else method
        curves = study is not None and study.curves and isinstance(raw, Method) and raw.follows_paths
        if study is not None and study.timed:
            self.attribute(prepared, method)
        began = time.perf_counter()
        attribution = self.attribute(prepared, method, **({"curves": True} if curves else {}))
        scores: dict[str, Tensor] = {}
        if study is not None and isinstance(attribution, Attribution):
            scores |= study.measure(attribution)
        elif study is not None and SECONDS in study.columns:
            if self.explicands.x.is_cuda:
                torch.cuda.synchronize()
            scores[SECONDS] = torch.tensor([(time.perf_counter() - began) / len(self.explicands.target[prepared])])
        if study is None or study.scored:
            scores |= self.score_attribution(attribution, prepared)
        return {label: values.tolist() for label, values in scores.items()}

    def attribute(self, rows: slice, method: MethodLike, **options: Any) -> Any:
        """What a method returns for these explicands; computed once for all its scales, which come one after the other."""
        if isinstance(method, AtScale):
            return method.blur(self.attribute(rows, method.method, **options))
        call = (rows, method, options)
        if self._last and self._last[0] == call:
            return self._last[1]
        explicands = self.explicands
        references = explicands.references[reference_name(method)].select(rows)
        x = self.method_input(rows)
        attribution = method(explicands.model.exchange(), x, explicands.target[rows], references, seed=self.seed, **options)
        check_returned(attribution, x)
        if not (self._study is not None and self._study.timed):
            self._last[:] = [call, attribution]
        return attribution

    @cached_property
    def _last(self) -> list[Any]:
        """The last call and what it returned, for the method's other scales."""
        return []

    def method_input(self, rows: slice) -> Any:
        """What a method is called with for these explicands.

        It is a copy: what someone's own method writes into its input must not reach the next one.
        """
        return self.explicands.x[rows].clone()

    def score_attribution(self, attribution: Any, rows: slice) -> dict[str, Tensor]:
        """Every metric of an attribution of these explicands, by its label, each (n,)."""
        explicands = self.explicands
        metrics: dict[str, Metric] = {
            "ADD": Insertion(self.background, self.thresholds, output=self.probability),
            "DEL": Deletion(self.background, self.thresholds, output=self.probability),
        }
        further: dict[str, Metric] = {
            DIFFID: DiffID(self.background, output=self.probability, measure="output"),
            IDSDS: removal.IDSDS(self.background),
        }
        metrics |= {label: metric for label, metric in further.items() if self._study and label in self._study.columns}
        is_tensor = not isinstance(attribution, Attribution)
        x, target = (self.method_input(rows), explicands.target[rows]) if is_tensor else (None, None)
        scores = {label: metric(explicands.model, attribution, x, target, seed=self.seed) for label, metric in metrics.items()}
        if explicands.truth is not None:
            truth = explicands.truth[rows]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IG2Warning)  # where nothing is marked: the table counts these itself
                scores["GT-AUC"] = GTAUC()(None, attribution, truth=truth)
                scores["GT-SUM"] = GTSum()(None, attribution, truth=truth)
        return {label: score.values for label, score in scores.items()}

    # -- choosing samples ----------------------------------------------------------------------------------------------

    def choose_explicands(self, net: SampleNetwork, test: LabelledSamples, excluded: int | None = None) -> LabelledSamples:
        """As many samples of the split as are asked for that the network classifies correctly, none of the excluded class."""
        split = take_split(test, self.split, self.seed)
        correct = predict(net, split).argmax(dim=1) == split.y
        eligible = correct if excluded is None else correct & (split.y != excluded)
        return split[round_robin(split.y, self.seed, eligible)[: self.samples]]


def reference_name(method: MethodLike) -> str:
    """The name of the references that a method takes."""
    method = method.method if isinstance(method, AtScale) else method
    return method.references if isinstance(method, WithReferences) else COUNTERFACTUAL


def take_split(test: LabelledSamples, split: Split, seed: int) -> LabelledSamples:
    """One of two seeded halves, each with half of every class."""
    return test.split(0.5, seed=seed)[0 if split == "validation" else 1]


def select_correct(net: SampleNetwork, samples: LabelledSamples) -> LabelledSamples:
    """The samples that the network classifies correctly."""
    return samples[predict(net, samples).argmax(dim=1) == samples.y]


def accuracy_facts(net: SampleNetwork, test: LabelledSamples) -> dict[str, list[float]]:
    """How often the network is right, over all samples and by class or label."""
    accuracy = measure_accuracy(net, test)
    return {"accuracy": [accuracy["overall"]], **{f"{EACH}{name}": [value] for name, value in accuracy["each"].items()}}
