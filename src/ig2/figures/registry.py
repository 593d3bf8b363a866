"""The figures by their names, and how one is made."""

from __future__ import annotations

import difflib
import io
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from ig2._utils.files import write_whole
from ig2.errors import InputError, describe, reason
from ig2.figures.base import Made, Options, PaperFigure, PictureFormat, Stored

PHOTOS = ("imagenet-val", "pets", "imagenet-pool")

FIGURES: dict[str, PaperFigure] = {
    "toy": PaperFigure("max(x₁, x₂ − 1): GradPath and three methods, exactly", "illustrations", "toy"),
    "gaussians": PaperFigure(
        "three counterfactuals and three paths between two Gaussians, and of a digit", "illustrations", "gaussians", ("mnist",)
    ),
    "paths": PaperFigure("a photo on three paths: output, and snapshots along α", "paths", "paths", PHOTOS),
    "baselines": PaperFigure(
        "the difference to three baselines: a photo, a digit, a wafer", "paths", "baselines", (*PHOTOS, "mnist", "wafer")
    ),
    "saturation": PaperFigure(
        "output and gradient along three paths, over 100 samples of three data sets",
        "paths",
        "saturation",
        (*PHOTOS, "mnist", "wafer"),
    ),
    "mnist-shifted": PaperFigure("a one at several places, against sevens", "digits", "shifted", ("mnist",)),
    "mnist-fives": PaperFigure(
        "fives against threes, sixes and nines, with what is marked painted", "digits", "fives", ("mnist",)
    ),
    "imagenet": PaperFigure("photos by all methods", "grids", "photo_grid", PHOTOS),
    "imagenet-gradcfe": PaperFigure("what GradCF takes away from the same photos", "grids", "photo_gradcfe", PHOTOS),
    "imagenet-references": PaperFigure(
        "photos against single references, relevant and not", "grids", "photo_references", PHOTOS
    ),
    "faces": PaperFigure("attributes of faces by five methods", "grids", "face_grid", ("celeba",)),
    "faces-references": PaperFigure(
        "faces by how far the labels of the references are", "labels", "label_distance", ("celeba",)
    ),
    "trec-words": PaperFigure("words of questions by all methods", "words", "trec_words", ("trec",)),
    "trec-references": PaperFigure("a question against single references", "words", "trec_references", ("trec",)),
    "wafers": PaperFigure("the eight wafer patterns by all methods", "grids", "wafer_grid", ("wafer",)),
    "wafer-patterns": PaperFigure("three wafers of each class, patterns outlined", "grids", "wafer_patterns", ("wafer",)),
    "steps": PaperFigure("loss curves and attributions by size and number of steps", "settings", "steps", PHOTOS),
    "norms": PaperFigure("wafers by ℓ2 steps and by sparse ℓ1 steps", "settings", "norms", ("wafer",)),
    "layers": PaperFigure("wafers by the layer of the representation", "settings", "layers", ("wafer",)),
    "distances": PaperFigure("Euclidean, cosine and ℓ1 distances", "settings", "distances", PHOTOS),
}
"""Every figure, by its name."""


def find(name: str) -> PaperFigure:
    """The figure of this name.

    Args:
        name: one of those in `FIGURES`.
    """
    if name in FIGURES:
        return FIGURES[name]
    close = difflib.get_close_matches(str(name).lower(), FIGURES, n=1)
    hint = f"; did you mean {close[0]}?" if close else f": choose from {', '.join(FIGURES)}"
    raise InputError(f"there is no figure {describe(name)}{hint}")


def make(
    name: str,
    options: Options = Options(),
    out: str | PathLike[str] = "ig2-figures",
    *,
    fresh: bool = False,
    file_format: PictureFormat = "png",
    dpi: int = 150,
) -> Made:
    """Compute a figure unless its numbers are stored, draw it, and write both as NAME.npz and NAME.png.

    Args:
        name: one of those in `FIGURES`.
        options: what it is computed from. What is stored from other options, or other files of data, is computed again.
        out: the folder for the files.
        fresh: compute again what is stored.
        file_format: of the picture, "png", "pdf" or "svg".
        dpi: pixels an inch, where the format has pixels.
    """
    figure, folder = find(name), Path(out)
    if file_format not in get_args(PictureFormat):
        raise InputError(f"the format must be one of {', '.join(get_args(PictureFormat))}, got {describe(file_format)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{folder} is a file, or in one: give a folder") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} cannot be made: {reason(error)}") from error
    numbers, picture = folder / f"{name}.npz", folder / f"{name}.{file_format}"
    key = figure.key(options)
    stored = None if fresh else Stored.load(numbers, key)
    computed = stored is None
    if stored is None:
        stored = figure.compute(options)
        stored.save(numbers, key)
    file = io.BytesIO()
    # without the time of day, so that the same numbers give the same file
    undated: dict[str, Any] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.draw(stored).savefig(file, format=file_format, bbox_inches="tight", dpi=dpi, metadata=undated[file_format])
    write_whole(picture, file.getvalue())
    return Made(name, picture, numbers, stored.source, computed)
