"""Photos and other images: classifiers by name or from any network."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.modalities.image.libraries import load
    from ig2.modalities.image.photos import ImageSubject, subject
    from ig2.modalities.image.reading import Framing, read_image
else:  # what a store holds is known without PyTorch
    __getattr__, __dir__ = attach(
        __name__,
        {
            "libraries": ["load"],
            "photos": ["ImageSubject", "subject"],
            "reading": ["Framing", "read_image"],
        },
    )

__all__ = ["Framing", "ImageSubject", "load", "read_image", "subject"]
