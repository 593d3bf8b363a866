"""The network for wafer maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ig2._utils.checks import check_count
from ig2_bench.datasets.wafer.drawn import one_hot
from ig2_bench.networks.base import LayeredCNN, NetworkSpec, TrainingSettings, image_size


class WaferCNN(LayeredCNN):
    """Convolutions 3-32-64-128, each with ReLU and pooling, then 8192-1250-9, as the paper's appendix has it.

    Args:
        classes: how many.
        size: pixels a side; the paper's 56 lead to its 8192 features.
    """

    channels = 3

    def __init__(self, classes: int = 9, size: int = 56) -> None:
        super().__init__()
        check_count(size, "size")
        self.size = (size, size)
        for number, (inside, outside) in enumerate(((3, 32), (32, 64), (64, 128)), start=1):
            # padding 2 is what leads from 56 pixels to the 8192 features of the table
            layer = nn.Sequential(nn.Conv2d(inside, outside, 3, padding=2), nn.ReLU(), nn.MaxPool2d(2))
            self.add_module(f"conv{number}", layer)
            size = (size + 2) // 2
        self.fc1 = nn.Sequential(nn.Flatten(), nn.Linear(128 * size**2, 1250), nn.ReLU())
        self.fc2 = nn.Linear(1250, classes)

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        """One-hot maps from codes (N, 1, H, W): outside, passing and failing dies. Floats (N, 3, H, W) stay as they are."""
        if isinstance(x, Tensor) and x.is_floating_point():
            return self._check(x, 3)
        return one_hot(self._check(x, 1))


def turn(x: Tensor, generator: torch.Generator) -> Tensor:
    """Put each map into one of its eight positions: a wafer has no side that is up."""
    positions = torch.randint(8, (len(x),), generator=generator, device="cpu").to(x.device)
    turned = torch.empty_like(x)
    for position in range(8):
        rows = positions == position
        maps = x[rows].rot90(position % 4, (2, 3))
        turned[rows] = maps.flip(3) if position >= 4 else maps
    return turned


WAFER = NetworkSpec(
    "wafer",
    lambda train, _: WaferCNN(len(train.classes), image_size(train)[0]),
    TrainingSettings(epochs=12, batch=64, rate=1e-3, decay=0.01, least=400, balance=0.5, augmentation=turn),
    quick=TrainingSettings(epochs=1, batch=32, rate=1e-3, decay=0.01, least=60, balance=0.5),
)
