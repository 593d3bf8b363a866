"""Lines on standard error, and text from outside on one line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ig2.errors import IG2Warning


def one_line(text: object) -> str:
    """A text from outside, without what would break the line or command the terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())


def say(text: str) -> None:
    """One line on standard error."""
    print(f"ig2: {one_line(text)}", file=sys.stderr)


@contextmanager
def own_warnings() -> Iterator[None]:
    """Warnings of ours in a line each; those of the packages underneath tell a user of the command nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", IG2Warning)
        warnings.showwarning = lambda message, *_: say(f"warning: {message}")
        yield
