"""Strategies that choose whom an explicand is contrasted with."""

from ig2.references.base import Given, References
from ig2.references.constant import (
    BlurredExplicand,
    Constant,
    MaximalDistance,
    NoisedExplicand,
    UniformNoise,
    White,
    Zeros,
)
from ig2.references.gradcf import GradCF

__all__ = [
    "BlurredExplicand",
    "Constant",
    "Given",
    "GradCF",
    "MaximalDistance",
    "NoisedExplicand",
    "References",
    "UniformNoise",
    "White",
    "Zeros",
]
