"""Methods compared on data with metrics: suites, the runner, and their tables."""

from ig2.benchmarks.runner import Step, run
from ig2.benchmarks.suite import SUITES, BenchOptions, Column, Suite, WithoutReferences
from ig2.benchmarks.table import Fact, Failure, Gap, Row, Table

__all__ = [
    "SUITES",
    "BenchOptions",
    "Column",
    "Fact",
    "Failure",
    "Gap",
    "Row",
    "Step",
    "Suite",
    "Table",
    "WithoutReferences",
    "run",
]
