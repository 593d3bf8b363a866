"""The methods and rules by their names on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ig2
from ig2._utils.suggestions import ChoiceError, suggest
from ig2.methods.catalogue import METHODS, RULES, Entry, Facts

if TYPE_CHECKING:
    from ig2.modalities.base import Batch, Subject
    from ig2.modalities.modality import Modality
    from ig2.rules import Rule


@dataclass(frozen=True)
class TypedMethod:
    """A method as it was typed, made for each batch of a run."""

    name: str
    steps: int = 50
    rule: str | None = None

    @property
    def example(self) -> ig2.Method:
        """The method as made by default, which declares what it needs."""
        return METHODS[self.name].example

    def __call__(self, subject: Any, batch: Any) -> ig2.Method:
        entry = METHODS[self.name]
        rule = find_rule(self.rule, [entry]) if entry.takes_rule else None
        return make_method(entry, subject, batch, self.steps, rule)


def make_method(
    entry: Entry, subject: Subject | None, batch: Batch, steps: int, rule: Rule | None
) -> ig2.Method:  # fmt: skip
    """Make a method for a batch; of a bare network, which has no subject, nothing is known.

    What a person sees as one thing is present or absent as one: a region, a word, a column.
    """
    parts = {} if subject is None else subject.describe_parts(batch)
    facts = Facts(steps=steps, straight=steps, guided=steps, **parts)
    return entry.make(facts, **rule_for(entry, rule))


def rule_for(entry: Entry, rule: Rule | None) -> dict[str, Any]:
    """Return the argument for a rule; none for a method that takes no rule."""
    return {} if rule is None or not entry.takes_rule else {"rule": rule}


def find_methods(names: Iterable[str], modality: Modality | None) -> list[Entry]:
    """Return the methods of these names, each once, for a kind of data, if it is known.

    Raises:
        ChoiceError: for an unknown name, or a method that is not for this kind of data.
    """
    for name in names:
        if name not in METHODS:
            raise ChoiceError(f"there is no method {name!r}{suggest(name, METHODS)}")
        if modality is not None and METHODS[name].for_images and not modality.has_places:
            raise ChoiceError(f"the method {name} is for images, and these are {modality.nouns}: omit it")
    return [METHODS[name] for name in dict.fromkeys(names)]


def check_gradients(methods: Iterable[Entry], subject: Subject) -> None:
    """Check that a model has the gradients that methods need.

    Raises:
        ChoiceError: if it has none, and a method needs them.
    """
    if subject.has_gradients:
        return
    for entry in methods:
        if entry.example.needs_gradient:
            free = [name for name, other in METHODS.items() if not other.for_images and not other.example.needs_gradient]
            raise ChoiceError(
                f"{entry.name} needs gradients, and {subject.name} has none: choose a --method "
                f"without gradients ({', '.join(free)})"
            )


def find_rule(name: str | None, methods: Iterable[Entry]) -> Rule | None:
    """Return the rule of this name; None for None.

    Raises:
        ChoiceError: for an unknown name, or if none of the methods takes a rule.
    """
    if name is None:
        return None
    name = "direct" if name == "idgi" else name  # as its paper calls it
    if name not in RULES:
        raise ChoiceError(f"there is no rule {name!r}{suggest(name, RULES)}")
    if not any(entry.takes_rule for entry in methods):
        takers = ", ".join(entry.name for entry in METHODS.values() if entry.takes_rule)
        raise ChoiceError(
            f"--rule {name} does not apply to this method: omit it, or choose a --method that takes a rule ({takers})"
        )
    # typed without parentheses, which a shell would take for its own
    if name == "gauss":
        return ig2.rules.gauss(4)
    return ig2.rules.scaled(ig2.rules.left) if name == "scaled" else getattr(ig2.rules, name)
