"""A suite that takes no time: numbers to explain, methods that say them more or less well, a record of what was done."""

from __future__ import annotations

import math
import os
import random
import signal
import warnings
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch

import ig2
from ig2.errors import IG2Warning
from ig2_bench import Column, Suite
from networks import data, relu_cnn

TRUTH = torch.tensor([[1.0, 2.0, 3.0, 4.0]])


@dataclass(frozen=True)
class Off:
    """Says the truth, and something beside it."""

    by: float

    def __call__(self, model, x, target=None, references=None, *, seed=0):
        return x + self.by


def honest(model, x, target=None, references=None, *, seed=0):
    return x


def broken(model, x, target=None, references=None, *, seed=0):
    raise ValueError("cannot\ndo this | <b>")


def undecided(model, x, target=None, references=None, *, seed=0):
    return x * math.nan if seed == 1 else x


def global_dice(model, x, target=None, references=None, *, seed=0):
    return x + torch.rand(()) + random.random() + float(np.random.rand())  # noqa: NPY002


def interrupted(model, x, target=None, references=None, *, seed=0):
    if seed == 1:
        os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
    return x


def warned(model, x, target=None, references=None, *, seed=0):
    warnings.warn(f"of seed {seed}", IG2Warning, stacklevel=1)
    return x


@dataclass(frozen=True, eq=False, kw_only=True)
class Toy(Suite):
    about = "a toy"
    name = "toy"
    title = "A toy"
    unit = "seed"

    seeds: int = 3
    size: float = 1.0
    done: Counter = field(default_factory=Counter, repr=False)  # how often each thing was asked for

    def parts(self):
        return [f"seed {self.seed + i}" for i in range(self.seeds)]

    def methods(self):
        return {"IG": Off(1.0), "Guided IG": Off(2.0), "IG²": Off(0.25)}

    def metrics(self):
        return {"closeness": Column("higher", about="minus the distance to the truth"), "distance": Column("lower", digits=2)}

    def identity(self):
        return {name: value for name, value in self.settings().items() if name not in ("seed", "seeds")}

    def describe_data(self):
        return "four numbers made up here"

    def prepare(self, part):
        self.done[part] += 1
        return TRUTH * self.size

    def score(self, part, prepared, method):
        seed = int(part.split()[1])
        self.done[part, f"off by {method.by}" if isinstance(method, Off) else getattr(method, "__name__", "an object")] += 1
        off = float((method(None, prepared, None, None, seed=seed) - prepared).abs().mean()) * (1 + 0.1 * seed)
        return {"closeness": [-off], "distance": [off]}

    def facts(self, part, prepared):
        return {"accuracy": [0.9 + 0.01 * int(part.split()[1])]}

    def paper(self):
        return {"IG": {"closeness": -1.2, "distance": 1.2}, "IG²": {"closeness": -0.3}}

    @classmethod
    def from_options(cls, options):
        options.check("toy", "seeds")
        return cls(seeds=options.seeds or (1 if options.quick else 3), seed=options.seed, quick=options.quick)


@dataclass(frozen=True, eq=False, kw_only=True)
class Wide(Toy):
    """As many metrics as the paper's tables have, with their names."""

    name = "wide"
    title = "A table as wide as XAI-BENCH's"
    many = ("Faithfulness", "Monotonicity", "Monotonicity (published)", "ROAR", "GT-Shapley", "Infidelity")

    def metrics(self):
        return {label: Column("lower" if label == "Infidelity" else "higher") for label in self.many}

    def score(self, part, prepared, method):
        found = super().score(part, prepared, method)["distance"]
        return {label: [value / (i + 2) for value in found] for i, label in enumerate(self.many)}

    def methods(self):
        names = ("Random", "IG", "Guided IG", "Expected IG", "DeepSHAP", "KernelSHAP", "IG²", "IG² (shared)")
        return {name: Off(0.1 * (i + 1)) for i, name in enumerate(names)}

    def paper(self):
        labels = [label for label in self.many if "published" not in label]
        return {name: dict.fromkeys(labels, 0.31) for name in self.methods() if "shared" not in name}

    @classmethod
    def from_options(cls, options):
        return cls(seeds=options.seeds or 10, seed=options.seed, quick=options.quick)


X, NET = data(4, 2, 8, 8, low=0), relu_cnn()


@dataclass(frozen=True, eq=False, kw_only=True)
class Maps(Suite):
    """Scores what is left of the strongest value, and where it is."""

    name = "maps"
    title = "Maps"
    calls: list = field(default_factory=list, repr=False)

    def parts(self):
        return ["first", "second"]

    def methods(self):
        return {"Gradient": ig2.Gradient(), "IG": ig2.IntegratedGradients(4)}

    def metrics(self):
        return {"peak": Column("lower"), "total": Column("higher"), "seconds": Column("lower", ranked=False)}

    def describe_data(self):
        return "four maps"

    def prepare(self, part):
        return X[:2] if part == "first" else X[2:]

    def score(self, part, prepared, method):
        result = method(NET, prepared, 1, None, seed=0)
        values = result if isinstance(result, torch.Tensor) else result.values
        return {"peak": values.flatten(1).abs().amax(dim=1).tolist(), "total": values.sum((1, 2, 3)).tolist(), "seconds": [1.0]}
