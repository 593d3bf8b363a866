"""What was probably meant: for errors about a name that is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_LISTED = 12  # names that a message lists one by one


def suggest(name: object, known: Iterable[str], count: int = 1, choice: str = "choose from") -> str:
    """The end of a sentence about an unknown name: what was probably meant, or else what there is.

    >>> suggest("waffer", ["wafer", "mnist"])
    '; did you mean wafer?'
    >>> suggest("faces", ["wafer", "mnist"])
    ': choose from wafer, mnist'

    Args:
        name: what came.
        known: what there is.
        count: how many suggestions at most.
        choice: what comes before the list of names.

    Returns:
        "; did you mean …?", or ": choose from …" where nothing is close; nothing where there are no names.
    """
    names = list(dict.fromkeys(known))
    lowered: dict[str, str] = {}
    for known_name in names:
        lowered.setdefault(known_name.lower(), known_name)
    close = [lowered[match] for match in difflib.get_close_matches(str(name).lower(), lowered, n=count)]
    if close:
        return f"; did you mean {' or '.join(close)}?"
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f": {choice} {', '.join(names[:MOST_LISTED])}{more}" if names else ""
