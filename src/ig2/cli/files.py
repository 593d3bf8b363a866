"""The files of `ig2 explain` and `ig2 demo`: written all together, or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import ig2
from ig2._utils.files import check_regular
from ig2.errors import IG2Error, InputError, reason
from ig2.methods.catalogue import Entry
from ig2.modalities.modality import Modality
from ig2.report import Content, InputView, SkippedView
from ig2.report import write as write_report
from ig2.report.figures import draw_figure
from ig2.views import Bars

REPORT, SUMMARY = "report.html", "summary.json"
DETAILS, PICTURES, STORE = FOLDERS = ("report-files", "pictures", "store")  # of a run with many inputs
LONGEST_NAME = 60  # letters; file systems take 255 bytes, and a letter has up to four


@contextmanager
def draft_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write in, whose files move to `folder` at the end; after a failure nothing is left of it."""
    new: list[Path] = []
    draft: Path | None = None
    try:
        try:
            new = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder))
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"--out {folder} is a file, or inside one: choose a folder") from error
        except (OSError, ValueError) as error:
            raise InputError(f"--out {folder} cannot be written to: {reason(error)}") from error
        yield draft
        names = sorted(path.name for path in draft.iterdir())
        check_replaceable(folder, names)
        outdated = _find_outdated(folder, names)
        with name_folder_in_errors(folder):
            for name in names:
                if name in FOLDERS and (folder / name).is_dir():
                    shutil.rmtree(folder / name)
                os.replace(draft / name, folder / name)
            for path in outdated:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            draft.rmdir()
    except BaseException:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):  # the first that is not empty ends it
            for path in new:
                path.rmdir()
        raise


@contextmanager
def name_folder_in_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError, which names a draft, into an error that names the folder."""
    try:
        yield
    except OSError as error:
        raise IG2Error(f"{folder} cannot be written to: {reason(error)}") from error


def check_replaceable(folder: Path, names: Iterable[str]) -> None:
    """Check that only files of an earlier run would be replaced: the photo itself may be in the folder."""
    earlier = _files_of_earlier_run(folder)
    for name in names:
        path = folder / name
        if (path.is_dir() and name not in FOLDERS) or (os.path.lexists(path) and name not in earlier):
            raise InputError(f"{path} exists already, and is not from an earlier run: choose another folder with --out")


def _find_outdated(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files of an earlier run that the next one does not replace; never one that changed since, nor a link."""
    replaced = {name.lower() for name in names}  # a file system may ignore case
    outdated = []
    for name in _files_of_earlier_run(folder):
        path = folder / name
        if Path(name).name != name or name.lower() in replaced or path.is_symlink():
            continue
        members = [path] if path.is_file() else list(path.rglob("*")) if name in FOLDERS and path.is_dir() else []
        # a run writes its summary last
        written = (folder / SUMMARY).stat().st_mtime
        outdated += [path] * bool(members and all(member.stat().st_mtime <= written for member in members if member.is_file()))
    return outdated


def _files_of_earlier_run(folder: Path) -> set[str]:
    with suppress(OSError, ValueError):
        check_regular(folder / SUMMARY)
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if isinstance(summary, dict) and str(summary.get("made_by", "")).startswith("ig2 "):
            return {str(name) for name in summary.get("files", ())}
    return set()


# -- names -------------------------------------------------------------------------------------------------------------


def name_pictures(names: Sequence[str], modality: Modality) -> list[str]:
    """Return the file name of each input's picture, all different even if the file system ignores case."""
    stems: dict[str, str] = {}  # by their lower case
    for number, name in enumerate(names, start=1):
        stem = _slug(modality.name_file(name, number)) or f"{modality.name}-{number}"
        candidates = (stem if copy == 1 else f"{stem}-{copy}" for copy in count(1))
        unique = next(candidate for candidate in candidates if candidate.lower() not in stems)
        stems[unique.lower()] = unique
    return [f"{stem}.png" for stem in stems.values()]


def name_numbers(methods: Iterable[Entry]) -> dict[str, str]:
    """Return the name of each method's file of numbers, by the method's title."""
    return {method.title: f"{method.name}.safetensors" for method in methods}


def _slug(name: str) -> str:
    """Keep letters, digits, dots and dashes, which are safe in any folder and any shell."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:LONGEST_NAME]


# -- content -----------------------------------------------------------------------------------------------------------


def write_report_and_summary(
    draft: Path, folder: Path, content: Content, inputs: list[dict[str, Any]], settings: dict[str, Any]
) -> None:
    """Write the report, and the summary with a list of all files, which the next run may replace."""
    with name_folder_in_errors(folder):
        write_report(content, draft / REPORT)
        write_summary(draft, content.model, inputs, content.skipped, content.scale, settings)


def write_summary(
    draft: Path,
    model: str,
    inputs: list[dict[str, Any]],
    skipped: Sequence[SkippedView],
    scale: float,
    settings: dict[str, Any],
    folders: Sequence[str] = (),
) -> None:
    """Write the summary, with a list of the files in the draft and of folders that will be there."""
    names = {path.name for path in draft.iterdir()} | {SUMMARY, *folders}
    summary = {
        "made_by": f"ig2 {ig2.__version__}",
        "model": model,
        "inputs": inputs,
        "skipped": [asdict(view) for view in skipped],
        **({"scale": scale} if scale else {}),
        "settings": settings,
        "files": sorted(names),
    }
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    (draft / SUMMARY).write_text(text, encoding="utf-8", errors="replace")


def summarise(view: InputView) -> dict[str, Any]:
    """Return what is known of one input, without the numbers."""
    return {
        "name": view.name,
        "prediction": view.prediction,
        "probability": view.probability,
        "explained": view.target,
        "contrasted_with": view.contrasted,
    }


def summarise_methods(view: InputView, target: int, picture: str, numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is known of one input, with each method's numbers and where its map is, which `numbers` say by its title."""
    copied = ("output", "baseline_output", "residual", "trust", "arrival", "reference_output")
    return {
        **summarise(view),
        "class": target,
        "picture": picture,
        **({"parts": parts} if (parts := view.view.name_parts()) else {}),
        **({"cells": view.view.cells} if isinstance(view.view, Bars) else {}),
        "methods": {
            method.name: {
                **{name: method.numbers.get(name) for name in copied},
                "verdict": method.verdict,
                "findings": [finding.code for finding in method.findings],
                # a map's numbers are in the file
                **({"scores": method.scores.tolist()} if method.scores.ndim == 1 else {}),
                **numbers[method.name],
            }
            for method in view.methods
        },
    }


def draw_input(view: InputView, scale: float, usual: float) -> Any:
    """Draw the figure of one input, with all methods, on a scale in pixels, of which one is usual for the model's maps."""
    title = format_class(view.target, view.probability if view.target == view.prediction else None)
    return draw_figure(view, title, scale, usual)


def format_class(label: str, probability: float | None) -> str:
    """Return a class with its probability."""
    return label if probability is None else f"{label}, {format_share(probability)}"


def format_share(share: float) -> str:
    """Return a share of one in percent; what is not quite certain is not shown as 100% or 0%."""
    return ">99%" if share >= 0.995 else "<1%" if share < 0.005 else f"{share:.0%}"
