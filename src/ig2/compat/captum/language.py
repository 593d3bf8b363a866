"""Captum's call for language models."""

from __future__ import annotations

from typing import Any

from ig2.errors import InputError, describe
from ig2.methods.base import Method


class LLMGradientAttribution:
    """The call of Captum's `LLMGradientAttribution` [Miglani 2023]: each token of an answer, attributed to those of the prompt.

    Captum's takes one of its layer methods on the embedding and runs it once for each token of the target. This one takes any
    method of ours and a language model, and runs all tokens as one batch. With `IntegratedGradients` the values are Captum's.

    Args:
        lm: what `ig2.adapters.lm.load(model, tokenizer)` returned.
        method: one of ours; by default that of the language model.
    """

    def __init__(self, lm: Any, method: Method | None = None) -> None:
        if not hasattr(lm, "explain"):
            raise InputError(f"lm must be a language model, ig2.adapters.lm.load(model, tokenizer), got {describe(lm)}")
        self.lm, self.method = lm, method

    def attribute(
        self, inp: Any, target: str | None = None, gen_args: dict[str, Any] | None = None, *, baselines: Any = None
    ) -> Any:
        """Attribute each token of the target to the tokens of the prompt.

        Args:
            inp: the prompt, a text or Captum's `TextTokenInput`, whose baseline is then that of all its tokens.
            target: the answer; by default what the model generates.
            gen_args: of the generation; `max_new_tokens` is read, by default 25.
            baselines: another prompt or a strategy of `ig2.adapters.lm`; by default that of `TextTokenInput`, or the model's.

        Returns:
            Captum's `LLMAttributionResult`.

        Raises:
            InputError: if the prompt or the target cannot be used.
        """
        prompt, filler = inp, None
        if hasattr(inp, "itp_tensor"):
            prompt, filler = self.lm.decode(inp.inp_tensor[0].tolist()), int(inp.baselines)
        count = None if target is not None else int((gen_args or {}).get("max_new_tokens", 25))
        options: dict[str, Any] = {}
        if baselines is None and filler is not None:
            tokens = self.lm.read(prompt).ids
            options["references"] = {"embeddings": self.lm.embed([filler] * len(tokens))[None]}
        explanation = self.lm.explain(
            prompt, target, "auto", baselines, self.method, generate=count, each=count is None, confine=False, **options
        )
        return explanation.to_captum()
