"""Ways from an explicand to its baseline."""

from ig2._engine.session import Evaluation
from ig2.paths.base import GrownPath, KnownPath, Pairs, Path
from ig2.paths.blur import Blur
from ig2.paths.distances import cosine, euclidean, manhattan
from ig2.paths.gradpath import L2, Converged, Decaying, GradPath, LineSearch, SparseL1, Steady
from ig2.paths.guided import Guided
from ig2.paths.straight import Polyline, Straight

__all__ = [
    "L2",
    "Blur",
    "Converged",
    "Decaying",
    "Evaluation",
    "GradPath",
    "GrownPath",
    "Guided",
    "KnownPath",
    "LineSearch",
    "Pairs",
    "Path",
    "Polyline",
    "SparseL1",
    "Steady",
    "Straight",
    "cosine",
    "euclidean",
    "manhattan",
]
