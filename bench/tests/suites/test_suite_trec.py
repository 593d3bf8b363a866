"""`ig2 bench trec`: questions of different lengths against whole questions of other kinds, scored by words."""

from __future__ import annotations

import math
import re

import datafiles
import pytest
import torch
from datafiles import write_questions

from ig2 import IG2, DeepSHAP, ExpectedIG, wrap
from ig2.metrics.curves import Insertion
from ig2_bench import Table, run
from ig2_bench.datasets import trec
from ig2_bench.suite import BenchOptions, find_suite
from ig2_bench.suites.experiment import COUNTERFACTUAL
from ig2_bench.suites.trec import SAME, TREC, PaddedCNN, WithPadding

SOME = slice(0, 6)


quick = datafiles.quick("trec")


@pytest.fixture(scope="module")
def table() -> Table:
    return run("trec", quick=True, device="cpu")


@pytest.fixture(scope="module")
def suite() -> TREC:
    return quick(samples=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("trec")
    train, test = trec.make_questions(240).split(0.5)
    write_questions(made / "train_5500.label", train)
    write_questions(made / "TREC_10.label", test)
    return made


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_says_which_questions_these_are(table):
    page = table.to_markdown()
    assert "Data: questions made from a small grammar" in page and "a word is replaced by the zero vector" in page
    facts = {fact.name: fact.mean for fact in table.facts}
    assert 0.4 < facts["accuracy"] <= 1 and "accuracy of ABBR" in facts
    assert table.row("IG² (left, as published)", "ADD").paper == 0.942 and table.row("KernelSHAP", "DEL").paper == 0.172


def test_the_papers_gaps_between_distances_are_figures():
    paper = quick(study="distances").paper()
    assert paper["ℓ1"] == {"ADD": 0.932, "DEL": 0.152} and set(paper) == set(quick(study="distances").methods())
    assert set(quick(study="cost").paper()) <= set(quick(study="cost").methods())


# -- references --------------------------------------------------------------------------------------------------------


def test_references_are_whole_questions_shorter_and_longer_than_those_explained(suite):
    explicands = suite.explicands
    lengths = explicands.fixed[0].sum(dim=1)
    references = explicands.references[COUNTERFACTUAL]
    of_references = (references.samples != 0).any(dim=2).sum(dim=1)[references.rows]
    assert (of_references > lengths[:, None]).any() and (of_references < lengths[:, None]).any()
    wholes = _alone(suite, suite.loaded[0].x)
    for text in references.samples:
        words = text[: int((text != 0).any(dim=1).sum())]
        assert any(words.shape == whole.shape and torch.equal(words, whole) for whole in wholes)


def _alone(suite, texts):
    """Each text's embeddings, without padding."""
    net = suite.explicands.model.net
    with torch.no_grad():
        return [net.net.embedding(net.inputs((text,)))[0] for text in texts]


def test_a_text_says_the_same_whatever_it_is_padded_to(suite):
    net = suite.explicands.model.net
    text = _alone(suite, suite.loaded[1].x[:1])[0][None]
    longer = [torch.nn.functional.pad(text, (0, 0, 0, more)) for more in (0, 1, 7, 30)]
    said = torch.cat([net(one) for one in longer])
    assert torch.allclose(said, said[:1], atol=1e-5)
    assert torch.allclose(net(net.inputs(suite.loaded[1].x[:1])), said[:1], atol=1e-5)
    hidden = net.net(net.inputs(suite.loaded[1].x[:1]))
    assert torch.allclose(hidden, said[:1], atol=0.1)


def test_gradpath_writes_no_words_behind_the_end(suite):
    explicands = suite.explicands
    words = explicands.fixed[0][SOME]
    references = explicands.references[COUNTERFACTUAL].select(SOME)
    found = IG2(4, 0.5)(explicands.model, suite.method_input(SOME), explicands.target[SOME], references)
    assert (found.values[0][~words] == 0).all() and (found.gradcf[0].mean(dim=1)[~words] == 0).all()
    assert (found.gradcf[0].mean(dim=1)[words] != 0).any()
    free = IG2(4, 0.5)(explicands.model, explicands.x[SOME], explicands.target[SOME], references)
    assert (free.values[~words] != 0).any()  # without being told where the words are it does


def test_what_references_have_behind_the_end_is_accounted_for(suite, recwarn):
    explicands = suite.explicands
    references = explicands.references[COUNTERFACTUAL].select(SOME)
    call = (explicands.model, suite.method_input(SOME), explicands.target[SOME], references)
    straight = ExpectedIG(200)(*call)
    assert (straight.values[0][~explicands.fixed[0][SOME]] != 0).any()
    assert (straight.residual.abs() < 0.02).all()
    assert (WithPadding(DeepSHAP())(*call).residual.abs() < 1e-4).all()
    # the largest over all places is a choice, whose change the words before the end share
    assert (DeepSHAP()(*call).residual.abs() < 1e-4).all()
    assert not recwarn.list


def test_one_by_one_leaves_out_the_class_explained():
    suite = quick(samples=6, study="one-by-one")
    explicands = suite.explicands
    table = run(suite)
    for kind, name in enumerate(trec.CLASSES):
        values = table.row(f"one {name}", "ADD").values
        assert [math.isnan(value) for value in values] == (explicands.target == kind).tolist()
        said = explicands.model.net(explicands.references[name].select(SOME)[:, 0]).argmax(dim=1)
        assert (said == kind).all()
    assert torch.equal(explicands.model.net(explicands.references[SAME].select(SOME)[:, 0]).argmax(dim=1), explicands.target)
    assert table.row("all 2 of other classes", "DEL").n == 6
    assert len(set(explicands.references["NUM"].rows.flatten().tolist())) > 1  # not one question for all


# -- scoring -----------------------------------------------------------------------------------------------------------


def test_words_alone_are_scored(suite):
    explicands = suite.explicands
    values = torch.rand(explicands.x[SOME].shape, generator=torch.Generator().manual_seed(0))
    found = suite.score_attribution(values, SOME)["ADD"]
    texts = dict(zip(suite.loaded[1].names, suite.loaded[1].x, strict=True))
    for i, text in enumerate(_alone(suite, [texts[name] for name in explicands.names])):
        alone = Insertion(background=0.0, features="word")
        one = alone(wrap(explicands.model.net), values[i : i + 1, : len(text)], text[None], explicands.target[i : i + 1])
        assert float(one.values) == pytest.approx(float(found[i]), abs=1e-5)
    values[~explicands.fixed[0][SOME]] = 1e6  # whatever stands on padding
    assert torch.equal(suite.score_attribution(values, SOME)["ADD"], found)


def test_an_own_method_gives_a_tensor_like_the_embeddings(suite):
    found = run(suite, ["gradient"], own={"own": lambda model, x, target, references, seed: x[0]})
    assert found.failures == () and found.row("own", "ADD").n == 6
    found = run(suite, ["gradient"], own={"own": lambda model, x, target, references, seed: x[0].sum(dim=2)})
    assert "the shape of the embeddings" in found.failures[0].said
    found = run(suite, ["gradient"], own={"own": lambda model, x, target, references, seed: x[0].numpy()})
    assert re.search(
        r"returned ndarray .*: expected an Attribution, or a tensor like x, \(6, .*torch.from_numpy", found.failures[0].said
    )


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_of_label_files(folder):
    found = run("trec", ["gradient"], quick=True, data=folder, samples=2)
    assert found.failures == () and found.data.startswith("TREC questions, test. ")
    suite = quick(data=folder)
    assert suite.step_size == 0.4 and all(name.startswith("test line") for name in suite.explicands.names)


def test_word_vectors_beside_the_questions_are_where_it_starts(folder):
    words = ["what", "who", "is", "the", "?", "many"]
    vectors = torch.rand(len(words), 7, generator=torch.Generator().manual_seed(0))
    lines = [
        f"{word} {' '.join(f'{value:.4f}' for value in vector)}\n" for word, vector in zip(words, vectors.tolist(), strict=True)
    ]
    path = folder / "glove.tiny.txt"
    path.write_text("".join(lines))
    try:
        suite = quick(data=folder, samples=2)
        assert suite.source() == "TREC questions, test; word vectors start from glove.tiny.txt" and suite.step_size == 1.2
        assert "chosen" not in find_suite("trec", BenchOptions(data=folder, device="cpu")).describe_data()
        assert suite.explicands.x.shape[2] == 7 and isinstance(suite.explicands.model.net, PaddedCNN)
        # scores of a network that starts from other vectors are not those of this one
        before = suite.digest_data()
        path.write_text("".join(reversed(lines)))
        assert suite.digest_data() != before
    finally:
        path.unlink()
