"""A classifier of questions by the kind of answer they ask for, trained in seconds on questions made from a small grammar."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from ig2._utils.training import fit, load_or_train, local_seed
from ig2.demo.grammar import grammar, questions
from ig2.modalities.text.sentences import TextSubject, from_parts
from ig2.model import wrap

CLASSES = ("abbreviation (ABBR)", "description (DESC)", "entity (ENTY)", "person (HUM)", "place (LOC)", "number (NUM)")
PAD, UNKNOWN = 0, 1
WIDTHS = (3, 4, 5)
EMBEDDING = 32
TRAINING = 6000  # questions


def split(text: str) -> list[tuple[str, int, int]]:
    """Return words and signs in lower case, and where they stand."""
    return [(match[0].lower(), match.start(), match.end()) for match in re.finditer(r"\w+(?:'\w+)?|[^\w\s]", text)]


def vocabulary() -> dict[str, int]:
    """Return every word of the grammar by number; padding and unknown words come first."""
    texts = [re.sub(r"\{\w+\}", " ", entry) for entries in grammar().values() for entry in entries]
    words = sorted({word for text in texts for word, _, _ in split(text)})
    return {word: number for number, word in enumerate(words, start=UNKNOWN + 1)}


class TextCNN(nn.Module):
    """Filters over three, four and five words in a row, each at its strongest place; padding is never that place."""

    def __init__(self, embedding: int, filters: int, classes: int) -> None:
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv1d(embedding, filters, width, padding=width - 1) for width in WIDTHS)
        self.dropout = nn.Dropout(0.4)
        self.head = nn.Linear(filters * len(WIDTHS), classes)

    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Return scores from embeddings (B, L, E) and a mask (B, L), 1 where there is a word."""
        words = embeddings.transpose(1, 2) * mask[:, None].to(embeddings)
        length = mask.sum(dim=1)
        strongest = []
        for layer, width in zip(self.filters, WIDTHS, strict=True):
            answers = layer(words).relu()
            # the windows that touch a word are the first length + width − 1
            inside = torch.arange(answers.shape[2], device=mask.device) < (length + width - 1)[:, None]
            strongest.append((answers * inside[:, None]).amax(dim=2))
        return self.head(self.dropout(torch.cat(strongest, dim=1)))  # type: ignore[no-any-return]


class _Whole(nn.Module):
    """The classifier with its embedding, for training: words are now and then made unknown, so that unknown ones do no harm."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, EMBEDDING, padding_idx=PAD)
        self.rest = TextCNN(EMBEDDING, 32, len(CLASSES))
        nn.init.normal_(self.embedding.weight, std=0.3)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def forward(self, ids: Tensor) -> Tensor:
        mask = ids != PAD
        if self.training:
            ids = torch.where(mask & (torch.rand(ids.shape) < 0.2), UNKNOWN, ids)
        return self.rest(self.embedding(ids), mask)  # type: ignore[no-any-return]


def _build() -> _Whole:
    with local_seed(0):
        return _Whole(len(vocabulary()) + 2).eval()


def _make() -> dict[str, Tensor]:
    known = vocabulary()
    pairs = questions(TRAINING)
    rows = [[known[word] for word, _, _ in split(text)] for text, _ in pairs]
    ids = torch.full((len(rows), max(map(len, rows))), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    answers = torch.tensor([kind for _, kind in pairs])
    return fit(_build(), [ids], answers, nn.functional.cross_entropy, epochs=4, rate=5e-3).state_dict()


def load_network() -> tuple[nn.Embedding, TextCNN, dict[str, int]]:
    """Return the embedding, the rest of the network, and the words by number."""
    whole = _build()
    whole.load_state_dict(load_or_train("questions-1", _make, whole))
    return whole.embedding, whole.rest, vocabulary()


def load() -> TextSubject:
    """Return the classifier of questions, and other questions to contrast with."""
    embedding, network, known = load_network()

    def cut(text: str) -> list[tuple[int, int, int]]:
        return [(known.get(word, UNKNOWN), start, end) for word, start, end in split(text)]

    low, high = (float(end) for end in embedding.weight.detach().aminmax())
    return from_parts(
        embedding,
        wrap(network, bounds=(low, high)),
        cut,
        classes=CLASSES,
        pad_id=PAD,
        name="Questions CNN",
        texts=[text for text, _ in questions(60, seed=1)],
    )
