"""The base class of metrics: the call checks its arguments and opens the network if needed, and `run` computes the scores."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from ig2._engine.activations import cut
from ig2._engine.explicands import Explicands
from ig2._engine.memory import explain_memory_errors
from ig2._utils.checks import check_seed
from ig2._utils.progress import ProgressOption
from ig2._utils.settings import Settings
from ig2.attribution import Attribution
from ig2.errors import InputError, ModelError, describe, warn
from ig2.methods.base import summary
from ig2.model import Model, as_model
from ig2.targets import AnyTarget
from ig2.task import Against, Task, open_task

Better = Literal["higher", "lower"]


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of B attributions. `Metric.run` provides the values; the call adds the metric's name, direction and settings.

    >>> Scores(torch.tensor([0.5, 0.75, torch.nan]), "GT-AUC", undefined={"the mask is empty": 1})
    GT-AUC: 0.625 ± 0.12 (higher is better; 2 explicands)
      1 not defined: the mask is empty
    """

    values: Tensor
    """One score for each explicand, (B,). NaN where the metric is not defined; `undefined` has the reason."""
    metric: str = ""
    """The metric's name."""
    better: Better = "higher"
    """Which direction is better."""
    undefined: dict[str, int] = field(default_factory=dict)
    """The reasons why scores are not defined, with the number of scores for each. The mean excludes them."""
    curves: Tensor | None = None
    """The curve behind each score, (B, K), for metrics that draw one."""
    at: Tensor | None = None
    """The positions at which the curves are evaluated, (K,)."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The metric's settings, values determined during the call, and the seed."""

    @classmethod
    def where_defined(cls, values: Tensor, reasons: Mapping[str, Tensor], **fields: Any) -> Scores:
        """Return scores (B,) that are NaN where one of the masks (B,) is true, counted under the first reason that holds.

        Args:
            values: the scores, (B,).
            reasons: the mask of undefined scores for each reason, booleans (B,).
            fields: further fields of the scores.

        >>> Scores.where_defined(torch.ones(2), {"the mask is empty": torch.tensor([False, True])}).undefined
        {'the mask is empty': 1}
        """
        defined, undefined = torch.ones_like(values, dtype=torch.bool), {}
        for reason, mask in reasons.items():
            if count := int((mask & defined).sum()):
                undefined[reason] = count
            defined &= ~mask
        return cls(values.masked_fill(~defined, torch.nan), undefined=undefined, **fields)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def defined(self) -> Tensor:
        """The scores that are defined, (n,)."""
        return self.values[~self.values.isnan()]

    @property
    def n(self) -> int:
        """The number of scores that are defined."""
        return len(self.defined)

    @property
    def mean(self) -> float:
        """The mean of the scores that are defined; NaN if there are none."""
        return float(self.defined.double().mean()) if self.n else math.nan

    @property
    def sd(self) -> float:
        """The standard deviation of the scores that are defined; NaN with fewer than two."""
        return float(self.defined.double().std()) if self.n > 1 else math.nan

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; NaN with fewer than two scores."""
        return self.sd / math.sqrt(self.n) if self.n > 1 else math.nan

    def __repr__(self) -> str:
        error = f" ± {self.standard_error:.2g}" if self.n > 1 else ""
        text = f"{self.metric}: {self.mean:.4g}{error} ({self.better} is better; {self.n} explicand{'s' * (self.n != 1)})"
        return text + "".join(f"\n  {count} not defined: {reason}" for reason, count in self.undefined.items())


@dataclass(frozen=True)
class Case:
    """The input of `Metric.run`. `task`, `model` and `output` are None if the metric does not run the model."""

    values: Tensor
    """The attributions, (B, ...), finite."""
    truth: Any
    """The ground truth passed to the call, or None."""
    seed: int
    """The seed of the call."""
    attribution: Attribution | None
    """The `Attribution` that contains `values`, or None for a plain tensor."""
    task: Task
    """The opened network, the explicands in the layout and precision of `values`, and the explained class of each."""
    model: Model
    """The model with the output that the metric evaluates. The session of `task` may run an accelerated copy."""
    output: Tensor
    """This output for the explained class, at the explicands, (B,)."""

    def finite_output(self) -> Tensor:
        """Return the output at the explicands in float64 on the CPU, (B,).

        Raises:
            ModelError: if an output is not finite.
        """
        output = self.output.cpu().double()
        if not output.isfinite().all():
            row = int((~output.isfinite()).nonzero()[0])
            raise ModelError(f"the output of explicand {row} is {float(output[row])}: the network fails on it")
        return output


@dataclass(frozen=True, eq=False)
class Metric(Settings, ABC):
    """Base class of metrics, which score attributions. Subclasses are frozen dataclasses of settings and implement `run`."""

    name: ClassVar[str]
    better: ClassVar[Better]
    runs_model: ClassVar[bool] = True
    runs_once: ClassVar[bool] = False  # whether the network sees each explicand once, or nearly so
    needs_gradient: ClassVar[bool] = False  # without it, x may hold integers, and the model be any function
    truth: ClassVar[str | None] = None  # what `truth` has to be, in words; None for metrics that compare with nothing
    truth_optional: ClassVar[bool] = False

    @abstractmethod
    def run(self, case: Case) -> Scores:
        """Score the case's attributions: return `Scores(values)`, or `Scores.where_defined(values, reasons)`."""

    def adapt_model(self, model: Model) -> Model:
        """Return the model with the output that this metric evaluates; by default the explained output."""
        return model

    @final
    def __call__(
        self,
        model: Model | nn.Module | Callable[..., Any] | None,
        attribution: Attribution | Any = None,
        x: Any = None,
        target: AnyTarget = None,
        *,
        against: Against = None,
        truth: Any = None,
        seed: int = 0,
        batch_size: int | Literal["auto"] = "auto",
        progress: ProgressOption = False,
    ) -> Scores:
        """Score a batch of attributions.

        Args:
            model: the explained model: the result of `ig2.wrap`, or a network. Metrics that do not run it accept None.
            attribution: the result of a method, or a tensor (or tuple or dict of them) in x's shape.
            x: the explicands, with the `ig2.Fixed` inputs of the network's call. Required with a plain tensor; by default those
                of the `Attribution`.
            target: the explained class, or a target of `ig2.targets`. By default that of the `Attribution`; with a plain
                tensor, the predicted class.
            against: the classes it is explained against; the outputs that the metric evaluates are then differences too. By
                default those of the `Attribution`, unless another target is given.
            truth: the ground truth to compare the attribution with, for metrics that need one.
            seed: the seed for all random draws. Global random state is neither read nor changed.
            batch_size: the number of points that the network evaluates at once; "auto" chooses it by the free memory.
            progress: True for a progress bar, or a function called with (done, total).

        Returns:
            One score for each explicand, with the settings that led to it. Undefined scores are NaN, counted with their
            reasons, and reported in a warning.

        Raises:
            InputError: if an argument is missing, or has the wrong shape or values; the message quotes it.
            ModelError: if the network fails, or its output is not finite.
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
        source = attribution if isinstance(attribution, Attribution) else None
        values = attribution if source is None else source.values
        adapted: Any = None
        task: Any = None
        output: Any = None
        with torch.inference_mode(False), torch.no_grad(), explain_memory_errors(), ExitStack() as stack:
            if self.runs_model:
                if x is None and source is None:
                    raise InputError(f"{self.name} runs the model: pass x=, the explicands of this plain tensor")
                if model is None:
                    raise InputError(f"{self.name} runs the model, got model=None")
                adapted = self.adapt_model(as_model(model))
                if source is not None and "at" in source.settings:
                    adapted = cut(adapted, source.settings["at"])
                x = x if x is not None else source
                if source is not None and target is None:
                    target = source.target if source.question is None else source.question
                    against = source.against if against is None else against
                adapted, target, against = adapted.ask(target, against)
                task = stack.enter_context(
                    open_task(
                        adapted,
                        x.x if isinstance(x, Attribution) else x,
                        target,
                        against=against,
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
                inputs = Explicands.of(values, name="attribution", needs_gradient=False)
            scores = self.run(Case(inputs.pack(values, "attribution"), truth, int(seed), source, task, adapted, output))
        if scores.undefined:
            reasons = "; ".join(f"{count} because {reason}" for reason, count in scores.undefined.items())
            warn(
                f"{self.name} is not defined for {sum(scores.undefined.values())} of {len(scores)} explicands "
                f"({reasons}); the mean excludes them"
            )
        return replace(
            scores,
            values=scores.values.to(inputs.home),
            metric=self.name,
            better=self.better,
            curves=None if scores.curves is None else scores.curves.to(inputs.home),
            at=None if scores.at is None else scores.at.to(inputs.home),
            settings={**summary(self), **scores.settings, "seed": int(seed)},
        )
