"""The bench of ig2: suites that compare methods on data, the leaderboard, and the paper's data, networks and figures."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ig2._utils.datasets import DATASETS, DataSet, Survey
    from ig2.table import Column
    from ig2_bench.board.intervals import Interval
    from ig2_bench.board.leaderboard import run_factors, run_leaderboard
    from ig2_bench.board.standings import Board, Leaderboard, Standing
    from ig2_bench.figure import FIGURES, Figure
    from ig2_bench.runner import Step, run
    from ig2_bench.scales import choose_scales, select_scales
    from ig2_bench.suite import SUITES, AtScale, BenchOptions, Suite
    from ig2_bench.table import Table
else:  # the same names at run time, each imported when it is first used: the command line names suites without PyTorch
    __getattr__, __dir__ = attach(
        __name__,
        {
            "board.intervals": ["Interval"],
            "board.leaderboard": ["run_factors", "run_leaderboard"],
            "board.standings": ["Board", "Leaderboard", "Standing"],
            "datasets": ["DATASETS", "DataSet", "Survey"],
            "figure": ["FIGURES", "Figure"],
            "runner": ["Step", "run"],
            "scales": ["choose_scales", "select_scales"],
            "suite": ["SUITES", "AtScale", "BenchOptions", "Column", "Suite"],
            "table": ["Table"],
        },
    )

__all__ = [
    "DATASETS",
    "FIGURES",
    "SUITES",
    "AtScale",
    "BenchOptions",
    "Board",
    "Column",
    "DataSet",
    "Figure",
    "Interval",
    "Leaderboard",
    "Standing",
    "Step",
    "Suite",
    "Survey",
    "Table",
    "choose_scales",
    "run",
    "run_factors",
    "run_leaderboard",
    "select_scales",
]
