"""Rows of tables: networks and estimators over numbers and categories."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.modalities.table import estimators
    from ig2.modalities.table.rows import Category, Column, Number, TableSubject, infer_columns, load, read_frame, subject
else:
    __getattr__, __dir__ = attach(
        __name__,
        {
            "": ["estimators"],
            "rows": ["Category", "Column", "Number", "TableSubject", "infer_columns", "load", "read_frame", "subject"],
        },
    )

__all__ = [
    "Category",
    "Column",
    "Number",
    "TableSubject",
    "estimators",
    "infer_columns",
    "load",
    "read_frame",
    "subject",
]
