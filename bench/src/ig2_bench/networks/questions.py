"""The network for questions, and vectors of words for it to start from."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from ig2._utils.files import check_regular
from ig2.demo import questions
from ig2.demo.questions import PAD, UNKNOWN
from ig2.errors import InputError, describe, reason
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.networks.base import FilePath, NetworkSpec, SampleNetwork, TrainingSettings

FREQUENT = 50_000  # words of a file of vectors that are known beside those of the training texts
EMBEDDING = 100
FILTERS = 100


class QuestionCNN(SampleNetwork):
    """An embedding, 100 filters each over three, four and five words, each at its strongest place, and a linear layer.

    Called with token ids (B, L), where 0 is padding; or, to be explained, with embeddings (B, L, E) and a mask (B, L) that is
    1 where there is a word. Padding changes nothing: `ig2.modalities.text.from_parts(net.embedding, net, net.cut)` explains it.

    Args:
        words: those with a vector of their own.
        classes: how many.
        embedding: how many numbers a word's vector has.
    """

    def __init__(self, words: Sequence[str], classes: int = 6, embedding: int = EMBEDDING) -> None:
        super().__init__()
        self.words = {word: number for number, word in enumerate(words, start=UNKNOWN + 1)}
        if len(self.words) != len(words):
            raise InputError(f"{len(words) - len(self.words)} of {len(words)} words are duplicates: each has one vector")
        self.embedding = nn.Embedding(len(words) + UNKNOWN + 1, embedding, padding_idx=PAD)
        nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
        self.rest = questions.TextCNN(embedding, FILTERS, classes)
        self.rest.dropout = nn.Dropout(0.5)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Scores from ids (B, L); or from embeddings (B, L, E), every one of them a word's unless a mask (B, L) is given."""
        if not x.is_floating_point():
            x, mask = self.embedding(x), x != PAD
        return self.rest(x, torch.ones_like(x[..., 0]) if mask is None else mask)  # type: ignore[no-any-return]

    def cut(self, text: str) -> list[tuple[int, int, int]]:
        """The id of each word and sign of a text, and where it starts and ends."""
        return [(self.words.get(word, UNKNOWN), start, end) for word, start, end in questions.split(text)]

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        """Ids (N, L) of texts, padded to the longest."""
        if isinstance(x, Tensor) or not all(isinstance(text, str) for text in x):
            raise InputError(f"QuestionCNN takes texts, got {describe(x)}")
        rows = [torch.tensor([number for number, _, _ in self.cut(text)], dtype=torch.long, device="cpu") for text in x]
        if not any(map(len, rows)):
            return torch.full((len(rows), 1), PAD, device="cpu")
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

    def batch(self, x: Tensor) -> Tensor:
        """Ids without what is padding in all rows: it means nothing, and takes as long as words."""
        return x[:, : int((x != PAD).sum(dim=1).max())]

    def set_vectors(self, vectors: dict[str, Tensor]) -> None:
        """Replace the first, random vectors by these; those of other words are scaled to match.

        Raises:
            InputError: where none of the words has a vector.
        """
        known = [word for word in self.words if word in vectors]
        if not known:
            raise InputError(f"none of {len(self.words)} words is among the {len(vectors)} that come with a vector")
        replacements = torch.stack([vectors[word] for word in known])
        rows = torch.tensor([self.words[word] for word in known], device="cpu")
        with torch.no_grad():
            weight = self.embedding.weight
            weight *= replacements.std() / weight[UNKNOWN:].std()
            weight[rows] = replacements


# -- vectors of words --------------------------------------------------------------------------------------------------

LONGEST_LINE = 100_000  # bytes; three hundred numbers take some three thousand


def read_vectors(path: FilePath, words: Collection[str] = (), most: int = 0) -> dict[str, Tensor]:
    """Vectors of words from a text file in GloVe's format, a word and its numbers on each line.

    Args:
        path: the file, read line by line; the largest there are do not fit into memory.
        words: whose vectors are wanted.
        most: how many more, from the beginning of the file, where the most frequent words are.

    Returns:
        The vectors by word; the first of a word that occurs more than once.

    Raises:
        InputError: where the file cannot be read, or does not have this format.
    """
    wanted, vectors = set(words), dict[str, Tensor]()
    check_regular(path)
    try:
        with open(path, "rb") as file:
            start, length = _first_line(file, path)
            file.seek(start)
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
                parts = line.rstrip(b"\r\n").rstrip(b" ").split(b" ")
                if len(line) == LONGEST_LINE or len(parts) <= length:
                    raise InputError(f"{path}: vector {number} has no {length} numbers after its word: {describe(line[:60])}")
                # a few words of GloVe's have blanks in them
                word = b" ".join(parts[:-length]).decode("utf-8")
                if (number <= most or word in wanted) and word not in vectors:
                    vectors[word] = _vector(parts[-length:], f"{path}: the vector of {word!r}")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {reason(error)}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{os.fspath(path)!r} cannot be read: {reason(error)}") from error
    return vectors


def _first_line(file: BinaryIO, path: FilePath) -> tuple[int, int]:
    """Where the first vector is, and how many numbers it has; word2vec's text format has their count before it."""
    start, parts = 0, file.readline(LONGEST_LINE).split()
    if len(parts) == 2 and all(part.isdigit() for part in parts):
        start, parts = file.tell(), file.readline(LONGEST_LINE).split()
    if len(parts) < 3:
        raise InputError(f"{path} does not begin with a word and its vector: expected a line such as 'the 0.418 0.24968 …'")
    return start, len(parts) - 1


def _vector(numbers: list[bytes], name: str) -> Tensor:
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and raises an error below
            vector = np.array(numbers).astype(np.float32)
    except ValueError as error:
        raise InputError(f"{name} holds something else than numbers: {reason(error)}") from error
    if not np.isfinite(vector).all():
        raise InputError(f"{name} holds numbers that are not finite")
    return torch.from_numpy(vector)


# -- training ----------------------------------------------------------------------------------------------------------


def drop_words(ids: Tensor, generator: torch.Generator) -> Tensor:
    """Make one word in ten unknown, so that the network learns what to make of unknown ones."""
    dropped = (torch.rand(ids.shape, generator=generator, device="cpu") < 0.1).to(ids.device)
    return torch.where(dropped & (ids != PAD), UNKNOWN, ids)


def _build(train: LabelledSamples, start: FilePath | None) -> QuestionCNN:
    words = {word for text in train.x if isinstance(text, str) for word, _, _ in questions.split(text)}
    if start is None:
        return QuestionCNN(sorted(words), len(train.classes))
    vectors = read_vectors(start, words, FREQUENT)
    net = QuestionCNN(sorted(words.union(vectors)), len(train.classes), len(next(iter(vectors.values()))))
    net.set_vectors(vectors)
    return net


TREC = NetworkSpec(
    "trec",
    _build,
    TrainingSettings(epochs=12, batch=50, rate=3e-3, decay=0.01, least=400, augmentation=drop_words),
    quick=TrainingSettings(epochs=1, batch=50, rate=2e-3, decay=0.01, least=60),
    takes_start=True,
)
