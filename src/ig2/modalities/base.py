"""The base class of subjects: the interface of every kind of data to the command, the figures and the report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2._utils.suggestions import suggest
from ig2.attribution import Attribution
from ig2.errors import IG2Error, InputError, describe, quote_names, reason
from ig2.inputs import is_fixed, take_rows, value_of
from ig2.methods import IG2, Method
from ig2.modalities.modality import Modality
from ig2.modalities.samples import Sample
from ig2.model import YES_ABOVE, Bounds, Model, as_model
from ig2.names import Names, name_output
from ig2.question import Question
from ig2.targets import AnyTarget
from ig2.task import scores
from ig2.views import View

# what the model's outputs are: one class of several, labels that hold independently, or plain numbers
Outputs = Literal["classes", "labels", "numbers"]
SomeSubject = TypeVar("SomeSubject", bound="Subject")
SomeBatch = TypeVar("SomeBatch", bound="Batch")


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


@dataclass(frozen=True, eq=False, repr=False)
class Subject:
    """A model together with the kind of data it takes."""

    modality: ClassVar[Modality]  # the kind of data
    batches: ClassVar[type[Batch]] = Batch  # what it reads samples into
    has_gradients: ClassVar[bool] = True  # whether PyTorch can differentiate the model
    default_method: ClassVar[Method] = IG2()
    name: str
    model: Model
    classes: Sequence[str] | None
    outputs: Outputs = field(default="classes", kw_only=True)
    samples: Any = field(default=None, kw_only=True)  # to choose references from, as `pool` takes them, or a function

    def __post_init__(self) -> None:
        if self.classes is not None:
            if not isinstance(self.classes, Iterable):
                raise InputError(f"classes must be names, one for each output, got {describe(self.classes)}")
            object.__setattr__(self, "classes", tuple(map(str, self.classes)))

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
        return find_class(wanted, self.classes)

    def read_classes(self, wanted: Any) -> Any:
        """Convert names and numbers, alone or in lists, to the classes that a method takes; return other values unchanged."""
        if isinstance(wanted, (list, tuple)):
            return [self.read_classes(item) for item in wanted]
        return self.index(wanted) if isinstance(wanted, str) and wanted not in ("next", "auto") else wanted

    def check_names(self, outputs: int) -> None:
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
        tensors = torch.stack([self._read_sample(sample) for sample in samples])
        units = None if self.units is None else (self.units,) * len(samples)
        labels = tuple(sample.label for sample in samples)
        return Batch(tuple(str(sample.name) for sample in samples), tensors, units, labels=labels)

    def read_sample(self, sample: Sample) -> Tensor:
        """Return the tensor of one sample, as the network takes it.

        Raises:
            InputError: if it cannot be read; the message names it.
        """
        raise NotImplementedError

    def _read_sample(self, sample: Sample) -> Tensor:
        try:
            return self.read_sample(sample)
        except (IG2Error, NotImplementedError):
            raise
        except Exception as error:  # whatever a broken file raises
            raise InputError(f"{sample.name} cannot be read: {reason(error)}") from error

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

    def pool_near(self, ranked: Sequence[Sequence[int]], count: int) -> Batch | None:
        """Return some of the samples that come with the model, if these are too many to look at all of them; otherwise None.

        Args:
            ranked: the classes that each explicand's references may be of, the best first; none for any.
            count: the number of these that samples are needed of.
        """
        return None

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

    def view(self, batch: Batch, row: int) -> View:
        """Return how one sample of a batch is shown, by default as `view_sample` shows its point."""
        shown = self.view_sample(batch.attributed[row])
        assert shown is not None, f"{type(self).__name__} has neither view nor view_sample"
        return shown

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
        classes = None if self.classes is None else tuple(self.classes)
        names = Names(self.modality.shows.name, batch.names, classes, self.outputs)
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
        self.check_names(outputs.shape[1])
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

    def baseline(self, batch: Batch) -> Any:
        """Return the references of methods that have a baseline by convention; None for that of the method itself."""
        return None

    def is_positive(self, score: Tensor) -> bool:
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
        references: Any = None,
        count: int | None = None,
        seed: int = 0,
        question: Question | None = None,
        **options: Any,
    ) -> Attribution:
        """Read inputs, choose references, explain, and add names to the result, all in one call.

        Args:
            inputs: the argument of `read`, or its result.
            method: the method, by default `IG2()`; for estimators `KernelSHAP()`.
            target: what is explained, see `ig2.Question`, likewise below.
            against: "why the target rather than this?"
            references: the samples to choose references from, or references.
            count: the number of references.
            seed: the random seed.
            question: all five of them, instead.
            options: options of the method's call, such as `curves=True`.

        Returns:
            An attribution with `names`, which list the references of each input and why they were chosen.

        Raises:
            InputError: if the inputs cannot be read, or an argument is not valid; the message states the remedy.
        """
        batch = inputs if isinstance(inputs, self.batches) else self.read(inputs)
        question = question or Question(target, against, references, count, seed)
        return question.pose(self, method or self.default_method, batch)(**options)

    def describe_output(self, scores: Tensor) -> str:
        """Describe the model's prediction for a sample in words."""
        if self.outputs == "numbers":
            return ", ".join(f"{float(score):.4g}" for score in scores[:4])
        if self.outputs == "labels" or len(scores) == 1:
            return ", ".join(self.label(i) for i, score in enumerate(scores) if self.is_positive(score)) or "none"
        return self.label(int(scores.argmax()))


def find_class(wanted: object, classes: Sequence[str] | None) -> int:
    """Return the index of a class from its number, its name, or a part of the name that no other class has.

    Raises:
        InputError: if there is no such class, or a part is of several.
    """
    text = str(wanted).strip()
    if re.fullmatch("-?[0-9]{1,18}", text) and (classes is None or text not in classes):
        number = int(text)
        if number < 0 or (classes is not None and number >= len(classes)):
            last = "on" if classes is None else f"to {len(classes) - 1}"
            there = f"the model's classes are numbered from 0 {last}"
            raise InputError(f"class {number} does not exist: {there}")
        return number
    if classes is None:
        raise InputError(f"class {text!r}: this model's classes have no names, give a number")
    names = [name.lower() for name in classes]
    if text.lower() in names:
        return names.index(text.lower())
    partial = [i for i, name in enumerate(names) if text and text.lower() in name]
    if len(partial) == 1:
        return partial[0]
    if partial:
        raise InputError(f"class {text!r} could be {quote_names([classes[i] for i in partial], 5)}: say which")
    raise InputError(f"the model has no class {text!r}{suggest(text, classes, 3, 'it has')}")


def make_model(net: Any, preprocess: nn.Module | None = None, bounds: Bounds | None = None) -> Model:
    """Return the model of a network, or what `ig2.wrap` made of it, with the preprocessing and bounds of a kind of data.

    Raises:
        InputError: if both have a preprocessing, or it is no network.
    """
    model = as_model(net)
    if preprocess is not None:
        if model.preprocess is not None:
            raise InputError("the wrapped network has a preprocessing, and so has its data: omit one of the two")
        model = replace(model, preprocess=preprocess if model.device is None else preprocess.to(model.device))
    return model if bounds is None or model.bounds is not None else replace(model, bounds=bounds)


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
