"""Sentences: classifiers from Hugging Face transformers, or from an embedding and a network."""

from ig2.modalities.text.sentences import TextBatch, TextSubject, from_parts, from_transformers, load

__all__ = ["TextBatch", "TextSubject", "from_parts", "from_transformers", "load"]
