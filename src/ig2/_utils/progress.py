"""Progress of long work: a bar, a function of the user's, or silence."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ig2.errors import InputError, describe, import_extra

ProgressOption = bool | Callable[[int, int], None]


class Progress:
    """Counts work done out of a total.

    Args:
        option: True for a bar, False for silence, or a function called with (done, total).
        label: what the bar is called.
        unit: what is counted.
    """

    def __init__(self, option: ProgressOption, label: str, unit: str = "point") -> None:
        if not isinstance(option, bool) and not callable(option):
            raise InputError(f"progress must be True, False or a function of (done, total), got {describe(option)}")
        self.option, self.label, self.unit = option, label, unit
        self.done = 0
        self.reported = 0  # work done again after memory ran out is not reported twice, so the count only ever grows
        self.total = 0
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if self.option is True:
            tqdm = import_extra("tqdm.auto", "progress", "progress=True").tqdm
            self.bar = tqdm(total=0, desc=self.label, unit=self.unit, unit_scale=self.unit == "point", leave=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.close()

    def expect(self, points: int) -> None:
        """Announce more work."""
        self.total += points
        if self.bar is not None:
            self.bar.total = self.total
            self.bar.refresh()

    def advance(self, points: int) -> None:
        """Report work done; negative when a piece has to be done again."""
        self.done += points
        if self.done <= self.reported:
            return
        points, self.reported = self.done - self.reported, self.done
        if self.bar is not None:
            self.bar.update(points)
        elif callable(self.option):
            self.option(self.done, self.total)
