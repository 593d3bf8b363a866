"""Captum's call for language models, beside Captum's own on the same network."""

from __future__ import annotations

import captum.attr
import numpy as np
import pytest

import ig2
from ig2 import modalities
from ig2.compat.captum import LLMGradientAttribution
from ig2.errors import InputError
from language import build, make_tokenizer
from networks import refuses

PROMPT, TARGET = "In Germany people speak", " Italian and French"


@pytest.mark.slow
def test_integrated_gradients_of_an_answer_are_those_of_captum() -> None:
    net, tokenizer = build("llama"), make_tokenizer()
    layer = captum.attr.LayerIntegratedGradients(net, net.model.embed_tokens)
    inp = captum.attr.TextTokenInput(PROMPT, tokenizer, baselines=0)
    expected = captum.attr.LLMGradientAttribution(layer, tokenizer).attribute(inp, TARGET, n_steps=40)
    own = LLMGradientAttribution(modalities.language.load(net, tokenizer), ig2.IntegratedGradients(40)).attribute(inp, TARGET)
    assert own.token_attr.shape == (3, 5)
    np.testing.assert_allclose(own.token_attr.numpy(), expected.token_attr.numpy(), atol=1e-6)
    np.testing.assert_allclose(own.seq_attr.numpy(), expected.seq_attr.numpy(), atol=1e-6)
    assert own.output_tokens == [" Italian", " and", " French"]
    assert own.input_tokens == ["In", " Germa", "ny", " people", " speak"]


def test_a_text_and_what_is_generated() -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    result = LLMGradientAttribution(model, ig2.InputXGradient()).attribute(PROMPT, gen_args={"max_new_tokens": 2})
    assert "".join(result.output_tokens) == model.generate(PROMPT, 2)
    pair = LLMGradientAttribution(model).attribute(PROMPT, TARGET, baselines="In France people speak")
    assert (pair.token_attr[:, [0, 3, 4]] == 0).all() and (pair.token_attr[:, 1] != 0).all()
    refuses(InputError, "language model", lambda: LLMGradientAttribution(build("llama")))
