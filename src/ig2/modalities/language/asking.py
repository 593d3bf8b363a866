"""Questions to language models: from a prompt, and what is asked of it, to the call of a method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ig2._engine.explicands import working_dtype
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.inputs import Fixed
from ig2.methods import Method, PathMethod
from ig2.modalities.base import find_class
from ig2.modalities.language.explanation import Explanation
from ig2.modalities.language.outcomes import (
    Answers,
    Continuations,
    Labels,
    Outcomes,
    OutputKind,
    Position,
    Scorer,
    read_tokens,
)
from ig2.modalities.language.prefix import Prefix, run_prefix
from ig2.modalities.language.prompts import Prompt
from ig2.modalities.language.references import (
    Drawn,
    Filler,
    MinimalPairs,
    TextReferences,
    as_text_references,
)
from ig2.modalities.text.sentences import are_close
from ig2.model import wrap
from ig2.names import Names
from ig2.paths import GradPath, Straight, UniformWords
from ig2.question import Call, Question
from ig2.result import Cost

if TYPE_CHECKING:
    from ig2.modalities.language.model import LanguageModel

# Of the tokens of a prompt, the share in front of the first that moves from which they are run once
# and for all. Less saves less than the checks and another attention kernel may cost.
WORTH_REUSING = 0.25


@dataclass(frozen=True)
class Asking:
    """What of a model's answer is explained, and where paths may go."""

    each: bool = False
    """Whether to explain each token of the target, a row for each, instead of their sum."""
    at: str | None = None
    """For a token classifier, the word whose label is explained."""
    ends: Literal["both", "start", "end"] = "both"
    """For question answering, the ends of the answer that count."""
    output: OutputKind = "log-probability"
    """"log-probability", "probability", or, for a single token, "logit"."""
    position: Position = "last"
    """Where GradPath measures distances: "last" for the states that the target is read from, "all" for the states of the whole
    prompt."""
    confine: bool = True
    """Whether paths stay in the box spanned by the prompt and its references, feature by feature."""

    def __post_init__(self) -> None:
        for name, known in (
            ("output", ("log-probability", "logit", "probability")),
            ("position", ("last", "all")),
            ("ends", ("both", "start", "end")),
        ):
            value = getattr(self, name)
            if value not in known:
                choices = " or ".join(map(repr, known))
                raise InputError(f"{name}={describe(value)} is unknown: use {choices}")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What is explained of a model's answer: with a row for each target."""

    outcomes: Outcomes
    names: list[str]
    targets: list[int]
    against: list[list[int]] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class PromptCall(Call):
    """A call of a method that answers a question to a language model."""

    prompt: Prompt
    names: list[str]
    settings: dict[str, Any]
    note: str = ""
    """What is to be said of the references."""

    def name(self, attribution: Attribution) -> Attribution:
        """Return what the method found with the names of words and outcomes."""
        attribution.settings.update(self.settings)
        read, rows = self.prompt, len(attribution)
        units, groups = (read.words,) * rows, (read.word,) * rows
        names = Names("words", (read.text,) * rows, tuple(self.names), units=units, groups=groups)
        note = "; ".join(filter(None, (self.note, attribution.note)))
        return replace(attribution.with_names(names), note=note)

    def explain(self, **options: Any) -> Explanation:
        """Return the explanation; `options` are those of the method's call, such as `curves=True`."""
        return Explanation(self(**options), self.prompt)

    def cost(self, batch_size: int | Literal["auto"] = "auto") -> Cost:
        """Estimate the seconds, batch size and bytes that `explain` needs, from a few passes.

        Raises:
            InputError: for a method without a path.
        """
        if not isinstance(self.method, PathMethod):
            raise InputError(
                f"{type(self.method).__name__} follows no path, and has no estimate: explain a shorter prompt first"
            )
        asked = {"target": self.target, "against": self.against}
        return self.method.estimate(self.model, self.x, self.references, **asked, batch_size=batch_size)


def pose(lm: LanguageModel, question: Question, method: Method, prompt: Any, asking: Asking) -> PromptCall:
    """Return the call of a method that answers a question.

    Args:
        lm: the model.
        question: its target and against are outcomes in words, its references prompts or a strategy
            of `ig2.modalities.language`.
        method: the method.
        prompt: the prompt, as for `LanguageModel.explain`.
        asking: what is explained of the model's answer.

    Raises:
        InputError: if the prompt or the question is not valid.
    """
    if not isinstance(method, Method):
        raise InputError(f"method must be a method such as ig2.IG2(), got {describe(method)}")
    read = lm.read(prompt)
    strategy = _find_strategy(lm, question.references, method)
    pair = strategy.prompts[0] if isinstance(strategy, MinimalPairs) and len(strategy.prompts) == 1 else None
    outcome = _find_outcome(lm, read, question, asking, pair)
    drawn = None if strategy is None else strategy.draw(lm, read)
    settings = _describe(lm, read, outcome, strategy, drawn)
    is_sum = isinstance(outcome.outcomes, Continuations) and not outcome.outcomes.each
    if pair is not None and is_sum and lm.kind != "masked":
        scores = score(lm, lm.read_other(pair, read), outcome.outcomes)
        margin = scores[0] - scores[1:].mean() if outcome.against else scores[0]
        settings["pair_output"] = float(margin)
    embeddings = lm.embed(read.ids)
    fixed = torch.tensor([word < 0 for word in read.word])
    references, bounds = None, None
    if drawn is not None:
        references = torch.where(fixed[:, None], embeddings, drawn.embeddings.to(embeddings))
        if bool((references == embeddings).all()):
            raise InputError(f"the references are the prompt {describe(read.text)} itself: contrast it with another")
        if asking.confine:
            corners = torch.cat([embeddings[None], references])
            corners = corners.to(working_dtype(embeddings.dtype))
            bounds = (corners.amin(dim=0), corners.amax(dim=0))
    still = fixed
    if references is not None and _stays_between(method, asking.confine):
        still = fixed | (references == embeddings).all(dim=2).all(dim=0)
    prefix = None
    if lm.reuse_prefix and lm.kind == "causal" and asking.position == "last":
        prefix = _run_prefix(lm, read, outcome.outcomes, references, still)
    if prefix is not None:
        settings["prefix"] = prefix.length
    has_state = not (isinstance(outcome.outcomes, Labels) and outcome.outcomes.at is None)
    scorer, state = Scorer(lm.net, outcome.outcomes, prefix), "state" if has_state else None
    rows = len(outcome.targets)
    call = {name: Fixed(value) for name, value in lm.make_call(read, rows).items() if name != "inputs_embeds"}
    moving = embeddings.expand(rows, -1, -1).contiguous()
    x = {
        "embeddings": Fixed(moving, where=fixed.expand(rows, -1)),
        "mask": call.pop("attention_mask"),
        "step": Fixed(torch.tensor(outcome.targets)),
        **call,
    }
    samples = question.references if isinstance(question.references, dict) else None
    if references is not None:
        samples = {"embeddings": references.expand(rows, -1, -1, -1)}
    return PromptCall(
        method,
        wrap(scorer, state, "logit", bounds, prepare=lm.prepare),
        x,
        outcome.targets,
        outcome.against,
        samples,
        question,
        prompt=read,
        names=outcome.names,
        settings=settings,
        note="" if drawn is None else drawn.note,
    )


# -- references ------------------------------------------------------------------------------------


def _find_strategy(lm: LanguageModel, wanted: Any, method: Method) -> TextReferences | None:
    """Return what references are drawn by: as asked, otherwise what the method needs."""
    if isinstance(wanted, dict):  # embeddings, as methods take them
        return None
    if wanted is not None:
        return as_text_references(wanted)
    if method.needs_references:
        return lm.default_references
    return Filler() if method.default_references is not None else None  # no words


def _describe(
    lm: LanguageModel,
    read: Prompt,
    outcome: Outcome,
    strategy: TextReferences | None,
    drawn: Drawn | None,
) -> dict[str, Any]:
    """Return the settings of an explanation."""
    outcomes, ids = outcome.outcomes, None
    if isinstance(outcomes, Continuations) and (outcomes.each or len(outcomes.ids[0]) == 1):
        ids = list(outcomes.ids[0])
    return {
        "lm": lm.name,
        "lm_kind": lm.kind,
        **({} if ids is None else {"target_ids": ids}),
        "tokens": list(read.tokens),
        "spans": [[span.name, span.start, span.end] for span in read.spans],
        "output": outcomes.output,
        "rather_than": [] if drawn is None else list(drawn.texts),
        "reference_kind": TextReferences.label if strategy is None else strategy.label,
        "reference_question": "" if strategy is None else strategy.question,
    }


def _stays_between(method: Method, confine: bool) -> bool:
    """Return whether a method never moves positions at which all references agree with the prompt."""
    if not isinstance(method, PathMethod):
        return False
    straight = isinstance(method.path, (Straight, UniformWords))
    return straight or (confine and isinstance(method.path, GradPath))


def _run_prefix(
    lm: LanguageModel, prompt: Prompt, outcomes: Outcomes, references: Tensor | None, still: Tensor
) -> Prefix | None:
    """Run the tokens before the first that moves; None if that saves little or changes outputs."""
    length = int((~still).int().argmax())
    if length < WORTH_REUSING * len(prompt) or prompt.extra:
        return None
    device = lm.device
    prefix = run_prefix(lm.net, lm.embed(prompt.ids[:length]).to(device))
    if prefix is None:
        return None
    call, step = lm.make_call(prompt, 1), torch.zeros(1, dtype=torch.long, device=device)
    points = [call["inputs_embeds"]]
    if references is not None:
        points.append(references[:1].to(points[0]))
    for point in points:  # a network that attends both ways, or counts positions from the end, would differ
        whole = {**call, "inputs_embeds": point}
        rest = {**call, "inputs_embeds": point[:, length:], "prefix": prefix}
        with torch.no_grad():
            expected, reused = (outcomes.read(lm.net, each, step)[0] for each in (whole, rest))
        if not are_close(reused, expected):
            return None
    return prefix


# -- outcomes --------------------------------------------------------------------------------------


def _find_outcome(lm: LanguageModel, prompt: Prompt, question: Question, asking: Asking, pair: Any) -> Outcome:
    """Return what is explained of the model's answer to a prompt.

    Args:
        lm: the model.
        prompt: the prompt, as read.
        question: the target and what it is explained against.
        asking: what of the answer.
        pair: the only prompt that it is compared with, if there is one.
    """
    if not lm.predicts_tokens:
        reason = f"{lm.name} is a {lm.kind} model, which predicts no tokens"
        _refuse(reason, each=asking.each or None)
    if lm.kind != "token-classifier":
        reason = f"{lm.name} is a {lm.kind} model"
        _refuse(f"{reason}, and words have labels of a token-classifier alone", at=asking.at)
    if lm.kind == "question-answering":
        return _find_answers(lm, prompt, question, asking)
    if lm.kind in ("classifier", "token-classifier"):
        return _find_labels(lm, prompt, question, asking)
    return _find_tokens(lm, prompt, question, asking, pair)


def _find_tokens(lm: LanguageModel, prompt: Prompt, question: Question, asking: Asking, pair: Any) -> Outcome:
    """Return a continuation, and others that it is explained against."""
    target, against, masks = question.target, question.against, lm.find_masks(prompt)
    if asking.each:
        _refuse("each token is explained by itself", against=None if against == "auto" else against)
        if target is None or lm.kind == "masked":
            raise InputError(
                "each=True is for a target of a causal or encoder–decoder model: give one, or generate_tokens(prompt)"
            )
        against = None
    if target is None:
        chosen = _find_likely(lm, prompt, len(masks) or 1)
    else:
        chosen = lm.read_target(prompt, target)
    if against == "auto":
        has_pair = pair is not None and len(chosen) == 1
        expected = _find_likely(lm, lm.read_other(pair, prompt), 1) if has_pair else chosen
        others = [expected] if expected != chosen else []
    elif against == "next":
        if len(chosen) > 1:
            raise InputError("against='next' is for a target of a single token: give the other continuation itself")
        logits = lm.next_logits(prompt)
        logits[chosen[0]] = -torch.inf
        others = [(int(logits.argmax()),)]
    else:
        read = [lm.read_target(prompt, text, "against") for text in _list_texts(against)]
        others = list(dict.fromkeys(read))
    ids_of = [chosen, *others]
    if chosen in others:
        raise InputError(f"against names the target {lm.decode(chosen)!r} itself: choose another")
    if masks and any(len(ids) != len(masks) for ids in ids_of):
        counts = [len(ids) for ids in ids_of]
        raise InputError(f"the prompt has {len(masks)} masks and the targets have {counts} tokens: give one mask for each")
    if asking.output == "logit" and not asking.each and any(len(ids) > 1 for ids in ids_of):
        raise InputError("output='logit' is for single tokens, and a target has several: use 'log-probability'")
    if lm.kind == "causal":
        longest = len(prompt) + max(map(len, ids_of)) - 1
        lm.check_length(longest, "the prompt with its target")
    outcomes = Continuations(lm.kind, tuple(ids_of), asking.output, asking.position, masks, asking.each)
    if asking.each:
        return Outcome(outcomes, [repr(lm.decode([token])) for token in chosen], [*range(len(chosen))])
    names = [repr(lm.decode(ids)) for ids in ids_of]
    return Outcome(outcomes, names, [0], [[*range(1, len(ids_of))]] if others else None)


@torch.no_grad()
def _find_likely(lm: LanguageModel, prompt: Prompt, count: int) -> tuple[int, ...]:
    if count == 1:
        return (int(lm.next_logits(prompt).argmax()),)
    call = lm.make_call(prompt, 1)
    logits = read_tokens(lm.net, lm.kind, [0] * count, lm.find_masks(prompt), call).logits
    return tuple(logits[0].argmax(dim=1).tolist())


def _refuse(reason: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}={describe(value)} cannot be used here, since {reason}: omit it")


def _find_labels(lm: LanguageModel, prompt: Prompt, question: Question, asking: Asking) -> Outcome:
    """Return a label of a classifier of texts or of tokens."""
    config, place, output = lm.net.config, None, asking.output
    if lm.kind == "token-classifier":
        if asking.at is None:
            raise InputError("a token classifier needs at=, the word whose label is explained")
        place = prompt.find_tokens(asking.at)[0]
    count = int(config.num_labels)
    labels = [str((config.id2label or {}).get(i, f"class {i}")) for i in range(count)]
    independent = ("regression", "multi_label_classification")
    if count == 1 or getattr(config, "problem_type", None) in independent:
        output = "logit"
    outcomes = Labels(output, place)

    best = score(lm, prompt, outcomes).argsort(descending=True).tolist()
    chosen = best[0] if question.target is None else find_class(question.target, labels)
    against = question.against
    if against in ("auto", "next"):
        against = None if count == 1 else next(i for i in best if i != chosen)
    listed = [against] if not isinstance(against, (list, tuple)) else list(against)
    others = [] if against is None else [find_class(item, labels) for item in listed]
    return Outcome(outcomes, labels, [chosen], [others] if others else None)


def _find_answers(lm: LanguageModel, prompt: Prompt, question: Question, asking: Asking) -> Outcome:
    """Return a piece of the text that a model answers with."""
    if not prompt.part:
        raise InputError("question answering takes a prompt (question, text)")
    if 1 not in prompt.part:
        raise InputError("the text of (question, text) is empty: there is no answer in it")
    if question.target is None:
        with torch.no_grad():
            result = lm.net(**lm.make_call(prompt, 1))
        inside = torch.tensor([part == 1 for part in prompt.part], device=result.start_logits.device)
        start = int(result.start_logits[0].masked_fill(~inside, -torch.inf).argmax())
        later = inside & (torch.arange(len(prompt), device=inside.device) >= start)
        places = [(start, int(result.end_logits[0].masked_fill(~later, -torch.inf).argmax()))]
        names = [repr("".join(prompt.tokens[places[0][0] : places[0][1] + 1]).strip())]
    else:
        first, end = prompt.find_tokens(str(question.target), part=1)
        places, names = [(first, end - 1)], [repr(question.target)]
    texts = _list_texts(None if question.against == "auto" else question.against)
    for text in texts:
        first, end = prompt.find_tokens(text, part=1)
        if (first, end - 1) in places:
            raise InputError(f"against names the answer {text!r} itself, or one twice: choose another")
        places.append((first, end - 1))
        names.append(repr(text))
    others = [[*range(1, len(places))]] if texts else None
    return Outcome(Answers(tuple(places), asking.output, asking.ends), names, [0], others)


def score(lm: LanguageModel, prompt: Prompt, outcomes: Outcomes) -> Tensor:
    """Return the scores of outcomes for a prompt, (outcomes,)."""
    call = lm.make_call(prompt, 1)
    with torch.no_grad():
        step = torch.zeros(1, dtype=torch.long, device=lm.device)
        return outcomes.read(lm.net, call, step)[0][0].cpu()


def _list_texts(against: Any) -> list[str]:
    """Return `against` as a list of texts."""
    texts = [against] if not isinstance(against, (list, tuple)) else list(against)
    for text in [] if against is None else texts:
        if not isinstance(text, str):
            raise InputError(f"against must be a text, such as ' Rome', or several, got {describe(against)}")
    return [] if against is None else texts
