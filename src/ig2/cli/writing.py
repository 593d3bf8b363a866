"""The files: all of them in the end, or none."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ig2
from ig2 import plots
from ig2._utils.files import check_regular
from ig2.adapters.base import Kind, Subject
from ig2.adapters.vision import VisionSubject
from ig2.attribution import Attribution
from ig2.cli.attributing import Explained
from ig2.errors import IG2Error, InputError, reason
from ig2.report import Content, InputView, MethodView
from ig2.report import write as write_report

REPORT, SUMMARY = "report.html", "summary.json"
BLURRED_FROM = 112  # pixels a side; of twice as many by two pixels, and so on
BARS = 15  # of a table's columns
LONGEST_NAME = 60  # letters; file systems take 255 bytes, and a letter has up to four


@contextmanager
def drafts(folder: Path) -> Iterator[Path]:
    """A folder to write in, whose files move to `folder` at the end; after a failure nothing is left of it."""
    made: list[Path] = []
    draft: Path | None = None
    try:
        try:
            made = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder))
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"--out {folder} is a file, or in one: give a folder") from error
        except (OSError, ValueError) as error:
            raise InputError(f"--out {folder} cannot be written to: {reason(error)}") from error
        yield draft
        names = sorted(path.name for path in draft.iterdir())
        check_free(folder, names)
        with saying_why(folder):
            for name in names:
                os.replace(draft / name, folder / name)
            draft.rmdir()
    except BaseException:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):  # the first that holds something ends it
            for path in made:
                path.rmdir()
        raise


@contextmanager
def saying_why(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise IG2Error(f"{folder} cannot be written to: {reason(error)}") from error


def check_free(folder: Path, names: Iterable[str]) -> None:
    """See that no file in the folder is replaced but those of an earlier run: the photo itself may lie there."""
    earlier = _files_of_earlier_run(folder)
    for name in names:
        path = folder / name
        if path.is_dir() or (os.path.lexists(path) and name not in earlier):
            raise InputError(f"{path} is there already, and not from an earlier run: give another folder with --out")


def _files_of_earlier_run(folder: Path) -> set[str]:
    with suppress(OSError, ValueError):
        check_regular(folder / SUMMARY)
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if isinstance(summary, dict) and str(summary.get("made_by", "")).startswith("ig2 "):
            return {str(name) for name in summary.get("files", ())}
    return set()


# -- what is written ---------------------------------------------------------------------------------------------------


def pictures_of(names: Sequence[str], kind: Kind) -> list[str]:
    """The name of each input's picture, no two alike, whether or not the file system minds the case."""
    taken: set[str] = set()
    found = []
    for number, name in enumerate(names, start=1):
        stem = f"text-{number}" if kind == "text" else _slug(Path(name).stem if kind == "image" else name)
        stem = stem or f"{kind}-{number}"
        own, copy = stem, 1
        while own.lower() in taken:
            copy += 1
            own = f"{stem}-{copy}"
        taken.add(own.lower())
        found.append(f"{own}.png")
    return found


def _slug(name: str) -> str:
    """Letters, digits, dots and dashes: safe in any folder and any shell."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:LONGEST_NAME]


def numbers_of(explained: Explained) -> dict[str, str]:
    """The name of each method's file of numbers, by the method's title."""
    return {recipe.title: f"{recipe.name}.safetensors" for recipe in explained.recipes}


def write(draft: Path, folder: Path, explained: Explained, content: Content) -> None:
    """Pictures, numbers, summary and report, in a draft of the folder."""
    pictures, numbers = pictures_of(explained.batch.names, explained.subject.kind), numbers_of(explained)
    with saying_why(folder):
        for i, name in enumerate(pictures):
            picture(explained, content, i).savefig(draft / name, bbox_inches="tight", dpi=150)
        for title, name in numbers.items():
            explained.attributions[title].save(draft / name)
        inputs = [_input(explained, content, i, name) for i, name in enumerate(pictures)]
        write_page(draft, folder, content, inputs, {t: found.settings for t, found in explained.attributions.items()})


def write_page(draft: Path, folder: Path, content: Content, inputs: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    """The report, and the summary with a list of all files, which the next run may replace."""
    with saying_why(folder):
        write_report(content, draft / REPORT)
        files = {path.name for path in draft.iterdir()} | {SUMMARY} | _files_of_earlier_run(folder)
        summary = {
            "made_by": f"ig2 {ig2.__version__}",
            "model": content.model,
            "inputs": inputs,
            "skipped": [asdict(view) for view in content.skipped],
            "settings": settings,
            "files": sorted(files),
        }
        text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
        (draft / SUMMARY).write_text(text, encoding="utf-8", errors="replace")


def summary_of(view: InputView) -> dict[str, Any]:
    """What was found of one input, without the numbers."""
    return {
        "name": view.name,
        "prediction": view.prediction,
        "probability": view.probability,
        "explained": view.target,
        "contrasted_with": view.contrasted,
    }


def _input(explained: Explained, content: Content, i: int, picture: str) -> dict[str, Any]:
    view, target = content.inputs[i], next(iter(explained.attributions.values())).target
    numbers = numbers_of(explained)
    return {
        **summary_of(view),
        "class": int(target[i]),
        "picture": picture,
        **({"parts": view.units} if view.units else {}),
        **({"cells": view.cells} if view.cells else {}),
        "methods": {method.name: _method(method, numbers[method.name], i) for method in view.methods},
    }


def _method(method: MethodView, file: str, row: int) -> dict[str, Any]:
    return {
        "output": method.output,
        "baseline_output": method.baseline_output,
        "residual": method.residual,
        "verdict": method.verdict,
        "trust": method.trust,
        "arrival": method.arrival,
        "reference_output": method.reference_output,
        # a map's numbers are in the file
        **({"scores": method.scores.tolist()} if method.scores.ndim == 1 else {}),
        "file": file,
        "row": row,
    }


def picture(explained: Explained, content: Content, i: int) -> Any:
    """The figure of one input, with all methods."""
    view = content.inputs[i]
    title = likely(view.target, view.probability if view.target == view.prediction else None)
    found = {name: attribution[i] for name, attribution in explained.attributions.items()}
    if explained.subject.kind == "image":
        return photo_grid(explained.subject, found, [title])
    many = len(view.methods)
    # the figures have a part for each explicand: here it is the same one, and each part shows another method's numbers
    same = next(iter(found.values()))[[0] * many]
    titles = [title if many == 1 else f"{name}: {title}" for name in found]
    scores = [method.scores for method in view.methods]
    if explained.subject.kind == "text":
        return plots.text(same, [list(view.units)] * many, scores=scores, titles=titles, count=many)
    top = BARS if many == 1 else BARS // 2
    cells = [list(view.cells)] * many
    return plots.bars(same, list(view.units), cells=cells, scores=scores, titles=titles, count=many, top=top)


def photo_grid(subject: Subject, found: Mapping[str, Attribution], titles: Sequence[str]) -> Any:
    """Methods × pictures; the maps of photos are blurred a little, as single pixels of a photo say nothing to the eye."""
    assert isinstance(subject, VisionSubject)
    smooth = max(subject.size) // BLURRED_FROM
    return plots.grid(found, titles=titles, bounds=(0.0, subject.value_range), smooth=smooth, count=len(titles))


def likely(label: str, probability: float | None) -> str:
    """A class with its probability; what is not quite certain is not called so."""
    if probability is None:
        return label
    share = ">99%" if probability >= 0.995 else "<1%" if probability < 0.005 else f"{probability:.0%}"
    return f"{label}, {share}"
