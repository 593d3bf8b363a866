"""Handwritten digits: a small CNN, and digits of the other classes as references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

from ig2.groups import Grid
from ig2.model import wrap
from ig2_bench.datasets import mnist
from ig2_bench.datasets.base import LabelledSamples, choose_other_classes
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
from ig2_bench.suites.studies import EVERYWHERE, NORMS, Study

POOL = 50  # digits of each class that can be references


@cache
def _load_packaged() -> LabelledSamples:
    """Those of the package, which are stored there as text: to read them takes seconds."""
    return mnist.load_packaged()


@dataclass(frozen=True, eq=False, kw_only=True)
class MNIST(Experiment):
    """Digits, each explained against one of every other digit. Nobody has marked what matters in them.

    Args:
        per_class: how many of each digit the network is trained on at most.
    """

    about: ClassVar[str] = "handwritten digits, a small CNN"
    dataset: ClassVar[str] = "mnist"
    heading: ClassVar[str] = "Handwritten digits"
    studies: ClassVar[Mapping[str, Study]] = {**EVERYWHERE, "norms": NORMS}
    marked: ClassVar[bool] = False
    tried: ClassVar[tuple[int, float]] = (100, 0.8)

    per_class: int = 1000
    references: int = 9
    steps: int = 25
    step_size: float | None = 1.6

    @property
    def layers(self) -> tuple[str, ...]:
        return ("conv1", "conv2", "fc1", "output")

    @cached_property
    def loaded(self) -> tuple[LabelledSamples, LabelledSamples]:
        """Digits to train on, and others."""
        if self.data is None:
            train, test = _load_packaged().split(0.7, seed=self.seed)
        else:
            train, test = mnist.load(self.data, "train"), mnist.load(self.data, "test")
        return train.take(10 * self.per_class, self.seed), test.take(300 if self.quick else None, self.seed)

    def source(self) -> str:
        return self.loaded[1].source

    def groups(self) -> Grid:
        return Grid(7, 7) if self.quick else Grid(14, 14)

    def prepare_explicands(self) -> ExplicandSet:
        train, test = self.loaded
        net = train_network("mnist", train, seed=self.seed, device=self.device, quick=self.quick).net
        chosen = self.choose_explicands(net, test)
        pool = select_correct(net, train.take(10 * POOL, self.seed))
        rows = choose_other_classes(chosen.y, pool.y, self.references, self.seed)
        data = net.inputs(train.take(self.references, self.seed).x).to(self.device)
        return ExplicandSet(
            model=wrap(net, bounds=(0, 1)),
            x=net.inputs(chosen.x).to(self.device),
            target=chosen.y.to(self.device),
            references={
                COUNTERFACTUAL: AssignedReferences(net.inputs(pool.x).to(self.device), rows),
                DATA: AssignedReferences.same_for_all(data, len(chosen)),
            },
            names=chosen.names,
            facts=accuracy_facts(net, test),
        )

    @classmethod
    def defaults(cls, options: BenchOptions) -> dict[str, Any]:
        return {**super().defaults(options), **({"per_class": 40} if options.quick else {})}
