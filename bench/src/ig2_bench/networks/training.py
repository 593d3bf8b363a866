"""Training the paper's networks from a seed, keeping what was trained, and measuring how often they are right.

The first weights, the order of the samples, dropout and augmentation all come from the seed, and the same call on the same
machine gives the same network. Nothing outside is read or changed.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from ig2._utils.checks import check_seed, is_count
from ig2._utils.files import find_cache
from ig2._utils.progress import Progress, ProgressOption
from ig2._utils.training import load_or_train, local_seed, minimise
from ig2.errors import InputError, ModelError, describe, reason
from ig2_bench.datasets.base import LabelledSamples, update_digest
from ig2_bench.networks.base import FilePath, NetworkSpec, SampleNetwork, TrainingSettings
from ig2_bench.networks.checkpoint import SUFFIX, Checkpoint
from ig2_bench.networks.digits import MNIST
from ig2_bench.networks.faces import CELEBA, FACES
from ig2_bench.networks.questions import TREC, QuestionCNN
from ig2_bench.networks.wafer import WAFER

NETWORKS: dict[str, NetworkSpec] = {spec.name: spec for spec in (MNIST, TREC, WAFER, CELEBA, FACES)}
"""The networks that can be trained, by name."""
VERSION = 1  # of this module: raised when the same settings make other networks
WARM_UP = 0.05  # share of the steps


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network, and how it came about."""

    net: SampleNetwork
    """In eval mode, on the device it was asked for, its parameters fixed."""
    facts: dict[str, Any]
    """Words and numbers: the network, its parameters, the settings, the samples and their source, the mean loss of the last
    epoch, and the seconds that the training took when it was run."""


@torch.inference_mode(False)
def train_network(
    name: str,
    train: LabelledSamples,
    *,
    start: FilePath | None = None,
    seed: int = 0,
    device: str = "cpu",
    quick: bool = False,
    progress: ProgressOption = False,
) -> TrainedNetwork:
    """Train one of the paper's networks, or load it from the cache if it was trained on the very same before.

    Args:
        name: `"mnist"`, `"trec"`, `"wafer"`, `"celeba"` (MobileNet-v2), or `"faces"` (a smaller network, for drawn ones).
        train: what to learn from; the network has as many outputs as there are classes.
        start: a file to start from: for trec vectors of words in GloVe's text format, for celeba weights of torchvision's.
        seed: of weights, order, dropout and augmentation.
        device: `"cpu"` or a GPU, `"cuda"`.
        quick: a few steps, to see that it runs.
        progress: True for a bar, or a function called with how many samples have been seen, and of how many.

    Returns:
        The network and facts about its training.

    Raises:
        InputError: where there is no such network, or it cannot take the samples.
        ModelError: where the training diverges.
    """
    if name not in NETWORKS:
        raise InputError(f"there is no network {describe(name)}: choose from {', '.join(NETWORKS)}")
    spec = NETWORKS[name]
    check_seed(seed)
    torch_device = _find_device(device)
    _check_samples(spec, train)
    if start is not None and not spec.takes_start:
        raise InputError(f"{name} is not trained from a file: leave start out, got {describe(start)}")
    settings = spec.quick if quick else spec.settings
    with local_seed(seed), torch.device("cpu"):
        net = spec.build(train, start)
    # texts become ids once; pictures stay bytes, and the first shows whether the network can take them
    x = net.inputs(train.x if isinstance(net, QuestionCNN) else train.x[:1])
    x = x if isinstance(net, QuestionCNN) else train.x  # type: ignore[assignment]

    def make() -> dict[str, Tensor]:
        with Progress(progress, f"training {name}") as bar:
            samples = x.to(torch_device), train.y.long().to(torch_device)
            return _train(net.to(torch_device), *samples, settings, seed, bar, kept)

    file = f"{name}-{_digest(name, train, settings, seed, start)}"
    kept = find_cache() / f"{file}-{torch_device.type}{SUFFIX}"
    tensors = load_or_train(file, make, net)
    seconds, losses = tensors.pop("seconds"), tensors.pop("losses")
    net.load_state_dict(tensors)
    facts = {
        "network": type(net).__name__,
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "settings": settings.describe(len(train)),
        "start": None if start is None else Path(start).name,
        "seed": seed,
        "samples": len(train),
        "source": train.source,
        "loss": float(losses[-1]),
        "seconds": float(seconds),
    }
    return TrainedNetwork(net.to(torch_device).eval().requires_grad_(False), facts)


def _check_samples(spec: NetworkSpec, train: LabelledSamples) -> None:
    several = spec.several_labels
    shape = (len(train), len(train.classes)) if several else (len(train),)
    if tuple(train.y.shape) != shape:
        expected = "0 or 1 for each label, (N, L)" if several else "a class for each, (N,)"
        raise InputError(f"{spec.name} is trained on samples with {expected}, got y as {describe(train.y)}")
    if len(train) < 2:
        raise InputError(f"{spec.name} cannot be trained on {len(train)} samples: give two or more")
    highest = 1 if several else len(train.classes) - 1
    if train.y.is_floating_point() or int(train.y.min()) < 0 or int(train.y.max()) > highest:
        raise InputError(
            f"{spec.name} is trained on whole numbers from 0 to {highest}, got y as {describe(train.y)} with others in it"
        )


def _find_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device {describe(name)} cannot be used: {reason(error)}") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"networks are trained on the CPU or with CUDA, got {describe(name)}")
    return device


def _digest(name: str, train: LabelledSamples, settings: TrainingSettings, seed: int, start: FilePath | None) -> str:
    """A name for what comes out: everything that it depends on, and not the machine."""
    augmentation = None if settings.augmentation is None else settings.augmentation.__name__
    numbers = sorted({**vars(settings), "augmentation": augmentation}.items())
    digest = hashlib.sha256(repr((VERSION, name, seed, numbers, train.classes)).encode())
    update_digest(digest, train.y)
    update_digest(digest, train.x)
    if start is not None:
        with open(start, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:24]


def _train(
    net: SampleNetwork, x: Tensor, y: Tensor, settings: TrainingSettings, seed: int, progress: Progress, kept: Path
) -> dict[str, Tensor]:
    """The weights, on the CPU, with the mean loss of each epoch and the seconds it took.

    `kept` is the file of a training that is stopped.
    """
    epochs, steps = settings.count_steps(len(x))
    progress.expect(epochs * len(x))

    def objective(rows: Tensor, generator: torch.Generator) -> Tensor:
        rows = rows.to(x.device)
        batch = net.batch(x[rows])
        batch = batch if settings.augmentation is None else settings.augmentation(batch, generator)
        if batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)  # a quarter faster, a third with MobileNet
        return _loss(net(batch), y[rows])

    with torch.inference_mode(False):
        net.train().requires_grad_(True).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(_group_by_decay(net, settings.decay), lr=settings.rate, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: _pace((step // steps + step % steps / steps) / epochs)
        )
        draws = torch.Generator().manual_seed(seed)
        checkpoint = Checkpoint(kept, {"net": net, "optimizer": optimizer, "schedule": schedule}, draws, x.device)
        progress.advance(len(checkpoint.losses) * len(x))
        losses = minimise(
            objective,
            lambda generator: _draw_order(y, settings.balance, generator).tensor_split(steps),
            optimizer,
            epochs=epochs,
            schedule=schedule,
            seed=seed,
            generator=draws,
            progress=progress,
            checkpoint=checkpoint,
        )
        # running averages lag behind the weights: a MobileNet-v2 that had learnt 48 samples in 60 steps knew half of them
        with local_seed(seed, x.device):
            update_bn((net.inputs(part) for part in x.tensor_split(steps)), net)
    # as it is when it comes from the cache: another layout adds up in another order
    net.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    checkpoint.remove()
    notes = {"seconds": checkpoint.seconds, "losses": losses}
    weights = {name: tensor.cpu() for name, tensor in net.state_dict().items()}
    return weights | {name: torch.tensor(value, dtype=torch.float64, device="cpu") for name, value in notes.items()}


def _group_by_decay(net: SampleNetwork, decay: float) -> list[dict[str, Any]]:
    embeddings = {id(module.weight) for module in net.modules() if isinstance(module, nn.Embedding)}
    decaying = [p for p in net.parameters() if p.ndim > 1 and id(p) not in embeddings]
    others = [p for p in net.parameters() if p.ndim <= 1 or id(p) in embeddings]
    return [{"params": decaying, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def _pace(done: float) -> float:
    """The share of the highest rate when this share of the training is done."""
    return min(1.0, 0.05 + done / WARM_UP) * (1 + math.cos(math.pi * done)) / 2


def _draw_order(y: Tensor, balance: float, generator: torch.Generator) -> Tensor:
    """The indices of the samples of an epoch."""
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
    """What `overall` would be for always predicting the commonest class, or for each label what more samples have."""


@torch.no_grad()
def predict(net: SampleNetwork, samples: LabelledSamples, batch: int = 256) -> Tensor:
    """Score samples with a network; the scores are on the CPU.

    Args:
        net: the network.
        samples: those of a data set that it was made for.
        batch: how many the network sees at once.

    Returns:
        The scores, (N, classes).
    """
    device = next(net.parameters()).device
    return torch.cat([net(net.inputs(samples.x[i : i + batch]).to(device)).cpu() for i in range(0, len(samples) or 1, batch)])


def measure_accuracy(net: SampleNetwork, test: LabelledSamples, batch: int = 256) -> Accuracy:
    """Count how often a network is right on samples it has not seen. A label is predicted where its score is positive.

    Args:
        net: a network of `train_network`.
        test: the samples, with the classes it was trained for.
        batch: how many the network sees at once.

    Returns:
        The accuracy over all samples, and by class or label.

    Raises:
        ModelError: if the network is in train mode.
        InputError: if it has other outputs than the samples have classes, or there are no samples.
    """
    if net.training:
        raise ModelError("the network is in train mode: call net.eval() first")
    if not len(test) or not is_count(batch):
        raise InputError(f"expected one sample or more, and a batch of one or more, got {len(test)} and {describe(batch)}")
    scores = predict(net, test, batch)
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
