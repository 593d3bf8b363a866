"""`ig2 demo`: real photos and digits that come inside packages, explained by five methods, in one report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ig2.adapters import vision
from ig2.adapters.base import Batch
from ig2.adapters.vision import Photo, VisionSubject
from ig2.cli.attributing import attribute, content_of
from ig2.cli.recipes import RECIPES
from ig2.cli.telling import bars, tell_line, tell_path
from ig2.cli.writing import REPORT, SUMMARY, check_free, drafts, likely, photo_grid, saying_why, summary_of, write_page
from ig2.demo import photos as demo_photos
from ig2.errors import InputError
from ig2.report import Content

METHODS = tuple(RECIPES[name] for name in ("ig2", "gradient", "ig", "guided-ig", "expected-ig"))
PHOTOS = {"chelsea.png": "a cat", "coffee.png": "a cup of coffee", "camera.png": "a photographer"}
DIGITS = {"5": "a handwritten 5", "1": "a handwritten 1", "8": "a handwritten 8"}
PICTURES = ("photos.png", "digits.png")


def run(
    out: Path,
    *,
    steps: int = 20,
    quiet: bool = False,
    photos: Sequence[str] = tuple(PHOTOS),
    digits: Sequence[str] = tuple(DIGITS),
) -> None:
    """Explain, write a picture of the photos, one of the digits and a report of both, and say where they are.

    Args:
        out: the folder.
        steps: of each path on photos. A digit is cheap: it gets five times as many, and twice the references.
        quiet: show no progress.
        photos: which of `PHOTOS`.
        digits: which of `DIGITS`.
    """
    check_free(out, [*PICTURES, REPORT, SUMMARY])
    with drafts(out) as draft, bars(quiet) as watch:
        watch("models")
        sees, reads = vision.load("efficientnet-lite0"), vision.load("digits")
        parts = [
            attribute(sees, _photos(sees, photos), METHODS, watch, count=4, steps=steps),
            attribute(reads, _digits(reads, digits), METHODS, watch, count=8, steps=5 * steps),
        ]
        watch("pictures")
        pages = [content_of(part, "", 0) for part in parts]
        content = Content(
            "Which parts of these pictures did the networks go by?",
            f"{sees.name} (photos), {reads.name} (digits)",
            tuple(view for page in pages for view in page.inputs),
            pages[0].details,
        )
        with saying_why(out):
            for name, part, page in zip(PICTURES, parts, pages, strict=True):
                titles = [likely(view.target, view.probability) for view in page.inputs]
                photo_grid(part.subject, part.attributions, titles).savefig(draft / name, dpi=150, bbox_inches="tight")
        write_page(draft, out, content, [summary_of(view) for view in content.inputs], {})
    console = Console(highlight=False)
    width = 2 + max(len(view.name) for view in content.inputs)
    for view in content.inputs:
        said = likely(view.prediction, view.probability)
        tell_line(console, view.name, f"{said}, not {' or '.join(view.contrasted[:3])}", width)
    console.print()
    for name in (*PICTURES, REPORT):
        tell_path(console, f"  {Path(name).stem}", out / name, 2 + width)


def _photos(subject: VisionSubject, names: Sequence[str]) -> Batch:
    files = {path.name: path for path in demo_photos.paths()}
    missing = [name for name in names if name not in files]
    if missing:
        raise InputError(f"the photo {missing[0]} comes with scikit-image, and is not there: pip install 'ig2[cli,demo]'")
    return subject.read([Photo(files[name], PHOTOS[name]) for name in names])


def _digits(subject: VisionSubject, names: Sequence[str]) -> Batch:
    assert subject.photos is not None
    unseen = {photo.label: photo for photo in subject.photos()}
    return subject.read([Photo(unseen[name].source, DIGITS[name]) for name in names])
