"""Language models of every kind: what is explained, what adds up, what stays fixed, and what is refused."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import ig2
from ig2 import modalities
from ig2.errors import InputError, MissingExtraError, ModelError
from ig2.modalities.language import Asking, LikelyWords, Neighbours
from ig2.modalities.language.outcomes import Continuations, Scorer
from ig2.question import COUNT
from language import build, make_tokenizer
from networks import refuses

EACH = Asking(each=True)

Load = Callable[..., modalities.language.LanguageModel]
QUICK, STRAIGHT = ig2.IG2(steps=4, distance=ig2.paths.cosine), ig2.ExpectedIG(steps=12)
GERMANY, FRANCE = "In Germany people speak", "In France people speak"
CHAT = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": "What is the capital of France?"}]
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (GERMANY, {"target": " Italian", "against": " French"}),
    "gpt2": (GERMANY, {"target": " Italian"}),
    "gemma": (GERMANY, {"target": " Italian", "against": [" French", " Rome"]}),
    "bert": ("In Germany people speak[MASK].", {"target": " Italian", "against": " French"}),
    "t5": (GERMANY, {"target": " Paris is", "against": " Rome"}),
    "pairs": ((GERMANY, FRANCE), {"target": "yes"}),
    "tokens": (GERMANY, {"asking": Asking(at="Germany"), "target": "LOC"}),
    "answers": (("Where are you?", "In Germany and France"), {"target": "Germany", "against": "France"}),
}


def log_probability(net: Any, ids: list[int], continuation: list[int]) -> float:
    """Token by token from ids, as the chain rule has it."""
    total, ids = 0.0, list(ids)
    for token in continuation:
        with torch.no_grad():
            logits = net(input_ids=torch.tensor([ids])).logits[0, -1]
        total += float(logits.log_softmax(dim=0)[token])
        ids.append(token)
    return total


@pytest.mark.parametrize("kind", CASES)
def test_every_kind_sums_to_the_change_and_leaves_what_is_fixed(load: Load, kind: str) -> None:
    prompt, options = CASES[kind]
    explanation = load(kind).explain(prompt, rather_than=modalities.language.Neighbours(2), method=QUICK, **options)
    attribution = explanation.attribution
    assert float(attribution.relative_residual.max()) < 1e-9
    fixed = [position for position, word in enumerate(explanation.prompt.word) if word < 0]
    assert (explanation.token_scores[:, fixed] == 0).all()
    np.testing.assert_allclose(explanation.word_scores.sum(axis=1), attribution.total.numpy(), rtol=1e-9)
    assert np.abs(explanation.word_scores).min() > 0


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma"])
@pytest.mark.parametrize("target", [" Italian", " Berlin is old"])
def test_the_output_is_the_log_probability_of_the_continuation(load: Load, kind: str, target: str) -> None:
    model = load(kind)
    explanation = model.explain(GERMANY, target, against=" Rome", method=STRAIGHT)
    ids = model.read(GERMANY).ids
    one, two = (log_probability(model.net, list(ids), model.tokenizer(text)["input_ids"]) for text in (target, " Rome"))
    assert float(explanation.attribution.output[0]) == pytest.approx(one - two, abs=1e-5)
    assert explanation.explained == [f"{target!r} rather than ' Rome'"]


def test_the_outputs_of_the_other_kinds(load: Load) -> None:
    bert, t5, pairs = load("bert"), load("t5"), load("pairs")
    masked = bert.explain(CASES["bert"][0], " Italian", None, method=STRAIGHT)
    with torch.no_grad():
        logits = bert.net(input_ids=torch.tensor([masked.prompt.ids])).logits[0]
    place = masked.prompt.ids.index(bert.tokenizer.mask_token_id)
    token = bert.tokenizer(" Italian", add_special_tokens=False)["input_ids"][0]
    assert float(masked.attribution.output[0]) == pytest.approx(float(logits[place].log_softmax(0)[token]), abs=1e-5)

    decoded = t5.explain(GERMANY, " Paris is", None, method=STRAIGHT)
    ids = t5.tokenizer(" Paris is", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = (
            t5.net(input_ids=torch.tensor([decoded.prompt.ids]), decoder_input_ids=torch.tensor([[0, ids[0]]]))
            .logits[0]
            .log_softmax(dim=1)
        )
    assert float(decoded.attribution.output[0]) == pytest.approx(float(logits[0, ids[0]] + logits[1, ids[1]]), abs=1e-5)

    both = pairs.explain((GERMANY, FRANCE), "no", "yes", method=STRAIGHT)
    call = {key: torch.tensor([value]) for key, value in pairs.tokenizer(GERMANY, FRANCE).items()}
    with torch.no_grad():
        logits = pairs.net(**call).logits[0]
    assert float(both.attribution.output[0]) == pytest.approx(float(logits[1] - logits[0]), abs=1e-5)
    assert set(both.span_scores) == {"first text", "second text"}


def test_answers_are_the_sum_of_start_and_end(load: Load) -> None:
    model = load("answers")
    prompt = CASES["answers"][0]
    outputs = {}
    for ends in ("both", "start", "end"):
        outputs[ends] = float(model.explain(prompt, "Germany", method=STRAIGHT, asking=Asking(ends=ends)).attribution.output[0])
    assert outputs["both"] == pytest.approx(outputs["start"] + outputs["end"], abs=1e-6)
    with torch.no_grad():
        call = {key: torch.tensor([value]) for key, value in model.tokenizer(*prompt).items()}
        result = model.net(**call)
    first, end = model.read(prompt).find_tokens("Germany", part=1)
    assert outputs["start"] == pytest.approx(float(result.start_logits[0].log_softmax(0)[first]), abs=1e-5)
    assert outputs["end"] == pytest.approx(float(result.end_logits[0].log_softmax(0)[end - 1]), abs=1e-5)
    assert model.explain(prompt, method=STRAIGHT).explained[0].strip("'") in "In Germany and France"


def test_a_pair_moves_the_word_that_differs_alone(load: Load) -> None:
    model = load("llama")
    explanation = model.explain(GERMANY, " Italian", " French", rather_than=FRANCE, method=QUICK)
    scores = explanation.word_scores[0]
    assert explanation.prompt.words[int(np.abs(scores).argmax())] == "Germany"
    assert (np.delete(scores, 1) == 0).all()
    free = model.explain(GERMANY, " Italian", " French", rather_than=FRANCE, method=QUICK, asking=Asking(confine=False))
    assert (free.word_scores[0] != 0).all()


def test_against_is_by_default_what_the_model_says_of_the_pair(load: Load) -> None:
    model = load("llama")
    (own, _), (other, _) = model.predict(GERMANY, 1)[0], model.predict(FRANCE, 1)[0]
    assert own != other
    assert model.explain(GERMANY, rather_than=FRANCE, method=STRAIGHT).explained == [f"{own!r} rather than {other!r}"]
    runner_up = model.predict(GERMANY, 2)[1][0]
    assert model.explain(GERMANY, against="next", method=STRAIGHT).explained == [f"{own!r} rather than {runner_up!r}"]


def test_the_output_of_an_aligned_pair_is_that_of_the_pair_where_their_tokens_fit(load: Load) -> None:
    explanation = load("llama").explain(FRANCE, " Italian", " Rome", rather_than="In Rome people speak", method=STRAIGHT)
    attribution = explanation.attribution
    assert float(attribution.baseline_outputs[0, 0]) == pytest.approx(attribution.settings["pair_output"], abs=1e-9)


def test_a_generation_is_explained_step_by_step(load: Load) -> None:
    for kind in ("llama", "t5"):
        model = load(kind)
        explanation = model.explain(GERMANY, model.generate_tokens(GERMANY, 3), asking=EACH, method=QUICK, rather_than=FRANCE)
        assert len(explanation) == 3
        text = model.generate(GERMANY, 3)
        assert "".join(literal_eval(name) for name in explanation.explained) == text
        assert float(explanation.attribution.relative_residual.max()) < 1e-9
        # a row is what the same token gets as the target of the prompt
        first = model.explain(GERMANY, literal_eval(explanation.explained[0]), None, FRANCE, QUICK)
        np.testing.assert_allclose(first.token_scores[0], explanation.token_scores[0], atol=1e-7)


def test_each_token_of_a_target_adds_up_to_the_whole(load: Load) -> None:
    model, pair = load("llama"), "The women people speak"
    each = model.explain(GERMANY, " Berlin is old", rather_than=pair, method=ig2.DeepSHAP(), asking=EACH)
    whole = model.explain(GERMANY, " Berlin is old", None, pair, ig2.DeepSHAP())
    assert each.explained == ["' Berli'", "'n'", "' is'", "' old'"]
    np.testing.assert_allclose(each.token_scores.sum(axis=0), whole.token_scores[0], atol=1e-5)  # RMSNorm works in float32


def test_generation_is_greedy(load: Load) -> None:
    model = load("llama")
    ids = list(model.read(GERMANY).ids)
    for _ in range(4):
        with torch.no_grad():
            ids.append(int(model.net(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert model.generate(GERMANY, 4) == model.decode(ids[5:])


def test_a_chat_is_explained_by_its_spans(load: Load) -> None:
    explanation = load("llama").explain(CHAT, " Paris", method=STRAIGHT)
    sums = explanation.span_scores
    assert list(sums) == ["system", "user"]
    assert sum(float(score[0]) for score in sums.values()) == pytest.approx(float(explanation.attribution.total[0]), abs=1e-9)
    assert "spans: system" in repr(explanation)


def test_a_pair_of_chats_has_the_same_documents(load: Load) -> None:
    pair = [CHAT[0], {"role": "user", "content": "What is the capital of Germany?"}]
    model = load("llama")
    result = model.explain(model.read(CHAT, documents=[{"text": "people speak Italian"}]), " Rome", None, pair)
    moved = {word for word, score in zip(result.prompt.words, result.word_scores[0], strict=True) if score}
    assert moved == {"France"} and not result.attribution.note


def test_a_pair_of_chats_is_aligned_inside_its_messages(load: Load) -> None:
    other = [CHAT[0], {"role": "user", "content": "What is the capital of Rome?"}]
    explanation = load("llama").explain(CHAT, " Paris", " Rome", rather_than=other, method=STRAIGHT)
    moved = np.abs(explanation.word_scores[0]) > 0
    assert [word for word, moves in zip(explanation.prompt.words, moved, strict=True) if moves] == ["France"]


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_likely_words_are_those_the_model_expects(load: Load, kind: str) -> None:
    model = load(kind)
    prompt = model.read(GERMANY if kind == "llama" else "In Germany[MASK]")
    logits = model.predict_tokens(prompt)
    ids = list(prompt.ids)
    position = prompt.positions[2]
    if kind == "llama":  # what comes after the beginning of a text and the tokens before
        call = {"input_ids": torch.tensor([[model.tokenizer.bos_token_id, *ids[:position]]])}
        at = -1
    else:
        call, at = (
            {"input_ids": torch.tensor([[*ids[:position], model.tokenizer.mask_token_id, *ids[position + 1 :]]])},
            position,
        )
    with torch.no_grad():
        expected = model.net(**call).logits[0, at]
    torch.testing.assert_close(logits[2], expected.float(), atol=1e-5, rtol=0)
    drawn = modalities.language.LikelyWords(3).draw(model, prompt)
    banned = [ids[position], *model.tokenizer.all_special_ids]
    best = [token for token in expected.argsort(descending=True).tolist() if token not in banned][:3]
    torch.testing.assert_close(drawn.embeddings[:, position], model.embed(best))


def test_neighbours_and_fillers(load: Load) -> None:
    model = load("llama")
    prompt = model.read("In<s> France")
    table = torch.nn.functional.normalize(model.table, dim=1)
    order = (table @ table[prompt.ids[2]]).argsort(descending=True).tolist()
    nearest = next(i for i in order if i != prompt.ids[2] and i not in model.tokenizer.all_special_ids)
    drawn = modalities.language.Neighbours(1).draw(model, prompt).embeddings[0]
    torch.testing.assert_close(drawn[2], model.embed([nearest])[0])
    torch.testing.assert_close(drawn[1], model.embed([prompt.ids[1]])[0])  # the mark stays
    for kind, vector in {"zero": torch.zeros(16).double(), "mean": model.table.mean(0), "eos": model.table[3]}.items():
        filled = modalities.language.Filler(kind).draw(model, prompt).embeddings[0]
        torch.testing.assert_close(filled[[0, 2]], vector.expand(2, -1))
    refuses(InputError, "unknown", lambda: modalities.language.Filler("nothing"))
    refuses(InputError, "does not say", lambda: modalities.language.LikelyWords().draw(load("t5"), prompt))


def test_several_pairs_and_other_prompts(load: Load) -> None:
    model = load("llama")
    attribution = model.explain(GERMANY, " Italian", rather_than=[FRANCE, "In Rome people speak"], method=STRAIGHT).attribution
    assert attribution.baseline_outputs.shape == (1, 2)
    others = model.explain(
        GERMANY, " Italian", rather_than=modalities.language.OtherPrompts("The old city", FRANCE), method=STRAIGHT
    )
    assert others.attribution.baseline_outputs.shape == (1, 2)
    longer = model.explain(FRANCE, " Italian", rather_than="In Rome people many speak", method=STRAIGHT)
    assert "many" in longer.attribution.note


def test_views(load: Load) -> None:
    explanation = load("llama").explain(GERMANY, " Italian", " French", rather_than=FRANCE, method=QUICK)
    (sentence,) = explanation.sentences
    assert sentence.startswith("' Italian' rather than ' French', ") and "'Germany'" in sentence
    assert "\x1b[" in explanation.to_ansi() and "Germany" in explanation.to_ansi()
    assert "Germany" in explanation._repr_html_()
    assert list(explanation.to_frame()["unit"]) == list(explanation.prompt.words)
    model = load("llama")
    several = model.explain(GERMANY, model.generate_tokens(GERMANY, 3), asking=EACH, rather_than=FRANCE, method=QUICK)
    assert [label.get_text() for label in several.plot().axes[0].get_xticklabels()] == list(several.prompt.words)
    assert several._repr_html_().count("<tr>") >= 4


@pytest.mark.parametrize("rule", [ig2.rules.secant, ig2.rules.blended])
def test_complete_rules_hold_in_float32_too(rule: Any) -> None:
    model = modalities.language.load(build("llama").float(), make_tokenizer())
    method = ig2.IG2(steps=5, distance=ig2.paths.cosine, rule=rule)
    explanation = model.explain(GERMANY, " Italian", " French", rather_than="The women people speak", method=method)
    assert float(explanation.attribution.relative_residual.max()) < 1e-3


def test_bfloat16_keeps_the_path_in_float32() -> None:
    model = modalities.language.load(build("llama").bfloat16(), make_tokenizer())
    attribution = model.explain(GERMANY, " Italian", " French", rather_than=FRANCE, method=QUICK).attribution
    assert attribution.settings["complete"] and bool(attribution.values["embeddings"].isfinite().all())


@pytest.mark.parametrize(("kind", "side"), [("llama", "right"), ("llama", "left"), ("pairs", "right")])
def test_a_tokenizer_that_pads_makes_no_difference(kind: str, side: str) -> None:
    """As those that were saved with padding switched on do: each prompt is run at its own length."""
    prompt, options = CASES[kind]
    plain, padding = (make_tokenizer(marks=kind == "pairs") for _ in range(2))
    padding.padding_side = side
    padding.backend_tokenizer.enable_padding(direction=side, pad_id=0, pad_token="<pad>", length=16)
    results = [
        modalities.language.load(build(kind), tokenizer).explain(
            prompt, rather_than=modalities.language.Neighbours(2), **options
        )
        for tokenizer in (plain, padding)
    ]
    assert results[0].prompt == results[1].prompt
    np.testing.assert_array_equal(results[0].token_scores, results[1].token_scores)


def test_padding_of_a_batch_does_not_change_the_scores_of_an_encoder(load: Load) -> None:
    """The mask that the scorer passes on is heeded: right-padded in a batch as alone."""
    model = load("bert")
    prompt = model.read("In Germany people speak[MASK].")
    outcomes = Continuations("masked", ((7,), (9,)), at=model.find_masks(prompt))
    net, alone = Scorer(model.net, outcomes), model.make_call(prompt, 1)
    rest = model.embed([0, 0, 0])[None]
    padded = (
        torch.cat([alone["inputs_embeds"], rest], dim=1),
        torch.cat([alone["attention_mask"], torch.zeros(1, 3).long()], dim=1),
    )
    step = torch.zeros(1, dtype=torch.long)
    expected = net(alone["inputs_embeds"], alone["attention_mask"], step)
    torch.testing.assert_close(net(*padded, step), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.08), (torch.float16, 0.01)])
def test_the_default_method_comes_close_in_half_precision(dtype: torch.dtype, tolerance: float) -> None:
    call = (GERMANY, " Italian", " French", "The women people speak")
    exact = modalities.language.load(build("llama"), make_tokenizer()).explain(*call)
    half = modalities.language.load(build("llama").to(dtype), make_tokenizer()).explain(*call)
    assert half.attribution.settings["method"] == "DeepSHAP"
    assert float(half.attribution.relative_residual.max()) < tolerance
    np.testing.assert_allclose(half.word_scores, exact.word_scores, atol=tolerance * np.abs(exact.word_scores).max())


def test_the_representation_is_the_state_that_the_target_is_read_from(load: Load) -> None:
    model = load("llama")
    outcomes = Continuations("causal", ((5,),))
    scores, state = outcomes.read(model.net, model.make_call(model.read(GERMANY), 2), torch.zeros(2, dtype=torch.long))
    assert state is not None and state.shape == (2, 1, 16) and scores.shape == (2, 1)
    torch.testing.assert_close(model.net.lm_head(state)[:, 0].log_softmax(1)[:, 5], scores[:, 0])
    everywhere = Continuations("causal", ((5,),), position="all").read(
        model.net, model.make_call(model.read(GERMANY), 2), torch.zeros(2, dtype=torch.long)
    )[1]
    assert everywhere is not None and everywhere.shape == (2, 5, 16)


# -- hostile -----------------------------------------------------------------------------------------------------------


def test_one_token_is_enough(load: Load) -> None:
    explanation = load("llama").explain("In", " Rome", method=QUICK)
    assert explanation.word_scores.shape == (1, 1)
    assert float(explanation.attribution.relative_residual.max()) < 1e-9


def test_what_is_too_long_says_by_how_much(load: Load) -> None:
    model = load("llama")
    refuses(InputError, "33 tokens and llama takes 32", lambda: model.explain("In" + " old" * 32, " Rome"))
    full = "In" + " old" * 31
    refuses(InputError, "33 tokens", lambda: model.explain(full, " Rome is"))
    refuses(InputError, "34 tokens", lambda: model.explain(full, model.generate_tokens(full, 2), asking=EACH))
    assert len(model.explain(full, " Rome", method=ig2.InputXGradient()).prompt) == 32


def test_positions_behind_that_of_the_padding_token_are_fewer() -> None:
    config = transformers.RobertaConfig(
        vocab_size=64, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, pad_token_id=1,
        max_position_embeddings=16,
    )  # fmt: skip
    model = modalities.language.load(transformers.RobertaForMaskedLM(config).eval(), make_tokenizer(marks=True), name="roberta")
    full = "[MASK]" + " old" * 11  # and the two marks
    assert len(model.explain(full, " Rome").prompt) == 14
    refuses(InputError, "15 tokens and roberta takes 14", lambda: model.explain(full + " old", " Rome"))


def test_targets_that_cannot_be(load: Load) -> None:
    model = load("llama")
    refuses(InputError, "no tokens that llama knows", lambda: model.explain(GERMANY, " xyzzy"))
    refuses(InputError, "text to come next", lambda: model.explain(GERMANY, ""))
    refuses(InputError, "itself", lambda: model.explain(GERMANY, " Rome", " Rome"))
    refuses(InputError, "single token", lambda: model.explain(GERMANY, " Rome is", "next"))
    refuses(InputError, "logit", lambda: model.explain(GERMANY, " Rome is", asking=Asking(output="logit")))
    refuses(InputError, "unknown", lambda: model.explain(GERMANY, asking=Asking(output="loss")))
    refuses(InputError, "unknown", lambda: model.explain(GERMANY, asking=Asking(position="first")))
    refuses(InputError, "has none", lambda: load("bert").explain(GERMANY))
    refuses(InputError, "1 masks", lambda: load("bert").explain("In[MASK]", " Rome is"))
    refuses(InputError, "no class", lambda: load("pairs").explain((GERMANY, FRANCE), "perhaps"))
    refuses(InputError, "at=", lambda: load("tokens").explain(GERMANY))
    refuses(InputError, "at=", lambda: model.explain(GERMANY, asking=Asking(at="Germany")))
    refuses(InputError, "each=", lambda: load("pairs").explain((GERMANY, FRANCE), asking=EACH))
    refuses(InputError, "each=True", lambda: model.explain(GERMANY, asking=EACH))
    refuses(InputError, "not in the text", lambda: load("answers").explain((GERMANY, FRANCE), "Spain"))
    refuses(InputError, "question, text", lambda: load("answers").explain(GERMANY))
    refuses(InputError, "does not generate", lambda: load("pairs").generate((GERMANY, FRANCE)))
    refuses(InputError, "predict", lambda: load("pairs").predict(GERMANY))


def test_a_method_has_what_it_declares(load: Load) -> None:
    """References that are likely words if it needs some, no words if it has a baseline, and nothing if it takes none."""
    model = load("llama")
    own = model.explain(GERMANY, " Rome", method=ig2.IntegratedGradients(4))
    named = model.explain(GERMANY, " Rome", rather_than=modalities.language.Filler(), method=ig2.IntegratedGradients(4))
    np.testing.assert_array_equal(own.token_scores, named.token_scores)
    assert own.attribution.settings["reference_kind"] == "filler"
    likely = model.explain(GERMANY, " Rome", method=ig2.ExpectedIG(4)).attribution
    assert len(likely.settings["rather_than"]) == likely.baseline_outputs.shape[1] == COUNT
    alone = model.explain(GERMANY, " Rome", method=ig2.Gradient()).attribution
    assert alone.settings["rather_than"] == [] and alone.settings["question"]["target"] == " Rome"


def test_references_that_cannot_be(load: Load) -> None:
    model = load("llama")
    refuses(InputError, "itself", lambda: model.explain(GERMANY, " Rome", rather_than=GERMANY))
    refuses(InputError, "rather_than", lambda: model.explain(GERMANY, " Rome", rather_than=3))
    refuses(InputError, "at least one", lambda: modalities.language.MinimalPairs())
    refuses(InputError, "at least one", lambda: modalities.language.OtherPrompts())


def test_unknown_words_are_attributed(load: Load) -> None:
    explanation = load("llama").explain("In xyzzy people speak", " Rome", method=QUICK)
    assert explanation.prompt.words[1] == "xyzzy" and explanation.word_scores[0, 1] != 0


def test_a_tokenizer_without_padding_mask_or_marks() -> None:
    bare = make_tokenizer(pad_token=None, mask_token=None, bos_token=None, eos_token=None, cls_token=None, sep_token=None)
    model = modalities.language.load(build("llama"), bare)
    assert model.filler == bare.unk_token_id
    shorter = model.explain("In France many people", " Rome", rather_than="In France people", method=STRAIGHT)
    assert shorter.word_scores[0, 2] != 0 and (np.delete(shorter.word_scores[0], 2) == 0).all()


def test_tied_embeddings_and_scaled_ones(load: Load) -> None:
    tied = modalities.language.load(build("llama", tie_word_embeddings=True), make_tokenizer())
    assert tied.net.lm_head.weight is tied.net.get_input_embeddings().weight
    for model in (tied, load("gemma")):  # Gemma multiplies its embeddings by √16
        attribution = model.explain(GERMANY, " Rome", None, FRANCE, QUICK).attribution
        assert float(attribution.relative_residual.max()) < 1e-9
        assert float(attribution.output[0]) == pytest.approx(
            log_probability(model.net, list(model.read(GERMANY).ids), model.tokenizer(" Rome")["input_ids"]), abs=1e-5
        )


def test_a_slow_tokenizer_explains_letters_as_words() -> None:
    config = transformers.T5Config(
        vocab_size=384, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    model = modalities.language.load(transformers.T5ForConditionalGeneration(config).eval(), transformers.ByT5Tokenizer())
    explanation = model.explain("Hi you", "a", rather_than="Ho you", method=STRAIGHT)
    assert explanation.prompt.words == ("Hi", "you") and explanation.word_scores[0, 1] == 0


def test_models_that_cannot_be_explained(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = make_tokenizer()
    refuses(ModelError, "train mode", lambda: modalities.language.load(build("llama").train(), tokenizer))
    refuses(InputError, "tokenizer", lambda: modalities.language.load(build("llama")))
    refuses(InputError, "network of transformers", lambda: modalities.language.load(torch.nn.Linear(2, 2), tokenizer))
    refuses(InputError, "kind", lambda: modalities.language.load(build("llama").model, tokenizer))
    refuses(InputError, "kind", lambda: modalities.language.load(build("llama"), tokenizer, kind="oracle"))
    refuses(ModelError, "logits", lambda: modalities.language.load(build("llama").model, tokenizer, kind="causal"))
    bart = transformers.BartConfig(vocab_size=64, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=16)  # fmt: skip
    classifier = transformers.BartForSequenceClassification(bart).eval()
    refuses(ModelError, "input embeddings", lambda: modalities.language.load(classifier, tokenizer))
    refuses(InputError, "lm-demo", lambda: modalities.language.load("/no/such/folder"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refuses(MissingExtraError, "lm-demo", lambda: modalities.language.load("smollm2"))

    net = build("llama")
    inner, net.model.forward = (
        net.model.forward,
        lambda *args, inputs_embeds=None, **rest: inner(
            *args, **rest, **({} if inputs_embeds is None else {"inputs_embeds": inputs_embeds * 4})
        ),
    )
    refuses(ModelError, "from embeddings than from tokens", lambda: modalities.language.load(net, tokenizer))


def test_from_a_folder(tmp_path: Any) -> None:
    build("llama").save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    model = modalities.language.load(str(tmp_path))
    assert model.kind == "causal" and model.read(GERMANY).words == ("In", "Germany", "people", "speak")


def test_a_translator_from_a_folder_keeps_its_encoder(tmp_path: Any) -> None:
    config = transformers.MarianConfig(
        vocab_size=64, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1, decoder_attention_heads=1,
        encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=16, pad_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    transformers.MarianMTModel(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    model = modalities.language.load(str(tmp_path))
    assert model.kind == "encoder-decoder" and isinstance(model.net, transformers.MarianMTModel)


def test_a_model_with_pictures_is_no_encoder_decoder(tmp_path: Any) -> None:
    config = transformers.Gemma3Config(
        text_config={"vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
                     "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 8},
        vision_config={"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8,
                       "image_size": 8, "patch_size": 4},
        mm_tokens_per_image=1,
    )  # fmt: skip
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert modalities.language.load(str(tmp_path)).kind == "causal"


def test_a_folder_without_a_head_is_not_given_one_of_random_weights(tmp_path: Any) -> None:
    build("bert").bert.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    refuses(InputError, "BertModel does not say what it returns", lambda: modalities.language.load(str(tmp_path)))


def test_several_tokens_in_one_place_are_their_mean(load: Load) -> None:
    model = load("llama")
    drawn = modalities.language.MinimalPairs(GERMANY).draw(model, model.read(FRANCE))
    torch.testing.assert_close(drawn.embeddings[0, 1], model.embed(model.read(GERMANY).ids[1:3]).mean(dim=0))


def test_no_special_token_is_drawn(load: Load) -> None:
    model = load("llama")
    specials = set(model.tokenizer.all_special_tokens)
    texts = modalities.language.Neighbours(len(model.table) - len(specials) - 1).draw(model, model.read(GERMANY)).texts
    assert not any(special in text for special in specials for text in texts)


def test_a_generation_stops_at_the_end_of_the_text() -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    model.net.config.eos_token_id = model.generate_tokens(GERMANY, 1)[0]
    refuses(InputError, "ends at once", lambda: model.generate(GERMANY))


# -- what a user may ask by mistake --------------------------------------------------------------------------------------

PEOPLE = "In Germany people speak"
QUESTION = ("Where are you", "In Rome people speak")
MISTAKES: dict[str, tuple[str, str, Callable[[modalities.language.LanguageModel], object]]] = {
    "against a number": ("llama", "against", lambda model: model.explain(PEOPLE, " Rome", 3)),
    "a method by its name": ("llama", "method must be", lambda model: model.explain(PEOPLE, " Rome", method="ig2")),
    "a method that was not made": ("llama", "method must be", lambda model: model.explain(PEOPLE, " Rome", method=ig2.IG2)),
    "documents of a text": ("llama", "for a chat", lambda model: model.read(PEOPLE, documents=[{"text": "In Rome"}])),
    "documents as texts": ("llama", "dicts with a text", lambda model: model.read(CHAT, documents=["In Rome"])),
    "an empty list of pairs": ("llama", "rather_than", lambda model: model.explain(PEOPLE, rather_than=[])),
    "an empty pair": ("llama", "of rather_than", lambda model: model.explain(PEOPLE, rather_than="")),
    "a long pair": ("llama", "of rather_than", lambda model: model.explain(PEOPLE, rather_than="In Rome " * 40)),
    "a pair with a word more": ("llama", "besides", lambda model: model.explain("In people", rather_than="In many people")),
    "a pair that is the prompt": ("llama", "itself", lambda model: model.explain(PEOPLE, rather_than=PEOPLE)),
    "too many likely words": ("llama", "count=1000", lambda model: model.explain(PEOPLE, rather_than=LikelyWords(1000))),
    "too many neighbours": ("llama", "count=1000", lambda model: model.explain(PEOPLE, rather_than=Neighbours(1000))),
    "half a character": ("llama", "UTF-8", lambda model: model.explain("In \ud83e Rome")),
    "half a character as target": ("llama", "UTF-8", lambda model: model.explain(PEOPLE, "\ud83e")),
    "half a character in two texts": ("pairs", "UTF-8", lambda model: model.explain(("In \ud83e", "Rome"))),
    "tokens that there are not": ("llama", "does not know", lambda model: model.explain(PEOPLE, [10**6])),
    "no text to answer from": ("answers", "empty", lambda model: model.explain(("Where are you", ""))),
    "an answer against itself": ("answers", "itself", lambda model: model.explain(QUESTION, "Rome", "Rome")),
    "an answer against a number": ("answers", "against", lambda model: model.explain(QUESTION, "Rome", 5)),
    "ends that there are not": ("answers", "ends", lambda model: model.explain(QUESTION, "Rome", asking=Asking(ends="middle"))),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(load: Load, mistake: str) -> None:
    kind, keyword, call = MISTAKES[mistake]
    refuses(InputError, keyword, lambda: call(load(kind)))


def test_a_text_may_end_in_several_ways() -> None:
    model = modalities.language.load(build("llama"), make_tokenizer())
    first, second = model.generate_tokens(PEOPLE, 2)
    model.net.config.eos_token_id = [3, second]  # as Llama 3 has them
    assert model.generate_tokens(PEOPLE, 5) == (first,)


def test_another_target_that_is_named_twice_counts_once(load: Load) -> None:
    once, twice = (load("llama").explain(PEOPLE, " Rome", [" Paris"] * times) for times in (1, 2))
    assert once.explained == twice.explained == ["' Rome' rather than ' Paris'"]


def test_all_tokens_are_predicted_where_more_are_asked_for(load: Load) -> None:
    model = load("llama")
    assert len(model.predict(PEOPLE, 10**6)) == len(model.table)


def test_tokens_generated_before_are_explained_as_they_are(load: Load) -> None:
    model = load("llama")
    ids = model.generate_tokens(PEOPLE, 3)
    assert model.decode(ids) == model.generate(PEOPLE, 3)
    before, now = (model.explain(PEOPLE, tokens, asking=EACH) for tokens in (ids, model.generate_tokens(PEOPLE, 3)))
    assert before.explained == now.explained
    np.testing.assert_allclose(before.token_scores, now.token_scores)


def test_a_pair_reads_as_it_was_written_however_its_tokens_are_spread(load: Load) -> None:
    model = load("llama")  # " Germany" has two tokens, and " France" one
    for prompt, pair in ((PEOPLE, "In France people speak"), ("In France people speak", PEOPLE)):
        assert model.explain(prompt, " Rome", rather_than=pair).attribution.settings["rather_than"] == [pair]
    fewer = model.explain("In France many people speak", " Rome", rather_than="In France people speak").attribution
    assert fewer.settings["rather_than"] == ["In France people speak"]
    assert "'many'" in fewer.note and "[MASK]" in fewer.note
    chats = [[{"role": "user", "content": text}] for text in ("Where is Germany?", "Where is France?")]
    assert model.explain(chats[0], " Rome", rather_than=chats[1]).attribution.settings["rather_than"] == ["Where is France?"]
