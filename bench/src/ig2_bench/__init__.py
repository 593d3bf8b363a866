"""Benchmarks, which compare methods on data with metrics: suites, the runner, and their tables."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.benchmarks.intervals import Interval
    from ig2.benchmarks.leaderboard import run_factors, run_leaderboard
    from ig2.benchmarks.runner import Step, run
    from ig2.benchmarks.scales import choose_scales, select_scales
    from ig2.benchmarks.standings import Board, Leaderboard, Standing
    from ig2.benchmarks.suite import SUITES, AtScale, BenchOptions, Column, Suite, WithoutReferences
    from ig2.benchmarks.table import Fact, Failure, Gap, Row, Table
else:  # the same names at run time, each imported when it is first used: the command line names suites without PyTorch
    __getattr__, __dir__ = attach(
        __name__,
        {
            "intervals": ["Interval"],
            "leaderboard": ["run_factors", "run_leaderboard"],
            "runner": ["Step", "run"],
            "scales": ["choose_scales", "select_scales"],
            "standings": ["Board", "Leaderboard", "Standing"],
            "suite": ["SUITES", "AtScale", "BenchOptions", "Column", "Suite", "WithoutReferences"],
            "table": ["Fact", "Failure", "Gap", "Row", "Table"],
        },
    )

__all__ = [
    "SUITES",
    "AtScale",
    "BenchOptions",
    "Board",
    "Column",
    "Fact",
    "Failure",
    "Gap",
    "Interval",
    "Leaderboard",
    "Row",
    "Standing",
    "Step",
    "Suite",
    "Table",
    "WithoutReferences",
    "choose_scales",
    "run",
    "run_factors",
    "run_leaderboard",
    "select_scales",
]
