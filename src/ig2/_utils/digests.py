"""Digests: of what an object consists of, and of our own code, by which stored results are recognised."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def key_of(*content: Any) -> str:
    """Return a digest of the content: the same for the same content, and for no other."""
    return digest(json.dumps(content, sort_keys=True, default=repr).encode("utf-8", "backslashreplace"))


def fingerprint(thing: Any, _inside: tuple[int, ...] = ()) -> Any:
    """Return what an object consists of: its settings, the numbers in its tensors, the source files of its functions.

    Code that those functions call elsewhere is not considered. Objects that cannot be compared are never the same twice.
    """
    if thing is None or isinstance(thing, (str, int, float, bool)):
        return thing
    if id(thing) in _inside:
        return "itself"

    def of(part: Any) -> Any:
        return fingerprint(part, (*_inside, id(thing)))

    if isinstance(thing, Tensor) and hasattr(thing, "__tensor_flatten__"):  # made of others: quantised weights and their scales
        names, context = thing.__tensor_flatten__()
        return [place(type(thing)), [[name, of(getattr(thing, name))] for name in names], of(context)]
    if isinstance(thing, Tensor):
        content = thing.detach().cpu().reshape(-1).view(torch.uint8).numpy()
        return [str(thing.dtype), list(thing.shape), digest(content.data)]
    if isinstance(thing, np.ndarray):
        return [str(thing.dtype), list(thing.shape), digest(thing.tobytes())]
    if isinstance(thing, Mapping):
        return [[of(key), of(value)] for key, value in thing.items()]
    if isinstance(thing, (list, tuple)):
        return [of(part) for part in thing]
    if isinstance(thing, functools.partial):
        return ["partial", of(thing.func), of(thing.args), of(thing.keywords)]
    if isinstance(thing, MethodType):
        return ["method", of(thing.__func__), of(thing.__self__)]
    if isinstance(thing, FunctionType):
        closure = [of(cell.cell_contents) for cell in thing.__closure__ or ()]
        return [place(thing), _source(thing), closure, of(thing.__defaults__), of(thing.__kwdefaults__)]
    if isinstance(thing, type):
        return [place(thing), _source(thing)]
    if isinstance(thing, nn.Module):
        return [of(type(thing)), repr(thing), of(thing.state_dict())]
    if is_dataclass(thing):
        return [of(type(thing)), {part.name: of(getattr(thing, part.name)) for part in fields(thing)}]
    if hasattr(thing, "__dict__"):
        return [of(type(thing)), of(vars(thing))]
    return repr(thing)


OURS = ("ig2", "ig2_bench")  # their versions, and those of suites, stand for their source
SHOWING = ("cli", "plots", "report", "compat", "figures")
# Where the code made for a dataclass says it is from: it follows from the class, and is another in each version of Python.
MADE = {"<string>", dataclasses.__file__}


def place(thing: Any) -> str:
    """Return where a function or class is defined."""
    return f"{thing.__module__}.{thing.__qualname__}"


def _source(thing: Any) -> str:
    """Return a digest of the source files, so that a method is scored again when it is edited. Ours go by the version."""
    if str(thing.__module__).partition(".")[0] in OURS:
        return ""
    members = vars(thing) if isinstance(thing, type) else {"": thing}
    codes = [member.__code__ for member in members.values() if isinstance(member, FunctionType)]
    content: list[Any] = []
    names = {code.co_filename for code in codes}
    if not names <= MADE:
        names -= MADE
    elif (home := getattr(sys.modules.get(thing.__module__), "__file__", None)) is not None:
        names = {home}  # of a dataclass of fields alone
    for name in sorted(names):
        try:
            content.append(digest(Path(name).read_bytes()))
        except (OSError, ValueError):  # typed into a notebook
            content += [describe_code(code) for code in codes if code.co_filename == name]
            content += [
                (key, value) for key, value in members.items() if isinstance(value, (str, int, float)) and key[:2] != "__"
            ]
    return digest(repr(content).encode())


def describe_code(code: CodeType) -> list[Any]:
    inner = [describe_code(constant) if isinstance(constant, CodeType) else _constant(constant) for constant in code.co_consts]
    return [code.co_code, code.co_names, inner]


def _constant(constant: Any) -> str:
    """Return a constant of a function as text; a set, whose order differs between processes, sorted by its members."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


@functools.cache  # the running code is that of the start
def code_digest(*others: str) -> str:
    """Return a digest of our own code, which may change without a new version, except code that only shows results.

    Args:
        others: further packages that a result depends on, by name.
    """
    content = b""
    for name in ("ig2", *others):
        root = Path(str(sys.modules[name].__file__)).parent
        files = sorted(path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in SHOWING)
        content += b"".join(path.read_bytes() for path in files)
    return digest(content)[:12]


def digest(content: bytes | memoryview) -> str:
    """Return the first half of the SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()[:32]
