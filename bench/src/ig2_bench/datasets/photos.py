"""Photos that come inside packages, with their objects outlined by hand: pictures for an ImageNet classifier, no download."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ig2.errors import MissingExtraError, import_extra
from ig2.modalities.image import imagenet
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.listing import Entry, Frame, Listing, Mask


@dataclass(frozen=True)
class PackagedPhoto:
    """A photo in a package, the class of ImageNet that its object has or is nearest to, and the object's outlines."""

    package: str
    inside: str
    label: str
    outlines: list[list[list[int]]]
    """Each a polygon: x, y of its corners, in pixels of the file."""

    def path(self) -> Path | None:
        """Where it lies, if the package is installed and has it."""
        spec = find_spec(self.package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (path := Path(folder, self.inside)).is_file():
                return path
        return None

    def mask(self, height: int, width: int) -> Mask:
        """1 within the outlines, 0 outside."""
        pillow, draw = (import_extra(f"PIL.{name}", "image", "drawing outlines") for name in ("Image", "ImageDraw"))
        image = pillow.new("L", (width, height))
        for outline in self.outlines:
            draw.Draw(image).polygon([(x, y) for x, y in outline], fill=1)
        return np.array(image).astype(np.int8)


def _read_photos() -> tuple[PackagedPhoto, ...]:
    photos = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return tuple(PackagedPhoto(**photo) for photo in photos)


PHOTOS = _read_photos()


def load_packaged(
    size: int | tuple[int, int] = 224, *, frame: Frame | None = None, limit: int | None = None, seed: int = 0
) -> LabelledSamples:
    """Photos from scikit-image, scikit-learn and Matplotlib of things an ImageNet classifier knows, with masks drawn by hand.

    The classes are those of ImageNet. The motorcycle, the rocket and the dahlia have none of their own and the label of the
    nearest.

    Args:
        size: height and width they are brought to, or one number for both.
        frame: instead of `size`: a function from a Pillow image to one of the network's size, such as the `frame` of a vision
            subject. Masks are framed alike.
        limit: how many at most; by default all that are installed, eight at most.
        seed: of the choice.
    """
    installed = [(photo, path) for photo in PHOTOS if (path := photo.path()) is not None]
    if not installed:
        raise MissingExtraError("photos without a download come with scikit-image: pip install 'ig2[image]'")
    entries = [Entry(path.name, imagenet.names().index(photo.label), path, photo.mask) for photo, path in installed]
    source = f"{len(entries)} photos that come with packages, objects outlined by hand"
    return Listing(entries, imagenet.names(), source).load(size, frame, limit, seed)
