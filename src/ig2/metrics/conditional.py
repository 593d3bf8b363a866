"""What the features left out may be, given those that are known: what perturbation metrics replace features by."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Conditional(ABC):
    """A distribution of tabular samples (d,), asked for what it says of some features when others are known."""

    @abstractmethod
    def draw(self, x: Tensor, known: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """`count` samples for each of n rows, (n, count, d): x where it is known, drawn given that elsewhere.

        Args:
            x: rows (n, d), on any device.
            known: which features of each row are known, booleans (n, d).
            count: how many.
            generator: on the CPU. The numbers drawn do not depend on n: each row gets the same noise, so that a sample's
                score does not depend on which others are scored beside it.
        """
