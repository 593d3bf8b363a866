"""The question as it is typed: a target, what it is explained against, and references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ig2
from ig2._utils.suggestions import ChoiceError
from ig2.cli.options import AskingOptions
from ig2.errors import InputError
from ig2.modalities.base import Subject
from ig2.modalities.loading import load_function
from ig2.question import Question
from ig2.references.base import References
from ig2.runs import find_source

REFERENCES = {"zeros": "Zeros", "white": "White", "blurred": "BlurredExplicand", "farthest": "MaximalDistance"}


def parse_question(options: AskingOptions, model: Any) -> Question:
    """Return the question of a command line, put to a subject, a network or a language model.

    Raises:
        InputError: if a class does not exist, or is to be explained against itself.
    """
    target: Any = None if options.target == "auto" else options.target
    against: Any = {None: "auto", "others": None}.get(options.against, options.against)
    references: Any = options.references
    if options.lm is None:
        references = find_references(references)
        target = None if target is None else parse_target(model, target)
    if isinstance(model, Subject):
        against = parse_against(model, options.against)
        if isinstance(against, list) and target in against[0]:
            name = model.label(target)
            raise InputError(f"--against {options.against} names {name!r}, the class of --target: choose another")
    return Question(target, against, references, options.count, options.seed)


def parse_target(model: Any, wanted: str) -> int:
    """Return the class that is explained.

    Raises:
        ChoiceError: for a name, if the classes of a bare network have none.
    """
    if isinstance(model, Subject):
        return model.index(wanted)
    if not wanted.isdecimal():
        raise ChoiceError(
            f"--target {wanted!r} is not a number, and the classes of a bare network have numbers, no names: give one"
        )
    return int(wanted)


def parse_against(subject: Subject, wanted: str | None) -> list[list[int]] | str | None:
    """Return the classes that are explained against, as a question takes them.

    Raises:
        ChoiceError: if the model's outputs are no classes of which one is right.
    """
    if wanted is None or wanted == "others":
        return "auto" if wanted is None else None
    if subject.outputs != "classes":
        what = "predicts plain numbers" if subject.outputs == "numbers" else "has independent labels"
        raise ChoiceError(f"--against {wanted}: {subject.name} {what}, so no class excludes another: omit it")
    if len(subject.classes or ("", "")) == 1:
        raise InputError(f"--against {wanted}: {subject.name} has a single output, and so no other class: omit it")
    if wanted == "next":
        return "next"
    names = [wanted] if wanted in (subject.classes or ()) else wanted.split(",")
    return [list(dict.fromkeys(subject.index(name) for name in names))]


def find_references(wanted: str | None) -> Any:
    """Return a strategy by its name or by a function that makes it, or a source to choose from."""
    if wanted in REFERENCES:
        return getattr(ig2.references, REFERENCES[str(wanted)])()
    if wanted is None or ":" not in wanted or Path(wanted).exists():
        return wanted
    references = load_function(wanted)
    references = references() if callable(references) and not isinstance(references, References) else references
    return references if isinstance(references, References) else find_source(references, name=wanted)
