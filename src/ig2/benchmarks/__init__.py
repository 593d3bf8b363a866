"""Methods compared on data with metrics: suites, the runner, and their tables."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.benchmarks.runner import Step, run
    from ig2.benchmarks.scales import choose_scales, select_scales
    from ig2.benchmarks.suite import SUITES, AtScale, BenchOptions, Column, Suite, WithoutReferences
    from ig2.benchmarks.table import Fact, Failure, Gap, Row, Table
else:  # the same names at run time, each imported when it is first used: the command line names suites without PyTorch
    __getattr__, __dir__ = attach(
        __name__,
        {
            "runner": ["Step", "run"],
            "scales": ["choose_scales", "select_scales"],
            "suite": ["SUITES", "AtScale", "BenchOptions", "Column", "Suite", "WithoutReferences"],
            "table": ["Fact", "Failure", "Gap", "Row", "Table"],
        },
    )

__all__ = [
    "SUITES",
    "AtScale",
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
    "choose_scales",
    "run",
    "select_scales",
]
