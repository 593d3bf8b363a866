"""Construction of the content of a report from attributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.modalities.base import Batch, Subject, extract_tensor
from ig2.modalities.language.explanation import Explanation
from ig2.references.contrast import Contrast
from ig2.report.content import Content, InputView, MethodView, ReferenceView, show_cell
from ig2.views import Bars, Numbers, Picture, View, Words

# settings of a language model's explanation
SHOWN_ELSEWHERE = ("tokens", "spans", "rather_than", "reference_question", "lm", "output")


def build(
    title: str,
    subject: Subject,
    batch: Batch,
    attributions: Mapping[str, Attribution],
    contrasts: Mapping[str, Contrast] | None = None,
    details: Mapping[str, str] | None = None,
    scale: float = 0.0,
    outputs: Tensor | None = None,
) -> Content:
    """Build a report from the attributions of one batch by several methods.

    Args:
        title: the title of the page.
        subject: the model with the data it reads.
        batch: the inputs.
        attributions: one for each method, by its displayed name. With `per_reference=True` each reference is shown with its
            attribution, with `curves=True` the output along the path.
        contrasts: the references of each method, by the same names; methods with a default baseline have none.
        details: further details, such as versions and the seed.
        scale: the initial blur of maps in pixels, as by `attribution.smooth`; pass the attributions without blur, since a
            slider on the page changes it down to single pixels.
        outputs: the model's outputs for the batch, (B, classes), if they are known.

    Returns:
        The content for `write` and `render`.

    Raises:
        InputError: if attributions or contrasts do not match the methods' names, or an attribution lacks a shown field.
    """
    contrasts = {} if contrasts is None else contrasts
    if not isinstance(attributions, Mapping) or not all(isinstance(each, Attribution) for each in attributions.values()):
        raise InputError(f"attributions must be one for each method by its name, {{'IG²': ...}}; got {describe(attributions)}")
    if not attributions:
        raise InputError("a report needs at least one attribution")
    if not isinstance(contrasts, Mapping):
        raise InputError(f"contrasts must go by the methods' names, {{'IG²': ...}}; got {describe(contrasts)}")
    for name in contrasts:
        if name not in attributions:
            names = ", ".join(map(repr, attributions))
            raise InputError(f"contrasts are for {name!r}, which is no method here: there are {names}")
    outputs = subject.predict(batch) if outputs is None else outputs
    probabilities = subject.probabilities(outputs)
    first = next(iter(attributions.values()))
    questions = {name: attribution.explained for name, attribution in attributions.items()}
    views = [_view_method(name, subject, batch, each, contrasts.get(name)) for name, each in attributions.items()]
    inputs = []
    for i, methods in enumerate(zip(*views, strict=True)):
        asked = next(iter(questions.values()))[i]
        likely = None if probabilities is None else probabilities[i]
        prediction, probability, target = _answer(subject, outputs[i], likely, int(first.target[i]))
        inputs.append(
            InputView(
                name=batch.names[i],
                view=subject.view(batch, i),
                prediction=prediction,
                probability=probability,
                target=target,
                contrasted=_list_against(subject, first, i) or _list_classes(methods),
                methods=tuple(_ask(method, questions[method.name][i], asked) for method in methods),
                question=target if subject.outputs == "numbers" else asked,
                label=_name_label(subject, batch.labels[i] if batch.labels else None),
            )
        )
    return Content(title, subject.name, tuple(inputs), dict(details or {}), scale=scale)


def _name_label(subject: Subject, label: str | None) -> str:
    """Return the class given to a sample, such as its folder's name, if the model has it."""
    return next((name for name in subject.classes or () if label is not None and name.lower() == label.lower()), "")


def _list_against(subject: Subject, attribution: Attribution, row: int) -> tuple[str, ...]:
    """Return the classes that an input is explained against."""
    if attribution.against is None:
        return ()
    return tuple(map(subject.label, attribution.against[row].reshape(-1).tolist()))


def _list_classes(methods: Sequence[MethodView]) -> tuple[str, ...]:
    """Return the classes of all references of an input."""
    labels = (reference.label for method in methods for reference in method.references)
    return tuple(dict.fromkeys(labels))


def _ask(method: MethodView, question: str, asked: str) -> MethodView:
    """Return the view of a method with its question, if that is not the one of the input."""
    return method if question == asked else replace(method, question=f"Why {question}?")


def build_language(
    title: str,
    explanation: Explanation,
    prediction: str = "",
    details: Mapping[str, str] | None = None,
    method: str | None = None,
) -> Content:
    """Build a report from a language model's explanation of a prompt.

    Args:
        title: the title of the page.
        explanation: the result of `LanguageModel.explain`. With `per_reference=True` each reference is shown with its
            attribution, with `curves=True` the output along the path. Several targets, such as the tokens of a generation, are
            shown as a map of words × targets, each of which can be selected.
        prediction: the model's prediction, in words.
        details: further details, such as versions and the seed.
        method: the displayed name of the method; by default that of its class.

    Returns:
        The content for `write` and `render`.
    """
    attribution, prompt = explanation.attribution, explanation.prompt
    settings = attribution.settings
    texts, rows, contrast = settings["rather_than"], len(explanation), None
    if attribution.baseline_outputs is not None and attribution.baseline_outputs.shape[1] == len(texts):
        kind = str(settings.get("reference_kind", "reference"))
        labels = (kind,) if len(texts) == 1 else tuple(f"{kind} {number}" for number in range(1, len(texts) + 1))
        # no samples: they are shown as they read
        contrast = Contrast(torch.empty(rows, len(texts)), (tuple(texts),) * rows, (labels,) * rows)
    question = str(settings.get("reference_question", "")) if contrast is not None else ""
    method = method or str(settings["method"])
    inputs = []
    for row, view in enumerate(_view_method(method, _PromptWords(), None, attribution, contrast)):
        spans = {name: float(scores[row]) for name, scores in explanation.span_scores.items()}
        references = view.references
        if attribution.per_reference is not None and spans:
            each = extract_tensor(attribution, attribution.per_reference)[row].sum(dim=2)  # (R, tokens)
            references = tuple(
                replace(reference, spans={span.name: float(tokens[span.start : span.end].sum()) for span in prompt.spans})
                for reference, tokens in zip(references, each, strict=True)
            )
        shown = {name: value for name, value in view.settings.items() if name not in SHOWN_ELSEWHERE}
        inputs.append(
            InputView(
                name=" ".join(prompt.words),
                view=Words(prompt.words),
                prediction=prediction,
                probability=None,
                target=explanation.explained[row],
                question=explanation.explained[row],
                contrasted=(),
                methods=(replace(view, settings=shown, spans=spans, references=references, question=question),),
                sentence=explanation.sentences[row],
                measure=str(settings.get("output", "")),
            )
        )
    return Content(title, str(settings["lm"]), tuple(inputs), dict(details or {}), is_crossed=len(inputs) > 1)


class _Shown(Protocol):
    """The part of a subject that a view of its attributions requires."""

    def scores(self, batch: Any, attribution: Attribution, values: Any = None) -> list[Numbers]:
        """Return each sample's attribution in its displayed form."""

    def view_sample(self, sample: Tensor) -> View | None:
        """Return how one sample is shown."""


class _PromptWords:
    """The words of a language model's prompt, each with its score."""

    def scores(self, batch: Any, attribution: Attribution, values: Any = None) -> list[Numbers]:
        assert attribution.names is not None
        return attribution.names.sum_units(extract_tensor(attribution, values))

    def view_sample(self, sample: Tensor) -> None:
        return None


def _answer(subject: Subject, outputs: Tensor, likely: Tensor | None, target: int) -> tuple[str, float | None, str]:
    """Return the model's prediction for a sample, its probability, and the explained output."""
    label = subject.label(target)
    if subject.outputs == "numbers":
        number = f"{label} = {float(outputs[target]):.4g}"
        return number, None, number
    if likely is not None and (subject.outputs == "labels" or len(outputs) == 1):  # a yes or a no to the one explained
        yes = float(likely[target])
        return (label, yes, label) if yes > 0.5 else (f"not {label}", 1 - yes, label)
    return subject.describe_output(outputs), None if likely is None else float(likely.max()), label


def _view_method(
    name: str, subject: _Shown, batch: Batch | None, attribution: Attribution, contrast: Contrast | None
) -> list[MethodView]:
    """Return one method's view of each input of a batch."""
    scores = subject.scores(batch, attribution)
    references = [()] * len(scores) if contrast is None else _view_references(subject, batch, attribution, contrast)
    numbers = {name: values.tolist() for name, values in attribution.numbers.items()}
    views = []
    for i in range(len(scores)):
        row = attribution[i]
        gradcf = None if row.gradcf is None else extract_tensor(row, row.gradcf)[0, 0]
        views.append(
            MethodView(
                name=name,
                scores=scores[i],
                numbers={name: values[i] for name, values in numbers.items()},
                settings=row.settings,
                output_curve=_pick_curves(row.output_curve, row.weights),
                distance_curve=_pick_curves(row.distance_curve, row.weights),
                references=references[i],
                gradcf=None if gradcf is None else subject.view_sample(gradcf),
                note=row.note,
                extra={field: show_cell(column[0]) for field, column in row.extra.items()},
            )
        )
    return views


def _pick_curves(curves: Tensor | None, weights: Tensor | None) -> Numbers | None:
    """Return one input's curves (R, k + 1), for references with a weight."""
    if curves is None:
        return None
    return (curves[0] if weights is None else curves[0][weights[0] > 0]).double().cpu().numpy()


def _view_references(
    subject: _Shown, batch: Batch | None, attribution: Attribution, contrast: Contrast
) -> list[tuple[ReferenceView, ...]]:
    """Return the references of each input of a batch."""
    samples = extract_tensor(attribution, contrast.tensors)
    outputs = attribution.baseline_outputs
    if outputs is None and attribution.output_curve is not None:  # of GradCFE, which is no attribution of the output
        outputs = attribution.output_curve[:, :, -1]
    if outputs is None:
        method = attribution.settings.get("method")
        raise InputError(f"{method} does not say where its references led: call it with curves=True")
    scores: list[list[Numbers]] = []  # for each reference, each input's
    residuals = None
    if attribution.per_reference is not None:
        each = extract_tensor(attribution, attribution.per_reference)
        scores = [subject.scores(batch, attribution, each[:, r]) for r in range(each.shape[1])]
        if attribution.baseline_outputs is not None:
            totals = each.flatten(2).sum(dim=2).to(outputs.dtype)
            residuals = totals - (attribution.output[:, None] - attribution.baseline_outputs)
    ends = None if attribution.gradcf is None else extract_tensor(attribution, attribution.gradcf)

    def pick(values: Tensor | None, i: int, r: int) -> float | None:
        return None if values is None else float(values[i, r])

    views = [[subject.view_sample(samples[i, r]) for r in range(len(names))] for i, names in enumerate(contrast.names)]

    def describe_sample(i: int, r: int) -> str | None:
        view = views[i][r]
        if isinstance(view, Bars):
            return ", ".join(f"{column} {cell}" for column, cell in zip(view.columns, view.cells, strict=True))
        return None if isinstance(view, Picture) else contrast.names[i][r]

    return [
        tuple(
            ReferenceView(
                label=contrast.labels[i][r],
                output=float(outputs[i, r]),
                view=views[i][r],
                text=describe_sample(i, r),
                scores=scores[r][i] if scores else None,
                residual=pick(residuals, i, r),
                trust=pick(attribution.trust, i, r),
                arrival=pick(attribution.arrival, i, r),
                reference_output=pick(attribution.reference_outputs, i, r),
                gradcf=None if ends is None else subject.view_sample(ends[i, r]),
            )
            for r in range(len(names))
        )
        for i, names in enumerate(contrast.names)
    ]
