"""Captum's `attribute(inputs, baselines, target, ...)` for any ig2 method, and Captum's classes on our engine.

`CaptumMethod` gives an ig2 method the interface of Captum [Kokhlikyan 2020]. The other classes have the names and arguments of
Captum's, so that a program switches by changing its import line.
"""

from __future__ import annotations

from ig2.compat.captum.classes import (
    DeepLift,
    DeepLiftShap,
    GradientShap,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    LayerActivation,
    LayerConductance,
    LayerDeepLift,
    LayerDeepLiftShap,
    LayerGradCam,
    LayerGradientShap,
    LayerGradientXActivation,
    LayerIntegratedGradients,
    Saliency,
)  # fmt: skip
from ig2.compat.captum.method import CaptumMethod

__all__ = [
    "CaptumMethod", "DeepLift", "DeepLiftShap", "GradientShap", "InputXGradient",
    "IntegratedGradients", "KernelShap", "LayerActivation",
    "LayerConductance", "LayerDeepLift", "LayerDeepLiftShap", "LayerGradCam",
    "LayerGradientShap", "LayerGradientXActivation", "LayerIntegratedGradients", "Saliency",
]  # fmt: skip
