"""Texts as a kind of data: files of lines, and cells of data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ig2._utils.files import check_regular, decode_text
from ig2.errors import InputError, describe, reason
from ig2.modalities.modality import Modality
from ig2.modalities.samples import SampleList
from ig2.views import Words

if TYPE_CHECKING:
    from ig2.modalities.base import Subject
    from ig2.modalities.editing import Editor
    from ig2.modalities.text.sentences import TextSubject

LARGEST_TEXT = 10_000_000  # bytes


class Texts(Modality):
    """Sentences."""

    name = "text"
    nouns = "texts"
    shows = Words
    maker = "ig2.modalities.text.from_parts"
    built_in = "questions"
    libraries = ("transformers",)
    suffixes = (".txt",)
    has_many = True
    in_rows = True
    can_edit = True
    reads_ahead = False  # reading a text asks the network about padding
    batch = 32
    keeps = "units"

    def load_from(self, library: str, name: str) -> TextSubject:
        from ig2.modalities.text.transformers import load_transformers

        return load_transformers(name)

    def open(
        self,
        subject: Subject,
        files: Sequence[Path],
        texts: Sequence[str] = (),
        choose: Callable[[int], Sequence[int]] | None = None,
    ) -> SampleList:
        lines = [*texts, *(line for path in files for line in read_lines(path))]
        found = SampleList.of(lines, lines, subject.read)
        return found if choose is None else replace(found, chosen=choose(len(lines)))

    def edit(self, subject: Subject) -> Editor:
        from ig2.modalities.text.editing import TextEditor

        return TextEditor(subject)

    def name_file(self, name: str, number: int) -> str:
        return f"text-{number}"

    def is_cell(self, cell: Any) -> bool:
        return isinstance(cell, str)

    def find_column(self, row: Mapping[str, Any], column: str | None) -> str:
        return "text" if column is None and self.is_cell(row.get("text")) else super().find_column(row, column)

    def extract(self, content: Any, column: str | None = None) -> Any:
        content = super().extract(content, column)
        if not isinstance(content, str):
            raise InputError(f"the model reads texts, and this is {describe(content)}")
        return content


def read_lines(path: Path) -> list[str]:
    """Return the sentences of a file, one on each line.

    Raises:
        InputError: if it is no text, or has none.
    """
    check_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if len(content) > LARGEST_TEXT:
        raise InputError(f"{path} has more than {LARGEST_TEXT:,} bytes: choose fewer sentences")
    return split_lines(content, str(path))


def split_lines(content: bytes, name: str) -> list[str]:
    """Return the sentences of a file's content, one on each line; `name` is what errors call the file."""
    lines = [line.strip() for line in decode_text(content, name).splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{name} has no sentences: expected one per line")
    return lines


TEXTS = Texts()
load = TEXTS.load
