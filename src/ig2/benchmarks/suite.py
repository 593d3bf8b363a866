"""What a suite is: methods, data and metrics that belong in one table; and the suites of installed packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from ig2._engine.task import check_seed
from ig2._utils.registry import Registry
from ig2.attribution import Attribution
from ig2.errors import InputError, describe, is_count
from ig2.methods.base import summary
from ig2.metrics.base import Better

# Called as method(model, x, target, references, seed=...), gives an Attribution or a tensor in x's shape
MethodLike = Callable[..., Any]
Shows = Literal["sd", "se"]
# Settings are chosen on the validation split and reported on the test split
Split = Literal["validation", "test"]


@dataclass(frozen=True)
class Column:
    """How one metric stands in the table."""

    better: Better
    """Which direction is better."""
    digits: int = 3
    """Digits shown after the point."""
    about: str = ""
    """What it measures, and with which settings, in a sentence below the table."""
    ranked: bool = True
    """Whether there is a best; where it only describes, there is none."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Suite(ABC):
    """Methods compared on data with metrics. Subclasses are dataclasses of their settings.

    The work is cut into parts that do not depend on each other. Of each part and method the scores are kept as soon as they
    are there, under a key made of `name`, `version`, `identity()`, the data and its description, the part and the method: a
    field that changes the scores must be a setting. Fields with `repr=False` are none.
    """

    name: ClassVar[str]
    """What it is called on the command line, and its files."""
    about: ClassVar[str] = ""
    """What is compared on what, in a few words, for the list of suites."""
    studies: ClassVar[Mapping[str, Any]] = {}
    """What can be compared instead of the methods, by name; few suites have any."""
    title: ClassVar[str]
    """Above the table."""
    unit: ClassVar[str] = "sample"
    """What one value of a metric is of, in the singular: "sample", "seed"."""
    shows: ClassVar[Shows] = "sd"
    """What stands after ± in the table: the standard deviation of the values, or the standard error of their mean."""
    version: ClassVar[int] = 1
    """Raised when the code is changed so that it scores differently: scores kept under another version are not used."""

    seed: int = 0
    """Of everything random."""
    quick: bool = False
    """Whether this is a small run, to see that it runs."""
    device: str = field(default="cpu", repr=False)
    """Where networks run."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: BenchOptions) -> Self:
        """The suite as a person asked for it; options it has no use for are refused with `options.check`."""

    @abstractmethod
    def parts(self) -> Sequence[str]:
        """The names of independent pieces of work, such as "seed 0" or "images 1–20"."""

    @abstractmethod
    def methods(self) -> Mapping[str, MethodLike]:
        """The methods compared, by the label each has in the table."""

    @abstractmethod
    def metrics(self) -> Mapping[str, Column]:
        """The table's columns, by their labels."""

    @abstractmethod
    def describe_data(self) -> str:
        """Which data the table is from, in a sentence, without the folder it lies in."""

    def digest_data(self) -> str:
        """A name for exactly the data, so that scores of other data are not taken for theirs; none where settings say it."""
        return ""

    def digest_network(self) -> str:
        """A name for exactly the network, where there is one for all parts; asked for after `check`, if some score is missing.

        One that was trained elsewhere is another one, and right about other samples.
        """
        return ""

    def check(self) -> None:  # noqa: B027, few suites have something to check
        """Raise an InputError where the suite cannot be run as it was asked for; called once, before anything is scored."""

    @abstractmethod
    def prepare(self, part: str) -> Any:
        """The data, the trained network, the references of a part; asked for once, and only if some score is missing."""

    @abstractmethod
    def score(self, part: str, prepared: Any, method: MethodLike) -> Mapping[str, Sequence[float]]:
        """The values of each metric, by its label: one a sample, or one for the whole part. NaN where one is not defined.

        A method is called as `method(model, x, target, references, seed=...)`. Someone's own may give a plain tensor, and may
        write into what it is given: what other methods are to see goes to it as a copy.
        """

    def facts(self, part: str, prepared: Any) -> Mapping[str, Sequence[float]]:
        """What is to be known of a part itself, such as the accuracy of its network: values by their labels."""
        return {}

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        """The paper's figures: by the label of the method, then of the metric."""
        return {}

    @property
    def ranked(self) -> bool:
        """Whether all methods are scored on the same samples, so that the best mean says something."""
        return True

    def settings(self) -> dict[str, Any]:
        """The settings in words and numbers, as the table tells them."""
        return {part.name: summary(getattr(self, part.name)) for part in fields(self) if part.repr}

    def identity(self) -> Any:
        """What the scores of a part depend on beside its name; by default all settings.

        A suite whose parts are seeds leaves out how many there are, so that more of them can be added to those it has.
        """
        return self.settings()


@dataclass(frozen=True)
class WithoutReferences:
    """A method that is not given the suite's references, and goes by its own: Integrated Gradients' zero, for one."""

    method: MethodLike

    def __call__(self, model: Any, x: Any, target: Any = None, references: Any = None, **options: Any) -> Any:
        return self.method(model, x, target, None, **options)


# -- the suites of installed packages -----------------------------------------------------------------------------------------


class ChoiceError(InputError):
    """A suite, a method or an option that there is not."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What a person may choose; a suite refuses what it has no use for with `check`."""

    seeds: int | None = None
    """How many seeds; by default the suite's own number."""
    quick: bool = False
    """A small run, to see that it runs."""
    data: Path | None = None
    """A folder with the data; by default what the suite makes itself."""
    samples: int | None = None
    """How many samples are explained; by default the suite's own number."""
    study: str | None = None
    """One of the suite's studies, instead of the comparison of methods."""
    split: Split | None = None
    """Which split of the samples: "test" by default, "validation" to choose settings on."""
    seed: int = 0
    """Of everything random; with several seeds, the first."""
    device: str = "auto"
    """Where networks run; "auto" becomes "cuda" if there is a GPU, otherwise "cpu"."""

    def __post_init__(self) -> None:
        try:
            check_seed(self.seed)
        except InputError as error:
            raise ChoiceError(str(error)) from error
        for name in ("seeds", "samples"):
            if getattr(self, name) is not None and not is_count(getattr(self, name)):
                raise ChoiceError(f"{name} must be a whole number from 1 on, got {describe(getattr(self, name))}")
        if self.split not in (None, *get_args(Split)):
            raise ChoiceError(f"split must be validation or test, got {describe(self.split)}")
        object.__setattr__(self, "device", usable_device(self.device))
        if self.data is not None:
            object.__setattr__(self, "data", Path(self.data))

    def check(self, suite: str, *takes: str) -> None:
        """Refuse options that mean nothing to a suite.

        Args:
            suite: its name.
            takes: the options it has a use for, of "seeds", "data", "samples", "study" and "split".
        """
        refusals = {
            "seeds": "has no seeds to repeat",
            "data": "makes its own data",
            "samples": "has a fixed number of samples",
            "study": "has no studies",
            "split": "has no validation split",
        }
        for name, why in refusals.items():
            if getattr(self, name) is not None and name not in takes:
                raise ChoiceError(f"{suite} {why}: leave {name} (--{name}) out")


def usable_device(device: str) -> str:
    """The device of this name, if it is here; "auto" becomes "cuda" if there is a GPU, otherwise "cpu"."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ChoiceError(f"device {describe(device)}: {no_such_device()}") from error
    return str(device)


def no_such_device() -> str:
    """For a message: which devices there are, and how they are called."""
    here = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return (
        f"there is no such device here, only {', '.join(here)}; devices are called cpu, cuda, cuda:1, mps, and auto takes a "
        "GPU if there is one"
    )


def check_returned(found: Any, x: Any) -> None:
    """See that a method gave what metrics can take.

    Args:
        found: what it gave.
        x: what it was called with.
    """
    if isinstance(found, (Attribution, Tensor)) or (isinstance(x, tuple) and isinstance(found, tuple)):
        return
    like = x[0] if isinstance(x, tuple) else x
    how = ", as torch.from_numpy makes one" if isinstance(found, np.ndarray) else ""
    raise InputError(
        f"the method returned {describe(found)}: expected an Attribution, or a tensor like x, {tuple(like.shape)}{how}"
    )


SUITES = Registry("ig2.suites", "suite", "the paper's suites come with pip install ig2-paper")
"""The suites of installed packages, each a class, by name."""


def find_suite(name: str, options: BenchOptions | None = None) -> Suite:
    """The suite of this name with these options.

    Args:
        name: one of `SUITES`, or `module:Class`.
        options: what a person chose.

    Returns:
        The suite, ready to run.

    Raises:
        ChoiceError: where there is no such suite, or it has no use for an option.
    """
    try:
        suite = SUITES[name]
    except InputError as error:
        raise ChoiceError(str(error)) from error
    if not (isinstance(suite, type) and issubclass(suite, Suite)):
        raise ChoiceError(f"{name} is no suite but {describe(suite)}: name a subclass of ig2.benchmarks.Suite")
    return suite.from_options(options or BenchOptions())
