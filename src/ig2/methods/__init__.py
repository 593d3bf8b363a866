"""Attribution methods. Each is called as `method(model, x, references=...)` and returns an `Attribution`."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach
from ig2.methods.catalogue import CLASSES

if TYPE_CHECKING:  # `make catalogue` writes those of the catalogue
    from ig2.groups import Grid, Groups, Superpixels, Windows
    from ig2.methods.adversarial import AGI, BIG, LA, MFABA, AttEXplore
    from ig2.methods.base import Method, Result
    from ig2.methods.blur import BlurIG
    from ig2.methods.cam import ActivationMap, GradCAM, HiResCAM, LayerCAM
    from ig2.methods.decision import IDG, IDGI, LeftIG, PathWeightedIG
    from ig2.methods.deepshap import DeepSHAP
    from ig2.methods.geodesic import GeodesicIG
    from ig2.methods.gradient import Gradient, InputXGradient
    from ig2.methods.guided import GuidedIG
    from ig2.methods.ig2 import IG2, FreeIG2, GradCFE
    from ig2.methods.integrated import ExpectedIG, IntegratedGradients
    from ig2.methods.kernelshap import KernelSHAP
    from ig2.methods.lpi import LPI
    from ig2.methods.noisegrad import NoiseGrad
    from ig2.methods.occlusion import Occlusion
    from ig2.methods.path import PathMethod
    from ig2.methods.random import Random
    from ig2.methods.reveal import RevealIG
    from ig2.methods.rise import RISE
    from ig2.methods.samp import SAMP
    from ig2.methods.scale import Pooled, Smoothed
    from ig2.methods.smoothgrad import SmoothGrad, VarGrad
    from ig2.methods.strata import Strata
    from ig2.methods.turns import Turns
    from ig2.methods.wg import WG
    from ig2.methods.words import DIG, SIG, UDIG
    from ig2.methods.xrai import XRAI
    from ig2.result import Keep
    from ig2.task import Task
else:  # the same names at run time, each imported when it is first used
    __getattr__, __dir__ = attach(
        __name__,
        {
            **CLASSES,
            "cam": ["ActivationMap", *CLASSES["cam"]],
            "base": ["Keep", "Method", "Result", "Task"],
            "path": ["PathMethod"],
            ".groups": ["Grid", "Groups", "Superpixels", "Windows"],
        },
    )

__all__: list[str] = [
    "AGI", "BIG", "DIG", "IDG", "IDGI", "IG2", "LA", "LPI", "MFABA", "RISE", "SAMP", "SIG", "UDIG",
    "WG", "XRAI", "ActivationMap", "AttEXplore", "BlurIG", "DeepSHAP", "ExpectedIG", "FreeIG2",
    "GeodesicIG", "GradCAM", "GradCFE", "Gradient", "Grid", "Groups", "GuidedIG", "HiResCAM",
    "InputXGradient", "IntegratedGradients", "Keep", "KernelSHAP", "LayerCAM", "LeftIG", "Method",
    "NoiseGrad", "Occlusion", "PathMethod", "PathWeightedIG", "Pooled", "Random", "Result",
    "RevealIG", "SmoothGrad", "Smoothed", "Strata", "Superpixels", "Task", "Turns", "VarGrad",
    "Windows",
]  # fmt: skip
