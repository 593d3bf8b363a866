"""Photos and other images: classifiers by name or from any network."""

from ig2.modalities.image.photos import ImageSubject, Photo, imagenet_classes, load, read_folder, subject
from ig2.modalities.image.reading import Framing, read_image

__all__ = ["Framing", "ImageSubject", "Photo", "imagenet_classes", "load", "read_folder", "read_image", "subject"]
