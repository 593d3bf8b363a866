"""The kinds of data: how each is read, named, contrasted and shown.

`ig2.modalities.image.load("resnet50")` starts with photos.
"""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.modalities import image, language, signal, table, text
    from ig2.modalities.base import Batch, Subject
    from ig2.modalities.modality import MODALITIES, Modality
    from ig2.modalities.samples import Sample
else:  # each is imported when it is first used
    __getattr__, __dir__ = attach(
        __name__,
        {
            "": ["image", "language", "signal", "table", "text"],
            "base": ["Batch", "Subject"],
            "modality": ["MODALITIES", "Modality"],
            "samples": ["Sample"],
        },
    )

__all__ = ["MODALITIES", "Batch", "Modality", "Sample", "Subject", "image", "language", "signal", "table", "text"]
