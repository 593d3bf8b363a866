"""Tokens of a text, and the words that they make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tokens:
    """One text as tokens."""

    ids: Sequence[int]
    spans: Sequence[tuple[int, int]]  # where each token stands in the text
    special: Sequence[bool]  # added by the tokenizer: no part of the text
    groups: Sequence[int | None] | None = None  # which word each belongs to, where the tokenizer knows


def cut_text(tokenizer: Any, *texts: str, **options: Any) -> Any:
    """Return what a fast tokenizer of transformers makes of a text, or of two that belong together."""
    return tokenizer(*texts, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False, **options)


def read_tokens(encoding: Any) -> Tokens:
    """Return the tokens of what `cut_text` returned."""
    spans = [(start, end) for start, end in encoding["offset_mapping"]]
    special = [bool(flag) for flag in encoding["special_tokens_mask"]]
    return Tokens(list(encoding["input_ids"]), spans, special, encoding.word_ids(0))


def find_words(text: str, tokens: Tokens) -> tuple[list[int], list[str]]:
    """Return the word of each token, −1 for special ones, and the words as they are written in the text.

    Tokens belong to one word if the tokenizer groups them and there is no whitespace between them.
    """
    numbers: list[int] = []
    spans: list[tuple[int, int]] = []
    last: int | None = None  # the group of the token before, or none after a special one
    groups = tokens.groups or [0] * len(tokens.ids)
    joined = False
    for (start, end), special, group in zip(tokens.spans, tokens.special, groups, strict=True):
        if special:
            numbers.append(-1)
            joined = False
            continue
        piece = text[start:end]
        if not piece.strip():  # a blank of its own goes with the word before it, or the first
            numbers.append(max(0, len(spans) - 1))
            joined = joined and not piece
            continue
        between = text[spans[-1][1] : start] + piece[:1] if spans else ""
        if joined and group == last and not any(sign.isspace() for sign in between):
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
        joined, last = not piece[-1].isspace(), group
        numbers.append(len(spans) - 1)
    return numbers, [text[start:end].strip() for start, end in spans]
