"""Text classifiers of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ig2._utils.unpickling import weights_only
from ig2.errors import IG2Error, InputError, ModelError, describe, import_extra, reason
from ig2.modalities.base import Outputs
from ig2.modalities.text.gradients import check_gradients, check_network
from ig2.modalities.text.sentences import UNLIMITED, TextSubject, are_close, find_device, move_ids, take_embeddings
from ig2.modalities.text.words import cut_text, read_tokens
from ig2.model import as_model


def from_transformers(
    model: Any,
    tokenizer: Any,
    *,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    outputs: Outputs | None = None,
    texts: Sequence[str] = (),
) -> TextSubject:
    """Create a subject from a Hugging Face transformers model, in eval mode, and its fast tokenizer.

    Args:
        model: a model that takes `input_ids` or `inputs_embeds`, and `attention_mask`: a sequence classifier, or a custom
            module that contains such a model. Or what `ig2.wrap` made of it: an encoder or a causal model needs an output, a
            function of its result, such as `lambda result: head(result.last_hidden_state[:, 0])` or
            `lambda result: result.logits[:, -1]`, the scores of the next token.
        tokenizer: a fast tokenizer, which provides the position of each token in the text.
        classes: names of the outputs; by default those of a classifier's config.
        name: the name to show; by default the model's.
        outputs: the kind of outputs: mutually exclusive `"classes"`, independent `"labels"`, or plain `"numbers"`.
            By default as in a classifier's config; classes if the model returns several logits or their names are given;
            otherwise numbers.
        texts: the default texts to choose references from.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{type(tokenizer).__name__} does not say where its tokens stand in the text: use a fast tokenizer")
    wrapped, net = as_model(model), as_model(model).net
    check_network(net)
    body: Any = next((part for part in net.modules() if hasattr(part, "get_input_embeddings")), None)
    if body is None:
        raise ModelError(
            f"{type(net).__name__} has no get_input_embeddings(), nor has a part of it: give its embedding and the rest of "
            "the network to ig2.modalities.text.from_parts"
        )
    config: Any = getattr(net, "config", None)
    # what fills up a shorter text; some decoders have no padding token
    fillers = [getattr(tokenizer, f"{kind}_token_id", None) for kind in ("pad", "unk", "eos")]
    pad_id = next((filler for filler in fillers if filler is not None), 0)

    def call(net: nn.Module, embeddings: Tensor, mask: Tensor) -> Any:
        return net(inputs_embeds=embeddings, attention_mask=mask)

    limits = [
        getattr(tokenizer, "model_max_length", None),
        getattr(getattr(body, "config", None), "max_position_embeddings", None),
    ]
    subject = TextSubject(
        name or getattr(config, "_name_or_path", "") or type(net).__name__,
        take_embeddings(wrapped, call),
        None,
        lambda text: read_tokens(cut_text(tokenizer, text)),
        move_ids(body.get_input_embeddings()),
        pad_id,
        getattr(tokenizer, "mask_token_id", None),
        most=min((limit for limit in limits if limit and limit < UNLIMITED), default=None),
        samples=tuple(texts),
    )
    count, is_classifier = _try_embeddings(subject, net)
    names = (getattr(config, "id2label", None) or {}) if is_classifier and count == getattr(config, "num_labels", 0) else {}
    kinds: dict[Any, Outputs] = {"multi_label_classification": "labels", "regression": "numbers"}
    kind: Outputs = "classes" if count > 1 and (is_classifier or classes is not None) else "numbers"
    if names:
        kind = kinds.get(getattr(config, "problem_type", None), kind)
        classes = classes or [str(names.get(i, f"class {i}")) for i in range(count)]
    return replace(subject, classes=classes, outputs=outputs or kind)


@torch.no_grad()
def _try_embeddings(subject: TextSubject, model: nn.Module) -> tuple[int, bool]:
    """Return the number of outputs, and whether the model itself returns scores.

    The output from embeddings must equal that from tokens: some models scale or normalise embeddings in between.
    """
    device, named = find_device(model), not callable(subject.model.output)
    try:
        batch = subject._make_batch(["a b"])
        ids, mask, embeddings = (t.expand(2, *t.shape[1:]).to(device) for t in (batch.ids, batch.mask, batch.attributed))
        results = [model(input_ids=ids, attention_mask=mask), subject.model.net(embeddings, mask)]
        check_gradients(model, lambda points: subject.model.net(points, mask), embeddings)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{subject.name} cannot be run from embeddings: {reason(error)}") from error
    try:
        logits = subject.model.logits(results[0])
    except ModelError as error:
        if named:
            raise ModelError(
                f"{subject.name} returns {describe(list(results[0]))} and no scores, as an encoder does: say what is "
                "explained, for example ig2.wrap(model, output=lambda result: head(result.last_hidden_state[:, 0]))"
            ) from error
        logits = None
    if named and logits is not None and logits.ndim == 3:
        raise ModelError(
            f"{subject.name} returns scores for each token, {tuple(logits.shape)}, as a causal model does: say which are "
            "explained, for example ig2.wrap(model, output=lambda result: result.logits[:, -1]), those of the next token"
        )
    from_ids, from_embeddings = (subject.model.scores(result, 2) for result in results)
    if not are_close(from_embeddings, from_ids):
        raise ModelError(
            f"{subject.name} has another output from embeddings than from tokens: use ig2.modalities.text.from_parts"
        )
    return from_ids.shape[1], logits is not None


def load_transformers(name: str) -> TextSubject:
    """Return the subject of a classifier of transformers, by its name or folder."""
    transformers = import_extra("transformers", "text", f"the model transformers:{name}")
    try:
        with weights_only():
            # trust_remote_code: by default it would ask on the terminal whether to run code that comes with the model
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
                name, output_loading_info=True, trust_remote_code=False
            )
    except IG2Error:
        raise
    except Exception as error:  # not in the cache and no network, no such model, a broken folder
        raise InputError(f"transformers:{name} is not available: {reason(error)}") from error
    if info["missing_keys"]:
        raise InputError(
            f"transformers:{name} has no trained classifier: {sorted(info['missing_keys'])[0]!r} is missing from it"
        )
    return from_transformers(model.eval(), tokenizer, name=name)
