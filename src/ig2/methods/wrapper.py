"""The base class of methods that wrap another method."""

from __future__ import annotations

from dataclasses import dataclass

from ig2.errors import InputError, describe
from ig2.methods.base import Method
from ig2.references.base import References


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
        if not isinstance(self.method, Method):
            raise InputError(
                f"{type(self).__name__} goes around a method, for example {type(self).__name__}(ig2.IG2()), got "
                f"{describe(self.method)}"
            )

    @property
    def default_references(self) -> References | None:  # type: ignore[override]
        return self.method.default_references

    @property
    def needs_references(self) -> bool:  # type: ignore[override]
        return self.method.needs_references

    @property
    def takes_references(self) -> bool:
        return self.method.takes_references

    @property
    def needs_gradient(self) -> bool:  # type: ignore[override]
        return self.method.needs_gradient

    @property
    def needs_places(self) -> bool:  # type: ignore[override]
        return self.method.needs_places

    @property
    def needs_classes(self) -> bool:  # type: ignore[override]
        return self.method.needs_classes
