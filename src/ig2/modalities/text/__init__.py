"""Sentences: classifiers from Hugging Face transformers, or from an embedding and a network."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.modalities.text.modality import load
    from ig2.modalities.text.sentences import TextBatch, TextSubject, from_parts
    from ig2.modalities.text.transformers import from_transformers
else:
    __getattr__, __dir__ = attach(
        __name__,
        {
            "modality": ["load"],
            "sentences": ["TextBatch", "TextSubject", "from_parts"],
            "transformers": ["from_transformers"],
        },
    )

__all__ = ["TextBatch", "TextSubject", "from_parts", "from_transformers", "load"]
