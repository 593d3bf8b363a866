"""Explanations of language models in Captum's form, beside Captum's own on the same network."""

from __future__ import annotations

from dataclasses import replace

import captum.attr
import numpy as np
import pytest

import ig2
from ig2 import modalities
from language import build, make_tokenizer

PROMPT, TARGET = "In Germany people speak", " Italian and French"


@pytest.mark.slow
def test_integrated_gradients_of_an_answer_are_those_of_captum() -> None:
    net, tokenizer = build("llama"), make_tokenizer()
    layer = captum.attr.LayerIntegratedGradients(net, net.model.embed_tokens)
    inp = captum.attr.TextTokenInput(PROMPT, tokenizer, baselines=0)
    expected = captum.attr.LLMGradientAttribution(layer, tokenizer).attribute(inp, TARGET, n_steps=40)
    model = modalities.language.load(net, tokenizer)
    filler = {"embeddings": model.embed([0] * len(model.read(PROMPT).ids))[None]}  # Captum's baseline
    asking = replace(model.default_asking, each=True, confine=False)
    explanation = model.explain(PROMPT, TARGET, method=ig2.IntegratedGradients(40), asking=asking, references=filler)
    own = explanation.to_captum()
    assert own.token_attr.shape == (3, 5)
    np.testing.assert_allclose(own.token_attr.numpy(), expected.token_attr.numpy(), atol=1e-6)
    np.testing.assert_allclose(own.seq_attr.numpy(), expected.seq_attr.numpy(), atol=1e-6)
    assert own.output_tokens == [" Italian", " and", " French"]
    assert own.input_tokens == ["In", " Germa", "ny", " people", " speak"]


def test_a_text_and_what_is_generated() -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    asking, answer = replace(model.default_asking, each=True), model.generate_tokens(PROMPT, 2)
    result = model.explain(PROMPT, answer, method=ig2.InputXGradient(), asking=asking).to_captum()
    assert "".join(result.output_tokens) == model.generate(PROMPT, 2)
    pair = model.explain(PROMPT, TARGET, rather_than="In France people speak", asking=asking).to_captum()
    assert (pair.token_attr[:, [0, 3, 4]] == 0).all() and (pair.token_attr[:, 1] != 0).all()
