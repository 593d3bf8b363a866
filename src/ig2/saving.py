"""The file of an attribution: its tensors in safetensors, and everything else as JSON in the header."""

from __future__ import annotations

import json
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ig2._utils.files import check_regular
from ig2.errors import InputError, import_extra
from ig2.names import Names
from ig2.result import Fields
from ig2.targets import Target

FORMAT = "ig2.attribution/1"
Kind = TypeVar("Kind", bound=Fields[Any])


def write(path: str | PathLike[str], attribution: Fields[Any]) -> None:
    """Write the fields of an attribution, except those of its call."""
    safetensors = import_extra("safetensors.torch", "io", "saving an attribution")
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"no folder {Path(path).parent} to save in")
    rowed: dict[str, Any] = {}
    structure: dict[str, list[int | str]] = {}
    header = {"format": FORMAT}
    for f in fields(attribution):
        name, value = f.name, getattr(attribution, f.name)
        if value is None or f.metadata.get("of_call") or (isinstance(value, (str, dict)) and not value):
            continue
        if isinstance(value, Target):
            content, held = value.pack(name)
            header[name] = json.dumps(content, default=str)
            rowed |= held
        elif f.metadata.get("unrowed"):
            content = value.to_json() if isinstance(value, Names) else value
            header[name] = json.dumps(content, default=str)
        elif isinstance(value, (Tensor, list)):
            rowed[name] = value
        else:
            parts = value if isinstance(value, dict) else dict(enumerate(value))
            if f.metadata.get("passed_on") and not all(isinstance(part, Tensor) for part in parts.values()):
                continue  # these can be anything
            structure[name] = list(parts)
            rowed |= {f"{name}/{key}": part for key, part in parts.items()}
    lists = {name: value for name, value in rowed.items() if isinstance(value, list)}
    # clone: safetensors refuses tensors that share memory, as an explicand and a view of it do
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in rowed.items() if name not in lists}
    header |= {"structure": json.dumps(structure), "lists": json.dumps(lists)}
    # by hand: `save_file` makes files nobody but their owner may read, and hides why a write failed
    Path(path).write_bytes(safetensors.save(tensors, metadata=header))


def read(path: str | PathLike[str], kind: type[Kind]) -> Kind:
    """Read a file that `write` wrote.

    Raises:
        InputError: if it is another file.
    """
    safe_open = import_extra("safetensors", "io", "loading an attribution").safe_open
    check_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            found: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except OSError:
        raise
    except Exception as error:  # safetensors has one exception for every way a file can be broken
        raise InputError(f"{path} is not a safetensors file: {error}") from error
    if header.get("format") != FORMAT:
        raise InputError(f"{path} holds no attribution: its format is {header.get('format')!r}, expected {FORMAT!r}")
    try:
        content = {name: json.loads(text) for name, text in header.items() if name != "format"}
        structure, lists = content.pop("structure"), content.pop("lists", {})
        found |= lists
        for name, keys in structure.items():
            pieces = [found.pop(f"{name}/{key}") for key in keys]
            is_tuple = isinstance(keys[0], int) and name not in ("fixed", "held")
            found[name] = tuple(pieces) if is_tuple else dict(zip(keys, pieces, strict=True))
        if "question" in content:
            content["question"] = Target.unpack(content["question"], found)
        if "names" in content:
            content["names"] = Names.from_json(content["names"])
        return kind(**found, **content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} says it holds an attribution, and does not: {error}") from error
