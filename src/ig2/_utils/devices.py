"""Devices by name, checked before anything runs on them."""

from __future__ import annotations

from ig2._utils.suggestions import ChoiceError
from ig2.errors import describe


def find_device(name: str) -> str:
    """Return the name of a device that works here; "auto" becomes "cuda" if there is a GPU, otherwise "cpu".

    Raises:
        ChoiceError: if there is no such device.
    """
    import torch  # not at the top: completing a command line must not wait for it

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, TypeError) as error:
        here = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        raise ChoiceError(
            f"device {describe(name)} is not available here, only {', '.join(here)}: expected cpu, cuda, cuda:1, mps, or auto, "
            "which takes a GPU if there is one"
        ) from error
    return str(name)
