"""Text classifiers: sentences in, a number for each word out.

Token ids cannot move along a path, so the embedding of each token is attributed; a token's share is the sum over its embedding,
a word's share the sum over its tokens. Special tokens and padding are fixed: no path moves them, their share is zero, and
metrics do not count them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ig2._engine.session import open_session
from ig2.errors import InputError, ModelError, describe
from ig2.inputs import Fixed
from ig2.modalities.base import Batch, Outputs, Subject, unwrap
from ig2.modalities.modality import Modality
from ig2.modalities.text.modality import TEXTS
from ig2.modalities.text.words import Tokens, find_words
from ig2.model import Layer, Model, as_model
from ig2.views import Words

Baseline = Literal["zero", "pad", "mask"]
# Two runs of the same text agree within this share of the largest score; half precision needs as much.
ALIKE = 1e-2
UNLIMITED = 100_000  # tokenizers without a limit say 10³⁰


@dataclass(frozen=True, eq=False)
class TextBatch(Batch):
    """Texts as tokens; every tensor is (B, L)."""

    ids: Tensor = field(kw_only=True)
    mask: Tensor = field(kw_only=True)  # 1 where there is a token, 0 at padding
    word: Tensor = field(kw_only=True)  # which word each token is of; −1 for special tokens and padding

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self.mask.sum(dim=1).tolist())


class FromEmbeddings(nn.Module):
    """A network as a function of embeddings instead of tokens."""

    def __init__(self, net: nn.Module, call: Callable[[nn.Module, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.net = net
        self.call = call
        self.training = net.training

    def forward(self, embeddings: Tensor, mask: Tensor) -> Any:
        return self.call(self.net, embeddings, mask)


@dataclass(frozen=True, eq=False, repr=False)
class TextSubject(Subject):
    """A text classifier with its tokenizer and embedding. Created by `from_transformers`, `from_parts` or `load`."""

    tokenize: Callable[[str], Tokens]
    embed: Callable[[Tensor], Tensor]  # from ids (..., L) to embeddings (..., L, E)
    pad_id: int
    mask_id: int | None = None
    length: int | None = None  # every text is padded to this; by default to the longest of a batch
    most: int | None = None  # tokens the network takes
    modality: ClassVar[Modality] = TEXTS
    batches: ClassVar[type[Batch]] = TextBatch

    def view(self, batch: Batch, row: int) -> Words:
        assert batch.units is not None
        return Words(batch.units[row])

    @torch.no_grad()
    def read(self, sources: Any) -> TextBatch:
        """Read a text, or several, as embeddings (B, L, E) with their mask; `units` are the words.

        If texts are padded, one is also run without padding: a model whose output depends on padding raises a `ModelError`.
        """
        texts = [sources] if isinstance(sources, str) else unwrap(list(sources))
        if not texts:
            raise InputError("no texts were given")
        batch = self._make_batch(texts)
        lengths = batch.mask.sum(dim=1)
        if int(lengths.min()) < batch.mask.shape[1]:
            self._check_padding(batch, int(lengths.argmin()))
        return batch

    def _make_batch(self, texts: Sequence[str]) -> TextBatch:
        cut = [self._tokens(text) for text in texts]
        merged = [find_words(text, tokens) for text, tokens in zip(texts, cut, strict=True)]
        length = max(self.length or 0, *(len(tokens.ids) for tokens in cut))
        ids, word = torch.full((len(texts), length), self.pad_id), torch.full((len(texts), length), -1)
        mask = torch.zeros(len(texts), length, dtype=torch.long)
        for row, (tokens, (numbers, _)) in enumerate(zip(cut, merged, strict=True)):
            count = len(tokens.ids)
            ids[row, :count], word[row, :count], mask[row, :count] = torch.tensor(tokens.ids), torch.tensor(numbers), 1
        return TextBatch(
            tuple(texts),
            {"embeddings": Fixed(self._embed(ids), where=word < 0), "mask": Fixed(mask)},
            tuple(tuple(words) for _, words in merged),
            ids=ids,
            mask=mask,
            word=word,
        )

    def _tokens(self, text: object) -> Tokens:
        if not isinstance(text, str):
            raise InputError(f"a text must be a string, got {describe(text)}")
        if not text.strip():
            raise InputError(f"the text {text!r} is empty")
        tokens = self.tokenize(text)
        if all(tokens.special):
            raise InputError(f"nothing is left of the text {describe(text)} once it is cut into tokens")
        most = min(self.most or UNLIMITED, self.length or UNLIMITED)
        if len(tokens.ids) > most:
            raise InputError(f"the text {describe(text)} has {len(tokens.ids)} tokens and the model takes {most}: shorten it")
        return tokens

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embed(ids).detach().cpu()

    def _check_padding(self, batch: TextBatch, row: int) -> None:
        """Compare the model's output for a padded text with its output for the same text alone."""
        alone = self._make_batch([batch.names[row]])
        answers = []
        for texts, number in ((batch, row), (alone, 0)):
            with open_session(self.model, texts.x, prepares=False) as session:
                rows = torch.tensor([number], device=session.device)
                answers.append(session.represent(session.inputs.data[rows], rows))
        for beside, by_itself in zip(*answers, strict=True):
            if beside.shape != by_itself.shape or not are_close(beside, by_itself):
                raise ModelError(
                    f"padding changes what the model makes of {describe(batch.names[row])}, so texts of different lengths "
                    "cannot share a batch: read them one at a time, or name a representation with one row a text, such as "
                    "representation='output'"
                )

    # -- references ----------------------------------------------------------------------------------------------------

    def references(self, texts: str | Sequence[str], batch: TextBatch) -> Any:
        """Return other texts as references for each sample of a batch, (B, R, L, E).

        The tokens of a reference replace those of the sample's words: a longer reference is truncated, a shorter one filled up
        with the padding token. Special tokens and padding remain the sample's, so nothing moves there.
        """
        return batch.like_x(self.candidates(self.pool(texts), batch))

    @torch.no_grad()
    def candidates(self, pool: Batch, batch: Batch) -> Tensor:
        assert isinstance(pool, TextBatch) and isinstance(batch, TextBatch)
        contents = [ids[word >= 0] for ids, word in zip(pool.ids, pool.word, strict=True)]
        fitted = []
        for ids, word in zip(batch.ids, batch.word, strict=True):
            places = (word >= 0).nonzero()[:, 0]
            rows = ids.repeat(len(pool), 1)
            for row, content in zip(rows, contents, strict=True):
                row[places] = self.pad_id
                row[places[: len(content)]] = content[: len(places)]
            fitted.append(rows)
        return self._embed(torch.stack(fitted))

    @torch.no_grad()
    def baseline(self, batch: Batch, kind: Baseline = "pad") -> Any:
        """Return one reference for each sample, (B, 1, L, E), with every word replaced by the zero vector, or by the embedding
        of the padding or mask token. Special tokens remain."""
        assert isinstance(batch, TextBatch)
        if kind not in ("zero", "pad", "mask"):
            raise InputError(f"baseline {kind!r} is unknown: use 'zero', 'pad' or 'mask'")
        if kind == "mask" and self.mask_id is None:
            raise InputError("this tokenizer has no mask token: use 'zero' or 'pad'")
        is_word = batch.word >= 0
        filler = self.mask_id if kind == "mask" and self.mask_id is not None else self.pad_id
        embeddings = self._embed(torch.where(is_word, filler, batch.ids))
        if kind == "zero":
            embeddings = torch.where(is_word[..., None], 0.0, embeddings)
        return batch.like_x(embeddings[:, None])

    def pool(self, sources: Any = None) -> TextBatch:
        sources = self.samples if sources is None else sources
        texts = [sources] if isinstance(sources, str) else unwrap(list(sources or ()))
        if not texts:
            raise InputError(f"{self.name} comes with no texts to contrast with: give some")
        return self._make_batch(texts)  # they take the places of an explicand's words, so their own padding is never seen

    # -- results -------------------------------------------------------------------------------------------------------

    def groups(self, batch: Batch) -> tuple[tuple[int, ...], ...]:
        """Return the word of each token."""
        assert isinstance(batch, TextBatch)
        return tuple(map(tuple, batch.word.tolist()))


def are_close(tensor: Tensor, other: Tensor) -> bool:
    """Return whether two outputs are alike but for rounding."""
    scale = max(1e-6, float(other.abs().max()))
    return torch.allclose(tensor, other, rtol=ALIKE, atol=ALIKE * scale)


# -- networks ----------------------------------------------------------------------------------------------------------


def take_embeddings(model: Model, call: Callable[[nn.Module, Tensor, Tensor], Any]) -> Model:
    """Return the model as a function of embeddings and a mask."""
    layer = model.representation
    inside = replace(layer, name=f"net.{layer.name}") if isinstance(layer, Layer) else layer
    return model.exchange(net=FromEmbeddings(model.net, call), representation=inside)


def from_parts(
    embedding: Callable[[Tensor], Tensor],
    network: Any,
    tokenize: Callable[[str], Sequence[tuple[int, int, int]]],
    *,
    classes: Sequence[str] | None = None,
    pad_id: int = 0,
    mask_id: int | None = None,
    length: int | None = None,
    name: str | None = None,
    outputs: Outputs = "classes",
    texts: Sequence[str] = (),
) -> TextSubject:
    """Create a subject from an embedding layer, the rest of a network, and a tokenizer function.

    Args:
        embedding: maps ids to embeddings, such as an `nn.Embedding`.
        network: maps embeddings (B, L, E), and a mask (B, L) of ones and zeros, to scores; or what `ig2.wrap` made of it,
            with another representation or output, or the range of embeddings that a path may not leave as bounds.
        tokenize: maps a text to (id, start, end) for each token, with its position in the text.
        classes: names of the outputs.
        pad_id: the token that pads shorter texts.
        mask_id: the token for a hidden word, if there is one.
        length: the number of tokens that every text is padded to, for a network trained with a fixed length.
        name: the name to show; by default the network's class.
        outputs: the kind of outputs: mutually exclusive `"classes"`, independent `"labels"`, or plain `"numbers"`.
        texts: the default texts to choose references from.
    """

    def cut(text: str) -> Tokens:
        tokens = [tuple(token) for token in tokenize(text)]
        if not all(len(token) == 3 for token in tokens):
            raise InputError(f"tokenize must return (id, start, end) for each token, got {describe(tokens)}")
        return Tokens([i for i, _, _ in tokens], [(start, end) for _, start, end in tokens], [False] * len(tokens))

    model = as_model(network)
    return TextSubject(
        name or type(model.net).__name__,
        take_embeddings(model, lambda net, embeddings, mask: net(embeddings, mask)),
        classes,
        cut,
        move_ids(embedding),
        pad_id,
        mask_id,
        length,
        outputs=outputs,
        samples=tuple(texts),
    )


def find_device(net: nn.Module) -> torch.device:
    """Return where a network is."""
    return next((tensor.device for tensor in [*net.parameters(), *net.buffers()]), torch.device("cpu"))


def move_ids(embedding: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return an embedding that takes ids from any device."""
    if not isinstance(embedding, nn.Module):
        return embedding
    return lambda ids: embedding(ids.to(find_device(embedding)))
