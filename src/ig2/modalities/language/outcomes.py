"""The explained outcomes of a language model: their scores, and the state they are read from."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ig2._engine.explicands import working_dtype
from ig2.modalities.language.prefix import Prefix

OutputKind = Literal["log-probability", "logit", "probability"]
Position = Literal["last", "all"]
Kind = Literal["causal", "masked", "encoder-decoder", "classifier", "token-classifier", "question-answering"]


class Reading(NamedTuple):
    """The states and logits of a network for n prompts at the positions of the tokens read."""

    hidden: Tensor  # the last states of all positions of the prompt, (n, L, H)
    states: Tensor  # those that tokens are read from, (n, C, H)
    logits: Tensor  # at these, (n, C, vocabulary)


def read_tokens(net: Any, kind: Kind, ids: Sequence[int], at: Sequence[int], call: dict[str, Any]) -> Reading:
    """Run a network to read the tokens `ids`, each after the prompt and those before it.

    Args:
        net: a network of transformers.
        kind: the kind of network.
        ids: the tokens. Only those before the last are input to the network.
        at: for a masked model, the positions of the masks.
        call: the network's arguments, with `inputs_embeds` and `attention_mask`; and, for a causal model, optionally `prefix`,
            the preceding tokens that were run before.
    """
    embeddings, mask = call["inputs_embeds"], call["attention_mask"]
    if kind == "encoder-decoder":
        shown = torch.tensor([net.config.decoder_start_token_id, *ids[:-1]], device=embeddings.device)
        result = net(
            **call,
            decoder_input_ids=shown.expand(len(embeddings), -1),
            output_hidden_states=True,
            use_cache=False,
        )
        return Reading(result.encoder_last_hidden_state, result.decoder_hidden_states[-1], result.logits)
    if kind == "masked":
        result = net(**call, output_hidden_states=True)
        places = list(at)  # as numbers: of a model on several devices the states are on another one than the embeddings
        return Reading(result.hidden_states[-1], result.hidden_states[-1][:, places], result.logits[:, places])
    if len(ids) > 1:
        shown = torch.tensor(ids[:-1], device=embeddings.device)
        tail = net.get_input_embeddings()(shown).to(embeddings).expand(len(embeddings), -1, -1)
        ones = torch.ones(len(embeddings), len(ids) - 1, dtype=mask.dtype, device=mask.device)
        call = {**call, "inputs_embeds": torch.cat([embeddings, tail], 1), "attention_mask": torch.cat([mask, ones], 1)}
    # the logits of a whole prompt are most of the memory of a small model
    if "logits_to_keep" in inspect.signature(net.forward).parameters:
        call = {**call, "logits_to_keep": len(ids)}
    prefix = call.get("prefix")
    if prefix is not None:
        call = {key: value for key, value in call.items() if key != "prefix"}
        call["past_key_values"] = prefix.expand(len(embeddings))
    result = net(**call, output_hidden_states=True, use_cache=prefix is not None)
    hidden = result.hidden_states[-1]
    return Reading(hidden[:, : embeddings.shape[1]], hidden[:, -len(ids) :], result.logits[:, -len(ids) :])


class Outcomes(ABC):
    """Outcomes whose scores are explained, (n, outcomes). Subclasses are frozen dataclasses of their settings."""

    output: OutputKind

    @abstractmethod
    def read(self, net: Any, call: dict[str, Any], step: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the scores, (n, outcomes), and the state they are read from, (n, ...), or None for the network's default.

        Args:
            net: a network of transformers.
            call: its arguments.
            step: the explained outcome of each point, (n,).
        """


@dataclass(frozen=True)
class Continuations(Outcomes):
    """log p(continuation | prompt) = Σₜ log p(cₜ | prompt, c₁ … cₜ₋₁) of each of several continuations.

    Args:
        kind: the kind of network.
        ids: the tokens of each continuation.
        output: "log-probability", its exponential "probability", or, for single tokens, "logit".
        position: "last" for the states that the first continuation is read from, "all" for those of the whole prompt.
        at: for a masked model, the positions of the masks.
        each: whether each token of the only continuation is an outcome of its own, as the steps of a generation are.
    """

    kind: Kind
    ids: tuple[tuple[int, ...], ...]
    output: OutputKind = "log-probability"
    position: Position = "last"
    at: tuple[int, ...] = ()
    each: bool = False

    def read(self, net: Any, call: dict[str, Any], step: Tensor) -> tuple[Tensor, Tensor | None]:
        readings: dict[tuple[int, ...], Reading] = {}
        scores = []
        for ids in self.ids:
            # a masked model sees none of the tokens, and the last token is never seen
            shown = () if self.kind == "masked" else ids[:-1]
            if shown not in readings:
                readings[shown] = read_tokens(net, self.kind, ids, self.at, call)
            scores.append(_score_tokens(readings[shown].logits, ids, self.output))
        first = next(iter(readings.values()))
        state = first.hidden if self.position == "all" else first.states
        if self.each and self.position == "last":
            step = step.to(state.device)  # of a model on several devices that of its last layer
            state = state[torch.arange(len(step), device=step.device), step]
        table = scores[0] if self.each else torch.stack([tokens.sum(dim=1) for tokens in scores], dim=1)
        return table.exp() if self.output == "probability" else table, state


def _score_tokens(logits: Tensor, ids: Sequence[int], output: OutputKind) -> Tensor:
    """Return the log-probability, or the logit, of each of C tokens from logits (n, C, vocabulary), (n, C)."""
    logits = _widen(logits)
    chosen = logits.gather(2, torch.tensor(ids, device=logits.device).expand(len(logits), -1)[..., None])[..., 0]
    return chosen if output == "logit" else chosen - logits.logsumexp(dim=2)


def _widen(logits: Tensor) -> Tensor:
    """Convert logits to at least float32: log-probabilities in half precision have two digits."""
    return logits.to(working_dtype(logits.dtype))


@dataclass(frozen=True)
class Labels(Outcomes):
    """The labels of a classifier, for the text or for the token at a position.

    Args:
        output: "log-probability", its exponential "probability", or "logit".
        at: for a token classifier, the position of the word's first token, where such models are trained to predict its label.
    """

    output: OutputKind = "log-probability"
    at: int | None = None

    def read(self, net: Any, call: dict[str, Any], step: Tensor) -> tuple[Tensor, Tensor | None]:
        result = net(**call, output_hidden_states=self.at is not None)
        logits = _widen(result.logits if self.at is None else result.logits[:, self.at])
        state = None if self.at is None else result.hidden_states[-1][:, self.at]
        if self.output == "logit":
            return logits, state
        scores = nn.functional.logsigmoid(logits) if logits.shape[1] == 1 else logits.log_softmax(dim=1)
        return scores.exp() if self.output == "probability" else scores, state


@dataclass(frozen=True)
class Answers(Outcomes):
    """log p(start) + log p(end) of each of several answers, pieces of a text, in question answering.

    Args:
        spans: the first and the last token of each answer.
        output: "log-probability", its exponential "probability", or "logit", the sum of the two logits.
        ends: the ends that count: "both", "start" or "end".
    """

    spans: tuple[tuple[int, int], ...]
    output: OutputKind = "log-probability"
    ends: Literal["both", "start", "end"] = "both"

    def read(self, net: Any, call: dict[str, Any], step: Tensor) -> tuple[Tensor, Tensor | None]:
        result = net(**call, output_hidden_states=True)
        starts, lasts = (list(places) for places in zip(*self.spans, strict=True))  # as numbers, for any device
        pairs = zip((result.start_logits, result.end_logits), (starts, lasts), strict=True)
        start, end = (
            (_widen(logits) if self.output == "logit" else _widen(logits).log_softmax(dim=1))[:, at] for logits, at in pairs
        )
        scores = start if self.ends == "start" else end if self.ends == "end" else start + end
        state = result.hidden_states[-1][:, list(self.spans[0])]
        return scores.exp() if self.output == "probability" else scores, state


class Scorer(nn.Module):
    """A language model as a function from embeddings to scores of outcomes, whose state passes through the module `state`."""

    def __init__(self, net: nn.Module, outcomes: Outcomes, prefix: Prefix | None = None) -> None:
        super().__init__()
        self.net = net
        self.prefix = prefix
        self.outcomes = outcomes
        self.state = nn.Identity()
        self.training = net.training

    def forward(self, embeddings: Tensor, mask: Tensor, step: Tensor, **extra: Tensor) -> Tensor:
        call: dict[str, Any] = {"inputs_embeds": embeddings, "attention_mask": mask, **extra}
        if self.prefix is not None:
            call |= {"inputs_embeds": embeddings[:, self.prefix.length :], "prefix": self.prefix}
        scores, state = self.outcomes.read(self.net, call, step)
        if state is not None:
            self.state(state)
        return scores
