"""Prompts as inputs of language models: tokens, their words, spans, and fixed parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ig2.errors import InputError, describe, reason
from ig2.modalities.text.words import Tokens, cut_text, find_words, read_tokens

Message = Mapping[str, Any]
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Span:
    """A named range of tokens of a prompt: a sentence, a message of a chat, a document."""

    name: str
    start: int
    end: int
    """One past the last token."""


@dataclass(frozen=True)
class Prompt:
    """A tokenized text. Special tokens and the markup of a chat are fixed, and belong to no word."""

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    """The piece of text of each token."""
    words: tuple[str, ...]
    word: tuple[int, ...]
    """The word of each token, −1 if the token is fixed."""
    spans: tuple[Span, ...] = ()
    extra: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Other inputs of the network for each token, such as `token_type_ids`."""
    offsets: tuple[tuple[int, int], ...] = ()
    """The start and end of each token in the text of its part; empty if the tokenizer does not provide them."""
    part: tuple[int | None, ...] = ()
    """For two texts, the text of each token."""
    documents: tuple[Mapping[str, str], ...] | None = None
    """For a chat, the documents it was read with."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def positions(self) -> list[int]:
        """The positions of the tokens that are not fixed."""
        return [position for position, word in enumerate(self.word) if word >= 0]

    def tokens_of(self, word: int) -> list[int]:
        """Return the positions of a word's tokens."""
        return [position for position, other in enumerate(self.word) if other == word]

    def find_tokens(self, piece: str, part: int | None = None) -> tuple[int, int]:
        """Return the first and one past the last token of a piece of the text.

        Args:
            piece: the piece to find.
            part: for two texts, the one to search.

        Raises:
            InputError: if the text does not contain it.
        """
        in_part = [i for i in self.positions if part is None or (self.part and self.part[i] == part)]
        text, ends = "", []
        for position in in_part:
            text += self.tokens[position]
            ends.append(len(text))
        # pieces of an uncased tokenizer stand in the text as they were typed, so the case is that of the text
        start = text.find(piece)
        if not piece.strip() or start < 0:
            raise InputError(f"{piece!r} is not in the text {describe(text)}: give a piece of it as it stands there")
        start += len(piece) - len(piece.lstrip())
        end = start + len(piece.strip())
        first = next(i for i, stop in enumerate(ends) if stop > start)
        last = next(i for i, stop in enumerate(ends) if stop >= end)
        return in_part[first], in_part[last] + 1


def read_prompt(
    tokenizer: Any,
    prompt: object,
    spans: Mapping[str, str] | None = None,
    documents: Sequence[Mapping[str, str]] | None = None,
    continues: bool = False,
) -> Prompt:
    """Tokenize a prompt.

    Args:
        tokenizer: a tokenizer of transformers; for a text, it need not provide the positions of its tokens.
        prompt: a text, two texts (first, second), or the messages of a chat, dicts with "role" and "content".
        spans: pieces of the text, by the names to show.
        documents: the documents of a chat whose template takes them.
        continues: whether the model continues the text, so that an end token added by the tokenizer is dropped.

    Raises:
        InputError: if the prompt is of another type, or has nothing to attribute.
    """
    if documents and isinstance(prompt, (str, tuple)) and all(isinstance(part, str) for part in prompt):
        raise InputError("documents= is for a chat, [{'role': 'user', 'content': …}]: put them into the text of the prompt")
    if isinstance(prompt, str):
        read = _read_text(tokenizer, prompt, continues)
    elif isinstance(prompt, tuple) and len(prompt) == 2 and all(isinstance(part, str) for part in prompt):
        read = _read_pair(tokenizer, *prompt)
    elif isinstance(prompt, Sequence) and prompt and all(_is_message(message) for message in prompt):
        read = _read_chat(tokenizer, prompt, documents)
    else:
        raise InputError(
            f"a prompt must be a text, a tuple of two texts, or a list of messages {{'role': …, 'content': …}}, got "
            f"{describe(prompt)}"
        )
    if not read.positions:
        raise InputError(f"the prompt {describe(prompt)} has no tokens but special ones, so there is nothing to attribute")
    named = tuple(Span(name, *read.find_tokens(piece)) for name, piece in (spans or {}).items())
    return replace(read, spans=(*read.spans, *named))


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def _read_text(tokenizer: Any, text: str, continues: bool) -> Prompt:
    if not text.strip():
        raise InputError(f"the prompt {text!r} is empty: there is nothing to attribute")
    tokens = tokenize(tokenizer, text)
    if continues and len(tokens.ids) > 1 and tokens.special[-1] and tokens.ids[-1] == getattr(tokenizer, "eos_token_id", None):
        tokens = Tokens(tokens.ids[:-1], tokens.spans[:-1], tokens.special[:-1], tokens.groups and tokens.groups[:-1])
    prompt = _assemble(tokenizer, text, tokens)
    return replace(prompt, spans=_find_sentences(prompt))


def check_text(text: str) -> None:
    """Raise an `InputError` if a text has lone surrogates, which invalid UTF-8 on a command line becomes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text {text!r} has no character at {text[error.start]!r}: is it UTF-8?") from error


def tokenize(tokenizer: Any, text: str, **options: Any) -> Tokens:
    """Return a text as tokens, without spans where the tokenizer does not say where they stand, and the text lacks a piece."""
    check_text(text)
    if getattr(tokenizer, "is_fast", False):
        return read_tokens(cut_text(tokenizer, text, **options))
    ids = list(tokenizer(text, **options)["input_ids"])
    special = [index in tokenizer.all_special_ids and index != tokenizer.unk_token_id for index in ids]
    return Tokens(ids, _locate(tokenizer, text, ids, special), special)


def _locate(tokenizer: Any, text: str, ids: Sequence[int], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Locate tokens in a text by their decoded pieces; nothing if the text lacks a piece, such as an unknown token."""
    offsets, position = [], 0
    for index, is_special in zip(ids, special, strict=True):
        piece = "" if is_special else tokenizer.decode([index])
        start = text.find(piece.strip() or piece, position)
        if start < 0 or (piece and text[position:start].strip()):
            return []
        end = start + len(piece.strip() or piece) if piece else position
        offsets.append((position if piece else end, end))
        position = end
    return offsets


def _assemble(tokenizer: Any, text: str, cut: Tokens, **more: Any) -> Prompt:
    """Create a prompt from the tokenizer's output; special tokens in the text itself are fixed too."""
    known = set(getattr(tokenizer, "all_special_ids", ())) - {getattr(tokenizer, "unk_token_id", None)}
    fixed = [flag or index in known for flag, index in zip(cut.special, cut.ids, strict=True)]
    if not cut.spans:  # each token is then a word of its own
        tokens = [tokenizer.decode([index]) for index in cut.ids]
        numbers, words = list[int](), list[str]()
        for piece, is_fixed in zip(tokens, fixed, strict=True):
            numbers.append(-1 if is_fixed else len(words))
            if not is_fixed:
                words.append(piece.strip() or piece)
    else:
        numbers, words = find_words(text, replace(cut, special=fixed))
        tokens = [text[start:end] for start, end in cut.spans]
    if not words and not all(fixed):  # blanks alone
        numbers, words = [-1 if is_fixed else 0 for is_fixed in fixed], [text]
    return Prompt(text, tuple(cut.ids), tuple(tokens), tuple(words), tuple(numbers), offsets=tuple(cut.spans), **more)


def _find_sentences(prompt: Prompt) -> tuple[Span, ...]:
    """Return the sentences of a text that has several."""
    ends = [match.start() for match in SENTENCE_END.finditer(prompt.text)]
    if not ends or not prompt.offsets:
        return ()
    sentence = [sum(end <= start for end in ends) for start, _ in prompt.offsets]
    of = [number if word >= 0 else None for number, word in zip(sentence, prompt.word, strict=True)]
    return _find_spans(of, {number: f"sentence {number + 1}" for number in range(len(ends) + 1)})


def _find_spans(of: Sequence[Any], names: Mapping[Any, str]) -> tuple[Span, ...]:
    """Return a span for each name, from the first to the last of the tokens that are of it."""
    places = {key: [place for place, other in enumerate(of) if other == key] for key in names}
    return tuple(Span(names[key], found[0], found[-1] + 1) for key, found in places.items() if found)


def _read_pair(tokenizer: Any, first: str, second: str) -> Prompt:
    """Read two texts as the tokenizer joins them."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{type(tokenizer).__name__} does not say which of two texts a token is of: use a fast tokenizer")
    check_text(first + second)
    encoding = cut_text(tokenizer, first, second)
    tokens, part = read_tokens(encoding), tuple(encoding.sequence_ids(0))
    extra = {"token_type_ids": tuple(encoding["token_type_ids"])} if "token_type_ids" in encoding else {}
    # the second text stands behind the first, so that words of the one are never joined to words of the other
    shift = len(first) + 1
    moved = [(a + shift, b + shift) if of == 1 else (a, b) for (a, b), of in zip(tokens.spans, part, strict=True)]
    more = {"spans": _find_spans(part, {0: "first text", 1: "second text"}), "extra": extra, "part": part}
    return _assemble(tokenizer, f"{first}\n{second}", replace(tokens, spans=moved), **more)


def _read_chat(tokenizer: Any, messages: Sequence[Message], documents: Sequence[Mapping[str, str]] | None) -> Prompt:
    """Read the messages of a chat in its template: their contents are spans, everything else is fixed."""
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("this tokenizer has no chat template: give the prompt as a text")
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{type(tokenizer).__name__} does not say where its tokens stand in the text: use a fast tokenizer")
    if not all(isinstance(document, Mapping) and isinstance(document.get("text"), str) for document in documents or ()):
        raise InputError(f"documents must be dicts with a text, [{{'text': …}}], got {describe(documents)}")
    options: dict[str, Any] = {} if documents is None else {"documents": [dict(document) for document in documents]}
    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=True, **options
        )
    except Exception as error:  # a template is a program, which may refuse a role or an order of roles
        raise InputError(f"the chat template does not take these messages: {reason(error)}") from error
    contents = [(str(message["role"]), str(message["content"]).strip()) for message in messages]
    contents += [(f"document {i + 1}", str(item.get("text", "")).strip()) for i, item in enumerate(documents or ())]
    places: list[tuple[str, int, int]] = []
    position = 0
    for name, content in contents:
        start = text.find(content, 0 if name.startswith("document ") else position) if content else -1
        if content and start < 0:
            advice = "put it into a message" if name.startswith("document ") else "give the prompt as a text"
            raise InputError(f"the chat template does not show the {name} {describe(content)} as it is: {advice}")
        if content:
            count = sum(other.split(" (")[0] == name for other, _, _ in places)
            places.append((f"{name} ({count + 1})" if count else name, start, start + len(content)))
            position = max(position, start + len(content)) if not name.startswith("document ") else position
    cut = tokenize(tokenizer, text, add_special_tokens=False)
    inside = [next((name for name, low, high in places if _overlaps(text, pair, low, high)), None) for pair in cut.spans]
    prompt = _assemble(tokenizer, text, replace(cut, special=[name is None for name in inside]))
    spans = _find_spans(inside, {name: name for name, _, _ in places})
    return replace(prompt, spans=spans, documents=None if documents is None else tuple(documents))


def _overlaps(text: str, pair: tuple[int, int], low: int, high: int) -> bool:
    """Return whether a token overlaps a content, or is whitespace inside it."""
    start, end = max(pair[0], low), min(pair[1], high)
    return start < end and (bool(text[start:end].strip()) or (pair[0] >= low and pair[1] <= high))
