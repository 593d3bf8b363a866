"""The base class of methods that wrap another method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ig2.errors import InputError, describe
from ig2.methods.base import Method


def of_wrapped(name: str) -> Any:
    """Return a property that is the wrapped method's."""
    return property(lambda self: getattr(self.method, name), doc=f"`{name}` of the wrapped method.")


@dataclass(frozen=True, eq=False)
class Wrapper(Method):
    """Base class of methods that wrap another method and pass references on to it.

    Args:
        method: the wrapped method.

    Raises:
        InputError: if method is not a `Method`.
    """

    method: Method

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.method, Method):
            raise InputError(
                f"{type(self).__name__} goes around a method, for example {type(self).__name__}(ig2.IG2()), got "
                f"{describe(self.method)}"
            )

    default_references = of_wrapped("default_references")
    needs_references = of_wrapped("needs_references")
    takes_references = of_wrapped("takes_references")
    takes_weights = of_wrapped("takes_weights")
    needs_gradient = of_wrapped("needs_gradient")
    needs_places = of_wrapped("needs_places")
    needs_classes = of_wrapped("needs_classes")
    explains_probability = of_wrapped("explains_probability")
