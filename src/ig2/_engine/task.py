"""One call of a method: the opened network, the explicands, and how the work is to be done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2._engine.memory import BatchSize
from ig2._engine.session import Session
from ig2._utils.progress import Progress
from ig2.errors import InputError, describe


@dataclass(frozen=True)
class Task:
    """What a method's `run` is given: the samples, the class explained of each, and the opened network."""

    session: Session
    x: Tensor  # samples (B, ...) in working precision, on the network's device
    rows: Tensor  # which of the session's explicands each sample is, or is a variant of, (B,)
    target: Tensor  # the class explained, (B,)
    seed: int
    batch: BatchSize
    progress: Progress
    graph: tuple[Tensor, Tensor] | None = None  # the samples, and the scores with their graph, of a pass of all of them

    @classmethod
    def of(
        cls, session: Session, target: Any, seed: int, batch: BatchSize, progress: Progress, keep_graph: bool = False
    ) -> tuple[Task, Tensor]:
        """A task over all the session's explicands, for the class given or predicted, and their output of that class.

        Args:
            session: the opened network.
            target: as a method is called with.
            seed: of the call.
            batch: how many points at once.
            progress: where it is told.
            keep_graph: whether the gradient at the explicands is all that is going to be asked for. The pass that finds the
                class is then the one it is taken from, if it can be one.
        """
        x = session.inputs.data
        rows = torch.arange(len(x), device=x.device)
        task = cls(session, x, rows, torch.zeros_like(rows), seed, batch, progress)
        scores, graph = task._scores_of_all(keep_graph)
        classes = scores.shape[1]
        if target is None:
            chosen = scores.argmax(dim=1)
        else:
            try:
                chosen = torch.as_tensor(target, device=x.device)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InputError(f"target must be a class index or one for each explicand, got {describe(target)}") from error
            if chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool:
                raise InputError(
                    f"target must hold class indices (integers), got {describe(target)}; samples to contrast with go by their "
                    "name, references=..."
                )
            if chosen.ndim > 1 or (chosen.ndim == 1 and len(chosen) != len(x)):
                raise InputError(f"target is {describe(target)}: expected one class, or one for each of {len(x)} explicands")
            if int(chosen.min()) < 0 or int(chosen.max()) >= classes:
                raise InputError(f"target {describe(target)} is not a class: the model has {classes}, 0 to {classes - 1}")
            chosen = chosen.long().expand(len(x))
        return replace(task, target=chosen, graph=graph), scores.gather(1, chosen[:, None])[:, 0]

    def _scores_of_all(self, keep_graph: bool) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        graphs: list[tuple[Tensor, Tensor]] = []
        found: list[Tensor] = []

        def work(piece: range) -> None:
            if keep_graph and len(piece) == len(self):
                points = self.x.detach().requires_grad_()
                graphs.append((points, self.session.scores_with_graph(points, self.rows)))
                found.append(graphs[0][1].detach())
            else:
                some = slice(piece.start, piece.stop)
                scores = self.session.scores(self.x[some], self.rows[some])
                if not self.session.agrees(self.x[some], self.rows[some], scores):
                    scores = self.session.scores(self.x[some], self.rows[some])
                found.append(scores)

        self.batch.over(len(self), work)
        return torch.cat(found).to(self.x.dtype), (graphs[0] if graphs else None)

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


def check_seed(seed: object) -> None:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not -(2**63) <= seed < 2**63:
        raise InputError(f"seed must be an integer of 64 bits, got {describe(seed)}")
