"""Errors about a choice that does not exist, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ig2.errors import InputError

MOST_LISTED = 12  # names that a message lists one by one


class ChoiceError(InputError):
    """A name or an option that does not exist or does not fit the others, whatever the data hold."""


def suggest(name: object, known: Iterable[str], count: int = 1, choice: str = "choose from") -> str:
    """Return the end of a sentence about an unknown name: what was probably meant, or else what there is.

    >>> suggest("waffer", ["wafer", "mnist"])
    '; did you mean wafer?'
    >>> suggest("faces", ["wafer", "mnist"])
    ': choose from wafer, mnist'

    Args:
        name: the unknown name.
        known: the names that exist.
        count: how many suggestions at most.
        choice: what comes before the list of names.

    Returns:
        "; did you mean …?", or ": choose from …" where nothing is close; nothing where there are no names.
    """
    names = list(dict.fromkeys(known))
    close = find_close(name, names, count)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f": {choice} {', '.join(names[:MOST_LISTED])}{more}" if names else ""


def find_close(name: object, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the known names that are most like this one, whatever their case."""
    lowered: dict[str, str] = {}
    for known_name in known:
        lowered.setdefault(known_name.lower(), known_name)
    return [lowered[match] for match in difflib.get_close_matches(str(name).lower(), lowered, n=count)]
