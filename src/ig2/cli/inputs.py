"""The inputs of `ig2 explain`: which kind of data they are, and their content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ig2._utils.files import check_regular, list_folder
from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError, format_count, reason
from ig2.modalities.base import Batch, Subject
from ig2.modalities.modality import Modality, guess, list_modalities
from ig2.modalities.samples import SampleList
from ig2.modalities.text.modality import TEXTS
from ig2.report import SkippedView

MOST_REFERENCES = 60  # files of a folder that references are chosen from; more are reported as skipped
NO_ANSWER = "the model's answer is not a finite number"
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


def read_references(subject: Subject, source: Path, seed: int, skip_bad: bool = False) -> tuple[Batch, Skipped]:
    """Return the user's references, and which were skipped."""
    inputs, total = subject.modality.open_pool(subject, source, MOST_REFERENCES, seed)
    unread: Skipped = ()
    if len(inputs.chosen) < total:
        nouns, count = subject.modality.nouns, len(inputs.chosen)
        reason = f"references are chosen from {count} of its {total:,} {nouns}, taken evenly from all sub-folders"
        unread = (SkippedView(f"{total - count:,} {nouns} of {source}", reason),)
    batch, bad = read_all(subject, replace(inputs, names=[f"reference {name}" for name in inputs.names]), skip_bad)
    return batch, unread + bad


def read_all(subject: Subject, inputs: SampleList, skip_bad: bool) -> tuple[Batch, Skipped]:
    """Read inputs, so that a bad one is found before time is spent on the others; return them, and which were skipped."""
    batch, problems = _read_some(subject, inputs, skip_bad)
    if batch is None:
        raise InputError(
            f"none of {format_count(len(problems), 'input')} can be explained; the first error: {next(iter(problems.values()))}"
        )
    return batch, tuple(SkippedView(inputs.names[number], problems[number]) for number in sorted(problems))


def _read_some(subject: Subject, inputs: SampleList, skip_bad: bool) -> tuple[Batch | None, dict[int, str]]:
    """Read all inputs; or skip those that cannot be read and those for which the model's answer is not finite.

    Returns:
        The others, if there are any, and what is wrong with each that was skipped, by its index.
    """
    problems: dict[int, str] = {}
    while True:
        left = [number for number in inputs.chosen if number not in problems]
        if problems and not left:
            return None, problems
        try:
            batch = inputs.read(left)
        except InputError as error:
            bad = inputs.find_bad(error, left)
            if len(inputs.chosen) == 1 or not bad:
                raise
            if not skip_bad:
                raise InputError(f"{error} (--skip-bad skips it)") from error
            problems |= bad
            continue
        if not skip_bad:
            return batch, {}
        sound = subject.predict(batch).isfinite().all(dim=1).tolist()
        if all(sound):
            return batch, problems
        problems |= {number: NO_ANSWER for number, has_answer in zip(left, sound, strict=True) if not has_answer}


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
