"""Models by name: those of the demo, and those of installed packages."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ig2._utils.registry import Registry

MODELS = Registry(
    "ig2.models",
    "model",
    built_in={
        "efficientnet-lite0": "ig2.demo.photos:load",
        "digits": "ig2.demo.digits:load",
        "questions": "ig2.demo.questions:load",
        "breast-cancer": "ig2.demo.tables:load_breast_cancer",
        "wine": "ig2.demo.tables:load_wine",
        "iris": "ig2.demo.tables:load_iris",
        "diabetes": "ig2.demo.tables:load_diabetes",
    },
)
"""Named models: those of the demo, and those that installed packages register in the entry-point group `ig2.models`."""


def default_photos() -> Any:
    """Return the demo's photos, the references for a model that comes with none."""
    return importlib.import_module("ig2.demo.photos").photos()


def find_photos(ranked: Sequence[Sequence[str]], count: int) -> Any:
    """Return photos of the demo's pool of the first `count` classes in each row that it has; None if it was not fetched."""
    return importlib.import_module("ig2.demo.pool").choose(ranked, count)
