"""Language models of transformers, with explanations of why they predict one word rather than another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ig2._engine.inputs import Fixed, working_dtype
from ig2._utils.checks import check_count
from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe
from ig2.methods import DeepSHAP, Method, PathMethod
from ig2.modalities.language.explanation import Explanation
from ig2.modalities.language.outcomes import (
    Answers,
    Continuations,
    Kind,
    Labels,
    Outcomes,
    OutputKind,
    Position,
    Scorer,
    Steps,
    read_tokens,
)
from ig2.modalities.language.prefix import Prefix, run_prefix
from ig2.modalities.language.prompts import Prompt, check_text, cut_text, read_prompt
from ig2.modalities.language.references import FILLERS, LikelyWords, Neighbours, Pairs, TextReferences, as_text_references
from ig2.modalities.text.sentences import UNLIMITED, are_close
from ig2.model import Model, Preparation, wrap
from ig2.names import Names
from ig2.paths import GradPath, Straight, UniformWords
from ig2.result import Cost

# Of the tokens of a prompt, the share in front of the first that moves from which they are run once and for all. Less saves
# less than the checks and another attention kernel may cost.
WORTH_REUSING = 0.25


@dataclass(frozen=True, eq=False, repr=False)
class LanguageModel:
    """A network of transformers with its tokenizer. Created by `load`."""

    name: str
    net: Any
    tokenizer: Any
    kind: Kind

    default_method: ClassVar[Method] = DeepSHAP()
    """The default method: the secant rule on the straight line, complete in two passes.

    On 102 minimal pairs with SmolLM2, it was the closest to Shapley values of the gradient-based methods.
    """

    def __repr__(self) -> str:
        return f"LanguageModel({self.name!r}, {self.kind}, {len(self.table):,} tokens)"

    def to(self, device: str | torch.device) -> LanguageModel:
        """Move the network, and so the computation, to a device; a network with a `device_map` is not moved."""
        if getattr(self.net, "hf_device_map", None) is None:
            self.net.to(device)
        return self

    # -- tokens --------------------------------------------------------------------------------------------------------

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
        """Tokenize a prompt; see `explain`.

        Raises:
            InputError: if it is empty, or longer than the network takes.
        """
        read = read_prompt(self.tokenizer, prompt, spans, documents, continues=self.kind == "causal")
        self._check_length(len(read), "the prompt")
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

    def _check_length(self, tokens: int, what: str) -> None:
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
        probabilities = self._next_logits(prompt if isinstance(prompt, Prompt) else self.read(prompt)).softmax(dim=0)
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
        """Generate as `generate` does, but return token ids, which `explain(prompt, generate=…)` accepts.

        Args:
            prompt: as for `explain`.
            count: the maximum number of tokens.
        """
        check_count(count, "generate")
        prompt = prompt if isinstance(prompt, Prompt) else self.read(prompt)
        if self.kind not in ("causal", "encoder-decoder"):
            raise InputError(f"{self.name} is a {self.kind} model, which does not generate")
        self._check_length(len(prompt) + (count if self.kind == "causal" else 0), f"the prompt with {count} tokens more")
        several = getattr(self.net.config, "eos_token_id", None)
        ends = {getattr(self.tokenizer, "eos_token_id", None), *(several if isinstance(several, (list, tuple)) else [several])}
        ids: list[int] = []
        call = self._call(prompt, 1)
        for _ in range(count):
            logits = read_tokens(self.net, self.kind, [*ids, 0], (), call).logits[0, -1]
            token = int(logits.argmax())
            if token in ends:
                break
            ids.append(token)
        if not ids:
            raise InputError(f"{self.name} ends at once after {describe(prompt.text)}: there is no generated token to explain")
        return tuple(ids)

    def _call(self, prompt: Prompt, rows: int) -> dict[str, Any]:
        """Return the network's arguments for a prompt, the same in each row."""
        device = self.device
        embeddings = self.embed(prompt.ids).to(device).expand(rows, -1, -1)
        mask = torch.ones(rows, len(prompt), dtype=torch.long, device=device)
        extra = {name: torch.tensor(values, device=device).expand(rows, -1) for name, values in prompt.extra.items()}
        return {"inputs_embeds": embeddings, "attention_mask": mask, **extra}

    @torch.no_grad()
    def _next_logits(self, prompt: Prompt) -> Tensor:
        at = self._find_masks(prompt)
        return read_tokens(self.net, self.kind, [0], at, self._call(prompt, 1)).logits[0, 0].float().cpu()

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
            call = self._call(prompt, len(positions))
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

    def _find_masks(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the positions of the masks in the prompt of a masked model."""
        if self.kind != "masked":
            return ()
        mask = self.tokenizer.mask_token_id
        places = tuple(i for i, token in enumerate(prompt.ids) if token == mask)
        if not places:
            raise InputError(f"{self.name} fills in {self.tokenizer.mask_token}: the prompt {describe(prompt.text)} has none")
        return places

    def _require_tokens(self, what: str) -> None:
        if self.kind not in ("causal", "masked", "encoder-decoder"):
            raise InputError(f"{what} is for models that predict tokens, {self.name} is a {self.kind} model")

    # -- targets -------------------------------------------------------------------------------------------------------

    def _read_target(self, prompt: Prompt, target: str, name: str = "target") -> tuple[int, ...]:
        """Return the tokens of a continuation as they would follow the prompt."""
        if not isinstance(target, str) or not target:
            raise InputError(f"{name} must be a text to come next, such as ' Paris', got {describe(target)}")
        check_text(target)
        if self.kind == "causal":
            special = bool(prompt.offsets) and not prompt.word[0] >= 0 and not prompt.tokens[0]
            joint = cut_text(self.tokenizer, prompt.text + target, add_special_tokens=special)[0]
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

    def _check_tokens(self, ids: object) -> tuple[int, ...]:
        size = self.net.get_input_embeddings().weight.shape[0]
        if not isinstance(ids, Sequence) or not ids or not all(isinstance(i, int) and 0 <= i < size for i in ids):
            raise InputError(f"generate must be a number of tokens, or what generate_tokens returned, got {describe(ids)}")
        return tuple(ids)

    def _ask_tokens(
        self,
        prompt: Prompt,
        target: str | None,
        against: str | Sequence[str] | None,
        generate: int | Sequence[int] | None,
        each: bool,
        pair: Any,
        output: OutputKind,
        position: Position,
    ) -> tuple[Outcomes, list[str], list[int], Any]:
        """Return the question to a model that predicts tokens: outcomes, their names, the target of each row, and against."""
        if generate is not None or each:
            self._refuse("each step is explained", against=None if against == "auto" else against)
            if generate is not None:
                self._refuse("generate= makes it", target=target)
            elif target is None or self.kind == "masked":
                raise InputError("each=True is for a target of a causal or encoder–decoder model: give one, or generate=")
            if generate is None:
                ids = self._read_target(prompt, target or "")
            else:
                ids = self.generate_tokens(prompt, generate) if isinstance(generate, int) else self._check_tokens(generate)
            self._check_length(len(prompt) + (len(ids) - 1 if self.kind == "causal" else 0), "the prompt with its target")
            steps = Steps(self.kind, ids, output, position)
            return steps, [repr(self.decode([token])) for token in ids], list(range(len(ids))), None
        masks = self._find_masks(prompt)
        chosen = [self._read_target(prompt, target)] if target is not None else [self._most_likely(prompt, len(masks) or 1)]
        if against == "auto":
            has_pair = pair is not None and len(chosen[0]) == 1
            expected = self._most_likely(self.read_other(pair, prompt), 1) if has_pair else chosen[0]
            others = [expected] if expected != chosen[0] else []
        elif against == "next":
            if len(chosen[0]) > 1:
                raise InputError("against='next' is for a target of a single token: give the other continuation itself")
            logits = self._next_logits(prompt)
            logits[chosen[0][0]] = -torch.inf
            others = [(int(logits.argmax()),)]
        else:
            others = list(dict.fromkeys(self._read_target(prompt, text, "against") for text in _list_texts(against)))
        ids_of = [*chosen, *others]
        if chosen[0] in others:
            raise InputError(f"against names the target {self.decode(chosen[0])!r} itself: choose another")
        if masks and any(len(ids) != len(masks) for ids in ids_of):
            counts = [len(ids) for ids in ids_of]
            raise InputError(f"the prompt has {len(masks)} masks and the targets have {counts} tokens: give one mask for each")
        if output == "logit" and any(len(ids) > 1 for ids in ids_of):
            raise InputError("output='logit' is for single tokens, and a target has several: use 'log-probability'")
        if self.kind == "causal":
            self._check_length(len(prompt) + max(map(len, ids_of)) - 1, "the prompt with its target")
        names = [repr(self.decode(ids)) for ids in ids_of]
        outcomes = Continuations(self.kind, tuple(ids_of), output, position, masks)
        return outcomes, names, [0], [list(range(1, len(ids_of)))] if others else None

    @torch.no_grad()
    def _most_likely(self, prompt: Prompt, count: int) -> tuple[int, ...]:
        if count == 1:
            return (int(self._next_logits(prompt).argmax()),)
        logits = read_tokens(self.net, self.kind, [0] * count, self._find_masks(prompt), self._call(prompt, 1)).logits
        return tuple(logits[0].argmax(dim=1).tolist())

    @staticmethod
    def _refuse(reason: str, **options: Any) -> None:
        for name, value in options.items():
            if value is not None:
                raise InputError(f"{name}={describe(value)} cannot be used here, since {reason}: omit it")

    def _ask_labels(
        self, prompt: Prompt, target: Any, against: Any, at: str | None, output: OutputKind
    ) -> tuple[Outcomes, list[str], list[int], Any]:
        """Return the question to a classifier of texts or of tokens."""
        config, place = self.net.config, None
        if self.kind == "token-classifier":
            if at is None:
                raise InputError("a token classifier needs at=, the word whose label is explained")
            place = prompt.find_tokens(at)[0]
        count = int(config.num_labels)
        labels = [str((config.id2label or {}).get(i, f"class {i}")) for i in range(count)]
        if count == 1 or getattr(config, "problem_type", None) in ("regression", "multi_label_classification"):
            output = "logit"
        outcomes = Labels(output, place)

        def index(wanted: object) -> int:
            if isinstance(wanted, int) and 0 <= wanted < count:
                return wanted
            names = [label.lower() for label in labels]
            if str(wanted).lower() in names:
                return names.index(str(wanted).lower())
            raise InputError(f"the model has no class {wanted!r}{suggest(str(wanted), labels, 3, 'it has')}")

        best = self._score(prompt, outcomes).argsort(descending=True).tolist()
        chosen = best[0] if target is None else index(target)
        if against in ("auto", "next"):
            against = None if count == 1 else next(i for i in best if i != chosen)
        listed = [] if against is None else list(against) if isinstance(against, (list, tuple)) else [against]
        return outcomes, labels, [chosen], [[index(item) for item in listed]] if listed else None

    def _ask_answers(
        self, prompt: Prompt, target: Any, against: Any, ends: Literal["both", "start", "end"], output: OutputKind
    ) -> tuple[Outcomes, list[str], list[int], Any]:
        """Return the question to a model that answers with a piece of a text."""
        if not prompt.part:
            raise InputError("question answering takes a prompt (question, text)")
        if 1 not in prompt.part:
            raise InputError("the text of (question, text) is empty: there is no answer in it")
        if ends not in ("both", "start", "end"):
            raise InputError(f"ends={ends!r} is unknown: use 'both', 'start' or 'end'")
        if target is None:
            with torch.no_grad():
                result = self.net(**self._call(prompt, 1))
            inside = torch.tensor([part == 1 for part in prompt.part], device=result.start_logits.device)
            start = int(result.start_logits[0].masked_fill(~inside, -torch.inf).argmax())
            later = inside & (torch.arange(len(prompt), device=inside.device) >= start)
            places = [(start, int(result.end_logits[0].masked_fill(~later, -torch.inf).argmax()))]
            names = [repr("".join(prompt.tokens[places[0][0] : places[0][1] + 1]).strip())]
        else:
            first, end = prompt.find_tokens(str(target), part=1)
            places, names = [(first, end - 1)], [repr(target)]
        texts = _list_texts(None if against == "auto" else against)
        for text in texts:
            first, end = prompt.find_tokens(text, part=1)
            if (first, end - 1) in places:
                raise InputError(f"against names the answer {text!r} itself, or one twice: choose another")
            places.append((first, end - 1))
            names.append(repr(text))
        return Answers(tuple(places), output, ends), names, [0], [list(range(1, len(places)))] if texts else None

    def _score(self, prompt: Prompt, outcomes: Outcomes) -> Tensor:
        """Return the scores of outcomes for a prompt, (outcomes,)."""
        call = self._call(prompt, 1)
        with torch.no_grad():
            return outcomes.read(self.net, call, torch.zeros(1, dtype=torch.long, device=self.device))[0][0].cpu()

    # -- explanations --------------------------------------------------------------------------------------------------

    def explain(
        self,
        prompt: Any,
        target: Any = None,
        against: Any = "auto",
        rather_than: Any = None,
        method: Method | None = None,
        *,
        generate: int | Sequence[int] | None = None,
        each: bool = False,
        at: str | None = None,
        ends: Literal["both", "start", "end"] = "both",
        output: OutputKind = "log-probability",
        position: Position = "last",
        confine: bool = True,
        spans: Mapping[str, str] | None = None,
        documents: Sequence[Mapping[str, str]] | None = None,
        seed: int = 0,
        prepare: bool | Preparation = True,
        reuse_prefix: bool = True,
        **options: Any,
    ) -> Explanation:
        """Explain why the model predicts one outcome rather than another.

        The explained output is log p(target | prompt) = Σₜ log p(cₜ | prompt, c₁ … cₜ₋₁), minus that of `against`.
        Special tokens and the markup of a chat are fixed: they do not move, and have no share.

        Args:
            prompt: a text; the messages of a chat, [{"role": "user", "content": …}]; or (first, second) for a model of two
                texts. For a masked model, it contains the mask.
            target: the next token with its leading space, such as " Paris", or a longer continuation; for a classifier, a
                label; for question answering, a piece of the second text. By default the model's prediction.
            against: the outcome to subtract: another target, several, "next" for the runner-up, or None. By default, for a
                model that predicts tokens, its prediction for the pair of `rather_than` if that is another token, otherwise
                None; for a classifier, the runner-up.
            rather_than: the reference prompt: a minimal pair, several, or a strategy such as `LikelyWords()`, see
                `ig2.modalities.language.references`. By default `LikelyWords()` for causal and masked models, otherwise
                `Neighbours()`.
            method: the method, by default `DeepSHAP()`; `IG2(distance=ig2.paths.cosine)` for IG².
            generate: the number of tokens to generate and explain instead of a target, a row for each; or the tokens, as
                returned by `generate_tokens`.
            each: whether to explain each token of the target, a row for each, instead of their sum.
            at: for a token classifier, the word whose label is explained.
            ends: for question answering, the ends of the answer that count.
            output: "log-probability", "probability", or, for a single token, "logit".
            position: where GradPath measures distances: "last" for the states that the target is read from, "all" for the
                states of the whole prompt.
            confine: whether paths stay in the box spanned by the prompt and its references, feature by feature.
            spans: pieces of the prompt whose sums to show, by name; in addition to sentences, messages and documents.
            documents: the documents of a chat whose template takes them.
            seed: the random seed.
            prepare: how to speed up the network, as for `ig2.wrap`: for example `ig2.Preparation(precision="bfloat16")`.
            reuse_prefix: for a causal model, whether to run the tokens before the first that moves only once, if they are at
                least a quarter of the prompt, and reuse their keys and values at every point. The results are equal up to
                rounding. `settings["prefix"]` is the number of these tokens.
            options: options of the method's call, such as `curves=True`.

        Returns:
            The explanation: `attribution`, scores of tokens, words and spans, a sentence, and views.

        Raises:
            InputError: if the prompt, the target or an option is not valid.
            ModelError: if the network cannot be run.
        """
        call = self._plan(
            prompt, target, against, rather_than, method, generate=generate, each=each, at=at, ends=ends, output=output,
            position=position, confine=confine, spans=spans, documents=documents, prepare=prepare, reuse_prefix=reuse_prefix,
        )  # fmt: skip
        samples = options.pop("references", call.references)
        attribution = call.method(call.model, call.x, call.targets, samples, against=call.others, seed=seed, **options)
        attribution.settings.update(call.settings)
        read, rows = call.prompt, len(attribution)
        labelled = Names(
            "words", (read.text,) * rows, tuple(call.names), "classes", units=(read.words,) * rows, groups=(read.word,) * rows
        )
        note = "; ".join(filter(None, (call.note, attribution.note)))
        return Explanation(replace(attribution, names=labelled, note=note), read)

    def estimate(self, prompt: Any, *asked: Any, batch_size: int | Literal["auto"] = "auto", **options: Any) -> Cost:
        """Estimate the seconds, batch size and bytes that `explain` would need with these arguments, from a few passes.

        Args:
            prompt: as for `explain`.
            asked: as for `explain`: target, against, rather_than, method.
            batch_size: the number of points in each batch.
            options: as for `explain`, except those of the method's call.

        Raises:
            InputError: in the cases of `explain`, and for a method without a path.
        """
        call = self._plan(prompt, *asked, **options)
        if not isinstance(call.method, PathMethod):
            raise InputError(
                f"{type(call.method).__name__} follows no path, and has no estimate: explain a shorter prompt first"
            )
        return call.method.estimate(
            call.model, call.x, call.references, target=call.targets, against=call.others, batch_size=batch_size
        )

    def _plan(
        self,
        prompt: Any,
        target: Any = None,
        against: Any = "auto",
        rather_than: Any = None,
        method: Method | None = None,
        *,
        generate: int | Sequence[int] | None = None,
        each: bool = False,
        at: str | None = None,
        ends: Literal["both", "start", "end"] = "both",
        output: OutputKind = "log-probability",
        position: Position = "last",
        confine: bool = True,
        spans: Mapping[str, str] | None = None,
        documents: Sequence[Mapping[str, str]] | None = None,
        prepare: bool | Preparation = True,
        reuse_prefix: bool = True,
    ) -> _Plan:
        """Return the arguments with which `explain` calls the method."""
        if output not in ("log-probability", "logit", "probability"):
            raise InputError(f"output={output!r} is unknown: use 'log-probability', 'logit' or 'probability'")
        if method is not None and not isinstance(method, Method):
            raise InputError(f"method must be a method such as ig2.IG2(), got {describe(method)}")
        if position not in ("last", "all"):
            raise InputError(f"position={position!r} is unknown: use 'last' or 'all'")
        read = self.read(prompt, spans, documents)
        strategy = self.default_references if rather_than is None else as_text_references(rather_than)
        pair = strategy.prompts[0] if isinstance(strategy, Pairs) and len(strategy.prompts) == 1 else None
        if self.kind not in ("causal", "masked", "encoder-decoder"):
            self._refuse(f"{self.name} is a {self.kind} model, which predicts no tokens", generate=generate, each=each or None)
        if self.kind != "token-classifier":
            self._refuse(f"{self.name} is a {self.kind} model, and words have labels of a token-classifier alone", at=at)
        if self.kind == "question-answering":
            question = self._ask_answers(read, target, against, ends, output)
        elif self.kind in ("classifier", "token-classifier"):
            question = self._ask_labels(read, target, against, at, output)
        else:
            question = self._ask_tokens(read, target, against, generate, each, pair, output, position)
        outcomes, names, targets, others = question
        ids = None
        if isinstance(outcomes, Steps):
            ids = list(outcomes.ids)
        elif isinstance(outcomes, Continuations) and len(outcomes.ids[0]) == 1:
            ids = list(outcomes.ids[0])
        drawn = strategy.draw(self, read)
        settings: dict[str, Any] = {
            "lm": self.name,
            "lm_kind": self.kind,
            **({} if ids is None else {"target_ids": ids}),
            "tokens": list(read.tokens),
            "spans": [[span.name, span.start, span.end] for span in read.spans],
            "output": outcomes.output,
            "rather_than": list(drawn.texts),
            "reference_kind": strategy.label,
            "question": strategy.question,
        }
        if pair is not None and isinstance(outcomes, Continuations) and self.kind in ("causal", "encoder-decoder"):
            pair_scores = self._score(self.read_other(pair, read), outcomes)
            settings["pair_output"] = float(pair_scores[0] - pair_scores[1:].mean()) if others else float(pair_scores[0])
        method = method or self.default_method
        embeddings = self.embed(read.ids)
        fixed = torch.tensor([word < 0 for word in read.word])
        references = torch.where(fixed[:, None], embeddings, drawn.embeddings.to(embeddings))
        if bool((references == embeddings).all()):
            raise InputError(f"the references are the prompt {describe(read.text)} itself: contrast it with another")
        bounds = None
        if confine:
            corners = torch.cat([embeddings[None], references]).to(working_dtype(embeddings.dtype))
            bounds = (corners.amin(dim=0), corners.amax(dim=0))
        prefix = None
        if reuse_prefix and self.kind == "causal" and position == "last":
            still = fixed | (references == embeddings).all(dim=2).all(dim=0) if _stays_between(method, confine) else fixed
            prefix = self._run_prefix(read, outcomes, references, still)
        if prefix is not None:
            settings["prefix"] = prefix.length
        has_state = not (isinstance(outcomes, Labels) and outcomes.at is None)
        scorer = Scorer(self.net, outcomes, prefix)
        model = wrap(scorer, "state" if has_state else None, "logit", bounds, prepare=prepare)
        rows = len(targets)
        call = {name: Fixed(value) for name, value in self._call(read, rows).items() if name not in ("inputs_embeds",)}
        x = {
            "embeddings": Fixed(embeddings.expand(rows, -1, -1).contiguous(), where=fixed.expand(rows, -1)),
            "mask": call.pop("attention_mask"),
            "step": Fixed(torch.tensor(targets)),
            **call,
        }
        samples = {"embeddings": references.expand(rows, -1, -1, -1)}
        return _Plan(read, method, model, x, targets, samples, others, names, settings, drawn.note)

    def _run_prefix(self, prompt: Prompt, outcomes: Outcomes, references: Tensor, still: Tensor) -> Prefix | None:
        """Run the tokens before the first that moves; None if reusing them saves little or changes the outputs."""
        length = int((~still).int().argmax())
        if length < WORTH_REUSING * len(prompt) or prompt.extra:
            return None
        device = self.device
        prefix = run_prefix(self.net, self.embed(prompt.ids[:length]).to(device))
        if prefix is None:
            return None
        call, step = self._call(prompt, 1), torch.zeros(1, dtype=torch.long, device=device)
        points = call["inputs_embeds"], references[:1].to(call["inputs_embeds"])
        for point in points:  # a network that attends both ways, or counts positions from the end, would differ
            whole, rest = ({**call, "inputs_embeds": point}, {**call, "inputs_embeds": point[:, length:], "prefix": prefix})
            with torch.no_grad():
                expected, reused = (outcomes.read(self.net, each, step)[0] for each in (whole, rest))
            if not are_close(reused, expected):
                return None
        return prefix

    @property
    def default_references(self) -> TextReferences:
        """The default references, if no `rather_than` is given."""
        return LikelyWords() if self.kind in ("causal", "masked") else Neighbours()


@dataclass(frozen=True, eq=False)
class _Plan:
    """The arguments of a method's call, and its settings."""

    prompt: Prompt
    method: Method
    model: Model
    x: dict[str, Any]
    targets: list[int]
    references: dict[str, Tensor]
    others: Any
    names: list[str]
    settings: dict[str, Any]
    note: str


def _list_texts(against: Any) -> list[str]:
    """Return `against` as a list of texts."""
    texts = [] if against is None else list(against) if isinstance(against, (list, tuple)) else [against]
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"against must be a text, such as ' Rome', or several, got {describe(against)}")
    return texts


def _stays_between(method: Method, confine: bool) -> bool:
    """Return whether a method never moves positions at which all references agree with the prompt."""
    if not isinstance(method, PathMethod):
        return False
    return isinstance(method.path, (Straight, UniformWords)) or (confine and isinstance(method.path, GradPath))
