"""Streaming of attributions: the running mean over references, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ig2._engine.moments import Moments
from ig2._engine.private import tree_iter, tree_map_only
from ig2.attribution import Attribution
from ig2.methods import Method, PathMethod
from ig2.model import Model

AT_ONCE = 2  # references of a batch


@dataclass(frozen=True, eq=False)
class Partial:
    """An attribution from some of its references.

    Args:
        attribution: the mean over the completed references.
        done: the number of completed references.
        total: the total number of references.
    """

    attribution: Attribution
    done: int
    total: int


def stream(
    method: Method,
    model: Model,
    x: Any,
    target: Any = None,
    references: Any = None,
    *,
    against: Any = None,
    seed: int = 0,
    at_once: int = AT_ONCE,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Partial]:
    """Explain one explicand, and yield the running mean φ⁽ⁿ⁾ = φ⁽ⁿ⁻¹⁾ + (φₙ − φ⁽ⁿ⁻¹⁾) / n after every batch of references.

    The mean is updated reference by reference in their order, as in the method's call, so that the last attribution is that of
    `method(model, x, target, references)`, except for its `gradcfe`. Methods that are not a mean over samples yield one
    attribution.

    Args:
        method: the method.
        model: the model to explain.
        x: one explicand, as for the method.
        target: the explained class.
        references: samples (1, R, ...) or in the structure of x, a strategy, or None.
        against: as for the method.
        seed: the random seed.
        at_once: the number of references per batch.
        progress: called with (done, total) points of a batch; any exception it raises stops the computation.

    >>> import ig2, torch
    >>> net = ig2.wrap(lambda x: x @ torch.tensor([[2.0], [1.0]]))
    >>> x, references = torch.ones(1, 2), torch.zeros(1, 3, 2)
    >>> [(part.done, part.attribution.values.tolist()) for part in stream(ig2.ExpectedIG(4), net, x, 0, references)]
    [(2, [[2.0, 1.0]]), (3, [[2.0, 1.0]])]
    """
    total = count_references(method, references)
    options: dict[str, Any] = {"against": against, "seed": seed, "progress": progress}
    if total < 2:
        yield Partial(method(model, x, target, references, **options), 1, 1)
        return
    whole: Attribution | None = None
    moments: list[Moments] = []
    for start in range(0, total, at_once):
        chunk = _cut(references, start, start + at_once)
        part = method(model, x, target, chunk, per_reference=True, **options)
        each = list(tree_iter(part.per_reference))
        moments = moments or [Moments(values[:, 0]) for values in each]
        for mean, values in zip(moments, each, strict=True):
            for number in range(values.shape[1]):
                mean.add(0, start + number, values[0, number])
        done = start + each[0].shape[1]
        whole = _join(whole, part, moments, start, done)
        yield Partial(whole, done, total)


def count_references(method: Method, references: Any) -> int:
    """Return the number of references in the mean; 1 if it cannot be split."""
    # a subclass with a run of its own, such as GradCFE, may make something else of the references
    is_mean = isinstance(method, PathMethod) and type(method).run is PathMethod.run and method.path.uses_reference
    tensors = [part for part in tree_iter(references) if isinstance(part, Tensor)] if is_mean else []
    return tensors[0].shape[1] if tensors else 1


def _cut(references: Any, start: int, stop: int) -> Any:
    return tree_map_only(Tensor, lambda samples: samples[:, start:stop], references)


def _like(tree: Any, tensors: Iterable[Tensor]) -> Any:
    """Return tensors in the structure of others."""
    rest = iter(tensors)
    return tree_map_only(Tensor, lambda _: next(rest), tree)


def _join(whole: Attribution | None, part: Attribution, moments: list[Moments], before: int, done: int) -> Attribution:
    """Combine an attribution from `before` references with one from those after them."""
    values = _like(part.values, (mean.mean.clone() for mean in moments))
    spread = _like(part.values, (mean.deviation(done) for mean in moments)) if done > 1 else None
    joined: dict[str, Any] = {"values": values, "spread": spread, "gradcfe": None}
    if whole is not None:
        share = before / done
        joined["output"] = share * whole.output + (1 - share) * part.output
        joined |= Attribution.join_references([whole, part])
    return replace(part, **joined)
