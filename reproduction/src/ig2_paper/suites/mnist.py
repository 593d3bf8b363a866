"""Handwritten digits: a small CNN, and digits of the other classes as references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Self

from ig2.benchmarks.suite import BenchOptions
from ig2.methods.kernelshap import Grid
from ig2.model import wrap
from ig2_paper.datasets import mnist
from ig2_paper.datasets.base import Samples
from ig2_paper.suites.experiment import (
    DATA,
    OTHERS,
    QUICK,
    Experiment,
    Opened,
    References,
    accuracy_facts,
    half_of,
    in_turns,
    of_other_classes,
    options_of,
    same_for_all,
)
from ig2_paper.suites.studies import EVERYWHERE, NORMS, Study
from ig2_paper.training import predictions, trained

POOL = 50  # digits of each class to contrast with


@cache
def _digits() -> Samples:
    """Those of the package, which stand there as text: to read them takes seconds."""
    return mnist.digits()


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
    layers: ClassVar[tuple[str, ...]] = ("conv1", "conv2", "fc1", "output")
    marked: ClassVar[bool] = False
    tried: ClassVar[tuple[int, float]] = (100, 0.8)

    per_class: int = 1000
    references: int = 9
    steps: int = 25
    step_size: float | None = 1.6

    @cached_property
    def loaded(self) -> tuple[Samples, Samples]:
        """Digits to train on, and others."""
        if self.data is None:
            train, test = _digits().split(0.7, seed=self.seed)
        else:
            train, test = mnist.load(self.data, "train"), mnist.load(self.data, "test")
        return train.take(10 * self.per_class, self.seed), test.take(300 if self.quick else None, self.seed)

    def source(self) -> str:
        return self.loaded[1].source

    def groups(self) -> Grid:
        return Grid(7, 7) if self.quick else Grid(14, 14)

    def open(self) -> Opened:
        train, test = self.loaded
        net = trained("mnist", train, seed=self.seed, device=self.device, quick=self.quick).net
        half = half_of(test, self.half, self.seed)
        right = predictions(net, half).argmax(dim=1) == half.y
        chosen = half[in_turns(half.y, right, self.samples, self.seed)]
        pool = train.take(10 * POOL, self.seed)
        pool = pool[predictions(net, pool).argmax(dim=1) == pool.y]
        others = of_other_classes(chosen.y, pool.y, self.references, self.seed)
        data = train.take(self.references, self.seed)
        return Opened(
            model=wrap(net, bounds=(0, 1)),
            x=net.inputs(chosen.x).to(self.device),
            target=chosen.y.to(self.device),
            references={
                OTHERS: References(net.inputs(pool.x).to(self.device), others),
                DATA: same_for_all(net.inputs(data.x).to(self.device), len(chosen)),
            },
            names=chosen.names,
            facts=accuracy_facts(net, test),
        )

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        found: dict[str, Any] = options_of(options, cls)
        return cls(**{**QUICK, "per_class": 40, **found} if options.quick else found)
