"""One call of a method: the opened network, the explicands, and how the work is to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ig2._engine.memory import BatchSize
from ig2._engine.network import contrast
from ig2._engine.session import Session, open_session
from ig2._utils.checks import check_seed
from ig2._utils.progress import Progress, ProgressOption
from ig2.errors import IG2Error, InputError, describe
from ig2.model import Model, as_model

Against = int | Sequence[int] | Sequence[Sequence[int]] | Tensor | Literal["next"] | None


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
    explicand_scores: Tensor  # of the session's explicands, all classes, (explicands, classes); against nothing
    graph: tuple[Tensor, Tensor] | None = None  # the samples, and the scores with their graph, of a pass of all of them

    def __len__(self) -> int:
        return self.x.shape[0]

    @property
    def output(self) -> Tensor:
        """The explained output of the explicand that each sample is, or is a variant of, (B,)."""
        scores = self.explicand_scores[self.rows]
        scores = scores if self.against is None else contrast(scores, self.against)
        return scores.gather(1, self.target[:, None])[:, 0]

    @property
    def against(self) -> Tensor | None:
        """The classes each sample is explained against, (B, K), if there are any."""
        return None if self.session.against is None else self.session.against[self.rows]

    def generator(self) -> torch.Generator:
        """Return random numbers for one explicand, the same for each.

        So a sample's result does not depend on its batch; nor on the device, since they are drawn
        on the CPU.
        """
        return torch.Generator().manual_seed(self.seed)

    def scores(self, points: Tensor, of: Tensor) -> Tensor:
        """Return the outputs of all classes, (n, classes), at points (n, ...) that go with samples
        `of` (n,); any number."""
        results: list[Tensor] = []

        def work(piece: range) -> None:
            part = slice(piece.start, piece.stop)
            results.append(self.session.scores(points[part], self.rows[of[part]]))

        self.batch.over(len(points), work)
        return torch.cat(results).to(points.dtype)

    def outputs(self, points: Tensor, of: Tensor) -> Tensor:
        """Return the explained output, (n,), at points (n, ...) that go with samples `of` (n,)."""
        return self.scores(points, of).gather(1, self.target[of][:, None])[:, 0]


@contextmanager
def open_task(
    model: Model,
    x: Any,
    target: Any = None,
    *,
    against: Against = None,
    label: str,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    progress: ProgressOption = False,
    runs_once: bool = False,
    **options: bool,
) -> Iterator[Task]:
    """Open the network on x, for the class given or predicted.

    Args:
        model: whose network is opened.
        x: as a method is called with, or `Explicands` made of it.
        target: as a method is called with.
        against: as a method is called with.
        label: what the progress bar calls the work.
        seed: of the call.
        batch_size: how many points at once.
        progress: as a method is called with.
        runs_once: whether the gradient at the explicands is all that is going to be asked for. The pass that finds the
            class is then the one it is taken from, if it can be one.
        options: as for `open_session`.
    """
    check_seed(seed)
    model, target, against = model.ask(target, against)
    options |= {"runs_once": runs_once}
    with open_session(model, x, batch_size=batch_size, **options) as session, Progress(progress, label) as bar:
        samples = session.inputs.data
        batch = BatchSize(1 if session.runs_singly else batch_size, session.bytes_per_point, session.device)
        try:
            scores, graph = _score_explicands(session, batch, runs_once)
        except Exception as error:
            if not isinstance(error, IG2Error):
                session.look_again()
            raise
        rows, classes = torch.arange(len(samples), device=samples.device), _choose_classes(target, scores)
        if model.target is not None:
            model.target.check(scores[:, 0])
        if against is not None:
            session.against = choose_against(against, classes, scores, rows)
            if graph is not None:
                with torch.enable_grad():
                    graph = (graph[0], contrast(graph[1], session.against))
        yield Task(session, samples, rows, classes, int(seed), batch, bar, scores, graph)


def _score_explicands(session: Session, batch: BatchSize, keep_graph: bool) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Return the outputs of all classes at the session's explicands; their graph too, if it is
    wanted and one batch holds them."""
    x = session.inputs.data
    rows = torch.arange(len(x), device=x.device)
    graph: tuple[Tensor, Tensor] | None = None
    results: list[Tensor] = []

    def work(piece: range) -> None:
        nonlocal graph
        if keep_graph and len(piece) == len(x):
            points = x.detach().requires_grad_()
            graph = (points, session.scores_with_graph(points, rows))
            results.append(graph[1].detach())
            return
        part = slice(piece.start, piece.stop)
        results.append(session.score_explicands(x[part], rows[part]))

    batch.over(len(x), work)
    return torch.cat(results).to(x.dtype), graph


def _choose_classes(target: Any, scores: Tensor) -> Tensor:
    """Return the class explained of each sample, (B,): the target, or the class predicted."""
    if target is None:
        return scores.argmax(dim=1)
    chosen = _read_classes(target, scores, "target")
    if chosen.ndim > 1 or (chosen.ndim == 1 and len(chosen) != len(scores)):
        raise InputError(f"target is {describe(target)}: expected one class, or one for each of {len(scores)} explicands")
    return chosen.expand(len(scores))


def choose_against(against: Any, target: Tensor, scores: Tensor, rows: Tensor, name: str = "against") -> Tensor:
    """Return the classes each sample is explained against.

    Args:
        against: a class, one for each explicand, K of them in a row for each or in a single row for all, or "next".
        target: the class explained of each sample, (B,).
        scores: of the explicands, (explicands, classes).
        rows: which explicand each sample is, (B,).
        name: what the user calls them.

    Returns:
        Classes (B, K), none of which is the one explained.
    """
    if scores.shape[1] == 1:
        raise InputError(
            f"{name}={describe(against)}: the network has a single output, so there is no other class. Explain it as it is; "
            "which way the values go is then the references' choice"
        )
    if isinstance(against, str) and against == "next":
        best = scores[rows].argsort(dim=1, descending=True, stable=True)
        return torch.where(best[:, :1] == target[:, None], best[:, 1:2], best[:, :1])
    chosen = _read_classes(against, scores, name)
    table = chosen.reshape(-1, 1) if chosen.ndim < 2 else chosen
    if chosen.ndim > 2 or len(table) not in (1, len(scores)):
        raise InputError(
            f"{name} is {describe(against)}: expected one class, one for each of {len(scores)} explicands, or 'next'; several "
            "classes for all explicands are a row of their own, [[3, 5]]"
        )
    table = table.expand(len(scores), -1)[rows]
    same = (table == target[:, None]).any(dim=1)
    if same.any():
        row = int(rows[same][0])
        raise InputError(
            f"explicand {row} is explained as class {int(target[same][0])}, and {name} names that class too: ask for another "
            f"one, for example {name}='next', the most likely of the others, or explain another class with target="
        )
    return table


def _read_classes(value: Any, scores: Tensor, name: str) -> Tensor:
    """Return class indices as the user passed them, in a tensor beside scores (explicands, classes)."""
    classes = scores.shape[1]
    try:
        chosen = torch.as_tensor(value, device=scores.device)
    except (TypeError, ValueError, RuntimeError) as error:
        hint = ", or 'next'" if name != "target" else ""
        raise InputError(f"{name} must be a class index or one for each explicand{hint}, got {describe(value)}") from error
    if chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool or not chosen.numel():
        raise InputError(
            f"{name} must hold class indices (integers), got {describe(value)}; pass samples to contrast with as references="
        )
    if int(chosen.min()) < 0 or int(chosen.max()) >= classes:
        raise InputError(f"{name} {describe(value)} is not a class: the model has {classes}, 0 to {classes - 1}")
    return chosen.long()


def scores(model: Model | nn.Module | Callable[..., Any], x: Any, *, batch_size: int | Literal["auto"] = "auto") -> Tensor:
    """Return the explained output f of every class at some samples.

    Args:
        model: what `ig2.wrap` returned, or a network, which is then wrapped with the defaults.
        x: samples (B, ...), or a tuple or dict of tensors, as a method takes them; integers and booleans too, since no gradient
            is taken.
        batch_size: how many samples the network sees at once.

    Returns:
        Scores (B, classes), on x's device.

    Raises:
        InputError: if x or batch_size cannot be used.
        ModelError: if the network cannot be run on x.

    >>> scores(lambda x: x @ torch.tensor([[2.0], [-1.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[2.]])
    """
    with open_task(as_model(model), x, label="scores", batch_size=batch_size, needs_gradient=False, prepares=False) as task:
        return task.explicand_scores.to(task.session.inputs.home)
