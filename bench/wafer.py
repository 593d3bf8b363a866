"""The paper's wafer CNN, and enough drawn wafer maps to train it on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ig2.adapters.training import own_randomness
from ig2.benchmarks.networks import WaferCNN
from ig2.data import wafermaps

NORMAL = wafermaps.CLASSES.index("None")


def network(seed: int = 0) -> WaferCNN:
    """The network of the paper's appendix, untrained."""
    with own_randomness(seed):
        return WaferCNN().eval()


def maps(per_class: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Drawn wafer maps, one-hot (N, 3, 56, 56): outside, passing, failing; and their classes (N,), normal ones last."""
    drawn = wafermaps.maps(per_class, seed)
    assert isinstance(drawn.x, Tensor)
    return wafermaps.one_hot(drawn.x), drawn.y


def trained(seed: int = 0, per_class: int = 100, epochs: int = 4) -> tuple[WaferCNN, float]:
    """The network after a few passes over drawn maps, and its accuracy on others."""
    net = network(seed)
    x, y = maps(per_class, seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    unseen, truth = maps(10, seed + 1)
    with torch.no_grad():
        accuracy = float((net(unseen).argmax(dim=1) == truth).float().mean())
    return net, accuracy
