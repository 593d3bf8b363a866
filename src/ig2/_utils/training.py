"""Training small networks from a seed, and keeping what was trained as safetensors: one loop, one cache."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ig2._utils.files import check_regular, find_cache, write_file
from ig2._utils.progress import Progress
from ig2.errors import InputError, ModelError, reason, warn

SUM = "sha256"  # the checksum's name in a file of weights
Net = TypeVar("Net", bound=nn.Module)


class Checkpoint(Protocol):
    """Where a training was stopped."""

    @property
    def losses(self) -> list[float]:
        """The mean loss of each epoch that was done."""

    def restore(self) -> None:
        """Bring the network, its optimizer and random numbers to where they were."""

    def save(self, losses: list[float]) -> None:
        """Keep where they are after an epoch."""


def load_or_train(name: str, train: Callable[[], dict[str, Tensor]], net: nn.Module | None = None) -> dict[str, Tensor]:
    """Return tensors from the cache, or from `train`, which are then put there.

    Whatever is wrong with the cache (no rights, a full disk, a damaged file, no safetensors), the tensors are made anew; a file
    whose checksum or shapes do not fit is reported in a warning.

    Args:
        name: of the file. Change it when `train` makes something else in the same shapes.
        train: makes the tensors.
        net: a network whose weights have to be among them.

    Returns:
        The tensors by name.
    """
    try:
        safetensors = importlib.import_module("safetensors.torch")
    except ImportError:
        return train()
    path = find_cache() / f"{name}.safetensors"
    try:
        return _read(path, safetensors, net)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as error:  # safetensors has its own exception for a broken file
        warn(f"{path} is damaged ({reason(error)}): it is made again")
    tensors = {key: tensor.detach().contiguous().clone() for key, tensor in train().items()}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, safetensors.save(tensors, {SUM: _checksum(tensors, safetensors)}))
    return tensors


def _read(path: Path, safetensors: Any, net: nn.Module | None) -> dict[str, Tensor]:
    check_regular(path)
    content = path.read_bytes()
    tensors: dict[str, Tensor] = safetensors.load(content)
    length = int.from_bytes(content[:8], "little")
    expected = json.loads(content[8 : 8 + length]).get("__metadata__", {}).get(SUM)
    if expected is None:
        raise FileNotFoundError(f"{path} is from before there were checksums")
    if expected != _checksum(tensors, safetensors):
        raise InputError("its checksum does not fit")
    for name, tensor in ({} if net is None else net.state_dict()).items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            raise InputError(f"it holds another network, without {name!r} of {tuple(tensor.shape)}")
    return tensors


def _checksum(tensors: dict[str, Tensor], safetensors: Any) -> str:
    """Return the checksum of names, shapes and numbers, of all of the file but itself."""
    return hashlib.sha256(safetensors.save(tensors)).hexdigest()


@contextmanager
def local_seed(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Make weights and dropout inside depend on the seed alone; random state outside is left as it was.

    Args:
        seed: the seed.
        device: where the work is done; on a GPU its own random state is seeded too, and cuDNN made deterministic.
    """
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed, which would seed every accelerator too and not put that back
        torch.default_generator.manual_seed(seed)
        if torch.device(device).type != "cuda":
            yield
            return
        with torch.cuda.device(device), torch.random.fork_rng([torch.cuda.current_device()]):
            torch.cuda.manual_seed(seed)
            settings = torch.backends.cudnn
            before = settings.deterministic, settings.benchmark
            # some of cuDNN's algorithms add up gradients in an order that differs from run to run
            settings.deterministic, settings.benchmark = True, False
            try:
                yield
            finally:
                settings.deterministic, settings.benchmark = before


def minimise(
    objective: Callable[[Tensor, torch.Generator], Tensor],
    batches: Callable[[torch.Generator], Sequence[Tensor]],
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
    seed: int = 0,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Train: a step of the optimizer on every batch of every epoch.

    Args:
        objective: the loss of the samples of these indices, called as `objective(indices, generator)`.
        batches: the indices of every batch of an epoch, drawn with the generator.
        optimizer: of the parameters that are trained.
        epochs: how often `batches` is called.
        schedule: of the learning rate, stepped after every batch.
        seed: of dropout, and of the generator by default.
        generator: of batches and augmentation, on the CPU.
        progress: advanced by the samples seen.
        checkpoint: where an earlier training was stopped, and what is reported of every epoch.

    Returns:
        The mean loss of each epoch.

    Raises:
        ModelError: if the loss is not finite.
    """
    generator = torch.Generator().manual_seed(seed) if generator is None else generator
    device = optimizer.param_groups[0]["params"][0].device
    losses = [] if checkpoint is None else checkpoint.losses
    with torch.inference_mode(False), torch.enable_grad(), local_seed(seed, device):
        if checkpoint is not None:
            checkpoint.restore()
        for epoch in range(len(losses) + 1, epochs + 1):
            total, seen = torch.zeros((), dtype=torch.float64, device=device), 0
            for indices in batches(generator):
                optimizer.zero_grad()
                loss = objective(indices, generator)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if schedule is not None:
                    schedule.step()
                total += loss.detach() * len(indices)
                seen += len(indices)
                if progress is not None:
                    progress.advance(len(indices))
            losses.append(float(total) / seen)
            if not math.isfinite(losses[-1]):
                raise ModelError(f"the training diverged: its mean loss was {losses[-1]} in epoch {epoch}")
            if checkpoint is not None:
                checkpoint.save(losses)
    return losses


def fit(
    net: Net,
    inputs: Sequence[Tensor],
    answers: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    epochs: int,
    batch: int = 64,
    rate: float = 2e-3,
    decay: float = 1e-4,
    seed: int = 0,
) -> Net:
    """Train on `loss(net(*inputs), answers)` with AdamW, the learning rate falling to zero along a cosine.

    Args:
        net: the network, trained in place.
        inputs: what it is called with, each (N, ...).
        answers: what it has to predict, (N, ...).
        loss: of outputs and answers.
        epochs: how often each sample is seen.
        batch: samples in a step.
        rate: the first learning rate.
        decay: of the weights.
        seed: of the order of the samples and of dropout.

    Returns:
        The network, in eval mode.
    """
    with torch.inference_mode(False):
        optimizer = torch.optim.AdamW(net.train().parameters(), lr=rate, weight_decay=decay)
        minimise(
            lambda indices, _: loss(net(*(tensor[indices] for tensor in inputs)), answers[indices]),
            lambda generator: torch.split(torch.randperm(len(answers), generator=generator), batch),
            optimizer,
            epochs=epochs,
            schedule=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(answers) // batch)),
            seed=seed,
        )
    return net.eval()
