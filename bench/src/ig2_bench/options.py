"""The options of suites and figures, both of which run networks on data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ig2._utils.options import RunOptions, option


@dataclass(frozen=True, kw_only=True)
class DataOptions(RunOptions):
    """The options of commands that run networks on data sets."""

    quick: bool = option(False, "A small run, to see that everything runs.")
    """Whether to do a small run, to test that everything works."""
    data: Path | None = option(
        None, "The folder of the data. Default: what comes with the suite.", refusal="makes its own data"
    )
    """A folder with the data; by default the suite's own data."""
