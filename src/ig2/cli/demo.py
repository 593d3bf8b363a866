"""`ig2 demo`: real photos and digits that come inside packages, explained by five methods, in one report and two stores."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import ig2
from ig2 import modalities, plots
from ig2._utils.digests import key_of
from ig2.cli import files
from ig2.cli.methods import make_method
from ig2.cli.output import INDENT, Watch, name_command, open_console, print_line, print_path, show_progress
from ig2.cli.pages import Explained, answer
from ig2.demo import photos as demo_photos
from ig2.errors import InputError, import_extra
from ig2.methods.catalogue import METHODS
from ig2.modalities.base import Batch
from ig2.modalities.image.photos import ImageSubject
from ig2.modalities.samples import Sample
from ig2.question import Inquiry, Question
from ig2.report import Content
from ig2.runs.files import FORMAT, MANIFEST, PARTS, write_json, write_part
from ig2.runs.plan import Plan, Saving
from ig2.runs.rows import Row, make_table
from ig2.runs.sources import Source, find_source
from ig2.views import Picture

SHOWN = tuple(METHODS[name] for name in ("ig2", "gradient", "ig", "guided-ig", "expected-ig"))
PHOTOS = {"chelsea.png": "a cat", "coffee.png": "a cup of coffee", "camera.png": "a photographer"}
DIGITS = {"5": "a handwritten 5", "1": "a handwritten 1", "8": "a handwritten 8"}
PICTURES = ("photos.png", "digits.png")
SCALE = 1.0  # pixels: little for a photo, and not too much for a digit
STORED = ("ig2", "ig")  # methods whose maps are stored, for the explorer to compare
FIELDS = ig2.Grid(28, 28)  # of each map: what photos and digits have in common


def run(
    out: Path,
    *,
    steps: int = 20,
    quiet: bool = False,
    photos: Sequence[str] = tuple(PHOTOS),
    digits: Sequence[str] = tuple(DIGITS),
) -> None:
    """Explain, write a picture of the photos, one of the digits, a report of both and stores, and print where they are.

    Args:
        out: the folder.
        steps: steps of each path on photos. A digit is cheap: it gets five times as many, and twice the references.
        quiet: show no progress.
        photos: which of `PHOTOS`.
        digits: which of `DIGITS`.
    """
    files.check_replaceable(out, [*PICTURES, files.REPORT, files.SUMMARY, files.PICTURES, files.STORE])
    with files.draft_folder(out) as draft, show_progress(quiet, keep=True) as watch:
        watch("models")
        sees, reads = modalities.image.load("efficientnet-lite0"), modalities.image.load("digits")
        parts = [
            _explain(Question(), sees, _photos(sees, photos), watch, steps),
            _explain(Question(count=8), reads, _digits(reads, digits), watch, 5 * steps),
        ]
        watch("pictures")
        pages = [part.build(0) for part in parts]
        content = Content(
            "Which parts of these pictures did the networks go by?",
            f"{sees.name} (photos), {reads.name} (digits)",
            tuple(view for page in pages for view in page.inputs),
            pages[0].details,
            scale=SCALE,
        )
        with files.name_folder_in_errors(out):
            for name, part, page in zip(PICTURES, parts, pages, strict=True):
                titles = [files.format_class(view.target, view.probability) for view in page.inputs]
                bounds, smooth = part.subject.model.bounds, part.subject.scale
                figure = plots.grid(part.attributions, titles=titles, bounds=bounds, smooth=smooth, count=len(titles))
                figure.savefig(draft / name, dpi=150, bbox_inches="tight")
            pictures = draft / files.PICTURES
            pictures.mkdir()
            for shown in content.inputs:
                assert isinstance(shown.view, Picture)
                image = import_extra("PIL.Image", "image", "pictures").fromarray(shown.view.pixels)
                image.save(pictures / f"{shown.name}.png")
            for name in STORED:
                _write_store(draft / files.STORE / name, name, find_source(str(pictures)), parts)
        files.write_report_and_summary(draft, out, content, [files.summarise(view) for view in content.inputs], {})
    console = open_console()
    width = INDENT + max(len(view.name) for view in content.inputs)
    for view in content.inputs:
        prediction = files.format_class(view.prediction, view.probability)
        print_line(console, view.name, f"{prediction}, not {' or '.join(view.contrasted[:3])}", width)
    console.print()
    for name in (*PICTURES, files.REPORT):
        print_path(console, f"  {Path(name).stem}", out / name, INDENT + width)
    stores = [shlex.quote(str(out / files.STORE / name)) for name in STORED]
    command = f"{name_command()} serve {' '.join(stores)} --source {shlex.quote(str(out / files.PICTURES))}"
    print_line(console, "explorer", command, width, fold=False)


def _explain(question: Question, subject: ImageSubject, batch: Batch, watch: Watch, steps: int) -> Explained:
    """Explain a batch by all methods."""
    inquiry = Inquiry(question, subject)
    methods = ((entry.title, make_method(entry, subject, batch, steps, None)) for entry in SHOWN)
    return answer({title: inquiry.pose(method, batch) for title, method in methods}, watch)


def _write_store(folder: Path, name: str, source: Source, parts: Sequence[Explained]) -> None:
    """Write the maps of one method as `ig2 run` would, one row for each picture."""
    rows, method = list[Row](), METHODS[name]
    for part in parts:
        call = part.calls[method.title]
        plan = Plan(source, part.subject, part.subject.model, call.method, call.question, Saving(FIELDS))
        part_rows = plan.make_rows(part.batch, part.attributions[method.title], call)
        rows += [{"id": f"{name}.png", **row} for name, row in zip(part.batch.names, part_rows, strict=True)]
    (folder / PARTS).mkdir(parents=True)
    write_part(folder / PARTS / "part-00000000-00000000.parquet", make_table(rows, plan.make_schema(rows[0])))
    models = ", ".join(part.subject.name for part in parts)
    made_by = {"code": f"ig2 {ig2.__version__}", "method": {"name": method.title}, "model": {"name": models}, "source": {}}
    shows = {"kind": parts[0].subject.modality.name, "view": parts[0].subject.describe_view()}
    write_json(folder / MANIFEST, {"format": FORMAT, "fingerprint": made_by, "digest": key_of(made_by), **shows})


def _photos(subject: ImageSubject, names: Sequence[str]) -> Batch:
    paths = {path.name: path for path in demo_photos.paths()}
    missing = [name for name in names if name not in paths]
    if missing:
        raise InputError(f"the photo {missing[0]}, which comes with scikit-image, is missing: pip install 'ig2[cli,demo]'")
    return subject.read([Sample(paths[name], PHOTOS[name]) for name in names])


def _digits(subject: ImageSubject, names: Sequence[str]) -> Batch:
    assert subject.samples is not None
    unseen = {photo.label: photo for photo in subject.samples()}
    return subject.read([Sample(unseen[name].source, DIGITS[name]) for name in names])
