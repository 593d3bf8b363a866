"""Opening what others made: nothing hidden in it is run, and what went wrong fits on a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@contextmanager
def weights_only() -> Iterator[None]:
    """Inside, torch.load makes tensors and plain containers alone, whatever its callers ask of it.

    torch.hub and torch.export ask for the full unpickler, so it is not enough to be careful in our own calls.
    """
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SWITCH, None)
        else:
            os.environ[SWITCH] = before


def reason(error: BaseException) -> str:
    """Why something failed, on one line."""
    text = str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
    line = " ".join(text.split())
    line = line if len(line) <= 200 else line[:199] + "…"
    return line if isinstance(error, OSError) and line else f"{type(error).__name__}: {line}" if line else type(error).__name__
