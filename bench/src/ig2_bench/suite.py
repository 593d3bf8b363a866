"""Suites: the methods, data and metrics of one table; their options, and the suites of installed packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from ig2._utils.checks import is_count, is_number
from ig2._utils.devices import find_device
from ig2._utils.options import option
from ig2._utils.registry import Registry
from ig2._utils.suggestions import ChoiceError as ChoiceError
from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe
from ig2.table import Column, Shows
from ig2_bench.options import DataOptions

# Called as method(model, x, target, references, seed=...), returns an Attribution or a tensor in x's shape
MethodLike = Callable[..., Any]
# Settings are chosen on the validation split and reported on the test split
Split = Literal["validation", "test"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Suite(ABC):
    """The base class of suites, which compare methods on data with metrics. Subclasses are dataclasses of their settings.

    The work is divided into independent parts. The scores of each part and method are stored as soon as they are computed,
    under a key made of `name`, `version`, `identity()`, the data and its description, the part and the method. So everything
    that changes the scores must be a setting: a field without `repr=False`.
    """

    name: ClassVar[str]
    """The name of the suite on the command line, and of its files."""
    about: ClassVar[str] = ""
    """A short description of the comparison and its data, for the list of suites."""
    studies: ClassVar[Mapping[str, Any]] = {}
    """Studies that can be run instead of the comparison of methods, by name; few suites have any."""
    title: ClassVar[str]
    """The heading of the table."""
    unit: ClassVar[str] = "sample"
    """The unit that each value of a metric belongs to, in the singular: "sample", "seed"."""
    shows: ClassVar[Shows] = "sd"
    """The number after ± in the table: the standard deviation of the values, or the standard error of their mean."""
    version: ClassVar[int] = 1
    """Increment it when a change in the code alters the scores: scores stored under another version are not used."""

    seed: int = 0
    """The random seed."""
    quick: bool = False
    """Whether this is a small run, to test that everything works."""
    device: str = field(default="cpu", repr=False)
    """The device of the networks."""
    # pixels, the same for all methods or one of each by its label; they add rows, and change none
    scales: tuple[float, ...] | Mapping[str, float] = field(default=(), repr=False)
    """Scales in pixels; for each, every method has another row with its maps blurred by that many pixels."""

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        """Build the suite with a user's options; call `options.check` to reject those it does not use.

        By default a suite uses only `seed`, `quick` and `device`.
        """
        options.check(cls.name)
        return cls(seed=options.seed, quick=options.quick, device=options.device)

    @abstractmethod
    def parts(self) -> Sequence[str]:
        """Return the names of the independent pieces of work, such as "seed 0" or "images 1–20"."""

    @abstractmethod
    def methods(self) -> Mapping[str, MethodLike]:
        """Return the methods to compare, by their labels in the table."""

    @abstractmethod
    def metrics(self) -> Mapping[str, Column]:
        """Return the columns of the table, by their labels."""

    @abstractmethod
    def describe_data(self) -> str:
        """Return a sentence about the data of the table, without the folder it is in."""

    def digest_data(self) -> str:
        """Return a digest of the data, so that scores of other data are not used; "" if the settings determine the data."""
        return ""

    def digest_network(self) -> str:
        """Return a digest of the network if all parts share one; called after `check`, and only if a score is missing.

        Training on another machine yields a different network, which classifies other samples correctly.
        """
        return ""

    def check(self) -> None:  # noqa: B027, few suites have anything to check
        """Raise an InputError if the suite cannot run with these settings; called once, before anything is scored."""

    @abstractmethod
    def prepare(self, part: str) -> Any:
        """Return the data, the trained network and the references of a part; called once, and only if a score is missing."""

    @abstractmethod
    def score(self, part: str, prepared: Any, method: MethodLike) -> Mapping[str, Sequence[float]]:
        """Return the values of each metric by label: one for each sample, or one for the whole part; NaN if undefined.

        Call a method as `method(model, x, target, references, seed=...)`. A user's method may return a plain tensor, and may
        modify its arguments: pass copies of tensors that other methods use.
        """

    def skip_samples(self, count: int) -> Self | None:
        """Return the suite without its first `count` samples, whose scores are known; None if samples have no such order."""
        return None

    def facts(self, part: str, prepared: Any) -> Mapping[str, Sequence[float]]:
        """Return further facts about a part, such as the accuracy of its network: values by label."""
        return {}

    def paper(self) -> Mapping[str, Mapping[str, float]]:
        """Return the scores published in the paper, by the label of the method, then of the metric."""
        return {}

    @property
    def ranked(self) -> bool:
        """Whether all methods are scored on the same samples, so that their means can be compared."""
        return True

    def settings(self) -> dict[str, Any]:
        """Return the settings in words and numbers, as the table shows them."""
        from ig2.methods.base import summary

        return {part.name: summary(getattr(self, part.name)) for part in fields(self) if part.repr}

    def identity(self) -> Any:
        """Return everything the scores of a part depend on besides its name; by default all settings.

        A suite whose parts are seeds omits their number, so that more seeds can be added to those already scored.
        """
        return self.settings()


@dataclass(frozen=True)
class AtScale:
    """A method whose maps are blurred by `sigma` pixels with their sums kept, as by `attribution.smooth(sigma)`.

    A suite with `scales` wraps each method in it. A suite that computes an attribution once for all scales checks for this
    class and calls `blur`.
    """

    method: MethodLike
    sigma: float

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.blur(self.method(*args, **options))

    def blur(self, attribution: Any) -> Any:
        """Blur the result of the method, an Attribution or a tensor like x."""
        from ig2._utils.blur import find_space, smooth
        from ig2.attribution import Attribution

        if isinstance(attribution, Attribution):
            return attribution.smooth(self.sigma)
        return smooth(attribution, self.sigma, find_space(attribution))


def label_scale(label: str, sigma: float) -> str:
    """Return the label of a method's row at a scale.

    >>> label_scale("IG²", 8.0)
    'IG², blurred by 8 px'
    """
    return f"{label}, blurred by {sigma:g} px"


def add_scales(methods: Mapping[str, MethodLike], scales: Sequence[float] | Mapping[str, float]) -> dict[str, MethodLike]:
    """Return the methods, each followed by its rows at these scales; scale 0 is the method itself."""
    rows: dict[str, MethodLike] = {}
    for label, method in methods.items():
        rows[label] = method
        each = [scales.get(label, 0)] if isinstance(scales, Mapping) else scales
        rows.update({label_scale(label, sigma): AtScale(method, sigma) for sigma in each if sigma})
    return rows


# -- options -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BenchOptions(DataOptions):
    """The options of suites given by name. A suite rejects those it does not use with `check`.

    To add an option, add a field here and use it in the `from_options` of its suites: `ig2 bench` and `run` take it from this
    class.
    """

    seeds: int | None = option(
        None, "How many seeds. Default: the suite's own number.", bounds=(1, 10_000), refusal="has no seeds to repeat"
    )
    """The number of seeds; by default that of the suite."""
    study: str | None = option(
        None,
        "Run one of the suite's studies instead of its methods: rules, ablation, …; [bold]--list[/bold] names them.",
        refusal="has no studies",
    )
    """One of the suite's studies, instead of the comparison of methods."""
    samples: int | None = option(
        None,
        "The number of samples to explain. Default: the suite's own.",
        bounds=(1, 1_000_000),
        refusal="has a fixed number of samples",
    )
    """The number of samples to explain; by default that of the suite."""
    split: Split | None = option(
        None,
        "The split to explain: [bold]test[/bold], or [bold]validation[/bold] to choose settings on. Default: test.",
        complete=get_args(Split),
        refusal="has no validation split",
    )
    """The split of the samples: "test" by default, "validation" to choose settings."""

    scales: tuple[float, ...] = option(
        (),
        "Score each method also with its maps blurred by this many pixels, their sums kept. May be given several times.",
        metavar="PIXELS",
        refusal="has no pixels to blur",
    )
    """Scales in pixels to blur maps by; each adds a row for every method."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(is_number(sigma) and sigma > 0 for sigma in self.scales) or len(set(self.scales)) < len(self.scales):
            raise ChoiceError(f"scales must be different numbers of pixels above 0, got {describe(list(self.scales))}")
        for name in ("seeds", "samples"):
            if getattr(self, name) is not None and not is_count(getattr(self, name)):
                raise ChoiceError(f"{name} must be a whole number from 1 on, got {describe(getattr(self, name))}")
        if self.split not in (None, *get_args(Split)):
            raise ChoiceError(f"split must be validation or test, got {describe(self.split)}")

    @classmethod
    def parse(cls, **options: Any) -> BenchOptions:
        """Build the options from keyword arguments; a folder of data becomes a path.

        Raises:
            ChoiceError: for an unknown name or a wrong value.
        """
        known = [part.name for part in fields(BenchOptions)]
        for name in options:
            if name not in known:
                raise ChoiceError(f"there is no option {describe(name)}{suggest(name, known)}")
        data, scales = options.pop("data", None), options.pop("scales", ())
        if not isinstance(scales, (tuple, list)):
            raise ChoiceError(f"scales must be a list of pixels, such as [2, 8]; got {describe(scales)}")
        return BenchOptions(data=None if data is None else Path(data), scales=tuple(scales), **options)

    def check(self, suite: str, *takes: str) -> None:
        """Check that only options that a suite uses are set.

        Args:
            suite: the name of the suite.
            takes: the options it uses, among those whose default is None or empty.

        Raises:
            ChoiceError: for an option that is set and not in `takes`.
        """
        for part in fields(BenchOptions):
            if part.default in (None, ()) and part.name not in takes and getattr(self, part.name) != part.default:
                raise ChoiceError(f"{suite} {part.metadata['refusal']}: omit {part.name} (--{part.name})")


# -- the suites of installed packages ----------------------------------------------------------------------------------


SUITES = Registry(
    "ig2.suites",
    "suite",
    {
        "xai-units": "ig2_bench.suites.xai_units:XAIUnits",
        "xai-tris": "ig2_bench.suites.xai_tris:XAITris",
        "imagenet": "ig2_bench.suites.imagenet:ImageNet",
        "mnist": "ig2_bench.suites.mnist:MNIST",
        "trec": "ig2_bench.suites.trec:TREC",
        "wafer": "ig2_bench.suites.wafer:Wafer",
        "celeba": "ig2_bench.suites.celeba:CelebA",
        "xai-bench": "ig2_bench.suites.xai_bench:XAIBench",
    },
)
"""The suites of this and other installed packages, each a class, by name."""


def find_suite(name: str, options: BenchOptions | None = None) -> Suite:
    """Build the suite of this name with these options.

    Args:
        name: a name in `SUITES`, or `module:Class`.
        options: the user's options; by default the suite's own settings.

    Returns:
        The suite, ready to run.

    Raises:
        ChoiceError: if there is no such suite, or it does not use an option.
    """
    suite = SUITES[name]
    if not (isinstance(suite, type) and issubclass(suite, Suite)):
        raise ChoiceError(f"{name} is not a suite (got {describe(suite)}): name a subclass of ig2_bench.Suite")
    options = options or BenchOptions()
    return suite.from_options(replace(options, device=find_device(options.device)))


def check_returned(attribution: Any, x: Any) -> None:
    """Check that metrics can score the result of a method.

    Args:
        attribution: the result of the method.
        x: the input it was called with.

    Raises:
        InputError: if it is not an Attribution, or tensors like x.
    """
    from torch import Tensor

    from ig2.attribution import Attribution

    if isinstance(attribution, (Attribution, Tensor)) or (isinstance(x, tuple) and isinstance(attribution, tuple)):
        return
    like = x[0] if isinstance(x, tuple) else x
    how = ", as torch.from_numpy makes one" if type(attribution).__module__ == "numpy" else ""
    raise InputError(
        f"the method returned {describe(attribution)}: expected an Attribution, or a tensor like x, {tuple(like.shape)}{how}"
    )
