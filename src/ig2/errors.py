"""Errors and warnings, by who can fix them."""

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
    """The base class of all errors that this library raises on purpose.

    Args:
        args: the message: the value received, the value expected, and the remedy.
        rows: the explicands at fault, if only some are.
    """

    def __init__(self, *args: object, rows: Sequence[int] = ()) -> None:
        super().__init__(*args)
        self.rows = tuple(rows)


class InputError(IG2Error, ValueError):
    """Raised if the call cannot use an argument or a tensor."""


class ModelError(IG2Error, RuntimeError):
    """Raised if the network cannot be explained as it is."""


class MissingExtraError(IG2Error, ImportError):
    """Raised if a required optional package is not installed."""


class OutOfMemoryError(IG2Error, MemoryError):
    """Not even a single point fits."""


class IG2Warning(UserWarning):
    """Issued if a call runs, but probably not as intended."""


def warn(text: str) -> None:
    """Issue a warning at the line outside this package that led here, at any depth of the call stack."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, _CONTEXTS)):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(text, IG2Warning, stacklevel=depth)


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, or raise an error that states how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs the package {module!r}: pip install 'ig2[{extra}]'") from error


def format_count(number: int, word: str) -> str:
    """Return a number with its noun in singular or plural: "1 class", "2 batches"."""
    ending = "" if number == 1 else "es" if word.endswith(("s", "ch")) else "s"
    return f"{number:,} {word}{ending}"


def quote_names(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, quoted, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


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
    """Return the reason of a failure on one line."""
    text = str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
    line = " ".join(text.split())
    line = line if len(line) <= 200 else line[:199] + "…"
    return line if isinstance(error, OSError) and line else f"{type(error).__name__}: {line}" if line else type(error).__name__
