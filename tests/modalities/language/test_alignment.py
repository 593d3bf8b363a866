"""Alignment: words stand for each other by what is equal around them, never by their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ig2.modalities.language.alignment import align, align_right, align_words, spread
from ig2.modalities.language.prompts import read_prompt

Read = Callable[[str], Any]


@pytest.fixture(scope="module")
def read(load: Callable[..., Any]) -> Read:
    tokenizer = load("llama").tokenizer
    return lambda text: read_prompt(tokenizer, text)


def cells_as_text(read: Read, load: Callable[..., Any], one: str, other: str) -> list[str]:
    model = load("llama")
    return ["" if not cell else model.decode(cell) for cell in align(read(one), read(other)).cells]


def test_a_pair_of_one_word_moves_that_word_alone(read: Read, load: Callable[..., Any]) -> None:
    # " Germa", "ny" both stand against the one token " France"
    texts = cells_as_text(read, load, "In Germany people speak", "In France people speak")
    assert texts == ["In", " France", " France", " people", " speak"]
    assert cells_as_text(read, load, "In France people", "In Germany people") == ["In", " Germany", " people"]


def test_a_word_more_or_less_does_not_shift_the_rest(read: Read, load: Callable[..., Any]) -> None:
    assert cells_as_text(read, load, "In France many people speak", "In France people speak") == [
        "In", " France", "", " people", " speak",
    ]  # fmt: skip
    alignment = align(read("In France people speak"), read("In France many people speak"))
    assert alignment.dropped == ("many",)
    assert not alignment.changed


def test_other_prompts_end_together(read: Read, load: Callable[..., Any]) -> None:
    model = load("llama")
    longer = align_right(read("people speak"), read("In France many people speak")).cells
    assert [model.decode(cell) for cell in longer] == [" people", " speak"]
    assert align_right(read("In France people"), read(" women")).cells[:2] == ((), ())


def test_fixed_tokens_have_no_cell(read: Read) -> None:
    assert align(read("In<s> France"), read("In Rome")).cells[1] is None


words = st.lists(st.sampled_from("abcd"), max_size=6)


@given(words, words)
def test_blocks_take_every_word_once_and_in_order(one: list[str], two: list[str]) -> None:
    blocks = list(align_words(one, two))
    assert [i for block, _ in blocks for i in block] == list(range(len(one)))
    assert [i for _, block in blocks for i in block] == list(range(len(two)))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 8))
def test_spread_keeps_the_order_and_fills_every_place(ids: list[int], places: int) -> None:
    shares = spread(ids, places)
    assert len(shares) == places and all(shares)
    if len(ids) >= places:
        assert [i for share in shares for i in share] == ids
    else:  # each id stands in places beside each other, and all of them are used
        assert [share[0] for share in shares] == [ids[place * len(ids) // places] for place in range(places)]
