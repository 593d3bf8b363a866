"""From attributions to what a report shows."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ig2.adapters.base import Batch, Contrast, Subject, extract_tensor
from ig2.adapters.tabular import TableSubject
from ig2.adapters.vision import VisionSubject
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.report.content import Content, InputView, MethodView, Numbers, Picture, ReferenceView


def build(
    title: str,
    subject: Subject,
    batch: Batch,
    attributions: Mapping[str, Attribution],
    contrasts: Mapping[str, Contrast] | None = None,
    details: Mapping[str, str] | None = None,
) -> Content:
    """Gather what the methods said of each input of a batch.

    Args:
        title: of the page.
        subject: the model with the data it understands.
        batch: the inputs.
        attributions: one for each method, by the name it is shown under. With `per_reference=True` each reference is shown
            with its own attribution, with `curves=True` the output along the path.
        contrasts: the references a method was given, by the same names; methods with a baseline of their own have none.
        details: anything else worth knowing, such as versions and the seed.
    """
    if not isinstance(attributions, Mapping) or not all(isinstance(found, Attribution) for found in attributions.values()):
        raise InputError(f"attributions must be one for each method by its name, {{'IG²': ...}}; got {describe(attributions)}")
    if not attributions:
        raise InputError("a report needs at least one attribution")
    if not isinstance(contrasts or {}, Mapping):
        raise InputError(f"contrasts must go by the methods' names, {{'IG²': ...}}; got {describe(contrasts)}")
    unknown = [name for name in contrasts or {} if name not in attributions]
    if unknown:
        raise InputError(
            f"contrasts are for {unknown[0]!r}, which is no method here: there are {', '.join(map(repr, attributions))}"
        )
    outputs = subject.predict(batch)
    likely = subject.probabilities(outputs)
    shown = {name: _Shown(subject, batch, found, (contrasts or {}).get(name)) for name, found in attributions.items()}
    target = next(iter(attributions.values())).target
    inputs = []
    for i, name in enumerate(batch.names):
        prediction, probability, explained = _answer(subject, outputs[i], None if likely is None else likely[i], int(target[i]))
        methods = tuple(part.view(method, i) for method, part in shown.items())
        inputs.append(
            InputView(
                name=name,
                kind=subject.kind,
                prediction=prediction,
                probability=probability,
                target=explained,
                contrasted=tuple(dict.fromkeys(reference.label for method in methods for reference in method.references)),
                methods=methods,
                picture=_picture(subject, batch.attributed[i]),
                units=() if batch.units is None else batch.units[i],
                cells=() if batch.cells is None else batch.cells[i],
            )
        )
    return Content(title, subject.name, tuple(inputs), dict(details or {}))


def _answer(subject: Subject, outputs: Tensor, likely: Tensor | None, target: int) -> tuple[str, float | None, str]:
    """What the model says of a sample, how sure it is, and what is explained."""
    label = subject.label(target)
    if subject.outputs == "numbers":
        number = f"{label} = {float(outputs[target]):.4g}"
        return number, None, number
    if likely is not None and (subject.outputs == "labels" or len(outputs) == 1):  # a yes or a no to the one explained
        yes = float(likely[target])
        return (label, yes, label) if yes > 0.5 else (f"not {label}", 1 - yes, label)
    return subject.describe_output(outputs), None if likely is None else float(likely.max()), label


def _picture(subject: Subject, sample: Tensor) -> Picture | None:
    return subject.picture(sample) if isinstance(subject, VisionSubject) else None


class _Shown:
    """One method's attribution of a batch, in the form in which it is shown."""

    def __init__(self, subject: Subject, batch: Batch, attribution: Attribution, contrast: Contrast | None) -> None:
        self.subject, self.batch, self.attribution, self.contrast = subject, batch, attribution, contrast
        self.scores = subject.scores(batch, attribution)
        self.samples = None if contrast is None else extract_tensor(attribution, contrast.samples)
        self.shares: list[list[Numbers]] = []  # for each reference, each input's scores
        if contrast is not None and attribution.per_reference is not None:
            each = extract_tensor(attribution, attribution.per_reference)
            self.shares = [subject.scores(batch, attribution, each[:, r]) for r in range(each.shape[1])]

    def view(self, name: str, i: int) -> MethodView:
        found = self.attribution
        residual, end = found.residual, found.baseline_output
        gradcf = None if found.gradcf is None else extract_tensor(found, found.gradcf)[i, 0]
        return MethodView(
            name=name,
            scores=self.scores[i],
            output=float(found.output[i]),
            baseline_output=None if end is None else float(end[i]),
            residual=None if residual is None else float(residual[i]),
            verdict=found[i].verdict,
            settings=found.settings,
            output_curve=_numbers(found.output_curve, i),
            distance_curve=_numbers(found.distance_curve, i),
            references=tuple(self._reference(i, r) for r in range(self._count(i))),
            gradcf=None if gradcf is None else _picture(self.subject, gradcf),
            trust=None if found.trust is None else float(found.trust[i].median()),
            arrival=None if found.arrival is None else float(found.arrival[i].median()),
            reference_output=None if found.reference_outputs is None else float(found.reference_outputs[i].mean()),
        )

    def _count(self, i: int) -> int:
        return 0 if self.contrast is None else len(self.contrast.names[i])

    def _reference(self, i: int, r: int) -> ReferenceView:
        assert self.contrast is not None
        assert self.samples is not None
        sample = self.samples[i, r]
        text = None if isinstance(self.subject, VisionSubject) else self.contrast.names[i][r]
        if isinstance(self.subject, TableSubject):
            columns = [column.name for column in self.subject.attributed]
            text = ", ".join(f"{name} {cell}" for name, cell in zip(columns, self.subject.cells(sample), strict=True))
        return ReferenceView(
            label=self.contrast.labels[i][r],
            output=self._end(i, r),
            picture=_picture(self.subject, sample),
            text=text,
            scores=self.shares[r][i] if self.shares else None,
        )

    def _end(self, i: int, r: int) -> float:
        """f where a reference led to."""
        found = self.attribution
        if found.baseline_outputs is not None:
            return float(found.baseline_outputs[i, r])
        if found.output_curve is not None:  # of GradCFE, which is no attribution of the output
            return float(found.output_curve[i, r, -1])
        raise InputError(f"{found.settings.get('method')} does not say where its references led: call it with curves=True")


def _numbers(curve: Tensor | None, i: int) -> Numbers | None:
    return None if curve is None else curve[i].double().cpu().numpy()
