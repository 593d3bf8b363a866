"""Long prompts and large models: what is run once, kept, rounded, spread over devices, and told beforehand."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

import ig2
from ig2 import modalities
from ig2.errors import InputError, ModelError
from ig2.modalities.language import Asking
from ig2.modalities.language.outcomes import Answers, Continuations, Labels
from language import MARKS, SIZE, build, make_tokenizer
from networks import refuses

EACH = Asking(each=True)

Load = Callable[..., modalities.language.LanguageModel]
LONG = "The capital of France is old and many people speak Italian"
PAIR = "The capital of France is old and many people speak French"
MIDDLE = "The capital of France is old and many women speak French"
METHODS = {
    "DeepSHAP": ig2.DeepSHAP(),
    "IG²": ig2.IG2(steps=4, distance=ig2.paths.cosine),
    "Expected IG": ig2.ExpectedIG(steps=6),
}


def watch_lengths(net: Any, seen: list[tuple[int, int]]) -> Any:
    """Note how many rows and tokens each pass of the network sees."""

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen.append(tuple(kwargs["inputs_embeds"].shape[:2]))

    return net.register_forward_pre_hook(note, with_kwargs=True)


# -- the prefix that never moves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma"])
@pytest.mark.parametrize("name", METHODS)
def test_a_prefix_that_is_run_once_changes_nothing(load: Load, kind: str, name: str) -> None:
    model = load(kind)
    call = (LONG, " Rome is", " Paris", MIDDLE, METHODS[name])
    shared, whole = model.explain(*call), replace(model, reuse_prefix=False).explain(*call)
    assert shared.attribution.settings["prefix"] == 8 and "prefix" not in whole.attribution.settings
    np.testing.assert_allclose(shared.token_scores, whole.token_scores, rtol=1e-6, atol=1e-6 * np.abs(whole.token_scores).max())
    torch.testing.assert_close(shared.attribution.baseline_outputs, whole.attribution.baseline_outputs, rtol=1e-6, atol=1e-6)
    assert (shared.token_scores[0, :8] == 0).all() and (shared.token_scores[0, [8, 10]] != 0).all()


def test_the_prefix_is_not_run_again() -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    prompt = model.read(LONG)
    seen: list[tuple[int, int]] = []
    model.explain(LONG, " Rome", None, PAIR, METHODS["IG²"])  # the copies of the network have their hooks too
    handle = watch_lengths(model.net, seen)
    model.explain(LONG, " Rome", None, PAIR, METHODS["IG²"])
    handle.remove()
    whole = [lengths for lengths in seen if lengths[1] == len(prompt)]
    rest = [lengths for lengths in seen if lengths[1] == 1]  # the pair differs in the last token alone
    assert (1, len(prompt) - 1) in seen and len(rest) >= 5
    assert len(whole) <= 3  # what it says of the pair, and that both ways say the same


def test_what_moves_or_is_asked_for_everywhere_is_not_a_prefix(load: Load) -> None:
    model = load("llama")

    def length(**options: Any) -> int | None:
        given = {"method": METHODS["IG²"], "rather_than": PAIR, **options}
        return model.explain(LONG, " Rome", **given).attribution.settings.get("prefix")

    assert length() == 10
    assert length(asking=Asking(confine=False)) is None  # GradPath then moves words that are equal
    assert length(asking=Asking(confine=False), method=METHODS["Expected IG"]) == 10  # a straight line does not
    assert length(method=ig2.InputXGradient()) is None
    assert length(asking=Asking(position="all")) is None
    assert length(rather_than="In capital of France is old and many people speak French") is None
    assert load("t5").explain(LONG, " Rome", rather_than=PAIR).attribution.settings.get("prefix") is None


def test_the_markup_of_a_chat_is_a_prefix_for_every_method() -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    model.tokenizer.chat_template = (
        "{{ '<s>system\n' * 3 }}{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}:{% endif %}"
    )
    chat = [{"role": "user", "content": "What is the capital?"}]
    shared, whole = (
        replace(model, reuse_prefix=reuse).explain(chat, " Rome", method=ig2.InputXGradient()) for reuse in (True, False)
    )
    assert shared.attribution.settings["prefix"] == 9
    np.testing.assert_allclose(shared.token_scores, whole.token_scores, atol=1e-9)


def test_sliding_windows_are_shared_as_well() -> None:
    config = transformers.MistralConfig(**SIZE, **MARKS, sliding_window=4, num_key_value_heads=1, max_position_embeddings=32)
    torch.manual_seed(0)
    model = modalities.language.load(transformers.MistralForCausalLM(config).double().eval(), make_tokenizer())
    call = (LONG, " Rome", None, MIDDLE)
    shared, whole = model.explain(*call), replace(model, reuse_prefix=False).explain(*call)
    assert shared.attribution.settings["prefix"] == 8
    np.testing.assert_allclose(shared.token_scores, whole.token_scores, rtol=1e-4, atol=1e-9)


def test_a_network_whose_cache_says_another_thing_is_run_whole(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("llama")
    expected = replace(model, reuse_prefix=False).explain(LONG, " Rome", None, PAIR)
    prefix = modalities.language.asking.run_prefix
    monkeypatch.setattr(modalities.language.asking, "run_prefix", lambda net, embeddings: prefix(net, 2 * embeddings.flip(0)))
    explanation = model.explain(LONG, " Rome", None, PAIR)
    assert "prefix" not in explanation.attribution.settings
    np.testing.assert_array_equal(explanation.token_scores, expected.token_scores)
    monkeypatch.setattr(
        modalities.language.asking, "run_prefix", lambda net, embeddings: None
    )  # it keeps other states than keys and values
    assert "prefix" not in model.explain(LONG, " Rome", None, PAIR).attribution.settings


# -- memory and time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["IG²", "Expected IG"])
@pytest.mark.parametrize("reuse", [True, False])
def test_checkpointed_layers_keep_less_and_say_the_same(name: str, reuse: bool) -> None:
    model = replace(modalities.language.load(build("llama"), make_tokenizer()), reuse_prefix=reuse)
    options = {"rather_than": MIDDLE, "method": METHODS[name]}
    plain = model.explain(LONG, " Rome", **options)
    prepare = ig2.Preparation(checkpoint=True)
    kept = replace(model, prepare=prepare).explain(LONG, " Rome", **options)
    assert kept.attribution.settings["preparation"]["checkpointed"] == 2
    np.testing.assert_allclose(kept.token_scores, plain.token_scores, rtol=1e-9, atol=1e-12)
    models = [replace(model, prepare=each) for each in (True, prepare)]
    memory = [each.pose(LONG, " Rome", **options).cost(batch_size=1).peak_bytes for each in models]
    assert memory[1] < 0.9 * memory[0]  # of two layers: one while its gradient is taken, and the input of each
    assert type(model.net.model.layers[0]).forward is transformers.models.llama.modeling_llama.LlamaDecoderLayer.forward


def test_checkpoints_that_cannot_be_are_named(load: Load) -> None:
    prepare = ig2.Preparation(checkpoint=True)
    refuses(ModelError, "checkpoint", lambda: replace(load("llama"), prepare=prepare).explain(LONG, " Rome"))  # DeepSHAP
    x = torch.rand(2, 3)
    attribution = ig2.IntegratedGradients(3)(ig2.wrap(nn.Linear(3, 2).eval(), prepare=prepare), x, 0)
    assert "several layers" in attribution.settings["preparation"]["checkpointed"]


@pytest.mark.parametrize("name", METHODS)
def test_pieces_of_a_batch_add_up_to_the_same(load: Load, name: str) -> None:
    model, pairs = load("llama"), [PAIR, MIDDLE, "In Germany of France is old and many people speak French"]
    call = (LONG, " Rome", None, pairs, METHODS[name])
    together, alone = model.explain(*call), model.explain(*call, batch_size=1)
    assert together.attribution.cost.points > 1 and alone.attribution.cost.points == 1
    np.testing.assert_allclose(alone.token_scores, together.token_scores, rtol=1e-5, atol=1e-7)


def test_an_estimate_tells_time_and_memory_before_the_start(load: Load) -> None:
    model = load("llama")
    for method in METHODS.values():
        cost = model.pose(LONG, " Rome", rather_than=PAIR, method=method).cost(batch_size=1)
        assert cost.seconds > 0 and cost.points == 1 and cost.peak_bytes
        whole = replace(model, reuse_prefix=False).pose(LONG, " Rome", rather_than=PAIR, method=method).cost(batch_size=1)
        assert cost.peak_bytes < whole.peak_bytes
    steps = [model.pose(LONG, " Rome is", asking=EACH, method=ig2.IG2(steps=k)).estimate() for k in (2, 200)]
    assert steps[1] > 5 * steps[0]
    refuses(InputError, "no estimate", lambda: model.pose(LONG, " Rome", method=ig2.KernelSHAP()).cost())


# -- precision ---------------------------------------------------------------------------------------------------------


def test_half_precision_for_the_network_alone(load: Load) -> None:
    model = modalities.language.load(build("llama").float(), make_tokenizer())
    call = (LONG, " Rome", None, MIDDLE, METHODS["Expected IG"])
    exact, half = model.explain(*call), replace(model, prepare=ig2.Preparation(precision="bfloat16")).explain(*call)
    assert half.attribution.settings["preparation"]["precision"] == "bfloat16"
    assert half.attribution.settings["prefix"] == 8
    assert half.attribution.values["embeddings"].dtype == torch.float32
    np.testing.assert_allclose(half.token_scores, exact.token_scores, atol=0.1 * np.abs(exact.token_scores).max())


# -- several devices ---------------------------------------------------------------------------------------------------


def test_a_model_that_is_spread_over_devices_stays_where_it_is(load: Load) -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    model.net.hf_device_map = {"model": 0, "lm_head": "cpu"}
    model.net.to = None  # as accelerate, whose models refuse to be moved
    assert model.to("cuda") is model
    refuses(InputError, "device_map", lambda: modalities.language.load(build("llama"), make_tokenizer(), device_map="auto"))


def test_a_map_of_devices_as_accelerate_makes_it() -> None:
    accelerate = pytest.importorskip("accelerate")
    net = build("llama")
    expected = modalities.language.load(build("llama"), make_tokenizer()).explain(LONG, " Rome", None, MIDDLE)
    places = {
        "model.embed_tokens": "cpu",
        "model.layers": "cpu",
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "cpu",
    }
    spread = accelerate.dispatch_model(net, places, main_device="cpu", force_hooks=True)
    explanation = modalities.language.load(spread, make_tokenizer()).to("cpu").explain(LONG, " Rome", None, MIDDLE)
    np.testing.assert_allclose(explanation.token_scores, expected.token_scores, atol=1e-9)


class OneDevice(TorchFunctionMode):
    """Refuses operations on tensors of several devices, as GPUs do; PyTorch allows some for the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [each for each in tree_iter((args, kwargs)) if isinstance(each, torch.Tensor) and each.ndim]
        if func is not torch.Tensor.to:
            assert len({tensor.device.type for tensor in tensors}) < 2, f"{func} of tensors on several devices"
        return func(*args, **(kwargs or {}))


class Spread(nn.Module):
    """A network whose embeddings are on one device, the meta device here, and whose last layer is on another, the CPU."""

    config = types.SimpleNamespace(decoder_start_token_id=0)

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Linear(3, 3)  # on the CPU too: the first weights of all need not be the embeddings
        self.table = nn.Embedding(7, 3, device="meta")
        self.training = False

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def forward(self, inputs_embeds: torch.Tensor, **_: Any) -> Any:
        assert inputs_embeds.is_meta
        length = inputs_embeds.shape[1]
        logits = torch.arange(2 * length * 7.0).reshape(2, length, 7)
        states = [logits[..., :3]]
        return types.SimpleNamespace(
            logits=logits, hidden_states=states, decoder_hidden_states=states, encoder_last_hidden_state=states[0],
            start_logits=logits[..., 0], end_logits=logits[..., 1],
        )  # fmt: skip


@pytest.mark.parametrize(
    "outcomes",
    [
        Continuations("causal", ((1, 2), (3,))),
        Continuations("masked", ((1, 2),), at=(0, 2)),
        Continuations("encoder-decoder", ((1, 2, 3, 4, 5),)),
        Continuations("causal", ((1, 2, 3),), each=True),
        Labels(at=1),
        Answers(((0, 1), (2, 4))),
    ],
    ids=lambda outcomes: f"{type(outcomes).__name__}, {getattr(outcomes, 'kind', '')}",
)
def test_scores_and_states_are_read_where_the_last_layer_is(outcomes: Any) -> None:
    net = Spread()
    call = {"inputs_embeds": torch.empty(2, 5, 3, device="meta"), "attention_mask": torch.ones(2, 5, device="meta")}
    # where an explanation's steps are; numbers are read from those of each token, which the meta device does not have
    step = torch.zeros(2, dtype=torch.long, device="cpu" if isinstance(outcomes, Continuations) and outcomes.each else "meta")
    with OneDevice():
        scores, state = outcomes.read(net, call, step)
    assert scores.device.type == state.device.type == "cpu" and scores.isfinite().all() and len(state) == 2


def test_what_a_network_is_given_is_where_its_embeddings_are() -> None:
    model = modalities.language.LanguageModel("spread", Spread(), make_tokenizer(), "causal")
    assert next(model.net.parameters()).device.type == "cpu" and model.device.type == "meta"


def test_options_of_transformers_reach_it(tmp_path: Any) -> None:
    build("llama").float().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert modalities.language.load(str(tmp_path), dtype=torch.bfloat16).net.dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("reuse", [True, False], ids=["prefix", "whole"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_compiled_step_of_a_transformer_gives_what_the_step_gives(
    monkeypatch: pytest.MonkeyPatch, kind: str, reuse: bool
) -> None:
    monkeypatch.setattr(torch, "compile", lambda graph, **options: graph)  # traced, and run by the interpreter
    model = modalities.language.load(build(kind), make_tokenizer())
    call = (LONG, " Rome", None, MIDDLE, ig2.IG2(steps=10, distance=ig2.paths.cosine))
    plain = replace(model, reuse_prefix=reuse).explain(*call)
    fast = replace(model, reuse_prefix=reuse, prepare=ig2.Preparation(compile=True)).explain(*call)
    assert ("prefix" in fast.attribution.settings) is reuse
    assert fast.attribution.settings["preparation"]["compiled"] is True
    np.testing.assert_allclose(fast.token_scores, plain.token_scores, rtol=1e-5)


@pytest.mark.slow
def test_a_step_that_cannot_be_traced_says_so_in_its_settings_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "compile", lambda graph, **options: graph)
    config = transformers.MixtralConfig(
        **SIZE, num_key_value_heads=1, num_local_experts=2, num_experts_per_tok=1, max_position_embeddings=32
    )
    model = modalities.language.load(transformers.MixtralForCausalLM(config).eval(), make_tokenizer())
    call = (LONG, " Rome", None, MIDDLE, ig2.IG2(steps=10, distance=ig2.paths.cosine))
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addHandler(caplog.handler)
    try:
        done = replace(model, prepare=ig2.Preparation(compile=True)).explain(*call).attribution.settings["preparation"]
    finally:
        log.removeHandler(caplog.handler)
    # experts multiply their matrices by a kernel that the compiler knows for bfloat16 alone
    assert "BF16" in done["compiled"] and not [record for record in caplog.records if record.levelno >= logging.ERROR]
