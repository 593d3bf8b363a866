"""Wafer maps: the paper's CNN, normal maps as references, and the pattern marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from ig2.errors import InputError
from ig2.groups import Grid
from ig2.model import wrap
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.wafer import drawn, wm811k
from ig2_bench.datasets.wafer.marks import mark
from ig2_bench.networks.training import train_network
from ig2_bench.suite import BenchOptions
from ig2_bench.suites.experiment import (
    COUNTERFACTUAL,
    DATA,
    AssignedReferences,
    Experiment,
    ExplicandSet,
    accuracy_facts,
    select_correct,
)
from ig2_bench.suites.studies import EVERYWHERE, FACTORS, NORMS, Study

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
    studies: ClassVar[Mapping[str, Study]] = {**EVERYWHERE, "norms": NORMS, "factors": FACTORS}
    tried: ClassVar[tuple[int, float]] = (100, 0.1)
    published: ClassVar[tuple[int, float] | None] = (2000, 0.02)
    paper_scores: ClassVar[Mapping[str | None, Mapping[str, tuple[float, ...]]]] = {
        None: {
            "Gradient": (0.570, 0.226, 0.661, 0.216),
            "IG": (0.732, 0.342, 0.829, 0.061),
            "Guided IG": (0.758, 0.450, 0.789, 0.050),
            "Expected IG": (0.850, 0.488, 0.883, 0.038),
            "DeepSHAP": (0.863, 0.528, 0.890, 0.029),
            "KernelSHAP": (0.683, 0.339, 0.707, 0.042),
            "IG² (left, as published)": (0.849, 0.551, 0.898, 0.036),
        },
        "ablation": {
            "straight, black": (0.732, 0.342, 0.829, 0.061),
            "straight, train data": (0.810, 0.445, 0.777, 0.053),
            "straight, GradCF": (0.845, 0.510, 0.842, 0.041),
            "guided, black": (0.758, 0.450, 0.789, 0.050),
            "guided, train data": (0.804, 0.493, 0.775, 0.043),
            "guided, GradCF": (0.781, 0.472, 0.819, 0.037),
            "GradPath, GradCF (IG², left, as published)": (0.849, 0.551, 0.898, 0.036),
        },
        # the paper has the gaps of the other two to the first
        "distances": {
            "Euclidean": (0.849, 0.551, 0.898, 0.036),
            "cosine": (0.825, 0.532, 0.888, 0.034),
            "ℓ1": (0.777, 0.514, 0.869, 0.052),
        },
        "cost": {
            "Gradient": (0.03,), "IG": (0.89,), "Guided IG": (6.39,), "Expected IG": (1.25,), "DeepSHAP": (0.95,),
            "KernelSHAP": (75.0,), "IG² (left, as published)": (18.3,),
        },
    }  # fmt: skip

    per_class: int = 1000
    size: int = 56
    steps: int = 25
    step_size: float | None = 0.4

    @property
    def layers(self) -> tuple[str, ...]:
        return ("conv1", "conv2", "conv3", "fc1", "output")

    @cached_property
    def loaded(self) -> tuple[LabelledSamples, LabelledSamples]:
        """Maps to train on, and others."""
        if self.data is None:
            maps = drawn.draw_maps(self.per_class, self.seed, self.size)
        else:
            maps = wm811k.load(self.data, self.size, per_class=self.per_class, seed=self.seed, marked=False)
        train, test = maps.split(0.7, seed=self.seed)
        return train, test

    def groups(self) -> Grid:
        return Grid(7, 7) if self.quick else Grid(28, 28)

    def prepare_explicands(self) -> ExplicandSet:
        train, test = self.loaded
        net = train_network("wafer", train, seed=self.seed, device=self.device, quick=self.quick).net
        normal = train.classes.index(NORMAL)
        chosen = self.choose_explicands(net, test, excluded=normal)
        assert isinstance(chosen.x, torch.Tensor)
        maps = select_correct(net, train[train.y == normal]).take(self.references, self.seed)
        if len(maps) < self.references:
            raise InputError(
                f"the network classifies {len(maps)} normal maps as normal, too few for {self.references} references"
            )
        references = {COUNTERFACTUAL: maps, DATA: train.take(self.references, self.seed)}
        return ExplicandSet(
            model=wrap(net, bounds=(0, 1)),
            x=net.inputs(chosen.x).to(self.device),
            target=chosen.y.to(self.device),
            references={
                name: AssignedReferences.same_for_all(net.inputs(samples.x).to(self.device), len(chosen))
                for name, samples in references.items()
            },
            truth=chosen.masks if chosen.masks is not None else mark(chosen.x, chosen.y, chosen.classes),
            names=chosen.names,
            facts=accuracy_facts(net, test),
        )

    @classmethod
    def defaults(cls, options: BenchOptions) -> dict[str, Any]:
        if options.quick:
            return {**super().defaults(options), "per_class": 20, "size": 28}
        return {"per_class": 200} if options.data is None else {}
