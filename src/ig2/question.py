"""The question put to a model: asked once, and answered the same by every method at every door.

"Why the target rather than the classes against?" A question has both, the samples to contrast with,
and the seed. `Question.pose` turns it, with a method and samples, into the call that is made. What
a method is given, how many references, of which classes, and the words that say what was asked are
decided here, from what the method declares of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ig2._engine.explicands import Explicands
from ig2._utils.checks import check_count, check_seed
from ig2.attribution import Attribution
from ig2.errors import WITHOUT_GRADIENTS, InputError, describe
from ig2.methods import Method, PathMethod, Turns
from ig2.methods.base import summary
from ig2.model import Model, as_model
from ig2.names import ask_why, name_output
from ig2.references.base import References
from ig2.references.contrast import Candidates, Contrast
from ig2.targets import Class, Target, as_target
from ig2.task import Task, choose_against, open_task, scores

if TYPE_CHECKING:
    from ig2.modalities.base import Batch, Subject

COUNT = 4  # references for each explicand, unless another number is asked for
AT_A_TIME = 32  # samples the network sees at once where no gradient is taken


@dataclass(frozen=True, eq=False)
class Question:
    """Why the target rather than the classes against, as seen beside the references?

    Args:
        target: the class explained, by name or number, one for all explicands or a list with one
            for each; or a target of `ig2.targets`. By default the predicted class.
        against: the classes it is explained against, by name or in the form that every method
            takes: the explained output is then the difference, and references are of these classes
            if there are any. "next" is the most likely of the others. None explains the target's
            output alone, with references of any other class. "auto" is the most likely of the
            others that references can be of, for a model of several classes, and None for labels,
            numbers and targets of `ig2.targets`.
        references: what methods get that need references. By default samples that come with the
            subject, while methods with a baseline by convention have that one. Samples to choose
            from instead, in the form that the subject's `read` or `pool` takes or returns, go to
            every method that takes references. So do a strategy of `ig2.references`, a number, or
            samples as methods take them (a tensor, or a tuple or dict of tensors), of which none
            are chosen.
        count: the number of references that are chosen for each explicand: by default 4, or as many
            as there are; the paper has 10. A photo's map from 4 of 6 references has a rank
            correlation of 0.92 to 0.97 with that from all.
        seed: the random seed.

    Raises:
        InputError: if count or seed is not valid.
    """

    target: Any = None
    against: Any = "auto"
    references: Any = None
    count: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count is not None:
            check_count(self.count)
        check_seed(self.seed)

    def pose(self, subject: Subject | Model | nn.Module | Callable[..., Any], method: Method, batch: Any) -> Call:
        """Return the call of a method that answers the question.

        Args:
            subject: the model with the data it reads; or a network, which has no samples to choose
                references from.
            method: the method.
            batch: the samples, as the subject's `read` returns them; for a network, its input.

        Raises:
            InputError: if the method needs references and there are none, or a class does not
                exist; the message states the remedy.
        """
        if not (isinstance(subject, (Model, nn.Module)) or callable(subject)):
            return Inquiry(self, subject).pose(method, batch)
        # of a network it is not known whether its outputs exclude each other
        against = None if _is(self.against, "auto") else self.against
        model = as_model(subject)
        return Call(method, model, batch, self.target, against, self.references, self)

    def contrast(self, subject: Subject, batch: Batch) -> Contrast:
        """Return the references that a method which needs some is given.

        They exclude the sample itself and samples predicted as the explained class; for independent labels they have the
        opposite prediction of the explained label, for plain numbers they are any.
        """
        return Inquiry(self, subject).choose(batch)

    def describe(self) -> dict[str, Any]:
        """Return the question in JSON-like values, as attributions and stores keep it."""
        given = self.references is None or is_given(self.references)
        return {
            "target": summary(self.target),
            "against": summary(self.against),
            "references": summary(self.references) if given else describe(self.references),
            "count": self.count or COUNT,
            "seed": int(self.seed),
        }


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a method that answers a question; calling it returns the attribution."""

    method: Method
    model: Model
    x: Any
    target: Any
    against: Any
    references: Any
    """The references as for the method; None if it has a baseline of its own."""
    question: Question
    inquiry: Inquiry | None = None
    """Who is asked, if the samples have names; None for a network and tensors."""
    batch: Batch | None = None
    """The samples, if they have names."""
    contrast: Contrast | None = None
    """The references as they were chosen, with names and reasons; None if they were not chosen."""

    def __call__(self, **options: Any) -> Attribution:
        """Return the attribution, with the names of its samples.

        Args:
            options: further options of a method's call, such as `curves=True`.
        """
        return self.name(self.run(**options))

    def run(self, **options: Any) -> Attribution:
        """Return the attribution without names."""
        asked = {"against": self.against, "seed": self.question.seed}
        attribution = self.method(self.model, self.x, self.target, self.references, **asked, **options)
        attribution.settings["question"] = self.question.describe()
        return attribution

    def estimate(self) -> float:
        """Return the seconds that it will take; 0 for methods that cannot estimate it."""
        if not isinstance(self.method, (PathMethod, Turns)):
            return 0.0
        options = {"target": self.target, "against": self.against}
        return self.method.estimate(self.model, self.x, self.references, **options).seconds

    def name(self, attribution: Attribution) -> Attribution:
        """Return what the method found with names, and with the question in words."""
        if self.inquiry is None or self.batch is None:
            return attribution
        # at a layer, the attribution has the activation in place of the samples
        inside, skipped = "at" in attribution.settings, attribution.settings.get("skipped")
        outputs = None
        if attribution.question is None and not skipped:
            outputs = self.inquiry.scores(self.batch)
        elif attribution.question is None and not inside:
            outputs = scores(self.model, attribution.x).cpu()
        named = self.inquiry.subject.add_names(self.batch, attribution, outputs)
        against = None if named.against is None else named.against.reshape(len(named), -1).tolist()
        kept: dict[str, Any] = {}
        if self.contrast is not None:
            left_out = {entry["row"] for entry in skipped or ()}
            rows = [row for row in range(len(self.batch)) if row not in left_out]
            chosen = self.contrast
            kept["references"] = tuple(chosen.names[row] for row in rows)
            kept["reference_classes"] = tuple(chosen.labels[row] for row in rows)
            kept["why"] = tuple(chosen.why[row] for row in rows)
        labels = kept.get("reference_classes")
        kept["questions"] = tuple(self.describe(named.target.tolist(), against, named.question, labels))
        assert named.names is not None
        return named.with_names(replace(named.names, **kept))

    def describe(
        self,
        target: Sequence[int],
        against: Sequence[Sequence[int]] | None,
        explained: Target | None = None,
        labels: Sequence[Sequence[str]] | None = None,
    ) -> list[str]:
        """Return the question of each explicand in words.

        A class that no reference is of is not named without what they are of.

        Args:
            target: the class explained of each.
            against: the classes it is explained against.
            explained: what is explained instead of a class.
            labels: the classes of the references of each; by default of those of the whole batch.
        """
        name = name_output if self.inquiry is None else self.inquiry.subject.label
        if explained is not None:
            return [explained.describe(row, name) for row in range(len(target))]
        others = [[name(number) for number in row] for row in against or [()] * len(target)]
        classes: Sequence[Sequence[str]] = [()] * len(target)
        if self.contrast is not None and self.contrast.are_classes:
            classes = self.contrast.labels if labels is None else labels
        return [
            ask_why(name(number), row, () if {*row} & {*of} else of)
            for number, row, of in zip(target, others, classes, strict=True)
        ]


class Inquiry:
    """A question put to one model, batch after batch: what these have in common is found once.

    Args:
        question: the question.
        subject: the model with the data it reads.

    Raises:
        InputError: if a class does not exist.
    """

    def __init__(self, question: Question, subject: Subject) -> None:
        self.question, self.subject = question, subject
        self.target = subject.read_classes(question.target)
        self.against = subject.read_classes(question.against)
        is_class = subject.outputs == "classes" and isinstance(as_target(self.target), Class)
        if _is(self.against, "auto") and not is_class:
            self.against = None
        self._needs_gradient = False
        self._count = None if subject.classes is None else len(subject.classes)  # of outputs
        self._scores: tuple[Batch, Tensor] | None = None  # of the last batch
        self._chosen: tuple[Batch, Contrast] | None = None
        self._pool: Batch | None = None
        self._pool_outputs: tuple[Batch, Tensor] | None = None

    def pose(self, method: Method, batch: Batch) -> Call:
        """Return the call of a method for a batch; see `Question.pose`."""
        if not isinstance(method, Method):
            raise InputError(f"method must be a method such as ig2.IG2(), got {describe(method)}")
        self._check(batch, "batch")
        subject, given = self.subject, self.question.references
        if method.needs_gradient and not subject.has_gradients:
            raise InputError(
                f"{type(method).__name__} needs gradients, and {subject.name} has none: "
                f"{WITHOUT_GRADIENTS}. Or train a network on what it predicts"
            )
        self._needs_gradient |= method.needs_gradient
        contrast, references, against = None, None, self.against
        if self.is_contrasted(method):
            contrast = self.choose(batch)
            references = contrast.take(method.takes_weights)
        elif method.takes_references and given is not None:
            references = given
        elif method.default_references is not None:
            references = subject.baseline(batch)
        if _is(against, "auto"):
            against = "next" if self.has_classes(batch) else None
            against = against if contrast is None else contrast.against
        asked = (self.target, against, references, self.question)
        return Call(method, subject.model, batch.x, *asked, self, batch, contrast)

    def is_contrasted(self, method: Method) -> bool:
        """Return whether references are chosen for a method.

        For a model without gradients, such as an estimator, also for one with a baseline: zeros are
        no row of a table.
        """
        given = self.question.references
        if not method.takes_references or is_given(given):
            return False
        return given is not None or method.needs_references or not self.subject.has_gradients

    def _check(self, samples: Any, name: str) -> None:
        if not isinstance(samples, self.subject.batches):
            raise InputError(f"{name} must be samples as this subject's read or pool returns them, got {describe(samples)}")

    # -- what the model says -----------------------------------------------------------------------

    def scores(self, batch: Batch) -> Tensor:
        """Return the outputs of all classes for a batch, (B, classes), which are asked for once."""
        if self._scores is None or self._scores[0] is not batch:
            with self._open(batch, prepares=False) as task:
                self._remember(batch, task.explicand_scores)
        assert self._scores is not None
        return self._scores[1]

    def has_classes(self, batch: Batch) -> bool:
        """Return whether the model chooses one of several classes."""
        if self.subject.outputs == "classes" and self._count is None:
            self._count = self.scores(batch).shape[1]
        return self.subject.outputs == "classes" and (self._count or 0) > 1

    def _open(self, batch: Batch, target: Any = None, **options: Any) -> AbstractContextManager[Task]:
        """Open the network as the calls that were posed do, so that it is opened once for all."""
        device = self.subject.model.device
        inputs = Explicands.of(batch.x, device, needs_gradient=self._needs_gradient)
        # not against a class: what a sample is called goes by the model's own scores
        named: dict[str, Any] = {"label": "references", "batch_size": AT_A_TIME}
        return open_task(self.subject.model, inputs, target, **named, **options)

    def _remember(self, batch: Batch, outputs: Tensor) -> None:
        self.subject.check_names(outputs.shape[1])
        self._scores = batch, outputs.cpu()

    # -- references --------------------------------------------------------------------------------

    @property
    def pool(self) -> Batch:
        """The samples that references are chosen from."""
        if self._pool is None:
            source = self.question.references
            self._pool = source if hasattr(source, "like_x") else self.subject.pool(source)
            self._check(self._pool, "references")
        return self._pool

    def choose(self, batch: Batch) -> Contrast:
        """Choose references for each sample; see `Question.contrast`."""
        if self._chosen is not None and self._chosen[0] is batch:
            return self._chosen[1]
        self._check(batch, "batch")
        question, others = self.question, None
        with self._open(batch, self.target) as task:
            explained, found = task.target.cpu(), task.explicand_scores
            if task.session.model.target is None:
                self._remember(batch, found)
            is_open = _is(self.against, "auto") and found.shape[1] > 1
            if self.against is not None and not _is(self.against, "auto"):
                others = choose_against(self.against, task.target, found, task.rows).cpu()
            found = found.cpu()
            pool = self._find_pool(found, explained, others, is_open)
            candidates = self._shape_candidates(pool, batch, task.session.inputs)
            outputs = self._score_candidates(task, pool, candidates)
        asked = self.subject.ask(self.target)  # its output is a number if it is no class
        choice = Candidates(asked, batch, found, explained, pool, candidates, outputs)
        count, is_asked = question.count or COUNT, question.count is not None
        contrast = choice.choose(others, is_open, count, is_asked, question.seed)
        self._chosen = batch, contrast
        return contrast

    def _find_pool(self, found: Tensor, explained: Tensor, others: Tensor | None, is_open: bool) -> Batch:
        """Return the samples to choose from; of very many, those of classes that are wanted."""
        if self.question.references is not None:
            return self.pool
        ranked: Sequence[Sequence[int]] = [] if others is None else others.tolist()
        count = max(map(len, ranked), default=1)
        if is_open:
            count = self.question.count or COUNT
            best = found.argsort(dim=1, descending=True, stable=True)
            ranked = [row[row != target].tolist() for row, target in zip(best, explained, strict=True)]
        near = self.subject.pool_near(ranked, count)
        return self.pool if near is None else near

    def _shape_candidates(self, pool: Batch, batch: Batch, inputs: Explicands) -> Tensor:
        """Return the pool's samples as references for each explicand, (B, P, ...)."""
        candidates = self.subject.candidates(pool, batch).detach().to(inputs.data)
        if candidates.is_inference():
            with torch.inference_mode(False):
                candidates = candidates.clone()  # the copy may be looked at as any tensor
        if candidates.ndim == inputs.data.ndim:
            candidates = candidates.expand(len(batch), *candidates.shape)
        if candidates.shape[2:] != inputs.data.shape[1:]:
            raise InputError(
                f"the pool's samples are {tuple(candidates.shape[2:])}, the batch's {tuple(inputs.data.shape[1:])}"
            )
        return candidates

    def _score_candidates(self, task: Task, pool: Batch, candidates: Tensor) -> Tensor:
        """Return the outputs for each explicand's candidates (B, P, ...): (B, P, classes)."""
        inputs = task.session.inputs
        # what is fixed comes from the explicand: a candidate may be another thing beside each
        fixed = any(isinstance(value, Tensor) for value in inputs.fixed.values())
        shared = candidates.stride(0) == 0 and not inputs.held and not fixed
        known = self._pool_outputs
        if shared and known is not None and known[0] is pool:
            return known[1].expand(len(inputs), -1, -1)
        rows = task.rows[:1] if shared else task.rows
        count = candidates.shape[1]
        each = [task.scores(candidates[row], row.expand(count)) for row in rows]
        outputs = torch.stack(each).cpu()
        if shared:
            self._pool_outputs = pool, outputs
        return outputs.expand(len(inputs), -1, -1)


def is_given(references: Any) -> bool:
    """Return whether references are what a method takes, and not samples to choose from.

    That is a strategy, a number, or tensors in the structure of x.
    """
    if isinstance(references, dict):
        references = tuple(references.values())
    if isinstance(references, tuple):
        return bool(references) and all(isinstance(part, Tensor) for part in references)
    return isinstance(references, (References, Tensor, int, float))


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word
