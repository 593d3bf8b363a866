"""Texts that are typed in a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ig2.errors import InputError, describe
from ig2.modalities.editing import Editor
from ig2.modalities.text.modality import split_lines
from ig2.views import View

LONGEST_TEXT = 20_000  # characters


class TextEditor(Editor):
    """Sentences."""

    def show(self, row: Mapping[str, Any], view: View | None, original: Any) -> dict[str, Any]:
        return {"text": join_words(row.get("units") or ())}

    def read_upload(self, content: bytes, name: str) -> dict[str, Any]:
        lines = split_lines(content, "the file")
        return {"text": self.parse(lines[0]), "skipped": len(lines) - 1}

    def parse(self, content: Any) -> str:
        if not isinstance(content, str):
            raise InputError(f"the input must be a text, got {describe(content)}")
        if len(content) > LONGEST_TEXT:
            raise InputError(f"a text has {LONGEST_TEXT:,} characters at most, got {len(content):,}")
        if "\0" in content:
            raise InputError("the text holds null characters")
        return " ".join(content.split()) if "\n" in content or "\r" in content else content.strip()


def join_words(words: Sequence[str]) -> str:
    """Return words as a sentence: without a blank before a comma or behind an opening bracket.

    >>> join_words(["Where", "did", "guinea", "pigs", "(", "cavies", ")", "originate", "?"])
    'Where did guinea pigs (cavies) originate?'
    """
    text = " ".join(map(str, words))
    return re.sub(r"([(\[{]) ", r"\1", re.sub(r" ([,.;:!?)\]}])", r"\1", text))
