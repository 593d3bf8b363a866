"""Faces with several labels: each explicand is a face and one of its attributes, marked by the component that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2.groups import Grid
from ig2.methods import ExpectedIG
from ig2.metrics.curves import OutputOption
from ig2.model import wrap
from ig2.references import round_robin
from ig2.table import Column
from ig2_bench.datasets.celeba import files
from ig2_bench.datasets.celeba.drawn import DRAWN, draw_faces
from ig2_bench.datasets.celeba.files import ATTRIBUTE_COMPONENTS, UNPARSED, FaceSamples
from ig2_bench.networks.base import SampleNetwork
from ig2_bench.networks.training import measure_accuracy, predict, train_network
from ig2_bench.suite import AtScale, BenchOptions, MethodLike
from ig2_bench.suites.experiment import (
    COUNTERFACTUAL,
    DATA,
    AssignedReferences,
    Experiment,
    ExplicandSet,
    reference_name,
    take_split,
)
from ig2_bench.suites.studies import EVERYWHERE, NORMS, Study, WithReferences
from ig2_bench.table import COMMONEST, EACH

LEAST = 0.001  # of the picture is a component's; with less it is a corner that the parser saw, or that shrinking left over
OFTEN = 2  # times that a face is explained at most, each time for another attribute

PAPER_ACCURACY: dict[str, float] = {
    "5_o_Clock_Shadow": 0.944, "Arched_Eyebrows": 0.834, "Attractive": 0.825, "Bags_Under_Eyes": 0.850, "Bald": 0.989,
    "Bangs": 0.959, "Big_Lips": 0.713, "Big_Nose": 0.846, "Black_Hair": 0.890, "Blond_Hair": 0.956, "Blurry": 0.959,
    "Brown_Hair": 0.882, "Bushy_Eyebrows": 0.926, "Chubby": 0.953, "Double_Chin": 0.962, "Eyeglasses": 0.996, "Goatee": 0.975,
    "Gray_Hair": 0.983, "Heavy_Makeup": 0.913, "High_Cheekbones": 0.868, "Male": 0.979, "Mouth_Slightly_Open": 0.936,
    "Mustache": 0.969, "Narrow_Eyes": 0.877, "No_Beard": 0.960, "Oval_Face": 0.754, "Pale_Skin": 0.970, "Pointy_Nose": 0.771,
    "Receding_Hairline": 0.937, "Rosy_Cheeks": 0.949, "Sideburns": 0.977, "Smiling": 0.927, "Straight_Hair": 0.834,
    "Wavy_Hair": 0.834, "Wearing_Earrings": 0.904, "Wearing_Hat": 0.990, "Wearing_Lipstick": 0.937, "Wearing_Necklace": 0.875,
    "Wearing_Necktie": 0.967, "Young": 0.882,
}  # fmt: skip
"""How often the paper's network is right about each attribute, by its appendix, which says 0.910 on average; they are 0.911."""


# -- studies -----------------------------------------------------------------------------------------------------------

# References among all faces that lack the attribute, by how many of these have labels nearer to the explicand's
NEARNESS = {
    "nearest": 0.0, "10th percentile": 0.1, "25th percentile": 0.25, "median": 0.5, "75th percentile": 0.75, "farthest": 1.0,
}  # fmt: skip
# and among those that have it too
SAME = {"same label, nearest": 0.0, "same label, median": 0.5}
LABEL_DISTANCE = "label distance"


def _nearness(experiment: Experiment) -> Mapping[str, MethodLike]:
    return {name: WithReferences(name, experiment.ig2()) for name in (*NEARNESS, *SAME)}


@dataclass(frozen=True)
class OfAttribute:
    """A method, named, on the explicands of one attribute."""

    attribute: str
    name: str
    method: MethodLike

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.method(*args, **options)


def _attributes(experiment: Experiment) -> Mapping[str, MethodLike]:
    compared: dict[str, MethodLike] = {"IG²": experiment.ig2(), "Expected IG": ExpectedIG(experiment.straight)}
    return {
        f"{attribute} ({' + '.join(components)}), {name}": OfAttribute(attribute, name, method)
        for attribute, components in ATTRIBUTE_COMPONENTS.items()
        if experiment.data is not None or attribute in DRAWN
        for name, method in compared.items()
    }


# -- the experiment ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FaceExplicands(ExplicandSet):
    """Faces, and how far their references are from them."""

    label_distances: Mapping[str, Tensor] = field(default_factory=dict)
    """By the name of the references: in how many labels they differ from the explicand, their mean, (N,)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CelebA(Experiment):
    """Attributes of faces, explained against faces that lack them and are most alike in the others.

    Faces without components train the network, and those with components are explained. Where more have some than have none,
    seven of ten of those train it.

    Args:
        faces: how many are read or drawn at most.
        size: height and width that they are scaled to or drawn in; half of CelebA's own.
    """

    about: ClassVar[str] = "faces with parsed components, a network for their attributes"
    dataset: ClassVar[str] = "celeba"
    heading: ClassVar[str] = "Face attributes"
    studies: ClassVar[Mapping[str, Study]] = {
        **EVERYWHERE,
        "norms": NORMS,
        "label-distance": Study(
            "references by the distance of their labels",
            _nearness,
            {
                LABEL_DISTANCE: Column(
                    "lower",
                    ranked=False,
                    digits=1,
                    about="in how many labels references differ from the explicand, the explained one among them",
                )
            },
        ),
        "attributes": Study("attribute by attribute", _attributes, ranked=False),
    }
    # Black is a colour of hair, and a blurred face keeps the colours of hair, skin and lips
    background: ClassVar[str] = "mean"
    probability: ClassVar[OutputOption] = "sigmoid"  # labels do not exclude each other
    tried: ClassVar[tuple[int, float]] = (100, 0.02)
    paper_scores: ClassVar[Mapping[str | None, Mapping[str, tuple[float, ...]]]] = {
        None: {
            "Gradient": (0.748, 0.211, 0.745, 0.296),
            "IG": (0.705, 0.175, 0.740, 0.314),
            "Guided IG": (0.653, 0.225, 0.744, 0.370),
            "Expected IG": (0.698, 0.189, 0.737, 0.293),
            "DeepSHAP": (0.699, 0.179, 0.750, 0.309),
            "KernelSHAP": (0.788, 0.212, 0.765, 0.197),
            "IG² (left, as published)": (0.795, 0.224, 0.815, 0.205),
        }
    }

    faces: int = 20_000
    size: tuple[int, int] = (109, 89)
    steps: int = 200
    step_size: float | None = 0.005

    @property
    def layers(self) -> tuple[str, ...]:
        if self.data is None:
            return ("conv1", "conv2", "conv3", "conv4", "fc1", "output")
        return (*(f"features.{block}" for block in (1, 3, 6, 10, 13, 18)), "classifier.0", "output")

    @cached_property
    def loaded(self) -> tuple[FaceSamples, FaceSamples, FaceSamples]:
        """Faces to train on, others to count how often the network is right, and those that may be explained."""
        if self.data is None:
            parsed = draw_faces(self.faces, self.seed, self.size)
        else:
            parsed = files.load(self.data, self.size, parsed=True, limit=self.faces, seed=self.seed)
            faces = files.load(self.data, self.size, limit=self.faces, seed=self.seed)
            unparsed = faces if faces.components is None else faces[(faces.components == UNPARSED).flatten(1).all(dim=1)]
            if len(unparsed) > len(parsed):
                train, test = unparsed.split(0.95, seed=self.seed)
                return train, test, parsed
        train, rest = parsed.split(0.7, seed=self.seed)
        return train, rest, rest

    def source(self) -> str:
        train, _, parsed = self.loaded
        return f"{train.source}; {len(train):,} trained the network, {len(parsed):,} others with components may be explained"

    def groups(self) -> Grid:
        return Grid(7, 6) if self.quick else Grid(13, 11)

    def prepare_explicands(self) -> FaceExplicands:
        train, test, parsed = self.loaded
        name = "faces" if self.data is None else "celeba"
        net = train_network(name, train, seed=self.seed, device=self.device, quick=self.quick).net
        split = take_split(parsed, self.split, self.seed)
        assert isinstance(split, FaceSamples)
        predicted = predict(net, train) > 0
        # there have to be references that lack an attribute and that have it, and the network has to know so
        enough = [((train.y == has) & (predicted == bool(has))).sum(dim=0) >= self.references for has in (0, 1)]
        pairs = choose_pairs(split, (predict(net, split) > 0) & enough[0] & enough[1], self.seed)[: self.samples]
        chosen, target = split[pairs[:, 0]], pairs[:, 1]
        attributes = [split.classes[label] for label in target.tolist()]
        assert isinstance(chosen.x, Tensor)
        references = self._choose_references(train, predicted, chosen.y, target)
        accuracy = measure_accuracy(net, test)
        return FaceExplicands(
            model=wrap(net, bounds=(0, 1)),
            x=net.inputs(chosen.x).to(self.device),
            target=target.to(self.device),
            references=_pool(net, train, references, self.device),
            truth=_stack_truth(chosen, attributes).to(self.device),
            names=tuple(f"{name}, {attribute}" for name, attribute in zip(chosen.names, attributes, strict=True)),
            facts={
                "accuracy": [accuracy["overall"]],
                COMMONEST: [accuracy["commonest"]],
                **{f"{EACH}{name}": [value] for name, value in accuracy["each"].items()},
            },
            label_distances={
                name: (train.y[rows] - chosen.y[:, None]).abs().sum(dim=2).double().mean(dim=1)
                for name, rows in references.items()
            },
        )

    def _choose_references(self, train: FaceSamples, predicted: Tensor, labels: Tensor, target: Tensor) -> dict[str, Tensor]:
        """By their names, the indices of each explicand's references among the training faces, (N, R)."""
        count = self.references
        shuffled = torch.tensor(round_robin(train.y, self.seed), dtype=torch.long)
        # where several are as near, chance decides, and the same for each explicand
        train_labels, predicted = train.y[shuffled], predicted[shuffled]
        wanted = {COUNTERFACTUAL: (0, 0.0)}
        if self.study == "label-distance":
            wanted |= {name: (0, share) for name, share in NEARNESS.items()}
            wanted |= {name: (1, share) for name, share in SAME.items()}
        rows = {name: torch.empty(len(target), count, dtype=torch.long) for name in wanted}
        for explicand, (own_labels, label) in enumerate(zip(labels, target.tolist(), strict=True)):
            for name, (has, share) in wanted.items():
                eligible = ((train_labels[:, label] == has) & (predicted[:, label] == bool(has))).nonzero().flatten()
                eligible = eligible[(train_labels[eligible] - own_labels).abs().sum(dim=1).argsort(stable=True)]
                start = round(share * (len(eligible) - count))
                rows[name][explicand] = shuffled[eligible[start : start + count]]
        return {**rows, DATA: shuffled[:count].expand(len(target), -1)}

    def score(self, part: str, prepared: slice, method: MethodLike) -> Mapping[str, Sequence[float]]:
        explicands = self.explicands
        assert isinstance(explicands, FaceExplicands)
        if isinstance(method, AtScale) and isinstance(method.method, OfAttribute):  # the scale goes inside
            inner = method.method
            method = replace(inner, name=f"{inner.name} {method.sigma}", method=replace(method, method=inner.method))
        if isinstance(method, OfAttribute):
            label = self.loaded[0].classes.index(method.attribute)
            has_label = (explicands.target[prepared] == label).tolist()
            # all attributes of a part are explained together, and each takes its own
            if (part, method.name) not in self._scores:
                self._scores[part, method.name] = super().score(part, prepared, method.method)
            return {column: list(compress(values, has_label)) for column, values in self._scores[part, method.name].items()}
        scores = super().score(part, prepared, method)
        if self.study != "label-distance":
            return scores
        return {**scores, LABEL_DISTANCE: explicands.label_distances[reference_name(method)][prepared].tolist()}

    @cached_property
    def _scores(self) -> dict[tuple[str, str], Mapping[str, Sequence[float]]]:
        """Of whole parts, by part and the name of the method."""
        return {}

    @classmethod
    def defaults(cls, options: BenchOptions) -> dict[str, Any]:
        if options.quick:
            return {**super().defaults(options), "faces": 200 if options.data is None else 1000, "size": (55, 45)}
        return {"faces": 2000} if options.data is None else {}


def choose_pairs(parsed: FaceSamples, predicted: Tensor, seed: int) -> Tensor:
    """Faces and their attributes (N, 2) that can be explained: present, predicted, and marked by a component.

    In a seeded order, round-robin over attributes. Of a larger count these are the first.

    Args:
        parsed: the faces.
        predicted: which attributes the network predicts, (faces, attributes).
        seed: of the order.
    """
    eligible = (parsed.y == 1) & predicted
    for label, attribute in enumerate(parsed.classes):
        if attribute in ATTRIBUTE_COMPONENTS:
            eligible[:, label] &= (parsed.truth(attribute) == 1).flatten(1).double().mean(dim=1) >= LEAST
        else:
            eligible[:, label] = False
    pairs = eligible.nonzero()
    used: Counter[int] = Counter()
    chosen = []
    for index in round_robin(pairs[:, 1], seed):
        face = int(pairs[index, 0])
        used[face] += 1
        if used[face] <= OFTEN:
            chosen.append(index)
    return pairs[chosen]


def _stack_truth(chosen: FaceSamples, attributes: Sequence[str]) -> Tensor:
    """The components of each face's own attribute, (N, H, W)."""
    masks = [chosen[[row]].truth(attribute) for row, attribute in enumerate(attributes)]
    return torch.cat(masks) if masks else chosen.truth(next(iter(ATTRIBUTE_COMPONENTS)))


def _pool(net: SampleNetwork, train: FaceSamples, rows: Mapping[str, Tensor], device: str) -> dict[str, AssignedReferences]:
    """References of these indices among the training faces, of which each is held once."""
    used, places = torch.cat(list(rows.values()), dim=1).unique(return_inverse=True)  # type: ignore[no-untyped-call]
    assert isinstance(train.x, Tensor)
    samples = net.inputs(train.x[used]).to(device)
    parts = places.split([indices.shape[1] for indices in rows.values()], dim=1)
    return {name: AssignedReferences(samples, part) for name, part in zip(rows, parts, strict=True)}
