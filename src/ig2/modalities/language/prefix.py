"""The fixed beginning of a prompt, run once: its keys and values are reused at every point of every path."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class Prefix(nn.Module):
    """Keys and values of the first tokens of a prompt in each layer of a causal model, as computed by `run_prefix`.

    A causal model computes them from these tokens alone, so they are the same at every point with these tokens.
    """

    def __init__(self, cache: Any, length: int) -> None:
        super().__init__()
        self.length = length
        # as parameters: the copies of a network that the engine makes share their memory, and cast them with the weights
        states = [state for layer in cache.layers for state in (layer.keys, layer.values)]
        self.states = nn.ParameterList([nn.Parameter(state.detach(), requires_grad=False) for state in states])
        self.cache = copy(cache)  # the lengths that it counts, without its tensors
        self.cache.layers = [copy(layer) for layer in cache.layers]
        for layer in self.cache.layers:
            layer.keys = layer.values = None
        self.training = False

    def expand(self, rows: int) -> Any:
        """Return a cache of transformers for passes of `rows` rows. Passes do not modify it, so parts of them can be rerun."""
        cache = copy(self.cache)
        cache.layers = [copy(layer) for layer in self.cache.layers]
        for number, layer in enumerate(cache.layers):
            layer.keys, layer.values = (state.expand(rows, -1, -1, -1) for state in self.states[2 * number : 2 * number + 2])
            layer.update = partial(_append, layer.keys, layer.values)
        return cache


def _append(keys: Tensor, values: Tensor, new_keys: Tensor, new_values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return torch.cat([keys, new_keys], dim=-2), torch.cat([values, new_values], dim=-2)


@torch.no_grad()
def run_prefix(net: Any, embeddings: Tensor) -> Prefix | None:
    """Run a causal model on the embeddings (k, E) of its first tokens; None if it caches anything but keys and values."""
    mask = torch.ones(1, len(embeddings), dtype=torch.long, device=embeddings.device)
    cache = getattr(net(inputs_embeds=embeddings[None], attention_mask=mask, use_cache=True), "past_key_values", None)
    layers = getattr(cache, "layers", None)  # older ones of transformers are tuples
    if not layers or not all(_holds_keys(layer) for layer in layers):
        return None
    return Prefix(cache, len(embeddings))


def _holds_keys(layer: Any) -> bool:
    states = (getattr(layer, name, None) for name in ("keys", "values"))
    return all(isinstance(state, Tensor) and state.ndim == 4 for state in states)
