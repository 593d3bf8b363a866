"""Rows of tables: networks and estimators over numbers and categories."""

from ig2.modalities.table import estimators
from ig2.modalities.table.rows import Category, Column, Number, TableSubject, infer_columns, load, read_frame, subject

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
