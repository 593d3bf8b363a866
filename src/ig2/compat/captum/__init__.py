"""Captum's `attribute(inputs, baselines, target, ...)` for any ig2 method, and Captum's classes on our engine.

`CaptumMethod` gives an ig2 method the interface of Captum [Kokhlikyan 2020]. The other classes have the names and arguments of
Captum's, so that a program switches by changing its import line.
"""

from __future__ import annotations

from ig2.compat.captum.inputs import (
    CaptumMethod,
    DeepLift,
    DeepLiftShap,
    GradientShap,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    Saliency,
)
from ig2.compat.captum.language import LLMGradientAttribution
from ig2.compat.captum.layers import (
    InternalInfluence,
    LayerActivation,
    LayerConductance,
    LayerDeepLift,
    LayerDeepLiftShap,
    LayerGradCam,
    LayerGradientShap,
    LayerGradientXActivation,
    LayerIntegratedGradients,
)
from ig2.compat.captum.neurons import (
    NeuronConductance,
    NeuronDeepLift,
    NeuronDeepLiftShap,
    NeuronGradient,
    NeuronGradientShap,
    NeuronIntegratedGradients,
)

__all__ = [
    "CaptumMethod",
    "DeepLift",
    "DeepLiftShap",
    "GradientShap",
    "InputXGradient",
    "IntegratedGradients",
    "InternalInfluence",
    "KernelShap",
    "LLMGradientAttribution",
    "LayerActivation",
    "LayerConductance",
    "LayerDeepLift",
    "LayerDeepLiftShap",
    "LayerGradCam",
    "LayerGradientShap",
    "LayerGradientXActivation",
    "LayerIntegratedGradients",
    "NeuronConductance",
    "NeuronDeepLift",
    "NeuronDeepLiftShap",
    "NeuronGradient",
    "NeuronGradientShap",
    "NeuronIntegratedGradients",
    "Saliency",
]
