"""A path completed by a straight line if it ends far from the reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ig2._utils.settings import PART, setting
from ig2.errors import InputError, describe
from ig2.evaluation import Distance, Evaluation
from ig2.paths.base import GrownPath, Memory, Pairs, Path, per_sample
from ig2.task import Task
from ig2.verdict import ARRIVED, LITTLE_ARRIVAL


@dataclass(frozen=True)
class Finished(GrownPath):
    """A path such as GradPath, continued to the reference on a straight line if it ends with much of its distance left.

    A pair whose path covered the share `arrival` of its distance D(f̃(x), f̃(xʳ)) ends there; for one that stopped moving where
    the distance has no gradient, the share is 99 %. The others continue from the end p of their path by p + t·(xʳ − p), in as
    many steps as the path has: at the reference the distance is zero, and the values sum to f(x) − f(xʳ). The line is straight
    in the data space, since the representation provides no direction where paths get stuck. `Attribution.finished` is the
    share of the distance that the line covered.

    Args:
        path: a path that measures a distance, such as `ig2.paths.GradPath`.
        arrival: the share of the distance, in (0, 1], that a path must cover to count as arrived.

    Raises:
        InputError: if the path measures no distance, or arrival is not in (0, 1].

    >>> import ig2
    >>> awake_above_one = lambda x: (x.sum(dim=1, keepdim=True) - 1).relu()
    >>> x, reference = torch.zeros(1, 4), torch.ones(1, 4)
    >>> ig2.PathMethod(Finished(ig2.paths.GradPath(10)), reference, ig2.rules.blended)(awake_above_one, x).values
    tensor([[-0.7500, -0.7500, -0.7500, -0.7500]])
    """

    path: GrownPath
    arrival: float = setting(LITTLE_ARRIVAL, PART)

    def __post_init__(self) -> None:
        path = self.path
        if not (isinstance(path, GrownPath) and path.measures and path.uses_reference):
            raise InputError(f"path must measure a distance to the reference, as GradPath() does, got {describe(self.path)}")
        super().__post_init__()

    @property
    def segments(self) -> int:
        return 2 * self.path.segments

    @property
    def measures(self) -> Distance | None:
        return self.path.measures

    @property
    def wants_gradient(self) -> bool:  # type: ignore[override]  # a constant of other paths
        return self.path.wants_gradient

    @property
    def ends_in_counterfactual(self) -> bool:  # type: ignore[override]
        return self.path.ends_in_counterfactual

    def prepare(self, task: Task, references: Tensor) -> Path:
        path = self.path.prepare(task, references)
        assert isinstance(path, GrownPath)
        return replace(self, path=path)

    def start(self, pairs: Pairs) -> Tensor:
        return self.path.start(pairs)

    def keep_going(self, step: int, at: Evaluation, memory: Memory) -> Tensor:
        assert at.distance is not None
        if step == 0:
            memory["first_distance"], memory["finished"] = at.distance, torch.zeros_like(at.distance)
            memory["on_line"] = torch.zeros_like(at.distance, dtype=torch.long)  # steps on the line, the next one included
        going = self.path.keep_going(step, at, memory) if step < self.path.segments else torch.zeros_like(at.distance).bool()
        walking = memory["on_line"] == 0
        ended = walking & ~(walking if going is None else going)
        left = at.distance / memory["first_distance"].where(memory["first_distance"] > 0, 1.0)
        stood = memory["moves"] < step if "moves" in memory else torch.zeros_like(ended)  # where there was no gradient
        short = ended & (left > torch.where(stood, 1 - ARRIVED, 1 - self.arrival))
        memory["finished"] = left.where(short, memory["finished"])
        memory["on_line"] = memory["on_line"] + (short | ~walking)
        return torch.where(walking, ~ended | short, memory["on_line"] <= self.path.segments)

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        on_line = memory["on_line"] > 0
        moves = memory.get("moves", torch.zeros_like(memory["on_line"]))
        reached = self.path.advance(pairs, step, point, at, memory) if step < self.path.segments else point
        if "moves" in memory:  # a path need not count them
            memory["moves"] = torch.where(on_line, moves + 1, memory["moves"])
        share = 1 / (self.path.segments + 1 - memory["on_line"]).to(point)  # of what is left; one on the last step
        line = torch.lerp(point, pairs.reference, per_sample(share, point))
        return torch.where(per_sample(on_line, point), line, reached)
