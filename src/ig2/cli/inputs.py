"""The inputs of `ig2 explain`: which kind of data they are, and their content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ig2._utils.files import check_regular, list_folder
from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError, reason
from ig2.modalities.base import Subject
from ig2.modalities.modality import Modality, guess, list_modalities
from ig2.modalities.samples import SampleList
from ig2.modalities.text.modality import TEXTS
from ig2.report import SkippedView

Skipped = tuple[SkippedView, ...]


def list_files(paths: Sequence[Path], out: Path, skip_bad: bool = False) -> list[Path]:
    """Replace folders by the files in them, less those in the output folder, which are an input each."""
    kinds = [kind for kind in list_modalities() if kind.suffixes and not kind.has_many]
    suffixes = [suffix for kind in kinds for suffix in kind.suffixes]
    files: list[Path] = []
    for path in paths:
        below = [Path(file) for file in list_folder(path, suffixes, skip=out)] if path.is_dir() else [path]
        if not below and not skip_bad:
            nouns = " or ".join(kind.nouns for kind in kinds)
            raise InputError(f"{path} has no {nouns}, other than those in --out {out}: name another folder, or the files in it")
        files += below or [path]  # is listed with the other inputs that cannot be read
    return files


def find_modality(files: Sequence[Path], texts: Sequence[str], rows: str | None) -> Modality:
    """Return the kind of data that all inputs are."""
    kinds = {kind.name: kind for kind in (*map(guess, map(str, files)), *([TEXTS] if texts else []))}
    if not kinds:
        raise ChoiceError("nothing to explain: name photos, sounds, a table or a .txt file of sentences, or add --text '…'")
    if len(kinds) > 1:
        raise ChoiceError(f"inputs must be of one kind, got {' and '.join(sorted(kinds))}: explain each kind by itself")
    (kind,) = kinds.values()
    if kind.most_files is not None and len(files) > kind.most_files:
        raise ChoiceError(f"expected {kind.most_files} {kind.name}, got {len(files)}: explain them one at a time")
    if rows is not None and (not kind.has_many or len(files) != 1 or texts):
        raise ChoiceError("--rows selects rows of one table or lines of one .txt file, and these inputs are neither: omit it")
    return kind


def check_exists(path: Path) -> None:
    """Check that a path exists and can be opened, before time is spent on a model."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if not path.is_dir():
        check_regular(path)


def open_inputs(subject: Subject, files: Sequence[Path], texts: Sequence[str], rows: str | None) -> tuple[SampleList, Skipped]:
    """Return the inputs, and which rows of a file are skipped by default."""
    if rows is not None:
        return subject.modality.open(subject, files, texts, lambda total: parse_rows(rows, total)), ()
    inputs = subject.modality.open(subject, files, texts)
    count, total = len(inputs.chosen), len(inputs.names)
    if count == total:
        return inputs, ()
    reason = f"only the first {count} rows are explained by default: for these, add --rows {count + 1}:{total}"
    return inputs, (SkippedView(f"rows {count + 1} to {total}", reason),)


def parse_rows(wanted: str, total: int) -> list[int]:
    """Return the indices of rows counted from 1: `3`, `1,4`, or `2:5` with both ends."""
    rows: list[int] = []
    for part in wanted.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?::\s*([0-9]{1,18})\s*)?", part)
        if match is None:
            raise ChoiceError(f"--rows {wanted!r} is not valid: expected numbers such as 1,4 or a range such as 2:5")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= total:
            raise InputError(f"--rows {wanted!r} is out of range: expected rows 1 to {total}")
        rows += range(first - 1, last)
    return list(dict.fromkeys(rows))
