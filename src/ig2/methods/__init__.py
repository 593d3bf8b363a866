"""Ready-made methods; each is called as `method(model, x, references=...)` and gives an `Attribution`."""

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2.methods.base import Method, Result
from ig2.methods.deepshap import DeepSHAP
from ig2.methods.kernelshap import Grid, Groups, KernelSHAP, Superpixels
from ig2.methods.noisegrad import FusionGrad, NoiseGrad
from ig2.methods.path import IG2, BlurIG, ExpectedIG, GradCFE, GuidedIG, IntegratedGradients, PathMethod
from ig2.methods.scale import Pooled, Smoothed
from ig2.methods.simple import Gradient, InputXGradient, Random
from ig2.methods.smoothgrad import SmoothGrad, VarGrad
from ig2.methods.xrai import XRAI

__all__ = [
    "IG2", "XRAI", "BlurIG", "DeepSHAP", "ExpectedIG", "FusionGrad", "GradCFE", "Gradient", "Grid", "Groups", "GuidedIG",
    "InputXGradient", "IntegratedGradients", "Keep", "KernelSHAP", "Method", "NoiseGrad", "PathMethod", "Pooled", "Random",
    "Result", "SmoothGrad", "Smoothed", "Superpixels", "Task", "VarGrad",
]  # fmt: skip
