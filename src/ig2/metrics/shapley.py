"""Exact Shapley values of what coalitions of features are worth, and how well attributions go with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ig2._engine.inputs import Inputs, Structured
from ig2._engine.task import open_task
from ig2._utils.checks import is_count
from ig2._utils.progress import Progress, ProgressOption
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.metrics.base import Better, Case, Metric, Result
from ig2.metrics.conditional import Conditional, check_conditional, check_tabular, expected
from ig2.metrics.perturbation import ROUNDING, check_if_constant, correlated
from ig2.model import Model, as_model

# 65 536 coalitions: with more features their number is out of reach.
MOST_FEATURES = 16


def shapley_values(worth: Tensor) -> Tensor:
    """The Shapley values (..., d) of games given by what each of the 2ᵈ coalitions is worth, in float64.

    Args:
        worth: (..., 2ᵈ). The coalition in place k has player j where bit j of k is set: the first is empty, the second has
            player 0 alone, the last has all.

    >>> shapley_values(torch.tensor([0.0, 1.0, 2.0, 5.0]))
    tensor([2., 3.], dtype=torch.float64)
    """
    if not isinstance(worth, Tensor) or worth.ndim == 0 or worth.shape[-1] < 2 or worth.shape[-1] & (worth.shape[-1] - 1):
        raise InputError(f"worth must be (..., 2ᵈ), one number for each coalition of d players, got {describe(worth)}")
    members = coalitions(worth.shape[-1].bit_length() - 1).to(worth.device)
    d = members.shape[1]
    # of a coalition of that many others, which a player joins
    weights = torch.tensor(
        [factorial(size) * factorial(d - size - 1) / factorial(d) for size in range(d)],
        dtype=torch.float64,
        device=worth.device,
    )
    size = members.sum(dim=1, keepdim=True)
    gained, lost = weights[(size - 1).clamp(min=0)], weights[size.clamp(max=d - 1)]
    # what all coalitions are worth alike concerns nobody, and would cost digits
    return (worth.double() - worth[..., :1].double()) @ torch.where(members, gained, -lost)


def coalitions(d: int) -> Tensor:
    """The 2ᵈ coalitions of d players, booleans (2ᵈ, d), in the order of `shapley_values`."""
    return (torch.arange(2**d, device="cpu")[:, None] >> torch.arange(d, device="cpu")) % 2 == 1


def coalition_worth(
    outputs: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    conditional: Conditional,
    draws: int,
    seed: int,
    progress: Progress | None = None,
) -> Tensor:
    """v(S) = E[f(X) | x_S] for each coalition S of the features, (B, 2ᵈ) in float64 on the CPU.

    Args:
        outputs: f at points (n, d) that are variants of explicands numbered (n,). Any function of tensors will do.
        x: explicands (B, d).
        conditional: what the other features may be.
        draws: how many samples are averaged.
        seed: of the draws.
        progress: told of the points evaluated.
    """
    check_conditional(conditional)
    check_tabular(x, "Shapley values of coalitions of features")
    if not is_count(draws):
        raise InputError(f"draws must be a positive integer, got {describe(draws)}")
    if x.shape[1] > MOST_FEATURES:
        raise InputError(
            f"{x.shape[1]} features have 2^{x.shape[1]} coalitions, too many to try: {MOST_FEATURES} features at most"
        )
    return expected(outputs, x, coalitions(x.shape[1]), conditional, draws, seed, progress)


def conditional_shapley(
    model: Model | nn.Module | Callable[..., Any],
    x: Any,
    conditional: Conditional,
    target: int | Sequence[int] | Tensor | None = None,
    *,
    draws: int = 2000,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    progress: ProgressOption = False,
) -> Structured:
    """Shapley values of v(S) = E[f(X) | x_S], over all 2ᵈ coalitions of the features, in x's shape, in float64.

    They are exact but for the draws, whose noise is the same for every coalition and explicand.

    Args:
        model: what `ig2.wrap` returned, or a network.
        x: explicands (B, d), d at most 16.
        conditional: what the features outside a coalition may be.
        target: the class explained; by default the one predicted.
        draws: how many samples are averaged for each coalition.
        seed: of the draws.
        batch_size: how many points the network sees at once; "auto" goes by the memory that is free.
        progress: True for a bar, or a function called with (done, total).
    """
    with open_task(
        *(as_model(model), x, target),
        label="Shapley values",
        seed=seed,
        batch_size=batch_size,
        progress=progress,
        needs_gradient=False,
    ) as task:
        worth = coalition_worth(task.outputs, task.x, conditional, draws, task.seed, task.progress)
    inputs = task.session.inputs
    return inputs.unpack(shapley_values(worth).to(inputs.home))


@dataclass(frozen=True, eq=False)
class GTShapley(Metric):
    """The correlation (Pearson, over the features) of the attribution with true Shapley values.

    Where either is the same for all features up to rounding, there is no correlation: the score is NaN, and left out of the
    mean.

    Args:
        conditional: what features outside a coalition may be; the truth is then computed, as `conditional_shapley` does.
            Without it, it is given to the call as truth=, which may come from `conditional_shapley` and serve many methods,
            and the model is not run.
        draws: how many samples are averaged for each coalition.
        if_constant: the score where there is no correlation. XAI-BENCH counts 0.
    """

    conditional: Conditional | None = None
    draws: int = 2000
    if_constant: float | None = None

    name: ClassVar[str] = "GT-Shapley"
    better: ClassVar[Better] = "higher"

    def __post_init__(self) -> None:
        if not is_count(self.draws):
            raise InputError(f"draws must be a positive integer, got {describe(self.draws)}")
        check_if_constant(self.if_constant)
        if self.conditional is not None:
            check_conditional(self.conditional)
        object.__setattr__(self, "runs_model", self.conditional is not None)
        object.__setattr__(self, "truth", None if self.conditional is not None else "the true Shapley values, in x's shape")

    def run(self, case: Case) -> Result:
        rounding: Tensor | float
        if self.conditional is not None:
            task = case.task
            worth = coalition_worth(task.outputs, task.x, self.conditional, self.draws, task.seed, task.progress)
            truth = shapley_values(worth)
            # the outputs have the network's precision, whatever that of their mean
            rounding = ROUNDING * torch.finfo(task.x.dtype).eps * worth.abs().amax(dim=1)
        else:
            given = case.truth.values if isinstance(case.truth, Attribution) else case.truth
            inputs = Inputs.of(given, name="truth", needs_gradient=False)
            truth = inputs.data.flatten(1)
            if truth.shape != case.values.flatten(1).shape:
                raise InputError(f"truth is {describe(given)}, the attribution {tuple(case.values.shape)}: they must be equal")
            rounding = ROUNDING * torch.finfo(truth.dtype).eps * truth.abs().amax(dim=1).cpu().double()
        return correlated(case.values.flatten(1), truth, rounding, self.if_constant, "all features have the same Shapley value")
