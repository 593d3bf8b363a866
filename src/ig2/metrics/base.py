"""The call every metric shares: it checks, opens the network if it is asked for, and leaves the mathematics to `run`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from ig2._engine.inputs import Inputs
from ig2._engine.memory import explain_memory_errors
from ig2._engine.task import Task, open_task
from ig2._utils.checks import check_seed
from ig2._utils.progress import ProgressOption
from ig2.attribution import Attribution
from ig2.errors import InputError, describe, warn
from ig2.methods.base import summary
from ig2.model import Model, as_model

Better = Literal["higher", "lower"]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a metric says of B attributions."""

    values: Tensor
    """One score for each explicand, (B,). NaN where the metric is not defined; `undefined` says why."""
    metric: str
    """The metric's name."""
    better: Better
    """Which direction is better."""
    undefined: dict[str, int] = field(default_factory=dict)
    """Why some scores are not defined, and how many for each reason. They are left out of the mean."""
    curves: Tensor | None = None
    """The curve behind each score, (B, K), for metrics that draw one."""
    at: Tensor | None = None
    """Where the curves were taken, (K,)."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The metric's settings, and the seed."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def defined(self) -> Tensor:
        """The scores that are defined, (n,)."""
        return self.values[~self.values.isnan()]

    @property
    def n(self) -> int:
        """How many scores are defined."""
        return len(self.defined)

    @property
    def mean(self) -> float:
        """The mean over the scores that are defined; NaN if none is."""
        return float(self.defined.double().mean()) if self.n else math.nan

    @property
    def sd(self) -> float:
        """Standard deviation of the scores that are defined; NaN with fewer than two."""
        return float(self.defined.double().std()) if self.n > 1 else math.nan

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; NaN with fewer than two scores."""
        return self.sd / math.sqrt(self.n) if self.n > 1 else math.nan

    def __repr__(self) -> str:
        text = f"{self.metric}: {self.mean:.4g}"
        if self.n > 1:
            text += f" ± {self.standard_error:.2g}"
        text += f" ({self.better} is better; {self.n} explicand{'s' * (self.n != 1)})"
        return text + "".join(f"\n  {count} not defined: {why}" for why, count in self.undefined.items())


@dataclass(frozen=True)
class Result:
    """What `run` returns, on any device; the names are those of `Scores`."""

    values: Tensor
    undefined: dict[str, int] = field(default_factory=dict)
    curves: Tensor | None = None
    at: Tensor | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # what was found out on the way, beside the metric's own


@dataclass(frozen=True)
class Case:
    """Attributions to be scored."""

    values: Tensor  # (B, ...), finite
    truth: Any  # what the caller gave to compare with, or None
    seed: int
    attribution: Attribution | None  # what `values` came in, if it was one
    opened: Task | None  # the network, the explicands and the class explained, for metrics that run it
    asked: Model | None = None  # what the caller gave, with the output the metric looks at
    output: Tensor | None = None  # that output of the class explained, at the explicands, (B,)

    @property
    def model(self) -> Model:
        """The model itself: the session of `task` may run a copy of its network that was made fast."""
        assert self.asked is not None
        return self.asked

    @property
    def task(self) -> Task:
        """The network, the explicands (in the layout and precision of `values`) and the class explained of each."""
        assert self.opened is not None
        return self.opened


@dataclass(frozen=True, eq=False)
class Metric(ABC):
    """Something that scores attributions. Subclasses are dataclasses of their settings and write `run`."""

    name: ClassVar[str]
    better: ClassVar[Better]
    runs_model: ClassVar[bool] = True
    runs_once: ClassVar[bool] = False  # whether the network sees each explicand once, or nearly so
    needs_gradient: ClassVar[bool] = False  # without it, x may hold integers, and the model be any function
    truth: ClassVar[str | None] = None  # what `truth` has to be, in words; None for metrics that compare with nothing
    truth_optional: ClassVar[bool] = False

    @abstractmethod
    def run(self, case: Case) -> Result:
        """Score the case's attributions."""

    def asked(self, model: Model) -> Model:
        """The model with the output this metric looks at; by default the one explained."""
        return model

    @final
    def __call__(
        self,
        model: Model | nn.Module | Callable[..., Any] | None,
        attribution: Attribution | Any = None,
        x: Any = None,
        target: int | Sequence[int] | Tensor | None = None,
        *,
        truth: Any = None,
        seed: int = 0,
        batch_size: int | Literal["auto"] = "auto",
        progress: ProgressOption = False,
    ) -> Scores:
        """Score a batch of attributions.

        Args:
            model: what was explained: what `ig2.wrap` returned, or a network. Metrics that do not run it take None.
            attribution: what a method returned, or a tensor (or tuple or dict of them) in x's shape.
            x: the explicands, with the `ig2.Fixed` inputs of the network's call. An `Attribution` knows them; give them with
                a plain tensor.
            target: the class explained. An `Attribution` knows it; with a plain tensor, by default the class predicted.
            truth: what the attribution is compared with, for metrics that need it.
            seed: of everything random. Global random state is neither read nor changed.
            batch_size: how many points the network sees at once; "auto" goes by the memory that is free.
            progress: True for a bar, or a function called with (done, total).
        """
        check_seed(seed)
        if attribution is None:
            first = "model" if self.runs_model else "None"
            raise InputError(
                f"{self.name} got no attribution: it comes second, after the model, "
                f"{type(self).__name__}(...)({first}, attribution, ...)"
            )
        if self.truth is None and truth is not None:
            raise InputError(f"{self.name} compares with no truth, got truth={describe(truth)}")
        if self.truth is not None and truth is None and not self.truth_optional:
            raise InputError(f"{self.name} needs truth={self.truth}")
        given = attribution if isinstance(attribution, Attribution) else None
        values = given.values if given is not None else attribution
        with torch.inference_mode(False), torch.no_grad(), explain_memory_errors(), ExitStack() as stack:
            if self.runs_model:
                if x is None and given is None:
                    raise InputError(f"{self.name} runs the model: give it x=, the explicands of this plain tensor")
                if model is None:
                    raise InputError(f"{self.name} runs the model, got model=None")
                asked = self.asked(as_model(model))
                x = x if x is not None else given
                task = stack.enter_context(
                    open_task(
                        asked,
                        x.x if isinstance(x, Attribution) else x,
                        given.target if target is None and given is not None else target,
                        label=self.name,
                        seed=seed,
                        batch_size=batch_size,
                        progress=progress,
                        needs_gradient=self.needs_gradient,
                        prepares=not self.runs_once,
                    )
                )
                inputs, output = task.session.inputs, task.output
            else:
                asked, inputs, task, output = None, Inputs.of(values, name="attribution", needs_gradient=False), None, None
            found = self.run(Case(inputs.pack(values, "attribution"), truth, int(seed), given, task, asked, output))
        if found.undefined:
            reasons = "; ".join(f"{count} because {why}" for why, count in found.undefined.items())
            warn(
                f"{self.name} is not defined for {sum(found.undefined.values())} of {len(found.values)} explicands "
                f"({reasons}); they are left out of the mean"
            )
        return Scores(
            found.values.to(inputs.home),
            self.name,
            self.better,
            found.undefined,
            None if found.curves is None else found.curves.to(inputs.home),
            None if found.at is None else found.at.to(inputs.home),
            {**summary(self), **found.settings, "seed": int(seed)},
        )
