"""The inputs of `ig2 explain`: which kind of data they are, and their content."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ig2 import modalities
from ig2._utils.files import check_regular
from ig2._utils.suggestions import ChoiceError
from ig2.cli.streams import one_line
from ig2.errors import InputError, format_count, reason
from ig2.modalities.base import Batch, Subject
from ig2.modalities.modality import Sample
from ig2.modalities.signal.modality import SIGNALS
from ig2.modalities.table.rows import BadRowsError, TableSubject, read_frame
from ig2.report import SkippedView

TABLES = (".csv", ".tsv", ".parquet", ".pq")
TEXTS = (".txt",)
SOUNDS = SIGNALS.suffixes
FIRST_ROWS = 100  # of a table, without --rows
MOST_REFERENCES = 60  # photos of a folder that references are chosen from; more are reported as skipped
LARGEST_TEXT = 10_000_000  # bytes
NO_ANSWER = "the model's answer is not a finite number"
Skipped = tuple[SkippedView, ...]
Item = TypeVar("Item")


def list_files(paths: Sequence[Path], out: Path, skip_bad: bool = False) -> list[Path]:
    """Replace folders by the images in them and in their sub-folders, less those in the output folder."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        try:
            images = [Path(photo.source) for photo in modalities.image.read_folder(path)]
        except InputError:
            if not skip_bad:
                raise
            images = [path]  # is listed with the other inputs that cannot be read
        below = path.resolve() in out.resolve().parents
        files += [image for image in images if not (below and out.resolve() in image.resolve().parents)]
    if paths and not files:
        raise InputError(f"{paths[0]} has no images other than those in --out {out}: name another folder, or another --out")
    return files


def find_kind(files: Sequence[Path], texts: Sequence[str], rows: str | None) -> str:
    """Return the kind of data that all inputs are."""
    kinds: set[str] = {"text"} if texts else set()
    for path in files:
        suffix = path.suffix.lower()
        kinds.add("table" if suffix in TABLES else "text" if suffix in TEXTS else "signal" if suffix in SOUNDS else "image")
    if not kinds:
        raise ChoiceError("nothing to explain: name photos, sounds, a table or a .txt file of sentences, or add --text '…'")
    if len(kinds) > 1:
        raise ChoiceError(f"inputs must be of one kind, got {' and '.join(sorted(kinds))}: explain each kind by itself")
    (kind,) = kinds
    if kind == "table" and len(files) > 1:
        raise ChoiceError(f"expected one table, got {len(files)}: explain them one at a time")
    if rows is not None and (kind in ("image", "signal") or len(files) != 1 or texts):
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


@dataclass(frozen=True)
class InputList:
    """Inputs that can be read one by one."""

    names: Sequence[str]
    read: Callable[[Sequence[int]], Batch]
    """Reads those of these indices."""
    chosen: Sequence[int]
    """The indices of those to read."""
    sources: Sequence[Path] = ()
    """Their files, where each has its own."""

    @classmethod
    def from_list(cls, items: Sequence[Item], names: Sequence[str], read: Callable[[list[Item]], Batch]) -> InputList:
        return cls(names, lambda indices: read([items[i] for i in indices]), range(len(items)))

    @classmethod
    def from_table(cls, subject: TableSubject, source: Path, choose: Callable[[int], Sequence[int]]) -> InputList:
        frame = read_frame(source)
        names = [f"row {number}" for number in frame.index]
        return cls(names, lambda indices: subject.read(frame, lambda total: indices), choose(len(frame)))


def open_inputs(subject: Subject, files: Sequence[Path], texts: Sequence[str], rows: str | None) -> tuple[InputList, Skipped]:
    """Return the inputs, and which of a table are skipped by default."""
    if isinstance(subject, TableSubject):
        inputs = InputList.from_table(
            subject, files[0], lambda total: range(min(FIRST_ROWS, total)) if rows is None else parse_rows(rows, total)
        )
        rest = range(len(inputs.chosen), len(inputs.names)) if rows is None else ()
        if not rest:
            return inputs, ()
        first, last = rest[0] + 1, rest[-1] + 1
        reason = f"only the first {FIRST_ROWS} rows are explained by default: for these, add --rows {first}:{last}"
        return inputs, (SkippedView(f"rows {first} to {last}", reason),)
    if subject.modality.name == "image":
        names = _names(files)
        photos = [Sample(path, name) for path, name in zip(files, names, strict=True)]
        return replace(InputList.from_list(photos, names, subject.read), sources=files), ()
    if subject.modality.name == "signal":
        names = _names(files)
        clips = [Sample(path, name) for path, name in zip(files, names, strict=True)]
        return replace(InputList.from_list(clips, names, subject.read), sources=files), ()
    lines = [line for path in files for line in read_lines(path)]
    if rows is not None:
        lines = [lines[i] for i in parse_rows(rows, len(lines))]
    lines = [*texts, *lines]
    return InputList.from_list(lines, lines, subject.read), ()


def read_references(subject: Subject, source: Path, seed: int, skip_bad: bool = False) -> tuple[Batch, Skipped]:
    """Return the user's references, and which were skipped."""
    unread: Skipped = ()
    if isinstance(subject, TableSubject):
        inputs = InputList.from_table(subject, source, range)
    elif subject.modality.name == "image":
        photos, total = modalities.image.read_folder(source, MOST_REFERENCES, seed), len(modalities.image.read_folder(source))
        if len(photos) < total:
            reason = f"references are chosen from {len(photos)} of its {total:,} photos, taken evenly from all sub-folders"
            unread = (SkippedView(f"{total - len(photos):,} photos of {source}", reason),)
        inputs = InputList.from_list(photos, [str(photo.name) for photo in photos], subject.read)
    elif subject.modality.name == "signal":
        paths = modalities.signal.list_sounds(source)
        inputs = InputList.from_list(paths, [path.name for path in paths], subject.read)
    else:
        lines = read_lines(source)
        inputs = InputList.from_list(lines, lines, subject.pool)
    batch, bad = read_all(subject, replace(inputs, names=[f"reference {name}" for name in inputs.names]), skip_bad)
    return batch, unread + bad


def read_all(subject: Subject, inputs: InputList, skip_bad: bool) -> tuple[Batch, Skipped]:
    """Read inputs, so that a bad one is found before time is spent on the others; return them, and which were skipped."""
    batch, problems = _read_some(subject, inputs, skip_bad)
    if batch is None:
        raise InputError(
            f"none of {format_count(len(problems), 'input')} can be explained; the first error: {next(iter(problems.values()))}"
        )
    return batch, tuple(SkippedView(inputs.names[number], problems[number]) for number in sorted(problems))


def _read_some(subject: Subject, inputs: InputList, skip_bad: bool) -> tuple[Batch | None, dict[int, str]]:
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
            bad = _find_bad(error, subject, inputs, left)
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


def _find_bad(error: InputError, subject: Subject, inputs: InputList, numbers: Sequence[int]) -> dict[int, str]:
    """Return why each bad input cannot be read, by its index; nothing if the error is not about single inputs."""
    if isinstance(error, BadRowsError):
        return {row - 1: problem for row, problem in error.problems.items()}
    problems: dict[int, str] = {}
    for number in numbers if subject.modality.name != "table" else ():
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
        raise InputError(f"{path} has more than {LARGEST_TEXT:,} bytes: choose fewer sentences")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: save it as UTF-8") from error
    if "\0" in text:
        raise InputError(f"{path} is not text, since it holds null characters: expected sentences, one per line")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{path} has no sentences: expected one per line")
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
            raise InputError(f"--rows {wanted!r} is out of range: expected rows 1 to {total}")
        rows += range(first - 1, last)
    return list(dict.fromkeys(rows))


def _names(files: Sequence[Path]) -> list[str]:
    """Name each photo by its file, or by its path if another has the same name."""
    times = Counter(path.name for path in files)
    return [one_line(path.name if times[path.name] == 1 else path) for path in files]
