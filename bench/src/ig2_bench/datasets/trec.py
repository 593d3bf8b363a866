"""Questions by the kind of answer they ask for: the TREC label files, and questions made from a small grammar."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from ig2._utils.checks import check_count
from ig2._utils.datasets import DataSet, Reading, Survey
from ig2._utils.downloads import PublicFile
from ig2.demo import grammar
from ig2.errors import InputError, describe
from ig2_bench.datasets.base import LabelledSamples, describe_source
from ig2_bench.datasets.listing import existing_folder, read_lines
from ig2_bench.datasets.survey import find_duplicates

CLASSES = grammar.CODES
Part = Literal["train", "test"]
FILES: dict[Part, tuple[str, ...]] = {
    "train": ("train_5500.label", "train_5500.label.txt", "TREC_train.txt"),
    "test": ("TREC_10.label", "TREC_10.label.txt", "TREC_test.txt"),
}
LINE = re.compile(r"([A-Z]+):(\w+)\s+(\S.*)")


class Question(NamedTuple):
    """One line of a label file."""

    text: str
    label: int
    name: str


def load(folder: str | PathLike[str], part: Part = "test", *, limit: int | None = None, seed: int = 0) -> LabelledSamples:
    """Questions without duplicates; those of the test file are not among those for training.

    Two questions are the same if they differ in nothing but blanks and capital letters. One with two classes is skipped.

    Args:
        folder: where the two label files lie: `train_5500.label` and `TREC_10.label`, or `TREC_train.txt` and `TREC_test.txt`.
        part: `"train"` or `"test"`.
        limit: how many at most, round-robin over classes; by default all.
        seed: of the choice.

    Raises:
        InputError: where a file is missing, or a line is no question with its class.
    """
    if part not in FILES:
        raise InputError(f"part must be 'train' or 'test', got {describe(part)}")
    root = existing_folder(folder)
    both, problems = _questions(root)
    if problems:
        raise InputError(problems[0])
    return _samples(both, part).take(limit, seed)


def make_questions(count: int = 600, seed: int = 0) -> LabelledSamples:
    """Make questions from a small grammar, as many of each kind, without duplicates; nothing is fetched.

    Args:
        count: how many.
        seed: of the choice.
    """
    check_count(count)
    kinds: list[dict[str, None]] = [{} for _ in CLASSES]
    wanted = [count // len(CLASSES) + (kind < count % len(CLASSES)) for kind in range(len(CLASSES))]
    for text, kind in grammar.questions(20 * count, seed):
        if len(kinds[kind]) < wanted[kind]:
            kinds[kind][text] = None
    pairs = [(text, kind) for kind, texts in enumerate(kinds) for text in texts]
    if len(pairs) < count:
        raise InputError(f"the grammar makes {len(pairs)} different questions, asked for are {count}: ask for fewer")
    source = "questions made from a small grammar, of the six kinds of TREC"
    names = tuple(f"made-up {number}" for number in range(len(pairs)))
    return LabelledSamples(tuple(text for text, _ in pairs), torch.tensor([kind for _, kind in pairs]), CLASSES, names, source)


def survey(folder: str | PathLike[str], watch: Reading | None = None) -> Survey:
    """Read both files of a folder, and report what they hold; `watch` is not called, for this takes a second.

    Duplicates are counted and named here, and skipped by `load`.
    """
    both, problems = _questions(existing_folder(folder))
    questions = [question for part in both.values() for question in part]
    numbers = Counter(question.label for question in questions)
    return Survey(
        " · ".join(describe_source(f"TREC questions, {part}", _count_skipped(both, part), "loading skips") for part in FILES),
        {name: numbers[label] for label, name in enumerate(CLASSES)},
        find_duplicates((question.name, _key(question)) for question in questions),
        tuple(problems),
    )


def _samples(both: dict[Part, list[Question]], part: Part) -> LabelledSamples:
    """One part, without duplicates, questions with two classes, and those in the test file too."""
    classes, elsewhere = _index(both, part)
    questions: dict[str, Question] = {}
    for question in both[part]:
        key = _key(question)
        if key not in elsewhere and len(classes[key]) == 1:
            questions.setdefault(key, question)
    return LabelledSamples(
        tuple(question.text for question in questions.values()),
        torch.tensor([question.label for question in questions.values()], dtype=torch.int64),
        CLASSES,
        tuple(question.name for question in questions.values()),
        describe_source(f"TREC questions, {part}", _count_skipped(both, part)),
    )


def _index(both: dict[Part, list[Question]], part: Part) -> tuple[dict[str, set[int]], set[str]]:
    """The classes of each question of a part, and which questions the test file has too."""
    classes: defaultdict[str, set[int]] = defaultdict(set)
    for question in both[part]:
        classes[_key(question)].add(question.label)
    return classes, {_key(question) for question in both["test"]} if part == "train" else set()


def _count_skipped(both: dict[Part, list[Question]], part: Part) -> dict[str, int]:
    """How many questions of a part are not loaded, by the reason."""
    classes, elsewhere = _index(both, part)
    return {
        "duplicates": len(both[part]) - len(classes),
        "that are in the test file too": sum(key in elsewhere for key in classes),
        "with two classes": sum(len(labels) > 1 and key not in elsewhere for key, labels in classes.items()),
    }


def _key(question: Question) -> str:
    return " ".join(question.text.casefold().split())


def _questions(root: Path) -> tuple[dict[Part, list[Question]], list[str]]:
    """Every line of both files, and what is wrong with the others."""
    both: dict[Part, list[Question]] = {}
    problems = []
    for part, names in FILES.items():
        path = next((root / name for name in names if (root / name).is_file()), None)
        if path is None:
            raise InputError(f"{root} has no {' or '.join((names[0], names[-1]))}: ig2 data fetch trec gets it")
        both[part] = []
        # the files are in Latin-1, though almost nothing in them shows it
        for number, line in enumerate(read_lines(path, "latin-1"), start=1):
            if not line.strip():
                continue
            match = LINE.fullmatch(line.strip())
            if match is None or match[1] not in CLASSES:
                known = f"{', '.join(CLASSES[:-1])} or {CLASSES[-1]}"
                problems.append(
                    f"{path} line {number}: {describe(line)}, expected CLASS:kind and a question, CLASS one of {known}"
                )
                continue
            both[part].append(Question(match[3], CLASSES.index(match[1]), f"{part} line {number}"))
        if not both[part] and not problems:
            raise InputError(f"{path} has no questions")
    return both, problems


MIRRORS = ("https://cogcomp.seas.upenn.edu/Data/QA/QC/",)
DATASET = DataSet(
    name="trec",
    about="TREC questions of six kinds by the answer they ask for",
    suites=("trec",),
    layout="train_5500.label and TREC_10.label, or TREC_train.txt and TREC_test.txt",
    page="https://cogcomp.seas.upenn.edu/Data/QA/QC/",
    terms="no licence is stated; published for research with Li and Roth, Learning Question Classifiers (2002)",
    default="questions made from a small grammar",
    files=tuple(
        PublicFile.at(MIRRORS, *file)
        for file in (
            ("train_5500.label", 335_858, "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3"),
            ("TREC_10.label", 23_354, "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e"),
        )
    ),
    survey=survey,
)
