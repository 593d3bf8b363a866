"""Alignment of the words of another prompt with those of the explained prompt, never by shifting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from ig2.modalities.language.prompts import Prompt


@dataclass(frozen=True)
class Alignment:
    """Another prompt aligned with the positions of this one."""

    cells: tuple[tuple[int, ...] | None, ...]
    """For each token of this prompt, the ids that replace it: its own id if nothing differs, several if the other prompt has
    more tokens, and an empty tuple if the other has no word there. None for fixed tokens."""
    dropped: tuple[str, ...] = ()
    """Words of the other prompt without a counterpart in this one."""
    changed: bool = True
    """Whether anything differs."""


def align_words(words: Sequence[str], others: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield blocks of words that correspond: indices of words on either side, one of which may be empty.

    >>> list(align_words("the cat sat".split(), "the old dog sat".split()))
    [([0], [0]), ([1], [1, 2]), ([2], [3])]
    """
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    for tag, low, high, other_low, other_high in matcher.get_opcodes():
        block, other = list(range(low, high)), list(range(other_low, other_high))
        if tag == "equal" or len(block) == len(other):
            yield from (([word], [other_word]) for word, other_word in zip(block, other, strict=True))
        else:
            yield block, other


def align(prompt: Prompt, other: Prompt) -> Alignment:
    """Align the words of another prompt with those of this one.

    Words are aligned by the longest equal blocks. Between these, words correspond one by one if both sides have equally many;
    otherwise the tokens of one side are spread evenly over those of the other.
    """
    cells: list[tuple[int, ...] | None] = [() if word >= 0 else None for word in prompt.word]
    dropped: list[str] = []
    for block, other_block in align_words(prompt.words, other.words):
        places = [position for word in block for position in prompt.tokens_of(word)]
        ids = [other.ids[position] for word in other_block for position in other.tokens_of(word)]
        if not places:
            dropped += [other.words[word] for word in other_block]
            continue
        if [prompt.words[word] for word in block] == [other.words[word] for word in other_block]:
            ids = [prompt.ids[position] for position in places]  # the same word, however it was cut there
        for place, share in zip(places, spread(ids, len(places)), strict=True):
            cells[place] = share
    changed = any(cell is not None and cell != (token,) for cell, token in zip(cells, prompt.ids, strict=True))
    return Alignment(tuple(cells), tuple(dropped), changed)


def align_right(prompt: Prompt, other: Prompt) -> Alignment:
    """Align the tokens of another prompt with those of this one from the right: a causal model reads its output at the end."""
    places = prompt.positions
    ids = [other.ids[position] for position in other.positions][-len(places) :]
    cells: list[tuple[int, ...] | None] = [() if word >= 0 else None for word in prompt.word]
    for place, index in zip(places[len(places) - len(ids) :], ids, strict=True):
        cells[place] = (index,)
    return Alignment(tuple(cells))


def spread(ids: Sequence[int], places: int) -> list[tuple[int, ...]]:
    """Distribute ids over positions in order: several to a position, or one to several positions.

    >>> spread([7, 8, 9], 2), spread([7], 2), spread([], 1)
    ([(7,), (8, 9)], [(7,), (7,)], [()])
    """
    if len(ids) >= places:
        cuts = [place * len(ids) // places for place in range(places + 1)]
        return [tuple(ids[low:high]) for low, high in pairwise(cuts)]
    return [tuple(ids[place * len(ids) // places : place * len(ids) // places + 1]) for place in range(places)]
