"""Explanations of language models, causal, masked, encoder–decoder, and classifiers: why this word rather than that."""

from ig2.modalities.language.alignment import Alignment, align, align_right
from ig2.modalities.language.asking import Asking, PromptCall
from ig2.modalities.language.explanation import Explanation
from ig2.modalities.language.loading import load
from ig2.modalities.language.model import LanguageModel
from ig2.modalities.language.prompts import Prompt, Span
from ig2.modalities.language.references import (
    Drawn,
    Filler,
    LikelyWords,
    MinimalPairs,
    Neighbours,
    OtherPrompts,
    TextReferences,
)

__all__ = [
    "Alignment",
    "Asking",
    "Drawn",
    "Explanation",
    "Filler",
    "LanguageModel",
    "LikelyWords",
    "MinimalPairs",
    "Neighbours",
    "OtherPrompts",
    "Prompt",
    "PromptCall",
    "Span",
    "TextReferences",
    "align",
    "align_right",
    "load",
]
