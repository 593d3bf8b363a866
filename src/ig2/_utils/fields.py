"""Checks of what a file of ours holds, which anyone may have written: fields by their path, and what each must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ig2._utils.checks import is_count, is_number
from ig2.errors import describe

Check = Callable[[Any], bool]
Field = tuple[str, Check, str]
"""The path of a field, such as "view.name", a check, and what is expected."""
_MISSING = object()


def is_text(content: object) -> bool:
    return isinstance(content, str)


def is_object(content: object) -> bool:
    return isinstance(content, dict)


def is_texts(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(item, str) for item in content)


def is_positive(content: Any) -> bool:
    return is_number(content) and content > 0


def is_size(content: object) -> bool:
    return is_count(content) or (isinstance(content, list) and len(content) == 2 and all(map(is_count, content)))


def or_null(check: Check) -> Check:
    """Return a check that a null passes too."""
    return lambda content: content is None or check(content)


def find_fault(content: Any, fields: Iterable[Field]) -> str | None:
    """Return what is wrong with the first field that is not as expected; any of them may be missing.

    >>> find_fault({"view": {"rate": -1}}, [("view.rate", is_positive, "a positive number")])
    'view.rate is -1, expected a positive number'
    """
    for path, check, expected in fields:
        part = content
        for key in path.split("."):
            part = part.get(key, _MISSING) if isinstance(part, dict) else _MISSING
        if part is not _MISSING and not check(part):
            return f"{path} is {describe(part)}, expected {expected}"
    return None
