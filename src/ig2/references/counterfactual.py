"""Counterfactual references: samples of a labelled pool that are not what the explicand is explained as."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ig2._engine.task import Task
from ig2.errors import InputError, describe
from ig2.references.base import References
from ig2.references.constant import check_count
from ig2.references.pool import OpenPool

# Where an output of this kind says yes to a label.
YES_ABOVE = {"logit": 0.0, "sigmoid": 0.5, "probability": 0.5, "log-probability": math.log(0.5)}


def _classes(labels: object, name: str) -> Tensor:
    """Class numbers (N,) from whatever holds them."""
    try:
        numbers = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be class numbers, one for each sample, got {describe(labels)}") from error
    if numbers.ndim != 1 or numbers.is_floating_point() or numbers.is_complex():
        raise InputError(f"{name} must be class numbers (integers), one for each sample, got {describe(labels)}")
    return numbers.long().cpu()


def _binary(labels: object, name: str) -> Tensor:
    """Labels (N, L) of zeros and ones."""
    try:
        table = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be zeros and ones (N, L), got {describe(labels)}") from error
    if table.ndim != 2 or not ((table == 0) | (table == 1)).all():
        raise InputError(f"{name} must be zeros and ones, a row for each sample (N, L), got {describe(labels)}")
    return table.long().cpu()


def _check_lengths(pool: OpenPool, labels: Tensor) -> None:
    if len(pool) != len(labels):
        raise InputError(f"the pool has {len(pool)} samples and {len(labels)} labels: give one for each")


def _own(own: Tensor, task: Task) -> Tensor:
    """What the user says the explicands are, for the samples of the task."""
    explicands = len(task.session.inputs)
    if len(own) != explicands:
        raise InputError(f"own has {len(own)} rows and there are {explicands} explicands: give one for each")
    return own[task.rows.cpu()]


def _scores(task: Task) -> Tensor:
    """The outputs of all classes at the explicands, (B, classes): at themselves, where the task's samples are variants."""
    return task.scores(task.session.inputs.data[task.rows], torch.arange(len(task), device=task.x.device)).cpu()


def _explained(task: Task, own: Any) -> list[int]:
    """The class each sample of the task is explained as; of a single output only the user can tell."""
    single = task.scores(task.x[:1], torch.zeros(1, dtype=torch.long, device=task.x.device)).shape[1] == 1
    if single and own is None:
        raise InputError("the network has a single output, which names no class: say what the explicands are with own=classes")
    if not single and own is not None:
        raise InputError("own is for networks with a single output: here target= says which class is explained")
    return task.target.tolist() if own is None else _own(_classes(own, "own"), task).tolist()


@dataclass(frozen=True, eq=False)
class _ByClass(References):
    """Some samples of each of some classes."""

    samples: Any = field(repr=False)
    labels: Any = field(repr=False)

    def __post_init__(self) -> None:
        _classes(self.labels, "labels")

    @abstractmethod
    def wanted(self, task: Task, known: list[int]) -> list[dict[int, int]]:
        """For each sample of the task how many references of which class; `known` are the classes of the pool."""

    def draw(self, task: Task) -> Tensor:
        pool = OpenPool(self.samples, task)
        labels = _classes(self.labels, "labels")
        _check_lengths(pool, labels)
        order = pool.order()
        # one stable sort instead of a search for each class; inside a class the random order stays
        order = order[labels[order].argsort(stable=True)]
        known, sizes = torch.unique(labels, return_counts=True)
        parts = torch.split(order, sizes.tolist())
        members = {name: part.tolist() for name, part in zip(known.tolist(), parts, strict=True)}
        chosen: list[list[int]] = []
        for row, groups in zip(task.rows.tolist(), self.wanted(task, known.tolist()), strict=True):
            chosen.append([])
            for name, count in groups.items():
                found = pool.first(members.get(name, []), count, row)
                if len(found) < count:
                    raise InputError(
                        f"explicand {row} needs {count} references of class {name}; the pool has {len(found)} that are not "
                        "the explicand itself. Give more samples of that class, or ask for fewer"
                    )
                chosen[-1] += found
        return pool.stack(chosen)


@dataclass(frozen=True, eq=False)
class OtherClasses(_ByClass):
    """Uniform over the other classes: `per_class` samples of each class but the explained one. A good first choice.

    Args:
        samples: the pool, as for `Samples`.
        labels: the class of each of its samples, (N,).
        per_class: how many of each class.
        classes: how many of the other classes, drawn at random; by default all of them, which for a thousand is many.
        own: for networks with a single output, the class of each explicand, (B,).
    """

    per_class: int = 1
    classes: int | None = None
    own: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.per_class)
        if self.classes is not None:
            check_count(self.classes)

    def wanted(self, task: Task, known: list[int]) -> list[dict[int, int]]:
        explained = _explained(task, self.own)
        if self.classes is not None:
            return self._some_classes(task, known, explained)
        unknown = [mine for mine in explained if mine not in known]
        if 0 < len(unknown) < len(explained):
            raise InputError(
                f"the pool has no sample of class {unknown[0]}, so explicands of that class would get references of "
                f"{len(known)} classes and the others of {len(known) - 1}: add samples of it, or make two calls"
            )
        if len(known) == 1 and not unknown:
            raise InputError(f"the pool has samples of class {known[0]} alone, the class explained: add other classes")
        return [{name: self.per_class for name in known if name != mine} for mine in explained]

    def _some_classes(self, task: Task, known: list[int], explained: list[int]) -> list[dict[int, int]]:
        assert self.classes is not None
        drawn = [known[i] for i in torch.randperm(len(known), generator=task.generator(), device="cpu").tolist()]
        others = [[name for name in drawn if name != mine] for mine in explained]
        fewest = min(map(len, others))
        if fewest < self.classes:
            raise InputError(
                f"{self.classes} other classes were asked for and the pool has {fewest}: ask for fewer, or add some"
            )
        return [dict.fromkeys(names[: self.classes], self.per_class) for names in others]


@dataclass(frozen=True, eq=False)
class NormalClass(_ByClass):
    """Samples of the normal class, for data with anomalies: what would this be if nothing were wrong?

    Args:
        samples: the pool, as for `Samples`.
        labels: the class of each of its samples, (N,).
        normal: the class that is normal.
        count: how many for each explicand.
        own: for networks with a single output, the class of each explicand, (B,).
    """

    normal: int
    count: int = 5
    own: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.count)

    def wanted(self, task: Task, known: list[int]) -> list[dict[int, int]]:
        for row, mine in zip(task.rows.tolist(), _explained(task, self.own), strict=True):
            if mine == self.normal:
                raise InputError(
                    f"explicand {row} is explained as class {mine}, the normal class itself, and cannot be contrasted with "
                    "it: leave it out, or explain another class with target="
                )
        return [{self.normal: self.count}] * len(task)


@dataclass(frozen=True, eq=False)
class Relevant(_ByClass):
    """Samples of the classes that the model finds most likely after the explained one.

    They give more concentrated and less complete attributions than `OtherClasses`, which helps where the sample shows
    something else besides the explained class.

    Args:
        samples: the pool, as for `Samples`.
        labels: the class of each of its samples, (N,).
        top_k: of how many classes; with the explained one, the paper's top four.
        per_class: how many of each class.
    """

    top_k: int = 3
    per_class: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.per_class)
        if not isinstance(self.top_k, int) or isinstance(self.top_k, bool) or self.top_k < 1:
            raise InputError(f"top_k must be a positive integer, got {describe(self.top_k)}")

    def wanted(self, task: Task, known: list[int]) -> list[dict[int, int]]:
        scores = _scores(task)
        if scores.shape[1] <= self.top_k:
            raise InputError(f"top_k is {self.top_k}, the model has {scores.shape[1] - 1} classes besides the explained one")
        scores.scatter_(1, task.target.cpu()[:, None], -torch.inf)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : self.top_k]
        return [dict.fromkeys(names, self.per_class) for names in best.tolist()]


@dataclass(frozen=True, eq=False)
class NearestLabels(References):
    """For independent labels: the opposite of the explicand on the explained label, and its nearest in ℓ1 on the others.

    Args:
        samples: the pool, as for `Samples`.
        labels: the labels of its samples, zeros and ones (N, L), in the order of the model's outputs.
        count: how many for each explicand. Among samples at the same distance chance decides.
        own: the labels of the explicands, (B, L). By default what the model says of them: yes where the logit is positive,
            or the probability above one half.
    """

    samples: Any = field(repr=False)
    labels: Any = field(repr=False)
    count: int = 5
    own: Any = None

    def __post_init__(self) -> None:
        check_count(self.count)
        _binary(self.labels, "labels")

    def draw(self, task: Task) -> Tensor:
        pool = OpenPool(self.samples, task)
        labels = _binary(self.labels, "labels")
        _check_lengths(pool, labels)
        own = self._own_labels(task)
        if own.shape[1] != labels.shape[1] or int(task.target.max()) >= labels.shape[1]:
            raise InputError(f"labels are (N, {labels.shape[1]}), those of the explicands (B, {own.shape[1]}): make them equal")
        order = pool.order()
        chosen = []
        for row, mine, label in zip(task.rows.tolist(), own, task.target.tolist(), strict=True):
            opposite = order[labels[order, label] != mine[label]]
            # every candidate differs on the explained label, so it adds one to each distance and changes no order
            distance = (labels[opposite] - mine).abs().sum(dim=1)
            chosen.append(pool.first(opposite[distance.argsort(stable=True)].tolist(), self.count, row))
            if len(chosen[-1]) < self.count:
                raise InputError(
                    f"explicand {row} needs {self.count} references with label {label} equal to {1 - int(mine[label])}; the "
                    f"pool has {len(chosen[-1])} that are not the explicand itself. Give more of them, or lower count"
                )
        return pool.stack(chosen)

    def _own_labels(self, task: Task) -> Tensor:
        if self.own is not None:
            return _own(_binary(self.own, "own"), task)
        output = task.session.model.output
        if not isinstance(output, str):
            raise InputError(
                "the model explains a function of its output, which does not tell what it says of a label: give the "
                "explicands' labels, NearestLabels(..., own=labels)"
            )
        return (_scores(task) > YES_ABOVE[output]).long()
