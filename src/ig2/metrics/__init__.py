"""Metrics of the quality of attributions, batched: every metric of the paper, each documented with its definition."""

from ig2.metrics.axioms import Completeness, Dummy, ImplementationInvariance, Symmetry, is_satisfied
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.conditional import Conditional, ConstantFill, Marginal
from ig2.metrics.curves import Deletion, DiffID, Insertion
from ig2.metrics.faithfulness import Faithfulness, Monotonicity
from ig2.metrics.gaussian import Gaussian, Mixture
from ig2.metrics.infidelity import Infidelity, NearZero, Noise
from ig2.metrics.information import AIC, SIC, median_curve
from ig2.metrics.localisation import GTAUC, GTSum, PointingGame
from ig2.metrics.removal import IDSDS, SensitivityN
from ig2.metrics.sanity import ParameterRandomisation
from ig2.metrics.sensitivity import MaxSensitivity
from ig2.metrics.shapley import GTShapley, conditional_shapley, shapley_values

__all__ = [
    "AIC", "GTAUC", "IDSDS", "SIC", "Case", "Completeness", "Conditional", "ConstantFill",
    "Deletion", "DiffID", "Dummy", "Faithfulness", "GTShapley", "GTSum", "Gaussian",
    "ImplementationInvariance", "Infidelity", "Insertion", "Marginal", "MaxSensitivity", "Metric",
    "Mixture", "Monotonicity", "NearZero", "Noise", "ParameterRandomisation", "PointingGame",
    "Scores", "SensitivityN", "Symmetry", "conditional_shapley", "is_satisfied", "median_curve",
    "shapley_values",
]  # fmt: skip
