"""Paths from an explicand to its baseline, and the parts of GradPath."""

from ig2._engine.session import Evaluation
from ig2.paths.base import GrownPath, KnownPath, Pairs, Path
from ig2.paths.blur import Blur
from ig2.paths.distances import cosine, euclidean, manhattan
from ig2.paths.gradpath import L2, Converged, Decaying, GradPath, LineSearch, Norm, Schedule, SparseL1, Steady, Stop
from ig2.paths.guided import Guided
from ig2.paths.straight import Polyline, Straight

__all__ = [
    "L2", "Blur", "Converged", "Decaying", "Evaluation", "GradPath", "GrownPath", "Guided", "KnownPath", "LineSearch", "Norm",
    "Pairs", "Path", "Polyline", "Schedule", "SparseL1", "Steady", "Stop", "Straight", "cosine", "euclidean", "manhattan",
]  # fmt: skip
