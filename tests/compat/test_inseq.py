"""inseq's result of an explanation: its fields, and its own views where the package is installed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ig2
from ig2 import modalities
from ig2.errors import MissingExtraError
from ig2.modalities.language import Asking
from language import build, make_tokenizer
from networks import refuses

PROMPT, PAIR = "In Germany people speak", "In France people speak"


@dataclass
class Token:
    token: str
    id: int


@dataclass
class Sequence:
    source: list[Token]
    target: list[Token]
    source_attributions: Any = None
    target_attributions: Any = None
    step_scores: Any = None
    attr_pos_start: int = 0


@dataclass
class Output:
    sequence_attributions: list[Sequence]
    info: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def inseq(monkeypatch: pytest.MonkeyPatch) -> None:
    """The three classes of inseq that are used, with the fields they have there."""
    parts = SimpleNamespace(FeatureAttributionSequenceOutput=Sequence, FeatureAttributionOutput=Output)
    monkeypatch.setitem(sys.modules, "inseq.data", parts)
    monkeypatch.setitem(sys.modules, "inseq.utils.typing", SimpleNamespace(TokenWithId=Token))


def test_a_prompt_is_the_beginning_of_the_target_of_a_causal_model(inseq: None) -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    explanation = model.explain(PROMPT, " Italian and French", rather_than=PAIR, asking=Asking(each=True))
    (sequence,) = explanation.to_inseq().sequence_attributions
    assert [each.token for each in sequence.target] == [*explanation.prompt.tokens, " Italian", " and", " French"]
    assert [each.id for each in sequence.target][-3:] == list(model.tokenizer(" Italian and French")["input_ids"])
    assert sequence.attr_pos_start == 5 and sequence.source_attributions is None
    assert sequence.target_attributions.shape == (8, 3)
    np.testing.assert_allclose(sequence.target_attributions[:5].T.numpy(), explanation.token_scores, rtol=1e-5)
    assert sequence.target_attributions[5:].isnan().all()
    np.testing.assert_allclose(sequence.step_scores["output"], explanation.attribution.output, rtol=1e-5)


def test_a_prompt_is_the_source_of_an_encoder_decoder(inseq: None) -> None:
    model = modalities.language.load(build("t5"), make_tokenizer())
    output = model.explain(PROMPT, " Paris is", " Rome", rather_than=PAIR).to_inseq()
    (sequence,) = output.sequence_attributions
    assert sequence.source_attributions.shape == (5, 1) and sequence.target_attributions is None
    assert sequence.target == [Token("' Paris is' rather than ' Rome'", -1)]
    assert output.info["attribution_method"] == "DeepSHAP"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    explanation = model.explain(PROMPT, " Rome", rather_than=PAIR, method=ig2.DeepSHAP())
    monkeypatch.setitem(sys.modules, "inseq.data", None)
    refuses(MissingExtraError, "inseq", explanation.to_inseq)


def test_the_views_of_inseq_itself() -> None:
    pytest.importorskip("inseq")
    for kind in ("llama", "t5"):
        other = modalities.language.load(build(kind), make_tokenizer())
        explanation = other.explain(PROMPT, other.generate_tokens(PROMPT, 3), rather_than=PAIR, asking=Asking(each=True))
        output = explanation.to_inseq()
        shown = output.show(display=False, return_html=True, do_aggregation=False)
        assert "Germa" in shown
