"""Exact Shapley values of games on coalitions of features, and the correlation of attributions with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ig2._engine.explicands import Explicands
from ig2._utils.checks import check_count, require
from ig2._utils.progress import Progress, ProgressOption
from ig2._utils.settings import COUNT, NUMBER, setting
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.inputs import Structured
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.conditional import CONDITIONAL, Conditional, average_outputs, check_tabular
from ig2.metrics.correlation import correlate, rounding_error
from ig2.model import Model, as_model
from ig2.task import Against, open_task

# 65 536 coalitions: with more features their number is out of reach.
MOST_FEATURES = 16


def shapley_values(worth: Tensor) -> Tensor:
    """Return the Shapley values of games, given the worth of each of the 2ᵈ coalitions [Shapley 1953].

    φⱼ = Σ_{S ∌ j} |S|! (d − |S| − 1)! / d! · (v(S ∪ {j}) − v(S)).

    >>> shapley_values(torch.tensor([0.0, 1.0, 2.0, 5.0]))
    tensor([2., 3.], dtype=torch.float64)

    Args:
        worth: v, (..., 2ᵈ). The coalition at index k contains player j if bit j of k is set: the first is empty, the second
            contains only player 0, the last contains all.

    Returns:
        The values, (..., d) in float64.

    Raises:
        InputError: if the length of the last axis is not a power of two.
    """
    if not isinstance(worth, Tensor) or worth.ndim == 0 or worth.shape[-1] < 2 or worth.shape[-1] & (worth.shape[-1] - 1):
        raise InputError(f"worth must be (..., 2ᵈ), one number for each coalition of d players, got {describe(worth)}")
    members = coalitions(worth.shape[-1].bit_length() - 1).to(worth.device)
    d = members.shape[1]
    # of a coalition of that many others, which a player joins
    weights = [factorial(size) * factorial(d - size - 1) / factorial(d) for size in range(d)]
    weight = torch.tensor(weights, dtype=torch.float64, device=worth.device)
    size = members.sum(dim=1, keepdim=True)
    gain, loss = weight[(size - 1).clamp(min=0)], weight[size.clamp(max=d - 1)]
    # what all coalitions are worth alike concerns nobody, and would cost digits
    return (worth.double() - worth[..., :1].double()) @ torch.where(members, gain, -loss)


def coalitions(d: int) -> Tensor:
    """Return the 2ᵈ coalitions of d players, booleans (2ᵈ, d), in the order of `shapley_values`."""
    return (torch.arange(2**d, device="cpu")[:, None] >> torch.arange(d, device="cpu")) % 2 == 1


def coalition_worth(
    outputs: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    conditional: Conditional,
    draws: int,
    seed: int,
    progress: Progress | None = None,
) -> Tensor:
    """Return v(S) = E[f(X) | x_S] for each coalition S of the features, (B, 2ᵈ) in float64 on the CPU.

    The arguments are those of `average_outputs`; `outputs` may be any function of tensors.
    """
    require(isinstance(conditional, Conditional), "conditional", conditional, CONDITIONAL.words)
    check_tabular(x, "Shapley values of coalitions of features")
    check_count(draws, "draws")
    if x.shape[1] > MOST_FEATURES:
        raise InputError(
            f"{x.shape[1]} features have 2^{x.shape[1]} coalitions, too many to try: {MOST_FEATURES} features at most"
        )
    return average_outputs(outputs, x, coalitions(x.shape[1]), conditional, draws, seed, progress)


def conditional_shapley(
    model: Model | nn.Module | Callable[..., Any],
    x: Any,
    conditional: Conditional,
    target: int | Sequence[int] | Tensor | None = None,
    *,
    against: Against = None,
    draws: int = 2000,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    progress: ProgressOption = False,
) -> Structured:
    """Return the Shapley values of v(S) = E[f(X) | x_S], over all 2ᵈ coalitions of the features [Lundberg 2017], [Aas 2021].

    They are exact up to the error of the draws, whose noise is the same for every coalition and explicand.

    >>> from ig2.metrics import ConstantFill
    >>> conditional_shapley(lambda x: x[:, 0] * x[:, 1], torch.tensor([[2.0, 3.0]]), ConstantFill(0.0), draws=1)
    tensor([[3., 3.]], dtype=torch.float64)

    Args:
        model: the result of `ig2.wrap`, or a network.
        x: explicands (B, d), d at most 16.
        conditional: the distribution of the features outside a coalition.
        target: the explained class; by default the predicted one.
        against: the classes it is explained against, as for a method.
        draws: the number of samples averaged for each coalition.
        seed: the seed of the draws.
        batch_size: the number of points that the network evaluates at once; "auto" chooses it by the free memory.
        progress: True for a progress bar, or a function called with (done, total).

    Returns:
        The values, in x's shape, in float64.

    Raises:
        InputError: if x is not tabular, or has too many features.
        ModelError: if the network fails on the samples drawn.
    """
    with open_task(
        *(as_model(model), x, target),
        against=against,
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
    """Pearson's correlation, over the features, of the attribution with the true Shapley values [Liu 2021].

    If either is the same for all features up to rounding, there is no correlation, and the score is not defined.

    >>> GTShapley()(None, torch.tensor([[1.0, 2.0, 3.0]]), truth=torch.tensor([[2.0, 4.0, 6.0]])).values.float()
    tensor([1.])

    Args:
        conditional: the distribution of the features outside a coalition, from which the truth is computed as by
            `conditional_shapley`. By default the truth is passed to the call as truth=, for example from `conditional_shapley`,
            once for many methods, and the model is not run.
        draws: the number of samples averaged for each coalition.
        if_constant: the score if there is no correlation; by default not defined. XAI-BENCH counts 0.
    """

    conditional: Conditional | None = setting(None, CONDITIONAL)
    draws: int = setting(2000, COUNT)
    if_constant: float | None = setting(None, NUMBER)
    name = "GT-Shapley"
    better = "higher"

    @property
    def runs_model(self) -> bool:  # type: ignore[override]
        return self.conditional is not None

    @property
    def truth(self) -> str | None:  # type: ignore[override]
        """A description of the required `truth`; None if it is computed."""
        return None if self.runs_model else "the true Shapley values, in x's shape"

    def run(self, case: Case) -> Scores:
        if self.conditional is not None:
            task = case.task
            worth = coalition_worth(task.outputs, task.x, self.conditional, self.draws, task.seed, task.progress)
            # the outputs have the network's precision, whatever that of their mean
            truth, rounding = shapley_values(worth), rounding_error(worth, task.x.dtype)
        else:
            expected = case.truth.values if isinstance(case.truth, Attribution) else case.truth
            truth = Explicands.of(expected, name="truth", needs_gradient=False).data.flatten(1)
            if truth.shape != case.values.flatten(1).shape:
                raise InputError(
                    f"truth is {describe(expected)}, the attribution {tuple(case.values.shape)}: they must be equal"
                )
            rounding = rounding_error(truth, truth.dtype)
        return correlate(case.values.flatten(1), truth, rounding, self.if_constant, "all features have the same Shapley value")
