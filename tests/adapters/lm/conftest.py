"""Language models for the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ig2.adapters import lm
from language import build, make_tokenizer


@pytest.fixture(scope="session")
def load() -> Callable[..., lm.LanguageModel]:
    """Models by name, each made once."""
    models: dict[str, lm.LanguageModel] = {}

    def get(kind: str) -> lm.LanguageModel:
        if kind not in models:
            tokenizer = make_tokenizer(marks=kind in ("bert", "pairs", "tokens", "answers"))
            models[kind] = lm.load(build(kind), tokenizer, name=kind)
        return models[kind]

    return get
