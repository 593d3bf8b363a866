"""`ig2 demo`: real photos and digits that come inside packages, explained by five methods, in one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ig2.adapters import vision
from ig2.adapters.base import Batch
from ig2.adapters.vision import Photo, VisionSubject
from ig2.cli import files
from ig2.cli.explain import attribute, build_content
from ig2.cli.methods import METHODS
from ig2.cli.output import INDENT, open_console, print_line, print_path, show_progress
from ig2.demo import photos as demo_photos
from ig2.errors import InputError
from ig2.report import Content, InputView

SHOWN = tuple(METHODS[name] for name in ("ig2", "gradient", "ig", "guided-ig", "expected-ig"))
PHOTOS = {"chelsea.png": "a cat", "coffee.png": "a cup of coffee", "camera.png": "a photographer"}
DIGITS = {"5": "a handwritten 5", "1": "a handwritten 1", "8": "a handwritten 8"}
PICTURES = ("photos.png", "digits.png")
SCALE = 1.0  # pixels: little for a photo, and not too much for a digit


def run(
    out: Path,
    *,
    steps: int = 20,
    quiet: bool = False,
    photos: Sequence[str] = tuple(PHOTOS),
    digits: Sequence[str] = tuple(DIGITS),
) -> None:
    """Explain, write a picture of the photos, one of the digits and a report of both, and print where they are.

    Args:
        out: the folder.
        steps: steps of each path on photos. A digit is cheap: it gets five times as many, and twice the references.
        quiet: show no progress.
        photos: which of `PHOTOS`.
        digits: which of `DIGITS`.
    """
    files.check_replaceable(out, [*PICTURES, files.REPORT, files.SUMMARY])
    with files.draft_folder(out) as draft, show_progress(quiet, keep=True) as watch:
        watch("models")
        sees, reads = vision.load("efficientnet-lite0"), vision.load("digits")
        parts = [
            attribute(sees, _photos(sees, photos), SHOWN, watch, count=4, steps=steps),
            attribute(reads, _digits(reads, digits), SHOWN, watch, count=8, steps=5 * steps),
        ]
        watch("pictures")
        pages = [build_content(part, "", 0) for part in parts]
        content = Content(
            "Which parts of these pictures did the networks go by?",
            f"{sees.name} (photos), {reads.name} (digits)",
            tuple(_share_verdicts(view, page.verdicts) for page in pages for view in page.inputs),
            pages[0].details,
            scale=SCALE,
        )
        with files.name_folder_in_errors(out):
            for name, part, page in zip(PICTURES, parts, pages, strict=True):
                titles = [files.format_class(view.target, view.probability) for view in page.inputs]
                files.draw_photos(part.subject, part.attributions, titles).savefig(draft / name, dpi=150, bbox_inches="tight")
        files.write_report_and_summary(draft, out, content, [files.summarise(view) for view in content.inputs], {})
    console = open_console()
    width = INDENT + max(len(view.name) for view in content.inputs)
    for view in content.inputs:
        prediction = files.format_class(view.prediction, view.probability)
        print_line(console, view.name, f"{prediction}, not {' or '.join(view.contrasted[:3])}", width)
    console.print()
    for name in (*PICTURES, files.REPORT):
        print_path(console, f"  {Path(name).stem}", out / name, INDENT + width)


def _share_verdicts(view: InputView, verdicts: dict[str, str]) -> InputView:
    """The view with each method's verdict on all inputs of its kind, so that the report says it once."""
    methods = tuple(replace(method, verdict=verdicts.get(method.name, method.verdict)) for method in view.methods)
    return replace(view, methods=methods)


def _photos(subject: VisionSubject, names: Sequence[str]) -> Batch:
    paths = {path.name: path for path in demo_photos.paths()}
    missing = [name for name in names if name not in paths]
    if missing:
        raise InputError(f"the photo {missing[0]} comes with scikit-image, and is missing: pip install 'ig2[cli,demo]'")
    return subject.read([Photo(paths[name], PHOTOS[name]) for name in names])


def _digits(subject: VisionSubject, names: Sequence[str]) -> Batch:
    assert subject.photos is not None
    unseen = {photo.label: photo for photo in subject.photos()}
    return subject.read([Photo(unseen[name].source, DIGITS[name]) for name in names])
