"""Runs of language models: prompts in, rows of words out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ig2
from ig2 import modalities
from ig2.errors import InputError
from ig2.explorer import Collection
from ig2.metrics import Insertion
from language import build, make_tokenizer

PROMPTS = [
    {"prompt": "In Germany people speak", "rather_than": "In France people speak", "answer": " women"},
    {"prompt": "The capital of France is", "target": " Paris", "against": " Rome", "answer": " Paris"},
    {"prompt": "", "answer": " Rome"},
    {"prompt": [{"role": "user", "content": "Where are you?"}], "answer": None},
]


@pytest.fixture(scope="module")
def model() -> modalities.language.LanguageModel:
    return modalities.language.load(build("llama"), make_tokenizer(), name="llama")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, PROMPTS)))
    return path


def test_each_prompt_is_explained_as_it_would_be_alone(
    model: modalities.language.LanguageModel, prompts: Path, tmp_path: Path
) -> None:
    store = ig2.run(
        prompts, model, saving=ig2.Saving(per_reference=True), reading=ig2.Reading(label="answer"), out=tmp_path / "store"
    )
    rows = list(store)
    pair, contrast, empty, chat = rows
    alone = model.explain("In Germany people speak", rather_than="In France people speak")
    assert pair["values"] == pytest.approx(alone.word_scores[0], rel=1e-5)
    assert (pair["units"], pair["target_name"]) == (["In", "Germany", "people", "speak"], alone.explained[0])
    assert pair["output"] == pytest.approx(float(alone.attribution.output))
    assert contrast["target_name"] == "' Paris' rather than ' Rome'" and contrast["label_name"] == "' Paris'"
    each = np.reshape(contrast["reference_values"], (4, -1))
    assert each.mean(axis=0) == pytest.approx(contrast["values"], rel=1e-4) and len(contrast["reference_labels"]) == 4
    assert "empty" in empty["error"]
    assert chat["units"] == ["Where", "are", "you", "?"]
    again = ig2.run(
        prompts, model, saving=ig2.Saving(per_reference=True), reading=ig2.Reading(label="answer"), out=tmp_path / "store"
    )
    assert [row["id"] for row in again] == [row["id"] for row in rows]
    with pytest.raises(InputError, match="another run"):
        ig2.run(
            prompts,
            model,
            ig2.ExpectedIG(4),
            tmp_path / "store",
            saving=ig2.Saving(per_reference=True),
            reading=ig2.Reading(label="answer"),
        )


def test_the_explorer_shows_them_as_texts(model: modalities.language.LanguageModel, prompts: Path, tmp_path: Path) -> None:
    ig2.run(prompts, model, reading=ig2.Reading(label="answer"), out=tmp_path / "store")
    collection = Collection([tmp_path / "store"])
    assert collection.catalogue.is_right.tolist()[1:] == [0, -1, -1]
    (view,), _ = collection.view("prompts.jsonl:2")
    assert (view.view.name, view.target, view.measure) == ("words", "' Paris' rather than ' Rome'", "log-probability")
    assert "not the class predicted" not in collection.show_item("prompts.jsonl:2")["inputs"][0]["html"]


@pytest.mark.parametrize("kind", ["t5", "bert", "pairs"])
def test_models_of_other_kinds(kind: str, tmp_path: Path) -> None:
    other = modalities.language.load(build(kind), make_tokenizer(marks=kind != "t5"), name=kind)
    (tmp_path / "prompts.txt").write_text("What is [MASK]\nWhere are [MASK]\n")
    store = ig2.run(tmp_path / "prompts.txt", other, out=tmp_path / "store")
    assert not store.failures and all(row["prediction_name"] for row in store)


def test_other_prompts_from_a_file(model: modalities.language.LanguageModel, prompts: Path, tmp_path: Path) -> None:
    """Of more than there are to be, evenly spaced ones: a file may be sorted."""
    others = ["What is old?", "Where are you?", "In France", "Where is France?", "What is France?"]
    (tmp_path / "others.txt").write_text("\n".join(others))
    for count, chosen in ((2, [0, 2]), (3, [0, 1, 3]), (9, range(5))):
        store = ig2.run(
            prompts,
            model,
            question=ig2.Question(references=tmp_path / "others.txt", count=count),
            saving=ig2.Saving(per_reference=True),
            out=tmp_path / f"store {count}",
        )
        labels = store["prompts.jsonl:2"]["reference_labels"]  # the first has a pair of its own
        assert [label.replace("[MASK]", "") for label in labels] == [others[number] for number in chosen]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"saving": ig2.Saving(gradcf=True)}, "gradcf"),
        ({"saving": ig2.Saving(metrics=[Insertion()])}, "metrics"),
        ({"cluster": ig2.runs.Cluster()}, "Ray"),
        ({"saving": ig2.Saving("float32")}, "float32"),
        ({"saving": ig2.Saving("none", per_reference=True)}, "per_reference"),
        ({"reading": ig2.Reading(column="text")}, "column 'text'"),
    ],
)
def test_what_is_not_for_language_models(
    model: modalities.language.LanguageModel, prompts: Path, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        ig2.run(prompts, model, out=tmp_path / "store", **options)


@pytest.mark.filterwarnings("ignore:the secants do not account")  # in bfloat16
def test_the_precision_of_a_run_is_that_of_its_explanations_and_of_its_store(prompts: Path, tmp_path: Path) -> None:
    model = modalities.language.load(build("llama").float(), make_tokenizer(), name="llama")
    half = ig2.Preparation(precision="bfloat16")
    stores = [ig2.run(prompts, replace(model, prepare=each), out=tmp_path / str(each)) for each in (half, True)]
    outputs = [store["prompts.jsonl:1"]["output"] for store in stores]
    alone = replace(model, prepare=half).explain("In Germany people speak", rather_than="In France people speak")
    assert outputs[0] == pytest.approx(float(alone.attribution.output)) and outputs[0] != outputs[1]
    with pytest.raises(InputError, match="another run"):
        ig2.run(prompts, replace(model, prepare=half), out=tmp_path / "True")
