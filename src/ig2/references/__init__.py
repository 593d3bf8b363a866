"""Strategies that choose whom an explicand is contrasted with."""

from ig2.references.base import Given, References, drawn
from ig2.references.constant import (
    BlurredExplicand,
    Constant,
    MaximalDistance,
    NoisedExplicand,
    UniformNoise,
    White,
    Zeros,
)
from ig2.references.counterfactual import NearestLabels, NormalClass, OtherClasses, Relevant
from ig2.references.gradcf import GradCF
from ig2.references.pool import Samples, Union

__all__ = [
    "BlurredExplicand",
    "Constant",
    "Given",
    "GradCF",
    "MaximalDistance",
    "NearestLabels",
    "NoisedExplicand",
    "NormalClass",
    "OtherClasses",
    "References",
    "Relevant",
    "Samples",
    "UniformNoise",
    "Union",
    "White",
    "Zeros",
    "drawn",
]
