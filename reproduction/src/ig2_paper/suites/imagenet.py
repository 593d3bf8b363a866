"""Photos with marked objects: an ImageNet classifier, references of other classes, and interfering objects put beside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2._engine.acceleration import prepare
from ig2._engine.task import scores
from ig2._utils.checks import is_count
from ig2.adapters import vision
from ig2.adapters.images import Framing
from ig2.benchmarks.suite import BenchOptions, Column, Half, MethodLike
from ig2.errors import InputError, describe, import_extra
from ig2.methods.kernelshap import Grid
from ig2.model import Model, Preparation
from ig2_paper.datasets import imagenet, pets, photos
from ig2_paper.datasets.base import Samples, by_turns
from ig2_paper.datasets.listing import existing_folder
from ig2_paper.suites.experiment import DATA, OTHERS, QUICK, Experiment, Opened, References, options_of
from ig2_paper.suites.studies import EVERYWHERE, NORMS, Against, Study

INCEPTION = "torchvision:inception_v3"  # the paper's
LAYERS = {
    "efficientnet-lite0": ("_blocks.4", "_blocks.10", "_blocks.15", "_fc:input", "output"),
    INCEPTION: ("Mixed_5d", "Mixed_6e", "Mixed_7c", "fc:input", "output"),
}
POOLS = ("imagenet-pool", "pool")
PUBLISHED = (500, 3.0)  # the paper's steps: 1024 of [0, 255] at 299² is the same change of a pixel
AS_PUBLISHED = "IG² (published steps, left)"
ENOUGH = 4  # photos of each class, on average, for its accuracy to be told: of one or two it says nothing
TOP = 4  # predictions that are relevant, as in the paper; the explained class is the first of them
TRIES = 3  # how many others each photo is put beside, until both are recognised

# -- the study of references -------------------------------------------------------------------------------------------

RELEVANT, IRRELEVANT, MANY, BOTH = "relevant", "irrelevant", "irrelevant, more", "both"
SETS = WITH, PLAIN, WHOLE = "interference", "plain", "whole"


def _strategies(experiment: Experiment) -> Mapping[str, MethodLike]:
    return {label: Against(label, experiment.ig2()) for label in (RELEVANT, IRRELEVANT, MANY, BOTH)}


REFERENCES = Study("reference strategies", _strategies)


def _sets(number: int) -> tuple[str, str]:
    """Where an explicand of that study belongs: each other has an object that interferes."""
    return (WITH if number % 2 else PLAIN, WHOLE)


# -- the suite ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageNet(Experiment):
    """Photos explained against photos of other classes.

    Read are ImageNet or Oxford-IIIT Pets. References come from a pool of photos, `imagenet-pool` or `pool` in or beside that
    folder, otherwise from the half that is not explained. Of the few photos that come with packages every one is explained
    as what the network takes it for, against the others.

    Args:
        network: as `ig2.adapters.vision.load` takes it.
        pixels: height and width of the pictures; by default the network's own.
        photos: how many are read at most.
        relevant: in the study of references, how many of each strategy: one of each of the classes predicted next.
    """

    about: ClassVar[str] = "photos with marked objects, an ImageNet classifier"
    dataset: ClassVar[str] = "imagenet"
    heading: ClassVar[str] = "ImageNet"
    studies: ClassVar[Mapping[str, Study]] = {**EVERYWHERE, "norms": NORMS, "references": REFERENCES}
    tried: ClassVar[tuple[int, float]] = (25, 1.5)
    published: ClassVar[tuple[int, float] | None] = PUBLISHED
    chosen_on: ClassVar[str] = "photos of pets"
    background: ClassVar[str] = "blurred"

    network: str = "efficientnet-lite0"
    pixels: int | None = None
    photos: int = 1000
    relevant: int = TOP - 1
    steps: int = 50
    step_size: float | None = 6.0

    def __post_init__(self) -> None:
        for name in ("photos", "relevant", *(() if self.pixels is None else ("pixels",))):
            if not is_count(getattr(self, name)):
                raise InputError(f"{name} must be a whole number from 1 on, got {describe(getattr(self, name))}")
        object.__setattr__(self, "layers", LAYERS.get(self.network, ("output",)))
        if self.data is not None and _holds_pets(self.data):
            object.__setattr__(self, "dataset", "pets")
            object.__setattr__(self, "heading", "Pets")
            object.__setattr__(self, "chosen_on", Experiment.chosen_on)
        super().__post_init__()

    @cached_property
    def subject(self) -> vision.VisionSubject:
        """The network, with how a photo comes to its size."""
        found = vision.load(self.network)
        for part in (found.model.net, found.model.preprocess):
            if isinstance(part, nn.Module):
                part.to(self.device)
        if self.pixels is not None:
            size, cover = (self.pixels, self.pixels), (self.pixels * 8 // 7, self.pixels * 8 // 7)
            found = replace(found, size=size, frame=Framing(size, cover, "bicubic"))
        if self.quick:
            found = replace(found, model=_prepared_once(found, self.device))
        return found

    @cached_property
    def loaded(self) -> tuple[Samples, Samples | None]:
        """All photos, and the pool if there is one."""
        frame = self.subject.frame
        if self.data is None:
            return photos.packaged(frame=frame), None
        pool = _pool_of(self.data)
        return (
            _listed(self.data).load(0, frame, self.photos, self.seed),
            None if pool is None else imagenet.load(pool, frame=frame, limit=self.photos, seed=self.seed),
        )

    def source(self) -> str:
        found, pool = self.loaded
        if self.data is None:
            return found.source
        place = "the other half" if pool is None else f"a pool of {len(pool):,} photos of {len(pool.y.unique()):,} classes"  # type: ignore[no-untyped-call]
        return f"{found.source}; references are of other classes, from {place}"

    def describe_data(self) -> str:
        told = super().describe_data()
        if self.data is None:
            told = f"{self.source()}. Each is explained as what the network takes it for, against the others; half: {self.half}"
        if self.study != "references":
            return told
        return (
            f"{told}. Each other explicand has an interfering object: the halves of two photos that hold most of their objects "
            f"are put side by side, one is explained, and the class of the other is among the network's first {TOP} too"
            f"{' (in a quick run neither is asked for)' if self.quick else ''}. "
            f"Relevant references are of the classes predicted next, one of each of {self.relevant}; irrelevant ones, as many, "
            f"of classes not among the first {TOP}; more: {self.references}; both: the two kinds together"
        )

    def groups(self) -> Grid:
        return Grid(4, 4) if self.quick else Grid(13, 13)

    def columns(self) -> Mapping[str, Column]:
        marked = self.loaded[0].masks is not None
        found = {label: column for label, column in super().columns().items() if marked or not label.startswith("GT-")}
        if self.study != "references":
            return found
        # what a metric is, said once
        return {
            f"{label}, {name}": column if name == WITH else replace(column, about="")
            for label, column in found.items()
            for name in SETS
        }

    def score(self, part: str, prepared: slice, method: MethodLike) -> Mapping[str, Sequence[float]]:
        found = super().score(part, prepared, method)
        if self.study != "references":
            return found
        numbers = range(prepared.start, prepared.stop)
        return {
            f"{label}, {name}": [value for number, value in zip(numbers, values, strict=True) if name in _sets(number)]
            for label, values in found.items()
            for name in SETS
        }

    def open(self) -> Opened:
        found, pool = self.loaded
        model = self.subject.model
        packaged = self.data is None
        ours = halved(found, self.half, self.seed)
        if packaged:
            others = found
        else:
            others = pool if pool is not None else halved(found, "report" if self.half == "choose" else "choose", self.seed)
        asked, contrast = _Asked(model, ours, self.device), _Asked(model, others, self.device)
        right = self._right(asked, packaged)
        plain, mixed = self.samples, 0
        if self.study == "references":
            plain, mixed = self.samples - self.samples // 2, self.samples // 2
        pictures = _explicands(right, plain, mixed, asked, anything=self.quick)
        if not pictures:
            raise InputError(f"{found.source}: the network is right about none of the {len(ours)} photos of this half")
        chosen = self._references(pictures, contrast)
        return Opened(
            model=model,
            x=_values(torch.stack([picture.x for picture in pictures]), self.device),
            target=torch.tensor([picture.target for picture in pictures], device=self.device),
            references=_gathered(others, chosen, self.device),
            truth=None if ours.masks is None else _stacked(pictures).to(self.device),
            names=tuple(picture.name for picture in pictures),
            facts=_accuracy(asked),
        )

    def _right(self, asked: _Asked, whatever: bool) -> Iterator[_Picture]:
        """Photos of the half the network is right about, or of whatever it says, by turns; it is asked as they are needed."""
        ours = asked.photos
        defined = torch.ones(len(ours), dtype=torch.bool)
        if ours.masks is not None:
            masks = ours.masks.flatten(1)
            defined = (masks == 1).any(dim=1) & (masks == 0).any(dim=1)
        numbers = defined.nonzero().flatten()
        order = numbers[by_turns(ours.y[numbers], self.seed)].tolist()
        if self.device != "cpu":
            asked.of(order)  # a moment there, and the accuracy is that of all
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            for number, outputs in zip(some, asked.of(some), strict=True):
                picture = _Picture.of(ours, number, outputs)
                if whatever or picture.target == picture.label:
                    yield picture

    def _references(self, pictures: Sequence[_Picture], pool: _Asked) -> dict[str, list[list[int]]]:
        """The numbers of each explicand's references in the pool, by strategy."""
        if self.device != "cpu":
            pool.of(range(len(pool.photos)))
        generator = torch.Generator().manual_seed(self.seed)
        labels = pool.photos.y.tolist()
        chosen: dict[str, list[list[int]]] = {}
        for picture in pictures:
            first, second = (
                by_turns(pool.photos.y, int(seed)) for seed in torch.randint(2**31, (2,), generator=generator, device="cpu")
            )
            other = [number for number in first if labels[number] not in (picture.target, picture.label)]
            found = {OTHERS: pool.counterfactual(other, self.references, picture), DATA: second[: self.references]}
            if self.study == "references":
                found |= self._strategies(picture, other, pool)
            for name, numbers in found.items():
                chosen.setdefault(name, []).append(numbers)
        return chosen

    def _strategies(self, picture: _Picture, other: Sequence[int], pool: _Asked) -> dict[str, list[int]]:
        labels = pool.photos.y.tolist()
        of_class: dict[int, int] = {}
        for number in other:
            of_class.setdefault(labels[number], number)
        ranked = picture.scores.argsort(descending=True).tolist()
        relevant = pool.counterfactual((of_class[name] for name in ranked if name in of_class), self.relevant, picture)
        near = {*ranked[:TOP], *(labels[number] for number in relevant)}
        far = [number for number in other if labels[number] not in near]
        irrelevant = pool.counterfactual(far, max(self.relevant, self.references), picture)
        few = irrelevant[: self.relevant]
        return {RELEVANT: relevant, IRRELEVANT: few, MANY: irrelevant[: self.references], BOTH: relevant + few}

    def compared(self) -> Mapping[str, MethodLike]:
        """Those of every experiment, and IG² with the paper's own steps.

        On photos these do better than the ones chosen among fewer, at ten times their cost; elsewhere they do not.
        """
        found = super().compared()
        if self.data is None or self.quick or self.study is not None:
            return found
        steps, step_size = PUBLISHED
        own = {AS_PUBLISHED: rules.left, "IG² (published steps, blended)": rules.blended}
        return {**found, **{label: self.ig2(rule=rule, steps=steps, step_size=step_size) for label, rule in own.items()}}

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        columns: tuple[str, ...] = ("GT-AUC", "GT-SUM", "ADD", "DEL")
        if self.dataset == "pets":
            return {}
        if self.study is None:
            figures: dict[str, tuple[float, ...]] = {
                "Gradient": (0.482, 0.336, 0.467, 0.209),
                "IG": (0.536, 0.327, 0.476, 0.205),
                "Guided IG": (0.599, 0.464, 0.545, 0.212),
                "Expected IG": (0.666, 0.431, 0.557, 0.116),
                "DeepSHAP": (0.694, 0.470, 0.543, 0.206),
                "KernelSHAP": (0.747, 0.498, 0.561, 0.274),
                "IG² (left, as published)": (0.805, 0.516, 0.656, 0.115),
                AS_PUBLISHED: (0.805, 0.516, 0.656, 0.115),
            }
        elif self.study == "distances":  # the paper has the gaps to the first
            figures = {
                "Euclidean": (0.805, 0.516, 0.656, 0.115),
                "cosine": (0.750, 0.495, 0.674, 0.162),
                "ℓ1": (0.740, 0.489, 0.628, 0.118),
            }
        elif self.study == "references":
            columns = tuple(f"{label}, {name}" for label in columns for name in SETS)
            figures = {
                RELEVANT: (0.905, 0.755, 0.798, 0.345, 0.633, 0.551, 0.901, 0.537, 0.641, 0.084, 0.119, 0.109),
                MANY: (0.864, 0.781, 0.805, 0.273, 0.613, 0.516, 0.876, 0.568, 0.656, 0.086, 0.126, 0.115),
            }
        elif self.study == "cost":
            seconds = {"Gradient": 0.13, "IG": 8.14, "Guided IG": 37.0, "Expected IG": 8.34, "DeepSHAP": 111.0}
            seconds |= {"KernelSHAP": 3150.2, "IG² (left, as published)": 108.2}
            return {method: {"seconds": value} for method, value in seconds.items()}
        else:
            return {}
        return {method: dict(zip(columns, values, strict=True)) for method, values in figures.items()}

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        found: dict[str, Any] = options_of(options, cls)
        if options.quick:
            small = {"pixels": 64, "photos": 100, "relevant": 2, "coalitions": 40}
            return cls(**{**QUICK, **small, **found})
        if options.data is None:  # eight photos: four a half
            return cls(**{"samples": 4, "references": 4, **found})
        return cls(**{"network": INCEPTION if has_inception() else "efficientnet-lite0", **found})


# -- reading -----------------------------------------------------------------------------------------------------------


def _listed(folder: Path) -> Any:
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


def _pool_of(folder: Path) -> Path | None:
    """The pool in the folder or beside it."""
    places = [place / name for place in (folder, folder.resolve().parent) for name in POOLS]
    return next((place for place in places if (place / "labels.csv").is_file()), None)


def halved(found: Samples, half: Half, seed: int) -> Samples:
    """One of two seeded halves, of each class a half; of classes with a single photo each other one."""
    order = torch.tensor(by_turns(found.y, seed))
    names = found.y.unique()  # type: ignore[no-untyped-call]
    shuffled = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed), device="cpu")
    place = shuffled[torch.searchsorted(names, found.y[order])]
    together = order[place.argsort(stable=True)]  # class by class: what is split is every second, across classes too
    return found[together[0 if half == "choose" else 1 :: 2].sort().values]


# -- what the network says ---------------------------------------------------------------------------------------------

BATCH = 16  # photos asked about at once


@dataclass(frozen=True, eq=False)
class _Asked:
    """Photos, and what the network said of those it was asked about."""

    model: Model
    photos: Samples
    device: str
    known: dict[int, Tensor] = field(default_factory=dict)

    def of(self, numbers: Iterable[int]) -> Tensor:
        """The scores of some, (n, classes)."""
        wanted = list(numbers)
        unknown = [number for number in dict.fromkeys(wanted) if number not in self.known]
        for start in range(0, len(unknown), BATCH):
            some = unknown[start : start + BATCH]
            self.known.update(zip(some, self.about(self.photos[some].x), strict=True))
        return torch.stack([self.known[number] for number in wanted])

    def about(self, x: Any) -> Tensor:
        """The scores of pictures as bytes, on the CPU."""
        return scores(self.model, _values(x, self.device)).cpu()

    def counterfactual(self, numbers: Iterable[int], count: int, picture: _Picture) -> list[int]:
        """The first of these that the network does not take for the explained class."""
        found: list[int] = []
        left = iter(numbers)
        while len(found) < count:
            some = list(islice(left, count - len(found)))
            if not some:
                raise InputError(
                    f"{picture.name} has {len(found)} photos of other classes to contrast with, needed are {count}: put "
                    "more photos into a folder imagenet-pool beside the data"
                )
            said = self.of(some).argmax(dim=1).tolist()
            found += [number for number, name in zip(some, said, strict=True) if name != picture.target]
        return found


def _prepared_once(subject: vision.VisionSubject, device: str) -> Model:
    """The model made fast for good: to do it anew in every call took two fifths of a quick run."""
    x = torch.zeros(1, subject.channels, *subject.size, device=device)
    model = subject.model
    done = prepare(model, Preparation(), lambda other: scores(replace(other, preparation=None), x))
    return replace(model if done is None else done.model, preparation=None)


def _values(x: Tensor, device: str) -> Tensor:
    """Bytes as the model takes them."""
    return x.to(device).float() / 255


def _accuracy(asked: _Asked) -> dict[str, list[float]]:
    """How often the network is right about the photos it was asked about, and by class."""
    ours = asked.photos
    right: dict[str, list[float]] = {}
    for number, outputs in asked.known.items():
        label = int(ours.y[number])
        right.setdefault(ours.classes[label], []).append(float(int(outputs.argmax()) == label))
    values = [value for each in right.values() for value in each]
    found = {f"accuracy over {len(values)} photos": [sum(values) / len(values)]}
    if len(values) >= ENOUGH * len(right):
        found |= {f"accuracy of {name}": [sum(right[name]) / len(right[name])] for name in sorted(right)}
    return found


# -- explicands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Picture:
    """Something to explain."""

    x: Tensor  # bytes (C, H, W)
    mask: Tensor | None
    target: int  # what the network takes it for
    label: int  # what it is
    name: str
    scores: Tensor  # of all classes

    @classmethod
    def of(cls, found: Samples, number: int, outputs: Tensor) -> _Picture:
        assert isinstance(found.x, Tensor)
        mask = None if found.masks is None else found.masks[number]
        return cls(found.x[number], mask, int(outputs.argmax()), int(found.y[number]), found.names[number], outputs)


def _stacked(pictures: Sequence[_Picture]) -> Tensor:
    return torch.stack([picture.mask for picture in pictures if picture.mask is not None])


def _explicands(right: Iterator[_Picture], plain: int, mixed: int, asked: _Asked, anything: bool) -> list[_Picture]:
    """So many photos as they are and so many beside another, in turns; those of a smaller number come first.

    Both objects of a pair have to be recognised in it, unless anything will do.
    """
    seen: list[_Picture] = []
    pairs: dict[str, _Picture] = {}  # by the name of the photo explained: each one once
    while len(seen) < plain or len(pairs) < mixed:
        picture = next(right, None)
        if picture is None:
            break
        for other in seen[-TRIES:] if len(pairs) < mixed else []:
            for first, second in ((picture, other), (other, picture)):
                if first.name not in pairs and first.target != second.target:
                    pair = beside(first, second, len(seen) % 2 == 0)
                    outputs = asked.about(pair.x[None])[0]
                    top = outputs.topk(TOP).indices.tolist()
                    if anything or (top[0] == first.target and second.target in top):
                        pairs[first.name] = replace(pair, scores=outputs)
        seen.append(picture)
    if not mixed:
        return seen[:plain]
    turns = zip(seen, [*pairs.values(), None], strict=False)
    found = [one for turn in turns for one in turn if one is not None]
    return found[: plain + mixed]


def beside(explained: _Picture, other: _Picture, left: bool) -> _Picture:
    """A picture of two halves: of each photo the one that holds most of its object. What is marked is the explained one's."""
    width = explained.x.shape[-1]
    widths = (width // 2, width - width // 2)
    own, foreign = (_window(picture, size) for picture, size in zip((explained, other), widths, strict=True))
    pieces = [explained.x[..., own], other.x[..., foreign]]
    masks = None
    if explained.mask is not None:
        mine = explained.mask[:, own]
        masks = [mine, torch.zeros_like(mine[:, :1]).expand(-1, widths[1])]
    step = 1 if left else -1
    return replace(
        explained,
        x=torch.cat(pieces[::step], dim=-1),
        mask=None if masks is None else torch.cat(masks[::step], dim=-1),
        name=f"{explained.name} beside {other.name}",
    )


def _window(picture: _Picture, width: int) -> slice:
    """The columns with most of the object; of several such windows the middle one."""
    total = picture.x.shape[-1]
    marked = torch.zeros(total) if picture.mask is None else (picture.mask == 1).sum(dim=0).float()
    held = marked.unfold(0, width, 1).sum(dim=1)
    best = (held == held.max()).nonzero().flatten()
    start = int(best[len(best) // 2])
    return slice(start, start + width)


def _gathered(pool: Samples, chosen: Mapping[str, list[list[int]]], device: str) -> dict[str, References]:
    """Only the photos that some explicand has, once for all strategies."""
    used = sorted({number for rows in chosen.values() for row in rows for number in row})
    place = {number: i for i, number in enumerate(used)}
    x = pool[used].x
    assert isinstance(x, Tensor)
    samples = _values(x, device)
    return {
        name: References(samples, torch.tensor([[place[number] for number in row] for row in rows]))
        for name, rows in chosen.items()
    }


# -- the command -------------------------------------------------------------------------------------------------------


def has_inception() -> bool:
    """Whether torchvision is there with the paper's network, weights and all: nothing is downloaded for a benchmark."""
    if find_spec("torchvision") is None:
        return False
    models = import_extra("torchvision.models", "vision", "the paper's network")
    name = Path(models.get_model_weights("inception_v3").DEFAULT.url).name
    return Path(torch.hub.get_dir(), "checkpoints", name).is_file()
