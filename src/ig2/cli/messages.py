"""Lines on standard error, and text from outside on one line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from ig2.errors import IG2Warning


def one_line(text: object) -> str:
    """A text from outside, without what would break the line or command the terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())


def say(text: str) -> None:
    """One line on standard error."""
    print(f"ig2: {one_line(text)}", file=sys.stderr)


class _Lasting:
    """A stream that outlives its reader: what `head` no longer reads goes nowhere, and the work goes on to its end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._outliving_the_reader():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._outliving_the_reader():
            self._stream.flush()

    @contextmanager
    def _outliving_the_reader(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # what is still in the buffer is written to nowhere, now and when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Standard output and error that may be closed before the end, or from the beginning."""
    before: tuple[Any, Any] = sys.stdout, sys.stderr  # None where it was closed from the beginning
    with open(os.devnull, "w") as nowhere:
        sys.stdout, sys.stderr = (_Lasting(stream or nowhere) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


@contextmanager
def own_warnings() -> Iterator[None]:
    """Warnings of ours in a line each; those of the packages underneath tell a user of the command nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", IG2Warning)
        warnings.showwarning = lambda message, *_: say(f"warning: {message}")
        yield
