"""Small language models of each kind with random weights, and a tokenizer for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tokenizers
import torch
import transformers

WORDS = [
    "The",
    "In",
    " Germa",
    " France",
    " people",
    " speak",
    " many",
    " women",
    " capital",
    " of",
    " is",
    " city",
    " Paris",
    " Rome",
    " Berli",
    " Italian",
    " French",
    " the",
    ".",
    "?",
    "Where",
    "What",
    " old",
    " are",
    " key",
    "hello",
    " world",
    " you",
    " answer",
    " brief",
    "ly",
    "You",
    "\n",
    ":",
    "user",
    "system",
    "assistant",
    " Madrid",
    "In",
    " and",
]
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>", "[MASK]"]
PIECES = list(dict.fromkeys([*SPECIALS, *WORDS, "##ny", "##n", "##ly"]))
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] | trim }}</s>\n{% endfor %}"
    "{% for d in documents or [] %}<s>{{ d['text'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def make_tokenizer(marks: bool = False, **options: Any) -> Any:
    """Words with the blank before them; " Germany", " Berlin" and "briefly" are of two pieces.

    Args:
        marks: whether each text gets <s> before and </s> after it, as for BERT.
        options: tokens that are changed, for example pad_token=None.
    """
    cut = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {piece: i for i, piece in enumerate(PIECES)}, unk_token="<unk>", max_input_chars_per_word=50
        )
    )
    cut.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r" ?\w+|\n|[^\w\s]"), "isolated")
    replace = tokenizers.decoders.Replace("##", "")
    cut.decoder = tokenizers.decoders.Sequence([replace, tokenizers.decoders.Fuse()])
    if marks:
        cut.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 2), ("</s>", 3)]
        )
    names = {
        "pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "[MASK]",
        "cls_token": "<s>", "sep_token": "</s>",
    }  # fmt: skip
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if marks else ["input_ids", "attention_mask"]
    tokenizer = transformers.PreTrainedTokenizerFast(
        model_input_names=inputs,
        tokenizer_object=cut,
        clean_up_tokenization_spaces=False,
        **{**names, **options},
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


SIZE = {"vocab_size": len(PIECES), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}

MARKS = {"bos_token_id": 2, "eos_token_id": 3}


def build(kind: str, **options: Any) -> Any:
    """A network in float64 and eval mode, its weights larger than fresh ones so that words matter."""
    makers: dict[str, Callable[[], Any]] = {
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**SIZE, **MARKS, max_position_embeddings=32, num_key_value_heads=1, **options)
        ),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=len(PIECES), n_embd=16, n_layer=2, n_head=2, n_positions=32, **options)
        ),
        "gemma": lambda: transformers.GemmaForCausalLM(
            transformers.GemmaConfig(**SIZE, num_key_value_heads=1, head_dim=8, max_position_embeddings=32, **options)
        ),
        "bert": lambda: transformers.BertForMaskedLM(
            transformers.BertConfig(**SIZE, max_position_embeddings=32, **options)
        ),
        "t5": lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=len(PIECES), d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0,
                eos_token_id=3, dropout_rate=0.0, **options,
            )
        ),
        "pairs": lambda: transformers.BertForSequenceClassification(
            transformers.BertConfig(
                **SIZE, max_position_embeddings=32, num_labels=3, id2label={0: "yes", 1: "no", 2: "maybe"}, **options
            )
        ),
        "tokens": lambda: transformers.BertForTokenClassification(
            transformers.BertConfig(**SIZE, max_position_embeddings=32, num_labels=2, id2label={0: "O", 1: "LOC"}, **options)
        ),
        "answers": lambda: transformers.BertForQuestionAnswering(
            transformers.BertConfig(**SIZE, max_position_embeddings=32, **options)
        ),
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = makers[kind]().double().eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise * 0.4 + ("norm" in name.lower()))
    return net
