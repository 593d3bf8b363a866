"""Strategies that choose or make the references an explicand is explained against."""

from ig2.references.base import Given, References, draw_references
from ig2.references.choice import choose_other_classes, interleave, round_robin
from ig2.references.constant import BlurredExplicand, Constant, MaximalDistance, NoisedExplicand, UniformNoise, White, Zeros
from ig2.references.counterfactual import NearestLabels, NormalClass, OfClasses, OtherClasses, Relevant
from ig2.references.gradcf import GradCF
from ig2.references.pool import Samples, Union

__all__ = [
    "BlurredExplicand", "Constant", "Given", "GradCF", "MaximalDistance", "NearestLabels", "NoisedExplicand", "NormalClass",
    "OfClasses", "OtherClasses", "References", "Relevant", "Samples", "UniformNoise", "Union", "White", "Zeros",
    "choose_other_classes", "draw_references", "interleave", "round_robin",
]  # fmt: skip
