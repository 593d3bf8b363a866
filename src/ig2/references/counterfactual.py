"""Counterfactual references: samples of a labelled pool that do not belong to the explained class [Zhuo 2024]."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError, describe
from ig2.model import YES_ABOVE
from ig2.references.base import References
from ig2.references.pool import OpenPool
from ig2.task import Task, choose_against


@dataclass(frozen=True, eq=False)
class _ByClass(References):
    """Base class of strategies that choose a number of samples from each of several classes."""

    samples: Any = field(repr=False)
    labels: Any = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _as_classes(self.labels, "labels")

    @abstractmethod
    def counts(self, task: Task, classes: list[int]) -> list[dict[int, int]]:
        """Return the number of references by class for each sample of the task; `classes` are the classes of the pool."""

    def draw(self, task: Task) -> Tensor:
        labels = _as_classes(self.labels, "labels")
        pool = OpenPool(self.samples, task, labels)
        order = pool.order()
        members: dict[int, list[int]] = {}
        for index, label in zip(order.tolist(), labels[order].tolist(), strict=True):
            members.setdefault(label, []).append(index)
        rows: list[list[int]] = []
        for row, counts in zip(task.rows.tolist(), self.counts(task, sorted(members)), strict=True):
            rows.append([])
            for label, count in counts.items():
                rows[-1] += pool.first(members.get(label, []), count, row, f" of class {label}")
        return pool.stack(rows)


@dataclass(frozen=True, eq=False)
class OtherClasses(_ByClass):
    """`per_class` samples of each class other than the explained one. A good first choice.

    Args:
        samples: the pool, as for `RandomSamples`.
        labels: the class of each sample of the pool, (N,).
        per_class: the number of samples of each class.
        classes: the number of other classes, drawn at random; by default all, which is many for data with a thousand classes.
        explicand_labels: the class of each explicand, (B,), for networks with a single output.
    """

    per_class: int = setting(1, COUNT)
    classes: int | None = setting(None, COUNT)
    explicand_labels: Any = None

    def counts(self, task: Task, classes: list[int]) -> list[dict[int, int]]:
        explained = _explained_classes(task, self.explicand_labels)
        if self.classes is not None:
            shuffled = torch.randperm(len(classes), generator=task.generator(), device="cpu").tolist()
            others = [[classes[i] for i in shuffled if classes[i] != explicand_class] for explicand_class in explained]
            if (fewest := min(map(len, others))) < self.classes:
                raise InputError(
                    f"{self.classes} other classes were asked for and the pool has {fewest}: ask for fewer, or add some"
                )
            return [dict.fromkeys(labels[: self.classes], self.per_class) for labels in others]
        unknown = [explicand_class for explicand_class in explained if explicand_class not in classes]
        if 0 < len(unknown) < len(explained):
            raise InputError(
                f"the pool has no sample of class {unknown[0]}, so explicands of that class would get references of "
                f"{len(classes)} classes and the others of {len(classes) - 1}: add samples of it, or make two calls"
            )
        if len(classes) == 1 and not unknown:
            raise InputError(f"the pool has samples of class {classes[0]} alone, the class explained: add other classes")
        return [{label: self.per_class for label in classes if label != explicand_class} for explicand_class in explained]


@dataclass(frozen=True, eq=False)
class NormalClass(_ByClass):
    """Samples of the normal class, for data with anomalies: what would the explicand look like if nothing were wrong?

    Args:
        samples: the pool, as for `RandomSamples`.
        labels: the class of each sample of the pool, (N,).
        normal: the normal class.
        count: the number of references for each explicand.
        explicand_labels: the class of each explicand, (B,), for networks with a single output.
    """

    normal: int
    count: int = setting(5, COUNT)
    explicand_labels: Any = None

    def counts(self, task: Task, classes: list[int]) -> list[dict[int, int]]:
        for row, label in zip(task.rows.tolist(), _explained_classes(task, self.explicand_labels), strict=True):
            if label == self.normal:
                raise InputError(
                    f"explicand {row} is explained as class {label}, the normal class itself, and cannot be compared with it: "
                    "drop it, or explain another class with target="
                )
        return [{self.normal: self.count}] * len(task)


@dataclass(frozen=True, eq=False)
class OfClasses(_ByClass):
    """Samples of the requested classes: "why this rather than a 7?" uses sevens.

    The references determine the paths. The call's `against` determines the explained output, and its classes are the default
    here.

    Args:
        samples: the pool, as for `RandomSamples`.
        labels: the class of each sample of the pool, (N,).
        classes: one class for all explicands, one for each of them, several as a row [[3, 5]] for all or a row for each, or
            "next", the most likely class of each explicand but the explained one. By default those of the call's `against`.
        count: the number of samples of each class.
    """

    classes: Any = None
    count: int = setting(5, COUNT)

    def counts(self, task: Task, classes: list[int]) -> list[dict[int, int]]:
        chosen = task.against
        if self.classes is not None:
            chosen = choose_against(self.classes, task.target, task.explicand_scores, task.rows, "classes")
        if chosen is None:
            raise InputError(
                "OfClasses got no classes, and the call explains against none: pass them, OfClasses(pool, labels, classes=3), "
                "or against=3 to the method"
            )
        # a class that a row has twice gives twice as many, so that all explicands have as many references
        return [{label: self.count * labels.count(label) for label in labels} for labels in chosen.tolist()]


@dataclass(frozen=True, eq=False)
class Relevant(_ByClass):
    """Samples of the classes that the model predicts as most likely after the explained one.

    They yield more concentrated and less complete attributions than `OtherClasses`, which helps if the explicand shows
    something else besides the explained class.

    Args:
        samples: the pool, as for `RandomSamples`.
        labels: the class of each sample of the pool, (N,).
        top_k: the number of classes; the default, with the explained class, is the paper's top four.
        per_class: the number of samples of each class.
    """

    top_k: int = setting(3, COUNT)
    per_class: int = setting(1, COUNT)

    def counts(self, task: Task, classes: list[int]) -> list[dict[int, int]]:
        scores = task.explicand_scores[task.rows].cpu()
        if scores.shape[1] <= self.top_k:
            raise InputError(f"top_k is {self.top_k}, the model has {scores.shape[1] - 1} classes besides the explained one")
        scores.scatter_(1, task.target.cpu()[:, None], -torch.inf)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : self.top_k]
        return [dict.fromkeys(labels, self.per_class) for labels in best.tolist()]


@dataclass(frozen=True, eq=False)
class NearestLabels(References):
    """Samples with the opposite value of the explained label and the nearest other labels in ℓ1, for independent labels.

    Args:
        samples: the pool, as for `RandomSamples`.
        labels: the labels of the pool's samples, zeros and ones (N, L), in the order of the model's outputs.
        count: the number of references for each explicand. Ties in distance are broken at random.
        explicand_labels: the labels of the explicands, (B, L). By default the model's predictions: one where the logit is
            positive, or the probability above one half.
    """

    samples: Any = field(repr=False)
    labels: Any = field(repr=False)
    count: int = setting(5, COUNT)
    explicand_labels: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _as_binary(self.labels, "labels")

    def draw(self, task: Task) -> Tensor:
        labels = _as_binary(self.labels, "labels")
        pool = OpenPool(self.samples, task, labels)
        explicand_labels = self._predict(task)
        if explicand_labels.shape[1] != labels.shape[1] or int(task.target.max()) >= labels.shape[1]:
            raise InputError(
                f"labels are (N, {labels.shape[1]}), those of the explicands (B, {explicand_labels.shape[1]}): make them equal"
            )
        order = pool.order()
        rows = []
        for row, row_labels, label in zip(task.rows.tolist(), explicand_labels, task.target.tolist(), strict=True):
            opposite = order[labels[order, label] != row_labels[label]]
            # every candidate differs on the explained label, so it adds one to each distance and changes no order
            nearest = opposite[(labels[opposite] - row_labels).abs().sum(dim=1).argsort(stable=True)]
            kind = f" with label {label} equal to {1 - int(row_labels[label])}"
            rows.append(pool.first(nearest.tolist(), self.count, row, kind))
        return pool.stack(rows)

    def _predict(self, task: Task) -> Tensor:
        """Return the labels of the task's samples, (B, L), as given or as predicted."""
        if self.explicand_labels is not None:
            return _of_task(_as_binary(self.explicand_labels, "explicand_labels"), task)
        output = task.session.model.output
        if not isinstance(output, str):
            raise InputError(
                "the model explains a function of its output, which predicts no labels: give the explicands' labels, "
                "NearestLabels(..., explicand_labels=labels)"
            )
        return (task.explicand_scores[task.rows].cpu() > YES_ABOVE[output]).long()


def _as_classes(labels: object, name: str) -> Tensor:
    table = _as_table(labels)
    if table is None or table.ndim != 1 or table.is_floating_point() or table.is_complex():
        raise InputError(f"{name} must be class numbers (integers), one for each sample, got {describe(labels)}")
    return table.long().cpu()


def _as_binary(labels: object, name: str) -> Tensor:
    table = _as_table(labels)
    if table is None or table.ndim != 2 or not ((table == 0) | (table == 1)).all():
        raise InputError(f"{name} must be zeros and ones, a row for each sample (N, L), got {describe(labels)}")
    return table.long().cpu()


def _as_table(labels: object) -> Tensor | None:
    try:
        return torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        return None


def _of_task(labels: Tensor, task: Task) -> Tensor:
    """Return the rows of the explicands' labels that belong to the task's samples."""
    explicands = len(task.session.inputs)
    if len(labels) != explicands:
        raise InputError(f"explicand_labels has {len(labels)} rows and there are {explicands} explicands: give one for each")
    return labels[task.rows.cpu()]


def _explained_classes(task: Task, labels: Any) -> list[int]:
    """Return the explained class of each sample of the task. With a single output, the user must provide it."""
    single = task.explicand_scores.shape[1] == 1
    if single and labels is None:
        raise InputError(
            "the network has a single output, which names no class: give the explicands' classes with explicand_labels=classes"
        )
    if not single and labels is not None:
        raise InputError("explicand_labels is for networks with a single output: here target= says which class is explained")
    return task.target.tolist() if labels is None else _of_task(_as_classes(labels, "explicand_labels"), task).tolist()
