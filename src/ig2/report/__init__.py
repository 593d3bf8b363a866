"""The report: one HTML file with everything in it."""

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
