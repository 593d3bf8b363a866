"""Photos that come inside packages, with their objects outlined by hand: pictures for an ImageNet classifier, no download."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ig2.adapters import imagenet
from ig2.errors import MissingExtraError, import_extra
from ig2_paper.datasets.base import LabelledSamples
from ig2_paper.datasets.listing import Entry, Frame, Listing, Mask

Outline = tuple[tuple[int, int], ...]  # x, y of its corners, in pixels of the file


@dataclass(frozen=True)
class Packaged:
    """A photo in a package, the class of ImageNet that its object has or is nearest to, and the object's outlines."""

    package: str
    inside: str
    label: str
    outlines: tuple[Outline, ...]

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
            draw.Draw(image).polygon(outline, fill=1)
        return np.array(image).astype(np.int8)


PHOTOS = (
    Packaged(
        "skimage",
        "data/coffee.png",
        "espresso",
        (
            (
                (173, 105), (178, 78), (192, 56), (212, 38), (240, 25), (275, 18), (310, 19), (342, 28), (372, 46),
                (392, 68), (403, 90), (407, 115), (404, 140), (396, 165), (384, 195), (374, 217), (352, 240), (325, 250),
                (325, 270), (312, 278), (290, 284), (262, 283), (228, 306), (212, 304), (197, 292), (196, 275), (206, 252),
                (218, 234), (200, 218), (186, 192), (177, 160), (173, 130),
            ),
        ),
    ),
    Packaged(
        "skimage",
        "data/camera.png",
        "tripod",
        (
            ((277, 186), (303, 186), (303, 201), (277, 201)),
            ((289, 201), (297, 201), (297, 487), (289, 487)),
            ((283, 312), (303, 312), (313, 325), (312, 332), (303, 345), (291, 345), (278, 331), (278, 325)),
            ((309, 316), (329, 301), (338, 300), (338, 307), (325, 307), (312, 319)),
            ((281, 331), (292, 331), (262, 466), (247, 512), (229, 512), (231, 486)),
            ((306, 331), (314, 329), (397, 485), (407, 512), (397, 512), (382, 484)),
            ((258, 464), (293, 479), (298, 481), (386, 479), (386, 484), (296, 487), (248, 494), (248, 489), (286, 484)),
        ),
    ),
    Packaged(
        "skimage",
        "data/chelsea.png",
        "tiger cat",
        (
            (
                (45, 0), (36, 30), (33, 75), (38, 118), (25, 150), (0, 160), (0, 300), (300, 300), (313, 262), (320, 235),
                (330, 205), (350, 180), (361, 150), (362, 110), (354, 75), (372, 40), (398, 0),
            ),
        ),
    ),
    Packaged(
        "skimage",
        "data/motorcycle_left.png",
        "moped",
        (
            (
                (93, 197), (128, 197), (140, 190), (138, 160), (143, 148), (160, 145), (166, 160), (234, 167), (251, 187),
                (279, 195), (357, 193), (382, 170), (410, 162), (384, 150), (362, 173), (357, 167), (380, 145), (402, 134),
                (360, 134), (332, 140), (332, 126), (377, 114), (380, 125), (424, 118), (450, 142), (468, 142), (469, 128),
                (490, 114), (502, 103), (495, 82), (508, 66), (503, 46), (510, 34), (516, 48), (510, 70), (544, 100),
                (532, 103), (536, 120), (561, 137), (565, 124), (580, 119), (580, 142), (563, 142), (562, 156), (556, 178),
                (550, 201), (580, 262), (603, 268), (645, 307), (662, 325), (678, 357), (683, 391), (675, 430), (660, 445),
                (642, 448), (608, 446), (580, 432), (558, 416), (532, 380), (519, 357), (514, 325), (505, 329), (511, 301),
                (528, 281), (503, 250), (496, 229), (480, 246), (477, 296), (463, 340), (435, 377), (402, 381), (340, 371),
                (352, 407), (340, 435), (324, 434), (329, 385), (321, 365), (279, 360), (262, 385), (234, 397), (201, 399),
                (167, 385), (140, 357), (124, 324), (123, 290), (140, 259), (162, 240), (112, 247), (102, 243), (114, 223),
                (94, 215),
            ),
        ),
    ),
    Packaged(
        "skimage",
        "data/rocket.jpg",
        "missile",
        (
            (
                (322, 126), (314, 138), (311, 150), (311, 177), (314, 184), (313, 406), (332, 406), (331, 184), (333, 177),
                (333, 150), (330, 138),
            ),
        ),
    ),
    Packaged(
        "sklearn",
        "datasets/images/flower.jpg",
        "daisy",
        (
            (
                (315, 85), (350, 92), (385, 103), (410, 120), (428, 145), (440, 180), (446, 215), (443, 245), (430, 280),
                (415, 310), (400, 330), (375, 343), (340, 357), (300, 359), (250, 352), (220, 335), (200, 310), (185, 285),
                (172, 255), (169, 215), (177, 170), (190, 142), (208, 115), (245, 98), (280, 94),
            ),
            (
                (288, 410), (300, 394), (330, 388), (348, 374), (370, 390), (395, 378), (425, 380), (440, 400), (442, 420),
                (470, 427), (295, 427),
            ),
        ),
    ),
    Packaged(
        "sklearn",
        "datasets/images/china.jpg",
        "palace",
        (
            (
                (196, 31), (214, 31), (217, 60), (245, 85), (263, 96), (298, 107), (320, 118), (316, 127), (300, 133),
                (294, 140), (294, 160), (330, 172), (328, 180), (320, 187), (320, 226), (328, 230), (326, 240), (351, 254),
                (341, 270), (341, 302), (349, 310), (349, 325), (372, 334), (352, 360), (330, 372), (318, 385), (320, 427),
                (300, 427), (290, 390), (245, 392), (210, 375), (200, 360), (160, 348), (140, 335), (100, 340), (75, 335),
                (73, 310), (80, 302), (80, 282), (62, 270), (70, 250), (95, 245), (94, 235), (99, 225), (99, 190),
                (83, 180), (88, 168), (108, 163), (120, 157), (118, 140), (96, 130), (97, 106), (125, 102), (160, 88),
                (185, 70), (193, 60),
            ),
        ),
    ),
    Packaged(
        "matplotlib",
        "mpl-data/sample_data/grace_hopper.jpg",
        "military uniform",
        (
            (
                (154, 170), (155, 105), (165, 90), (178, 78), (180, 62), (195, 48), (218, 40), (225, 28), (250, 22),
                (285, 26), (300, 40), (325, 48), (345, 65), (353, 86), (365, 88), (370, 110), (371, 140), (366, 182),
                (352, 155), (330, 142), (300, 134), (260, 131), (215, 133), (185, 144), (165, 165),
            ),
            (
                (10, 600), (18, 510), (25, 440), (40, 398), (60, 378), (100, 362), (150, 348), (175, 335), (200, 315),
                (196, 350), (202, 380), (217, 440), (232, 425), (245, 410), (278, 408), (300, 430), (318, 385), (330, 335),
                (331, 313), (345, 325), (380, 345), (430, 368), (480, 383), (495, 395), (505, 430), (512, 448), (512, 600),
            ),
        ),
    ),
)  # fmt: skip


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
