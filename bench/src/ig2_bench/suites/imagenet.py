"""Photos with marked objects: an ImageNet classifier, references of other classes, and interfering objects put beside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ig2 import modalities, rules
from ig2._engine.acceleration import prepare
from ig2._engine.explicands import Explicands
from ig2._utils.checks import check_count
from ig2.errors import InputError, import_extra
from ig2.groups import Grid
from ig2.modalities.image.reading import Framing
from ig2.model import Model, Preparation
from ig2.references import round_robin
from ig2.table import Column
from ig2.task import scores
from ig2_bench.datasets import imagenet, pets, photos
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.listing import Listing, existing_folder
from ig2_bench.suite import BenchOptions, MethodLike, Split
from ig2_bench.suites.experiment import COUNTERFACTUAL, DATA, AssignedReferences, Experiment, ExplicandSet
from ig2_bench.suites.studies import EVERYWHERE, FACTORS, GOALS, NORMS, Study, WithReferences
from ig2_bench.table import EACH

INCEPTION = "torchvision:inception_v3"  # the paper's
LAYERS = {
    "efficientnet-lite0": ("_blocks.4", "_blocks.10", "_blocks.15", "_fc:input", "output"),
    INCEPTION: ("Mixed_5d", "Mixed_6e", "Mixed_7c", "fc:input", "output"),
}
POOLS = ("imagenet-pool", "pool")
PUBLISHED = (500, 3.0)  # the paper's steps: 1024 of [0, 255] at 299² is the same change of a pixel
AS_PUBLISHED = "IG² (published steps, left)"
ENOUGH = 4  # photos of each class, on average, for its accuracy to be reported: of one or two it says nothing
TOP = 4  # predictions that are relevant, as in the paper; the explained class is the first of them
TRIES = 3  # how many other photos each is put beside, until both are recognised

# -- the study of references -------------------------------------------------------------------------------------------

RELEVANT, IRRELEVANT, MANY, BOTH = "relevant", "irrelevant", "irrelevant, more", "both"
SETS = WITH, PLAIN, WHOLE = "interference", "plain", "whole"


def _strategies(experiment: Experiment) -> Mapping[str, MethodLike]:
    return {label: WithReferences(label, experiment.ig2()) for label in (RELEVANT, IRRELEVANT, MANY, BOTH)}


REFERENCES = Study("reference strategies", _strategies)


def _sets(explicand: int) -> tuple[str, str]:
    """Where an explicand of that study belongs: every second has an object that interferes."""
    return (WITH if explicand % 2 else PLAIN, WHOLE)


# -- the suite ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageNet(Experiment):
    """Photos explained against photos of other classes.

    The photos are those of ImageNet or Oxford-IIIT Pets. References come from a pool of photos, `imagenet-pool` or `pool` in or
    beside that folder, otherwise from the other split. The few photos that come with packages are explained as what the network
    predicts, against each other.

    Args:
        network: as `ig2.modalities.image.load` takes it.
        pixels: height and width of the pictures; by default the network's own.
        photos: how many are read at most.
        relevant: in the study of references, how many of each strategy: one of each of the classes predicted next.
    """

    about: ClassVar[str] = "photos with marked objects, an ImageNet classifier"
    dataset: ClassVar[str] = "imagenet"
    heading: ClassVar[str] = "ImageNet"
    studies: ClassVar[Mapping[str, Study]] = {
        **EVERYWHERE, "norms": NORMS, "factors": FACTORS,
        "references": REFERENCES, "goals": GOALS,
    }  # fmt: skip
    tried: ClassVar[tuple[int, float]] = (25, 1.5)
    published: ClassVar[tuple[int, float] | None] = PUBLISHED
    background: ClassVar[str] = "blurred"
    paper_scores: ClassVar[Mapping[str | None, Mapping[str, tuple[float, ...]]]] = {
        None: {
            "Gradient": (0.482, 0.336, 0.467, 0.209),
            "IG": (0.536, 0.327, 0.476, 0.205),
            "Guided IG": (0.599, 0.464, 0.545, 0.212),
            "Expected IG": (0.666, 0.431, 0.557, 0.116),
            "DeepSHAP": (0.694, 0.470, 0.543, 0.206),
            "KernelSHAP": (0.747, 0.498, 0.561, 0.274),
            "IG² (left, as published)": (0.805, 0.516, 0.656, 0.115),
            AS_PUBLISHED: (0.805, 0.516, 0.656, 0.115),
        },
        # the paper has the gaps of the other two to the first
        "distances": {
            "Euclidean": (0.805, 0.516, 0.656, 0.115),
            "cosine": (0.750, 0.495, 0.674, 0.162),
            "ℓ1": (0.740, 0.489, 0.628, 0.118),
        },
        "references": {
            RELEVANT: (0.905, 0.755, 0.798, 0.345, 0.633, 0.551, 0.901, 0.537, 0.641, 0.084, 0.119, 0.109),
            MANY: (0.864, 0.781, 0.805, 0.273, 0.613, 0.516, 0.876, 0.568, 0.656, 0.086, 0.126, 0.115),
        },
        "cost": {
            "Gradient": (0.13,), "IG": (8.14,), "Guided IG": (37.0,), "Expected IG": (8.34,), "DeepSHAP": (111.0,),
            "KernelSHAP": (3150.2,), "IG² (left, as published)": (108.2,),
        },
    }  # fmt: skip

    network: str = "efficientnet-lite0"
    pixels: int | None = None
    photos: int = 1000
    relevant: int = TOP - 1
    steps: int = 50
    step_size: float | None = 6.0

    def __post_init__(self) -> None:
        for name in ("photos", "relevant", *(() if self.pixels is None else ("pixels",))):
            check_count(getattr(self, name), name)
        super().__post_init__()

    @cached_property
    def is_pets(self) -> bool:
        """Whether the folder holds Oxford-IIIT Pets."""
        return self.data is not None and _holds_pets(self.data)

    @property
    def stem(self) -> str:
        return "pets" if self.is_pets else super().stem

    @property
    def title(self) -> str:  # type: ignore[override]
        return super().title.replace(self.heading, "Pets", 1) if self.is_pets else super().title

    @property
    def chosen_on(self) -> str:
        return super().chosen_on if self.is_pets else "photos of pets"

    @property
    def layers(self) -> tuple[str, ...]:
        return LAYERS.get(self.network, ("output",))

    @cached_property
    def subject(self) -> modalities.image.ImageSubject:
        """The network, with how a photo is brought to its size."""
        subject = modalities.image.load(self.network)
        for part in (subject.model.net, subject.model.preprocess):
            if isinstance(part, nn.Module):
                part.to(self.device)
        if self.pixels is not None:
            size, cover = (self.pixels, self.pixels), (self.pixels * 8 // 7, self.pixels * 8 // 7)
            subject = replace(subject, size=size, frame=Framing(size, cover, "bicubic"))
        return replace(subject, model=_prepare_once(subject, self.device)) if self.quick else subject

    @cached_property
    def loaded(self) -> tuple[LabelledSamples, LabelledSamples | None]:
        """All photos, and the pool if there is one."""
        frame = self.subject.frame
        if self.data is None:
            return photos.load_packaged(frame=frame), None
        pool = _find_pool(self.data)
        return (
            _find_photos(self.data).load(0, frame, self.photos, self.seed),
            None if pool is None else imagenet.load(pool, frame=frame, limit=self.photos, seed=self.seed),
        )

    def source(self) -> str:
        photos, pool = self.loaded
        if self.data is None:
            return photos.source
        place = "the other split" if pool is None else f"a pool of {len(pool):,} photos of {len(pool.y.unique()):,} classes"  # type: ignore[no-untyped-call]
        return f"{photos.source}; references are of other classes, from {place}"

    def describe_data(self) -> str:
        description = super().describe_data()
        if self.data is None:
            description = f"{self.source()}. Each is explained as its predicted class, against the others; {self.split} split"
        if self.study != "references":
            return description
        return (
            f"{description}. Every second explicand has an interfering object: the halves of two photos that hold most of "
            f"their objects are put side by side, one is explained, and the other's class is among the first {TOP} predicted"
            f"{' (not required in a quick run)' if self.quick else ''}. "
            f"Relevant references are of the classes predicted next, one of each of {self.relevant}; irrelevant ones, as many, "
            f"of classes not among the first {TOP}; more: {self.references}; both: the two kinds together"
        )

    def groups(self) -> Grid:
        return Grid(4, 4) if self.quick else Grid(13, 13)

    def columns(self) -> Mapping[str, Column]:
        marked = self.loaded[0].masks is not None
        columns = {label: column for label, column in super().columns().items() if marked or not label.startswith("GT-")}
        if self.study != "references":
            return columns
        # each metric is described once
        return {
            f"{label}, {name}": column if name == WITH else replace(column, about="")
            for label, column in columns.items()
            for name in SETS
        }

    def score(self, part: str, prepared: slice, method: MethodLike) -> Mapping[str, Sequence[float]]:
        scores = super().score(part, prepared, method)
        if self.study != "references":
            return scores
        explicands = range(prepared.start, prepared.stop)
        return {
            f"{label}, {name}": [value for i, value in zip(explicands, values, strict=True) if name in _sets(i)]
            for label, values in scores.items()
            for name in SETS
        }

    def prepare_explicands(self) -> ExplicandSet:
        photos, pool = self.loaded
        model = self.subject.model
        packaged = self.data is None
        split = split_photos(photos, self.split, self.seed)
        if packaged:
            pool = photos
        elif pool is None:
            pool = split_photos(photos, "test" if self.split == "validation" else "validation", self.seed)
        scored, scored_pool = _ScoredPhotos(model, split, self.device), _ScoredPhotos(model, pool, self.device)
        mixed = self.samples // 2 if self.study == "references" else 0
        eligible = self._find_eligible(scored, packaged)
        pictures = _choose_pictures(eligible, self.samples - mixed, mixed, scored, anything=self.quick)
        if not pictures:
            raise InputError(f"{photos.source}: the network is right about none of the {len(split)} photos of this split")
        masks = [picture.mask for picture in pictures if picture.mask is not None]
        return ExplicandSet(
            model=model,
            x=_values(torch.stack([picture.x for picture in pictures]), self.device),
            target=torch.tensor([picture.target for picture in pictures], device=self.device),
            references=_pool(pool, self._choose_references(pictures, scored_pool), self.device),
            truth=None if split.masks is None else torch.stack(masks).to(self.device),
            names=tuple(picture.name for picture in pictures),
            facts=_accuracy_facts(scored),
        )

    def _find_eligible(self, scored: _ScoredPhotos, whatever: bool) -> Iterator[_Picture]:
        """Photos that are classified correctly, or as whatever, round-robin over classes; scored as they are needed."""
        photos = scored.photos
        defined = torch.ones(len(photos), dtype=torch.bool)
        if photos.masks is not None:
            masks = photos.masks.flatten(1)
            defined = (masks == 1).any(dim=1) & (masks == 0).any(dim=1)
        indices = defined.nonzero().flatten()
        order = indices[round_robin(photos.y[indices], self.seed)].tolist()
        if self.device != "cpu":
            scored.select(order)  # a moment there, and the accuracy is that of all
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            for index, outputs in zip(batch, scored.select(batch), strict=True):
                picture = _Picture.from_photo(photos, index, outputs)
                if whatever or picture.target == picture.label:
                    yield picture

    def _choose_references(self, pictures: Sequence[_Picture], pool: _ScoredPhotos) -> dict[str, list[list[int]]]:
        """The indices of each explicand's references in the pool, by strategy."""
        if self.device != "cpu":
            pool.select(range(len(pool.photos)))
        generator = torch.Generator().manual_seed(self.seed)
        labels = pool.photos.y.tolist()
        rows: dict[str, list[list[int]]] = {}
        for picture in pictures:
            first, second = (
                round_robin(pool.photos.y, int(seed)) for seed in torch.randint(2**31, (2,), generator=generator, device="cpu")
            )
            other = [index for index in first if labels[index] not in (picture.target, picture.label)]
            chosen = {COUNTERFACTUAL: pool.choose(other, self.references, picture), DATA: second[: self.references]}
            if self.study == "references":
                chosen |= self._apply_strategies(picture, other, pool)
            for name, indices in chosen.items():
                rows.setdefault(name, []).append(indices)
        return rows

    def _apply_strategies(self, picture: _Picture, other: Sequence[int], pool: _ScoredPhotos) -> dict[str, list[int]]:
        labels = pool.photos.y.tolist()
        first_of_class: dict[int, int] = {}
        for index in other:
            first_of_class.setdefault(labels[index], index)
        ranked = picture.scores.argsort(descending=True).tolist()
        likeliest = (first_of_class[label] for label in ranked if label in first_of_class)
        relevant = pool.choose(likeliest, self.relevant, picture)
        near = {*ranked[:TOP], *(labels[index] for index in relevant)}
        far = [index for index in other if labels[index] not in near]
        irrelevant = pool.choose(far, max(self.relevant, self.references), picture)
        few = irrelevant[: self.relevant]
        return {RELEVANT: relevant, IRRELEVANT: few, MANY: irrelevant[: self.references], BOTH: relevant + few}

    def compared_methods(self) -> Mapping[str, MethodLike]:
        """Those of every experiment, and IG² with the paper's own steps.

        On photos these do better than the ones chosen among fewer, at ten times their cost; elsewhere they do not.
        """
        methods = super().compared_methods()
        if self.data is None or self.quick or self.study is not None:
            return methods
        steps, step_size = PUBLISHED
        added = {AS_PUBLISHED: rules.left, "IG² (published steps, blended)": rules.blended}
        return {**methods, **{label: self.ig2(rule=rule, steps=steps, step_size=step_size) for label, rule in added.items()}}

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        if self.is_pets:
            return {}
        if self.study != "references":
            return super().paper()
        columns = [f"{label}, {name}" for label in self.paper_columns for name in SETS]
        return {label: dict(zip(columns, values, strict=True)) for label, values in self.paper_scores["references"].items()}

    @classmethod
    def defaults(cls, options: BenchOptions) -> dict[str, Any]:
        if options.quick:
            return {**super().defaults(options), "pixels": 64, "photos": 100, "relevant": 2, "coalitions": 40}
        if options.data is None:  # eight photos: four in each split
            return {"samples": 4, "references": 4}
        return {"network": INCEPTION if has_inception() else "efficientnet-lite0"}


# -- reading -----------------------------------------------------------------------------------------------------------


def _find_photos(folder: Path) -> Listing:
    """The photos of a folder, recognised by what lies in it."""
    root = existing_folder(folder)
    if _holds_pets(root):
        return pets.find(root)
    try:
        return imagenet.find(root)
    except InputError as error:
        raise InputError(f"{error}. (It is read as ImageNet: it has no trimaps, as Oxford-IIIT Pets would)") from error


def _holds_pets(folder: Path) -> bool:
    return any((folder / part).exists() for part in ("trimaps", "annotations/trimaps", "annotations/list.txt"))


def _find_pool(folder: Path) -> Path | None:
    """The pool in the folder or beside it."""
    places = [place / name for place in (folder, folder.resolve().parent) for name in POOLS]
    return next((place for place in places if (place / "labels.csv").is_file()), None)


def split_photos(photos: LabelledSamples, split: Split, seed: int) -> LabelledSamples:
    """One of two seeded halves, with half of each class; of classes with a single photo, every second."""
    order = torch.tensor(round_robin(photos.y, seed))
    labels = photos.y.unique()  # type: ignore[no-untyped-call]
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed), device="cpu")
    place = shuffled[torch.searchsorted(labels, photos.y[order])]
    by_class = order[place.argsort(stable=True)]  # every second of them is taken, across classes too
    return photos[by_class[0 if split == "validation" else 1 :: 2].sort().values]


# -- the network's scores ----------------------------------------------------------------------------------------------

BATCH = 16  # photos scored at once


@dataclass(frozen=True, eq=False)
class _ScoredPhotos:
    """Photos, and the network's scores of those that were asked for."""

    model: Model
    photos: LabelledSamples
    device: str
    known: dict[int, Tensor] = field(default_factory=dict)

    def select(self, indices: Iterable[int]) -> Tensor:
        """The scores of these photos, (n, classes)."""
        wanted = list(indices)
        unknown = [index for index in dict.fromkeys(wanted) if index not in self.known]
        for start in range(0, len(unknown), BATCH):
            batch = unknown[start : start + BATCH]
            self.known.update(zip(batch, self.score(self.photos[batch].x), strict=True))
        return torch.stack([self.known[index] for index in wanted])

    def score(self, x: Any) -> Tensor:
        """The scores of pictures as bytes, on the CPU."""
        return scores(self.model, _values(x, self.device)).cpu()

    def choose(self, indices: Iterable[int], count: int, picture: _Picture) -> list[int]:
        """The first of these that the network does not classify as the explained class."""
        chosen: list[int] = []
        remaining = iter(indices)
        while len(chosen) < count:
            batch = list(islice(remaining, count - len(chosen)))
            if not batch:
                raise InputError(
                    f"{picture.name} has {len(chosen)} photos of other classes for references, needed are {count}: put more "
                    "photos into a folder imagenet-pool beside the data"
                )
            predicted = self.select(batch).argmax(dim=1).tolist()
            chosen += [index for index, label in zip(batch, predicted, strict=True) if label != picture.target]
        return chosen


def _prepare_once(subject: modalities.image.ImageSubject, device: str) -> Model:
    """The model made fast for good: to do it anew in every call took two fifths of a quick run."""
    x = torch.zeros(1, subject.channels, *subject.size, device=device)
    model = subject.model
    done = prepare(model, Preparation(), Explicands.of(x))
    return replace(model if done is None else done.model, preparation=None)


def _values(x: Tensor, device: str) -> Tensor:
    """Bytes as the model takes them."""
    return x.to(device).float() / 255


def _accuracy_facts(scored: _ScoredPhotos) -> dict[str, list[float]]:
    """How often the network is right about the photos it has scored, and by class."""
    photos = scored.photos
    correct: dict[str, list[float]] = {}
    for index, outputs in scored.known.items():
        label = int(photos.y[index])
        correct.setdefault(photos.classes[label], []).append(float(int(outputs.argmax()) == label))
    values = [value for each in correct.values() for value in each]
    facts = {f"accuracy over {len(values)} photos": [sum(values) / len(values)]}
    if len(values) >= ENOUGH * len(correct):
        facts |= {f"{EACH}{name}": [sum(correct[name]) / len(correct[name])] for name in sorted(correct)}
    return facts


# -- explicands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Picture:
    """A photo, or two halves of photos, to explain."""

    x: Tensor  # bytes (C, H, W)
    mask: Tensor | None
    target: int  # the predicted class
    label: int  # the true one
    name: str
    scores: Tensor  # of all classes

    @classmethod
    def from_photo(cls, photos: LabelledSamples, index: int, outputs: Tensor) -> _Picture:
        assert isinstance(photos.x, Tensor)
        mask = None if photos.masks is None else photos.masks[index]
        return cls(photos.x[index], mask, int(outputs.argmax()), int(photos.y[index]), photos.names[index], outputs)


def _choose_pictures(
    eligible: Iterator[_Picture], plain: int, mixed: int, scored: _ScoredPhotos, anything: bool
) -> list[_Picture]:
    """So many photos as they are and so many beside another, alternating; those of a smaller number come first.

    Both objects of a pair have to be recognised in it, unless anything will do.
    """
    seen: list[_Picture] = []
    pairs: dict[str, _Picture] = {}  # by the name of the photo explained: each one once
    while len(seen) < plain or len(pairs) < mixed:
        picture = next(eligible, None)
        if picture is None:
            break
        for other in seen[-TRIES:] if len(pairs) < mixed else []:
            for first, second in ((picture, other), (other, picture)):
                if first.name not in pairs and first.target != second.target:
                    pair = put_beside(first, second, len(seen) % 2 == 0)
                    outputs = scored.score(pair.x[None])[0]
                    top = outputs.topk(TOP).indices.tolist()
                    if anything or (top[0] == first.target and second.target in top):
                        pairs[first.name] = replace(pair, scores=outputs)
        seen.append(picture)
    if not mixed:
        return seen[:plain]
    turns = zip(seen, [*pairs.values(), None], strict=False)
    return [picture for turn in turns for picture in turn if picture is not None][: plain + mixed]


def put_beside(explained: _Picture, other: _Picture, left: bool) -> _Picture:
    """A picture of two halves: of each photo the one that holds most of its object. What is marked is the explained one's."""
    width = explained.x.shape[-1]
    widths = (width // 2, width - width // 2)
    columns, other_columns = (_find_window(picture, size) for picture, size in zip((explained, other), widths, strict=True))
    halves = [explained.x[..., columns], other.x[..., other_columns]]
    masks = None
    if explained.mask is not None:
        mask = explained.mask[:, columns]
        masks = [mask, torch.zeros_like(mask[:, :1]).expand(-1, widths[1])]
    step = 1 if left else -1
    return replace(
        explained,
        x=torch.cat(halves[::step], dim=-1),
        mask=None if masks is None else torch.cat(masks[::step], dim=-1),
        name=f"{explained.name} beside {other.name}",
    )


def _find_window(picture: _Picture, width: int) -> slice:
    """The columns with most of the object; of several such windows the middle one."""
    total = picture.x.shape[-1]
    marked = torch.zeros(total) if picture.mask is None else (picture.mask == 1).sum(dim=0).float()
    held = marked.unfold(0, width, 1).sum(dim=1)
    best = (held == held.max()).nonzero().flatten()
    start = int(best[len(best) // 2])
    return slice(start, start + width)


def _pool(photos: LabelledSamples, rows: Mapping[str, list[list[int]]], device: str) -> dict[str, AssignedReferences]:
    """Only the photos that some explicand has, once for all strategies."""
    used, places = torch.tensor([index for indices in rows.values() for row in indices for index in row]).unique(
        return_inverse=True
    )  # type: ignore[no-untyped-call]
    x = photos[used].x
    assert isinstance(x, Tensor)
    samples = _values(x, device)
    parts = places.split([len(indices) * len(indices[0]) for indices in rows.values()])
    return {
        name: AssignedReferences(samples, part.view(len(indices), -1))
        for (name, indices), part in zip(rows.items(), parts, strict=True)
    }


# -- the command -------------------------------------------------------------------------------------------------------


def has_inception() -> bool:
    """Whether torchvision is installed, with the weights of the paper's network: nothing is downloaded for a benchmark."""
    if find_spec("torchvision") is None:
        return False
    models = import_extra("torchvision.models", "vision", "the paper's network")
    name = Path(models.get_model_weights("inception_v3").DEFAULT.url).name
    return Path(torch.hub.get_dir(), "checkpoints", name).is_file()
