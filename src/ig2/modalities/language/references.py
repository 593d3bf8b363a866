"""References for prompts, each with the question it answers: what would the model predict with other words?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ig2._utils.checks import check_count
from ig2.errors import InputError, describe
from ig2.modalities.language.alignment import Alignment, align, align_right
from ig2.modalities.language.prompts import Prompt
from ig2.question import COUNT

if TYPE_CHECKING:
    from ig2.modalities.language.model import LanguageModel

FILLERS = ("mask", "pad", "unk", "eos", "bos")


@dataclass(frozen=True, eq=False)
class Drawn:
    """R references for one prompt of L tokens."""

    embeddings: Tensor
    """The embeddings, (R, L, E)."""
    texts: tuple[str, ...]
    """The text of each reference."""
    note: str = ""
    """A note on words that could not be aligned."""


class TextReferences(ABC):
    """A strategy that draws references for a prompt. Fixed tokens keep their values, whatever it returns for them."""

    label: ClassVar[str] = "reference"
    """A name for each reference, in a word or two."""
    question: ClassVar[str] = ""
    """The question that these references answer."""

    @abstractmethod
    def draw(self, lm: LanguageModel, prompt: Prompt) -> Drawn:
        """Return references for one prompt."""


@dataclass(frozen=True)
class MinimalPairs(TextReferences):
    """Minimal pairs: "why this, rather than what the model says of that prompt?"

    The words of each pair are aligned with the prompt's, see `align`; only those that differ move. A word of
    the prompt without a counterpart is replaced by the filler token; a word of the pair without one is dropped, and the
    explanation notes it.

    Args:
        prompts: the pairs, each in any form that `LanguageModel.explain` accepts.
    """

    label = "pair"
    question = "Why this, rather than what the model says of that prompt?"
    prompts: tuple[Any, ...]

    def __init__(self, *prompts: Any) -> None:
        if not prompts:
            raise InputError("MinimalPairs needs at least one prompt to pair with")
        object.__setattr__(self, "prompts", prompts)

    def draw(self, lm: LanguageModel, prompt: Prompt) -> Drawn:
        others = [lm.read_other(other, prompt) for other in self.prompts]
        aligned = [align(prompt, other) for other in others]
        for alignment, other in zip(aligned, self.prompts, strict=True):
            if not alignment.changed:
                more = ", ".join(map(repr, alignment.dropped))
                raise InputError(
                    f"the pair {describe(other)} has every word of the prompt, and {more} besides, which has no place in it: "
                    "explain the longer one rather than the shorter, or change a word"
                    if more
                    else f"the pair {describe(other)} has the words of the prompt itself: change one"
                )
        dropped = dict.fromkeys(word for alignment in aligned for word in alignment.dropped)
        places = [place for alignment in aligned for place, cell in enumerate(alignment.cells) if cell == ()]
        alone = dict.fromkeys(prompt.words[prompt.word[place]] for place in places)
        notes = [f"no place in the prompt for {', '.join(map(repr, dropped))} of the pair"] if dropped else []
        notes += [f"no word of the pair for {', '.join(map(repr, alone))}: {lm.decode([lm.filler])!r} instead"] if alone else []
        drawn = _embed_cells(lm, prompt, aligned, "; ".join(notes))
        # as they were written: aligned, a word of fewer tokens than its partner would be there twice
        texts = [lm.decode([other.ids[position] for position in other.positions]) for other in others]
        return replace(drawn, texts=tuple(texts))


@dataclass(frozen=True)
class OtherPrompts(TextReferences):
    """Other prompts, aligned from the right: "why this, rather than what is usual among those prompts?"

    A longer prompt is truncated at its beginning, a shorter one is preceded by the filler token.

    Args:
        prompts: the prompts, at least one.
    """

    label = "other prompt"
    question = "Why this, rather than what is usual among those prompts?"
    prompts: tuple[Any, ...]

    def __init__(self, *prompts: Any) -> None:
        if not prompts:
            raise InputError("OtherPrompts needs at least one prompt")
        object.__setattr__(self, "prompts", prompts)

    def draw(self, lm: LanguageModel, prompt: Prompt) -> Drawn:
        return _embed_cells(lm, prompt, [align_right(prompt, lm.read_other(other, prompt)) for other in self.prompts])


@dataclass(frozen=True)
class Filler(TextReferences):
    """Every token replaced by the same filler: "why this, rather than what the model says without these words?"

    Args:
        kind: "mask", "pad", "unk", "eos" or "bos", the tokenizer's token; "zero" or "mean", the zero vector or the mean
            embedding of the vocabulary; "auto", the first of these tokens that the tokenizer has.
    """

    label = "filler"
    question = "Why this, rather than what the model says without these words?"
    kind: Literal["auto", "mask", "pad", "unk", "eos", "bos", "zero", "mean"] = "auto"

    def __post_init__(self) -> None:
        if self.kind not in ("auto", "zero", "mean", *FILLERS):
            raise InputError(f"filler {self.kind!r} is unknown: use auto, zero, mean, {', '.join(FILLERS)}")

    def draw(self, lm: LanguageModel, prompt: Prompt) -> Drawn:
        embeddings = lm.embed(prompt.ids)
        if self.kind in ("zero", "mean"):
            vector = torch.zeros_like(embeddings[0]) if self.kind == "zero" else lm.table.mean(dim=0).to(embeddings)
            name = f"<{self.kind} vector>"
        else:
            index = lm.filler if self.kind == "auto" else getattr(lm.tokenizer, f"{self.kind}_token_id", None)
            if index is None:
                raise InputError(f"this tokenizer has no {self.kind} token: use Filler('zero') or Filler('mean')")
            vector, name = lm.embed([index])[0], lm.decode([index])
        embeddings[prompt.positions] = vector
        return Drawn(embeddings[None], (" ".join([name] * len(prompt.words)),))


@dataclass(frozen=True)
class LikelyWords(TextReferences):
    """Every token replaced by the most likely other one: "why this, rather than with the words one would have expected?"

    A causal model predicts each token from those before it, a masked model from all others. Reference r has, at each position,
    the r-th most likely token other than the prompt's.

    Args:
        count: the number of references.
    """

    label = "likely words"
    question = "Why this, rather than with the words one would have expected?"
    count: int = COUNT

    def __post_init__(self) -> None:
        check_count(self.count)

    def draw(self, lm: LanguageModel, prompt: Prompt) -> Drawn:
        logits = lm.predict_tokens(prompt)
        token_ids = torch.tensor([prompt.ids[position] for position in prompt.positions])
        return _draw_ranked(lm, prompt, logits.scatter(1, token_ids[:, None], -torch.inf), self.count)


@dataclass(frozen=True)
class Neighbours(TextReferences):
    """Every token replaced by its neighbours among the embeddings: "why this, rather than with words that are much the same?"

    Reference r has, at each position, the token whose embedding has the r-th largest cosine with that of the prompt's token.

    Args:
        count: the number of references.
    """

    label = "neighbours"
    question = "Why this, rather than with words that are much the same?"
    count: int = COUNT

    def __post_init__(self) -> None:
        check_count(self.count)

    def draw(self, lm: LanguageModel, prompt: Prompt) -> Drawn:
        token_ids = torch.tensor([prompt.ids[position] for position in prompt.positions])
        table = torch.nn.functional.normalize(lm.table.float(), dim=1)
        return _draw_ranked(lm, prompt, (table[token_ids] @ table.T).scatter(1, token_ids[:, None], -torch.inf), self.count)


def _draw_ranked(lm: LanguageModel, prompt: Prompt, scores: Tensor, count: int) -> Drawn:
    """Draw references by scores (positions, vocabulary): reference r has the token with the r-th highest at each position."""
    special = sorted({*lm.tokenizer.all_special_ids} & set(range(scores.shape[1])))
    scores[:, special] = -torch.inf
    most = int((scores > -torch.inf).sum(dim=1).min())
    if count > most:
        raise InputError(f"count={count} references need as many other tokens at each place, and there are {most}")
    best = scores.topk(count, dim=1).indices.tolist()
    cells: list[list[tuple[int, ...] | None]] = [[None] * len(prompt) for _ in range(count)]
    for position, tokens in zip(prompt.positions, best, strict=True):
        for row, token in zip(cells, tokens, strict=True):
            row[position] = (token,)
    return _embed_cells(lm, prompt, [Alignment(tuple(row)) for row in cells])


def _embed_cells(lm: LanguageModel, prompt: Prompt, aligned: Sequence[Alignment], note: str = "") -> Drawn:
    """Embed the tokens at each position, as their mean if there are several, and decode them to text."""
    rows, texts = [], []
    for alignment in aligned:
        ids = [
            (token,) if cell is None else cell or (lm.filler,) for cell, token in zip(alignment.cells, prompt.ids, strict=True)
        ]
        rows.append(torch.stack([lm.embed(cell).mean(dim=0) for cell in ids]))
        moving = [cell for cell, place in zip(ids, alignment.cells, strict=True) if place is not None]
        texts.append(lm.decode([index for cell in moving for index in cell]))
    return Drawn(torch.stack(rows), tuple(texts), note)


def as_text_references(wanted: object) -> TextReferences:
    """Convert `rather_than`, a strategy, a prompt or a list of prompts, to a strategy.

    Raises:
        InputError: if it is of another type.
    """
    if isinstance(wanted, TextReferences):
        return wanted
    is_chat = isinstance(wanted, list) and bool(wanted) and all(isinstance(item, dict) for item in wanted)
    if isinstance(wanted, (str, tuple)) or is_chat:
        return MinimalPairs(wanted)
    if isinstance(wanted, list) and wanted:
        return MinimalPairs(*wanted)
    raise InputError(
        f"rather_than must be a prompt, a list of prompts, or a strategy such as ig2.modalities.language.LikelyWords(), got "
        f"{describe(wanted)}"
    )
