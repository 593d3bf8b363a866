"""Questions by the kind of answer they ask for: the paper's TextCNN, and questions of the other kinds as references."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ig2._utils.files import check_regular
from ig2.attribution import Attribution
from ig2.demo.questions import PAD
from ig2.errors import InputError, describe
from ig2.groups import Groups
from ig2.inputs import Fixed
from ig2.methods.deepshap import DeepSHAP
from ig2.methods.path import PathMethod
from ig2.metrics.base import Metric
from ig2.metrics.curves import Deletion, DiffID, Insertion
from ig2.model import wrap
from ig2.references import round_robin
from ig2.table import Column
from ig2_bench.board.roster import AtGradCF
from ig2_bench.datasets import trec
from ig2_bench.datasets.base import LabelledSamples, choose_other_classes
from ig2_bench.networks.base import SampleNetwork
from ig2_bench.networks.questions import QuestionCNN
from ig2_bench.networks.training import train_network
from ig2_bench.suite import BenchOptions, MethodLike
from ig2_bench.suites.experiment import (
    COUNTERFACTUAL,
    DATA,
    AssignedReferences,
    Experiment,
    ExplicandSet,
    accuracy_facts,
    reference_name,
    select_correct,
)
from ig2_bench.suites.studies import (
    ABLATION,
    DIFFID,
    EVERYWHERE,
    IDSDS,
    LAYERS,
    LEADERBOARD,
    AtLayer,
    Study,
    WithReferences,
)

POOL = 50  # questions of each kind that can be references
SAME = "same class"


# -- texts of different lengths ----------------------------------------------------------------------------------------


class PaddedCNN(SampleNetwork):
    """A TextCNN as the paper has it: what follows a text is zero vectors, and they are part of what the network sees.

    One more is always put at the end. A filter over nothing but zeros then has its place in every text, so that it does not
    matter how many follow: the scores of a question do not depend on what it is padded to, and its references can be longer
    and shorter. Compared with the scores without padding, a logit changes by some hundredths.

    Args:
        net: the network, trained.
    """

    def __init__(self, net: QuestionCNN) -> None:
        super().__init__()
        self.net = net
        self.train(net.training)

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        return self.net.inputs(x)

    def forward(self, x: Tensor, words: Tensor | None = None) -> Tensor:
        """Scores from token ids (B, L), or from embeddings (B, L, E).

        Args:
            x: ids or embeddings.
            words: true where the explicand has a word, (B, L). Elsewhere zeros have no gradient, so that GradPath writes no
                words behind its end.
        """
        if not x.is_floating_point():
            x = self.net.embedding(x)
        elif words is not None:
            moves = words | (x != 0).any(dim=2)
            x = torch.where(moves[..., None], x, x.detach())
        return self.net(nn.functional.pad(x, (0, 0, 0, 1)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class WithPadding:
    """A method that takes padding for words like others.

    DeepSHAP's slopes are those at the explicand, and what references have behind its end must have one to be accounted for.
    """

    method: MethodLike

    def __call__(self, model: Any, x: tuple[Tensor, Fixed], *args: Any, **options: Any) -> Any:
        embeddings, words = x
        return self.method(model, (embeddings, Fixed(torch.ones_like(words.value))), *args, **options)


@dataclass(frozen=True)
class Words(Groups):
    """Every word of a text (L, E) is a group of its own."""

    def labels(self, samples: Tensor) -> Tensor:
        return torch.arange(samples.shape[1], device=samples.device)[None, :, None]


# -- studies -----------------------------------------------------------------------------------------------------------


def _layers(experiment: Experiment) -> Mapping[str, MethodLike]:
    layers = {f"filters over {width} words": f"net.rest.filters.{i}" for i, width in enumerate((3, 4, 5))}
    layers |= {"strongest place of every filter": "net.rest.head:input", "output": "output"}
    return {label: AtLayer(layer, experiment.ig2()) for label, layer in layers.items()}


def _ablation(experiment: Experiment) -> Mapping[str, MethodLike]:
    # of a text, black is the zero vector
    return {label.replace("black", "zero"): method for label, method in ABLATION.methods(experiment).items()}


def _one_by_one(experiment: Experiment) -> Mapping[str, MethodLike]:
    return {
        **{f"one {name}": WithReferences(name, experiment.ig2()) for name in trec.CLASSES},
        f"all {experiment.references} of other classes": experiment.ig2(),
        "one of the same class": WithReferences(SAME, experiment.ig2()),
    }


WORD_COLUMNS = {label: column for label, column in LEADERBOARD.columns.items() if label != IDSDS}  # words have no patches
ONE_BY_ONE = Study("references one by one, by their class", _one_by_one, ranked=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class TREC(Experiment):
    """Questions, each explained against whole questions of the other kinds; what counts are words.

    Args:
        made: how many questions are made from the grammar where no folder is given; a half trains the network.
    """

    about: ClassVar[str] = "questions of six kinds, a TextCNN"
    dataset: ClassVar[str] = "trec"
    heading: ClassVar[str] = "Questions"
    studies: ClassVar[Mapping[str, Study]] = {
        **EVERYWHERE,
        "layers": Study(LAYERS.about, _layers),
        "ablation": Study(ABLATION.about, _ablation),
        "one-by-one": ONE_BY_ONE,
        "leaderboard": Study(LEADERBOARD.about, LEADERBOARD.methods, WORD_COLUMNS),
    }
    marked: ClassVar[bool] = False
    spatial: ClassVar[bool] = False
    tried: ClassVar[tuple[int, float]] = (100, 0.4)
    published: ClassVar[tuple[int, float] | None] = (1000, 0.01)
    paper_columns: ClassVar[tuple[str, ...]] = ("ADD", "DEL")
    paper_scores: ClassVar[Mapping[str | None, Mapping[str, tuple[float, ...]]]] = {
        None: {
            "Gradient": (0.909, 0.189),
            "IG": (0.937, 0.159),
            "Guided IG": (0.938, 0.156),
            "Expected IG": (0.940, 0.141),
            "DeepSHAP": (0.933, 0.170),
            "KernelSHAP": (0.933, 0.172),
            "IG² (left, as published)": (0.942, 0.140),
        },
        # the paper has the gaps of the other two to the first
        "distances": {"Euclidean": (0.942, 0.140), "cosine": (0.951, 0.147), "ℓ1": (0.932, 0.152)},
        "cost": {
            "Gradient": (0.003,), "IG": (0.26,), "Guided IG": (4.48,), "Expected IG": (0.49,), "DeepSHAP": (0.32,),
            "KernelSHAP": (1.8,), "IG² (left, as published)": (9.80,),
        },
    }  # fmt: skip

    made: int = 1200
    steps: int = 100
    step_size: float | None = 0.4

    @property
    def chosen_on(self) -> str:
        return super().chosen_on if self.vectors is None else ""

    @cached_property
    def loaded(self) -> tuple[LabelledSamples, LabelledSamples]:
        """Questions to train on, and others."""
        if self.data is not None:
            return trec.load(self.data, "train"), trec.load(self.data, "test")
        train, test = trec.make_questions(self.made, self.seed).split(0.5, seed=self.seed)
        return train, test

    @cached_property
    def vectors(self) -> Path | None:
        """A file of vectors in GloVe's format beside the questions, the first by name."""
        return _find_vectors(self.data)

    def digest_data(self) -> str:
        if self.vectors is None:
            return super().digest_data()
        check_regular(self.vectors)
        with open(self.vectors, "rb") as file:
            return f"{super().digest_data()} {hashlib.file_digest(file, 'sha256').hexdigest()[:24]}"

    def source(self) -> str:
        start = "" if self.vectors is None else f"; word vectors start from {self.vectors.name}"
        return f"{self.loaded[1].source}{start}"

    def compared_methods(self) -> Mapping[str, MethodLike]:
        deepshap = WithPadding(DeepSHAP())
        changed: dict[str, MethodLike] = {"DeepSHAP": deepshap, "DeepSHAP (train data)": WithReferences(DATA, deepshap)}
        return {**super().compared_methods(), **changed}

    def contenders(self) -> Mapping[str, MethodLike]:
        methods = super().contenders()
        return {label: WithPadding(method) if _takes_secants(method) else method for label, method in methods.items()}

    def groups(self) -> Words:
        return Words()

    def columns(self) -> Mapping[str, Column]:
        over = "a word is replaced by the zero vector"
        return {
            "ADD": Column("higher", about=f"area under the probability as words are added by attribution; {over}"),
            "DEL": Column("lower", about=f"the same as they are deleted; {over}"),
        }

    # -- the work ------------------------------------------------------------------------------------------------------

    def prepare_explicands(self) -> ExplicandSet:
        train, test = self.loaded
        options = {"seed": self.seed, "device": self.device, "quick": self.quick}
        inner = train_network("trec", train, start=self.vectors, **options).net  # type: ignore[arg-type]
        assert isinstance(inner, QuestionCNN)
        net = PaddedCNN(inner)
        chosen = self.choose_explicands(net, test)
        pool = select_correct(net, train.take(len(train.classes) * POOL, self.seed))
        data = train.take(self.references, self.seed)
        # one length for all, which changes nothing: neither explicands nor references are cut
        ids = net.inputs((*chosen.x, *pool.x, *data.x)).to(self.device)
        x, pool_x, data_x = inner.embedding(ids).split([len(chosen), len(pool), len(data)])
        rows = {COUNTERFACTUAL: choose_other_classes(chosen.y, pool.y, self.references, self.seed)}
        if self.study == "one-by-one":
            rows |= _choose_one_by_one(chosen.y, pool, self.seed)
        weight = inner.embedding.weight
        return ExplicandSet(
            model=wrap(net, bounds=(float(weight.min()), float(weight.max()))),
            x=x,
            target=chosen.y.to(self.device),
            references={
                **{name: AssignedReferences(pool_x, indices) for name, indices in rows.items()},
                DATA: AssignedReferences.same_for_all(data_x, len(chosen)),
            },
            names=chosen.names,
            facts=accuracy_facts(net, test),
            fixed=(ids[: len(chosen)] != PAD,),
        )

    def method_input(self, rows: slice) -> tuple[Tensor, Fixed]:
        """Embeddings (n, L, E), and where they are those of words."""
        (words,) = self.explicands.fixed
        return self.explicands.x[rows].clone(), Fixed(words[rows])

    def score(self, part: str, prepared: slice, method: MethodLike) -> Mapping[str, Sequence[float]]:
        scores = super().score(part, prepared, method)
        name = reference_name(method)
        if name not in trec.CLASSES:
            return scores
        # a question of the class explained is no counterfactual
        same_class = (self.explicands.target[prepared] == trec.CLASSES.index(name)).tolist()
        return {
            label: [math.nan if same else value for same, value in zip(same_class, values, strict=True)]
            for label, values in scores.items()
        }

    def score_attribution(self, attribution: Any, rows: slice) -> dict[str, Tensor]:
        """Over words alone: texts of one length are scored together, without what follows them."""
        explicands = self.explicands
        values = attribution.values if isinstance(attribution, Attribution) else attribution
        values = values[0] if isinstance(values, tuple) else values  # beside them is what is not attributed
        x, target, lengths = explicands.x[rows], explicands.target[rows], explicands.fixed[0][rows].sum(dim=1)
        if not isinstance(values, Tensor) or values.shape != x.shape:
            raise InputError(f"the attribution is {describe(values)}: expected {tuple(x.shape)}, the shape of the embeddings")
        options: dict[str, Any] = {"background": 0.0, "features": "word"}
        metrics: dict[str, Metric] = {"ADD": Insertion(**options), "DEL": Deletion(**options)}
        if self.study == "leaderboard":
            metrics[DIFFID] = DiffID(**options, measure="output")
        scores = {label: torch.full((len(x),), torch.nan) for label in metrics}
        for length in lengths.unique().tolist():
            texts = lengths == length
            words, embeddings = values.to(x)[texts, :length], x[texts, :length]
            for label, metric in metrics.items():
                score = metric(explicands.model, words, embeddings, target[texts], seed=self.seed)
                scores[label][texts.cpu()] = score.values.float().cpu()
        return scores

    @classmethod
    def defaults(cls, options: BenchOptions) -> dict[str, Any]:
        settings = {**super().defaults(options), **({"made": 240} if options.quick else {})}
        # GloVe's vectors are three times as long as those that are trained from nothing
        return settings if _find_vectors(options.data) is None else {**settings, "step_size": 1.2}


def _choose_one_by_one(target: Tensor, pool: LabelledSamples, seed: int) -> dict[str, Tensor]:
    """One question of each class for every explicand, and one of its own class, by name, each (N, 1)."""
    rows = {}
    for label, name in enumerate(pool.classes):
        indices = round_robin(pool.y, seed, pool.y == label)[: len(target)]
        if not indices:
            raise InputError(f"the network is right about no question of {name}: there is none for a reference")
        rows[name] = torch.tensor([[indices[i % len(indices)]] for i in range(len(target))])
    same = [rows[pool.classes[label]][i] for i, label in enumerate(target.tolist())]
    return {**rows, SAME: torch.stack(same)}


def _takes_secants(method: Any) -> bool:
    """Whether a method's slopes are those between two ends."""
    inner = method.method if isinstance(method, AtGradCF) else method
    return isinstance(inner, PathMethod) and inner.rule is not None and inner.rule.needs.secants


def _find_vectors(folder: Path | None) -> Path | None:
    return None if folder is None else min(folder.glob("glove*.txt"), default=None)
