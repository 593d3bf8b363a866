"""The paper's networks trained by fixed recipes, kept once trained, and how often they are right.

The first weights, the order of the samples, dropout and what is done to pictures on the way all come from the seed, and the
same call on the same machine gives the same network. Nothing outside is read or changed.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from ig2._utils.checks import check_seed, is_count
from ig2._utils.progress import Progress, ProgressOption
from ig2._utils.training import kept, own_randomness
from ig2.demo.questions import PAD, UNKNOWN, split
from ig2.errors import InputError, ModelError, describe, reason
from ig2_paper.datasets.base import Samples, feed
from ig2_paper.networks import DigitCNN, FaceCNN, FilePath, MobileNetV2, Network, TextCNN, WaferCNN, read_vectors

Kind = Literal["mnist", "trec", "wafer", "celeba", "faces"]
# From a batch as the network takes it, and random numbers on the CPU, to one that means the same
Variation = Callable[[Tensor, torch.Generator], Tensor]

VERSION = 1  # of this module: raised when the same recipe makes other networks
FREQUENT = 50_000  # words of a file of vectors that are known beside those of the training texts
WARM_UP = 0.05  # share of the steps


# -- variations --------------------------------------------------------------------------------------------------------


def turned(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each map in one of its eight positions: a wafer has no side that is up."""
    choice = torch.randint(8, (len(x),), generator=generator, device="cpu").to(x.device)
    made = torch.empty_like(x)
    for number in range(8):
        some = choice == number
        one = x[some].rot90(number % 4, (2, 3))
        made[some] = one.flip(3) if number >= 4 else one
    return made


def mirrored(x: Tensor, generator: torch.Generator) -> Tensor:
    """Every other picture left to right, about."""
    some = (torch.rand(len(x), generator=generator, device="cpu") < 0.5).to(x.device)
    return torch.where(some[:, None, None, None], x.flip(3), x)


def shifted(x: Tensor, generator: torch.Generator, most: int = 2) -> Tensor:
    """All pictures of a batch moved by the same few pixels, their borders drawn out."""
    down, right = torch.randint(2 * most + 1, (2,), generator=generator, device="cpu").tolist()
    wider = nn.functional.pad(x, (most,) * 4, mode="replicate")
    return wider[:, :, down : down + x.shape[2], right : right + x.shape[3]]


def mirrored_and_shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Left to right or not, and moved by up to four pixels."""
    return shifted(mirrored(x, generator), generator, 4)


def forgotten(ids: Tensor, generator: torch.Generator) -> Tensor:
    """One word in ten made unknown, so that the network has learnt what to make of unknown ones."""
    some = (torch.rand(ids.shape, generator=generator, device="cpu") < 0.1).to(ids.device)
    return torch.where(some & (ids != PAD), UNKNOWN, ids)


# -- recipes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: AdamW, its rate rising over the first steps and falling to zero along a cosine.

    Cross-entropy where samples have one class, binary cross-entropy where they have several labels.

    Args:
        epochs: how often each sample is seen.
        batch: how many samples a step is made from, at most: they are divided evenly.
        rate: the highest learning rate.
        decay: of weights; biases, normalisations and embeddings have none.
        least: how many steps are made at least; a small data set is seen more often.
        balance: how often a class is drawn: 0 as often as it comes, 1 as often as the others, 0.5 half way between.
        variation: what is done to each batch.
    """

    epochs: int
    batch: int
    rate: float
    decay: float
    least: int = 0
    balance: float = 0.0
    variation: Variation | None = None

    def passes(self, samples: int) -> tuple[int, int]:
        """How many epochs, and how many steps in each."""
        steps = -(-samples // self.batch)
        return max(self.epochs, -(-self.least // steps)), steps

    def describe(self, samples: int) -> str:
        """The recipe in a sentence."""
        epochs, steps = self.passes(samples)
        parts = [f"AdamW (rate {self.rate:g}, decay {self.decay:g}, cosine), {epochs} epochs of {steps} steps"]
        if self.balance:
            parts.append("classes drawn equally often" if self.balance == 1 else f"classes drawn by count^{1 - self.balance:g}")
        if self.variation is not None:
            parts.append(self.variation.__name__.replace("_", " "))
        return ", ".join(parts)


RECIPES: dict[Kind, Recipe] = {
    "mnist": Recipe(epochs=12, batch=128, rate=2e-3, decay=0.01, least=400, variation=shifted),
    "trec": Recipe(epochs=12, batch=50, rate=3e-3, decay=0.01, least=400, variation=forgotten),
    "wafer": Recipe(epochs=12, batch=64, rate=1e-3, decay=0.01, least=400, balance=0.5, variation=turned),
    "celeba": Recipe(epochs=30, batch=64, rate=2e-3, decay=0.05, least=400, variation=mirrored_and_shifted),
    "faces": Recipe(epochs=20, batch=32, rate=2e-3, decay=0.01, least=400, variation=mirrored),
}
# A few steps, to see that it runs.
QUICK: dict[Kind, Recipe] = {
    "mnist": Recipe(epochs=1, batch=64, rate=2e-3, decay=0.01, least=60),
    "trec": Recipe(epochs=1, batch=50, rate=2e-3, decay=0.01, least=60),
    "wafer": Recipe(epochs=1, batch=32, rate=1e-3, decay=0.01, least=60, balance=0.5),
    "celeba": Recipe(epochs=1, batch=32, rate=4e-3, decay=0.01, least=60),
    "faces": Recipe(epochs=1, batch=32, rate=2e-3, decay=0.01, least=60),
}


# -- training ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trained:
    """A network, and how it came about."""

    net: Network
    """In eval mode, on the device it was asked for, its parameters fixed."""
    facts: dict[str, Any]
    """Words and numbers: the network, its parameters, the recipe, the samples and their source, the mean loss of the last
    epoch, and the seconds that the training took when it was run."""


@torch.inference_mode(False)
def trained(
    kind: Kind,
    train: Samples,
    *,
    start: FilePath | None = None,
    seed: int = 0,
    device: str = "cpu",
    quick: bool = False,
    progress: ProgressOption = False,
) -> Trained:
    """The network of a kind, trained on these samples; from the cache if it was trained on the very same before.

    Args:
        kind: `"mnist"`, `"trec"`, `"wafer"`, `"celeba"` (MobileNet-v2), or `"faces"` (a smaller network, for drawn ones).
        train: what to learn from, with as many outputs as it has classes.
        start: a file to start from: for trec vectors of words in GloVe's text format, for celeba weights of torchvision's.
        seed: of everything random.
        device: `"cpu"` or a GPU, `"cuda"`.
        quick: a few steps, to see that it runs.
        progress: True for a bar, or a function called with how many samples have been seen, and of how many.
    """
    if kind not in get_args(Kind):
        raise InputError(f"there is no kind of network {describe(kind)}: choose from {', '.join(get_args(Kind))}")
    check_seed(seed)
    where = _device(device)
    _check(kind, train)
    recipe = (QUICK if quick else RECIPES)[kind]
    net = _build(kind, train, start, seed)
    first = net.inputs(train.x if isinstance(net, TextCNN) else train.x[:1])  # refuses samples it cannot take
    x = first if isinstance(net, TextCNN) else train.x
    assert isinstance(x, Tensor)

    def make() -> dict[str, Tensor]:
        with Progress(progress, f"training {kind}") as bar:
            return _train(net.to(where), x.to(where), train.y.long().to(where), recipe, seed, bar)

    found = kept(f"{kind}-{_digest(kind, train, recipe, seed, start)}", make, net)
    seconds, losses = found.pop("seconds"), found.pop("losses")
    net.load_state_dict(found)
    facts = {
        "network": type(net).__name__,
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "recipe": recipe.describe(len(train)),
        "start": None if start is None else Path(start).name,
        "seed": seed,
        "samples": len(train),
        "source": train.source,
        "loss": float(losses[-1]),
        "seconds": float(seconds),
    }
    return Trained(net.to(where).eval().requires_grad_(False), facts)


def _check(kind: Kind, train: Samples) -> None:
    several = kind in ("celeba", "faces")
    shape = (len(train), len(train.classes)) if several else (len(train),)
    if tuple(train.y.shape) != shape:
        wanted = "0 or 1 for each label, (N, L)" if several else "a class for each, (N,)"
        raise InputError(f"{kind} is trained on samples with {wanted}, got y as {describe(train.y)}")
    if len(train) < 2:
        raise InputError(f"{kind} cannot be trained on {len(train)} samples: give two or more")
    highest = 1 if several else len(train.classes) - 1
    if train.y.is_floating_point() or int(train.y.min()) < 0 or int(train.y.max()) > highest:
        raise InputError(
            f"{kind} is trained on whole numbers from 0 to {highest}, got y as {describe(train.y)} with others in it"
        )


def _device(device: str) -> torch.device:
    try:
        where = torch.device(device)
        torch.zeros(1, device=where)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device {describe(device)} cannot be used: {reason(error)}") from error
    if where.type not in ("cpu", "cuda"):
        raise InputError(f"networks are trained on the CPU or with CUDA, got {describe(device)}")
    return where


def _build(kind: Kind, train: Samples, start: FilePath | None, seed: int) -> Network:
    """The network before training, on the CPU; what it is for is read off the samples."""
    if start is not None and kind not in ("trec", "celeba"):
        raise InputError(f"{kind} is trained from the beginning: leave start out, got {describe(start)}")
    outputs = len(train.classes)
    with own_randomness(seed), torch.device("cpu"):
        if kind == "trec":
            return _text_network(train, start, outputs)
        if kind == "mnist":
            return DigitCNN(outputs)
        if kind == "wafer":
            return WaferCNN(outputs, _size(train)[0])
        if kind == "faces":
            return FaceCNN(outputs, _size(train))
        net = MobileNetV2(outputs)
        if start is not None:
            net.start_from(start)
        return net


def _text_network(train: Samples, start: FilePath | None, outputs: int) -> TextCNN:
    words = {word for text in train.x if isinstance(text, str) for word, _, _ in split(text)}
    if start is None:
        return TextCNN(sorted(words), outputs)
    vectors = read_vectors(start, words, FREQUENT)
    net = TextCNN(sorted(words.union(vectors)), outputs, len(next(iter(vectors.values()))))
    net.give_vectors(vectors)
    return net


def _size(train: Samples) -> tuple[int, int]:
    """Height and width of the pictures."""
    if not isinstance(train.x, Tensor) or train.x.ndim != 4:
        raise InputError(f"expected pictures (N, C, H, W), got {describe(train.x)}")
    return train.x.shape[2], train.x.shape[3]


def _digest(kind: Kind, train: Samples, recipe: Recipe, seed: int, start: FilePath | None) -> str:
    """A name for what comes out: everything that it depends on, and not the machine."""
    varies = None if recipe.variation is None else recipe.variation.__name__
    settings = {**vars(recipe), "variation": varies}
    found = hashlib.sha256(repr((VERSION, kind, seed, sorted(settings.items()), train.classes)).encode())
    feed(found, train.y)
    feed(found, train.x)
    if start is not None:
        with open(start, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()[:24]


@contextmanager
def _own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout inside depends on the seed alone, on a GPU too; outside nothing notices."""
    with own_randomness(seed):
        if device.type == "cpu":
            yield
            return
        with torch.cuda.device(device), torch.random.fork_rng([torch.cuda.current_device()]):
            torch.cuda.manual_seed(seed)
            settings = torch.backends.cudnn
            before = settings.deterministic, settings.benchmark
            # some of cuDNN's ways to add up gradients differ from run to run
            settings.deterministic, settings.benchmark = True, False
            try:
                yield
            finally:
                settings.deterministic, settings.benchmark = before


def _train(net: Network, x: Tensor, y: Tensor, recipe: Recipe, seed: int, bar: Progress) -> dict[str, Tensor]:
    """The weights, on the CPU, with the mean loss of each epoch and the seconds it took."""
    began = time.perf_counter()
    epochs, pieces = recipe.passes(len(x))
    bar.expect(epochs * len(x))
    generator = torch.Generator().manual_seed(seed)
    losses = []
    with torch.inference_mode(False), torch.enable_grad(), _own_randomness(seed, x.device):
        net.train().requires_grad_(True).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(_decaying(net, recipe.decay), lr=recipe.rate, fused=True)
        for epoch in range(epochs):
            total = torch.zeros((), dtype=torch.float64, device=x.device)
            for piece, some in enumerate(_order(y, recipe.balance, generator).tensor_split(pieces)):
                for group in optimizer.param_groups:
                    group["lr"] = recipe.rate * _pace((epoch + piece / pieces) / epochs)
                batch = x[some.to(x.device)]
                # padding says nothing, and takes as long as words
                batch = batch[:, : int((batch != PAD).sum(dim=1).max())] if isinstance(net, TextCNN) else net.inputs(batch)
                batch = batch if recipe.variation is None else recipe.variation(batch, generator)
                if batch.ndim == 4:
                    batch = batch.contiguous(memory_format=torch.channels_last)  # a quarter faster, a third with MobileNet
                optimizer.zero_grad()
                error = _loss(net(batch), y[some.to(y.device)])
                error.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += error.detach() * len(some)
                bar.advance(len(some))
            losses.append(float(total) / len(x))
            if not math.isfinite(losses[-1]):
                raise ModelError(
                    f"the training of {type(net).__name__} diverged: its loss was {losses[-1]} in epoch {epoch + 1}"
                )
        # running averages lag behind the weights: a MobileNet-v2 that had learnt 48 samples in 60 steps knew half of them
        update_bn((net.inputs(part) for part in x.tensor_split(pieces)), net)
    # as it is when it comes from the cache: another layout adds up in another order
    net.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    notes = {"seconds": time.perf_counter() - began, "losses": losses}
    weights = {name: tensor.cpu() for name, tensor in net.state_dict().items()}
    return weights | {name: torch.tensor(value, dtype=torch.float64, device="cpu") for name, value in notes.items()}


def _decaying(net: Network, decay: float) -> list[dict[str, Any]]:
    embeddings = {id(module.weight) for module in net.modules() if isinstance(module, nn.Embedding)}
    shrinks = [p for p in net.parameters() if p.ndim > 1 and id(p) not in embeddings]
    stays = [p for p in net.parameters() if p.ndim <= 1 or id(p) in embeddings]
    return [{"params": shrinks, "weight_decay": decay}, {"params": stays, "weight_decay": 0.0}]


def _pace(done: float) -> float:
    """The share of the highest rate when this share of the training is done."""
    return min(1.0, 0.05 + done / WARM_UP) * (1 + math.cos(math.pi * done)) / 2


def _order(y: Tensor, balance: float, generator: torch.Generator) -> Tensor:
    """The numbers of the samples of an epoch."""
    if not balance:
        return torch.randperm(len(y), generator=generator, device="cpu")
    y = y.cpu()
    weights = torch.bincount(y).double()[y] ** -balance
    return torch.multinomial(weights, len(y), replacement=True, generator=generator)


def _loss(scores: Tensor, y: Tensor) -> Tensor:
    if y.ndim == 1:
        return nn.functional.cross_entropy(scores, y)
    return nn.functional.binary_cross_entropy_with_logits(scores, y.to(scores))


# -- accuracy ----------------------------------------------------------------------------------------------------------


class Accuracy(TypedDict):
    """How often a network is right, from 0 to 1."""

    overall: float
    """Over all samples; with several labels, over all samples and labels."""
    mean: float
    """The mean of `each`."""
    each: dict[str, float]
    """By class, over its samples, where there are any; or by label, over all samples."""
    commonest: float
    """What `overall` would be for always saying the commonest class, or of each label whether more samples have it or not."""


@torch.no_grad()
def predictions(net: Network, samples: Samples, batch: int = 256) -> Tensor:
    """A network's scores of all samples, (N, classes), on the CPU.

    Args:
        net: the network.
        samples: those of a data set that it was made for.
        batch: how many the network sees at once.
    """
    device = next(net.parameters()).device
    return torch.cat([net(net.inputs(samples.x[i : i + batch]).to(device)).cpu() for i in range(0, len(samples) or 1, batch)])


def accuracy(net: Network, test: Samples, batch: int = 256) -> Accuracy:
    """How often a network is right on samples it has not seen. A label is taken to be there where its score is positive.

    Args:
        net: what `trained` returned.
        test: the samples, with the classes it was trained for.
        batch: how many the network sees at once.
    """
    if net.training:
        raise ModelError("the network is in train mode: call net.eval() first")
    if not len(test) or not is_count(batch):
        raise InputError(f"accuracy takes one sample or more, and as many at once; got {len(test)} and {describe(batch)}")
    scores = predictions(net, test, batch)
    if scores.shape[1] != len(test.classes):
        raise InputError(f"the network has {scores.shape[1]} outputs and the samples {len(test.classes)} classes")
    y = test.y.cpu()
    if y.ndim == 2:
        right = ((scores > 0) == y.bool()).double()
        each = dict(zip(test.classes, right.mean(dim=0).tolist(), strict=True))
        share = y.double().mean(dim=0)
        commonest = float(torch.maximum(share, 1 - share).mean())
    else:
        right = (scores.argmax(dim=1) == y).double()
        each = {name: float(right[y == i].mean()) for i, name in enumerate(test.classes) if (y == i).any()}
        commonest = max(test.counts().values()) / len(test)
    mean = sum(each.values()) / len(each)
    return {"overall": float(right.mean()), "mean": mean, "each": each, "commonest": commonest}
