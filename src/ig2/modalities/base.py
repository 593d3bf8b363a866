"""The base class of subjects: the interface of every kind of data to the command, the figures and the report."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2._engine.inputs import Inputs, is_fixed, take_rows, value_of
from ig2._engine.private import tree_map_only
from ig2._engine.task import Against, Task, choose_against, open_task, scores
from ig2._utils.checks import check_count, check_seed
from ig2._utils.suggestions import suggest
from ig2.attribution import Attribution
from ig2.errors import InputError, describe, quote_names, warn
from ig2.methods import IG2, RISE, KernelSHAP, Method, Occlusion
from ig2.modalities.modality import Modality
from ig2.modalities.samples import Sample
from ig2.model import YES_ABOVE, Model
from ig2.names import Names, name_output
from ig2.references.choice import interleave
from ig2.references.weighted import Weighted
from ig2.targets import AnyTarget, Class, as_target
from ig2.views import View

# what the model's outputs are: one class of several, labels that hold independently, or plain numbers
Outputs = Literal["classes", "labels", "numbers"]
SomeSubject = TypeVar("SomeSubject", bound="Subject")
SomeBatch = TypeVar("SomeBatch", bound="Batch")
AT_A_TIME = 32  # samples the network sees at once where no gradient is taken
REFERENCES = 10  # for each sample, unless another number is asked for


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples as read: the input of a method, with their names, units and labels."""

    names: tuple[str, ...]  # a file's name, a sentence, a row
    x: Any  # a tensor, or a tuple or dict of them with ig2.Fixed
    units: tuple[tuple[str, ...], ...] | None = None  # each sample's words, columns or windows; none for images
    cells: tuple[tuple[str, ...], ...] | None = None  # what stands in the columns
    labels: tuple[str | None, ...] | None = None  # the class someone gave each, where that is known

    def __len__(self) -> int:
        return len(self.names)

    @property
    def attributed(self) -> Tensor:
        """The single tensor of x that moves along a path."""
        items = self.x.values() if isinstance(self.x, Mapping) else self.x if isinstance(self.x, (tuple, list)) else [self.x]
        (tensor,) = [value_of(item) for item in items if not is_fixed(item)]
        assert isinstance(tensor, Tensor)
        return tensor

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """How many positions of each sample are its own, where the others are padding."""
        return None

    def take(self: SomeBatch, rows: Sequence[int]) -> SomeBatch:
        """Return some of the samples."""

        def pick(part: Any) -> Any:
            return tuple(part[row] for row in rows) if isinstance(part, tuple) else None if part is None else part[list(rows)]

        parts = {each.name: pick(getattr(self, each.name)) for each in fields(self) if each.name != "x"}
        return replace(self, x=take_rows(self.x, rows), **parts)

    def like_x(self, tensor: Tensor) -> Any:
        """Return references for these samples in the structure that methods expect: that of x without its fixed parts."""
        if isinstance(self.x, Mapping):
            return {key: tensor for key, item in self.x.items() if not is_fixed(item)}
        return (tensor,) if isinstance(self.x, (tuple, list)) else tensor


@dataclass(frozen=True, eq=False)
class Contrast:
    """The references of B explicands, R for each."""

    samples: Any  # what a method takes as `references`: (B, R, ...), or `Weighted` where some explicands have fewer than R
    names: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...]  # what the model says each of them is
    why: tuple[str, ...] = ()  # which samples of the pool each explicand got, and why

    @property
    def tensors(self) -> Any:
        """The samples without weights, (B, R, ...); an explicand with fewer has duplicates, whose weight is zero."""
        return self.samples.references if isinstance(self.samples, Weighted) else self.samples

    def samples_for(self, method: Method) -> Any:
        """Return the `references` for a method; if it takes no weights, each explicand gets as many as the one with fewest."""
        if not isinstance(self.samples, Weighted) or not isinstance(method, (KernelSHAP, Occlusion, RISE)):
            return self.samples
        fewest = min(map(len, self.names))
        return tree_map_only(Tensor, lambda tensor: tensor[:, :fewest], self.tensors)


@dataclass(frozen=True, eq=False, repr=False)
class Subject(ABC):
    """A model together with the kind of data it takes."""

    modality: ClassVar[Modality]  # the kind of data
    batches: ClassVar[type[Batch]] = Batch  # what it reads samples into
    has_gradients: ClassVar[bool] = True  # whether PyTorch can differentiate the model
    name: str
    model: Model
    classes: tuple[str, ...] | None
    outputs: Outputs = field(default="classes", kw_only=True)
    samples: Any = field(default=None, kw_only=True)  # to choose references from, as `pool` takes them, or a function

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, classes={describe(self.classes)}, outputs={self.outputs!r})"

    # -- classes -------------------------------------------------------------------------------------------------------

    def label(self, index: int) -> str:
        """Return the name of an output."""
        return name_output(index, self.classes, self.outputs)

    def describe_classes(self) -> str:
        """Return how many outputs have names, and the first of these."""
        if self.classes is None:
            return "classes by their numbers"
        return f"{len(self.classes)} classes, {quote_names(self.classes, 3)}"

    def index(self, wanted: str | int) -> int:
        """Return the index of a class from its number, its name, or a part of the name that no other class has."""
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

    def _read_classes(self, wanted: Any) -> Any:
        """Convert names and numbers, alone or in lists, to the classes that a method takes; return other values unchanged."""
        if isinstance(wanted, (list, tuple)):
            return [self._read_classes(item) for item in wanted]
        return self.index(wanted) if isinstance(wanted, str) and wanted != "next" else wanted

    def _check_names(self, outputs: int) -> None:
        """Check that there is a name for each output, once their number is known."""
        if self.classes is not None and len(self.classes) != outputs:
            raise InputError(
                f"{self.name} has {outputs} output{'s' * (outputs != 1)} and {len(self.classes)} names for them, "
                f"{quote_names(self.classes, 4)}: give classes one name for each output"
            )

    # -- data ----------------------------------------------------------------------------------------------------------

    def read(self, sources: Any) -> Batch:
        """Read samples, by default one by one as `read_sample` does.

        Args:
            sources: a file, an array, a tensor or a `Sample`, or a list of them.

        Raises:
            InputError: if there is none, or one cannot be read.
        """
        samples = [self._name_sample(source, number) for number, source in enumerate(self._list(sources), start=1)]
        if not samples:
            raise InputError(f"no {self.modality.nouns} were given")
        tensors = torch.stack([self.read_sample(sample) for sample in samples])
        units = None if self.units is None else (self.units,) * len(samples)
        labels = tuple(sample.label for sample in samples)
        return Batch(tuple(str(sample.name) for sample in samples), tensors, units, labels=labels)

    def read_sample(self, sample: Sample) -> Tensor:
        """Return the tensor of one sample, as the network takes it.

        Raises:
            InputError: if it cannot be read; the message names it.
        """
        raise NotImplementedError

    def _list(self, sources: Any) -> Sequence[Any]:
        return sources if isinstance(sources, (list, tuple)) else [sources]

    def _name_sample(self, source: Any, number: int) -> Sample:
        sample = source if isinstance(source, Sample) else Sample(source)
        if sample.name is not None:
            return sample
        is_file = isinstance(sample.source, (str, PathLike))
        return replace(sample, name=Path(sample.source).name if is_file else f"{self.modality.name} {number}")

    def pool(self, sources: Any = None) -> Batch:
        """Return samples to choose references from: those given, by default those that come with the model."""
        if sources is None and self.samples is None:
            raise InputError(f"{self.name} comes with no {self.modality.nouns} to contrast with: give some")
        return self.read((self.samples() if callable(self.samples) else self.samples) if sources is None else sources)

    def _pool_of(self, classes: Collection[int] | None) -> Batch:
        """Return the samples that come with the model, including some of these classes."""
        return self.pool()

    def scores(self, batch: Batch, attribution: Attribution, values: Any = None) -> list[NDArray[np.float64]]:
        """Return each sample's attribution in the form that its view takes, as `fold` does.

        `values` replaces `attribution.values` to show something else of its shape, such as the share of one reference.
        """
        return self.fold(batch, extract_tensor(attribution, values))

    def fold(self, batch: Batch, values: Tensor) -> list[NDArray[np.float64]]:
        """Return values in the shape of the samples in the form that each sample's view takes, with the same total.

        By default a sum for each unit.
        """
        return self.names(batch).sum_units(values)

    @abstractmethod
    def view(self, batch: Batch, row: int) -> View:
        """Return how one sample of a batch is shown."""

    def describe_view(self) -> dict[str, Any]:
        """Return what a store keeps, so that its rows can be shown without the model."""
        return {"name": self.modality.shows.name}

    def view_sample(self, sample: Tensor) -> View | None:
        """Return how a point of the data space is shown; None if points have no form of their own, as between words."""
        return None

    # -- choices of a command ------------------------------------------------------------------------------------------

    @property
    def default_methods(self) -> tuple[str, ...]:
        """The names of the methods shown where none was named, the first of them first."""
        return ("ig2",)

    @property
    def scale(self) -> float:
        """The pixels that maps are blurred by for the eye."""
        return 0.0

    def describe_parts(self, batch: Batch) -> dict[str, Any]:
        """Return what is present or absent as one thing to a person, as `ig2.methods.catalogue.Facts` has it."""
        return {"images": False, "groups": self.number_units(batch)}

    # -- names ---------------------------------------------------------------------------------------------------------

    @property
    def units(self) -> tuple[str, ...] | None:
        """The names of the units that all samples share, such as columns; None if each has its own, or there are none."""
        return None

    def groups(self, batch: Batch) -> tuple[tuple[int, ...], ...] | None:
        """Return the unit of each position of each sample, −1 for no unit; None if samples have no units."""
        return None

    def number_units(self, batch: Batch) -> Tensor:
        """Return the unit of each position: `groups` for `ig2.KernelSHAP`, `Occlusion`, `Turns` and `ig2.paths.InTurn`.

        Each word or column is then exchanged as a whole with a reference's: the network never sees anything between two values
        of a category. Integers that broadcast to the attributed tensor (B, positions, ...), −1 for no unit, such as padding.

        Raises:
            InputError: if samples have no units.
        """
        groups = self.groups(batch)
        if groups is None:
            raise InputError(f"{self.modality.nouns} have no units: number their parts with ig2.Grid or ig2.Superpixels")
        numbers = torch.tensor(groups)
        return numbers.view(*numbers.shape, *[1] * (batch.attributed.ndim - 2))

    def names(self, batch: Batch) -> Names:
        """Return the names of a batch that an attribution keeps; with words or columns if there are `groups`."""
        groups = self.groups(batch)
        names = Names(self.modality.shows.name, batch.names, self.classes, self.outputs)
        return names if groups is None else replace(names, units=batch.units, groups=groups, cells=batch.cells)

    def describe_counterfactual(self, attribution: Attribution) -> tuple[tuple[str, ...], ...] | None:
        """Return the counterfactual values of each explicand's columns, in the user's units; None if there are no columns."""
        return None

    def add_names(self, batch: Batch, attribution: Attribution, outputs: Tensor | None = None) -> Attribution:
        """Return the attribution of a batch with its names, which it keeps in files, slices, reports and figures.

        Args:
            batch: the samples.
            attribution: the attribution of these samples.
            outputs: the model's outputs for the samples that were not skipped, to add its predictions too.

        Raises:
            InputError: if the number of attributions differs from the number of samples that were not skipped.
        """
        skipped = {entry["row"] for entry in attribution.settings.get("skipped", ())}
        names = self.names(batch)[[row for row in range(len(batch)) if row not in skipped]]
        predictions = None if outputs is None else tuple(map(self.describe_output, outputs))
        becomes = self.describe_counterfactual(attribution)
        return attribution.with_names(replace(names, becomes=becomes, predictions=predictions))

    def ask(self: SomeSubject, target: AnyTarget) -> SomeSubject:
        """Return the subject whose output is the number that a target of `ig2.targets` computes; unchanged for a class."""
        model = self.model.ask(target)[0]
        return self if model is self.model else replace(self, model=model, classes=None, outputs="numbers")

    # -- what the model says -------------------------------------------------------------------------------------------

    def to(self: SomeSubject, device: str | torch.device) -> SomeSubject:
        """Move the network, and so the computation, to a device. The methods move the samples there."""
        self.model.net.to(device)
        if isinstance(self.model.preprocess, nn.Module):
            self.model.preprocess.to(device)
        return self

    def predict(self, batch: Batch) -> Tensor:
        """Return the outputs of all classes, (B, classes)."""
        outputs = scores(self.model, batch.x).cpu()
        self._check_names(outputs.shape[1])
        return outputs

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Convert outputs to probabilities; None if they have no such meaning."""
        if self.outputs == "numbers" or not isinstance(self.model.output, str):
            return None
        if self.model.output == "log-probability":
            return scores.exp()
        if self.model.output != "logit":
            return scores
        return scores.softmax(dim=1) if self.outputs == "classes" and scores.shape[1] > 1 else scores.sigmoid()

    # -- references ----------------------------------------------------------------------------------------------------

    def candidates(self, pool: Batch, batch: Batch) -> Tensor:
        """Return the pool's samples as references for a batch: (P, ...) for all explicands, or (B, P, ...)."""
        return pool.attributed

    def contrast(
        self,
        batch: Batch,
        target: AnyTarget = None,
        pool: Batch | None = None,
        count: int | None = None,
        seed: int = 0,
        *,
        against: Against = None,
        most: int = REFERENCES,
    ) -> Contrast:
        """Choose references for each sample, excluding the sample itself and samples predicted as the explained class.

        For independent labels, samples with the opposite prediction of the explained label; for plain numbers, any. Of these,
        samples of the classes `against` if the pool has any for that sample, otherwise all; the result's `why` states which.

        Args:
            batch: the samples to explain.
            target: the explained class, one for all or one for each sample; by default the predicted class. For another target
                of `ig2.targets`, any samples are chosen.
            pool: samples to choose from, as returned by `read` or `pool`. By default those that come with the model.
            count: the number of references, chosen round-robin over classes. A sample with fewer candidates gets those, with a
                warning. By default as many as there are, up to `most`.
            seed: the seed of the choice, which does not depend on the other samples of the batch.
            against: the classes of the references, in the form that every method takes: "why the target rather than these?"
            most: the maximum number of references if no `count` is given.

        Raises:
            InputError: if the pool has no reference for a sample, or an argument is not valid.
        """
        subject = self.ask(target)
        if subject is not self:
            return subject.contrast(batch, None, pool, count, seed, against=against, most=most)
        for name, samples in (("batch", batch), *([] if pool is None else [("pool", pool)])):
            if not isinstance(samples, self.batches):
                raise InputError(f"{name} must be samples as this subject's read or pool gives them, got {describe(samples)}")
        if count is not None:
            check_count(count)
        check_seed(seed)
        inputs = Inputs.of(batch.x, self.model.device, needs_gradient=False)
        # not opened against a class: what a sample is called goes by the model's own scores
        with open_task(self.model, inputs, target, label="references", batch_size=AT_A_TIME) as task:
            explicand_scores, explained = task.explicand_scores, task.target.cpu()
            self._check_names(explicand_scores.shape[1])
            others = None if against is None else choose_against(against, task.target, explicand_scores, task.rows).cpu()
            pool = self._pool_of(None if others is None else set(others.flatten().tolist())) if pool is None else pool
            candidates = self._shape_candidates(pool, batch, inputs)
            explicand_scores, outputs = explicand_scores.cpu(), self._score_candidates(task, inputs, candidates)
        order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed)).tolist()
        chosen, why = [], []
        for row, index in enumerate(explained.tolist()):
            same = (candidates[row] == inputs.data[row]).flatten(1).all(dim=1).tolist()
            eligible = [
                i for i in order if not same[i] and self._contrasts(pool, i, outputs[row, i], explicand_scores[row], index)
            ]
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
            wanted = [] if others is None else others[row].tolist()
            of_wanted = [i for i in eligible if self._is_of(outputs[row, i], wanted)]
            why.append(self._explain_choice(index, wanted, bool(of_wanted), len(pool)))
            eligible = of_wanted or eligible
            of_each = interleave(eligible, [self._class_key(pool, i, outputs[row, i]) for i in eligible])
            chosen.append(of_each[: count or most])
        counts = [len(numbers) for numbers in chosen]
        if count is not None and min(counts) < count:
            short = [name for name, reached in zip(batch.names, counts, strict=True) if reached < count]
            warn(
                f"{min(counts)} reference{'s' * (min(counts) != 1)}, and not {count}: of the {len(pool)} looked at, no more "
                f"can be contrasted with {quote_names(short, 3)}"
            )
        # a sample's references do not depend on the others': where it has fewer, some of them stand there again without weight
        longest = max(counts)
        filled = [numbers * -(-longest // len(numbers)) for numbers in chosen]
        references = batch.like_x(torch.stack([candidates[row, numbers[:longest]] for row, numbers in enumerate(filled)]))
        if min(counts) < longest:
            references = Weighted(references, (torch.arange(longest) < torch.tensor(counts)[:, None]).double())
        return Contrast(
            references,
            tuple(tuple(pool.names[i] for i in numbers) for numbers in chosen),
            tuple(tuple(self.describe_output(outputs[row, i]) for i in numbers) for row, numbers in enumerate(chosen)),
            tuple(why),
        )

    def _shape_candidates(self, pool: Batch, batch: Batch, inputs: Inputs) -> Tensor:
        """Return the pool's samples as references for each explicand, (B, P, ...)."""
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
        return candidates

    @staticmethod
    def _score_candidates(task: Task, inputs: Inputs, candidates: Tensor) -> Tensor:
        """Return the model's outputs for each explicand's candidates (B, P, ...): (B, P, classes)."""
        # what is fixed comes from the explicand, so a candidate shared by all may be another thing beside each
        explicands_own = inputs.held or any(isinstance(value, Tensor) for value in inputs.fixed.values())
        shared = candidates.stride(0) == 0 and not explicands_own
        rows = task.rows[:1] if shared else task.rows
        outputs = [task.scores(candidates[row], row.expand(candidates.shape[1])) for row in rows]
        return torch.stack(outputs).cpu().expand(len(inputs), -1, -1)

    def _class_key(self, pool: Batch, number: int, scores: Tensor) -> Any:
        """Return the class of a sample by which references are chosen round-robin."""
        declared = pool.labels[number] if pool.labels else None
        return declared or (self.describe_output(scores) if self.outputs == "classes" else number)

    def _contrasts(self, pool: Batch, number: int, scores: Tensor, explicand_scores: Tensor, target: int) -> bool:
        """Return whether a sample of the pool is a valid reference for the explained class."""
        if self.outputs == "numbers":
            return True
        if self.outputs == "labels" or len(scores) == 1:
            return self._is_positive(scores[target]) != self._is_positive(explicand_scores[target])
        declared = (pool.labels[number] if pool.labels else None) or ""
        return int(scores.argmax()) != target and declared.lower() != self.label(target).lower()

    def _is_of(self, scores: Tensor, wanted: Sequence[int]) -> bool:
        """Return whether the model predicts one of these classes."""
        if self.outputs == "labels":
            return any(self._is_positive(scores[index]) for index in wanted)
        return self.outputs == "classes" and int(scores.argmax()) in wanted

    def _explain_choice(self, target: int, wanted: Sequence[int], has_wanted: bool, total: int) -> str:
        """Describe which samples of the pool an explicand gets, and why."""
        if self.outputs == "numbers":
            return "any samples, since the outputs are numbers and not classes"
        classes = " or ".join(repr(self.label(index)) for index in wanted)
        if has_wanted:
            return f"samples the model calls {classes}"
        answer = "does not call" if self.outputs == "classes" else "disagrees with on"
        missing = f", since it calls none of the {total} looked at {classes}" if wanted else ""
        return f"samples the model {answer} {self.label(target)!r}{missing}"

    def _is_positive(self, score: Tensor) -> bool:
        """Return whether an output predicts its label."""
        return bool(score > YES_ABOVE.get(str(self.model.output), 0.5))

    # -- attributions --------------------------------------------------------------------------------------------------

    def explain(
        self,
        inputs: Any,
        method: Method | None = None,
        target: Any = None,
        against: Any = "auto",
        *,
        count: int | None = None,
        pool: Any = None,
        seed: int = 0,
        **options: Any,
    ) -> Attribution:
        """Read inputs, choose references, explain, and add names to the result, all in one call.

        Args:
            inputs: the argument of `read`, or its result.
            method: the method, by default `IG2()`.
            target: the explained class, by name or number; one for all or a list with one for each. By default the predicted
                class. Or a target of `ig2.targets`.
            against: "why the target rather than this?", by name or number, or "next" for the runner-up: the explained output is
                then the difference of the two, and references are of that class if the pool has any. None explains the
                target's output alone. By default "next" for a model of several classes, None for labels and numbers.
            count: the number of references, see `contrast`.
            pool: samples to choose references from: the argument of `pool`, or the result of `read`. By default the model's.
            seed: the random seed.
            options: options of the method's call, such as `curves=True`; `references` replaces the choice.

        Returns:
            An attribution with `names`. Its `settings["contrast"]` list the references of each input and why they were chosen.

        Raises:
            InputError: if the inputs cannot be read, or an argument is not valid; the message states the remedy.
        """
        batch = inputs if isinstance(inputs, self.batches) else self.read(inputs)
        method, target = method or IG2(), self._read_classes(target)
        if isinstance(against, str) and against == "auto":
            of_class = self.outputs == "classes" and isinstance(as_target(target), Class)
            against = "next" if of_class and self.predict(batch).shape[1] > 1 else None
        against = self._read_classes(against)
        contrast = None
        if options.get("references") is None and not method.runs_once:
            samples = pool if pool is None or isinstance(pool, self.batches) else self.pool(pool)
            contrast = self.contrast(batch, target, samples, count, seed, against=against)
            options["references"] = contrast.samples_for(method)
        attribution = method(self.model, batch.x, target, against=against, seed=seed, **options)
        if contrast is not None:
            rows = zip(batch.names, contrast.names, contrast.labels, contrast.why, strict=True)
            attribution.settings["contrast"] = [
                {"input": name, "references": list(names), "classes": list(labels), "why": why}
                for name, names, labels, why in rows
            ]
        # at a layer, the attribution has the activation in place of the samples
        inside = "at" in attribution.settings
        if attribution.question is not None or (inside and attribution.settings.get("skipped")):
            return self.add_names(batch, attribution)
        return self.add_names(batch, attribution, scores(self.model, batch.x if inside else attribution.x).cpu())

    def describe_output(self, scores: Tensor) -> str:
        """Describe the model's prediction for a sample in words."""
        if self.outputs == "numbers":
            return ", ".join(f"{float(score):.4g}" for score in scores[:4])
        if self.outputs == "labels" or len(scores) == 1:
            return ", ".join(self.label(i) for i, score in enumerate(scores) if self._is_positive(score)) or "none"
        return self.label(int(scores.argmax()))


def unwrap(sources: Any) -> Any:
    """Return the sources of samples in a list, for kinds of data that name and label their own."""
    return [each.source if isinstance(each, Sample) else each for each in sources] if isinstance(sources, list) else sources


def extract_tensor(attribution: Attribution, values: Any) -> Tensor:
    """Return the values to show, by default the attribution's, as float64 on the CPU; exactly one tensor is attributed."""
    return find_tensor(attribution, values).cpu().double()


def find_tensor(attribution: Attribution, values: Any) -> Tensor:
    """Return the values as `extract_tensor` does, in their own precision and on their own device."""
    values = attribution.values if values is None else values
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if isinstance(values, (tuple, list)) and len(values) == 1:
        values = values[0]
    if not isinstance(values, Tensor):
        raise InputError(f"expected attributions of one tensor, got {describe(values)}")
    return values.detach()
