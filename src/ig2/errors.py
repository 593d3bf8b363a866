"""What can go wrong, and who can fix it."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

WITHOUT_GRADIENTS = "ig2.KernelSHAP, ig2.scores and the metrics that only compare scores need no gradients"

_PACKAGE = str(Path(__file__).parent / "_")[:-1]
_CONTEXTS = str(contextlib.__file__)  # what opens and closes things stands in between


class IG2Error(Exception):
    """Every error this library raises on purpose.

    Args:
        args: what came, what was expected, what to do.
        rows: the explicands at fault, where only some are.
    """

    def __init__(self, *args: object, rows: Sequence[int] = ()) -> None:
        super().__init__(*args)
        self.rows = tuple(rows)


class InputError(IG2Error, ValueError):
    """An argument or a tensor is not what the call can use."""


class ModelError(IG2Error, RuntimeError):
    """The network, as it is, cannot be explained."""


class MissingExtraError(IG2Error, ImportError):
    """An optional package is needed and not installed."""


class IG2Warning(UserWarning):
    """Something runs, and probably not as it was meant."""


def warn(text: str) -> None:
    """Warn, at the line outside this package that led here, however deep inside it is noticed."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, _CONTEXTS)):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(text, IG2Warning, stacklevel=depth)


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package where it is used, or say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs the package {module!r}: pip install 'ig2[{extra}]'") from error


def format_count(number: int, word: str) -> str:
    """A number and the word for so many: "1 class", "2 batches"."""
    ending = "" if number == 1 else "es" if word.endswith(("s", "ch")) else "s"
    return f"{number:,} {word}{ending}"


def describe(value: object) -> str:
    """Quote a value back to the user: a tensor by dtype and shape, anything else by its repr, both short."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} {getattr(value, 'dtype', '')} {tuple(shape)}".replace("torch.", "")
    if isinstance(value, (tuple, list)):
        inner = ", ".join(describe(item) for item in value[:4])
        return f"{type(value).__name__} of {len(value)} ({inner}{', …' if len(value) > 4 else ''})"
    if isinstance(value, dict):
        inner = ", ".join(f"{key!r}: {describe(item)}" for key, item in list(value.items())[:4])
        return f"dict of {len(value)} ({inner}{', …' if len(value) > 4 else ''})"
    text = repr(value)
    if "\n" in text:
        return type(value).__name__  # a network: its layers would fill the message
    return text if len(text) <= 80 else text[:77] + "…"


def reason(error: BaseException) -> str:
    """Why something failed, on one line."""
    text = str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
    line = " ".join(text.split())
    line = line if len(line) <= 200 else line[:199] + "…"
    return line if isinstance(error, OSError) and line else f"{type(error).__name__}: {line}" if line else type(error).__name__
