"""Random values: a chance level for metrics."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from ig2.methods.base import Method, Result
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task


class Random(Method):
    """Standard normal values, independent of the network: a chance level for metrics.

    The values depend on the call's seed and on the explicand's content: they differ within a batch, and an explicand has the
    same values in any batch.
    """

    needs_gradient = False

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        return Result(torch.stack([_noise(sample, task.seed) for sample in task.x]))


def _noise(sample: Tensor, seed: int) -> Tensor:
    content = sample.cpu().numpy().tobytes()
    digest = hashlib.blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return torch.randn(sample.shape, generator=generator, dtype=torch.float64, device="cpu").to(sample)
