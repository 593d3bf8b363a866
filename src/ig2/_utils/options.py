"""Options, each declared once as a dataclass field with its help, from which the command line is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
    """Declare an option as a field of a dataclass.

    Args:
        default: the default value.
        help: its text in `--help`; Rich markup is allowed.
        flags: its flags on the command line; by default the name of the field after two dashes.
        metavar: the name of its value in the help; by default N for a number, FOLDER for a path, otherwise the option's name.
        bounds: the smallest and largest number allowed on the command line.
        complete: shell completions: names, or a function of the text typed so far.
        panel: the heading that lists it in the help; None for the first one.
        refusal: the reason in the error of a suite that does not use the option, as the end of a sentence.
    """
    details = {"help": help, "flags": flags, "metavar": metavar, "bounds": bounds, "complete": complete, "panel": panel}
    return field(default=default, metadata={**details, "refusal": refusal})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of commands that run a network."""

    seed: int = option(0, "The random seed.", bounds=(0, 2**63 - 1))
    """The random seed; with several seeds, the first."""
    device: str = option(
        "auto",
        "The device to run on: cpu, cuda, cuda:1, mps; [bold]auto[/bold] takes a GPU if there is one.",
        complete=DEVICES,
    )
    """The device of the networks; "auto" is "cuda" if there is a GPU, otherwise "cpu"."""

    def __post_init__(self) -> None:
        try:
            check_seed(self.seed)
        except InputError as error:
            raise ChoiceError(str(error)) from error
        find_device(self.device)
