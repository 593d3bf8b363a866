"""Opening what others made: nothing hidden in it is run."""

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
