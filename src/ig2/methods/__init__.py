"""Ready-made methods; each is called as `method(model, x, references=...)` and gives an `Attribution`."""

from ig2.methods.base import Method
from ig2.methods.path import IG2, BlurIG, ExpectedIG, GradCFE, GuidedIG, IntegratedGradients, PathMethod

__all__ = ["IG2", "BlurIG", "ExpectedIG", "GradCFE", "GuidedIG", "IntegratedGradients", "Method", "PathMethod"]
