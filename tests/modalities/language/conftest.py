"""Language models for the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ig2 import modalities
from language import build, make_tokenizer


@pytest.fixture(scope="session")
def load() -> Callable[..., modalities.language.LanguageModel]:
    """Models by name, each made once."""
    models: dict[str, modalities.language.LanguageModel] = {}

    def get(kind: str) -> modalities.language.LanguageModel:
        if kind not in models:
            tokenizer = make_tokenizer(marks=kind in ("bert", "pairs", "tokens", "answers"))
            models[kind] = modalities.language.load(build(kind), tokenizer, name=kind)
        return models[kind]

    return get
