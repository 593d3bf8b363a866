"""Settings that say which values they take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest

from ig2._utils import settings
from ig2._utils.settings import Accepted, Settings, function, instance_of, one_of, required, setting
from ig2.errors import InputError
from networks import refuses


@dataclass(frozen=True)
class Part(Settings):
    length: int = required(settings.COUNT)
    step: float | None = setting(None, settings.POSITIVE)
    side: Literal["left", "right"] = setting("left", one_of(Literal["left", "right"]))


@dataclass(frozen=True)
class More(Part):
    width: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width > self.length:
            raise InputError("width is more than length")


def test_a_part_is_checked_when_it_is_made_and_when_it_is_changed() -> None:
    assert Part(np.int64(3)).step is None and Part(3, 0.5, "right").side == "right"
    refuses(InputError, "length must be a positive integer, got 0", lambda: Part(0))
    refuses(InputError, "length must be a positive integer, got True", lambda: Part(True))
    refuses(InputError, "step must be a positive number, or None, got -1", lambda: Part(1, -1))
    refuses(InputError, "side must be 'left' or 'right', got 'up'", lambda: Part(1, side="up"))  # type: ignore[arg-type]
    refuses(InputError, "length must be a positive integer, got None", lambda: replace(Part(1), length=None))
    with pytest.raises(TypeError, match="length"):
        Part()


def test_a_subclass_is_checked_as_its_base_is_and_further() -> None:
    assert More(3, width=2).width == 2
    refuses(InputError, "length must be", lambda: More(0, width=2))
    refuses(InputError, "width is more", lambda: More(1, width=2))


@pytest.mark.parametrize(
    ("accepted", "good", "bad"),
    [
        (settings.NUMBER, [0, -1.5], [math.nan, math.inf, "1", True]),
        (settings.POSITIVE, [1e-9], [0, -1, None]),
        (settings.NOT_NEGATIVE, [0, 2], [-1e-9, math.nan]),
        (settings.PART, [0.1, 1], [0, 1.1]),
        (settings.FRACTION, [0, 1], [-0.1, 1.1]),
        (settings.BELOW_ONE, [0, 0.9], [1, -0.1]),
        (settings.INSIDE, [0.5], [0, 1]),
        (function("a function"), [abs, lambda: 0], [int, 3]),
        (instance_of((int, str), "a number or a name"), [1, "a"], [1.5, None]),
    ],
)
def test_what_is_accepted(accepted: Accepted, good: list[object], bad: list[object]) -> None:
    assert all(map(accepted.check, good)) and not any(map(accepted.check, bad))
