"""What a report shows, and nothing about how it was made or how it looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2.adapters.base import Kind

Picture = NDArray[np.uint8]  # (H, W, 3)
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceView:
    """One sample the explicand was contrasted with."""

    label: str
    output: float  # f at the baseline this reference led to
    picture: Picture | None = None
    text: str | None = None
    scores: Numbers | None = None  # its own attribution: (H, W), or one number a word or column


@dataclass(frozen=True)
class MethodView:
    """One method's answer for one input."""

    name: str
    scores: Numbers  # (H, W), or one number a word or column; summed over channels
    output: float  # f(x)
    baseline_output: float | None
    residual: float | None
    verdict: str  # what the residual and the arrival mean, in a sentence
    settings: dict[str, Any]
    output_curve: Numbers | None = None  # (R, k + 1), from the explicand to the baseline
    distance_curve: Numbers | None = None  # (R, k + 1)
    references: tuple[ReferenceView, ...] = ()
    gradcf: Picture | None = None  # the first reference's counterfactual
    trust: float | None = None  # how well gradients predicted the output, the median over references
    arrival: float | None = None  # the share of the distance the paths covered, the median over references
    reference_output: float | None = None  # f at the references, the mean over them


@dataclass(frozen=True)
class InputView:
    """One input, and what the methods say of it."""

    name: str
    kind: Kind
    prediction: str
    probability: float | None
    target: str  # the class explained
    contrasted: tuple[str, ...]  # the classes contrasted with
    methods: tuple[MethodView, ...]
    picture: Picture | None = None
    units: tuple[str, ...] = ()  # words, or names of columns
    cells: tuple[str, ...] = ()  # what stands in the columns


@dataclass(frozen=True)
class SkippedView:
    """An input that could not be explained."""

    name: str
    reason: str

    def __str__(self) -> str:
        return self.reason if self.name in self.reason else f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class Content:
    """A whole report."""

    title: str
    model: str
    inputs: tuple[InputView, ...]
    details: dict[str, str] = field(default_factory=dict)  # versions, seed, when
    skipped: tuple[SkippedView, ...] = ()
