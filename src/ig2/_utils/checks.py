"""Checks of plain arguments: counts, numbers and seeds."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, get_args

from ig2.errors import InputError, describe


def is_count(value: object) -> bool:
    """Return whether a value is a positive integer of Python's or NumPy's."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(float(value))


def check_count(value: Any, name: str = "count") -> int:
    """Return a positive integer, or raise an `InputError` that quotes what the argument called `name` is instead."""
    if not is_count(value):
        raise InputError(f"{name} must be a positive integer, got {describe(value)}")
    return int(value)


def check_seed(seed: object) -> None:
    """Raise an `InputError` unless the seed is an integer that fits 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not -(2**63) <= int(seed) < 2**63:
        raise InputError(f"seed must be an integer of 64 bits, got {describe(seed)}")


def check_choice(value: object, choices: Any, name: str) -> None:
    """Raise an `InputError` unless a value is one of the strings of a `Literal`."""
    if value not in get_args(choices):
        *others, last = map(repr, get_args(choices))
        raise InputError(f"{name} must be {', '.join(others)} or {last}, got {describe(value)}")


def require(valid: bool, name: str, value: object, expected: str) -> None:
    """Raise an `InputError` that quotes the value of a setting, unless it is valid."""
    if not valid:
        raise InputError(f"{name} must be {expected}, got {describe(value)}")
