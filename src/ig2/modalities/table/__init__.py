"""Rows of tables: networks and estimators over numbers and categories."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.modalities.table import estimators
    from ig2.modalities.table.cells import read_frame
    from ig2.modalities.table.columns import Category, Column, Number, infer_columns
    from ig2.modalities.table.modality import load
    from ig2.modalities.table.rows import TableSubject, subject
else:
    __getattr__, __dir__ = attach(
        __name__,
        {
            "": ["estimators"],
            "cells": ["read_frame"],
            "columns": ["Category", "Column", "Number", "infer_columns"],
            "modality": ["load"],
            "rows": ["TableSubject", "subject"],
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
