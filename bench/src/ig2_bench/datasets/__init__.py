"""Data to compare methods on: the public sets in their public layouts, and stand-ins that need no download."""

from ig2._utils.datasets import DATASETS, DataSet, Survey

__all__ = ["DATASETS", "DataSet", "Survey"]
