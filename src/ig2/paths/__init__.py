"""Paths from an explicand to its baseline, and the parts of GradPath."""

from ig2.evaluation import Evaluation
from ig2.paths.base import GrownPath, KnownPath, Pairs, Path, PreparedPath
from ig2.paths.blur import Blur
from ig2.paths.descent import Descent, Sign, TowardClasses
from ig2.paths.distances import cosine, euclidean, manhattan
from ig2.paths.finished import Finished
from ig2.paths.geodesic import Geodesic
from ig2.paths.goals import Change, Goal, Rivals, ToGoal
from ig2.paths.gradpath import L2, Converged, Decaying, GradPath, LineSearch, Norm, Schedule, SparseL1, Steady, Stop
from ig2.paths.greedy import Greedy
from ig2.paths.guided import Guided
from ig2.paths.inturn import InTurn
from ig2.paths.revealed import Revealed
from ig2.paths.straight import Adaptive, Polyline, Straight
from ig2.paths.words import NeighbouringWords, UniformWords

__all__ = [
    "L2", "Adaptive", "Blur", "Change", "Converged", "Decaying", "Descent", "Evaluation",
    "Finished", "Geodesic", "Goal", "GradPath", "Greedy", "GrownPath", "Guided", "InTurn",
    "KnownPath", "LineSearch", "NeighbouringWords", "Norm", "Pairs", "Path", "Polyline",
    "PreparedPath", "Revealed", "Rivals", "Schedule", "Sign", "SparseL1", "Steady", "Stop", "Straight",
    "ToGoal", "TowardClasses", "UniformWords", "cosine", "euclidean", "manhattan",
]  # fmt: skip
