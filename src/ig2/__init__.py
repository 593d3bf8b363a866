"""IG²: which parts of an input made the model say A rather than B?"""

__version__ = "0.1.0.dev0"

from ig2 import paths, references, rules
from ig2.attribution import Attribution
from ig2.errors import IG2Error, IG2Warning, InputError, MissingExtraError, ModelError
from ig2.inputs import Fixed
from ig2.methods import IG2, BlurIG, ExpectedIG, GradCFE, GuidedIG, IntegratedGradients, Method, PathMethod
from ig2.model import Model, wrap

__all__ = [
    "IG2",
    "Attribution",
    "BlurIG",
    "ExpectedIG",
    "Fixed",
    "GradCFE",
    "GuidedIG",
    "IG2Error",
    "IG2Warning",
    "InputError",
    "IntegratedGradients",
    "Method",
    "MissingExtraError",
    "Model",
    "ModelError",
    "PathMethod",
    "paths",
    "references",
    "rules",
    "wrap",
]
