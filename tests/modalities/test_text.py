"""Sentences in, a number a word out; padding stays where it is and out of everything."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch import Tensor, nn

import ig2
from ig2 import modalities
from ig2._engine.explicands import Explicands
from ig2._engine.session import Session
from ig2._utils import training
from ig2.demo import questions
from ig2.errors import InputError, ModelError
from ig2.inputs import Fixed
from ig2.metrics import Completeness, Deletion, Insertion, ParameterRandomisation
from ig2.modalities.base import Batch
from ig2.modalities.text.sentences import TextSubject
from ig2.modalities.text.words import Tokens, find_words

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
KINDS = ("person", "place", "number")
CUT_UP = ("guinea", "pigs", "originate")
SHARED, STRAIGHT = ig2.IG2(steps=40, rule=ig2.rules.shared), ig2.ExpectedIG(steps=60)
LONG, SHORT = "Where did guinea pigs originate?", "Who invented tea?"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> TextSubject:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IG2_CACHE", str(tmp_path_factory.mktemp("cache")))
        return modalities.text.load()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """WordPiece that knows common words and single letters; a vocabulary it learnt itself would not be the same every time."""
    found = Counter(word for question, _ in questions.questions(1200) for word, _, _ in questions.split(question))
    common = sorted(found, key=lambda word: (-found[word], word))[:250]
    pieces = [
        *"abcdefghijklmnopqrstuvwxyz",
        *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
        *"?.'-",
        "##ine",
        "##ig",
    ]
    vocabulary = dict.fromkeys([*SPECIALS, *pieces, *(word for word in common if word not in CUT_UP)])
    cut = tokenizers.Tokenizer(tokenizers.models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    cut.normalizer = tokenizers.normalizers.BertNormalizer()
    cut.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    cut.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=cut,
        model_max_length=64,
        **{f"{name[1:-1].lower()}_token": name for name in SPECIALS},
    )


def small_bert(**options: Any) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=400,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        **options,
    )
    with training.local_seed(0):
        return transformers.BertForSequenceClassification(config).eval()


class Logits(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.net(input_ids=ids, attention_mask=mask).logits


@pytest.fixture(scope="module")
def bert(tokenizer: Any) -> TextSubject:
    """A small sequence classifier, made and trained here: does a question ask for a person, a place or a number?"""
    net = small_bert(
        num_labels=3,
        id2label=dict(enumerate(KINDS)),
        label2id={name: i for i, name in enumerate(KINDS)},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    made = [(question, kind - 3) for question, kind in questions.questions(1200) if kind >= 3]
    encoded = tokenizer([question for question, _ in made], padding=True, return_tensors="pt")
    answers = torch.tensor([kind for _, kind in made])
    inputs = [encoded["input_ids"], encoded["attention_mask"]]
    training.fit(Logits(net), inputs, answers, nn.functional.cross_entropy, epochs=10, batch=32, rate=3e-3)
    others = [question for question, kind in questions.questions(48, seed=3) if kind >= 3]
    return modalities.text.from_transformers(net.eval(), tokenizer, texts=others)


def moved_at_fixed(batch: modalities.text.TextBatch, points: Tensor) -> float:
    """The largest change at padding or special tokens, over everything between the sample's axis and the token's."""
    while points.ndim > 3:
        points = (points - batch.attributed.reshape(len(batch), *[1] * (points.ndim - 3), *batch.attributed.shape[1:])).abs()
        points = points.flatten(1, -3).amax(dim=1)
    return float(points[batch.word < 0].max())


# -- a Hugging Face classifier -----------------------------------------------------------------------------------------


def test_a_hugging_face_classifier_is_explained_by_words_that_sum_to_the_change(bert: TextSubject) -> None:
    batch = bert.read([LONG, SHORT])
    assert batch.units == (("Where", "did", "guinea", "pigs", "originate", "?"), ("Who", "invented", "tea", "?"))
    assert int((batch.word[0] == 2).sum()) > 1  # "guinea" is several tokens
    assert [bert.label(i) for i in bert.predict(batch).argmax(dim=1).tolist()] == ["place", "person"]
    chosen = ig2.Question(against=None, count=4).contrast(bert, batch)
    # complete rules sum to the change exactly; the integral along the line, as far as its 60 gradients go
    for method, off in (
        (SHARED, 1e-3),
        (ig2.ExpectedIG(steps=60, rule=ig2.rules.scaled(ig2.rules.left)), 1e-3),
        (STRAIGHT, 0.1),
    ):
        a = method(bert.model, batch.x, references=chosen.samples)
        scores = bert.scores(batch, a)
        for row in range(2):
            change = float(a.output[row] - a.baseline_output[row])
            assert len(scores[row]) == len(batch.units[row])
            assert scores[row].sum() == pytest.approx(change, rel=off)
            assert abs(change) > 0.5
            if method is STRAIGHT:
                assert batch.units[row][scores[row].argmax()] == ("Where", "Who")[row]


def test_words_sum_to_the_total_exactly(bert: TextSubject) -> None:
    batch = bert.read([LONG, SHORT])
    a = ig2.IG2(steps=5)(bert.model, batch.x, references=bert.references(["What is an atom?", "How tall is he?"], batch))
    for row, scores in enumerate(bert.scores(batch, a)):
        assert scores.sum() == pytest.approx(float(a.total[row]), rel=1e-5)
    each = ig2.IG2(steps=5)(bert.model, batch.x, references=bert.references("What is an atom?", batch), per_reference=True)
    one = bert.scores(batch, each, each.per_reference["embeddings"][:, 0])
    assert np.allclose(one[0], bert.scores(batch, each)[0])


@pytest.mark.parametrize(
    "method", [ig2.IG2(steps=10), ig2.ExpectedIG(steps=3), ig2.GuidedIG(steps=10)], ids=lambda m: type(m).__name__
)
def test_no_path_moves_padding_and_none_of_it_is_attributed(bert: TextSubject, method: ig2.Method) -> None:
    batch = bert.read([LONG, SHORT])
    chosen = ig2.Question(against=None, count=3).contrast(bert, batch)
    assert (batch.mask[1] == 0).sum() > 5
    a = method(bert.model, batch.x, references=chosen.samples, paths=True)
    assert moved_at_fixed(batch, a.paths["embeddings"]) == 0
    assert moved_at_fixed(batch, chosen.samples["embeddings"]) == 0
    assert (a.values["embeddings"][batch.mask == 0] == 0).all()
    assert a.values["embeddings"][1][batch.mask[1] == 1].abs().max() > 0


def test_a_text_is_explained_the_same_alone_and_beside_a_longer_one(bert: TextSubject) -> None:
    alone, beside = bert.read(SHORT), bert.read([LONG, SHORT])
    others = ["What is an atom?", "Where is Paris?"]
    one, two = (
        ig2.IG2(steps=20)(bert.model, batch.x, target=0, references=bert.references(others, batch)) for batch in (alone, beside)
    )
    assert np.allclose(bert.scores(alone, one)[0], bert.scores(beside, two)[1], atol=1e-4)
    assert np.abs(bert.scores(alone, one)[0]).max() > 1e-2


def test_padding_and_special_tokens_have_no_gradient_whatever_a_path_makes_of_them(bert: TextSubject) -> None:
    batch = bert.read([LONG, SHORT])
    inputs, rows = Explicands.of(batch.x), torch.arange(2)
    strange = torch.where(batch.word[..., None] < 0, 99.0, batch.attributed).requires_grad_()
    with Session(bert.model, inputs, prepares=False) as session:
        scores = session.scores_with_graph(strange, rows)
        assert torch.equal(scores, session.scores(batch.attributed, rows))
        (gradient,) = torch.autograd.grad(scores.sum(), strange)
    assert (gradient[batch.word < 0] == 0).all()
    assert (gradient[batch.word >= 0] != 0).any(dim=1).all()
    free = {"embeddings": Fixed(batch.attributed.clone().requires_grad_(), where=batch.word < 0), "mask": Fixed(batch.mask)}
    (gradient,) = torch.autograd.grad(bert.model(free).sum(), free["embeddings"].value)
    assert (gradient[batch.word < 0] == 0).all()
    assert (gradient[batch.word >= 0] != 0).any(dim=1).all()


def test_embeddings_say_what_tokens_say(bert: TextSubject, tokenizer: Any) -> None:
    batch = bert.read([LONG, SHORT])
    encoded = tokenizer([LONG, SHORT], padding=True, return_tensors="pt")
    assert torch.equal(batch.ids, encoded["input_ids"])
    with torch.no_grad():
        assert torch.allclose(bert.predict(batch), bert.model.net.net(**encoded).logits, atol=1e-5)


def test_references_take_the_places_of_words_and_leave_special_tokens(bert: TextSubject, tokenizer: Any) -> None:
    batch = bert.read(SHORT)
    fitted = bert.references(["Who?", LONG], batch)["embeddings"]
    assert fitted.shape == (1, 2, *batch.attributed.shape[1:])
    ends = batch.word[0] == -1
    assert torch.equal(fitted[0, :, ends], batch.attributed[0, ends].expand(2, -1, -1))
    table = bert.model.net.net.get_input_embeddings().weight
    who = tokenizer("Who?", add_special_tokens=False)["input_ids"]
    places = (batch.word[0] >= 0).nonzero()[:, 0]
    assert torch.equal(fitted[0, 0, places[: len(who)]], table[who].detach())
    assert torch.equal(fitted[0, 0, places[len(who) :]], table[[0] * (len(places) - len(who))].detach())  # filled with [PAD]
    long = tokenizer(LONG, add_special_tokens=False)["input_ids"]
    assert torch.equal(fitted[0, 1, places], table[long[: len(places)]].detach())  # cut off


def test_baselines_replace_words_and_nothing_else(bert: TextSubject) -> None:
    batch = bert.read([LONG, SHORT])
    table = bert.model.net.net.get_input_embeddings().weight.detach()
    is_word = batch.word >= 0
    for kind, filler in (("zero", torch.zeros(32)), ("pad", table[0]), ("mask", table[4])):
        found = bert.baseline(batch, kind)["embeddings"][:, 0]  # type: ignore[arg-type]
        assert (found[is_word] == filler).all()
        assert torch.equal(found[~is_word], batch.attributed[~is_word])
    with pytest.raises(InputError, match="'zero', 'pad' or 'mask'"):
        bert.baseline(batch, "black")  # type: ignore[arg-type]


def test_labels_numbers_and_names_come_from_the_config(tokenizer: Any) -> None:
    several = modalities.text.from_transformers(small_bert(num_labels=3, problem_type="multi_label_classification"), tokenizer)
    assert several.outputs == "labels"
    assert several.classes == ("LABEL_0", "LABEL_1", "LABEL_2")
    number = modalities.text.from_transformers(small_bert(num_labels=1), tokenizer)
    assert number.outputs == "numbers"
    batch = number.read(SHORT)
    chosen = ig2.Question(against=None, references=number.pool([LONG, SHORT])).contrast(number, batch)
    assert chosen.names == ((LONG,),)  # anything but the text itself
    a = ig2.IntegratedGradients(steps=30)(number.model, batch.x, references=number.baseline(batch))
    assert number.scores(batch, a)[0].sum() == pytest.approx(float(a.output - a.baseline_output), rel=1e-2)


def test_a_named_layer_is_one_of_the_model(bert: TextSubject, tokenizer: Any) -> None:
    net = bert.model.net.net
    mine = modalities.text.from_transformers(ig2.wrap(net, "bert.pooler"), tokenizer)
    batch = mine.read(SHORT)
    a = ig2.IG2(steps=3)(mine.model, batch.x, references=mine.references(LONG, batch))
    assert a.gradcf["embeddings"].shape == (1, 1, *batch.attributed.shape[1:])


def test_a_decoder_that_reads_the_last_place_is_refused_with_padding_and_works_without(tokenizer: Any) -> None:
    config = transformers.GPT2Config(
        vocab_size=400, n_positions=64, n_embd=16, n_layer=1, n_head=2, num_labels=3, pad_token_id=0, eos_token_id=3
    )
    with training.local_seed(0):
        net = transformers.GPT2ForSequenceClassification(config).eval()
    mine = modalities.text.from_transformers(net, tokenizer)
    with pytest.raises(ModelError, match="read them one at a time"):
        mine.read([LONG, SHORT])
    batch = mine.read(SHORT)
    a = ig2.IntegratedGradients(steps=20)(mine.model, batch.x, references=mine.references([LONG, "What is it?"], batch))
    assert mine.scores(batch, a)[0].sum() == pytest.approx(float(a.output - a.baseline_output), rel=2e-2)


class Scaled(transformers.BertForSequenceClassification):
    """A model that does something to its embeddings on the way from tokens."""

    def forward(self, input_ids: Any = None, inputs_embeds: Any = None, **rest: Any) -> Any:
        if input_ids is not None:
            inputs_embeds = self.get_input_embeddings()(input_ids) * 30
        return super().forward(inputs_embeds=inputs_embeds, **rest)


def test_models_that_cannot_be_run_from_embeddings_are_refused(tokenizer: Any) -> None:
    config = small_bert(num_labels=3).config
    with training.local_seed(0):
        scaled = Scaled(config).eval()
    with pytest.raises(ModelError, match="from embeddings"):
        modalities.text.from_transformers(scaled, tokenizer)
    with pytest.raises(ModelError, match="train mode"):
        modalities.text.from_transformers(small_bert(num_labels=3).train(), tokenizer)
    with pytest.raises(InputError, match="fast tokenizer"):
        modalities.text.from_transformers(small_bert(num_labels=3), object())


def test_a_folder_of_transformers_is_loaded(bert: TextSubject, tokenizer: Any, tmp_path: Path) -> None:
    bert.model.net.net.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    mine = modalities.text.load(f"transformers:{tmp_path / 'model'}")
    assert mine.classes == KINDS
    assert torch.allclose(mine.predict(mine.read(LONG)), bert.predict(bert.read(LONG)), atol=1e-5)
    bert.model.net.net.bert.save_pretrained(tmp_path / "body")
    tokenizer.save_pretrained(tmp_path / "body")
    with pytest.raises(InputError, match="has no trained classifier"):
        modalities.text.load(f"transformers:{tmp_path / 'body'}")
    with pytest.raises(InputError, match="is not available") as caught:
        modalities.text.load(f"transformers:{tmp_path / 'nowhere'}")
    assert "\n" not in str(caught.value)


# -- models that are no classifiers ------------------------------------------------------------------------------------


def test_an_encoder_is_explained_by_what_output_makes_of_it(tokenizer: Any) -> None:
    encoder = small_bert(num_labels=3).bert.eval()
    with pytest.raises(ModelError, match=r"output=.*last_hidden_state"):
        modalities.text.from_transformers(encoder, tokenizer)
    first = functools.partial(ig2.wrap, encoder, output=lambda r: r.last_hidden_state[:, 0, :5])
    with pytest.raises(ModelError, match="representation='output'"):  # the last linear layer has a row for each token
        modalities.text.from_transformers(first(), tokenizer).read([LONG, SHORT])
    mine = modalities.text.from_transformers(first("output"), tokenizer)
    assert (mine.classes, mine.outputs) == (None, "numbers")
    batch = mine.read([LONG, SHORT])
    assert mine.predict(batch).shape == (2, 5)
    a = ig2.IG2(steps=5)(mine.model, batch.x, 2, references=mine.references("What is an atom?", batch))
    assert mine.scores(batch, a)[0].sum() == pytest.approx(float(a.output[0] - a.baseline_output[0]), rel=1e-3)
    head = nn.Linear(32, 2)
    named = modalities.text.from_transformers(
        ig2.wrap(encoder, output=lambda result: head(result.pooler_output)), tokenizer, classes=["good", "bad"], texts=[LONG]
    )
    assert (named.classes, named.outputs) == (("good", "bad"), "classes")
    pooled = ig2.wrap(encoder, output=lambda r: r.pooler_output)
    assert modalities.text.from_transformers(pooled, tokenizer, outputs="labels").outputs == "labels"


class OwnHead(nn.Module):
    """A network of someone's around an encoder, without a config."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = small_bert(num_labels=3).bert
        with training.local_seed(1):
            self.head = nn.Linear(32, 4)

    def forward(self, input_ids: Any = None, attention_mask: Any = None, inputs_embeds: Any = None) -> Tensor:
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds)
        return self.head(states.last_hidden_state[:, 0])


def test_a_module_without_a_config_is_explained(tokenizer: Any) -> None:
    mine = modalities.text.from_transformers(OwnHead().eval(), tokenizer)
    assert (mine.name, mine.classes, mine.outputs, mine.most) == ("OwnHead", None, "classes", 64)
    batch = mine.read([LONG, SHORT])
    assert mine.predict(batch).shape == (2, 4)
    a = ig2.IG2(steps=5)(mine.model, batch.x, references=mine.references("What is an atom?", batch))
    assert Deletion(features="word")(mine.model, a).n == 2
    assert modalities.text.from_transformers(OwnHead().eval(), tokenizer, classes="abcd").label(3) == "d"
    with pytest.raises(ModelError, match="from_parts"):
        modalities.text.from_transformers(nn.Sequential(nn.Embedding(400, 4), nn.Linear(4, 2)).eval(), tokenizer)


def test_a_causal_model_is_told_to_name_its_token(tokenizer: Any) -> None:
    config = transformers.GPT2Config(
        vocab_size=400, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=3
    )
    with training.local_seed(0):
        causal = transformers.GPT2LMHeadModel(config).eval()
    with pytest.raises(ModelError, match=r"causal.*logits\[:, -1\]"):
        modalities.text.from_transformers(causal, tokenizer)
    mine = modalities.text.from_transformers(ig2.wrap(causal, output=lambda result: result.logits[:, -1]), tokenizer)
    assert (mine.classes, mine.outputs) == (None, "classes")
    batch = mine.read(SHORT)
    assert mine.predict(batch).shape == (1, 400)
    a = ig2.IG2(steps=5)(mine.model, batch.x, references=mine.references(LONG, batch))
    assert mine.scores(batch, a)[0].sum() == pytest.approx(float(a.output - a.baseline_output), rel=1e-2)


def test_a_model_whose_weights_are_elsewhere_is_named(tokenizer: Any) -> None:
    with pytest.raises(ModelError, match="meta"):
        modalities.text.from_transformers(small_bert(num_labels=3).to("meta"), tokenizer)


# -- metrics -----------------------------------------------------------------------------------------------------------

METRICS: dict[str, Any] = {
    "insertion": Insertion(features="word"),
    "deletion": Deletion(features="word"),
    "deletion to the mean": Deletion("mean", features="word"),
    "deletion by element": Deletion(features="element", thresholds=10),
    "completeness": Completeness(baseline=0.0),
}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("which", ["bert", "asked"])
def test_a_text_scores_the_same_alone_and_beside_longer_ones(name: str, which: str, request: pytest.FixtureRequest) -> None:
    subject: TextSubject = request.getfixturevalue(which)
    metric = METRICS[name]
    alone, beside = subject.read(SHORT), subject.read([LONG, SHORT, "Who was the first person who invented green tea?"])
    # ties too: half of the words get the same value
    made = ig2.Gradient()(subject.model, beside.x)
    values = made.values["embeddings"] * (torch.arange(beside.ids.shape[1]) % 2)[:, None]
    length = alone.ids.shape[1]
    expected = metric(subject.model, values[1:2, :length], alone.x, made.target[1])
    found = metric(subject.model, {"embeddings": values}, beside.x, made.target)
    assert float(found.values[1]) == pytest.approx(float(expected.values[0]), rel=1e-4)
    if expected.curves is not None:
        assert torch.allclose(found.curves[1], expected.curves[0], rtol=1e-4, atol=1e-6)
        assert expected.curves.std() > 1e-4


def test_ranks_of_words_do_not_count_padding(bert: TextSubject) -> None:
    method = ig2.InputXGradient()
    metric = ParameterRandomisation(method, layers=["net.classifier", "net.bert.pooler"], features="word")
    alone, beside = (metric(bert.model, method(bert.model, bert.read(given).x)) for given in (SHORT, [LONG, SHORT]))
    assert torch.allclose(beside.curves[1], alone.curves[0], atol=1e-3)


def test_kernel_shap_leaves_special_tokens_and_padding_out(bert: TextSubject) -> None:
    alone, beside = bert.read(SHORT), bert.read([LONG, SHORT])
    one, two = (ig2.KernelSHAP(torch.arange(batch.ids.shape[1])[:, None])(bert.model, batch.x, 0) for batch in (alone, beside))
    assert np.allclose(bert.scores(alone, one)[0], bert.scores(beside, two)[1], atol=1e-5)
    assert (two.values["embeddings"][beside.word < 0] == 0).all()
    assert torch.allclose(two.total, two.output - two.baseline_output, atol=1e-5)


def test_an_attribution_of_texts_is_scored_without_its_mask_in_whole_in_part_and_from_a_file(
    bert: TextSubject, tmp_path: Path
) -> None:
    batch = bert.read([LONG, SHORT])
    a = ig2.IG2(steps=5)(bert.model, batch.x, references=bert.references("What is an atom?", batch))
    metric = Deletion(features="word")
    expected = metric(bert.model, a, batch.x).values
    assert torch.equal(metric(bert.model, a).values, expected)
    assert torch.allclose(metric(bert.model, a[1]).values, expected[1:], atol=1e-6)
    assert torch.equal(metric(bert.model, ig2.Attribution.join([a[0], a[1]])).values, expected)
    a.save(tmp_path / "texts.safetensors")
    again = ig2.Attribution.load(tmp_path / "texts.safetensors")
    assert torch.equal(metric(bert.model, again).values, expected)
    assert torch.equal(again.x["embeddings"].where, a.x["embeddings"].where)


# -- words -------------------------------------------------------------------------------------------------------------


def cut(*spans: tuple[int, int], special: tuple[int, ...] = (), groups: list[int | None] | None = None) -> Tokens:
    return Tokens(range(len(spans)), spans, [i in special for i in range(len(spans))], groups)


WORDS: dict[str, tuple[str, Tokens, list[int], list[str]]] = {
    "pieces of a word": ("unhappy dog", cut((0, 2), (2, 7), (8, 11)), [0, 0, 1], ["unhappy", "dog"]),
    "the tokenizer's own words": ("dog's", cut((0, 3), (3, 4), (4, 5), groups=[0, 1, 2]), [0, 1, 2], ["dog", "'", "s"]),
    "special tokens": ("a b", cut((0, 0), (0, 1), (2, 3), (0, 0), special=(0, 3)), [-1, 0, 1, -1], ["a", "b"]),
    "a special token between pieces": ("ab", cut((0, 1), (1, 1), (1, 2), special=(1,)), [0, -1, 1], ["a", "b"]),
    "blanks inside tokens": ("a bc d", cut((0, 1), (1, 3), (3, 4), (4, 6)), [0, 1, 1, 2], ["a", "bc", "d"]),
    "one group for everything": ("a bc d", cut((0, 1), (2, 3), (3, 4), (5, 6), groups=[0] * 4), [0, 1, 1, 2], ["a", "bc", "d"]),
    "blanks as tokens": ("  a b", cut((0, 2), (2, 3), (3, 4), (4, 5)), [0, 0, 0, 1], ["a", "b"]),
    "several tokens for a sign": ("é!", cut((0, 1), (0, 1), (1, 2)), [0, 0, 0], ["é!"]),
    "a token for nothing": ("a b", cut((0, 0), (0, 1), (2, 3)), [0, 0, 1], ["a", "b"]),
    "signs of a language without blanks": ("猫犬", cut((0, 1), (1, 2), groups=[0, 1]), [0, 1], ["猫", "犬"]),
}


@pytest.mark.parametrize("case", WORDS)
def test_tokens_are_merged_to_words_by_where_they_stand(case: str) -> None:
    whole, tokens, numbers, expected = WORDS[case]
    assert find_words(whole, tokens) == (numbers, expected)


# -- plain parts -------------------------------------------------------------------------------------------------------


def by_letters(whole: str) -> list[tuple[int, int, int]]:
    return [(ord(sign) % 28 + 1, i, i + 1) for i, sign in enumerate(whole) if not sign.isspace()]


class MeanNet(nn.Module):
    """A mean over tokens, with or without heed of padding."""

    def __init__(self, heeds: bool) -> None:
        super().__init__()
        self.heeds = heeds
        self.head = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))

    def forward(self, embeddings: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None or not self.heeds:
            return self.head(embeddings.mean(dim=1))
        weight = mask[..., None] / mask.sum(dim=1)[:, None, None]
        return self.head((embeddings * weight).sum(dim=1))


def letters(heeds: bool = True, **options: Any) -> TextSubject:
    with training.local_seed(0):
        return modalities.text.from_parts(nn.Embedding(30, 6), MeanNet(heeds).eval(), by_letters, **options)


def test_an_embedding_a_network_and_a_tokenizer_are_enough() -> None:
    mine = letters(classes=["good", "bad"])
    batch = mine.read(["very good", "bad"])
    assert batch.units == (("very", "good"), ("bad",))
    assert isinstance(batch.x["mask"], Fixed)
    a = ig2.IntegratedGradients(steps=30)(mine.model, batch.x, references=mine.baseline(batch, "zero"))
    for row, scores in enumerate(mine.scores(batch, a)):
        assert scores.sum() == pytest.approx(float(a.output[row] - a.baseline_output[row]), rel=1e-4)


def test_a_network_that_sees_padding_is_refused_with_padding_and_works_without() -> None:
    mine = letters(heeds=False)
    assert mine.read(["abc", "xyz"]).mask.all()  # of one length
    with pytest.raises(ModelError, match="padding changes what the model makes of 'bad'"):
        mine.read(["very good", "bad"])
    fixed = letters(heeds=False, length=12)  # trained on twelve tokens, padding and all
    batch = fixed.read(["very good", "bad"])
    assert batch.ids.shape == (2, 12)
    assert torch.allclose(fixed.predict(batch)[1], fixed.predict(fixed.read("bad"))[0])


def test_a_network_without_a_mask_is_called_without_one() -> None:
    with training.local_seed(0):
        net = MeanNet(True).eval()
    mine = modalities.text.from_parts(nn.Embedding(30, 6), ig2.wrap(lambda embeddings, mask: net(embeddings)), by_letters)
    assert mine.predict(mine.read("abc")).shape == (1, 2)


def test_wrong_texts_are_named(bert: TextSubject) -> None:
    mine = letters(length=5)
    cases: list[tuple[TextSubject, Any, str]] = [
        (mine, [], "no texts"),
        (mine, "  ", "is empty"),
        (mine, [3], "must be a string"),
        (mine, "far too long a text", "has 15 tokens and the model takes 5"),
        (bert, "word " * 80, "has 82 tokens and the model takes 64|tokens and the model takes 64"),
        (bert, "\u200b", "nothing is left"),
    ]
    for subject, given, expected in cases:
        with pytest.raises(InputError, match=expected) as caught:
            subject.read(given)
        assert len(str(caught.value)) < 250
    with pytest.raises(InputError, match="comes with no texts"):
        mine.pool()
    with pytest.raises(InputError, match="no mask token"):
        mine.baseline(mine.read("abc"), "mask")
    with pytest.raises(InputError, match="expected 1 rows of 5 positions"):
        mine.scores(mine.read("abc"), ig2.IntegratedGradients(steps=2)(mine.model, mine.read("abc").x), torch.zeros(1, 3, 6))
    with pytest.raises(InputError, match=r"questions, breast-cancer.* or transformers:NAME"):
        modalities.text.load("answers")


# -- the built-in classifier of questions ------------------------------------------------------------------------------


def test_the_built_in_classifier_knows_what_a_question_asks_for(asked: TextSubject) -> None:
    kinds = {
        "Where did guinea pigs originate?": "LOC",
        "Who painted the Mona Lisa?": "HUM",
        "What does UNICEF stand for?": "ABBR",
        "How many moons does Jupiter have?": "NUM",
        "When did the war of the roses end?": "NUM",
        "Why is grass green?": "DESC",
        "What colour is a flamingo?": "ENTY",
        "What is the capital of Mongolia?": "LOC",
    }
    predicted = asked.predict(asked.read(list(kinds))).argmax(dim=1)
    assert [asked.label(i) for i in predicted.tolist()] == [asked.label(asked.index(kind)) for kind in kinds.values()]


def test_the_word_that_asks_is_what_the_built_in_classifier_goes_by(asked: TextSubject) -> None:
    batch = asked.read([LONG, "Who painted the Mona Lisa?"])
    chosen = ig2.Question(against=None, count=10).contrast(asked, batch)
    assert all("place (LOC)" not in labels for labels in chosen.labels[:1])
    assert len(set(chosen.labels[0])) == 5
    a = ig2.IG2(steps=40, rule=ig2.rules.shared)(asked.model, batch.x, references=chosen.samples)
    first, second = asked.scores(batch, a)
    assert batch.units[0][first.argmax()] == "Where"
    assert batch.units[1][second.argmax()] == "Who"
    assert first.sum() == pytest.approx(float(a.output[0] - a.baseline_output[0]), rel=1e-3)


def test_references_of_text_are_chosen_from_texts_and_of_texts_that_were_read(asked: TextSubject) -> None:
    batch = asked.read([LONG, SHORT])
    texts = ["Who wrote Hamlet?", "How many people live there?"]
    read, unread = (ig2.Question("LOC", None, pool).contrast(asked, batch) for pool in (asked.pool(texts), texts))
    assert read.names == unread.names and {*read.names[0]} == {*texts}
    with pytest.raises(InputError, match=r"references must be samples as .* returns them, got Batch"):
        ig2.Question(against=None, references=Batch((LONG,), torch.zeros(1, 5, 3))).contrast(asked, batch)
    with pytest.raises(InputError, match="batch must be samples as"):
        ig2.Question(against=None).contrast(asked, Batch((LONG,), torch.zeros(1, 5, 3)))


def test_a_text_subject_shows_neither_its_texts_nor_its_functions(asked: TextSubject) -> None:
    assert len(repr(asked)) < 200
    assert repr(asked).startswith("TextSubject('Questions CNN', classes=tuple of 6 (")


def test_made_up_questions_depend_on_the_seed_alone() -> None:
    assert questions.questions(12, seed=2) == questions.questions(12, seed=2)
    assert questions.questions(12, seed=2) != questions.questions(12, seed=3)
    assert all("{" not in question for question, _ in questions.questions(600))


def test_the_text_cnn_never_looks_at_padding(asked: TextSubject) -> None:
    batch, alone = asked.read([LONG, "Who?"]), asked.read("Who?")
    assert torch.allclose(asked.predict(batch)[1], asked.predict(alone)[0], atol=1e-5)
