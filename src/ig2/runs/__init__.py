"""Whole data sets: sources, a run that can be stopped and resumed, and the store of its rows."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.runs.aggregates import Aggregates
    from ig2.runs.execution import Cluster, run
    from ig2.runs.plan import Saving
    from ig2.runs.sources import Files, HuggingFace, Item, Lines, Reading, Rows, Samples, Source, find_source
    from ig2.runs.store import Store, open
else:  # a store is read without PyTorch
    __getattr__, __dir__ = attach(
        __name__,
        {
            "aggregates": ["Aggregates"],
            "execution": ["Cluster", "run"],
            "plan": ["Saving"],
            "sources": ["Files", "HuggingFace", "Item", "Lines", "Reading", "Rows", "Samples", "Source", "find_source"],
            "store": ["Store", "open"],
        },
    )

__all__ = [
    "Aggregates",
    "Cluster",
    "Files",
    "HuggingFace",
    "Item",
    "Lines",
    "Reading",
    "Rows",
    "Samples",
    "Saving",
    "Source",
    "Store",
    "find_source",
    "open",
    "run",
]
