"""Settings of parts: fields of dataclasses that state which values they take, checked when a part is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field, fields
from typing import Any, NamedTuple, get_args

from ig2._utils.checks import is_count, is_number, require


class Accepted(NamedTuple):
    """The values that a setting takes."""

    check: Callable[[Any], bool]
    words: str
    """What they are, as in "steps must be a positive integer"."""


COUNT = Accepted(is_count, "a positive integer")
NUMBER = Accepted(is_number, "a number")
POSITIVE = Accepted(lambda value: is_number(value) and value > 0, "a positive number")
NOT_NEGATIVE = Accepted(lambda value: is_number(value) and value >= 0, "a number, 0 or more")
PART = Accepted(lambda value: is_number(value) and 0 < value <= 1, "in (0, 1]")
FRACTION = Accepted(lambda value: is_number(value) and 0 <= value <= 1, "from 0 to 1")
BELOW_ONE = Accepted(lambda value: is_number(value) and 0 <= value < 1, "in [0, 1)")
INSIDE = Accepted(lambda value: is_number(value) and 0 < value < 1, "between 0 and 1")


def one_of(choices: Any) -> Accepted:
    """Accept the strings of a `Literal`."""
    *others, last = map(repr, get_args(choices))
    return Accepted(lambda value: value in get_args(choices), f"{', '.join(others)} or {last}")


def instance_of(kind: Any, words: str) -> Accepted:
    """Accept the instances of a class."""
    return Accepted(lambda value: isinstance(value, kind), words)


def function(words: str) -> Accepted:
    """Accept functions, but no classes."""
    return Accepted(lambda value: callable(value) and not isinstance(value, type), words)


def setting(default: Any, accepted: Accepted, **options: Any) -> Any:
    """Return a field with a default; if that is None, None is accepted too. The options are those of `field`."""
    return field(default=default, metadata={"accepted": accepted}, **options)


def required(accepted: Accepted, **options: Any) -> Any:
    """Return a field without a default."""
    return setting(MISSING, accepted, **options)


class Settings:
    """Base class of dataclasses with such fields. A subclass that checks more does so after `super().__post_init__()`.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Line(Settings):
    ...     steps: int = setting(50, COUNT)
    >>> Line(0)
    Traceback (most recent call last):
    ig2.errors.InputError: steps must be a positive integer, got 0
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            accepted: Accepted | None = item.metadata.get("accepted")
            value = getattr(self, item.name)
            if accepted is None or (value is None and item.default is None):
                continue
            words = f"{accepted.words}, or None" if item.default is None else accepted.words
            require(accepted.check(value), item.name, value, words)
