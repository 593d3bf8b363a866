"""Reading and framing of image files, with a clear error for each file that cannot be read."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from ig2._utils.checks import is_count
from ig2._utils.files import check_regular
from ig2.errors import InputError, describe, import_extra, reason

# The formats that are opened. PostScript is not among them: Pillow would hand it to another program to run.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO")
SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".jpe", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".avif", ".jp2", ".ico",
)  # fmt: skip
# A picture of this many pixels takes 300 MB. Phones take up to 200 million, so this refuses their largest; a file of a few
# kilobytes can ask for billions.
MOST_PIXELS = 100_000_000
# Transparent places are shown on a page, and pages are white.
PAGE = (255, 255, 255, 255)
# Beyond this a photo is a strip: what lies outside its middle is cut off before it is enlarged, or it would fill the memory.
LONGEST = 8


def read_image(source: object, grey: bool = False, *, turn: bool = True) -> Any:
    """Return a Pillow image in RGB (or grey) from a path, the bytes of a file, a Pillow image or an array of uint8 (H, W) or
    (H, W, 3 or 4).

    The camera's orientation is applied, transparency is composited on white, 16 bits become 8, CMYK becomes RGB, and only the
    first frame of an animation is read.

    Args:
        source: the image.
        grey: whether to convert it to grey.
        turn: whether to apply the camera's orientation. Boxes and masks of public data refer to the pixels as stored.
    """
    pillow = import_extra("PIL.Image", "image", "reading images")
    if isinstance(source, (str, PathLike)):
        return _read_file(Path(fspath(source)), pillow, grey, turn)
    if isinstance(source, bytes):
        return _decode(io.BytesIO(source), "the file", pillow, grey, turn)
    if isinstance(source, pillow.Image):
        name = f"the image {source.mode} {source.size[0]} × {source.size[1]}"
        try:
            return _convert(source, pillow, grey, name, turn)
        except OSError as error:  # Pillow reads a file it has opened when its pixels are needed
            raise InputError(f"{name} is broken: {reason(error)}") from error
    if isinstance(source, np.ndarray):
        shaped = source.ndim == 2 or (source.ndim == 3 and source.shape[2] in (3, 4))
        if source.dtype != np.uint8 or not shaped or 0 in source.shape:
            raise InputError(f"an image array must be uint8 (H, W), (H, W, 3) or (H, W, 4), got {describe(source)}")
        return _convert(pillow.fromarray(np.ascontiguousarray(source)), pillow, grey, "the array", turn)
    raise InputError(f"an image must be a path, bytes, a Pillow image or an array of uint8, got {describe(source)}")


def _read_file(path: Path, pillow: Any, grey: bool, turn: bool) -> Any:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder: name the images in it")
        check_regular(path)
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{path} is empty (0 bytes)")
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    return _decode(path, str(path), pillow, grey, turn)


def _decode(file: Any, name: str, pillow: Any, grey: bool, turn: bool) -> Any:
    """Read an image from a path or an open file, called `name` in errors."""
    pillow.init()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's word of caution about sizes comes before our own limit does
            with pillow.open(file, formats=[known for known in FORMATS if known in pillow.OPEN]) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise InputError(f"{name} has {width} × {height} pixels, more than {MOST_PIXELS:,}: make it smaller")
                return _convert(image, pillow, grey, name, turn)
    except InputError:
        raise
    except pillow.DecompressionBombError as error:
        raise InputError(f"{name} has more pixels than {MOST_PIXELS:,}: make it smaller") from error
    except import_extra("PIL", "image", "reading images").UnidentifiedImageError as error:
        raise InputError(f"{name} is not an image of a known format ({', '.join(FORMATS)})") from error
    except Exception as error:  # a broken file makes Pillow's decoders raise whatever they meet
        raise InputError(f"{name} is a broken image: {reason(error)}") from error


def _convert(image: Any, pillow: Any, grey: bool, name: str, turn: bool) -> Any:
    """Convert an image of any mode to RGB, or grey, and turn it upright."""
    if turn:
        image = import_extra("PIL.ImageOps", "image", "reading images").exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        image = _reduce_depth(image, pillow, name)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = pillow.alpha_composite(pillow.new("RGBA", image.size, PAGE), image)
    return image.convert("L" if grey else "RGB")


def _reduce_depth(image: Any, pillow: Any, name: str) -> Any:
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 65535:
        kind = "floating-point numbers" if image.mode == "F" else "32 bits"
        raise InputError(f"{name} has {kind} a pixel, and no agreed white: save it with 8 or 16 bits")
    return pillow.fromarray((values.astype(np.uint32) * 255 // 65535).astype(np.uint8))


def parse_size(size: Any, name: str) -> tuple[int, int]:
    """Return height and width from a pair, or from the side of a square."""
    try:
        sides = (size, size) if is_count(size) else tuple(size)
    except TypeError:  # no sequence
        sides = ()
    if len(sides) != 2 or not all(map(is_count, sides)):
        raise InputError(f"{name} must be (height, width) in pixels, or one number for a square, got {describe(size)}")
    return int(sides[0]), int(sides[1])


@dataclass(frozen=True)
class Framing:
    """Scaling of a photo to the input size of a network: scaled to cover `cover`, then cropped to the central `size`.

    Args:
        size: height and width of the network's input, or the side of a square; likewise `cover`.
        cover: height and width that the scaled photo must cover; by default `size`. A larger value crops a margin.
        interpolation: `"bilinear"`, `"bicubic"`, `"lanczos"`, `"nearest"`, `"box"` or `"hamming"`.
    """

    size: int | tuple[int, int]
    cover: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        known = ("bilinear", "bicubic", "lanczos", "nearest", "box", "hamming")
        if self.interpolation not in known:
            raise InputError(f"interpolation={self.interpolation!r} is unknown: use one of {', '.join(known)}")
        size = parse_size(self.size, "size")
        cover = size if self.cover is None else parse_size(self.cover, "cover")
        if cover[0] < size[0] or cover[1] < size[1]:
            raise InputError(f"cover {cover} must not be smaller than size {size}")
        for name, sides in (("size", size), ("cover", cover)):
            object.__setattr__(self, name, sides)

    def __call__(self, image: Any) -> Any:
        image = crop_strip(image)
        width, height = image.size
        size, (rows, columns) = parse_size(self.size, "size"), parse_size(self.cover, "cover")
        # whole numbers, rounded down: what torchvision's Resize does
        if width * rows <= height * columns:
            scaled = (columns, columns * height // width)
        else:
            scaled = (rows * width // height, rows)
        methods = import_extra("PIL.Image", "image", "resizing images").Resampling
        image = image.resize(scaled, methods[self.interpolation.upper()])
        left, top = round((scaled[0] - size[1]) / 2), round((scaled[1] - size[0]) / 2)
        return image.crop((left, top, left + size[1], top + size[0]))


def crop_strip(image: Any) -> Any:
    """Crop a very long strip to its middle; return an image of ordinary proportions unchanged."""
    width, height = image.size
    longest = LONGEST * min(width, height)
    if max(width, height) <= longest:
        return image
    left, top = max(0, (width - longest) // 2), max(0, (height - longest) // 2)
    return image.crop((left, top, left + min(width, longest), top + min(height, longest)))
