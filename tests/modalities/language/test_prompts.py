"""Prompts: tokens, words, spans, chats, and what is fixed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import transformers

from ig2.errors import InputError
from ig2.modalities.language.prompts import read_prompt
from networks import refuses

CHAT = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": " What is the capital of France?\n"}]


@pytest.fixture(scope="module")
def tokenizer(load: Callable[..., Any]) -> Any:
    return load("llama").tokenizer


def test_tokens_are_joined_to_words_with_their_blanks(tokenizer: Any) -> None:
    prompt = read_prompt(tokenizer, "In Germany people speak.")
    assert prompt.tokens == ("In", " Germa", "ny", " people", " speak", ".")
    assert prompt.words == ("In", "Germany", "people", "speak", ".")
    assert prompt.word == (0, 1, 1, 2, 3, 4)
    assert "".join(prompt.tokens) == prompt.text


def test_sentences_are_spans_that_cover_every_token(tokenizer: Any) -> None:
    prompt = read_prompt(tokenizer, "In Germany people speak. What is the capital?")
    assert [span.name for span in prompt.spans] == ["sentence 1", "sentence 2"]
    assert prompt.spans[0].end == prompt.spans[1].start == 6
    assert prompt.spans[1].end == len(prompt)


def test_spans_of_the_user_are_found_by_their_text(tokenizer: Any) -> None:
    prompt = read_prompt(tokenizer, "In Germany people speak", spans={"where": "In Germany"})
    (span,) = prompt.spans
    assert (span.name, prompt.tokens[span.start : span.end]) == ("where", ("In", " Germa", "ny"))
    refuses(InputError, "not in the text", lambda: read_prompt(tokenizer, "In Germany", spans={"x": "Spain"}))


def test_markup_of_a_chat_is_fixed_and_messages_are_spans(tokenizer: Any) -> None:
    prompt = read_prompt(tokenizer, CHAT)
    assert [span.name for span in prompt.spans] == ["system", "user"]
    moving = [prompt.tokens[position] for position in prompt.positions]
    assert "".join(moving) == "You answer briefly.What is the capital of France?"
    inside = [position for span in prompt.spans for position in range(span.start, span.end)]
    assert inside == prompt.positions
    assert prompt.text.endswith("<s>assistant\n")


def test_two_messages_of_one_role_have_names_of_their_own(tokenizer: Any) -> None:
    chat = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "What"},
    ]
    assert [span.name for span in read_prompt(tokenizer, chat).spans] == ["user", "assistant", "user (2)"]


def test_documents_are_spans_where_the_template_shows_them(tokenizer: Any) -> None:
    prompt = read_prompt(tokenizer, CHAT, documents=[{"title": "x", "text": "Paris is old"}])
    assert [span.name for span in prompt.spans] == ["system", "user", "document 1"]
    template, tokenizer.chat_template = tokenizer.chat_template, "{{ messages[0]['content'] }}"
    try:
        refuses(InputError, "document 1", lambda: read_prompt(tokenizer, CHAT[:1], documents=[{"text": "Paris"}]))
    finally:
        tokenizer.chat_template = template


def test_a_template_that_refuses_is_quoted(tokenizer: Any) -> None:
    template, tokenizer.chat_template = tokenizer.chat_template, "{{ raise_exception('only users') }}"
    try:
        refuses(InputError, "only users", lambda: read_prompt(tokenizer, CHAT))
        tokenizer.chat_template = None
        refuses(InputError, "no chat template", lambda: read_prompt(tokenizer, CHAT))
    finally:
        tokenizer.chat_template = template


def test_special_tokens_that_were_typed_are_fixed_and_unknown_words_are_not(tokenizer: Any) -> None:
    prompt = read_prompt(tokenizer, "In<s> xyz")
    assert prompt.word == (0, -1, 1)
    assert prompt.words == ("In", "xyz")


@pytest.mark.parametrize("prompt", ["", "  \n", 3, ("a",), [], [{"role": "user"}], ("a", "b", "c")])
def test_what_is_no_prompt_is_refused(tokenizer: Any, prompt: Any) -> None:
    refuses(InputError, "prompt", lambda: read_prompt(tokenizer, prompt))


def test_a_tokenizer_without_offsets(tokenizer: Any) -> None:
    slow = transformers.ByT5Tokenizer()
    prompt = read_prompt(slow, "Hi you")
    assert not slow.is_fast
    assert prompt.words == ("Hi", "you")
    assert prompt.word == (0, 0, 0, 1, 1, 1, -1)
    assert len(read_prompt(slow, "Hi you", continues=True)) == 6  # the end mark is dropped where the model goes on
    assert read_prompt(slow, "é").words == ("é",)  # two bytes, neither of which is a piece of the text


class Pieces:
    """A tokenizer without offsets that drops some signs of a text, as those with normalisation do."""

    is_fast, all_special_ids, unk_token_id, eos_token_id = False, [0], None, 0

    def __init__(self, pattern: str) -> None:
        self.pattern, self.pieces = pattern, [""]

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        self.pieces += re.findall(self.pattern, text)
        return {"input_ids": [*range(1, len(self.pieces)), 0]}

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[index] for index in ids)


@pytest.mark.parametrize(
    ("pattern", "offsets"),
    [
        (r"\w", ((0, 1), (1, 2), (2, 5), (5, 6), (6, 6))),  # blanks stand before the next token, and are no text
        (r"[A-Z]|\w+", ((0, 1), (1, 2), (2, 6), (6, 6))),
        (r"[a-z]", ()),  # "H" has no token, so that a later letter may be another token's
        (r"[A-Z]|yo", ()),
    ],
)
def test_tokens_are_located_unless_text_is_passed_over(pattern: str, offsets: tuple[tuple[int, int], ...]) -> None:
    prompt = read_prompt(Pieces(pattern), "Hi  yo")
    assert prompt.offsets == offsets
    if not offsets:
        assert prompt.words == tuple(re.findall(pattern, "Hi  yo"))


def test_two_texts_are_spans_and_never_share_a_word(load: Callable[..., Any]) -> None:
    prompt = read_prompt(load("pairs").tokenizer, ("What is", "Where"))
    assert [span.name for span in prompt.spans] == ["first text", "second text"]
    assert prompt.words == ("What", "is", "Where")
    assert prompt.word == (-1, 0, 1, -1, 2, -1)
    assert prompt.extra["token_type_ids"] == (0, 0, 0, 0, 1, 1)
    assert prompt.find_tokens("Where", part=1) == (4, 5)
