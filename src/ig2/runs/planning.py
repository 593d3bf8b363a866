"""Construction of the plan of a run from its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, get_args

import torch
from torch import nn

from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError, describe, warn
from ig2.groups import Groups
from ig2.methods import IG2
from ig2.metrics.base import Metric
from ig2.modalities.base import Batch, Subject
from ig2.modalities.loading import load_network
from ig2.modalities.modality import TENSORS, Values, find
from ig2.modalities.samples import Sample
from ig2.model import Model, as_model
from ig2.question import Question
from ig2.runs.plan import COLUMNS, Plan, Saving, name_metric
from ig2.runs.rows import describe_failure
from ig2.runs.sources import Source, find_source, space_evenly
from ig2.targets import Class, as_target

POOL = 200  # items of a pool that references are chosen from


def find_model(model: Any, source: Source) -> Subject | Model:
    """Return the model of a run, with the data it reads where that is known.

    Raises:
        InputError: if it does not read what the source has.
    """
    if isinstance(model, str):
        model = load_network(model)
    if isinstance(model, nn.Module) and TENSORS.name not in source.kinds and len(source.kinds) == 1:
        model = find(source.kinds[0]).wrap(model, type(model).__name__, {})[0]
    if isinstance(model, Subject):
        check_kind(model, source)
        return model
    if TENSORS.name not in source.kinds:
        raise InputError(
            f"the source has {_list_nouns(source)}, and {describe(model)} reads tensors: give a subject of "
            "ig2.modalities, which knows how they reach the network"
        )
    return as_model(model)


def check_kind(subject: Subject, source: Source) -> None:
    """Check that a source has what a subject reads.

    Raises:
        InputError: if it does not.
    """
    if subject.modality.name not in source.kinds:
        raise InputError(f"{subject.name} reads {subject.modality.nouns}, and the source has {_list_nouns(source)}")


def _list_nouns(source: Source) -> str:
    return " or ".join(find(name).nouns for name in source.kinds)


def make_plan(
    source: Source,
    model: Subject | Model,
    method: Any = None,
    question: Question = Question(),
    saving: Saving = Saving(),
    column: str | None = None,
) -> Plan:
    """Return the plan of a run from its arguments, after a check of what can be checked before the first item."""
    subject = model if isinstance(model, Subject) else None
    method = (IG2() if subject is None else subject.default_method) if method is None else method
    references = question.references
    if is_source(references):
        if subject is None:
            raise InputError(
                "a pool of references is for a subject of ig2.modalities: give a strategy of ig2.references instead"
            )
        references, skipped, _ = read_pool(subject, references, column)
        for name, why in skipped.items():
            warn(f"the reference {name!r} is skipped: {why}")
    target = as_target(question.target if subject is None else subject.read_classes(question.target))
    if target.has_each:
        raise InputError(
            f"target has one for each explicand, {describe(question.target)}: a run needs one that is the same for every item"
        )
    question = replace(
        question,
        target=target.index if isinstance(target, Class) else target,
        against=question.against if subject is None else subject.read_classes(question.against),
        references=references,
    )
    network = model if isinstance(model, Model) else model.model
    return Plan(source, subject, network, method, question, saving, column)


def check_saving(saving: Saving, subject: Subject | None) -> Saving:
    """Return what a store keeps, by default what suits the kind of data.

    Raises:
        ChoiceError: for a form of the values that is none, or none for this kind.
        InputError: if metrics are none, need a truth, or have names that are taken.
    """
    modality = TENSORS if subject is None else subject.modality
    values = modality.keeps if saving.values is None else saving.values
    if not isinstance(values, Groups) and values not in get_args(Values):
        raise ChoiceError(f"values must be {', '.join(get_args(Values))}, a grid or superpixels, got {describe(values)}")
    if modality.has_places != isinstance(values, Groups) and (isinstance(values, Groups) or values == "units"):
        raise ChoiceError(
            f"values={describe(values)} is not for {modality.nouns}: units are words, columns and windows, grids are for images"
        )
    if values == "view" and subject is None:
        raise ChoiceError("values='view' is what a subject of ig2.modalities shows, and a bare network has none: keep float32")
    if saving.per_reference and values == "none":
        raise ChoiceError("per_reference keeps values of each reference, and values is none: keep some")
    metrics = saving.metrics.values() if isinstance(saving.metrics, Mapping) else saving.metrics
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise InputError(f"metrics must be of ig2.metrics, got {describe(metric)}")
    scored = saving.scored
    for name, metric in scored.items():
        if not isinstance(name, str) or name in COLUMNS:
            raise InputError(
                f"a metric would be named {name!r}, which is a column of its own: name it, for example "
                "metrics={'insertion_10': …}"
            )
        if metric.truth is not None and not metric.truth_optional:
            raise InputError(f"{name} compares with a truth, which a run has not: score the store instead")
    if len(scored) < len(metrics):
        names = [name_metric(metric) for metric in metrics]
        twin = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"two metrics would be named {twin!r}, and each needs a name of its own: name them, for example "
            "metrics={'insertion_10': …}"
        )
    return replace(saving, values=values, metrics=scored)


def is_source(references: Any) -> bool:
    from_datasets = type(references).__module__.partition(".")[0] == "datasets"
    return isinstance(references, (str, PathLike, Source, torch.utils.data.Dataset)) or from_datasets


def read_pool(subject: Subject, references: Any, column: str | None = None) -> tuple[Batch, dict[str, str], int]:
    """Read the samples of a source that references are chosen from.

    Args:
        subject: the model and the data it reads.
        references: the source. Of more than 200 items, 200 are taken, evenly spaced.
        column: the column of a row that holds the sample.

    Returns:
        The samples, why others cannot be read, by their ids, and how many there are in all.

    Raises:
        InputError: if none of them can be read.
    """
    source, skipped = find_source(references), dict[str, str]()
    check_kind(subject, source)
    total = sum(1 for _ in source.ids())
    chosen, samples = {*space_evenly(total, POOL)}, list[Sample]()
    for number, item in enumerate(source):
        if number not in chosen:
            continue
        try:
            content = subject.modality.extract(source.load(item.content), column)
        except Exception as error:  # as any item's
            skipped[item.id] = describe_failure(error)["error"]
            continue
        # with the class of its folder, which is never contrasted with itself
        samples.append(Sample(content, item.id, None if item.label is None else str(item.label)))
    place = source.describe().get("place", describe(source.describe()))
    if not samples:
        why = next(iter(skipped.values()), f"it has no {subject.modality.nouns}")
        raise InputError(f"no references can be chosen from {place}: {why}")
    try:
        return subject.pool(samples), skipped, total
    except Exception as error:  # of one of them, or of all
        first = error
    sound = list[Sample]()
    for sample in samples:
        try:
            subject.pool([sample])
            sound.append(sample)
        except Exception as error:
            skipped[str(sample.name)] = describe_failure(error)["error"]
    if not sound:
        raise InputError(f"no references can be chosen from {place}: {describe_failure(first)['error']}") from first
    return subject.pool(sound), skipped, total
