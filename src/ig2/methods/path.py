"""Path methods: any combination of a path, references and a rule."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2._engine.integrate import count_evaluations, integrate
from ig2._utils.settings import instance_of, required
from ig2.errors import InputError, describe
from ig2.evaluation import OfOutputs
from ig2.methods.base import Method, Result
from ig2.model import Model
from ig2.paths import GrownPath, Pairs, Path
from ig2.references.base import References, as_references, draw_weighted
from ig2.result import Cost, Keep
from ig2.rules import Rule
from ig2.targets import AnyTarget
from ig2.task import Against, Task

TIMED = 3  # steps timed for an estimate


@dataclass(frozen=True, eq=False)
class PathMethod(Method):
    """A path method: any combination of path, references and rule, averaged over the references.

    φᵢ = E[∫ ∂f/∂xᵢ(γ(t)) dγᵢ(t)], where the rule computes the integral along each path γ [Sundararajan 2017].

    Args:
        path: the path from the explicand to its baseline.
        references: the default references of calls that pass none.
        rule: the rule that turns gradients on the path into attributions. With None, the path is followed without them.

    Raises:
        InputError: if an argument is not a path, references or a rule.
    """

    path: Path = required(instance_of(Path, "one of ig2.paths, for example Straight()"))
    references: Any = None
    rule: Rule | None = rules.left
    follows_paths = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule is not None and not isinstance(self.rule, Rule):
            raise InputError(f"rule must be one of ig2.rules, {_example(self.rule)}, got {describe(self.rule)}")
        if self.references is not None:
            as_references(self.references)

    @property
    def takes_references(self) -> bool:
        """Whether the path leads to a reference."""
        return self.path.uses_reference

    @property
    def needs_references(self) -> bool:  # type: ignore[override]
        return self.takes_references and self.references is None and self.default_references is None

    def _choose_references(self, references: Any) -> References | None:
        if not self.takes_references:
            return None
        references = self.references if references is None else references
        return self.default_references if references is None else as_references(references)

    @property
    def complete(self) -> bool:
        """Whether the rule is complete."""
        return self.rule is not None and self.rule.complete

    def estimate(
        self,
        model: Model | nn.Module | Callable[..., Any],
        x: Any,
        references: Any = None,
        *,
        target: AnyTarget = None,
        against: Against = None,
        batch_size: int | Literal["auto"] = "auto",
    ) -> Cost:
        """Estimate the cost of a call in which every path takes all its steps, from the fastest of three timed steps.

        The arguments are those of a call.

        Returns:
            The estimated seconds, the number of points at once, and their memory.
        """
        chosen = as_references(references) if references is not None else self.default_references
        with self._open(self._read(model), x, target, against=against, batch_size=batch_size) as task:
            samples = self._samples(task, chosen)[0]
            count = len(task) * samples.shape[1]
            at_once = min(count, task.batch.points)
            of = torch.arange(at_once, device=task.x.device) % len(task)
            distance = self.path.measures if isinstance(self.path, GrownPath) else None
            reference = None
            if isinstance(distance, OfOutputs):
                path, numbers = self.path.prepare(task, samples), torch.arange(at_once)
                assert isinstance(path, GrownPath)
                x = task.x[of]
                reference = path.aim(Pairs(x, x, of, task.target[of], numbers=numbers.to(of)))
            elif distance is not None:
                reference = task.session.representation(task.x[of], of)
            ask = partial(
                task.session.evaluate, task.x[of], of, task.target[of],
                gradient=self.rule is not None, distance=distance, reference=reference,
            )  # fmt: skip
            ask()
            # the fastest: a single one was up to four times too slow while other programs ran; float() waits for the GPU
            clock, run = time.perf_counter, lambda: float(ask().output.sum())
            fastest = min(timeit.repeat(run, timer=clock, number=1, repeat=TIMED))
            seconds = fastest * count_evaluations(self.path, self.rule, self.path.count_segments(task)) * count / at_once
            return Cost(seconds, at_once, at_once * task.session.bytes_per_point, True)

    def _samples(self, task: Task, references: References | None) -> tuple[Tensor, Tensor | None]:
        """Return the references of each explicand, (B, R, ...), and their weights (B, R), or None if all are equal."""
        if not self.takes_references:  # paths that find their baselines themselves
            return self.path.stand_ins(task), None
        if references is None and self.references is not None:
            references = as_references(self.references)
        return draw_weighted(self.require_references(references), task)

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        keep = replace(keep, baselines=self.path.ends_in_counterfactual)
        samples, weights = self._samples(task, references)
        return integrate(task, self.path, self.rule, samples, keep, weights)


def _example(rule: object) -> str:
    meant = isinstance(getattr(rules, str(rule), None), Rule)
    return f"here ig2.rules.{rule} and not its name" if meant else "for example trapezoid or gauss(4)"
