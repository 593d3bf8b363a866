"""Texts as a kind of data: files of lines, and cells of data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ig2.errors import InputError, describe
from ig2.modalities.modality import Modality
from ig2.views import Words


class Texts(Modality):
    """Sentences."""

    name = "text"
    nouns = "texts"
    shows = Words
    suffixes = (".txt",)
    has_many = True
    in_rows = True
    reads_ahead = False  # reading a text asks the network about padding
    batch = 32
    keeps = "units"

    def is_cell(self, cell: Any) -> bool:
        return isinstance(cell, str)

    def find_column(self, row: Mapping[str, Any], column: str | None) -> str:
        return "text" if column is None and self.is_cell(row.get("text")) else super().find_column(row, column)

    def extract(self, content: Any, column: str | None = None) -> Any:
        content = super().extract(content, column)
        if not isinstance(content, str):
            raise InputError(f"the model reads texts, and this is {describe(content)}")
        return content


TEXTS = Texts()
