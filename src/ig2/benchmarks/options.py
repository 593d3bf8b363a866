"""Options, each declared once: a dataclass field with its help, from which the command line makes its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ig2._utils.checks import check_seed
from ig2._utils.devices import find_device
from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError

HOW = "How"  # the panel of the help for options about how a result is computed
DEVICES = ("auto", "cpu", "cuda", "mps")
Completion = Iterable[str] | Callable[[str], list[str]]


def option(
    default: Any,
    help: str,
    *flags: str,
    metavar: str | None = None,
    bounds: tuple[int, int] | None = None,
    complete: Completion = (),
    panel: str | None = HOW,
    refusal: str = "",
) -> Any:
    """Declare a field of a dataclass of options.

    Args:
        default: its default.
        help: what `--help` says of it; markup of Rich is allowed.
        flags: what is typed, by default the name of the field after two dashes.
        metavar: what the help calls its value, by default N for a number, FOLDER for a path, otherwise the name of the option.
        bounds: the least and the greatest number it may be on the command line.
        complete: what a shell offers: names, or a function of what is typed so far.
        panel: the heading of the help it is listed under; None for the first one.
        refusal: why a suite that does not use the option refuses it, as the end of a sentence.
    """
    details = {"help": help, "flags": flags, "metavar": metavar, "bounds": bounds, "complete": complete, "panel": panel}
    return field(default=default, metadata={**details, "refusal": refusal})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of everything that runs a network."""

    seed: int = option(0, "The random seed.", bounds=(0, 2**63 - 1))
    """The random seed; with several seeds, the first."""
    device: str = option(
        "auto",
        "The device to run on: cpu, cuda, cuda:1, mps; [bold]auto[/bold] takes a GPU if there is one.",
        complete=DEVICES,
    )
    """Where networks run; "auto" is "cuda" if there is a GPU, otherwise "cpu"."""

    def __post_init__(self) -> None:
        try:
            check_seed(self.seed)
        except InputError as error:
            raise ChoiceError(str(error)) from error
        find_device(self.device)


@dataclass(frozen=True, kw_only=True)
class DataOptions(RunOptions):
    """The options of everything that runs networks on data sets."""

    quick: bool = option(False, "A small run, to see that everything runs.")
    """A small run, to see that it runs."""
    data: Path | None = option(
        None, "The folder of the data. Default: what comes with the suite.", refusal="makes its own data"
    )
    """A folder with the data; by default what the suite makes itself."""
