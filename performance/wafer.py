"""The paper's wafer CNN, and drawn wafer maps."""

from __future__ import annotations

from torch import Tensor

from ig2._utils.training import local_seed
from ig2_bench.datasets.wafer import drawn
from ig2_bench.networks.wafer import WaferCNN

NORMAL = drawn.CLASSES.index("None")


def network(seed: int = 0) -> WaferCNN:
    """The network of the paper's appendix, untrained."""
    with local_seed(seed):
        return WaferCNN().eval()


def maps(per_class: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Drawn wafer maps, one-hot (N, 3, 56, 56): outside, passing, failing; and their classes (N,), normal ones last."""
    samples = drawn.draw_maps(per_class, seed)
    assert isinstance(samples.x, Tensor)
    return drawn.one_hot(samples.x), samples.y
