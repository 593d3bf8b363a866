"""The same on a real model, SmolLM2-135M: make test-lm."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

import ig2
from ig2 import modalities
from ig2.modalities.language import Asking
from ig2.paths import cosine

EACH = Asking(each=True)

pytestmark = [
    pytest.mark.lm,
    pytest.mark.slow,
    pytest.mark.skipif("IG2_TEST_LM" not in os.environ, reason="loads a language model and runs for minutes: make test-lm"),
]
GERMANY, FRANCE = "In Germany people speak", "In France people speak"
FEW = ig2.IG2(steps=5, distance=cosine)


@pytest.fixture(scope="module")
def smollm2() -> modalities.language.LanguageModel:
    return modalities.language.load("smollm2")


def test_it_knows_what_it_is_asked(smollm2: modalities.language.LanguageModel) -> None:
    assert smollm2.predict("The capital of France is", 1)[0][0] == " Paris"
    explanation = smollm2.explain(GERMANY, rather_than=FRANCE, method=FEW)
    assert explanation.explained == ["' German' rather than ' French'"]
    assert explanation.prompt.words[int(np.abs(explanation.word_scores[0]).argmax())] == "Germany"


@pytest.mark.parametrize("method", [ig2.DeepSHAP(), FEW, ig2.IG2(steps=3, distance=cosine, rule=ig2.rules.secant)])
def test_complete_rules_sum_to_the_change_in_float32(smollm2: modalities.language.LanguageModel, method: ig2.Method) -> None:
    explanation = smollm2.explain("The keys of the old house", " are", " is", "The key of the small garden", method)
    assert float(explanation.attribution.relative_residual.max()) < 1e-3


def test_a_chat_and_its_answer(smollm2: modalities.language.LanguageModel) -> None:
    chat = [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "What is the capital of France?"}]
    explanation = smollm2.explain(
        chat,
        smollm2.generate_tokens(chat, 3),
        asking=EACH,
        method=ig2.DeepSHAP(),
        rather_than=modalities.language.Filler(),
    )
    assert list(explanation.span_scores) == ["system", "user"]
    assert "".join(smollm2.read(chat).tokens[i] for i in explanation.prompt.positions).startswith("Answer in one word.")
    assert len(explanation) == 3


def test_a_row_of_a_generation_is_the_explanation_of_its_token(smollm2: modalities.language.LanguageModel) -> None:
    several = smollm2.explain(
        GERMANY, smollm2.generate_tokens(GERMANY, 2), asking=EACH, rather_than=FRANCE, method=ig2.DeepSHAP()
    )
    first = smollm2.explain(GERMANY, smollm2.generate(GERMANY, 1), None, FRANCE, ig2.DeepSHAP())
    np.testing.assert_allclose(several.token_scores[0], first.token_scores[0], atol=1e-3)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
def test_half_precision_says_the_same(smollm2: modalities.language.LanguageModel, dtype: torch.dtype, tolerance: float) -> None:
    call = (GERMANY, " German", None, "In France many women speak")
    whole = smollm2.explain(*call).word_scores[0]
    half = modalities.language.load("smollm2")
    half.net.to(dtype)
    explanation = half.explain(*call)
    assert float(explanation.attribution.relative_residual.max()) < tolerance
    np.testing.assert_allclose(explanation.word_scores[0], whole, atol=tolerance * np.abs(whole).max())


def test_references_one_by_one_are_those_together(smollm2: modalities.language.LanguageModel) -> None:
    call = (GERMANY, " German", " French", [FRANCE, "In Italy many women speak"])
    together, alone = smollm2.explain(*call), smollm2.explain(*call, batch_size=1)
    np.testing.assert_allclose(alone.token_scores, together.token_scores, atol=1e-3 * np.abs(together.token_scores).max())


def test_a_prefix_that_is_run_once_changes_nothing(smollm2: modalities.language.LanguageModel) -> None:
    prompt, pair = (f"A traveller asked which words are used in the shops and streets of {name}" for name in ("Rome", "Paris"))
    for method in (ig2.DeepSHAP(), FEW):
        call = (prompt, " Italian", None, pair, method)
        shared, whole = smollm2.explain(*call), replace(smollm2, reuse_prefix=False).explain(*call)
        assert shared.attribution.settings["prefix"] >= 12 and "prefix" not in whole.attribution.settings
        np.testing.assert_allclose(shared.token_scores, whole.token_scores, atol=1e-2 * np.abs(whole.token_scores).max())


def test_padded_is_unpadded(smollm2: modalities.language.LanguageModel) -> None:
    """Right-padded in a batch, a causal model never sees the padding; the states in question are then not the last."""
    call = smollm2._call(smollm2.read(GERMANY), 1)
    padding = smollm2.embed([smollm2.tokenizer.eos_token_id] * 3)[None]
    mask = torch.cat([call["attention_mask"], torch.zeros(1, 3, dtype=torch.long)], dim=1)
    length = call["inputs_embeds"].shape[1]
    with torch.no_grad():
        alone = smollm2.net(**call).logits[0, -1]
        padded = smollm2.net(inputs_embeds=torch.cat([call["inputs_embeds"], padding], dim=1), attention_mask=mask).logits
    torch.testing.assert_close(padded[0, length - 1], alone, rtol=1e-3, atol=1e-3)
