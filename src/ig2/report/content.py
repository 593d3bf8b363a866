"""The content of a report, independent of how it is computed and displayed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ig2._utils.checks import is_number
from ig2.errors import InputError, describe
from ig2.names import ask_why
from ig2.verdict import Finding, judge_columns, mark_row, put_in_words
from ig2.views import Numbers, View, Words


@dataclass(frozen=True)
class ReferenceView:
    """One reference of an input."""

    label: str
    output: float  # f at the baseline this reference led to
    view: View | None = None  # how the sample is shown
    text: str | None = None
    scores: Numbers | None = None  # its own attribution, as the input's view takes it
    residual: float | None = None  # of its own attribution
    trust: float | None = None  # how well gradients predicted the output along its path
    arrival: float | None = None  # the share of the distance its path covered
    reference_output: float | None = None  # f at the reference itself
    gradcf: View | None = None  # where its path ended
    spans: dict[str, float] = field(default_factory=dict)  # as those of `MethodView`


@dataclass(frozen=True)
class MethodView:
    """One method's attribution of one input."""

    name: str
    scores: Numbers  # as the input's view takes it
    numbers: dict[str, float]  # those of `ig2.verdict.Columns` that are known; none of what is no attribution
    settings: dict[str, Any]
    output_curve: Numbers | None = None  # (R, k + 1), from the explicand to the baseline
    distance_curve: Numbers | None = None  # (R, k + 1)
    references: tuple[ReferenceView, ...] = ()
    gradcf: View | None = None  # the first reference's counterfactual
    metric_curves: dict[str, Numbers] = field(default_factory=dict)  # (k + 1,), from none to all of the features
    spans: dict[str, float] = field(default_factory=dict)  # sums over sentences, messages or documents, by name
    question: str = ""  # what its references ask, if it is not what the first method is asked
    note: str = ""  # a remark of the method or the user; of what has no numbers, in place of findings
    extra: dict[str, float | str] = field(default_factory=dict)  # its scores, and fields of the user, by name

    @property
    def findings(self) -> tuple[Finding, ...]:
        """How far it can be believed."""
        return judge_columns({name: [number] for name, number in self.numbers.items()})

    @property
    def verdict(self) -> str:
        """The same in words."""
        return put_in_words(self.findings)

    def mark(self, reference: ReferenceView | None = None) -> dict[str, dict[str, str]]:
        """Return the marks of its numbers, or of one reference alone, by their topics."""
        if reference is None:
            return mark_row(self.numbers)
        own = {name: getattr(reference, name) for name in ("residual", "trust", "arrival")}
        shared = {name: self.numbers.get(name) for name in ("output", "complete")}
        return mark_row({**own, **shared, "baseline_output": reference.output})

    @property
    def is_against(self) -> bool:
        """Whether all values speak against the explained class, as in a map of Strata if the output decreased."""
        return bool(self.scores.max() <= 0 and self.scores.min() < 0)


@dataclass(frozen=True)
class InputView:
    """One input, with an attribution by each method."""

    name: str
    view: View
    prediction: str
    probability: float | None
    target: str  # the class explained
    contrasted: tuple[str, ...]  # the classes it is explained against, or those of the references
    methods: tuple[MethodView, ...]
    sentence: str = ""  # the explanation in words
    measure: str = ""  # what the output is of, such as "log-probability"
    question: str = ""  # in words; by default why the target rather than what it is contrasted with
    label: str = ""  # its true class, where that is known

    @property
    def asked(self) -> str:
        """The question, between "Why" and "?"."""
        return self.question or ask_why(self.target, self.contrasted)


@dataclass(frozen=True)
class SkippedView:
    """An input that could not be explained."""

    name: str
    reason: str

    def __str__(self) -> str:
        return self.reason if self.name in self.reason else f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class IndexEntry:
    """An input in the index of a report; its details are in a separate file."""

    name: str
    view: str  # the name of its view
    target: str
    thumbnail: str | int | None = None  # a data URL, or the number of a picture of the page
    file: str | None = None  # with the details, from the page; None where they are in the page


@dataclass(frozen=True)
class Index:
    """A report of many inputs, each in a separate file that is loaded when it is opened."""

    title: str
    model: str
    entries: tuple[IndexEntry, ...]
    details: dict[str, str] = field(default_factory=dict)  # as those of `Content`
    skipped: tuple[SkippedView, ...] = ()
    verdicts: dict[str, tuple[Finding, ...]] = field(default_factory=dict)  # on all inputs, by method
    scale: float = 0.0


@dataclass(frozen=True)
class Content:
    """A whole report."""

    title: str
    model: str
    inputs: tuple[InputView, ...]
    details: dict[str, str] = field(default_factory=dict)  # versions, seed, when
    skipped: tuple[SkippedView, ...] = ()
    scale: float = 0.0  # the pixels that maps are blurred by when the page opens; its slider changes it, the scores stay
    is_crossed: bool = False  # the inputs are the targets of one text: shown as a map of its words × targets

    @property
    def verdicts(self) -> dict[str, tuple[Finding, ...]]:
        """How far each method can be believed, by its name: one verdict on all inputs that it explains."""
        views: dict[str, list[MethodView]] = {}
        for method in (method for input in self.inputs for method in input.methods):
            views.setdefault(method.name, []).append(method)
        return {
            name: judge_columns({number: [view.numbers.get(number) for view in of] for number in of[0].numbers})
            for name, of in views.items()
        }

    def check(self) -> None:
        """Check that the page can show the content, as `render` and `write` do.

        Raises:
            InputError: if a value is missing, not finite, or has another shape than the rest.
        """
        if not self.inputs:
            raise InputError("a report needs at least one input")
        if not (is_number(self.scale) and self.scale >= 0):
            raise InputError(f"the scale must be a number of pixels, 0 or more; got {describe(self.scale)}")
        if self.is_crossed and len({input.view.words if isinstance(input.view, Words) else None for input in self.inputs}) > 1:
            raise InputError("the targets of one text have the same words: give is_crossed=False for several texts")
        for input in self.inputs:
            where = repr(input.name)
            if not input.methods:
                raise InputError(f"{where} has no method to show")
            shape = _check_view(input.view, where, input.methods[0].scores)
            _check_fields(input, where, shape)
            for method in input.methods:
                _check_fields(method, f"{method.name} of {where}", shape)
                known = {name: number for name, number in method.numbers.items() if name != "relative_residual"}
                for name, numbers in (known | method.metric_curves | method.spans).items():
                    if not np.isfinite(numbers).all():
                        raise InputError(f"{name} of {method.name} of {where} has numbers that are not finite")
                for reference in method.references:
                    _check_fields(reference, f"reference {reference.label!r} in {method.name} of {where}", shape)


def show_cell(cell: Any) -> float | str:
    """Return a cell of a field of the user as the report shows it: a finite number, or in words."""
    if isinstance(cell, str):
        return cell
    array = np.asarray(cell)
    return float(array) if array.ndim == 0 and np.isfinite(array) else describe(cell)


def _check_view(view: View, where: str, scores: Numbers) -> tuple[int, ...]:
    try:
        return view.expect(scores)
    except InputError as error:
        raise InputError(f"{where} cannot be shown: {error}") from None


def _check_fields(part: InputView | MethodView | ReferenceView, where: str, shape: tuple[int, ...]) -> None:
    """Check the shape of a part's scores, its curves, and that its numbers are finite."""
    for name, value in vars(part).items():
        if not isinstance(value, (float, np.floating, np.ndarray)):
            continue
        array = np.asarray(value)
        if name == "scores" and array.shape != shape:
            raise InputError(f"scores of {where} are {describe(value)}: expected {shape}")
        if name.endswith("curve") and (array.ndim != 2 or 0 in array.shape):
            raise InputError(f"the {name} of {where} is {describe(value)}: expected (R, k + 1)")
        if not np.isfinite(array).all():
            raise InputError(f"the {name} of {where} has numbers that are not finite, and those cannot be shown")
