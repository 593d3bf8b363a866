"""Questions by the kind of answer they ask for: the paper's TextCNN, and questions of the other kinds as references."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ig2._engine.inputs import Fixed
from ig2._utils.files import check_regular
from ig2.attribution import Attribution
from ig2.benchmarks.suite import BenchOptions, Column, MethodLike
from ig2.demo.questions import PAD
from ig2.errors import InputError, describe
from ig2.methods.deepshap import DeepSHAP
from ig2.methods.kernelshap import Groups
from ig2.metrics.curves import Deletion, Insertion
from ig2.model import wrap
from ig2_paper.datasets import trec
from ig2_paper.datasets.base import Samples
from ig2_paper.networks import Network, TextCNN
from ig2_paper.suites.experiment import (
    DATA,
    OTHERS,
    QUICK,
    Experiment,
    Opened,
    References,
    accuracy_facts,
    half_of,
    in_turns,
    of_other_classes,
    options_of,
    same_for_all,
)
from ig2_paper.suites.studies import ABLATION, EVERYWHERE, LAYERS, Against, AtLayer, Study
from ig2_paper.training import predictions, trained

POOL = 50  # questions of each kind to contrast with
SAME = "same class"


# -- texts of different lengths ----------------------------------------------------------------------------------------


class Padded(Network):
    """A TextCNN as the paper has it: what follows a text is zero vectors, and they are part of what the network sees.

    One more is always put at the end. A filter over nothing but zeros then has its place in every text, so that it does not
    matter how many follow: a question says the same whatever it is padded to, and can be contrasted with longer and shorter
    ones. Beside what the network says with padding hidden from it, a logit changes by some hundredths.

    Args:
        net: the network, trained.
    """

    def __init__(self, net: TextCNN) -> None:
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
    found: dict[str, MethodLike] = {f"one {name}": Against(name, experiment.ig2()) for name in trec.CLASSES}
    found[f"all {experiment.references} of other classes"] = experiment.ig2()
    found["one of the same class"] = Against(SAME, experiment.ig2())
    return found


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
    }
    marked: ClassVar[bool] = False
    tried: ClassVar[tuple[int, float]] = (100, 0.4)
    published: ClassVar[tuple[int, float] | None] = (1000, 0.01)

    made: int = 1200
    steps: int = 100
    step_size: float | None = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vectors is not None:
            object.__setattr__(self, "chosen_on", "")

    @cached_property
    def loaded(self) -> tuple[Samples, Samples]:
        """Questions to train on, and others."""
        if self.data is not None:
            return trec.load(self.data, "train"), trec.load(self.data, "test")
        train, test = trec.made_up(self.made, self.seed).split(0.5, seed=self.seed)
        return train, test

    @cached_property
    def vectors(self) -> Path | None:
        """A file of vectors in GloVe's format that lies beside the questions, the first by name."""
        return None if self.data is None else _vectors(self.data)

    def digest_data(self) -> str:
        if self.vectors is None:
            return super().digest_data()
        check_regular(self.vectors)
        with open(self.vectors, "rb") as file:
            return f"{super().digest_data()} {hashlib.file_digest(file, 'sha256').hexdigest()[:24]}"

    def source(self) -> str:
        start = "" if self.vectors is None else f"; word vectors start from {self.vectors.name}"
        return f"{self.loaded[1].source}{start}"

    def compared(self) -> Mapping[str, MethodLike]:
        found = dict(super().compared())
        found["DeepSHAP"] = WithPadding(DeepSHAP())
        found["DeepSHAP (train data)"] = Against(DATA, WithPadding(DeepSHAP()))
        return found

    def groups(self) -> Words:
        return Words()

    def columns(self) -> Mapping[str, Column]:
        over = "a word is replaced by the zero vector"
        return {
            "ADD": Column("higher", about=f"area under the probability as words are added by attribution; {over}"),
            "DEL": Column("lower", about=f"the same as they are deleted; {over}"),
        }

    # -- the work ------------------------------------------------------------------------------------------------------

    def open(self) -> Opened:
        train, test = self.loaded
        found = trained("trec", train, start=self.vectors, seed=self.seed, device=self.device, quick=self.quick).net
        assert isinstance(found, TextCNN)
        net = Padded(found)
        half = half_of(test, self.half, self.seed)
        right = predictions(net, half).argmax(dim=1) == half.y
        chosen = half[in_turns(half.y, right, self.samples, self.seed)]
        pool = train.take(len(train.classes) * POOL, self.seed)
        pool = pool[predictions(net, pool).argmax(dim=1) == pool.y]
        data = train.take(self.references, self.seed)
        # one length for all, which changes nothing: neither those explained nor the others are cut
        ids = net.inputs((*chosen.x, *pool.x, *data.x)).to(self.device)
        x, of_pool, of_data = found.embedding(ids).split([len(chosen), len(pool), len(data)])
        rows = {OTHERS: of_other_classes(chosen.y, pool.y, self.references, self.seed)}
        if self.study == "one-by-one":
            rows |= _each(chosen.y, pool, self.seed)
        weight = found.embedding.weight
        return Opened(
            model=wrap(net, bounds=(float(weight.min()), float(weight.max()))),
            x=x,
            target=chosen.y.to(self.device),
            references={
                **{name: References(of_pool, some) for name, some in rows.items()},
                DATA: same_for_all(of_data, len(chosen)),
            },
            names=chosen.names,
            facts=accuracy_facts(net, test),
            fixed=(ids[: len(chosen)] != PAD,),
        )

    def explicand(self, some: slice) -> tuple[Tensor, Fixed]:
        """Embeddings (n, L, E), and where they are those of words."""
        (words,) = self.opened.fixed
        return self.opened.x[some].clone(), Fixed(words[some])

    def score(self, part: str, prepared: slice, method: MethodLike) -> Mapping[str, Sequence[float]]:
        found = super().score(part, prepared, method)
        name = method.references if isinstance(method, Against) else OTHERS
        if name not in trec.CLASSES:
            return found
        # a question of the class explained is no counterfactual
        own = (self.opened.target[prepared] == trec.CLASSES.index(name)).tolist()
        return {
            label: [math.nan if same else value for same, value in zip(own, values, strict=True)]
            for label, values in found.items()
        }

    def scored(self, found: Any, some: slice) -> dict[str, Tensor]:
        """Over words alone: texts of one length are scored together, without what follows them."""
        opened = self.opened
        values = found.values if isinstance(found, Attribution) else found
        values = values[0] if isinstance(values, tuple) else values  # beside them goes what is not attributed
        x, target, lengths = opened.x[some], opened.target[some], opened.fixed[0][some].sum(dim=1)
        if not isinstance(values, Tensor) or values.shape != x.shape:
            raise InputError(f"the attribution is {describe(values)}: expected {tuple(x.shape)}, the shape of the embeddings")
        made = {
            "ADD": Insertion(background=0.0, features="word"),
            "DEL": Deletion(background=0.0, features="word"),
        }
        scores = {label: torch.full((len(x),), torch.nan) for label in made}
        for length in lengths.unique().tolist():
            rows = lengths == length
            texts, words = x[rows, :length], values.to(x)[rows, :length]
            for label, metric in made.items():
                scores[label][rows.cpu()] = (
                    metric(opened.model, words, texts, target[rows], seed=self.seed).values.float().cpu()
                )
        return scores

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        if self.study == "cost":
            seconds = {"Gradient": 0.003, "IG": 0.26, "Guided IG": 4.48, "Expected IG": 0.49, "DeepSHAP": 0.32}
            seconds |= {"KernelSHAP": 1.8, "IG² (left, as published)": 9.80}
            return {method: {"seconds": value} for method, value in seconds.items()}
        figures: dict[str, tuple[float, float]] = {}
        if self.study is None:
            figures = {
                "Gradient": (0.909, 0.189),
                "IG": (0.937, 0.159),
                "Guided IG": (0.938, 0.156),
                "Expected IG": (0.940, 0.141),
                "DeepSHAP": (0.933, 0.170),
                "KernelSHAP": (0.933, 0.172),
                "IG² (left, as published)": (0.942, 0.140),
            }
        elif self.study == "distances":  # the paper has the others' gaps to the Euclidean
            figures = {"Euclidean": (0.942, 0.140), "cosine": (0.951, 0.147), "ℓ1": (0.932, 0.152)}
        return {method: {"ADD": add, "DEL": delete} for method, (add, delete) in figures.items()}

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        found: dict[str, Any] = options_of(options, cls)
        if options.data is not None and _vectors(options.data) is not None:
            found["step_size"] = 1.2  # GloVe's vectors are three times as long as those that are trained from nothing
        return cls(**{**QUICK, "made": 240, **found} if options.quick else found)


def _each(target: Tensor, pool: Samples, seed: int) -> dict[str, Tensor]:
    """One question of each class for every explicand, and one of its own class, by name, each (N, 1)."""
    found = {}
    for kind, name in enumerate(pool.classes):
        numbers = in_turns(pool.y, pool.y == kind, len(target), seed)
        if not numbers:
            raise InputError(f"the network is right about no question of {name}: there is none to contrast with")
        found[name] = torch.tensor([[numbers[i % len(numbers)]] for i in range(len(target))])
    own = [found[pool.classes[kind]][i] for i, kind in enumerate(target.tolist())]
    return {**found, SAME: torch.stack(own)}


def _vectors(folder: Path) -> Path | None:
    return min(folder.glob("glove*.txt"), default=None)
