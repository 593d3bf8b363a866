"""Reports of attributions as one self-contained HTML file."""

from ig2.report.builder import build, build_language
from ig2.report.content import Content, InputView, MethodView, ReferenceView, SkippedView
from ig2.report.page import render, write

__all__ = [
    "Content",
    "InputView",
    "MethodView",
    "ReferenceView",
    "SkippedView",
    "build",
    "build_language",
    "render",
    "write",
]
