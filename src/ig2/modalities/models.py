"""Models by name: those of the demo, and those of installed packages."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, TypeVar

from ig2._utils.registry import Registry
from ig2.errors import InputError

AnySubject = TypeVar("AnySubject")


class ModelRegistry(Registry):
    """Functions without arguments that return a subject, by name."""

    def load(self, name: str, kind: type[AnySubject]) -> AnySubject:
        """Return the subject of this name.

        Raises:
            InputError: if there is none, or it is of another kind.
        """
        subject = self[name]()
        if not isinstance(subject, kind):
            raise InputError(f"{name} is a {type(subject).__name__}, expected a {kind.__name__}: load it with its own adapter")
        return subject


MODELS = ModelRegistry(
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
