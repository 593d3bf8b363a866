"""Errors about a choice that does not exist, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ig2.errors import InputError

MOST_LISTED = 30  # names that a message lists one by one


class ChoiceError(InputError):
    """A name or an option that does not exist or does not fit the others, whatever the data hold."""


def suggest(name: object, known: Iterable[str], count: int = 1) -> str:
    """Return the end of a sentence about an unknown name: what was probably meant, or else all names.

    >>> suggest("waffer", ["wafer", "mnist"])
    '; did you mean wafer?'
    >>> suggest("faces", ["wafer", "mnist"])
    ': choose from wafer, mnist'

    Args:
        name: the unknown name.
        known: the names that exist.
        count: how many suggestions at most.

    Returns:
        "; did you mean …?", or ": choose from …" where nothing is close, or "" if there are none, or more than 30.
    """
    names = list(dict.fromkeys(known))
    close = find_close(name, names, count)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f": choose from {', '.join(names)}" if 0 < len(names) <= MOST_LISTED else ""


def find_close(name: object, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the known names that are most like this one, whatever their case."""
    lowered: dict[str, str] = {}
    for known_name in known:
        lowered.setdefault(known_name.lower(), known_name)
    return [lowered[match] for match in difflib.get_close_matches(str(name).lower(), lowered, n=count)]
