"""Ready-made methods; each is called as `method(model, x, references=...)` and gives an `Attribution`."""

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2.methods.base import Method, Result
from ig2.methods.cam import ActivationMap, GradCAM, HiResCAM, LayerCAM
from ig2.methods.deepshap import DeepSHAP
from ig2.methods.kernelshap import Grid, Groups, KernelSHAP, Superpixels
from ig2.methods.occlusion import Occlusion
from ig2.methods.path import IG2, BlurIG, ExpectedIG, GradCFE, GuidedIG, IntegratedGradients, PathMethod
from ig2.methods.rise import RISE
from ig2.methods.simple import Gradient, InputXGradient, Random
from ig2.methods.smoothgrad import SmoothGrad
from ig2.methods.xrai import XRAI

__all__ = [
    "IG2", "RISE", "XRAI", "ActivationMap", "BlurIG", "DeepSHAP", "ExpectedIG", "GradCAM", "GradCFE", "Gradient", "Grid",
    "Groups", "GuidedIG", "HiResCAM", "InputXGradient", "IntegratedGradients", "Keep", "KernelSHAP", "LayerCAM", "Method",
    "Occlusion", "PathMethod", "Random", "Result", "SmoothGrad", "Superpixels", "Task",
]  # fmt: skip
