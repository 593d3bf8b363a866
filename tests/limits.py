"""The one limit of time in tests: a busy machine does not reach it, and what hangs does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

HANGS = 3600.0  # seconds


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until something is true, looking often."""
    pause, end = threading.Event(), time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.01)
