"""The kinds of data: how each is read, named, contrasted and shown.

`ig2.modalities.image.load("resnet50")` starts with photos.
"""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.modalities import image, language, signal, table, text
else:  # each is imported when it is first used
    __getattr__, __dir__ = attach(__name__, {"": ["image", "language", "signal", "table", "text"]})

__all__ = ["image", "language", "signal", "table", "text"]
