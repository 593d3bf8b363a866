"""The explanation of a language model: scores of tokens, words and spans, and their views."""

from __future__ import annotations

from ast import literal_eval
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ig2.attribution import Attribution
from ig2.errors import import_extra
from ig2.modalities.language.prompts import Prompt
from ig2.verdict import find_rows, judge

Scores = NDArray[np.float64]
NAMED = 3  # words in a sentence
MINOR = 0.1  # of the strongest word's score: weaker words are not named
RED, BLUE = (178, 24, 43), (33, 102, 172)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The result of `LanguageModel.explain`: an attribution of one prompt, with a row for each target."""

    attribution: Attribution
    """The attribution with the names of its words, for metrics, files and figures."""
    prompt: Prompt

    def __len__(self) -> int:
        return len(self.attribution)

    @property
    def explained(self) -> list[str]:
        """The explained output of each row in words: "' Paris' rather than ' Rome'"."""
        return self.attribution.explained

    @property
    def token_scores(self) -> Scores:
        """The score of each token of the prompt, (rows, tokens); zero for fixed tokens."""
        values = self.attribution._one_tensor(self.attribution.values).detach().cpu().double()
        scores: Scores = values.sum(dim=2).numpy()
        return scores

    @property
    def word_scores(self) -> Scores:
        """The score of each word, (rows, words); a row adds up to the attribution's total."""
        return np.stack(self.attribution.sum_units())

    @property
    def span_scores(self) -> dict[str, Scores]:
        """The sum over each span, a sentence, a message, a document or a user's span, (rows,)."""
        scores = self.token_scores
        return {span.name: scores[:, span.start : span.end].sum(axis=1) for span in self.prompt.spans}

    @property
    def sentences(self) -> list[str]:
        """Each row in a sentence: the explained output, the words that support it, and those that oppose it."""
        signless = find_rows(judge(self.attribution), "signless")
        lines = []
        for row, (explained, scores) in enumerate(zip(self.explained, self.word_scores, strict=True)):
            order = np.argsort(-np.abs(scores), kind="stable")
            strong = [i for i in order if abs(scores[i]) >= MINOR * np.abs(scores).max() and scores[i]]
            if not strong:
                lines.append(f"{explained}: no word has a share")
                continue
            if row in signless:
                listed = _list_words(self.prompt.words, np.abs(scores), strong, "")
                lines.append(f"{explained}, mostly by {listed} (strengths; their signs are not to be believed)")
                continue
            parts = [
                f"{word} {_list_words(self.prompt.words, scores, chosen)}"
                for word, chosen in (
                    ("because of", [i for i in strong if scores[i] > 0]),
                    ("in spite of", [i for i in strong if scores[i] < 0]),
                )
                if chosen
            ]
            lines.append(f"{explained}, {', '.join(parts)}")
        return lines

    def to_ansi(self) -> str:
        """Return the words in colour for a terminal, a line for each row: red supports the target, blue opposes it."""
        lines = []
        for explained, scores in zip(self.explained, self.word_scores, strict=True):
            strongest = max(float(np.abs(scores).max()), 1e-300)
            words = [_colour(word, float(score) / strongest) for word, score in zip(self.prompt.words, scores, strict=True)]
            lines.append(f"{explained}: {' '.join(words)}")
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each word of each target; see `Attribution.to_frame`."""
        return self.attribution.to_frame()

    def to_captum(self) -> Any:
        """Convert to Captum's `LLMAttributionResult` [Miglani 2023]: `token_attr` (targets, tokens), `seq_attr` their sum."""
        attr: Any = import_extra("captum.attr", "captum", "to_captum()")
        values = self.attribution._one_tensor(self.attribution.values).detach().cpu().sum(dim=2)
        outputs = [_unquote(name) for name in self.explained]
        return attr.LLMAttributionResult(
            input_tokens=list(self.prompt.tokens), output_tokens=outputs, seq_attr=values.sum(dim=0), token_attr=values
        )

    def to_inseq(self) -> Any:
        """Convert to inseq's `FeatureAttributionOutput` [Sarti 2023]: scores of prompt tokens × explained tokens.

        For a causal model, the prompt is the beginning of inseq's target, and the scores of tokens after it are NaN, since they
        are fixed here; for others it is the source.
        """
        data: Any = import_extra("inseq.data", "inseq", "to_inseq()")
        token: Any = import_extra("inseq.utils.typing", "inseq", "to_inseq()").TokenWithId
        settings, attribution = self.attribution.settings, self.attribution
        scores = attribution._one_tensor(attribution.values).detach().cpu().float().sum(dim=2).T  # (tokens, rows)
        prompt = [token(text, index) for text, index in zip(self.prompt.tokens, self.prompt.ids, strict=True)]
        ids = settings.get("target_ids", [-1] * len(self))
        outputs = [token(_unquote(name), index) for name, index in zip(self.explained, ids, strict=True)]
        causal = settings.get("lm_kind") == "causal"
        rest = scores.new_full((len(outputs), len(outputs)), float("nan"))
        sequence = data.FeatureAttributionSequenceOutput(
            source=prompt,
            target=[*prompt, *outputs] if causal else outputs,
            source_attributions=None if causal else scores,
            target_attributions=torch.cat([scores, rest]) if causal else None,
            step_scores={"output": attribution.output.detach().cpu().float()},
            attr_pos_start=len(prompt) if causal else 0,
        )
        info = {"attribution_method": settings["method"], "model_name": settings.get("lm"), "input_texts": [self.prompt.text]}
        return data.FeatureAttributionOutput(sequence_attributions=[sequence], info=info)

    def plot(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Draw a matplotlib figure, saved to the path if given: words in colour, or a map of words × targets if several."""
        return self.attribution.plot(path, **options)

    def _repr_html_(self) -> str:
        lines = [f"<p>{escape(sentence)}</p>" for sentence in self.sentences[:1]] if len(self) == 1 else []
        spans = "".join(
            f"<tr><td>{escape(name)}</td>" + "".join(f"<td>{score:+.3g}</td>" for score in scores) + "</tr>"
            for name, scores in self.span_scores.items()
        )
        table = f'<table style="font-size:85%">{spans}</table>' if spans else ""
        return "".join([*lines, self.attribution._repr_html_() or "", table])

    def __repr__(self) -> str:
        lines = [f"Explanation of {self.prompt.text!r}" if len(self.prompt.text) <= 80 else "Explanation"]
        lines += [f"  {sentence}" for sentence in self.sentences]
        if self.prompt.spans:
            sums = [f"{name} {', '.join(f'{score:+.3g}' for score in scores)}" for name, scores in self.span_scores.items()]
            lines.append(f"  spans: {'; '.join(sums)}")
        if self.attribution.note:
            lines.append(f"  {self.attribution.note}")
        lines.append(f"  {self.attribution.verdict}")
        return "\n".join(lines)


def _unquote(name: str) -> str:
    """Return the explained token without quotes; a name with 'rather than' is returned unchanged."""
    return str(literal_eval(name)) if name[:1] in "'\"" and "rather" not in name else name


def _list_words(words: tuple[str, ...], scores: Scores, chosen: list[Any], sign: str = "+") -> str:
    named = [f"{words[i]!r} ({scores[i]:{sign}.2f})" for i in chosen[:NAMED]]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _colour(word: str, share: float) -> str:
    """Colour a word's background red or blue, by its share of the strongest score, from −1 to 1."""
    shown = "".join(sign if sign.isprintable() else " " for sign in word)
    if abs(share) < MINOR:
        return shown
    ground = [round(255 + (part - 255) * abs(share)) for part in (RED if share > 0 else BLUE)]
    ink = "97" if abs(share) > 0.6 else "30"
    return f"\x1b[{ink};48;2;{ground[0]};{ground[1]};{ground[2]}m{shown}\x1b[0m"
