"""The paper's wafer CNN, and drawn wafer maps."""

from __future__ import annotations

from torch import Tensor

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
