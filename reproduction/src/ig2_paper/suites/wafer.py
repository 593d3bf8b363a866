"""Wafer maps: the paper's CNN, normal maps as references, and the pattern marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import torch

from ig2.benchmarks.suite import BenchOptions
from ig2.errors import InputError
from ig2.methods.kernelshap import Grid
from ig2.model import wrap
from ig2_paper.datasets.base import Samples
from ig2_paper.datasets.wafer import drawn, wm811k
from ig2_paper.datasets.wafer.marks import mark
from ig2_paper.suites.experiment import (
    DATA,
    OTHERS,
    QUICK,
    Experiment,
    Opened,
    accuracy_facts,
    half_of,
    in_turns,
    options_of,
    same_for_all,
)
from ig2_paper.suites.studies import EVERYWHERE, NORMS, Study
from ig2_paper.training import predictions, trained

NORMAL = "None"


@dataclass(frozen=True, eq=False, kw_only=True)
class Wafer(Experiment):
    """Failure patterns of wafer maps, explained against maps without one.

    Args:
        per_class: how many maps of each class are read or drawn at most; seven of ten train the network.
        size: pixels a side that they are scaled to or drawn in.
    """

    about: ClassVar[str] = "wafer maps with eight failure patterns, the paper's CNN"
    dataset: ClassVar[str] = "wafer"
    heading: ClassVar[str] = "Wafer maps"
    studies: ClassVar[Mapping[str, Study]] = {**EVERYWHERE, "norms": NORMS}
    layers: ClassVar[tuple[str, ...]] = ("conv1", "conv2", "conv3", "fc1", "output")
    tried: ClassVar[tuple[int, float]] = (100, 0.1)
    published: ClassVar[tuple[int, float] | None] = (2000, 0.02)

    per_class: int = 1000
    size: int = 56
    steps: int = 25
    step_size: float | None = 0.4

    @cached_property
    def loaded(self) -> tuple[Samples, Samples]:
        """Maps to train on, and others."""
        if self.data is None:
            found = drawn.maps(self.per_class, self.seed, self.size)
        else:
            found = wm811k.load(self.data, self.size, per_class=self.per_class, seed=self.seed, marked=False)
        train, test = found.split(0.7, seed=self.seed)
        return train, test

    def groups(self) -> Grid:
        return Grid(7, 7) if self.quick else Grid(28, 28)

    def open(self) -> Opened:
        train, test = self.loaded
        net = trained("wafer", train, seed=self.seed, device=self.device, quick=self.quick).net
        normal = train.classes.index(NORMAL)
        half = half_of(test, self.half, self.seed)
        right = predictions(net, half).argmax(dim=1) == half.y
        chosen = half[in_turns(half.y, right & (half.y != normal), self.samples, self.seed)]
        assert isinstance(chosen.x, torch.Tensor)
        masks = chosen.masks if chosen.masks is not None else mark(chosen.x, chosen.y, chosen.classes)
        maps = train[train.y == normal]
        maps = maps[predictions(net, maps).argmax(dim=1) == normal].take(self.references, self.seed)
        if len(maps) < self.references:
            raise InputError(f"the network takes {len(maps)} normal maps for normal, too few for {self.references} references")
        places = {OTHERS: maps, DATA: train.take(self.references, self.seed)}
        return Opened(
            model=wrap(net, bounds=(0, 1)),
            x=net.inputs(chosen.x).to(self.device),
            target=chosen.y.to(self.device),
            references={name: same_for_all(net.inputs(some.x).to(self.device), len(chosen)) for name, some in places.items()},
            truth=masks,
            names=chosen.names,
            facts=accuracy_facts(net, test),
        )

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        columns = ("GT-AUC", "GT-SUM", "ADD", "DEL")
        if self.study == "ablation":
            figures: dict[str, tuple[float, ...]] = {
                "straight, black": (0.732, 0.342, 0.829, 0.061),
                "straight, train data": (0.810, 0.445, 0.777, 0.053),
                "straight, GradCF": (0.845, 0.510, 0.842, 0.041),
                "guided, black": (0.758, 0.450, 0.789, 0.050),
                "guided, train data": (0.804, 0.493, 0.775, 0.043),
                "guided, GradCF": (0.781, 0.472, 0.819, 0.037),
                "GradPath, GradCF (IG², left, as published)": (0.849, 0.551, 0.898, 0.036),
            }
        elif self.study is None:
            figures = {
                "Gradient": (0.570, 0.226, 0.661, 0.216),
                "IG": (0.732, 0.342, 0.829, 0.061),
                "Guided IG": (0.758, 0.450, 0.789, 0.050),
                "Expected IG": (0.850, 0.488, 0.883, 0.038),
                "DeepSHAP": (0.863, 0.528, 0.890, 0.029),
                "KernelSHAP": (0.683, 0.339, 0.707, 0.042),
                "IG² (left, as published)": (0.849, 0.551, 0.898, 0.036),
            }
        elif self.study == "distances":  # the paper has the others' gaps to the Euclidean
            figures = {
                "Euclidean": (0.849, 0.551, 0.898, 0.036),
                "cosine": (0.825, 0.532, 0.888, 0.034),
                "ℓ1": (0.777, 0.514, 0.869, 0.052),
            }
        elif self.study == "cost":
            seconds = {"Gradient": 0.03, "IG": 0.89, "Guided IG": 6.39, "Expected IG": 1.25, "DeepSHAP": 0.95}
            seconds |= {"KernelSHAP": 75.0, "IG² (left, as published)": 18.3}
            return {method: {"seconds": value} for method, value in seconds.items()}
        else:
            return {}
        return {method: dict(zip(columns, values, strict=True)) for method, values in figures.items()}

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        found: dict[str, Any] = options_of(options, cls)
        if not options.quick:
            return cls(**found if options.data is not None else {"per_class": 200, **found})
        return cls(**{**QUICK, "per_class": 20, "size": 28, **found})
