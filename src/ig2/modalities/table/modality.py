"""Tables as a kind of data: their files, and rows of data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ig2.errors import InputError, describe
from ig2.modalities.modality import Modality
from ig2.views import Bars


class Tables(Modality):
    """Rows of tables."""

    name = "table"
    nouns = "rows of a table"
    shows = Bars
    suffixes = (".csv", ".tsv", ".parquet", ".pq")
    has_many = True
    in_rows = True
    reads_ahead = False  # a frame for all rows of a batch
    batch = 128
    keeps = "units"

    def extract(self, content: Any, column: str | None = None) -> Any:
        if isinstance(content, (tuple, list)) and content:
            content = content[0]  # a data set's (sample, label)
        if not isinstance(content, Mapping):
            raise InputError(f"the model reads rows, and this is {describe(content)}")
        return dict(content)


TABLES = Tables()
