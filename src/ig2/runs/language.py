"""Runs of a language model: each prompt of a source at its own length, stored as a text with its words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from ig2._utils.suggestions import ChoiceError, suggest
from ig2.errors import IG2Warning, InputError, describe
from ig2.methods import Method
from ig2.modalities.base import extract_tensor
from ig2.modalities.language import LanguageModel, OtherPrompts, TextReferences
from ig2.modalities.language.asking import TOKENS
from ig2.modalities.modality import Modality
from ig2.modalities.text.modality import TEXTS
from ig2.model import Preparation, wrap
from ig2.question import COUNT, Question
from ig2.runs.plan import REFERENCE_VALUES, Finish, Loaded, Plan, Row, Storing, describe_failure, list_own_columns
from ig2.runs.sources import Source, find_source, split_label

QUESTION_COLUMNS = ("target", "against", "rather_than")  # columns of a row that say what is asked of its prompt
PROMPT = "prompt"


@dataclass(frozen=True, eq=False, kw_only=True)
class PromptPlan(Plan):
    """The plan of a run over prompts."""

    lm: LanguageModel
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def prepare(self) -> bool | Preparation:
        """How the network is sped up."""
        return self.lm.prepare

    @property
    def modality(self) -> Modality:
        return TEXTS

    def read(self, items: list[Any]) -> Loaded:
        loaded = Loaded(items, [None] * len(items), [item.label for item in items], {}, None)
        for place, item in enumerate(items):
            try:
                content = self.source.load(item.content)
                loaded.inputs[place] = self._find_question(content)
                if loaded.labels[place] is None and isinstance(content, tuple):
                    loaded.labels[place] = split_label(content)
            except Exception as error:  # whatever a broken file or the user's data set raises
                loaded.failures[place] = describe_failure(error)
        return loaded

    def _find_question(self, content: Any) -> dict[str, Any]:
        """Return the prompt and the question of its row; the run's questions apply to rows without one."""
        asked = self.question
        defaults = {"target": asked.target, "against": asked.against, "rather_than": asked.references}
        if isinstance(content, tuple) and content:
            content = content[0]  # a data set's (sample, label)
        if not isinstance(content, Mapping):
            return {"prompt": content, **defaults}
        overrides = {name: content[name] for name in QUESTION_COLUMNS if content.get(name) not in (None, "")}
        column = self.column or (PROMPT if PROMPT in content else None)
        if column is None:
            label = getattr(self.source, "label", None)
            rest = {name: cell for name, cell in content.items() if name not in (*QUESTION_COLUMNS, label)}
            return {"prompt": TEXTS.extract(rest), **defaults, **overrides}
        if column not in content:
            raise InputError(f"there is no column {column!r}{suggest(column, map(str, content), choice='it has')}")
        return {"prompt": content[column], **defaults, **overrides}

    def explain(self, loaded: Loaded, quiet: bool = True) -> Finish:
        parts: list[tuple[list[int], Finish]] = []
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore", IG2Warning)
            for place, question in enumerate(loaded.inputs):
                if place in loaded.failures:
                    continue
                try:
                    parts.append(([place], partial(list, [self._explain_prompt(question)])))
                except Exception as error:  # of one prompt of many, which must not end the run
                    loaded.failures[place] = describe_failure(error)
        return partial(self._finish, loaded, parts)

    def _explain_prompt(self, question: dict[str, Any]) -> Row:
        prompt = self.lm.read(question["prompt"])
        make: Any = self.method
        method = make if isinstance(make, Method) else make(self.lm, prompt)
        explanation = self.lm.explain(
            **question, method=method, seed=self.question.seed, per_reference=self.storing.per_reference
        )
        attribution = explanation.attribution.to("cpu")
        row: Row = {
            "target": int(attribution.target[0]),
            "target_name": explanation.explained[0],
            "question": explanation.explained[0],
            "measure": attribution.settings["output"],
            "units": list(prompt.words),
        }
        assert attribution.names is not None
        if self.lm.kind in TOKENS:
            row["prediction_name"] = repr(self.lm.predict(prompt, 1)[0][0])
        elif question["target"] is None:  # then what is explained is what is predicted
            row["prediction_name"] = attribution.names.name_output(row["target"])
        for name, column in {**attribution.numbers, **list_own_columns(attribution)}.items():
            cell = column[0]
            is_tensor = isinstance(cell, Tensor) and cell.ndim > 0
            row[name] = cell.float().numpy() if is_tensor else cell.item() if isinstance(cell, Tensor) else cell
        if self.storing.values == "none":
            return row
        row["values"] = explanation.word_scores[0].astype(np.float32)
        if self.storing.per_reference:
            assert attribution.baseline_outputs is not None
            each = extract_tensor(attribution, attribution.per_reference)
            sums = [attribution.names.sum_units(each[:, r])[0] for r in range(each.shape[1])]
            row[REFERENCE_VALUES] = np.concatenate(sums).astype(np.float32)
            row["reference_labels"] = list(attribution.settings["rather_than"])
            row["reference_outputs"] = attribution.baseline_outputs[0].double().tolist()
            if attribution.trust is not None:
                row["reference_trust"] = attribution.trust[0].double().tolist()
        return row

    def _describe_label(self, label: Any) -> Row:
        """Return the expected continuation, in the form of predictions, so that the two can be compared."""
        if label is None or self.lm.kind not in TOKENS:
            return super()._describe_label(label)
        return {"label_name": repr(str(label))}


def plan_prompts(
    source: Source, lm: LanguageModel, method: Any, question: Question, values: Any, column: str | None, per_reference: bool,
    prepare: bool | Preparation, **unused: Any,
) -> PromptPlan:  # fmt: skip
    """Return the plan of a run over prompts; see `run`.

    Raises:
        ChoiceError: for options that a run of a language model does not support.
    """
    for name, value in unused.items():
        if value:
            raise ChoiceError(f"{name}={describe(value)} is not for a language model: omit it")
    if values not in (None, "units", "none"):
        raise ChoiceError(f"values={describe(values)} is not for a language model: units are its words, none keeps none")
    if values == "none" and per_reference:
        raise ChoiceError("per_reference keeps values of each reference, and values is none: keep some")
    if TEXTS.name not in source.kinds:
        raise InputError(f"{lm.name} reads texts, and the source has {' or '.join(source.kinds)}s")
    if lm.kind == "token-classifier":
        raise InputError(
            f"{lm.name} labels single words, and a run explains whole prompts: call lm.explain(prompt, asking=Asking(at=…))"
        )
    references = question.references
    if references is not None and not isinstance(references, TextReferences):
        question = replace(question, references=OtherPrompts(*_read_prompts(references, column, question.count or COUNT)))
    storing = Storing(values or "units", per_reference=per_reference)
    lm = lm if prepare is True else replace(lm, prepare=prepare)
    network = wrap(lm.net, prepare=False)
    return PromptPlan(source, None, network, method or lm.default_method, question, storing, column, lm=lm)


def _read_prompts(references: Any, column: str | None, count: int) -> list[Any]:
    """Return evenly spaced prompts of a source."""
    source = find_source(references)
    items = list(source)
    chosen = [items[len(items) * number // count] for number in range(min(count, len(items)))] if items else []
    if not chosen:
        raise InputError(f"the references have no items: {describe(source.describe())}")
    return [TEXTS.extract(source.load(item.content), column) for item in chosen]
