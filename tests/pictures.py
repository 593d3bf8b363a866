"""Small networks of pictures, and pictures for them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ig2._utils import training


def linear_net(size: int = 8, channels: int = 3, classes: int = 3, seed: int = 0) -> nn.Module:
    """It tells pictures by their colours; what it says of a dark grey one is near zero."""
    with training.local_seed(seed):
        net = nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, 5), nn.Tanh(), nn.Linear(5, classes)).eval()
    with torch.no_grad():
        first = net[1].weight.view(5, channels, -1)
        first += torch.randn(5, channels, 1, generator=torch.Generator().manual_seed(seed)) / 10
        net[1].bias.copy_(-0.25 * net[1].weight.sum(dim=1))
        net[3].bias.zero_()
    return net


def noise(height: int = 8, width: int = 8, seed: int = 0) -> np.ndarray:
    """Noise of a colour that depends on the seed."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 256, (height, width, 3)) * rng.random(3)).astype(np.uint8)
