"""The inputs of `ig2 explain`: which kind of data they are, and their content."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ig2._utils.files import check_regular
from ig2._utils.suggestions import ChoiceError
from ig2.adapters import vision
from ig2.adapters.base import Batch, Kind, Subject
from ig2.adapters.tabular import BadRowsError, TableSubject, read_frame
from ig2.adapters.vision import Photo
from ig2.cli.streams import one_line
from ig2.errors import InputError, counted, reason
from ig2.report import SkippedView

TABLES = (".csv", ".tsv", ".parquet", ".pq")
TEXTS = (".txt",)
FIRST_ROWS = 5
# more than anyone looks at; with a thousand photos a report would have half a gigabyte
MOST_INPUTS = 100
LARGEST_TEXT = 10_000_000  # bytes
NO_ANSWER = "the model's answer is not a finite number"
Skipped = tuple[SkippedView, ...]
Item = TypeVar("Item")


def find_kind(files: Sequence[Path], texts: Sequence[str], rows: str | None) -> Kind:
    """Return the kind of data that all inputs are."""
    kinds: set[Kind] = {"text"} if texts else set()
    for path in files:
        suffix = path.suffix.lower()
        kinds.add("table" if suffix in TABLES else "text" if suffix in TEXTS else "image")
    if not kinds:
        raise ChoiceError("nothing to explain: name photos, a table or a .txt file of sentences, or add --text '…'")
    if len(kinds) > 1:
        raise ChoiceError(f"inputs must be of one kind, these are {' and '.join(sorted(kinds))}")
    (kind,) = kinds
    if kind == "table" and len(files) > 1:
        raise ChoiceError(f"expected one table, got {len(files)}")
    if rows is not None and (kind == "image" or len(files) != 1 or texts):
        raise ChoiceError("--rows chooses rows of one table or lines of one .txt file: omit it")
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


@dataclass(frozen=True)
class _Inputs:
    """Inputs that can be read one by one."""

    names: Sequence[str]
    read: Callable[[Sequence[int]], Batch]
    """Reads those of these indices."""
    chosen: Sequence[int]
    """The indices of those to read."""

    @classmethod
    def from_list(cls, items: Sequence[Item], names: Sequence[str], read: Callable[[list[Item]], Batch]) -> _Inputs:
        return cls(names, lambda indices: read([items[i] for i in indices]), range(len(items)))

    @classmethod
    def from_table(cls, subject: TableSubject, source: Path, choose: Callable[[int], Sequence[int]]) -> _Inputs:
        frame = read_frame(source)
        names = [f"row {number}" for number in frame.index]
        return cls(names, lambda indices: subject.read(frame, lambda total: indices), choose(len(frame)))


def read_inputs(
    subject: Subject, files: Sequence[Path], texts: Sequence[str], rows: str | None, skip_bad: bool = False
) -> tuple[Batch, Skipped]:
    """Return the inputs to explain, and which were skipped."""
    if isinstance(subject, TableSubject):
        return _read(subject, _Inputs.from_table(subject, files[0], lambda total: _choose_rows(rows, total)), skip_bad)
    if subject.kind == "image":
        _check_count(len(files), "photos")
        names = _names(files)
        photos = [Photo(path, name) for path, name in zip(files, names, strict=True)]
        return _read(subject, _Inputs.from_list(photos, names, subject.read), skip_bad)
    lines = [line for path in files for line in read_lines(path)]
    if rows is not None:
        lines = [lines[i] for i in parse_rows(rows, len(lines))]
    lines = [*texts, *lines]
    _check_count(len(lines), "sentences")
    return _read(subject, _Inputs.from_list(lines, lines, subject.read), skip_bad)


def read_references(subject: Subject, source: Path, seed: int, skip_bad: bool = False) -> tuple[Batch, Skipped]:
    """Return the user's references, and which were skipped."""
    if isinstance(subject, TableSubject):
        inputs = _Inputs.from_table(subject, source, range)
    elif subject.kind == "image":
        photos = vision.read_folder(source, seed=seed)
        inputs = _Inputs.from_list(photos, [photo.name for photo in photos], subject.read)
    else:
        lines = read_lines(source)
        inputs = _Inputs.from_list(lines, lines, subject.pool)
    return _read(subject, replace(inputs, names=[f"reference {name}" for name in inputs.names]), skip_bad)


def _read(subject: Subject, inputs: _Inputs, skip_bad: bool) -> tuple[Batch, Skipped]:
    """Read all inputs; or skip those that cannot be read and those for which the model's answer is not finite."""
    problems: dict[int, str] = {}
    while True:
        left = [number for number in inputs.chosen if number not in problems]
        if problems and not left:
            first = next(iter(problems.values()))
            raise InputError(f"none of {counted(len(inputs.chosen), 'input')} can be explained: {first}")
        try:
            batch = inputs.read(left)
        except InputError as error:
            bad = _find_bad(error, subject, inputs, left)
            if len(inputs.chosen) == 1 or not bad:
                raise
            if not skip_bad:
                raise InputError(f"{error} (--skip-bad skips it)") from error
            problems |= bad
            continue
        if not skip_bad:
            return batch, ()
        sound = subject.predict(batch).isfinite().all(dim=1).tolist()
        if all(sound):
            return batch, tuple(SkippedView(inputs.names[number], problems[number]) for number in sorted(problems))
        problems |= {number: NO_ANSWER for number, has_answer in zip(left, sound, strict=True) if not has_answer}


def _find_bad(error: InputError, subject: Subject, inputs: _Inputs, numbers: Sequence[int]) -> dict[int, str]:
    """Return why each bad input cannot be read, by its index; nothing if the error is not about single inputs."""
    if isinstance(error, BadRowsError):
        return {row - 1: problem for row, problem in error.problems.items()}
    problems: dict[int, str] = {}
    for number in numbers if subject.kind != "table" else ():
        try:
            inputs.read([number])
        except InputError as problem:
            problems[number] = str(problem)
    return problems


def read_lines(path: Path) -> list[str]:
    """Return the sentences of a file, one on each line."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if len(content) > LARGEST_TEXT:
        raise InputError(f"{path} has more than {LARGEST_TEXT:,} bytes: choose some sentences")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text in UTF-8") from error
    if "\0" in text:
        raise InputError(f"{path} is not a text: it holds null characters")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{path} has no sentences: expected one on each line")
    return lines


def parse_rows(wanted: str, total: int) -> list[int]:
    """Return the indices of rows counted from 1: `3`, `1,4`, or `2:5` with both ends."""
    rows: list[int] = []
    for part in wanted.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?::\s*([0-9]{1,18})\s*)?", part)
        if match is None:
            raise ChoiceError(f"--rows {wanted!r} is not valid: expected numbers such as 1,4 or a range such as 2:5")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= total:
            raise InputError(f"--rows {wanted!r}: there are rows 1 to {total}")
        rows += range(first - 1, last)
    return list(dict.fromkeys(rows))


def _check_count(count: int, what: str) -> None:
    if count > MOST_INPUTS:
        raise InputError(f"{count} {what} are too many for one report: explain at most {MOST_INPUTS} at a time")


def _names(files: Sequence[Path]) -> list[str]:
    """Name each photo by its file, or by its path if another has the same name."""
    times = Counter(path.name for path in files)
    return [one_line(path.name if times[path.name] == 1 else path) for path in files]


def _choose_rows(wanted: str | None, total: int) -> Sequence[int]:
    rows = parse_rows(wanted, total) if wanted is not None else range(min(FIRST_ROWS, total))
    _check_count(len(rows), "rows")
    return rows
