"""Runs of a language model: each prompt of a source at its own length, stored as a text with its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from torch import Tensor

from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError, describe
from ig2.methods import Method
from ig2.modalities.base import Batch, extract_tensor
from ig2.modalities.language import LanguageModel, OtherPrompts, Prompt, TextReferences
from ig2.modalities.modality import Modality
from ig2.modalities.text.modality import TEXTS, Texts
from ig2.model import Preparation, wrap
from ig2.question import COUNT, Question
from ig2.runs.plan import Finish, Plan, Saving, list_own_columns
from ig2.runs.rows import REFERENCE_VALUES, Row
from ig2.runs.sources import Source, find_source, space_evenly

QUESTION_COLUMNS = ("target", "against", "rather_than")  # columns of a row that say what is asked of its prompt
PROMPT = "prompt"


class Prompts(Texts):
    """Prompts, with what their rows ask of them."""

    batch = 1  # each has its own length

    def __init__(self, label: str | None) -> None:
        self.label = label  # the column of the answers, which is no prompt

    def extract(self, content: Any, column: str | None = None) -> dict[str, Any]:
        """Return the prompt of a row, and the parts of the question that the row has."""
        if isinstance(content, tuple) and content:
            content = content[0]  # a data set's (sample, label)
        if not isinstance(content, Mapping):
            return {PROMPT: content}
        asked = {name: content[name] for name in QUESTION_COLUMNS if content.get(name) not in (None, "")}
        column = column or (PROMPT if PROMPT in content else None)
        if column is not None:
            return {PROMPT: content[self.find_column(content, column)], **asked}
        rest = {name: cell for name, cell in content.items() if name not in (*QUESTION_COLUMNS, self.label)}
        return {PROMPT: super().extract(rest), **asked}


@dataclass(frozen=True, eq=False, kw_only=True)
class PromptBatch(Batch):
    """One prompt, with what its row asks of it."""

    prompt: Prompt
    asked: dict[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class PromptPlan(Plan):
    """The plan of a run over prompts."""

    lm: LanguageModel

    @cached_property
    def modality(self) -> Modality:
        return Prompts(getattr(self.source, "label", None))

    @property
    def prepare(self) -> bool | Preparation:
        """How the network is sped up."""
        return self.lm.prepare

    def _read(self, ids: list[str], inputs: list[Any]) -> Batch:
        if len(inputs) > 1:
            raise InputError("prompts are explained one by one")
        asked = self.question
        defaults = {"target": asked.target, "against": asked.against, "rather_than": asked.references}
        question = {**defaults, **inputs[0]}
        prompt = self.lm.read(question.pop(PROMPT))
        return PromptBatch(tuple(ids), None, (prompt.words,), prompt=prompt, asked=question)

    def _explain(self, batch: Batch) -> Finish:
        assert isinstance(batch, PromptBatch)
        prompt, make = batch.prompt, self.method
        method = make if isinstance(make, Method) else make(self.lm, prompt)  # type: ignore[arg-type]
        call = self.lm.pose(prompt, **batch.asked, method=method, seed=self.question.seed)
        explanation = call.explain(per_reference=self.saving.per_reference)
        attribution = explanation.attribution.to("cpu")
        row: Row = {
            "target": int(attribution.target[0]),
            "target_name": explanation.explained[0],
            "question": explanation.explained[0],
            "measure": attribution.settings["output"],
            "units": list(prompt.words),
        }
        assert attribution.names is not None
        if self.lm.predicts_tokens:
            row["prediction_name"] = repr(self.lm.predict(prompt, 1)[0][0])
        elif batch.asked["target"] is None:  # then what is explained is what is predicted
            row["prediction_name"] = attribution.names.name_output(row["target"])
        for name, column in {**attribution.numbers, **list_own_columns(attribution)}.items():
            cell = column[0]
            is_tensor = isinstance(cell, Tensor) and cell.ndim > 0
            row[name] = cell.float().numpy() if is_tensor else cell.item() if isinstance(cell, Tensor) else cell
        if self.saving.values == "none":
            return partial(list, [row])
        row["values"] = explanation.word_scores[0].astype(np.float32)
        if self.saving.per_reference:
            assert attribution.baseline_outputs is not None
            each = extract_tensor(attribution, attribution.per_reference)
            sums = [attribution.names.sum_units(each[:, r])[0] for r in range(each.shape[1])]
            row[REFERENCE_VALUES] = np.concatenate(sums).astype(np.float32)
            row["reference_labels"] = list(attribution.settings["rather_than"])
            row["reference_outputs"] = attribution.baseline_outputs[0].double().tolist()
            if attribution.trust is not None:
                row["reference_trust"] = attribution.trust[0].double().tolist()
        return partial(list, [row])

    def _describe_label(self, label: Any) -> Row:
        """Return the expected continuation, in the form of predictions, so that the two can be compared."""
        if label is None or not self.lm.predicts_tokens:
            return super()._describe_label(label)
        return {"label_name": repr(str(label))}


def plan_prompts(
    source: Source, lm: LanguageModel, method: Any, question: Question, saving: Saving, column: str | None
) -> PromptPlan:
    """Return the plan of a run over prompts; see `run`.

    Raises:
        ChoiceError: for options that a run of a language model does not support.
    """
    for name in ("metrics", "gradcf"):
        if getattr(saving, name):
            raise ChoiceError(f"{name}={describe(getattr(saving, name))} is not for a language model: omit it")
    if saving.values not in (None, "units", "none"):
        what = describe(saving.values)
        raise ChoiceError(f"values={what} is not for a language model: units are its words, none keeps none")
    if saving.values == "none" and saving.per_reference:
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
    saving = replace(saving, values=saving.values or "units")
    network = wrap(lm.net, prepare=False)
    return PromptPlan(source, None, network, method or lm.default_method, question, saving, column, lm=lm)


def _read_prompts(references: Any, column: str | None, count: int) -> list[Any]:
    """Return evenly spaced prompts of a source."""
    source = find_source(references)
    items = list(source)
    if not items:
        raise InputError(f"the references have no items: {describe(source.describe())}")
    chosen = [items[place] for place in space_evenly(len(items), count)]
    return [TEXTS.extract(source.load(item.content), column) for item in chosen]
