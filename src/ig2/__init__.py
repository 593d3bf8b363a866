"""IG²: which parts of an input made the model say A rather than B?"""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from ig2 import methods, paths, references, rules
    from ig2._engine.inputs import Fixed
    from ig2._engine.memory import OutOfMemoryError
    from ig2._engine.task import scores
    from ig2.attribution import Attribution
    from ig2.comparison import compare
    from ig2.errors import IG2Error, IG2Warning, InputError, MissingExtraError, ModelError
    from ig2.methods import (
        AGI,
        BIG,
        DIG,
        IDG,
        IDGI,
        IG2,
        LA,
        LPI,
        MFABA,
        SAMP,
        SIG,
        UDIG,
        WG,
        XRAI,
        AttEXplore,
        BlurIG,
        DeepSHAP,
        ExpectedIG,
        GeodesicIG,
        GradCFE,
        Gradient,
        Grid,
        GuidedIG,
        InputXGradient,
        IntegratedGradients,
        KernelSHAP,
        LeftIG,
        Method,
        PathMethod,
        PathWeightedIG,
        Random,
        RestartedAGI,
        RevealIG,
        SmoothGrad,
        Superpixels,
    )
    from ig2.model import Model, Preparation, wrap
else:  # the same names at run time, each imported when it is first used
    __getattr__, __dir__ = attach(
        __name__,
        {
            "_engine.inputs": ["Fixed"],
            "_engine.memory": ["OutOfMemoryError"],
            "_engine.task": ["scores"],
            "attribution": ["Attribution"],
            "comparison": ["compare"],
            "errors": ["IG2Error", "IG2Warning", "InputError", "MissingExtraError", "ModelError"],
            "methods": [
                "AGI", "BIG", "DIG", "IDG", "IDGI", "IG2", "LA", "LPI", "MFABA", "SAMP", "SIG", "UDIG", "WG", "XRAI",
                "AttEXplore", "BlurIG", "DeepSHAP", "ExpectedIG", "GeodesicIG", "GradCFE", "Gradient", "Grid", "GuidedIG",
                "InputXGradient", "IntegratedGradients", "KernelSHAP", "LeftIG", "Method", "PathMethod", "PathWeightedIG",
                "Random", "RestartedAGI", "RevealIG", "SmoothGrad", "Superpixels",
            ],
            "model": ["Model", "Preparation", "wrap"],
            "": ["methods", "paths", "references", "rules"],
        },
    )  # fmt: skip

__all__ = [
    "AGI",
    "BIG",
    "DIG",
    "IDG",
    "IDGI",
    "IG2",
    "LA",
    "LPI",
    "MFABA",
    "SAMP",
    "SIG",
    "UDIG",
    "WG",
    "XRAI",
    "AttEXplore",
    "Attribution",
    "BlurIG",
    "DeepSHAP",
    "ExpectedIG",
    "Fixed",
    "GeodesicIG",
    "GradCFE",
    "Gradient",
    "Grid",
    "GuidedIG",
    "IG2Error",
    "IG2Warning",
    "InputError",
    "InputXGradient",
    "IntegratedGradients",
    "KernelSHAP",
    "LeftIG",
    "Method",
    "MissingExtraError",
    "Model",
    "ModelError",
    "OutOfMemoryError",
    "PathMethod",
    "PathWeightedIG",
    "Preparation",
    "Random",
    "RestartedAGI",
    "RevealIG",
    "SmoothGrad",
    "Superpixels",
    "compare",
    "methods",
    "paths",
    "references",
    "rules",
    "scores",
    "wrap",
]
