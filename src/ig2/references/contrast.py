"""References for a question from a pool of samples: what the model calls something else than the class explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ig2._engine.private import tree_map_only
from ig2.errors import InputError, ModelError, describe, format_count, quote_names, warn
from ig2.references.choice import interleave
from ig2.references.weighted import Weighted

if TYPE_CHECKING:
    from ig2.modalities.base import Batch, Subject


@dataclass(frozen=True, eq=False)
class Contrast:
    """The references of B explicands, R for each."""

    samples: Any
    """What a method takes as `references`: (B, R, ...), or `Weighted` if some explicands have fewer."""
    names: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...]
    """The model's prediction for each of them."""
    why: tuple[str, ...] = ()
    """Which samples of the pool each explicand got, and why."""
    against: Tensor | None = None
    """The class that each explicand is explained against, (B,), where the question left it open."""
    are_classes: bool = False
    """Whether the labels are classes of which each sample has one."""

    @property
    def tensors(self) -> Any:
        """The samples without weights, (B, R, ...); an explicand with fewer has duplicates, whose weight is zero."""
        return self.samples.references if isinstance(self.samples, Weighted) else self.samples

    def take(self, takes_weights: bool) -> Any:
        """Return the `references` for a method.

        One that takes no weights gets as many for each explicand as that with fewest has.
        """
        if takes_weights or not isinstance(self.samples, Weighted):
            return self.samples
        fewest = min(map(len, self.names))
        return tree_map_only(Tensor, lambda tensor: tensor[:, :fewest], self.tensors)


def check_finite(subject: Subject, names: Sequence[str], scores: Tensor) -> None:
    """Check that the model's outputs for explicands are finite.

    Raises:
        ModelError: if they are not; it names the first explicand, and has the rows of all.
    """
    bad = (~scores.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
    if bad:
        found = describe(scores[bad[0]].tolist())
        raise ModelError(f"{subject.name} returned {found} for {names[bad[0]]!r}: expected finite numbers", rows=bad)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What references are chosen from: the samples there are, and what the model says of them and of the explicands."""

    subject: Subject
    batch: Batch
    scores: Tensor
    """Of the explicands, (B, classes)."""
    explained: Tensor
    """The class explained of each, (B,)."""
    pool: Batch
    samples: Tensor
    """The pool's samples as references for each explicand, (B, P, ...)."""
    outputs: Tensor
    """The model's outputs for them, (B, P, classes)."""

    @cached_property
    def predicted(self) -> list[list[int]]:
        """The class the model predicts for each of them."""
        classes: list[list[int]] = self.outputs.argmax(dim=2).tolist()
        return classes

    def choose(self, against: Tensor | None, is_open: bool, count: int, is_asked: bool, seed: int) -> Contrast:
        """Choose references for each explicand.

        Args:
            against: the classes they are to be of, (B, K): if none is, they are of any other class; None for any.
            is_open: whether the class explained against is left open: then it is the most likely of the others that any
                sample is of, and further references are of the next likely.
            count: the number of references for each explicand.
            is_asked: whether fewer are worth a warning.
            seed: the seed of the choice, which does not depend on the other explicands.

        Raises:
            InputError: if there is no reference for an explicand.
        """
        order = torch.randperm(len(self.pool), generator=torch.Generator().manual_seed(seed)).tolist()
        chosen, why, open_classes = list[list[int]](), list[str](), list[int]()
        for row in range(len(self.batch)):
            eligible = self._find_eligible(row, order)
            if is_open:
                ranked = self._rank(row, eligible)
                chosen.append(ranked[:count])
                open_classes.append(self.predicted[row][ranked[0]])
                why.append(self._explain_open(row, chosen[-1]))
                continue
            wanted = [] if against is None else against[row].tolist()
            of_wanted = [i for i in eligible if self._is_of(row, i, wanted)]
            why.append(self._explain(row, wanted, bool(of_wanted)))
            eligible = of_wanted or eligible
            chosen.append(interleave(eligible, [self._class_key(row, i) for i in eligible])[:count])
        counts = [len(numbers) for numbers in chosen]
        if is_asked and min(counts) < count:
            short = [name for name, reached in zip(self.batch.names, counts, strict=True) if reached < count]
            warn(
                f"{format_count(min(counts), 'reference')}, and not {count}: of the {len(self.pool)} looked at, no more "
                f"can be contrasted with {quote_names(short, 3)}"
            )
        name = self.subject.describe_output
        return Contrast(
            self._gather(chosen),
            tuple(tuple(self.pool.names[i] for i in numbers) for numbers in chosen),
            tuple(tuple(name(self.outputs[row, i]) for i in numbers) for row, numbers in enumerate(chosen)),
            tuple(why),
            torch.tensor(open_classes) if is_open else None,
            self.subject.outputs == "classes" and self.scores.shape[1] > 1,
        )

    def _gather(self, chosen: Sequence[Sequence[int]]) -> Any:
        """Return the chosen samples; an explicand with fewer than others has some twice, the second time without weight."""
        counts = [len(numbers) for numbers in chosen]
        longest = max(counts)
        filled = [[*numbers] * -(-longest // len(numbers)) for numbers in chosen]
        stacked = torch.stack([self.samples[row, numbers[:longest]] for row, numbers in enumerate(filled)])
        references = self.batch.like_x(stacked)
        if min(counts) == longest:
            return references
        return Weighted(references, (torch.arange(longest) < torch.tensor(counts)[:, None]).double())

    # -- which samples -------------------------------------------------------------------------------------------------

    def _find_eligible(self, row: int, order: Sequence[int]) -> list[int]:
        """Return the samples that are not the explicand itself, nor of the class explained."""
        sample = self.batch.attributed[row].to(self.samples)
        same = (self.samples[row] == sample).flatten(1).all(dim=1).tolist()
        eligible = [i for i in order if not same[i] and self._contrasts(row, i)]
        if not eligible:
            check_finite(self.subject, self.batch.names, self.scores)
            label = self.subject.label(int(self.explained[row]))
            what = f"is {label!r} to the model" if self.subject.outputs == "classes" else f"agrees on {label!r}"
            raise InputError(
                f"nothing to contrast {self.batch.names[row]!r} with: each reference there is ({len(self.pool)}) {what}, or "
                "is the sample itself; give others"
            )
        return eligible

    def _contrasts(self, row: int, number: int) -> bool:
        """Return whether a sample of the pool is a valid reference for the explained class."""
        scores, target = self.outputs[row, number], int(self.explained[row])
        if self.subject.outputs == "numbers":
            return True
        if self.subject.outputs == "labels" or len(scores) == 1:
            return self.subject.is_positive(scores[target]) != self.subject.is_positive(self.scores[row, target])
        declared = (self.pool.labels[number] if self.pool.labels else None) or ""
        return self.predicted[row][number] != target and declared.lower() != self.subject.label(target).lower()

    def _rank(self, row: int, eligible: Sequence[int]) -> list[int]:
        """Return samples in the order of how likely the explicand is to be of their class."""
        place = self.scores[row].argsort(descending=True, stable=True).argsort().tolist()
        return sorted(eligible, key=lambda i: place[self.predicted[row][i]])

    def _class_key(self, row: int, number: int) -> Any:
        """Return the class of a sample by which references are chosen round-robin."""
        declared = self.pool.labels[number] if self.pool.labels else None
        scores = self.outputs[row, number]
        return declared or (self.subject.describe_output(scores) if self.subject.outputs == "classes" else number)

    def _is_of(self, row: int, number: int, wanted: Sequence[int]) -> bool:
        """Return whether the model predicts one of these classes for a sample of the pool."""
        if self.subject.outputs == "labels":
            return any(self.subject.is_positive(self.outputs[row, number, index]) for index in wanted)
        return self.subject.outputs == "classes" and self.predicted[row][number] in wanted

    # -- in words ------------------------------------------------------------------------------------------------------

    def _explain(self, row: int, wanted: Sequence[int], has_wanted: bool) -> str:
        """Describe which samples of the pool an explicand gets, and why."""
        subject = self.subject
        if subject.outputs == "numbers":
            return "any samples, since the outputs are numbers and not classes"
        classes = " or ".join(repr(subject.label(index)) for index in wanted)
        if has_wanted:
            return f"samples the model calls {classes}"
        answer = "does not call" if subject.outputs == "classes" else "disagrees with on"
        missing = f", since it calls none of the {len(self.pool)} looked at {classes}" if wanted else ""
        return f"samples the model {answer} {subject.label(int(self.explained[row]))!r}{missing}"

    def _explain_open(self, row: int, numbers: Sequence[int]) -> str:
        """Describe the classes of an explicand's references, where these decide what it is explained against."""
        subject, target = self.subject, int(self.explained[row])
        classes = list(dict.fromkeys(self.predicted[row][i] for i in numbers))
        words = f"samples the model calls {' or '.join(repr(subject.label(index)) for index in classes)}"
        ranked = self.scores[row].argsort(descending=True, stable=True).tolist()
        likely = next(index for index in ranked if index != target)
        if likely in classes:
            return words
        return f"{words}, since it calls none of the {len(self.pool)} looked at {subject.label(likely)!r}"
