"""Small networks of our own: trained in seconds when first asked for, from a seed, and kept as safetensors after that."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch
from torch import Tensor, nn

from ig2.cache import cache_folder

Net = TypeVar("Net", bound=nn.Module)


def kept(recipe: str, make: Callable[[], dict[str, Tensor]], net: nn.Module | None = None) -> dict[str, Tensor]:
    """What `make` returns, from the cache if it is there and holds the weights of `net`.

    Whatever is wrong with the cache (no rights, a full disk, a broken file, no safetensors), the tensors are made anew.
    Change the recipe's name when it makes something else in the same shapes.
    """
    try:
        safetensors = importlib.import_module("safetensors.torch")
    except ImportError:
        return make()
    path = cache_folder() / f"{recipe}.safetensors"
    with suppress(Exception):  # safetensors has its own exception for a broken file
        found = dict(safetensors.load_file(path))
        wanted = {} if net is None else net.state_dict()
        if all(found[name].shape == tensor.shape for name, tensor in wanted.items()):
            return found
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in make().items()}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{recipe}.", suffix=".part")
        os.close(handle)
        try:
            safetensors.save_file(tensors, draft)
            os.replace(draft, path)  # at once, so that another process never sees half a file
        except BaseException as error:
            os.unlink(draft)
            if isinstance(error, KeyboardInterrupt):
                raise
    return tensors


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
