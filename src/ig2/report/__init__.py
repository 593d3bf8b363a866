"""The report: one HTML file with everything in it."""

from ig2.report.builder import build
from ig2.report.content import Content, InputView, MethodView, ReferenceView, SkippedView
from ig2.report.page import render, write

__all__ = ["Content", "InputView", "MethodView", "ReferenceView", "SkippedView", "build", "render", "write"]
