"""Questions made from a small grammar, of six kinds by the answer they ask for.

The kinds are those of the TREC question data: an abbreviation, a description, a thing, a person, a place, a number.
"""

from __future__ import annotations

import random
import re
from functools import cache
from importlib import resources

CODES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


@cache
def grammar() -> dict[str, list[str]]:
    """Return words by the braces they fit in, and patterns of questions by their kind."""
    sections: dict[str, list[str]] = {}
    text = resources.files("ig2.demo").joinpath("questions.txt").read_text(encoding="utf-8")
    for section in re.sub(r"(?m)^#.*$", "", text).split("@")[1:]:
        name, _, entries = section.partition("\n")
        sections[name.strip()] = [" ".join(entry.split()) for entry in entries.split(";")]
    return sections


def questions(count: int, seed: int = 0) -> list[tuple[str, int]]:
    """Return made-up questions with their kinds, as many of each."""
    chance = random.Random(seed)
    pairs = []
    for number in range(count):
        kind = number % len(CODES)
        pattern = chance.choice(grammar()[CODES[kind]])
        pairs.append((re.sub(r"\{(\w+)\}", lambda brace: chance.choice(grammar()[brace[1]]), pattern), kind))
    return pairs
