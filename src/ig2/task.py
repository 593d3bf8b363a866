"""One call of a method: the opened network, the explicands, and how the work is to be done."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ig2.gradients import Session
from ig2.memory import BatchSize
from ig2.progress import Progress


@dataclass(frozen=True)
class Task:
    session: Session
    x: Tensor  # samples (B, ...) in working precision, on the network's device
    rows: Tensor  # which of the session's explicands each sample is, or is a variant of, (B,)
    target: Tensor  # the class explained, (B,)
    seed: int
    batch: BatchSize
    progress: Progress

    def __len__(self) -> int:
        return self.x.shape[0]

    def generator(self) -> torch.Generator:
        """Random numbers for one explicand: the same for each, so that a sample's result does not depend on its batch.

        On the CPU, so that it does not depend on the device either.
        """
        return torch.Generator().manual_seed(self.seed)

    def scores(self, points: Tensor, of: Tensor) -> Tensor:
        """The outputs of all classes, (n, classes), at points (n, ...) that go with samples `of` (n,); any number."""
        results: list[Tensor] = []

        def work(piece: range) -> None:
            some = slice(piece.start, piece.stop)
            results.append(self.session.scores(points[some], self.rows[of[some]]))

        self.batch.over(len(points), work)
        return torch.cat(results).to(points.dtype)

    def outputs(self, points: Tensor, of: Tensor) -> Tensor:
        """The explained output, (n,), at points (n, ...) that go with samples `of` (n,)."""
        return self.scores(points, of).gather(1, self.target[of][:, None])[:, 0]
