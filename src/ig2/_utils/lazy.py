"""Packages whose names are imported when they are first used (PEP 562), so that `import ig2` does not wait for PyTorch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: its `__name__`.
        modules: public names by the module that has them, relative to the package: "runs" is in it, ".groups" beside it. Under
            "", the modules that are public.
    """
    sources = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = sources[name]
        if not module:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(f".{module}", package), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *sources})
