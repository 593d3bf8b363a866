"""Standard output and error: one line for each error and warning, and readers that leave early."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from ig2.errors import IG2Warning


def one_line(text: object) -> str:
    """Return foreign text without what would break the line or control the terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())


def print_error(text: str) -> None:
    """Print one line on standard error."""
    print(f"ig2: {one_line(text)}", file=sys.stderr)


@contextmanager
def show_own_warnings() -> Iterator[None]:
    """Print our warnings in a line each; those of the packages underneath mean nothing to a user of the command."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", IG2Warning)
        warnings.showwarning = lambda message, *_: print_error(f"warning: {message}")
        yield


class _Surviving:
    """A stream that survives its reader: what `head` no longer reads is discarded, and the work goes on to its end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._ignore_closed_pipe():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._ignore_closed_pipe():
            self._stream.flush()

    @contextmanager
    def _ignore_closed_pipe(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # what is still in the buffer is discarded, now and when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def survive_closed_streams() -> Iterator[None]:
    """Let standard output and error be closed before the end, or from the beginning."""
    before: tuple[Any, Any] = sys.stdout, sys.stderr  # None if it was closed from the beginning
    with open(os.devnull, "w") as nowhere:
        sys.stdout, sys.stderr = (_Surviving(stream or nowhere) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
