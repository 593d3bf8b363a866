"""Small networks of our own: trained in seconds when first asked for, from a seed, and kept as safetensors after that."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ig2._utils.files import check_regular, find_cache, write_file
from ig2.errors import InputError, reason, warn

SUM = "sha256"  # the checksum's name in a file of weights
Net = TypeVar("Net", bound=nn.Module)


def kept(recipe: str, make: Callable[[], dict[str, Tensor]], net: nn.Module | None = None) -> dict[str, Tensor]:
    """What `make` returns, from the cache if it is there and holds the weights of `net`.

    Whatever is wrong with the cache (no rights, a full disk, a damaged file, no safetensors), the tensors are made anew; of a
    file whose checksum or shapes do not fit a line says so.
    Change the recipe's name when it makes something else in the same shapes.
    """
    try:
        safetensors = importlib.import_module("safetensors.torch")
    except ImportError:
        return make()
    path = find_cache() / f"{recipe}.safetensors"
    try:
        return _read(path, safetensors, net)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as error:  # safetensors has its own exception for a broken file
        warn(f"{path} is damaged ({reason(error)}): it is made again")
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in make().items()}
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
    """Of names, shapes and numbers: what the file is without its checksum."""
    return hashlib.sha256(safetensors.save(tensors)).hexdigest()


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Weights and dropout inside depend on the seed alone; outside nothing notices."""
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed, which would seed every accelerator too and not put that back
        torch.default_generator.manual_seed(seed)
        yield


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
    """Train with Adam on `net(*inputs)`, the learning rate falling to zero along a cosine, and leave in eval mode."""
    shuffle = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(answers) // batch)
    with torch.inference_mode(False), torch.enable_grad(), own_randomness(seed):
        net.train()
        optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(epochs):
            for some in torch.split(torch.randperm(len(answers), generator=shuffle), batch):
                optimizer.zero_grad()
                error = loss(net(*(tensor[some] for tensor in inputs)), answers[some])
                error.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
    return net.eval()
