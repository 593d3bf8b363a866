"""Language models of transformers: why this word rather than that one, of causal, masked, encoder–decoder models and classifiers."""

from ig2.adapters.lm.alignment import Alignment, align, align_right
from ig2.adapters.lm.explanation import Explanation
from ig2.adapters.lm.model import LanguageModel, load
from ig2.adapters.lm.prompts import Prompt, Span
from ig2.adapters.lm.references import Drawn, Filler, LikelyWords, Neighbours, OtherPrompts, Pairs, TextReferences

__all__ = [
    "Alignment",
    "Drawn",
    "Explanation",
    "Filler",
    "LanguageModel",
    "LikelyWords",
    "Neighbours",
    "OtherPrompts",
    "Pairs",
    "Prompt",
    "Span",
    "TextReferences",
    "align",
    "align_right",
    "load",
]
