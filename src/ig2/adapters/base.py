"""What every kind of data offers to the command, the pictures and the report."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2._engine.inputs import Inputs, is_fixed, value_of
from ig2._engine.task import open_task, scores
from ig2._utils.checks import check_seed, is_count
from ig2._utils.suggestions import suggest
from ig2.attribution import Attribution
from ig2.errors import InputError, describe, warn
from ig2.model import Model
from ig2.references.choice import interleave
from ig2.references.counterfactual import YES_ABOVE

Kind = Literal["image", "text", "table"]
# what the model's outputs are: one class of several, labels that hold independently, or plain numbers
Outputs = Literal["classes", "labels", "numbers"]
SomeSubject = TypeVar("SomeSubject", bound="Subject")
AT_A_TIME = 32  # samples the network sees at once where no gradient is taken
REFERENCES = 10  # for each sample, unless another number is asked for


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples that have been read: what a method is called with, and how a person knows them."""

    names: tuple[str, ...]  # a file's name, a sentence, a row
    x: Any  # a tensor, or a tuple or dict of them with ig2.Fixed
    units: tuple[tuple[str, ...], ...] | None = None  # each sample's words or columns; none for images
    cells: tuple[tuple[str, ...], ...] | None = None  # what stands in the columns
    labels: tuple[str | None, ...] | None = None  # the class someone gave each, where that is known

    def __len__(self) -> int:
        return len(self.names)

    @property
    def attributed(self) -> Tensor:
        """The one tensor of x that moves along a path."""
        items = self.x.values() if isinstance(self.x, Mapping) else self.x if isinstance(self.x, (tuple, list)) else [self.x]
        (tensor,) = [value_of(item) for item in items if not is_fixed(item)]
        assert isinstance(tensor, Tensor)
        return tensor

    def like_x(self, tensor: Tensor) -> Any:
        """References for these samples in the structure that methods expect: that of x, less what is fixed."""
        if isinstance(self.x, Mapping):
            return {key: tensor for key, item in self.x.items() if not is_fixed(item)}
        return (tensor,) if isinstance(self.x, (tuple, list)) else tensor


@dataclass(frozen=True, eq=False)
class Contrast:
    """The samples each explicand is contrasted with: B explicands, R references each."""

    samples: Any  # (B, R, ...), what a method takes as `references`
    names: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...]  # what the model says each of them is


@dataclass(frozen=True, eq=False, repr=False)
class Subject(ABC):
    """A model together with the data it understands."""

    kind: ClassVar[Kind]
    batches: ClassVar[type[Batch]] = Batch  # what it reads samples into
    name: str
    model: Model
    classes: tuple[str, ...] | None
    outputs: Outputs = field(default="classes", kw_only=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, classes={describe(self.classes)}, outputs={self.outputs!r})"

    # -- classes -------------------------------------------------------------------------------------------------------

    def label(self, index: int) -> str:
        """A class in words."""
        return self.classes[index] if self.classes is not None and index < len(self.classes) else f"class {index}"

    def index(self, wanted: str | int) -> int:
        """The class a person means: its number, its name, or a part of the name that no other has."""
        text = str(wanted).strip()
        if re.fullmatch("-?[0-9]{1,18}", text) and (self.classes is None or text not in self.classes):
            number = int(text)
            if number < 0 or (self.classes is not None and number >= len(self.classes)):
                last = "on" if self.classes is None else f"to {len(self.classes) - 1}"
                there = f"the model's classes are numbered from 0 {last}"
                raise InputError(f"class {number} does not exist: {there}")
            return number
        if self.classes is None:
            raise InputError(f"class {text!r}: this model's classes have no names, give a number")
        names = [name.lower() for name in self.classes]
        if text.lower() in names:
            return names.index(text.lower())
        partial = [i for i, name in enumerate(names) if text and text.lower() in name]
        if len(partial) == 1:
            return partial[0]
        if partial:
            raise InputError(f"class {text!r} could be {quote_names([self.classes[i] for i in partial], 5)}: say which")
        raise InputError(f"the model has no class {text!r}{suggest(text, self.classes, 3, 'it has')}")

    def _check_names(self, outputs: int) -> None:
        """See that there is a name for each output, as soon as their number is known."""
        if self.classes is not None and len(self.classes) != outputs:
            raise InputError(
                f"{self.name} has {outputs} output{'s' * (outputs != 1)} and {len(self.classes)} names for them, "
                f"{quote_names(self.classes, 4)}: give classes one name for each output"
            )

    # -- data ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, sources: Any) -> Batch:
        """Samples from what a person has: files, sentences, rows."""

    @abstractmethod
    def pool(self, sources: Any = None) -> Batch:
        """Samples to contrast with: those given, or those that come with the model."""

    @abstractmethod
    def scores(self, batch: Batch, attribution: Attribution, values: Any = None) -> list[NDArray[np.float64]]:
        """Each sample's attribution as it is shown: a map (H, W) of an image, a number a word or column.

        `values` stands in for `attribution.values` where something else of its shape is shown, such as one reference's share.
        """

    # -- what the model says -------------------------------------------------------------------------------------------

    def to(self: SomeSubject, device: str | torch.device) -> SomeSubject:
        """Move the network, and with it the work, to a device. Samples are brought there by the methods."""
        self.model.net.to(device)
        if isinstance(self.model.preprocess, nn.Module):
            self.model.preprocess.to(device)
        return self

    def predict(self, batch: Batch) -> Tensor:
        """The outputs of all classes, (B, classes)."""
        outputs = scores(self.model, batch.x).cpu()
        self._check_names(outputs.shape[1])
        return outputs

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Outputs as probabilities, or nothing where they are none."""
        if self.outputs == "numbers" or not isinstance(self.model.output, str):
            return None
        if self.model.output == "log-probability":
            return scores.exp()
        if self.model.output != "logit":
            return scores
        return scores.softmax(dim=1) if self.outputs == "classes" and scores.shape[1] > 1 else scores.sigmoid()

    # -- references ----------------------------------------------------------------------------------------------------

    def candidates(self, pool: Batch, batch: Batch) -> Tensor:
        """The pool's samples as references for a batch: (P, ...) for every explicand, or (B, P, ...) for each its own."""
        return pool.attributed

    def contrast(
        self,
        batch: Batch,
        target: int | Sequence[int] | Tensor | None = None,
        pool: Batch | None = None,
        count: int | None = None,
        seed: int = 0,
        against: Tensor | None = None,
    ) -> Contrast:
        """Choose references for each sample: never the sample itself, never one that the model gives the explained class.

        Of independent labels, those whose answer to the explained label is the opposite; of plain numbers, any.

        Args:
            batch: the samples to explain.
            target: the class explained, one for all or one for each; by default the class predicted.
            pool: samples to choose from, as `read` or `pool` gives them. By default those that come with the model.
            count: how many, by default 10; fewer where the pool has fewer, with a warning if a number was asked for. Each class
                gives one before any gives two.
            seed: of the choice, which is the same for a sample whatever else is in the batch.
            against: classes (B, K) that a sample's references are of, where the pool has some of them.
        """
        pool = self.pool() if pool is None else pool
        for name, samples in (("batch", batch), ("pool", pool)):
            if not isinstance(samples, self.batches):
                raise InputError(f"{name} must be samples as this subject's read or pool gives them, got {describe(samples)}")
        if count is not None and not is_count(count):
            raise InputError(f"count must be a positive integer, got {describe(count)}")
        check_seed(seed)
        inputs = Inputs.of(batch.x, self.model.device, needs_gradient=False)
        candidates = self.candidates(pool, batch).detach().to(inputs.data)
        if candidates.is_inference():
            with torch.inference_mode(False):
                candidates = candidates.clone()  # the copy may be looked at as any tensor
        if candidates.ndim == inputs.data.ndim:
            candidates = candidates.expand(len(batch), *candidates.shape)
        if candidates.shape[2:] != inputs.data.shape[1:]:
            raise InputError(
                f"the pool's samples are {tuple(candidates.shape[2:])}, the batch's {tuple(inputs.data.shape[1:])}"
            )
        own, outputs, explained = self._outputs(inputs, candidates, target)
        order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed)).tolist()
        chosen = []
        for row, index in enumerate(explained.tolist()):
            same = (candidates[row] == inputs.data[row]).flatten(1).all(dim=1).tolist()
            eligible = [i for i in order if not same[i] and self._contrasts(pool, i, outputs[row, i], own[row], index)]
            if not eligible:
                what = (
                    f"is {self.label(index)!r} to the model"
                    if self.outputs == "classes"
                    else f"agrees on {self.label(index)!r}"
                )
                raise InputError(
                    f"nothing to contrast {batch.names[row]!r} with: each reference there is ({len(pool)}) {what}, or "
                    "is the sample itself; give others"
                )
            if against is not None:
                wanted = against[row].tolist()
                eligible = [i for i in eligible if int(outputs[row, i].argmax()) in wanted] or eligible
            chosen.append(
                interleave(eligible, [self._class_key(pool, i, outputs[row, i]) for i in eligible])[: count or REFERENCES]
            )
        fewest = min(map(len, chosen))
        if count is not None and fewest < count:
            name = batch.names[[len(numbers) for numbers in chosen].index(fewest)]
            warn(
                f"{fewest} reference{'s' * (fewest != 1)} a sample, and not {count}: of the {len(pool)} there are, no more can "
                f"be contrasted with {name!r}"
            )
        chosen = [numbers[:fewest] for numbers in chosen]
        return Contrast(
            batch.like_x(torch.stack([candidates[row, numbers] for row, numbers in enumerate(chosen)])),
            tuple(tuple(pool.names[i] for i in numbers) for numbers in chosen),
            tuple(tuple(self.describe_output(outputs[row, i]) for i in numbers) for row, numbers in enumerate(chosen)),
        )

    def _outputs(self, inputs: Inputs, candidates: Tensor, target: Any) -> tuple[Tensor, Tensor, Tensor]:
        """What the model says of the explicands, (B, classes), and of each one's candidates (B, P, ...), (B, P, classes); and
        the class explained, (B,)."""
        # what is fixed comes from the explicand, so a candidate shared by all may be another thing beside each
        explicands_own = inputs.held or any(isinstance(value, Tensor) for value in inputs.fixed.values())
        shared = candidates.stride(0) == 0 and not explicands_own
        with open_task(self.model, inputs, target, label="references", batch_size=AT_A_TIME) as task:
            rows = task.rows
            own = task.explicand_scores
            self._check_names(own.shape[1])
            outputs = [task.scores(candidates[row], row.expand(candidates.shape[1])) for row in (rows[:1] if shared else rows)]
        return own.cpu(), torch.stack(outputs).cpu().expand(len(inputs), -1, -1), task.target.cpu()

    def _class_key(self, pool: Batch, number: int, scores: Tensor) -> Any:
        """What counts as one class when references are spread over classes."""
        declared = pool.labels[number] if pool.labels else None
        return declared or (self.describe_output(scores) if self.outputs == "classes" else number)

    def _contrasts(self, pool: Batch, number: int, scores: Tensor, own: Tensor, target: int) -> bool:
        """Whether a sample of the pool is something else than what is explained."""
        if self.outputs == "numbers":
            return True
        if self.outputs == "labels" or len(scores) == 1:
            return self._is_positive(scores[target]) != self._is_positive(own[target])
        declared = (pool.labels[number] if pool.labels else None) or ""
        return int(scores.argmax()) != target and declared.lower() != self.label(target).lower()

    def _is_positive(self, score: Tensor) -> bool:
        """Whether an output says yes to its label."""
        return bool(score > YES_ABOVE.get(str(self.model.output), 0.5))

    def describe_output(self, scores: Tensor) -> str:
        """What the model says of a sample, in words."""
        if self.outputs == "numbers":
            return ", ".join(f"{float(score):.4g}" for score in scores[:4])
        if self.outputs == "labels" or len(scores) == 1:
            return ", ".join(self.label(i) for i, score in enumerate(scores) if self._is_positive(score)) or "none"
        return self.label(int(scores.argmax()))


def extract_tensor(attribution: Attribution, values: Any) -> Tensor:
    """The values to show: those given, or the attribution's, where exactly one tensor is attributed."""
    values = attribution.values if values is None else values
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if isinstance(values, (tuple, list)) and len(values) == 1:
        values = values[0]
    if not isinstance(values, Tensor):
        raise InputError(f"expected attributions of one tensor, got {describe(values)}")
    return values.detach().cpu().double()


def quote_names(names: Sequence[str], most: int) -> str:
    """The first of some names, quoted, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
