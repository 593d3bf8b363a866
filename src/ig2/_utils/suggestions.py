"""What a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: object, known: Iterable[str], most: int = 8) -> str:
    """The end of an error message about an unknown name: the known names like it, or the first of all of them.

    >>> suggest("blened", ["left", "right", "blended"])
    "; did you mean 'blended'?"
    >>> suggest("x", ["left", "right", "blended"], most=2)
    "; known are 'left', 'right' and 1 more"
    >>> suggest("x", [])
    ''
    """
    names = list(known)
    lowered = {known_name.lower(): known_name for known_name in names}
    if close := difflib.get_close_matches(str(name).lower(), lowered, n=3):
        return f"; did you mean {' or '.join(repr(lowered[match]) for match in close)}?"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"; known are {', '.join(map(repr, names[:most]))}{more}" if names else ""
