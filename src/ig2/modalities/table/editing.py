"""Rows whose cells are typed in a page."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ig2._utils.files import decode_text
from ig2.errors import InputError, describe
from ig2.modalities.editing import Editor, parse_json
from ig2.modalities.table.cells import read_frame
from ig2.modalities.table.columns import Category
from ig2.modalities.table.rows import TableSubject
from ig2.views import Bars, View

LONGEST_CELL = 1000


class RowEditor(Editor):
    """Rows of a table, by the names of their columns."""

    subject: TableSubject

    def describe(self) -> dict[str, Any]:
        columns = ((column.name, column.texts if isinstance(column, Category) else None) for column in self.subject.columns)
        return {"columns": [{"name": name, "values": values} for name, values in columns]}

    def show(self, row: Mapping[str, Any], view: View | None, original: Any) -> dict[str, Any]:
        return {"cells": dict(zip(view.columns, view.cells, strict=False))} if isinstance(view, Bars) else {}

    def read_upload(self, content: bytes, name: str) -> dict[str, Any]:
        """Return the first row of a table with a header, of tabs or commas; or of a JSON object."""
        text = decode_text(content, "the file")
        frame = read_frame([parse_json(text)]) if text.lstrip().startswith("{") else _read_text(text, name)
        if not len(frame):
            raise InputError("the table has no rows: expected a line of column names, and a row below")
        self.subject.read(frame, lambda total: [0])  # what is wrong with it
        row = frame.iloc[0]
        return {"cells": {column.name: str(row[column.name]).strip() for column in self.subject.columns}}

    def parse(self, content: Any) -> dict[str, str]:
        if not isinstance(content, dict):
            raise InputError(f"a row is an object of cells, got {describe(content)}")
        cells = {str(name): cell if isinstance(cell, str) else str(cell) for name, cell in content.items()}
        if any(len(cell) > LONGEST_CELL for cell in cells.values()):
            raise InputError(f"a cell has {LONGEST_CELL} characters at most")
        return cells


def _read_text(text: str, name: str) -> Any:
    first = text.lstrip("\r\n").partition("\n")[0]
    suffix = ".tsv" if name.lower().endswith(".tsv") or "\t" in first else ".csv"
    with tempfile.TemporaryDirectory() as folder:  # so that it is read as the command reads a file
        path = Path(folder) / f"table{suffix}"
        path.write_text(text, "utf-8")
        try:
            return read_frame(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), "the table")) from None
