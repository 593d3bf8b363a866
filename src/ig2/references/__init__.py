"""Strategies that choose or generate the references against which explicands are explained."""

from ig2.references.base import Given, References, WeightedSamples, draw_references, draw_weighted
from ig2.references.boundary import Boundary
from ig2.references.choice import interleave, round_robin
from ig2.references.constant import BlurredExplicand, Constant, MaximalDistance, NoisedExplicand, UniformNoise, White, Zeros
from ig2.references.counterfactual import NearestLabels, NormalClass, OfClasses, OtherClasses, Relevant
from ig2.references.gradcf import GradCF
from ig2.references.pool import RandomSamples, Union
from ig2.references.positions import OneAtATime
from ig2.references.signals import Interpolated, PhaseRandomised, Shifted, TimeMean, TimeNoise
from ig2.references.weighted import LocalClusters, Weighted

__all__ = [
    "BlurredExplicand", "Boundary", "Constant", "Given", "GradCF", "Interpolated", "LocalClusters",
    "MaximalDistance", "NearestLabels", "NoisedExplicand", "NormalClass", "OfClasses", "OneAtATime",
    "OtherClasses", "PhaseRandomised", "RandomSamples", "References", "Relevant", "Shifted",
    "TimeMean", "TimeNoise", "UniformNoise", "Union", "Weighted", "WeightedSamples", "White",
    "Zeros", "draw_references", "draw_weighted", "interleave", "round_robin",
]  # fmt: skip
