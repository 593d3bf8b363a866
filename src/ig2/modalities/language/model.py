"""Language models of transformers, with explanations of why they predict one word rather than another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ig2._utils.checks import check_count
from ig2.errors import InputError, describe
from ig2.methods import DeepSHAP, Method
from ig2.modalities.language.asking import Asking, PromptCall, pose
from ig2.modalities.language.explanation import Explanation
from ig2.modalities.language.outcomes import Kind, read_tokens
from ig2.modalities.language.prompts import Prompt, check_text, read_prompt, tokenize
from ig2.modalities.language.references import FILLERS, LikelyWords, Neighbours, TextReferences
from ig2.modalities.text.sentences import UNLIMITED
from ig2.model import Preparation
from ig2.question import Question


@dataclass(frozen=True, eq=False, repr=False)
class LanguageModel:
    """A network of transformers with its tokenizer. Created by `load`."""

    name: str
    net: Any
    tokenizer: Any
    kind: Kind
    prepare: bool | Preparation = True
    """How to speed up the network, as for `ig2.wrap`: for example `ig2.Preparation(precision="bfloat16")`."""
    reuse_prefix: bool = True
    """For a causal model, whether to run the tokens before the first that moves only once, if they are at least a quarter of
    the prompt, and reuse their keys and values at every point. The results are equal up to rounding. `settings["prefix"]` is
    the number of these tokens."""

    default_method: ClassVar[Method] = DeepSHAP()
    """The default method: the secant rule on the straight line, complete in two passes.

    On 102 minimal pairs with SmolLM2, it was the closest to Shapley values of the gradient-based methods.
    """

    default_asking: ClassVar[Asking] = Asking()
    """What is explained of an answer by default."""

    def __repr__(self) -> str:
        return f"LanguageModel({self.name!r}, {self.kind}, {len(self.table):,} tokens)"

    def to(self, device: str | torch.device) -> LanguageModel:
        """Move the network, and so the computation, to a device; a network with a `device_map` is not moved."""
        if getattr(self.net, "hf_device_map", None) is None:
            self.net.to(device)
        return self

    # -- tokens --------------------------------------------------------------------------------------------------------

    @property
    def predicts_tokens(self) -> bool:
        """Whether it predicts tokens, and not labels or answers."""
        return self.kind in ("causal", "masked", "encoder-decoder")

    @property
    def device(self) -> torch.device:
        """The device of the embeddings, and so of the inputs; if the network is on several, its last layer is on another."""
        device: torch.device = self.net.get_input_embeddings().weight.device
        return device

    @property
    def table(self) -> Tensor:
        """The embedding of each token, (vocabulary, E)."""
        weight: Tensor = self.net.get_input_embeddings().weight.detach().cpu()
        return weight

    @property
    def filler(self) -> int:
        """The token that replaces a missing word: the first of mask, pad, unk, eos and bos that the tokenizer has."""
        tokens = [getattr(self.tokenizer, f"{name}_token_id", None) for name in FILLERS]
        return next((int(token) for token in tokens if token is not None), 0)

    @property
    def limit(self) -> int | None:
        """The maximum number of tokens that the network takes; None if unknown."""
        places = getattr(self.net.config, "max_position_embeddings", None)
        # RoBERTa and its kin number positions from behind that of the padding token on
        tables = [table for name, table in self.net.named_modules() if name.endswith("position_embeddings")]
        skipped = [table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None]
        limits = [getattr(self.tokenizer, "model_max_length", None), places and places - max(skipped, default=0)]
        return min((int(limit) for limit in limits if limit and 0 < limit < UNLIMITED), default=None)

    @torch.no_grad()
    def embed(self, ids: Sequence[int]) -> Tensor:
        """Return the embeddings of tokens, (L, E)."""
        tokens = torch.tensor(list(ids), device=self.device)
        embeddings: Tensor = self.net.get_input_embeddings()(tokens).detach().cpu()
        return embeddings

    def decode(self, ids: Sequence[int]) -> str:
        """Decode tokens to text."""
        return str(self.tokenizer.decode(list(ids)))

    def read(
        self,
        prompt: Any,
        spans: Mapping[str, str] | None = None,
        documents: Sequence[Mapping[str, str]] | None = None,
    ) -> Prompt:
        """Tokenize a prompt.

        Args:
            prompt: as for `explain`; what this returned before is returned unchanged.
            spans: pieces of the prompt whose sums to show, by name; in addition to sentences, messages and documents.
            documents: the documents of a chat whose template takes them.

        Raises:
            InputError: if it is empty, or longer than the network takes.
        """
        if isinstance(prompt, Prompt):
            return prompt
        read = read_prompt(self.tokenizer, prompt, spans, documents, continues=self.kind == "causal")
        self.check_length(len(read), "the prompt")
        return read

    def read_other(self, prompt: Any, explained: Prompt) -> Prompt:
        """Tokenize a reference prompt; a chat has the documents of the explained prompt.

        Raises:
            InputError: in the cases of `read`, with a message that names the reference.
        """
        try:
            return self.read(prompt, documents=None if isinstance(prompt, (str, tuple)) else explained.documents)
        except InputError as error:
            raise InputError(f"of rather_than, {error}") from error

    def check_length(self, tokens: int, what: str) -> None:
        """Raise InputError if there are more tokens than the model takes."""
        if self.limit is not None and tokens > self.limit:
            raise InputError(f"{what} has {tokens} tokens and {self.name} takes {self.limit}: shorten it")

    # -- what the model says -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, prompt: Any, count: int = 5) -> list[tuple[str, float]]:
        """Return the most likely next tokens of a prompt, or tokens for its first mask, with their probabilities.

        Args:
            prompt: as for `explain`.
            count: the number of tokens.
        """
        check_count(count)
        self._require_tokens("predict")
        probabilities = self.next_logits(self.read(prompt)).softmax(dim=0)
        best = probabilities.topk(min(count, len(probabilities)))
        return [(self.decode([i]), float(p)) for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]

    @torch.no_grad()
    def generate(self, prompt: Any, count: int = 20) -> str:
        """Generate the continuation of a prompt, or the answer to it: the most likely token at each step.

        Args:
            prompt: as for `explain`.
            count: the maximum number of tokens.
        """
        return self.decode(self.generate_tokens(prompt, count))

    @torch.no_grad()
    def generate_tokens(self, prompt: Any, count: int = 20) -> tuple[int, ...]:
        """Generate as `generate` does, but return token ids, which `explain` accepts as its target.

        Args:
            prompt: as for `explain`.
            count: the maximum number of tokens.
        """
        check_count(count, "generate")
        prompt = self.read(prompt)
        if self.kind not in ("causal", "encoder-decoder"):
            raise InputError(f"{self.name} is a {self.kind} model, which does not generate")
        self.check_length(len(prompt) + (count if self.kind == "causal" else 0), f"the prompt with {count} tokens more")
        several = getattr(self.net.config, "eos_token_id", None)
        ends = {getattr(self.tokenizer, "eos_token_id", None), *(several if isinstance(several, (list, tuple)) else [several])}
        ids: list[int] = []
        call = self.make_call(prompt, 1)
        for _ in range(count):
            logits = read_tokens(self.net, self.kind, [*ids, 0], (), call).logits[0, -1]
            token = int(logits.argmax())
            if token in ends:
                break
            ids.append(token)
        if not ids:
            raise InputError(f"{self.name} ends at once after {describe(prompt.text)}: there is no generated token to explain")
        return tuple(ids)

    def make_call(self, prompt: Prompt, rows: int) -> dict[str, Any]:
        """Return the network's arguments for a prompt, the same in each row."""
        device = self.device
        embeddings = self.embed(prompt.ids).to(device).expand(rows, -1, -1)
        mask = torch.ones(rows, len(prompt), dtype=torch.long, device=device)
        extra = {name: torch.tensor(values, device=device).expand(rows, -1) for name, values in prompt.extra.items()}
        return {"inputs_embeds": embeddings, "attention_mask": mask, **extra}

    @torch.no_grad()
    def next_logits(self, prompt: Prompt) -> Tensor:
        """Return the logits of the next token, or of the masked one."""
        at = self.find_masks(prompt)
        return read_tokens(self.net, self.kind, [0], at, self.make_call(prompt, 1)).logits[0, 0].float().cpu()

    @torch.no_grad()
    def predict_tokens(self, prompt: Prompt) -> Tensor:
        """Return the logits that the model predicts at each position that is not fixed, (positions, vocabulary).

        A causal model predicts each token from those before it, the very first from the token for the beginning, or the end,
        of a text. A masked model predicts each token from all others.

        Raises:
            InputError: if the model does not predict its input.
        """
        positions = prompt.positions
        if self.kind == "causal":
            starts = [getattr(self.tokenizer, f"{name}_token_id", None) for name in ("bos", "eos")]
            start = next((token for token in starts if token is not None), self.filler)
            ids = [start, *prompt.ids[:-1]]
            result = self.net(inputs_embeds=self.embed(ids)[None].to(self.device), use_cache=False)
            logits: Tensor = result.logits[0, positions].float().cpu()
            return logits
        if self.kind == "masked":
            call = self.make_call(prompt, len(positions))
            embeddings = call["inputs_embeds"].clone()
            rows = torch.arange(len(positions))
            embeddings[rows, positions] = self.embed([self.tokenizer.mask_token_id])[0].to(embeddings)
            result = self.net(**{**call, "inputs_embeds": embeddings})
            expected: Tensor = result.logits[rows, positions].float().cpu()
            return expected
        raise InputError(
            f"{self.name} is a {self.kind} model, which does not say what it expects in its input: use "
            "ig2.modalities.language.Neighbours(), or a prompt of your own"
        )

    def find_masks(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the positions of the masks in the prompt of a masked model."""
        if self.kind != "masked":
            return ()
        mask = self.tokenizer.mask_token_id
        places = tuple(i for i, token in enumerate(prompt.ids) if token == mask)
        if not places:
            raise InputError(f"{self.name} fills in {self.tokenizer.mask_token}: the prompt {describe(prompt.text)} has none")
        return places

    def _require_tokens(self, what: str) -> None:
        if not self.predicts_tokens:
            raise InputError(f"{what} is for models that predict tokens, {self.name} is a {self.kind} model")

    # -- targets -------------------------------------------------------------------------------------------------------

    def read_target(self, prompt: Prompt, target: str | Sequence[int], name: str = "target") -> tuple[int, ...]:
        """Return the tokens of a continuation as they would follow the prompt."""
        if isinstance(target, (list, tuple)) and target and all(isinstance(token, int) for token in target):
            size = self.net.get_input_embeddings().weight.shape[0]
            if not all(0 <= token < size for token in target):
                raise InputError(f"{name} has tokens that {self.name} does not know: {describe(target)}, there are {size}")
            return tuple(map(int, target))
        if not isinstance(target, str) or not target:
            raise InputError(f"{name} must be a text to come next, such as ' Paris', got {describe(target)}")
        check_text(target)
        if self.kind == "causal":
            special = bool(prompt.offsets) and not prompt.word[0] >= 0 and not prompt.tokens[0]
            joint = tokenize(self.tokenizer, prompt.text + target, add_special_tokens=special).ids
            if special and joint and joint[-1] == getattr(self.tokenizer, "eos_token_id", None):
                joint = joint[:-1]
            ids = tuple(joint[len(prompt) :]) if tuple(joint[: len(prompt)]) == prompt.ids else ()
        else:
            ids = ()
        ids = ids or tuple(self.tokenizer(target, add_special_tokens=False)["input_ids"])
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if not ids or (unknown in ids and self.decode([unknown]) not in target):
            raise InputError(f"{name} {target!r} has no tokens that {self.name} knows: choose another word")
        return ids

    # -- explanations --------------------------------------------------------------------------------------------------

    def explain(
        self,
        prompt: Any,
        target: str | Sequence[int] | None = None,
        against: Any = "auto",
        rather_than: Any = None,
        method: Method | None = None,
        *,
        asking: Asking | None = None,
        seed: int = 0,
        **options: Any,
    ) -> Explanation:
        """Explain why the model predicts one outcome rather than another.

        The explained output is log p(target | prompt) = Σₜ log p(cₜ | prompt, c₁ … cₜ₋₁), minus that of `against`.
        Special tokens and the markup of a chat are fixed: they do not move, and have no share.

        Args:
            prompt: a text; the messages of a chat, [{"role": "user", "content": …}]; or (first, second) for a model of two
                texts; or what `read` returned, with spans and documents. For a masked model, it contains the mask.
            target: the next token with its leading space, such as " Paris", or a longer continuation, also as tokens, such as
                `generate_tokens(prompt)`; for a classifier, a label; for question answering, a piece of the second text. By
                default the model's prediction.
            against: the outcome to subtract: another target, several, "next" for the runner-up, or None. By default, for a
                model that predicts tokens, its prediction for the pair of `rather_than` if that is another token, otherwise
                None; for a classifier, the runner-up.
            rather_than: the reference prompt: a minimal pair, several, or a strategy such as `LikelyWords()`, see
                `ig2.modalities.language.references`. By default `LikelyWords()` for causal and masked models, otherwise
                `Neighbours()`; for methods with a baseline by convention no words, `Filler()`.
            method: the method, by default `DeepSHAP()`; `IG2(distance=ig2.paths.cosine)` for IG².
            asking: what of the answer is explained, such as `Asking(each=True)` for a row of each token.
            seed: the random seed.
            options: options of the method's call, such as `curves=True`.

        Returns:
            The explanation: `attribution`, scores of tokens, words and spans, a sentence, and views.

        Raises:
            InputError: if the prompt, the target or an option is not valid.
            ModelError: if the network cannot be run.
        """
        rather_than = options.pop("references", rather_than)
        return self.pose(prompt, target, against, rather_than, method, asking=asking, seed=seed).explain(**options)

    def pose(
        self,
        prompt: Any,
        target: str | Sequence[int] | None = None,
        against: Any = "auto",
        rather_than: Any = None,
        method: Method | None = None,
        *,
        asking: Asking | None = None,
        seed: int = 0,
    ) -> PromptCall:
        """Return the call that `explain` makes of these arguments: its `cost()` is known before its `explain()`."""
        question = Question(target, against, rather_than, seed=seed)
        return pose(self, question, method or self.default_method, prompt, asking or self.default_asking)

    @property
    def default_references(self) -> TextReferences:
        """The default references, if no `rather_than` is given."""
        return LikelyWords() if self.kind in ("causal", "masked") else Neighbours()
