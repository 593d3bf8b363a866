"""Metrics of XAI-BENCH beside those of `ig2.metrics`: one trains networks, one repeats published code."""

from ig2_bench.metrics.monotonicity import PublishedMonotonicity
from ig2_bench.metrics.roar import ROAR, train_one_by_one

__all__ = ["ROAR", "PublishedMonotonicity", "train_one_by_one"]
