"""Ready-made methods; each is called as `method(model, x, references=...)` and gives an `Attribution`."""

from ig2._engine.integrate import Keep
from ig2._engine.task import Task
from ig2.methods.adversarial import AGI, BIG, LA, MFABA, AttEXplore, RestartedAGI
from ig2.methods.base import Method, Result
from ig2.methods.decision import IDG, IDGI, LeftIG, PathWeightedIG
from ig2.methods.deepshap import DeepSHAP
from ig2.methods.kernelshap import Grid, Groups, KernelSHAP, Superpixels
from ig2.methods.path import IG2, BlurIG, ExpectedIG, GradCFE, GuidedIG, IntegratedGradients, PathMethod
from ig2.methods.recipes import DIG, LPI, SAMP, SIG, UDIG, WG, GeodesicIG, RevealIG
from ig2.methods.simple import Gradient, InputXGradient, Random
from ig2.methods.smoothgrad import SmoothGrad
from ig2.methods.xrai import XRAI

__all__ = [
    "AGI", "BIG", "DIG", "IDG", "IDGI", "IG2", "LA", "LPI", "MFABA", "SAMP", "SIG", "UDIG", "WG", "XRAI", "AttEXplore",
    "BlurIG", "DeepSHAP", "ExpectedIG", "GeodesicIG", "GradCFE", "Gradient", "Grid", "Groups", "GuidedIG", "InputXGradient",
    "IntegratedGradients", "Keep", "KernelSHAP", "LeftIG", "Method", "PathMethod", "PathWeightedIG", "Random", "RestartedAGI",
    "Result", "RevealIG", "SmoothGrad", "Superpixels", "Task",
]  # fmt: skip
