"""Samples that are changed on a page and explained again: what the page sends of one, and what it gets."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ig2.errors import InputError, describe
from ig2.modalities.base import Batch, Subject
from ig2.views import View


class Editor(ABC):
    """How samples of a kind of data are changed. The page draws its editor by the view: a picture, words, or cells.

    Args:
        subject: the model.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def describe(self) -> dict[str, Any]:
        """Return what the page has to know of the samples, such as their size."""
        return {}

    @abstractmethod
    def show(self, row: Mapping[str, Any], view: View | None, original: Any) -> dict[str, Any]:
        """Return the sample of a stored row in editable form.

        Args:
            row: the row.
            view: how it is shown; None where the store has no values.
            original: what a subject reads of it, where the source is at hand; otherwise None.
        """

    @abstractmethod
    def read_upload(self, content: bytes, name: str) -> dict[str, Any]:
        """Return a file, or pasted content, in editable form.

        Args:
            content: the content of the file.
            name: its name.

        Raises:
            InputError: if the model cannot read it; the message states the reason.
        """

    @abstractmethod
    def parse(self, content: Any) -> Any:
        """Return what a page sends in place of a sample, checked, as `read` takes it.

        Raises:
            InputError: if it is anything else, or larger than a page would send.
        """

    def read(self, content: Any) -> Batch:
        """Return the batch of what `parse` returned.

        Raises:
            InputError: if the model cannot read it.
        """
        return self.subject.read([content])

    def draw(self, batch: Batch) -> bytes | None:
        """Return the file that is kept of a sample, as PNG; None if the store has all of it."""
        return None


def parse_json(content: bytes | str) -> dict[str, Any]:
    """Return the object in a JSON text."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError("expected a JSON object") from error
    if not isinstance(fields, dict):
        raise InputError(f"expected a JSON object, got {describe(fields)}")
    return fields
